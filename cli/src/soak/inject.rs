//! Has things go wrong, and puts them right again.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use anyhow::Context as _;
use eno_simulator::{
    Boot, Fault as SwitchFault, HandEdit, PortView, RejectEdit, Stage, SwitchInfo, View, When,
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::fabric::{Fabric, Foreign};
use super::faults::{Fault, PlannedFault, Targets};
use super::rng::SeededRng;
use crate::sandbox::Sandbox;
use crate::switch;

pub(super) const ENGINES: [&str; 2] = ["engine", "engine-2"];
pub(super) const DRIVERS: [&str; 4] = ["driver-netconf", "driver-netconf-2", "driver-nad", "driver-nad-2"];
pub(super) const NATS: &str = "nats-server";

/// Strikes what runs in a sandbox.
pub(super) struct FaultInjector<'a> {
    sandbox: &'a Sandbox,
    http: &'a reqwest::Client,
    fabric: &'a Fabric,
    /// One thing goes wrong at a time with each.
    lanes: BTreeMap<&'a str, tokio::sync::Mutex<()>>,
    pub(super) foreign: Mutex<Foreign>,
}

impl<'a> FaultInjector<'a> {
    pub(super) fn new(sandbox: &'a Sandbox, http: &'a reqwest::Client, fabric: &'a Fabric) -> Self {
        let switches = sandbox.switches().iter().map(|info| info.name.as_str());
        let all = ENGINES.into_iter().chain(DRIVERS).chain([NATS]).chain(switches);
        let lanes = all.map(|name| (name, tokio::sync::Mutex::new(()))).collect();
        Self { sandbox, http, fabric, lanes, foreign: Mutex::default() }
    }

    pub(super) fn targets(&self) -> Targets {
        Targets { engines: ENGINES.len(), drivers: DRIVERS.len(), switches: self.sandbox.switches().len() }
    }

    /// Strikes at its time, and puts it right after its time or when all is to be healed. False: it didn't come to it.
    pub(super) async fn inject(
        &self,
        planned: &PlannedFault,
        began: Instant,
        heal: &CancellationToken,
    ) -> anyhow::Result<bool> {
        if heal.run_until_cancelled(tokio::time::sleep_until(began + planned.at)).await.is_none() {
            return Ok(false);
        }
        let name =
            self.name_of(planned).with_context(|| format!("no target for {}", planned.fault.name()))?;
        let lane = self.lanes.get(name).with_context(|| format!("there is no {name}"))?;
        let _turn = lane.lock().await;
        if heal.is_cancelled() {
            return Ok(false);
        }
        let what = || format!("{} of {name}", planned.fault.name());
        self.inject_fault(planned, name, heal).await.with_context(what)
    }

    /// Has every process go on that may be paused.
    pub(super) fn resume_all(&self) {
        for name in ENGINES.into_iter().chain(DRIVERS) {
            // One that does not run is not paused.
            let _ = self.sandbox.resume_child(name);
        }
    }

