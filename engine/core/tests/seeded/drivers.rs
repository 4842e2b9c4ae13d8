//! The drivers of switches and of NetworkAttachmentDefinitions. A driver takes the last command of a target. A switch
//! holds the change of a transaction until the decision or the deadline. It may refuse VLANs, be unreachable, or have a
//! driver that does nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use eno_core::Target;
use eno_schemas::{
    Applied, Command, Decision, Desired, DeviceInfo, FabricDesired, Failure, Generation, Outcome, Rejection,
    Report, Rollback, RoutedInterface, Transaction, VlanId,
};

use super::cluster::{Cluster, Violation};
use super::time;
use crate::nats::{Nats, order};
use crate::world::{as_fabric, closed_ports, refuse, routed_as_desired, vlan_placement};

/// What the driver of a target knows of it.
#[derive(Debug, Default)]
struct Worker {
    /// Term and sequence of the newest command.
    newest: (u64, u64),
    /// It has answered that command, and does nothing until something changes.
    finished: bool,
    /// The change that waits for a decision.
    held: Option<Held>,
}

/// A change that a switch can still roll back.
#[derive(Debug)]
struct Held {
    /// The state before it.
    before: Option<Desired>,
    /// The command that made it.
    command: Command,
    /// The command is of a former engine, and the present one learns of it late.
    is_late: bool,
    /// What the switch refused of it.
    rejected: Vec<Rejection>,
    /// When the switch rolls it back by itself.
    deadline: Duration,
}

/// How one participant held the change of a transaction.
#[derive(Debug)]
struct Part {
    /// The command that it held.
    generation: Generation,
    /// The VLANs that the switch refused.
    refused: BTreeSet<VlanId>,
    /// The VLANs that the change adds or removes.
    changed: BTreeSet<VlanId>,
}

/// The drivers and the state of the switches.
#[derive(Debug, Default)]
pub struct Drivers {
    /// What the drivers know of their targets.
    workers: BTreeMap<Target, Worker>,
    /// Switches that refuse connections.
    pub unreachable: BTreeSet<Target>,
    /// Switches whose drivers do nothing.
    pub silent: BTreeSet<Target>,
    /// The VLANs that switches refuse.
    pub refused: BTreeSet<(Target, VlanId)>,
    /// VLANs that a switch refused in no transaction. The other switches may have changed them.
    pub refused_alone: BTreeSet<VlanId>,
    /// Switches that were away at some time: the others may have confirmed what they refuse.
    pub were_away: BTreeSet<Target>,
    /// The transactions that an engine confirmed.
    confirmed: BTreeSet<String>,
    /// Who held each transaction, and how.
    held: BTreeMap<String, BTreeMap<String, Part>>,
    /// Targets that have the state of a late command of a former engine.
    stale_effects: BTreeSet<Target>,
    /// Targets whose last command had no answer when the engine started, and that carried out none since.
    unanswered: BTreeSet<Target>,
    /// The driver that works crashes before it reports.
    is_mute: bool,
}

/// The driver of a target.
pub fn driver_of(target: &Target) -> &'static str {
    if matches!(target, Target::Nad(..)) { "nad" } else { "netconf" }
}

impl Drivers {
    /// A late command of a former engine was applied. The present engine corrects it when it learns of the command.
    pub fn has_stale_effect(&self, target: &Target) -> bool {
        self.stale_effects.contains(target)
    }

    /// The new engine reads every stored command, but does not know what commands without an answer may change.
    pub fn engine_started<'a>(&mut self, nats: &Nats, applied: impl Iterator<Item = &'a Target>) {
        self.stale_effects.retain(|target| nats.command(target, driver_of(target)).is_none());
        let is_answered = |target: &Target| {
            let driver = driver_of(target);
            let (command, report) = (nats.command(target, driver), nats.report(target, driver));
            command.zip(report).is_some_and(|(stored, report)| {
                stored.command.generation == report.generation
                    && !matches!(report.outcome, Outcome::Failed(_))
            })
        };
        self.unanswered = applied.filter(|target| !is_answered(target)).cloned().collect();
    }

    /// The engine can't know what is on the target.
    pub fn is_unknown(&self, target: &Target) -> bool {
        self.stale_effects.contains(target) || self.unanswered.contains(target)
    }

    /// The earliest time at which a switch rolls back by itself.
    pub fn next_deadline(&self) -> Option<Duration> {
        self.workers.values().filter_map(|worker| Some(worker.held.as_ref()?.deadline)).min()
    }

    /// The engine hears that a switch rolled back what it held.
    pub fn note_delivered(&mut self, target: &Target, report: &Report) {
        if matches!(report.outcome, Outcome::RolledBack { .. }) {
            for parts in self.held.values_mut() {
                parts
                    .retain(|name, part| *name != target.to_string() || part.generation != report.generation);
            }
        }
    }

    /// True if every participant held its part of the transaction, and none refused what another one changed.
    fn may_confirm(&self, transaction: &Transaction) -> bool {
        let Some(held) = self.held.get(&transaction.id) else { return false };
        let was_away = |name: &str| self.were_away.contains(&Target::Fabric(name.into()));
        let is_refused =
            |vid: &VlanId| held.iter().any(|(name, part)| !was_away(name) && part.refused.contains(vid));
        transaction.participants.iter().all(|name| held.contains_key(name))
            && !held.values().flat_map(|part| &part.changed).any(is_refused)
    }
}

