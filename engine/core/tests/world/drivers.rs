//! Simulated drivers. They apply, hold, refuse or fail commands, or do not answer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use eno_core::{DEADLINE, Event, Name, Participant, PendingCommand, StreamEvent, Target};
use eno_schemas::*;

use super::{World, applied_by_node, assert_fabric_consistent, before_by_port, closed_ports};

/// A driver rolls back a change that it still holds this long after the deadline of its transaction.
const ROLLBACK_AFTER: Duration = Duration::from_secs(5);

/// A change that a switch can still roll back.
#[derive(Debug)]
struct Held {
    /// The configuration before.
    before: Option<Desired>,
    /// Its transaction.
    id: String,
    /// What the switch rejected of it.
    rejected: Vec<Rejection>,
    /// When the switch rolls it back by itself.
    until: Duration,
}

/// The drivers of all targets, and what tests make them do.
#[derive(Debug, Default)]
pub struct Drivers {
    /// The last command that each driver executed, successfully or not.
    executed: BTreeMap<Target, Command>,
    /// The changes that switches hold.
    held: BTreeMap<Target, Held>,
    /// By transaction: its deadline.
    deadlines: BTreeMap<String, Duration>,
    /// By transaction: the VLANs that each participant changed when it held its change.
    changed: BTreeMap<String, BTreeMap<Name, VlanSet>>,
    /// Switches that refuse connections.
    pub dead: BTreeSet<Name>,
    /// The VLANs that each switch refuses.
    pub refuses: BTreeSet<(Name, VlanId)>,
    /// Switches that were silent or dead at any time since the last check of a quiescent world.
    pub unreachable_since_check: BTreeSet<Name>,
    /// VLANs that a switch refused outside a transaction, or in one after the other switches had confirmed.
    pub refused_outside_transaction: BTreeSet<(Name, VlanId)>,
    /// Duration of a change on each switch, in milliseconds.
    pub change_ms: BTreeMap<Name, u64>,
    /// Switches that cannot hold a change.
    pub without_rollback: BTreeSet<Name>,
}

impl Drivers {
    /// The last command that a driver executed.
    pub(super) fn executed(&self, target: &Target) -> Option<&Command> {
        self.executed.get(target)
    }
}

/// Whether the VLAN exists, and the ports that carry it.
pub fn vlan_placement(state: Option<&FabricDesired>, vid: VlanId) -> (bool, BTreeSet<String>) {
    let Some(state) = state else { return (false, BTreeSet::new()) };
    let ports = state.ports.iter().filter(|port| port.vlans.contains(vid)).map(|port| port.name.clone());
    (state.vlans.iter().any(|vlan| vlan.vid == vid), ports.collect())
}

/// Puts the VLAN on these ports, if it exists.
pub fn set_vlan_placement(state: &mut FabricDesired, vid: VlanId, (exists, ports): (bool, BTreeSet<String>)) {
    let owner = state.vlans.iter().find(|vlan| vlan.vid == vid).cloned();
    state.vlans.retain(|vlan| vlan.vid != vid);
    if exists {
        state.vlans.extend([owner.unwrap_or(FabricVlan::new(vid, vec!["another".into()]))]);
    }
    for port in &mut state.ports {
        if ports.contains(&port.name) {
            port.vlans.insert(vid)
        } else {
            port.vlans.remove(vid)
        };
    }
}

/// The VLANs whose placement differs.
fn changed_vlans(before: Option<&FabricDesired>, after: Option<&FabricDesired>) -> VlanSet {
    let of = |state: Option<&FabricDesired>| -> VlanSet {
        state.into_iter().flat_map(|state| &state.vlans).map(|vlan| vlan.vid).collect()
    };
    let all = of(before).union(&of(after));
    all.iter().filter(|vid| vlan_placement(before, *vid) != vlan_placement(after, *vid)).collect()
}

