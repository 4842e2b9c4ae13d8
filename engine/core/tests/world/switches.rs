//! Simulated switches that hold, refuse or fail changes or do not answer, and a scheduler of transactions.

use std::collections::{BTreeMap, BTreeSet};

use eno_core::{Config, Engine, Event, Key, Name, Target};
use eno_schemas::*;

use super::{World, before_by_port, closed_ports, stored_commands};

/// A command to a switch.
#[derive(Clone, Debug)]
struct SwitchCommand {
    desired: FabricDesired,
    sequence: u64,
    /// The id of the transaction, and its decision: true to confirm, false to roll back.
    transaction: Option<(u64, Option<bool>)>,
}

/// A transaction with unfinished participants.
#[derive(Debug)]
struct Transaction {
    id: u64,
    participants: BTreeMap<Name, Participant>,
    /// True to confirm, false to roll back, `None` while a participant has not answered.
    decided: Option<bool>,
}

/// A switch in a transaction.
#[derive(Clone, Debug)]
struct Participant {
    desired: FabricDesired,
    sequence: u64,
    /// The answer: whether the switch refused a part of the change.
    refused: Option<bool>,
    /// The transaction does not wait for this switch.
    finished: bool,
    /// A former leader left the transaction open.
    inherited: bool,
}

/// Simulated switches whose changes form transactions, and the leader's scheduler of their commands.
#[derive(Debug, Default)]
pub struct Switches {
    /// Switches with a desired state that is not commanded yet.
    dirty: BTreeSet<Name>,
    /// The last command published for each switch.
    last_commands: BTreeMap<Name, SwitchCommand>,
    /// The commands that the switches have not executed yet.
    inbox: BTreeMap<Name, SwitchCommand>,
    /// For each held change: the state before it, the id of its transaction, and what the switch rejected of it.
    held_changes: BTreeMap<Name, (Option<FabricDesired>, u64, Vec<Rejection>)>,
    /// The last command that each switch executed, successfully or not.
    last_executed: BTreeMap<Name, SwitchCommand>,
    /// The transactions with unfinished participants.
    transactions: Vec<Transaction>,
    /// Switches that missed a deadline and have not executed a command since.
    timed_out: BTreeSet<Name>,
    /// Switches that refuse connections.
    pub dead: BTreeSet<Name>,
    /// Switches whose drivers do not answer.
    pub silent: BTreeSet<Name>,
    /// The VLANs that each switch refuses.
    pub refuses: BTreeSet<(Name, VlanId)>,
    /// Switches that were silent or dead at any time since the last check of a quiescent world.
    pub unreachable_since_check: BTreeSet<Name>,
    /// VLANs that a switch refused outside a transaction, or in one after the other switches had confirmed.
    pub refused_outside_transaction: BTreeSet<(Name, VlanId)>,
    /// Duration of a change on each switch, in milliseconds.
    pub change_ms: BTreeMap<Name, u64>,
    /// The retries that the engine requested, with their attempts.
    pub retries: Vec<(Key, u32)>,
    /// The outcome of each transaction: `confirmed`, `refused`, `failed` or `late`.
    pub outcomes: Vec<&'static str>,
    /// Number of participants of each transaction.
    pub participant_counts: Vec<usize>,
    /// The last report of each switch.
    reports: BTreeMap<Name, Report>,
    /// The sequence of the last command.
    last_sequence: u64,
    /// Switches that cannot hold a change.
    pub without_rollback: BTreeSet<Name>,
}

fn hash(desired: &FabricDesired) -> String {
    Desired::Fabric(desired.clone()).hash()
}

/// Whether the VLAN exists, and the ports that carry it.
pub fn vlan_placement(state: Option<&FabricDesired>, vid: VlanId) -> (bool, BTreeSet<String>) {
    let Some(state) = state else { return (false, BTreeSet::new()) };
    let ports = state.ports.iter().filter(|port| port.vlans.contains(vid)).map(|port| port.name.clone());
    (state.vlans.iter().any(|vlan| vlan.vid == vid), ports.collect())
}

fn set_vlan_placement(state: &mut FabricDesired, vid: VlanId, (exists, ports): (bool, BTreeSet<String>)) {
    let owner = state.vlans.iter().find(|vlan| vlan.vid == vid).cloned();
    state.vlans.retain(|vlan| vlan.vid != vid);
    if exists {
        state.vlans.push(owner.unwrap_or(FabricVlan { vid, owners: vec!["another".into()] }));
        state.vlans.sort_by_key(|vlan| vlan.vid);
    }
    for port in &mut state.ports {
        if ports.contains(&port.name) {
            port.vlans.insert(vid)
        } else {
            port.vlans.remove(vid)
        };
    }
}

