//! Injects faults and repairs them.

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

/// Injects faults into a sandbox.
pub(super) struct FaultInjector<'a> {
    sandbox: &'a Sandbox,
    http: &'a reqwest::Client,
    fabric: &'a Fabric,
    /// A lock per target, which has one fault at a time.
    locks: BTreeMap<&'a str, tokio::sync::Mutex<()>>,
    pub(super) foreign: Mutex<Foreign>,
}

impl<'a> FaultInjector<'a> {
    pub(super) fn new(sandbox: &'a Sandbox, http: &'a reqwest::Client, fabric: &'a Fabric) -> Self {
        let switches = sandbox.switches().iter().map(|info| info.name.as_str());
        let all = ENGINES.into_iter().chain(DRIVERS).chain([NATS]).chain(switches);
        let locks = all.map(|name| (name, tokio::sync::Mutex::new(()))).collect();
        Self { sandbox, http, fabric, locks, foreign: Mutex::default() }
    }

    pub(super) fn targets(&self) -> Targets {
        Targets { engines: ENGINES.len(), drivers: DRIVERS.len(), switches: self.sandbox.switches().len() }
    }

    /// Injects a fault at its time, and repairs it after its duration or when `heal` is cancelled. False: it was not
    /// injected.
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
        let lock = self.locks.get(name).with_context(|| format!("there is no {name}"))?;
        let _guard = lock.lock().await;
        if heal.is_cancelled() {
            return Ok(false);
        }
        let what = || format!("{} of {name}", planned.fault.name());
        self.inject_fault(planned, name, heal).await.with_context(what)
    }

    /// Resumes all processes that may be paused.
    pub(super) fn resume_all(&self) {
        for name in ENGINES.into_iter().chain(DRIVERS) {
            // An error means that it does not run.
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
        let until_over = async {
            heal.run_until_cancelled(tokio::time::sleep(planned.lasts)).await;
        };
        let mut rng = planned.rng.clone();
        match planned.fault {
            Fault::EngineKilled | Fault::DriverKilled => {
                self.sandbox.kill_child(name).await?;
                until_over.await;
                self.sandbox.start_child(name).await?;
            }
            Fault::EnginePaused | Fault::DriverPaused => {
                self.sandbox.pause_child(name)?;
                until_over.await;
                self.sandbox.resume_child(name)?;
            }
            Fault::NatsKilled => {
                let part = self.sandbox.kill_part(name).await?;
                until_over.await;
                self.sandbox.start_part(part).await?;
            }
            Fault::SwitchSilent | Fault::SwitchRefuses => {
                let info = self.switch(name)?;
                let fault = if planned.fault == Fault::SwitchSilent {
                    random_silence(&mut rng)
                } else {
                    random_refusal(&mut rng)
                };
                switch::inject(self.http, info, &fault).await?;
                until_over.await;
                switch::inject(self.http, info, &SwitchFault::Clear {}).await?;
            }
            Fault::SwitchReboots => {
                let info = self.switch(name)?;
                let saved = self.fabric.with_startup.contains(name) || rng.percent(50);
                let boot = if saved { Boot::Saved } else { Boot::Factory };
                // The switch is unreachable during its reboot.
                switch::inject(self.http, info, &SwitchFault::Unreachable {}).await?;
                switch::reboot(self.http, info, boot).await?;
                self.foreign.lock().unwrap_or_else(PoisonError::into_inner).rebooted(name, boot);
                until_over.await;
                switch::inject(self.http, info, &SwitchFault::Clear {}).await?;
            }
            Fault::SwitchEdited => {
                let info = self.switch(name)?;
                let view = switch::running(self.http, info).await?.view;
                let Some(edit) = manual_removal(&view, &mut rng) else { return Ok(false) };
                let taken = edit.remove_vlans.iter().map(|vid| (name.to_owned(), vid));
                self.foreign.lock().unwrap_or_else(PoisonError::into_inner).taken.extend(taken);
                switch::edit_manually(self.http, info, &edit).await?;
            }
        }
        Ok(true)
    }

    pub(super) fn switch(&self, name: &str) -> anyhow::Result<&'a SwitchInfo> {
        self.sandbox.switch(name).with_context(|| format!("there is no switch {name}"))
    }
}

/// A random way in which a switch falls silent.
fn random_silence(rng: &mut SeededRng) -> SwitchFault {
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

/// A refusal at a random stage.
fn random_refusal(rng: &mut SeededRng) -> SwitchFault {
    let at = if rng.percent(50) { Stage::Commit } else { Stage::Edit };
    SwitchFault::RejectEdit(RejectEdit { at, ..RejectEdit::default() })
}

/// A manual edit that removes a VLAN of the operator from the switch, or all VLANs from a port that has only such
/// VLANs. `None`: there is none. It never removes one of several VLANs from a port. If that were the last one by then,
/// the port would become a trunk for all VLANs, which the driver leaves unchanged.
fn manual_removal(view: &View, rng: &mut SeededRng) -> Option<HandEdit> {
    let is_managed = |name: &Option<String>| name.as_deref().is_some_and(|name| name.starts_with("eno-"));
    let vids: Vec<u16> =
        view.vlans.iter().filter(|(_, vlan)| is_managed(&vlan.name)).map(|(vid, _)| *vid).collect();
    let has_only_managed = |port: &PortView| {
        !port.configured.is_empty() && port.configured.iter().all(|vid| vids.contains(&vid))
    };
    let ports: Vec<&String> =
        view.ports.iter().filter(|(_, port)| has_only_managed(port)).map(|(name, _)| name).collect();
    if let Some(port) = rng.pick(&ports).copied()
        && rng.percent(60)
    {
        return Some(HandEdit { port: Some(port.clone()), clear: true, ..HandEdit::default() });
    }
    let vid = *rng.pick(&vids)?;
    Some(HandEdit { remove_vlans: std::iter::once(vid).collect(), ..HandEdit::default() })
}