impl Cluster {
    /// A random driver works on its target.
    pub fn run_any_driver(&mut self) -> Result<(), Violation> {
        let Some(target) = self.random.pick(self.targets().iter()).cloned() else { return Ok(()) };
        let crashes = self.random.one_in(6);
        self.drivers.is_mute = crashes && self.random.one_in(2);
        let done = self.run_driver(&target);
        self.drivers.is_mute = false;
        if crashes && !self.drivers.silent.contains(&target) {
            self.crash_driver(&target);
        }
        done
    }

    /// The targets that drivers know, or have commands for.
    fn targets(&self) -> Vec<Target> {
        let commanded = self.nats.commands().map(|((target, _), _)| target);
        let all: BTreeSet<&Target> = commanded.chain(self.drivers.workers.keys()).collect();
        all.into_iter().cloned().collect()
    }

    /// All drivers work on their targets. True if one did something.
    pub fn run_drivers(&mut self) -> Result<(), Violation> {
        self.targets().iter().try_for_each(|target| self.run_driver(target))
    }

    /// The driver of a target crashes. Its next process rolls a held change back.
    pub fn crash_driver(&mut self, target: &Target) {
        self.trace(|| format!("the driver of {target} forgets it"));
        if let Some(held) = self.drivers.workers.remove(target).and_then(|worker| worker.held) {
            self.restore(target, held.before);
        }
    }

    /// NATS lost the streams: the drivers forget their targets.
    pub fn crash_drivers(&mut self) {
        for target in self.targets() {
            self.crash_driver(&target);
        }
    }

    /// A switch does not answer any more, or does so again.
    pub fn set_unreachable(&mut self, target: &Target, is_unreachable: bool) {
        if !is_unreachable {
            self.drivers.unreachable.remove(target);
            return self.work_again(target);
        }
        self.drivers.unreachable.insert(target.clone());
        self.drivers.were_away.insert(target.clone());
        if let Some(worker) = self.drivers.workers.get_mut(target) {
            worker.finished = false;
            if let Some(held) = worker.held.take() {
                self.restore(target, held.before);
            }
        }
    }

    /// A switch refuses a VLAN, or accepts it again.
    pub fn set_refused(&mut self, target: &Target, vid: VlanId, is_refused: bool) {
        let item = (target.clone(), vid);
        if is_refused {
            self.drivers.refused.insert(item);
        } else if self.drivers.refused.remove(&item) {
            self.work_again(target);
        }
    }

    /// The driver tries its last command again.
    fn work_again(&mut self, target: &Target) {
        if let Some(worker) = self.drivers.workers.get_mut(target) {
            worker.finished = false;
        }
    }

    /// Switches roll back what was not decided in time.
    pub fn expire_held(&mut self) {
        let overdue = |worker: &Worker| worker.held.as_ref().is_some_and(|held| held.deadline <= self.now);
        let overdue = self.drivers.workers.iter().filter(|(_, worker)| overdue(worker));
        for target in overdue.map(|(target, _)| target.clone()).collect::<Vec<_>>() {
            let worker = self.drivers.workers.get_mut(&target).unwrap();
            worker.finished = false;
            if let Some(held) = worker.held.take() {
                self.restore(&target, held.before);
            }
        }
    }