impl World {
    /// [`Self::leaf_spine`] with transactions.
    pub fn with_transactions() -> Self {
        let mut world = Self { switches: Some(Switches::default()), ..Self::default() };
        world.engine.handle(Event::HoldCapableDrivers(BTreeSet::from(["netconf".into()])));
        world.apply_leaf_spine();
        world
    }

    pub fn switches_mut(&mut self) -> &mut Switches {
        self.switches.as_mut().unwrap()
    }

    pub(super) fn mark_switch_dirty(&mut self, name: &Name) {
        self.switches_mut().dirty.insert(name.clone());
    }

    pub(super) fn forget_switch(&mut self, name: &Name) {
        let switches = self.switches_mut();
        switches.dirty.remove(name);
        switches.inbox.remove(name);
        switches.last_commands.remove(name);
        switches.held_changes.remove(name);
        switches.reports.remove(name);
        switches.last_executed.remove(name);
    }

    /// The configuration of a switch.
    pub fn actual(&self, name: &Name) -> Option<&FabricDesired> {
        match self.applied.get(&Target::Fabric(name.clone()))? {
            Desired::Fabric(fabric) => Some(fabric),
            _ => None,
        }
    }

    fn set_actual(&mut self, name: &Name, state: Option<FabricDesired>) {
        let target = Target::Fabric(name.clone());
        match state {
            Some(state) => drop(self.applied.insert(target, Desired::Fabric(state))),
            None => drop(self.applied.remove(&target)),
        }
    }

    /// Executes one event of the fabric. False: the fabric is quiescent.
    pub(super) fn step_switches(&mut self) -> bool {
        let switches = self.switches_mut();
        let next = switches.inbox.keys().find(|name| !switches.silent.contains(*name)).cloned();
        if let Some(name) = next {
            self.run_switch(&name);
            return true;
        }
        self.decide_transaction() || self.publish_switches() || self.expire_deadlines()
    }

    /// Makes the switch refuse this VLAN, or accept it and apply the last command again.
    pub fn set_refusal(&mut self, name: &str, vid: u16, refuses: bool) {
        let (name, vid) = (Name::from(name), VlanId::new(vid).unwrap());
        if refuses {
            self.switches_mut().refuses.insert((name, vid));
            return;
        }
        self.switches_mut().refuses.remove(&(name.clone(), vid));
        let switches = self.switches_mut();
        let command = switches
            .last_executed
            .get(&name)
            .filter(|command| command.transaction.is_none_or(|(_, decided)| decided == Some(true)));
        if let Some(command) = command.cloned()
            && !switches.inbox.contains_key(&name)
            && !switches.held_changes.contains_key(&name)
            && !switches.dead.contains(&name)
            && !switches.silent.contains(&name)
        {
            self.apply_outside_transaction(&name, &command);
        }
    }

    /// Makes the switch refuse connections and roll back a held change.
    pub fn kill(&mut self, name: &str) {
        let name = Name::from(name);
        self.switches_mut().dead.insert(name.clone());
        if let Some((before, ..)) = self.switches_mut().held_changes.remove(&name) {
            self.set_actual(&name, before);
            let command = self.switches_mut().last_executed[&name].clone();
            self.report_failure(&name, &command);
        }
    }

    /// Makes a dead switch reachable again.
    pub fn revive(&mut self, name: &str) {
        let name = Name::from(name);
        if self.switches_mut().dead.remove(&name)
            && !self.switches_mut().inbox.contains_key(&name)
            && let Some(mut command) = self.switches_mut().last_executed.get(&name).cloned()
        {
            // The confirm timeout of a held change has expired.
            if let Some((id, None)) = command.transaction {
                command.transaction = Some((id, Some(false)));
            }
            self.switches_mut().inbox.insert(name, command);
        }
    }

    /// The backoff of all refused networks elapses.
    pub fn elapse_backoff(&mut self) {
        for (network, attempt) in std::mem::take(&mut self.switches_mut().retries) {
            self.engine.handle(Event::RetryDue(network, attempt));
        }
    }

