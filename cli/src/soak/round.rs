//! A run: round after round, and the end.

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
use super::{Counted, action_generator, faults};
use crate::receiver::{Answer, Answers, Receiver};
use crate::sandbox::Sandbox;
use crate::switch;

/// How long is acted before all is to be quiet, in milliseconds, at least and at most.
const ACTING: (u64, u64) = (30_000, 50_000);
/// Between two actions, in milliseconds.
const PAUSE: (u64, u64) = (10, 250);
/// Of a hundred posts so many are answered badly.
const BAD_ANSWERS: usize = 30;
/// But one callback not more often, so that the time to quiet has a bound.
const MOST_BAD: u32 = 3;
/// The first VLAN ID that others configure by hand, and how many there are.
const OTHERS: (u16, usize) = (3000, 900);
/// VLANs of others on a switch, at most.
const MOST_OTHERS: usize = 4;

/// A run.
pub(super) struct Soak<'a> {
    pub(super) args: &'a SoakArgs,
    pub(super) sandbox: &'a Sandbox,
    pub(super) http: &'a reqwest::Client,
    pub(super) fabric: &'a Fabric,
    pub(super) injector: &'a FaultInjector<'a>,
    /// What stands before the ID in the name of a VLAN.
    pub(super) prefix: String,
    pub(super) receiver: Receiver,
    pub(super) objects: Objects,
    pub(super) world: World,
    pub(super) callback_log: CallbackLog,
    pub(super) tally: Counted,
    pub(super) rng: SeededRng,
    pub(super) others: u16,
}

impl<'a> Soak<'a> {
    #[expect(clippy::too_many_arguments, reason = "what it is made of, once")]
    pub(super) async fn new(
        args: &'a SoakArgs,
        seed: u64,
        sandbox: &'a Sandbox,
        http: &'a reqwest::Client,
        fabric: &'a Fabric,
        injector: &'a FaultInjector<'a>,
        prefix: String,
        tally: Counted,
    ) -> anyhow::Result<Self> {
        let mut rng = SeededRng::new(seed);
        let receiver = Receiver::start_with(answers(rng.fork())).await.context("listening for callbacks")?;
        let objects = Objects::new(sandbox.client(), args.namespaces, receiver.url().to_owned());
        let (world, callback_log) = (args.world(), CallbackLog::default());
        let others = 0;
        Ok(Self {
            args,
            sandbox,
            http,
            fabric,
            injector,
            prefix,
            receiver,
            objects,
            world,
            callback_log,
            tally,
            rng,
            others,
        })
    }

    pub(super) async fn run(&mut self) -> anyhow::Result<()> {
        self.objects.prepare(&self.world).await?;
        self.until_quiescent("the beginning").await?;
        let began = Instant::now();
        let mut round = 0;
        while began.elapsed() < self.args.time {
            round += 1;
            self.configure_others().await?;
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

    /// Objects come, change and go while things go wrong; then what went wrong is put right.
    async fn act(&mut self, round: usize) -> anyhow::Result<()> {
        let mut rng = self.rng.fork();
        // A short run has at least two rounds.
        let within = rng.millis(ACTING.0..=ACTING.1).min(self.args.time / 3).max(Duration::from_secs(5));
        let planned = faults::plan(&self.args.faults, &self.injector.targets(), within, round == 1, &mut rng);
        let (heal, began) = (&CancellationToken::new(), Instant::now());
        let (injector, tally) = (self.injector, &self.tally);
        let striking = try_join_all(planned.iter().map(|planned| async move {
            if injector.inject(planned, began, heal).await? {
                tally.update(|tally| *tally.faults.entry(planned.fault.name()).or_default() += 1);
            }
            anyhow::Ok(())
        }));
        let (world, objects, bounds) = (&mut self.world, &self.objects, self.args.bounds());
        let acting = async {
            let mut at = Duration::ZERO;
            loop {
                at += rng.millis(PAUSE.0..=PAUSE.1);
                if at >= within {
                    break;
                }
                // SeededRng decides what is done, however long that takes.
                let Some(action) = action_generator::next(world, &bounds, &mut rng) else { continue };
                tokio::time::sleep_until(began + at).await;
                world.take(&action);
                objects.perform(&action, world).await.with_context(|| format!("{action:?}"))?;
                tally.update(|tally| *tally.actions.entry(action.kind()).or_default() += 1);
            }
            heal.cancel();
            anyhow::Ok(())
        };
        tokio::try_join!(striking, acting)?;
        Ok(())
    }

    /// Somebody configures a VLAN of theirs on a switch, by hand, while nobody else does anything: what is done by hand
    /// during a change that is taken back is lost with it on a real switch too.
    async fn configure_others(&mut self) -> anyhow::Result<()> {
        // Its own, since how much of it is used is not decided by the seed.
        let mut rng = self.rng.fork();
        let switches: Vec<_> = self
            .sandbox
            .switches()
            .iter()
            .filter(|info| !self.fabric.with_startup.contains(&info.name))
            .collect();
        let Some(info) = rng.pick(&switches).copied() else { return Ok(()) };
        let vid = OTHERS.0 + self.others;
        let on =
            |all: &fabric::Foreign| all.configured.iter().filter(|((on, _), _)| *on == info.name).count();
        let there = on(&self.injector.foreign.lock().unwrap_or_else(PoisonError::into_inner));
        if there >= MOST_OTHERS || usize::from(self.others) >= OTHERS.1 {
            return Ok(());
        }
        self.others += 1;
        // On a port of ours too: the first ones lead to nodes, or to leaves.
        let port = format!("Ethernet{}", 1 + rng.below(4));
        let edit = HandEdit {
            port: Some(port.clone()),
            mode: Some(PortMode::Trunk),
            vlans: std::iter::once(vid).collect(),
            define_vlans: std::iter::once((vid, fabric::foreign_name(vid))).collect(),
            ..HandEdit::default()
        };
        switch::by_hand(self.http, info, &edit).await.with_context(|| format!("editing {}", info.name))?;
        let mut foreign = self.injector.foreign.lock().unwrap_or_else(PoisonError::into_inner);
        foreign.configured.insert(((info.name.clone(), port), vid));
        Ok(())
    }
}

/// Answers a part of all posts badly: half of those were taken all the same.
fn answers(mut rng: SeededRng) -> Answers {
    Box::new(move |_, failed| {
        if failed >= MOST_BAD || !rng.percent(BAD_ANSWERS) {
            Answer::Taken
        } else if rng.percent(50) {
            Answer::Refused
        } else {
            Answer::TakenAndRefused
        }
    })
}