    /// The driver works on the last command of the target.
    fn run_driver(&mut self, target: &Target) -> Result<(), Violation> {
        if self.drivers.silent.contains(target) {
            return Ok(());
        }
        let driver = driver_of(target);
        let Some(stored) = self.nats.command(target, driver) else {
            // The target is forgotten.
            self.crash_driver(target);
            return Ok(());
        };
        let command = stored.command.clone();
        let is_late = self.is_late(stored) || self.messages.unanswered.contains(&command.generation);
        let at = order(&command.generation);
        let is_reported =
            self.nats.report(target, driver).is_some_and(|report| order(&report.generation) > at);
        let worker = self.drivers.workers.entry(target.clone()).or_default();
        if is_reported
            || worker.newest > at
            || (worker.newest == at && (worker.finished || worker.held.is_some()))
        {
            return Ok(());
        }
        worker.newest = at;
        worker.finished = true;
        let held = worker.held.take();
        if self.drivers.unreachable.contains(target) {
            // A switch that became unreachable has rolled back.
            let failure = Failure { reason: "connect: refused".into(), retryable: true, unreachable: true };
            self.report(target, &command, Outcome::Failed(failure), Vec::new());
            return Ok(());
        }
        let decision = command.transaction.as_ref().and_then(|transaction| transaction.decision);
        if let Some(held) = held {
            let id =
                |command: &Command| command.transaction.as_ref().map(|transaction| transaction.id.clone());
            let is_decided = id(&held.command) == id(&command) && decision.is_some();
            if is_decided && decision == Some(Decision::Confirm) && held.command.desired == command.desired {
                self.report(target, &command, Outcome::Applied, held.rejected);
                return Ok(());
            }
            self.restore(target, held.before);
            if !is_decided {
                let reason = "a newer command came before it was decided".into();
                self.report(target, &held.command, Outcome::RolledBack { reason }, Vec::new());
                // A driver that did not work for a while may have missed the decision.
                let decided = id(&held.command).map(|id| (target.clone(), id));
                let is_decided = decided.is_some_and(|decided| self.messages.decided.contains(&decided));
                if !held.is_late && !is_late && !is_decided {
                    let former = held.command.generation;
                    return Err(format!("{target} holds {former} and gets {}", command.generation));
                }
            }
        }
        let overdue = |transaction: &Transaction| time::parse(&transaction.deadline) <= self.now;
        match &command.transaction {
            Some(Transaction { decision: Some(Decision::Abort), .. }) => {
                let reason = "aborted".into();
                self.report(target, &command, Outcome::RolledBack { reason }, Vec::new());
            }
            Some(transaction) if transaction.decision.is_none() && overdue(transaction) => {
                let reason = "not decided in time".into();
                self.report(target, &command, Outcome::RolledBack { reason }, Vec::new());
            }
            Some(transaction) if transaction.decision.is_none() => {
                let deadline = time::parse(&transaction.deadline);
                let before = self.applied.get(target).cloned();
                let rejected = self.configure(target, &command.desired, is_late);
                self.note_held(target, transaction, before.as_ref(), &command);
                self.report(target, &command, Outcome::Held, rejected.clone());
                let held = Held { before, command, is_late, rejected, deadline };
                let worker = self.drivers.workers.get_mut(target).unwrap();
                (worker.held, worker.finished) = (Some(held), false);
            }
            _ => {
                let rejected = self.configure(target, &command.desired, is_late);
                self.drivers
                    .refused_alone
                    .extend(rejected.iter().filter_map(|rejection| rejection.item.vlan));
                self.report(target, &command, Outcome::Applied, rejected);
            }
        }
        Ok(())
    }

    /// Applies all but the refused VLANs, which stay as they are.
    fn configure(&mut self, target: &Target, desired: &Desired, is_late: bool) -> Vec<Rejection> {
        if is_late {
            self.drivers.stale_effects.insert(target.clone());
        } else {
            self.drivers.stale_effects.remove(target);
        }
        self.drivers.unanswered.remove(target);
        let mut state = desired.clone();
        let mut rejected = Vec::new();
        if let Desired::Fabric(state) = &mut state {
            let before = self.applied.get(target).and_then(as_fabric);
            let refused = self.drivers.refused.iter().filter(|(refusing, _)| refusing == target);
            rejected = refuse(state, before, refused.map(|(_, vid)| *vid));
        }
        self.restore(target, Some(state));
        rejected
    }

    /// Sets the state of a target.
    fn restore(&mut self, target: &Target, state: Option<Desired>) {
        // A NetworkAttachmentDefinition goes with the attachment that owns it.
        let is_there = |desired: &Desired| match desired {
            Desired::Nad(nad) => nad.attachment.is_some() && self.has_object(&nad.owner.uid),
            _ => true,
        };
        self.trace(|| format!("{target} has {state:?}"));
        match state.filter(is_there) {
            Some(state) => drop(self.applied.insert(target.clone(), state)),
            None => drop(self.applied.remove(target)),
        }
    }