    /// The switch executes the command in its inbox.
    fn run_switch(&mut self, name: &Name) {
        let command = self.switches_mut().inbox.remove(name).unwrap();
        self.switches_mut().timed_out.remove(name);
        self.switches_mut().last_executed.insert(name.clone(), command.clone());
        let held = self.switches_mut().held_changes.remove(name);
        if self.switches_mut().dead.contains(name) {
            if let Some((before, ..)) = held {
                self.set_actual(name, before);
            }
            return self.report_failure(name, &command);
        }
        match (command.transaction, held) {
            (Some((id, Some(true))), Some((_, held, rejected))) if id == held => {
                self.report_switch(name, &command, Outcome::Applied, rejected);
            }
            (transaction, held) => {
                if let Some((before, ..)) = held {
                    self.set_actual(name, before);
                }
                match transaction {
                    Some((_, Some(false))) => {
                        let reason = "aborted".into();
                        self.report_switch(name, &command, Outcome::RolledBack { reason }, Vec::new());
                    }
                    Some((id, None)) => {
                        let before = self.actual(name).cloned();
                        let rejected = self.apply_command(name, &command);
                        self.switches_mut().held_changes.insert(name.clone(), (before, id, rejected.clone()));
                        self.report_switch(name, &command, Outcome::Held, rejected);
                    }
                    None | Some((_, Some(true))) => self.apply_outside_transaction(name, &command),
                }
            }
        }
    }

    fn apply_outside_transaction(&mut self, name: &Name, command: &SwitchCommand) {
        let rejected = self.apply_command(name, command);
        for rejection in &rejected {
            let vid = rejection.item.vlan.unwrap();
            self.switches_mut().refused_outside_transaction.insert((name.clone(), vid));
        }
        self.report_switch(name, command, Outcome::Applied, rejected);
    }

    /// Applies everything but the refused VLANs, which stay as they are on the switch.
    fn apply_command(&mut self, name: &Name, command: &SwitchCommand) -> Vec<Rejection> {
        super::assert_fabric_consistent(&command.desired);
        let before = self.actual(name).cloned();
        let mut state = command.desired.clone();
        let mut rejected = Vec::new();
        for (_, vid) in
            self.switches_mut().refuses.clone().into_iter().filter(|(refusing, _)| refusing == name)
        {
            let was = vlan_placement(before.as_ref(), vid);
            if was != vlan_placement(Some(&state), vid) {
                set_vlan_placement(&mut state, vid, was);
                let reason = "resource exhausted".into();
                rejected.push(Rejection {
                    item: Item::vlan(vid),
                    reason,
                    retryable: true,
                    unreachable: false,
                });
            }
        }
        self.set_actual(name, Some(state));
        rejected
    }

    fn report_failure(&mut self, name: &Name, command: &SwitchCommand) {
        let failure = Failure { reason: "connect: refused".into(), retryable: true, unreachable: true };
        self.report_switch(name, command, Outcome::Failed(failure), Vec::new());
    }

    fn report_switch(
        &mut self,
        name: &Name,
        command: &SwitchCommand,
        outcome: Outcome,
        rejected: Vec<Rejection>,
    ) {
        let known = !matches!(outcome, Outcome::Failed(_));
        let actual = self.actual(name);
        let before = actual.map(|state| before_by_port(&state.ports)).unwrap_or_default();
        let ports = actual.into_iter().flat_map(|state| &state.ports);
        let ports = ports.map(|port| (port.name.clone(), port.vlans.clone())).collect();
        let applied = Applied::Fabric {
            vlans: actual.into_iter().flat_map(|state| &state.vlans).map(|vlan| vlan.vid).collect(),
            closed: Some(closed_ports(&ports)),
            before,
            ports,
            carried: BTreeMap::new(),
        };
        let rollback = if self.switches_mut().without_rollback.contains(name) {
            Rollback::None
        } else {
            Rollback::Persistent
        };
        let report = Report {
            driver: "netconf".into(),
            target: name.to_string(),
            instance: "i".into(),
            generation: Generation { term: 1, sequence: command.sequence, hash: hash(&command.desired) },
            at: "2026-01-01T00:00:00Z".into(),
            outcome,
            applied: known.then_some(applied),
            rejected,
            notes: Vec::new(),
            device: Some(DeviceInfo { rollback: Some(rollback), ..DeviceInfo::default() }),
            change: self.switches_mut().change_ms.get(name).map(|took| ChangeReport {
                transaction: None,
                at: "2026-01-01T00:00:00Z".into(),
                took_ms: *took,
                added: 1,
                removed: 0,
            }),
        };
        let target = Target::Fabric(name.clone());
        let refused = self.engine.rejects_planned_change(&target, &report);
        if self.record_report(name, command.sequence, &report.outcome, refused) {
            self.engine.handle(Event::ChangeRefused(name.clone(), Box::new(report.clone())));
        }
        self.switches_mut().reports.insert(name.clone(), report.clone());
        self.engine.handle(Event::Report(target, Box::new(report)));
    }