/// Leaves each refused VLAN as it was before.
pub fn refuse(
    state: &mut FabricDesired,
    before: Option<&FabricDesired>,
    refused: impl Iterator<Item = VlanId>,
) -> Vec<Rejection> {
    let mut rejected = Vec::new();
    for vid in refused {
        let was = vlan_placement(before, vid);
        if was != vlan_placement(Some(state), vid) {
            let exists = was.0;
            set_vlan_placement(state, vid, was);
            if let Some(vlan) = state.vlans.get(vid).filter(|_| exists).cloned() {
                let former = before.and_then(|before| before.vlans.get(vid));
                let routed = former.and_then(|former| former.routed.clone());
                state.vlans.retain(|vlan| vlan.vid != vid);
                state.vlans.extend([FabricVlan { routed, ..vlan }]);
            }
            let (item, reason) = (Item::vlan(vid), "resource exhausted".into());
            rejected.push(Rejection { item, reason, retryable: true, unreachable: false });
        }
    }
    rejected
}

pub fn as_fabric(desired: &Desired) -> Option<&FabricDesired> {
    match desired {
        Desired::Fabric(fabric) => Some(fabric),
        Desired::Nad(_) | Desired::Node(_) | Desired::Speaker(_) => None,
    }
}

/// The VRFs of a state, and the VLANs that are led into VRFs as desired, each with the VRF.
pub fn routed_as_desired(
    state: &FabricDesired,
    desired: Option<&FabricDesired>,
) -> (BTreeSet<String>, Vec<(VlanId, String)>) {
    let vrfs = state.vrfs.iter().map(|vrf| vrf.name.clone()).collect();
    let routed = state.vlans.iter().filter_map(|vlan| {
        let routed = vlan.routed.as_ref()?;
        let wanted = desired?.vlans.get(vlan.vid)?.routed.as_ref()?;
        (routed == wanted).then(|| (vlan.vid, routed.vrf.clone()))
    });
    (vrfs, routed.collect())
}

impl World {
    /// NATS stores the command, unless it has another one of the target than the engine knows.
    pub(super) fn publish(&mut self, participant: Participant, pending: PendingCommand) {
        let Participant { target, driver, desired, .. } = participant;
        if let Some(former) = &pending.moved_from {
            self.nats.purge(&target, former);
        }
        if let Some(open) = pending.transaction.as_ref().filter(|transaction| transaction.decision.is_none())
        {
            let until = self.elapsed + DEADLINE;
            self.drivers.deadlines.entry(open.id.clone()).or_insert(until);
        }
        self.assert_commanded_addresses_are_written(&target, &desired);
        let generation = pending.generation.clone();
        let command = Command {
            driver: driver.to_string(),
            target: target.to_string(),
            generation: pending.generation,
            desired: (*desired).clone(),
            transaction: pending.transaction,
        };
        let event = match self.nats.publish(&target, command, pending.expected) {
            Ok(sequence) => {
                self.published += 1;
                self.commands.insert(target.clone(), Arc::unwrap_or_clone(desired));
                StreamEvent::Published(target, generation, sequence)
            }
            Err(found) => StreamEvent::NotPublished(target, Some(found)),
        };
        self.engine.handle(Event::Stream(event));
    }

    /// NATS forgets a target that is gone, and so does its driver.
    pub(super) fn purge(&mut self, target: Target, driver: Name) {
        self.nats.purge(&target, &driver);
        if self.nats.commands().all(|((other, _), _)| *other != target) {
            self.applied.remove(&target);
            self.commands.remove(&target);
            self.drivers.executed.remove(&target);
            self.drivers.held.remove(&target);
        }
        self.engine.handle(Event::Stream(StreamEvent::TargetRemoved(target, driver)));
    }

    /// A command that its driver has not executed.
    pub(super) fn unexecuted(&self, target: &Target) -> Option<&Command> {
        let command = self.nats.command_of(target)?;
        let executed = self.drivers.executed.get(target);
        (executed.is_none_or(|executed| executed.generation != command.generation)).then_some(command)
    }

    /// A target with a command that its driver is about to execute.
    pub(super) fn next_target(&self) -> Option<Target> {
        let mut targets = self.nats.commands().map(|((target, _), _)| target);
        targets.find(|target| !self.silent.contains(*target) && self.unexecuted(target).is_some()).cloned()
    }

    /// When the next switch rolls a change back by itself.
    pub(super) fn next_rollback(&self) -> Option<Duration> {
        self.drivers.held.values().map(|held| held.until).min()
    }