    /// Records how a participant holds its change.
    fn note_held(
        &mut self,
        target: &Target,
        transaction: &Transaction,
        before: Option<&Desired>,
        Command { generation, desired, .. }: &Command,
    ) {
        let (before, now) = (before.and_then(as_fabric), self.applied.get(target).and_then(as_fabric));
        let desired = as_fabric(desired);
        let states = [before, now, desired].into_iter().flatten();
        let vids: BTreeSet<VlanId> = states.flat_map(|state| &state.vlans).map(|vlan| vlan.vid).collect();
        let differing = |one, other| {
            let differs = |vid: &VlanId| place(one, *vid) != place(other, *vid);
            vids.iter().copied().filter(differs).collect()
        };
        let (refused, changed) = (differing(now, desired), differing(before, now));
        let parts = self.drivers.held.entry(transaction.id.clone()).or_default();
        parts.insert(target.to_string(), Part { generation: generation.clone(), refused, changed });
    }

    /// A confirmation is right if the participants held the change when it was decided.
    pub fn check_decision(&mut self, command: &Command) -> Result<(), Violation> {
        let Some(transaction) = &command.transaction else { return Ok(()) };
        let is_new = transaction.decision == Some(Decision::Confirm)
            && self.drivers.confirmed.insert(transaction.id.clone());
        if is_new && !self.drivers.may_confirm(transaction) {
            let held = self.drivers.held.get(&transaction.id);
            return Err(format!("{transaction:?} is confirmed, and held is {held:?}"));
        }
        Ok(())
    }

    /// Publishes a report with the state that is read back.
    fn report(&mut self, target: &Target, command: &Command, outcome: Outcome, rejected: Vec<Rejection>) {
        let report = report_on(target, self.applied.get(target), command, outcome, rejected);
        if !self.drivers.is_mute {
            self.store_report(target, report);
        }
    }

    fn store_report(&mut self, target: &Target, report: Report) {
        self.trace(|| format!("report {report:?}"));
        if self.nats.store_report(target, &report) {
            self.messages.report_stored(target, report);
        }
    }

    /// Somebody reports that a target has its desired state, under a generation that no engine issued.
    pub fn forge_report(&mut self) {
        let Some((subject, stored)) = self.random.pick(self.nats.commands()) else { return };
        let (target, mut command) = (subject.0.clone(), stored.command.clone());
        command.generation.term = self.term + 1;
        let report = report_on(&target, Some(&command.desired), &command, Outcome::Applied, Vec::new());
        self.store_report(&target, report);
    }
}

/// A report that reads this state back.
fn report_on(
    target: &Target,
    state: Option<&Desired>,
    Command { generation, desired, .. }: &Command,
    outcome: Outcome,
    rejected: Vec<Rejection>,
) -> Report {
    let applied = match target {
        Target::Nad(..) => Applied::Nad { present: state.is_some() },
        Target::Fabric(_) | Target::Node(_) | Target::Speaker(_) => {
            let fabric = state.and_then(as_fabric);
            let ports = fabric.into_iter().flat_map(|state| &state.ports);
            let ports = ports.map(|port| (port.name.clone(), port.vlans.clone())).collect();
            let (vrfs, routed) =
                fabric.map(|state| routed_as_desired(state, as_fabric(desired))).unwrap_or_default();
            Applied::Fabric {
                vlans: fabric.into_iter().flat_map(|state| &state.vlans).map(|vlan| vlan.vid).collect(),
                closed: Some(closed_ports(&ports)),
                before: BTreeMap::new(),
                vrfs,
                routed: routed.into_iter().map(|(vid, _)| vid).collect(),
                ports,
                carried: BTreeMap::new(),
                lookup: None,
                bgp: BTreeMap::new(),
            }
        }
    };
    let is_known = !matches!(outcome, Outcome::Failed(_));
    let rollback = matches!(target, Target::Fabric(_)).then_some(Rollback::Persistent);
    let at = time::at(Duration::ZERO);
    Report {
        outcome,
        applied: is_known.then_some(applied),
        rejected,
        device: Some(DeviceInfo { rollback, ..DeviceInfo::default() }),
        ..Report::new((driver_of(target), target.to_string()), generation.clone(), ("i", at))
    }
}

/// The ports that carry a VLAN, without those that leave the spec of the switch, and how it is led into a VRF.
fn place(state: Option<&FabricDesired>, vid: VlanId) -> (BTreeSet<String>, Option<Arc<RoutedInterface>>) {
    let (_, ports) = vlan_placement(state, vid);
    let ports = ports.into_iter().filter(|port| !port.ends_with(" (leaving)")).collect();
    (ports, state.and_then(|state| state.vlans.get(vid)?.routed.clone()))
}