    /// Records a report in the switch's transaction. True: the switch refused a part of an undecided transaction.
    fn record_report(&mut self, name: &Name, sequence: u64, outcome: &Outcome, refused: bool) -> bool {
        let (mut late, mut is_refusal) = (false, false);
        let switches = self.switches_mut();
        let participant = switches.transactions.iter_mut().find_map(|open| {
            let decided = open.decided;
            let participant = open
                .participants
                .get_mut(name)
                .filter(|participant| !participant.finished && participant.sequence <= sequence);
            participant.map(|participant| (decided, participant))
        });
        match (participant, outcome) {
            (Some((None, participant)), Outcome::Held | Outcome::Applied) => {
                participant.refused = Some(refused);
                is_refusal = refused;
            }
            (Some((None, participant)), Outcome::Failed(_)) => {
                participant.finished = true;
                switches.dirty.insert(name.clone());
                self.end_transaction(name, false, "failed");
            }
            (Some((None, participant)), Outcome::RolledBack { .. }) => {
                participant.finished = true;
                late = true;
                switches.dirty.insert(name.clone());
                self.end_transaction(name, false, "late");
            }
            // The configuration of the switch is still unknown.
            (Some((Some(_), participant)), Outcome::Failed(_)) if participant.inherited => {}
            (
                Some((Some(_), participant)),
                Outcome::Applied | Outcome::Failed(_) | Outcome::RolledBack { .. },
            ) => {
                participant.finished = true;
            }
            _ => {}
        }
        if late {
            self.engine.handle(Event::MissedDeadline(name.clone()));
        }
        self.switches_mut()
            .transactions
            .retain(|open| open.participants.values().any(|participant| !participant.finished));
        is_refusal
    }

    /// Decides the transaction of the participant `name` and commands the decision.
    fn end_transaction(&mut self, name: &Name, confirm: bool, outcome: &'static str) {
        let switches = self.switches.as_mut().unwrap();
        let open = switches
            .transactions
            .iter_mut()
            .find(|open| open.decided.is_none() && open.participants.contains_key(name));
        let Some(open) = open else { return };
        open.decided = Some(confirm);
        switches.outcomes.push(outcome);
        for (name, participant) in
            open.participants.iter_mut().filter(|(_, participant)| !participant.finished)
        {
            switches.last_sequence += 1;
            participant.sequence = switches.last_sequence;
            if !confirm {
                switches.dirty.insert(name.clone());
            }
            let transaction = Some((open.id, Some(confirm)));
            let command = SwitchCommand {
                desired: participant.desired.clone(),
                sequence: switches.last_sequence,
                transaction,
            };
            switches.last_commands.insert(name.clone(), command.clone());
            switches.inbox.insert(name.clone(), command);
        }
    }

    /// Decides a transaction that all participants have answered.
    fn decide_transaction(&mut self) -> bool {
        let switches = self.switches.as_ref().unwrap();
        let is_answered = |open: &&Transaction| {
            open.decided.is_none()
                && open
                    .participants
                    .values()
                    .all(|participant| participant.finished || participant.refused.is_some())
        };
        let Some(open) = switches.transactions.iter().find(is_answered) else { return false };
        let refused = open.participants.values().any(|participant| participant.refused == Some(true));
        let name = open.participants.keys().next().unwrap().clone();
        // A switch that was unreachable may refuse a VLAN that the reachable switches have changed before.
        let changes = |name: &Name, vid| {
            switches.held_changes.get(name).is_some_and(|(before, ..)| {
                vlan_placement(before.as_ref(), vid) != vlan_placement(self.actual(name), vid)
            })
        };
        let reachable: Vec<&Name> = open
            .participants
            .keys()
            .filter(|name| !switches.unreachable_since_check.contains(*name))
            .collect();
        let mut refused_late = BTreeSet::new();
        for name in open
            .participants
            .keys()
            .filter(|name| !refused && switches.unreachable_since_check.contains(*name))
        {
            let vids = switches.held_changes.get(name).into_iter().flat_map(|(.., rejected)| rejected);
            let vids = vids.filter_map(|rejection| rejection.item.vlan);
            let is_late = |vid: &VlanId| !reachable.iter().any(|other| changes(other, *vid));
            refused_late.extend(vids.filter(is_late).map(|vid| (name.clone(), vid)));
        }
        self.switches_mut().refused_outside_transaction.append(&mut refused_late);
        self.end_transaction(&name, !refused, if refused { "refused" } else { "confirmed" });
        true
    }