    /// Switches roll back what they have held for too long.
    pub(super) fn roll_back_overdue(&mut self) {
        let overdue = self.drivers.held.iter().filter(|(_, held)| held.until <= self.elapsed);
        for target in overdue.map(|(target, _)| target.clone()).collect::<Vec<_>>() {
            self.roll_back(&target);
            if !self.silent.contains(&target) {
                self.report_rolled_back(&target);
            }
        }
    }

    fn report_rolled_back(&mut self, target: &Target) {
        let command = self.drivers.executed[target].clone();
        self.send_report(target, &command, Outcome::RolledBack { reason: "aborted".into() }, Vec::new());
    }

    /// The last command of a target.
    pub fn command(&self, target: &Target) -> Command {
        self.nats.command_of(target).unwrap_or_else(|| panic!("{target} has no command")).clone()
    }

    /// The configuration of a switch.
    pub fn actual(&self, name: &Name) -> Option<&FabricDesired> {
        self.applied.get(&Target::Fabric(name.clone())).and_then(as_fabric)
    }

    fn roll_back(&mut self, target: &Target) {
        match self.drivers.held.remove(target) {
            Some(Held { before: Some(before), .. }) => _ = self.applied.insert(target.clone(), before),
            Some(Held { before: None, .. }) => _ = self.applied.remove(target),
            None => {}
        }
    }

    /// Makes the switch refuse this VLAN, or accept it and apply the last command again.
    pub fn set_refusal(&mut self, name: &str, vid: u16, refuses: bool) {
        let (name, vid) = (Name::from(name), VlanId::new(vid).unwrap());
        if refuses {
            self.drivers.refuses.insert((name, vid));
            return;
        }
        self.drivers.refuses.remove(&(name.clone(), vid));
        let target = Target::Fabric(name.clone());
        let last = self.drivers.executed.get(&target).cloned();
        let is_final = |command: &Command| {
            let transaction = command.transaction.as_ref();
            transaction.is_none_or(|transaction| transaction.decision == Some(Decision::Confirm))
        };
        if let Some(command) = last.filter(is_final)
            && self.unexecuted(&target).is_none()
            && !self.drivers.held.contains_key(&target)
            && !self.drivers.dead.contains(&name)
            && !self.silent.contains(&target)
        {
            self.apply_decided(&target, &command);
        }
    }

    /// Makes the switch refuse connections and roll back a held change.
    pub fn kill(&mut self, name: &str) {
        self.drivers.dead.insert(name.into());
        let target = Target::Fabric(name.into());
        if self.drivers.held.contains_key(&target) {
            self.roll_back(&target);
            let command = self.drivers.executed[&target].clone();
            self.report_failure(&target, &command);
        }
    }

    /// Makes a dead switch reachable again. Its driver executes its last command.
    pub fn revive(&mut self, name: &str) {
        if self.drivers.dead.remove(name) {
            self.drivers.executed.remove(&Target::Fabric(name.into()));
        }
    }

    /// The driver executes its last command again.
    pub fn run_driver_again(&mut self, target: &Target) {
        self.drivers.executed.remove(target);
        self.settle();
    }

    /// The driver executes the last command, and reports the result.
    pub(super) fn run_driver(&mut self, target: &Target) {
        let command = self.command(target);
        self.drivers.executed.insert(target.clone(), command.clone());
        if let Target::Fabric(name) = target
            && self.drivers.dead.contains(name)
        {
            self.roll_back(target);
            return self.report_failure(target, &command);
        }
        let Some(transaction) = &command.transaction else {
            self.roll_back(target);
            return self.apply_decided(target, &command);
        };
        let is_held = self.drivers.held.get(target).is_some_and(|held| held.id == transaction.id);
        match transaction.decision {
            Some(Decision::Confirm) if is_held => self.confirm(target, &command, &transaction.id),
            Some(Decision::Confirm) => {
                self.roll_back(target);
                self.apply_decided(target, &command);
            }
            Some(Decision::Abort) => {
                self.roll_back(target);
                self.report_rolled_back(target);
            }
            None => {
                self.roll_back(target);
                self.hold(target, &command, &transaction.id);
            }
        }
    }

