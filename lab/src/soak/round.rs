//! A run: its rounds and the final deletion.

use std::sync::PoisonError;
use std::time::Duration;

use anyhow::Context as _;
use eno_simulator::{HandEdit, PortMode};
use futures::future::try_join_all;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::args::SoakArgs;
use super::callback_log::CallbackLog;
use super::fabric::{self, Fabric};
use super::inject::FaultInjector;
use super::model::World;
use super::objects::Objects;
use super::rng::SeededRng;
use super::{SharedTally, action_generator, faults};
use crate::receiver::{Answer, AnswerPolicy, Receiver};
use crate::sandbox::Sandbox;
use crate::switch;

/// Duration of the actions of a round in milliseconds, minimum and maximum.
const ACTING_MILLIS: (u64, u64) = (30_000, 50_000);
/// Pause between two actions in milliseconds, minimum and maximum.
const PAUSE_MILLIS: (u64, u64) = (10, 250);
/// Percentage of callback posts that are answered with an error.
const BAD_ANSWER_PERCENT: usize = 30;
/// Maximum failures of one callback, which bounds the time to quiet.
const MAX_BAD_ANSWERS: u32 = 3;
/// The first VLAN ID of manual configuration, and the number of such IDs.
const FOREIGN_VLANS: (u16, usize) = (3000, 900);
/// Maximum foreign VLANs on a switch.
const MAX_FOREIGN_VLANS: usize = 4;

/// A run.
pub(super) struct Soak<'a> {
    /// The options.
    pub(super) args: &'a SoakArgs,
    /// The sandbox.
    pub(super) sandbox: &'a Sandbox,
    /// A client of probes, metrics and the switches' control API.
    pub(super) http: &'a reqwest::Client,
    /// The cables.
    pub(super) fabric: &'a Fabric,
    /// Injects the faults.
    pub(super) injector: &'a FaultInjector<'a>,
    /// The prefix of VLAN names.
    pub(super) prefix: String,
    /// The receiver of callbacks.
    pub(super) receiver: Receiver,
    /// Access to the custom resources.
    pub(super) objects: Objects,
    /// The model.
    pub(super) world: World,
    /// The callbacks received so far.
    pub(super) callback_log: CallbackLog,
    /// The counters.
    pub(super) tally: SharedTally,
    /// The random numbers of the run.
    pub(super) rng: SeededRng,
    /// Number of foreign VLANs configured so far.
    pub(super) foreign_vlans: u16,
}

impl Soak<'_> {
    pub(super) async fn run(&mut self) -> anyhow::Result<()> {
        self.objects.prepare(&self.world).await?;
        self.until_quiescent("the beginning").await?;
        let began = Instant::now();
        let mut round = 0;
        while began.elapsed() < self.args.time {
            round += 1;
            self.configure_foreign_vlan().await?;
            self.act(round).await?;
            let acted = began.elapsed();
            self.until_quiescent(&format!("round {round}")).await?;
            self.world.settle();
            let tally = self.tally.get();
            eprintln!(
                "  round {round}: {} services and {} attachments, {} actions and {} faults so far; quiet after {:.1} s ({:.0} s of {} s)",
                self.world.services.len(),
                self.world.attachments.len(),
                tally.actions.values().sum::<u64>(),
                tally.faults.values().sum::<u64>(),
                began.elapsed().saturating_sub(acted).as_secs_f64(),
                began.elapsed().as_secs_f64(),
                self.args.time.as_secs()
            );
        }
        self.objects.delete_all(&self.world).await?;
        self.world = World::default();
        self.until_quiescent("the end, when everything is deleted").await
    }

    /// Performs actions and injects faults for the length of a round, and then repairs the faults.
    async fn act(&mut self, round: usize) -> anyhow::Result<()> {
        let mut rng = self.rng.fork();
        // A short run has at least two rounds.
        let within =
            rng.millis(ACTING_MILLIS.0..=ACTING_MILLIS.1).min(self.args.time / 3).max(Duration::from_secs(5));
        let planned = faults::plan(&self.args.faults, &self.injector.targets(), within, round == 1, &mut rng);
        let (heal, began) = (&CancellationToken::new(), Instant::now());
        let (injector, tally) = (self.injector, &self.tally);
        let injecting = try_join_all(planned.iter().map(|planned| async move {
            if injector.inject(planned, began, heal).await? {
                tally.update(|tally| *tally.faults.entry(planned.fault.name()).or_default() += 1);
            }
            anyhow::Ok(())
        }));
        let (world, objects, bounds) = (&mut self.world, &self.objects, self.args.bounds());
        let acting = async {
            let mut at = Duration::ZERO;
            loop {
                at += rng.millis(PAUSE_MILLIS.0..=PAUSE_MILLIS.1);
                if at >= within {
                    break;
                }
                // The action is chosen before the wait, so that timing does not change the sequence.
                let Some(action) = action_generator::next(world, &bounds, &mut rng) else { continue };
                tokio::time::sleep_until(began + at).await;
                world.record(&action);
                objects.perform(&action, world).await.with_context(|| format!("{action:?}"))?;
                tally.update(|tally| *tally.actions.entry(action.kind()).or_default() += 1);
            }
            heal.cancel();
            anyhow::Ok(())
        };
        tokio::try_join!(injecting, acting)?;
        Ok(())
    }

    /// Configures a foreign VLAN on a switch while nothing else changes. On a real switch, too, a rollback loses manual
    /// edits made during the change.
    async fn configure_foreign_vlan(&mut self) -> anyhow::Result<()> {
        // A separate sequence, since the number of values used here depends on timing.
        let mut rng = self.rng.fork();
        let switches: Vec<_> = self
            .sandbox
            .switches()
            .iter()
            .filter(|info| !self.fabric.with_startup.contains(&info.name))
            .collect();
        let Some(info) = rng.pick(&switches).copied() else { return Ok(()) };
        let vid = FOREIGN_VLANS.0 + self.foreign_vlans;
        let on =
            |all: &fabric::Foreign| all.configured.iter().filter(|((on, _), _)| *on == info.name).count();
        let present = on(&self.injector.foreign.lock().unwrap_or_else(PoisonError::into_inner));
        if present >= MAX_FOREIGN_VLANS || usize::from(self.foreign_vlans) >= FOREIGN_VLANS.1 {
            return Ok(());
        }
        self.foreign_vlans += 1;
        // The port may be the operator's, too: the first ones lead to nodes or leaves.
        let port = format!("Ethernet{}", 1 + rng.below(4));
        let edit = HandEdit {
            port: Some(port.clone()),
            mode: Some(PortMode::Trunk),
            vlans: std::iter::once(vid).collect(),
            define_vlans: std::iter::once((vid, fabric::foreign_name(vid))).collect(),
            ..HandEdit::default()
        };
        switch::edit_manually(self.http, info, &edit)
            .await
            .with_context(|| format!("editing {}", info.name))?;
        let mut foreign = self.injector.foreign.lock().unwrap_or_else(PoisonError::into_inner);
        foreign.configured.insert(((info.name.clone(), port), vid));
        Ok(())
    }
}

/// Answers a part of all posts with an error; half of those are recorded all the same.
pub(super) fn answers(mut rng: SeededRng) -> AnswerPolicy {
    Box::new(move |_, failed| {
        if failed >= MAX_BAD_ANSWERS || !rng.percent(BAD_ANSWER_PERCENT) {
            Answer::Taken
        } else if rng.percent(50) {
            Answer::Refused
        } else {
            Answer::TakenAndRefused
        }
    })
}