    /// Publishes the commands of one group of switches that waits for nothing.
    fn publish_switches(&mut self) -> bool {
        let switches = self.switches.as_ref().unwrap();
        let timed_out = switches
            .dirty
            .iter()
            .find(|name| switches.timed_out.contains(*name) && !switches.is_participating(name))
            .cloned();
        if let Some(name) = timed_out {
            self.engine.handle(Event::MissedDeadline(name.clone()));
            return self.command_alone(&name);
        }
        let participating = switches
            .transactions
            .iter()
            .flat_map(|open| &open.participants)
            .filter(|(_, participant)| !participant.finished)
            .map(|(name, _)| name);
        let names: BTreeSet<&Name> = switches
            .dirty
            .iter()
            .filter(|name| !switches.timed_out.contains(*name))
            .chain(participating)
            .collect();
        let is_busy = |name: &Name| switches.is_participating(name) || switches.inbox.contains_key(name);
        let groups = self.engine.transaction_groups(names);
        let ready = groups.into_iter().find(|group| !group.holding.iter().chain(&group.plain).any(is_busy));
        let Some(group) = ready else { return false };
        if group.holding.len() < 2 {
            for name in group.holding.iter().chain(&group.plain) {
                self.command_alone(name);
            }
            return true;
        }
        self.command_in_transaction(group.holding);
        true
    }

    fn take_desired(&mut self, name: &Name) -> Option<FabricDesired> {
        self.switches_mut().dirty.remove(name);
        match self.engine.issue(&Target::Fabric(name.clone()))? {
            (_, Desired::Fabric(desired), _) => Some(desired),
            _ => None,
        }
    }

    fn command_alone(&mut self, name: &Name) -> bool {
        let Some(desired) = self.take_desired(name) else { return true };
        if !self.switches_mut().is_last_commanded(name, &desired) {
            self.published += 1;
            self.commands.insert(Target::Fabric(name.clone()), Desired::Fabric(desired.clone()));
            let switches = self.switches_mut();
            switches.last_sequence += 1;
            let command = SwitchCommand { desired, sequence: switches.last_sequence, transaction: None };
            switches.last_commands.insert(name.clone(), command.clone());
            switches.inbox.insert(name.clone(), command);
        }
        true
    }

    fn command_in_transaction(&mut self, names: Vec<Name>) {
        let mut all = Vec::new();
        for name in names {
            let Some(desired) = self.take_desired(&name) else { continue };
            if !self.switches_mut().is_last_commanded(&name, &desired) {
                all.push((name, desired));
            }
        }
        if all.len() < 2 {
            for (name, _) in all {
                self.command_alone(&name);
            }
            return;
        }
        self.published += all.len();
        let id = self.switches_mut().last_sequence;
        let mut participants = BTreeMap::new();
        for (name, desired) in all {
            self.commands.insert(Target::Fabric(name.clone()), Desired::Fabric(desired.clone()));
            let switches = self.switches_mut();
            switches.last_sequence += 1;
            let sequence = switches.last_sequence;
            let command = SwitchCommand { desired: desired.clone(), sequence, transaction: Some((id, None)) };
            switches.last_commands.insert(name.clone(), command.clone());
            switches.inbox.insert(name.clone(), command);
            participants.insert(
                name,
                Participant { desired, sequence, refused: None, finished: false, inherited: false },
            );
        }
        self.switches_mut().participant_counts.push(participants.len());
        self.switches_mut().transactions.push(Transaction { id, participants, decided: None });
    }