    fn name_of(&self, planned: &PlannedFault) -> Option<&'a str> {
        match planned.fault {
            Fault::EngineKilled | Fault::EnginePaused => ENGINES.get(planned.target).copied(),
            Fault::DriverKilled | Fault::DriverPaused => DRIVERS.get(planned.target).copied(),
            Fault::NatsKilled => Some(NATS),
            Fault::SwitchSilent | Fault::SwitchRefuses | Fault::SwitchReboots | Fault::SwitchEdited => {
                self.sandbox.switches().get(planned.target).map(|info| info.name.as_str())
            }
        }
    }

    async fn inject_fault(
        &self,
        planned: &PlannedFault,
        name: &str,
        heal: &CancellationToken,
    ) -> anyhow::Result<bool> {
        let lasts = async {
            heal.run_until_cancelled(tokio::time::sleep(planned.lasts)).await;
        };
        let mut rng = planned.rng.clone();
        match planned.fault {
            Fault::EngineKilled | Fault::DriverKilled => {
                self.sandbox.kill_child(name).await?;
                lasts.await;
                self.sandbox.start_child(name).await?;
            }
            Fault::EnginePaused | Fault::DriverPaused => {
                self.sandbox.pause_child(name)?;
                lasts.await;
                self.sandbox.resume_child(name)?;
            }
            Fault::NatsKilled => {
                let part = self.sandbox.kill_part(name).await?;
                lasts.await;
                self.sandbox.start_part(part).await?;
            }
            Fault::SwitchSilent | Fault::SwitchRefuses => {
                let info = self.switch(name)?;
                let fault =
                    if planned.fault == Fault::SwitchSilent { silence(&mut rng) } else { refusal(&mut rng) };
                switch::inject(self.http, info, &fault).await?;
                lasts.await;
                switch::inject(self.http, info, &SwitchFault::Clear {}).await?;
            }
            Fault::SwitchReboots => {
                let info = self.switch(name)?;
                let saved = self.fabric.with_startup.contains(name) || rng.percent(50);
                let boot = if saved { Boot::Saved } else { Boot::Factory };
                // It is away before it is up again.
                switch::inject(self.http, info, &SwitchFault::Unreachable {}).await?;
                switch::reboot(self.http, info, boot).await?;
                self.foreign.lock().unwrap_or_else(PoisonError::into_inner).rebooted(name, boot);
                lasts.await;
                switch::inject(self.http, info, &SwitchFault::Clear {}).await?;
            }
            Fault::SwitchEdited => {
                let info = self.switch(name)?;
                let view = switch::running(self.http, info).await?.view;
                let Some(edit) = manual_removal(&view, &mut rng) else { return Ok(false) };
                let taken = edit.remove_vlans.iter().map(|vid| (name.to_owned(), vid));
                self.foreign.lock().unwrap_or_else(PoisonError::into_inner).taken.extend(taken);
                switch::by_hand(self.http, info, &edit).await?;
            }
        }
        Ok(true)
    }

    pub(super) fn switch(&self, name: &str) -> anyhow::Result<&'a SwitchInfo> {
        self.sandbox.switch(name).with_context(|| format!("there is no switch {name}"))
    }
}

/// How a switch falls silent.
fn silence(rng: &mut SeededRng) -> SwitchFault {
    match rng.below(4) {
        0 => SwitchFault::HalfOpen {},
        1 => SwitchFault::Hang {
            operation: Some("edit-config".to_owned()),
            when: When::Before,
            times: Some(1),
        },
        2 => SwitchFault::Drop { operation: Some("commit".to_owned()), when: When::After, times: Some(1) },
        _ => SwitchFault::Unreachable {},
    }
}

/// How a switch refuses.
fn refusal(rng: &mut SeededRng) -> SwitchFault {
    let at = if rng.percent(50) { Stage::Commit } else { Stage::Edit };
    SwitchFault::RejectEdit(RejectEdit { at, ..RejectEdit::default() })
}

/// Takes a VLAN of ours from the switch, or all VLANs from a port that has only ours; `None`: it has none. Not one of
/// several from a port: taken from a list that has only that one by then, it would leave a trunk that carries all, which
/// the driver leaves as it is.
fn manual_removal(view: &View, rng: &mut SeededRng) -> Option<HandEdit> {
    let ours = |name: &Option<String>| name.as_deref().is_some_and(|name| name.starts_with("eno-"));
    let vids: Vec<u16> =
        view.vlans.iter().filter(|(_, vlan)| ours(&vlan.name)).map(|(vid, _)| *vid).collect();
    let has_ours = |port: &PortView| {
        !port.configured.is_empty() && port.configured.iter().all(|vid| vids.contains(&vid))
    };
    let ports: Vec<&String> =
        view.ports.iter().filter(|(_, port)| has_ours(port)).map(|(name, _)| name).collect();
    if let Some(port) = rng.pick(&ports).copied()
        && rng.percent(60)
    {
        return Some(HandEdit { port: Some(port.clone()), clear: true, ..HandEdit::default() });
    }
    let vid = *rng.pick(&vids)?;
    Some(HandEdit { remove_vlans: std::iter::once(vid).collect(), ..HandEdit::default() })
}