    /// The switch makes the change so that it can still be rolled back.
    fn hold(&mut self, target: &Target, command: &Command, id: &str) {
        let deadline = self.drivers.deadlines[id];
        if deadline <= self.elapsed {
            return self.report_rolled_back(target);
        }
        let before = self.applied.get(target).cloned();
        let rejected = self.configure(target, &command.desired);
        let after = self.applied.get(target).and_then(as_fabric);
        let changed = changed_vlans(before.as_ref().and_then(as_fabric), after);
        let Target::Fabric(name) = target else { panic!("{target} is no switch") };
        self.drivers.changed.entry(id.to_owned()).or_default().insert(name.clone(), changed);
        let until = deadline + ROLLBACK_AFTER;
        let held = Held { before, id: id.to_owned(), rejected: rejected.clone(), until };
        self.drivers.held.insert(target.clone(), held);
        self.send_report(target, command, Outcome::Held, rejected);
    }

    /// The switch keeps the change that it holds. A switch that was unreachable may refuse a VLAN that the reachable
    /// switches have changed before.
    fn confirm(&mut self, target: &Target, command: &Command, id: &str) {
        let held = self.drivers.held.remove(target).unwrap();
        let Target::Fabric(name) = target else { panic!("{target} is no switch") };
        let late = &self.drivers.unreachable_since_check;
        let others = self.drivers.changed.get(id).into_iter().flatten();
        let others: Vec<_> = others.filter(|(other, _)| !late.contains(*other)).collect();
        if late.contains(name) {
            let vids = held.rejected.iter().filter_map(|rejection| rejection.item.vlan);
            let vids = vids.filter(|vid| !others.iter().any(|(_, changed)| changed.contains(*vid)));
            self.drivers.refused_outside_transaction.extend(vids.map(|vid| (name.clone(), vid)));
        }
        self.send_report(target, command, Outcome::Applied, held.rejected);
    }

    fn apply_decided(&mut self, target: &Target, command: &Command) {
        let rejected = self.configure(target, &command.desired);
        if let Target::Fabric(name) = target {
            let vids = rejected.iter().filter_map(|rejection| rejection.item.vlan);
            self.drivers.refused_outside_transaction.extend(vids.map(|vid| (name.clone(), vid)));
        }
        self.send_report(target, command, Outcome::Applied, rejected);
    }

    /// Applies everything but the refused VLANs, which stay as they are on the switch.
    fn configure(&mut self, target: &Target, desired: &Desired) -> Vec<Rejection> {
        let (mut state, mut rejected) = (desired.clone(), Vec::new());
        if let (Target::Fabric(name), Desired::Fabric(state)) = (target, &mut state) {
            assert_fabric_consistent(state);
            let before = self.actual(name);
            let refused = self.drivers.refuses.iter().filter(|(refusing, _)| refusing == name);
            rejected = refuse(state, before, refused.map(|(_, vid)| *vid));
        }
        self.applied.insert(target.clone(), state);
        self.store_ranges(target, desired);
        rejected.extend(self.rejections.get(target).into_iter().flatten().cloned());
        rejected
    }

    fn report_failure(&mut self, target: &Target, command: &Command) {
        let failure = Failure { reason: "connect: refused".into(), retryable: true, unreachable: true };
        self.send_report(target, command, Outcome::Failed(failure), Vec::new());
    }

    /// Reports what the target has now.
    pub(super) fn send_report(
        &mut self,
        target: &Target,
        command: &Command,
        outcome: Outcome,
        rejected: Vec<Rejection>,
    ) {
        let is_known = !matches!(outcome, Outcome::Failed(_));
        self.look_up(target);
        let applied = is_known.then(|| self.read_back(target, command, &rejected));
        self.report_on(target, command, outcome, applied, rejected);
    }