    /// Expires the deadlines of silent switches. False: no deadline was left.
    fn expire_deadlines(&mut self) -> bool {
        let switches = self.switches_mut();
        if let Some(open) = switches.transactions.iter_mut().find(|open| open.decided.is_none()) {
            let mut late = Vec::new();
            for (name, participant) in open
                .participants
                .iter_mut()
                .filter(|(_, participant)| !participant.finished && participant.refused.is_none())
            {
                participant.finished = true;
                late.push(name.clone());
            }
            let name = open.participants.keys().next().unwrap().clone();
            switches.dirty.extend(late.iter().cloned());
            switches.timed_out.extend(late.iter().cloned());
            self.end_transaction(&name, false, "late");
            for name in late {
                self.engine.handle(Event::MissedDeadline(name));
            }
            self.switches_mut()
                .transactions
                .retain(|open| open.participants.values().any(|participant| !participant.finished));
            return true;
        }
        // A switch rolls back a held change by itself when its confirm timeout expires.
        let overdue: Vec<Name> =
            switches.held_changes.keys().filter(|name| switches.silent.contains(*name)).cloned().collect();
        for name in overdue {
            if let Some((before, ..)) = self.switches_mut().held_changes.remove(&name) {
                self.set_actual(&name, before);
            }
        }
        let switches = self.switches_mut();
        let unanswered: Vec<Name> = switches.inbox.keys().cloned().collect();
        let before = (switches.transactions.len(), switches.timed_out.len());
        for open in &mut switches.transactions {
            for (name, participant) in &mut open.participants {
                participant.finished |= !participant.inherited && unanswered.contains(name);
            }
        }
        switches
            .transactions
            .retain(|open| open.participants.values().any(|participant| !participant.finished));
        switches.timed_out.extend(unanswered);
        before != (switches.transactions.len(), switches.timed_out.len())
    }

    /// Replaces the engine with a new one that knows only the contents of Kubernetes and NATS.
    pub fn restart_with_transactions(&mut self) {
        let mut objects = self.objects.clone();
        for (key, object) in &mut objects {
            object.status = self.statuses.get(key).cloned();
        }
        self.engine = Engine::new(Config {
            cluster: "lab".into(),
            cluster_uid: None,
            bridge_domains: false,
            nodes: false,
        });
        self.engine.handle(Event::HoldCapableDrivers(BTreeSet::from(["netconf".into()])));
        self.engine.handle(Event::Drivers(Self::drivers()));
        for (name, (labels, ready)) in self.nodes.clone() {
            self.engine.handle(Event::Node { name, labels, ready });
        }
        for object in objects.values().rev() {
            self.engine.handle(Event::Object(Box::new(object.clone())));
        }
        self.engine.handle(stored_commands(&self.commands));
        for (target, desired) in self.applied.clone() {
            if !matches!(target, Target::Fabric(_)) {
                let unexecuted = self.pending.insert(target.clone(), desired);
                self.run_driver(&target);
                self.pending.extend(unexecuted.map(|desired| (target, desired)));
            }
        }
        for (name, report) in self.switches_mut().reports.clone() {
            self.engine.handle(Event::Report(Target::Fabric(name), Box::new(report)));
        }
        let switches = self.switches_mut();
        switches.timed_out.clear();
        // A new leader first rolls back the transactions that the former one left open.
        switches.transactions.clear();
        for (name, command) in &mut switches.last_commands {
            let Some((id, None | Some(false))) = command.transaction else { continue };
            switches.last_sequence += 1;
            (command.sequence, command.transaction) = (switches.last_sequence, Some((id, Some(false))));
            switches.inbox.insert(name.clone(), command.clone());
            let (desired, sequence) = (command.desired.clone(), command.sequence);
            let participant =
                Participant { desired, sequence, refused: None, finished: false, inherited: true };
            let participants = BTreeMap::from([(name.clone(), participant)]);
            switches.transactions.push(Transaction { id, participants, decided: Some(false) });
        }
        switches.dirty.clear();
        switches.retries.clear();
    }
}

impl Switches {
    /// The last command has this desired state and was not rolled back.
    fn is_last_commanded(&self, name: &Name, desired: &FabricDesired) -> bool {
        self.last_commands.get(name).is_some_and(|command| {
            command.transaction.is_none_or(|(_, decided)| decided == Some(true))
                && command.desired == *desired
        })
    }

    fn is_participating(&self, name: &Name) -> bool {
        self.transactions
            .iter()
            .any(|open| open.participants.get(name).is_some_and(|participant| !participant.finished))
    }
}