    /// What the driver reads back. Rejected items that a test made up are not in it.
    fn read_back(&self, target: &Target, command: &Command, rejected: &[Rejection]) -> Applied {
        let made_up = self.rejections.get(target);
        let refused =
            |vid, port: &str| made_up.is_some_and(|all| all.iter().any(|one| one.item.covers(vid, port)));
        match self.applied.get(target) {
            Some(Desired::Fabric(state)) => {
                let vlans = state.vlans.iter().map(|vlan| vlan.vid).filter(|vid| !refused(*vid, ""));
                let carried = |port: &FabricPort| {
                    let vlans = port.vlans.iter().filter(|vid| !refused(*vid, &port.name));
                    (port.name.clone(), vlans.collect())
                };
                let ports = state.ports.iter().map(carried).collect();
                let (vrfs, routed) = routed_as_desired(state, as_fabric(&command.desired));
                let is_refused =
                    |item: &Item| made_up.is_some_and(|all| all.iter().any(|one| one.item == *item));
                Applied::Fabric {
                    vlans: vlans.collect(),
                    closed: Some(closed_ports(&ports)),
                    before: before_by_port(&state.ports),
                    vrfs: vrfs.into_iter().filter(|vrf| !is_refused(&Item::vrf(vrf))).collect(),
                    routed: routed
                        .into_iter()
                        .filter(|(vid, vrf)| !is_refused(&Item::routed(vrf, *vid)))
                        .map(|(vid, _)| vid)
                        .collect(),
                    ports,
                    carried: BTreeMap::new(),
                    lookup: self.answer(target),
                    bgp: self.speakers.sessions(state, as_fabric(&command.desired)),
                }
            }
            Some(Desired::Node(node)) => {
                let probes = self.probing.results(target, node);
                let addresses = self.observed_addresses(target, node);
                applied_by_node(node, rejected, &self.path_mtus, probes, addresses)
            }
            Some(Desired::Nad(nad)) => Applied::Nad { present: nad.attachment.is_some() },
            Some(Desired::Speaker(speaker)) => Applied::Speaker { present: speaker.sessions.is_some() },
            None => match &command.desired {
                Desired::Fabric(_) => Applied::Fabric {
                    vlans: VlanSet::EMPTY,
                    ports: BTreeMap::new(),
                    carried: BTreeMap::new(),
                    closed: Some(BTreeSet::new()),
                    before: BTreeMap::new(),
                    vrfs: BTreeSet::new(),
                    routed: VlanSet::EMPTY,
                    lookup: None,
                    bgp: BTreeMap::new(),
                },
                Desired::Nad(_) => Applied::Nad { present: false },
                Desired::Speaker(_) => Applied::Speaker { present: false },
                Desired::Node(_) => Applied::Node {
                    networks: BTreeMap::new(),
                    pods: BTreeMap::new(),
                    probes: Vec::new(),
                    addresses: BTreeMap::new(),
                },
            },
        }
    }

    /// The driver reports on the last command of a target.
    pub fn report(
        &mut self,
        target: &Target,
        outcome: Outcome,
        applied: Option<Applied>,
        rejected: Vec<Rejection>,
    ) {
        let command = self.command(target);
        self.report_on(target, &command, outcome, applied, rejected);
    }

    /// Reports that the target is unreachable.
    pub fn report_unreachable(&mut self, target: &Target) {
        let command = self.command(target);
        self.report_failure(target, &command);
    }

    /// The driver reports on this command of a target.
    pub fn report_on(
        &mut self,
        target: &Target,
        command: &Command,
        outcome: Outcome,
        applied: Option<Applied>,
        rejected: Vec<Rejection>,
    ) {
        if self.muted.contains(target) {
            return;
        }
        let name = match target {
            Target::Fabric(name) => Some(name),
            Target::Nad(..) | Target::Node(_) | Target::Speaker(_) => None,
        };
        let rollback = name.filter(|_| self.transactions).map(|name| {
            let cannot = self.drivers.without_rollback.contains(name);
            if cannot { Rollback::None } else { Rollback::Persistent }
        });
        let took = name.and_then(|name| self.drivers.change_ms.get(name));
        let report = Report {
            driver: command.driver.clone(),
            target: target.to_string(),
            instance: "i".into(),
            generation: command.generation.clone(),
            at: self.now.clone(),
            outcome,
            applied,
            rejected,
            notes: self.notes.get(target).cloned().unwrap_or_default(),
            device: rollback.map(|rollback| DeviceInfo { rollback: Some(rollback), ..DeviceInfo::default() }),
            change: took.map(|took| ChangeReport {
                transaction: None,
                at: self.now.clone(),
                took_ms: *took,
                added: 1,
                removed: 0,
            }),
            lacking: Vec::new(),
        };
        self.nats.store_report(target, &report);
        self.engine.handle(Event::Report(target.clone(), Box::new(report)));
    }

    /// The backoff of all refused networks elapses.
    pub fn elapse_backoff(&mut self) {
        for (network, attempt) in std::mem::take(&mut self.retries) {
            self.engine.handle(Event::RetryDue(network, attempt));
        }
    }
}
