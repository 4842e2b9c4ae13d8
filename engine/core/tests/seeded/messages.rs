//! The commands and reports that NATS stores, and those in flight. A command replaces the last one that the engine
//! knows. It may be stored late, without an answer, or never.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use eno_core::{Event, Target};
use eno_schemas::{Applied, Desired, Generation, Outcome, Report};

use super::cluster::{AT, Cluster};
use super::mutants::Mutant;
use crate::world::{closed_ports, stored_command};

/// A stored command; `position` is its sequence in the stream.
struct Command {
    generation: Generation,
    desired: Desired,
    position: u64,
}

/// The last command of a target as far as the engine knows.
#[derive(Default)]
struct LastCommanded {
    /// `None`: unverified.
    generation: Option<Generation>,
    position: u64,
}

/// A command that the engine sent and NATS has not stored yet.
struct InFlight {
    target: Target,
    generation: Generation,
    desired: Desired,
    /// The position of the command that it replaces; 0: there is none.
    expected: u64,
}

/// All messages between engine and drivers.
#[derive(Default)]
pub struct Messages {
    /// The term of the present engine.
    term: u64,
    /// The sequence of its last command.
    sequence: u64,
    /// The position of the last stored command.
    position: u64,
    /// Targets with a desired state that is not sent yet.
    dirty: BTreeSet<Target>,
    /// The last command of each target as far as the engine knows.
    last_commanded: BTreeMap<Target, LastCommanded>,
    /// Commands in flight.
    in_flight: Vec<InFlight>,
    /// The stored command of each target.
    commands: BTreeMap<Target, Command>,
    /// Targets whose last command is from a former engine and was stored after the present one started.
    from_former_engine: BTreeSet<Target>,
    /// Targets whose driver applied such a command.
    stale_effects: BTreeSet<Target>,
    /// Targets whose driver applied the last command and reported it.
    executed: BTreeSet<Target>,
    /// The stored report of each target.
    reports: BTreeMap<Target, Report>,
    /// Reports that the engine has not received yet, in order.
    reports_in_flight: BTreeMap<Target, VecDeque<Report>>,
}

fn driver_of(target: &Target) -> &'static str {
    if matches!(target, Target::Nad(..)) { "nad" } else { "netconf" }
}

fn sequence_of(generation: &Generation) -> (u64, u64) {
    (generation.term, generation.sequence)
}

impl Messages {
    /// Starts a new term. Returns the events that a new engine reads from NATS.
    pub fn replay(&mut self) -> Vec<Event> {
        self.term += 1;
        self.sequence = 0;
        // The new engine reads every stored command.
        self.from_former_engine.clear();
        self.stale_effects.clear();
        let mut events = Vec::new();
        self.last_commanded.clear();
        for (target, command) in &self.commands {
            let (generation, desired) = (command.generation.clone(), command.desired.clone());
            let stored = stored_command(target, driver_of(target), generation, desired, command.position);
            events.push(Event::StoredCommands(vec![stored]));
            let last_commanded =
                LastCommanded { generation: Some(command.generation.clone()), position: command.position };
            self.last_commanded.insert(target.clone(), last_commanded);
        }
        for (target, report) in &self.reports {
            events.push(Event::Report(target.clone(), Box::new(report.clone())));
        }
        events
    }

    /// The engine crashes; its sent commands stay in flight.
    pub fn crash(&mut self) {
        self.dirty.clear();
        self.reports_in_flight.clear();
    }

    pub fn mark_dirty(&mut self, target: Target) {
        self.dirty.insert(target);
    }

    pub fn commanded(&self) -> impl Iterator<Item = (&Target, &Desired)> {
        self.commands.iter().map(|(target, command)| (target, &command.desired))
    }

    /// A late command of a former engine was applied. The present engine corrects it when it receives the report.
    pub fn has_stale_effect(&self, target: &Target) -> bool {
        self.stale_effects.contains(target)
    }

    /// No message is in flight.
    pub fn are_quiescent(&self) -> bool {
        self.dirty.is_empty() && self.in_flight.is_empty() && self.reports_in_flight.is_empty()
    }

    fn is_sending(&self, target: &Target) -> bool {
        self.in_flight
            .iter()
            .any(|in_flight| in_flight.target == *target && in_flight.generation.term == self.term)
    }

    /// The engine no longer knows the last command of the target and sends it again.
    fn mark_unverified(&mut self, target: &Target, position: Option<u64>) {
        let last_commanded = self.last_commanded.entry(target.clone()).or_default();
        last_commanded.generation = None;
        last_commanded.position = position.unwrap_or(last_commanded.position);
        self.dirty.insert(target.clone());
    }
}

impl Cluster {
    pub fn publish_any(&mut self) {
        if let Some(target) = self.random.pick(self.messages.dirty.iter()).cloned() {
            self.publish(&target);
        }
    }

    pub fn run_any_driver(&mut self) {
        if let Some(target) = self.random.pick(self.messages.commands.keys()).cloned() {
            let crashes = self.random.one_in(6);
            self.run_driver(&target, crashes);
        }
    }

    /// Delivers all messages in flight, and runs all drivers.
    pub fn deliver_all_messages(&mut self) {
        for target in self.messages.dirty.clone() {
            self.publish(&target);
        }
        while !self.messages.in_flight.is_empty() {
            let in_flight = self.messages.in_flight.remove(0);
            self.store_command(in_flight, true);
        }
        for target in self.messages.commands.keys().cloned().collect::<Vec<_>>() {
            self.run_driver(&target, false);
        }
        for (target, reports) in std::mem::take(&mut self.messages.reports_in_flight) {
            for report in reports {
                self.receive_report(target.clone(), report);
            }
        }
    }

    /// Sends the desired state of a target; at most one command of a target is in flight.
    fn publish(&mut self, target: &Target) {
        if self.messages.is_sending(target) {
            return;
        }
        self.messages.dirty.remove(target);
        let Some((_, desired, hash)) = self.engine.issue(target) else { return };
        let last_commanded = self.messages.last_commanded.entry(target.clone()).or_default();
        if last_commanded.generation.as_ref().is_some_and(|generation| generation.hash == hash) {
            return;
        }
        self.messages.sequence += 1;
        let (term, sequence) = (self.messages.term, self.messages.sequence);
        let generation = Generation { term, sequence, hash };
        self.engine.handle(Event::CommandIssued(target.clone(), generation.clone()));
        let in_flight =
            InFlight { target: target.clone(), generation, desired, expected: last_commanded.position };
        self.messages.in_flight.push(in_flight);
    }

    /// Delivers a command to NATS and the answer to the engine; either may be lost.
    pub fn deliver_command(&mut self) {
        if self.messages.in_flight.is_empty() {
            return;
        }
        let at = self.random.below(self.messages.in_flight.len());
        let in_flight = self.messages.in_flight.remove(at);
        if self.random.one_in(10) {
            if in_flight.generation.term == self.messages.term {
                self.messages.mark_unverified(&in_flight.target, None);
            }
            return;
        }
        let answered = !self.random.one_in(10);
        self.store_command(in_flight, answered);
    }

    /// Stores the command if it replaces the one that its sender expected. `answered`: the sender receives the answer.
    fn store_command(&mut self, in_flight: InFlight, answered: bool) {
        let InFlight { target, generation, desired, expected } = in_flight;
        let messages = &mut self.messages;
        let found = messages.commands.get(&target).map_or(0, |command| command.position);
        let own = generation.term == messages.term;
        if found != expected && self.mutant != Some(Mutant::CheckThenAct) {
            if own {
                messages.mark_unverified(&target, Some(found));
            }
            return;
        }
        messages.position += 1;
        let position = messages.position;
        messages.executed.remove(&target);
        if own {
            messages.from_former_engine.remove(&target);
        } else {
            messages.from_former_engine.insert(target.clone());
        }
        if own && answered {
            let last_commanded = LastCommanded { generation: Some(generation.clone()), position };
            messages.last_commanded.insert(target.clone(), last_commanded);
        } else if own {
            messages.mark_unverified(&target, None);
        }
        messages.commands.insert(target, Command { generation, desired, position });
    }

    /// A driver applies the last command. `crashes`: it crashes before the report, and applies the command again.
    fn run_driver(&mut self, target: &Target, crashes: bool) {
        let Command { generation, desired, .. } = &self.messages.commands[target];
        let is_newer = |report: &Report| sequence_of(generation) < sequence_of(&report.generation);
        if self.messages.executed.contains(target) || self.messages.reports.get(target).is_some_and(is_newer)
        {
            return;
        }
        let applied = match desired {
            Desired::Fabric(fabric) => {
                let ports = fabric.ports.iter().map(|port| (port.name.clone(), port.vlans.clone())).collect();
                Applied::Fabric {
                    vlans: fabric.vlans.iter().map(|vlan| vlan.vid).collect(),
                    closed: Some(closed_ports(&ports)),
                    before: BTreeMap::new(),
                    ports,
                    carried: BTreeMap::new(),
                }
            }
            Desired::Nad(nad) => Applied::Nad { present: nad.attachment.is_some() },
            Desired::Node(_) => return,
        };
        let report = Report {
            driver: driver_of(target).into(),
            target: target.to_string(),
            instance: "i".into(),
            generation: generation.clone(),
            at: AT.into(),
            outcome: Outcome::Applied,
            applied: Some(applied),
            rejected: Vec::new(),
            notes: Vec::new(),
            device: None,
            change: None,
        };
        if self.messages.from_former_engine.contains(target) {
            self.messages.stale_effects.insert(target.clone());
        } else {
            self.messages.stale_effects.remove(target);
        }
        if self.mutant != Some(Mutant::ReportWithoutApply) {
            self.applied.insert(target.clone(), desired.clone());
        }
        if crashes {
            return;
        }
        self.messages.executed.insert(target.clone());
        self.messages.reports.insert(target.clone(), report.clone());
        self.messages.reports_in_flight.entry(target.clone()).or_default().push_back(report);
    }

    pub fn deliver_report(&mut self) {
        let Some(target) = self.random.pick(self.messages.reports_in_flight.keys()).cloned() else { return };
        let reports = self.messages.reports_in_flight.get_mut(&target).unwrap();
        if self.random.one_in(4) {
            reports.drain(..reports.len() - 1);
        }
        let repeated = self.random.one_in(6);
        let report = if repeated { reports[0].clone() } else { reports.pop_front().unwrap() };
        if reports.is_empty() {
            self.messages.reports_in_flight.remove(&target);
        }
        self.receive_report(target, report);
    }

    /// The engine receives a report. If it is on a late command of a former engine, the command is sent again.
    fn receive_report(&mut self, target: Target, mut report: Report) {
        let generation = self
            .messages
            .last_commanded
            .get(&target)
            .and_then(|last_commanded| last_commanded.generation.as_ref());
        if let Some(generation) = generation.filter(|_| self.mutant == Some(Mutant::GenerationIgnored)) {
            report.generation = generation.clone();
        }
        let former = report.generation.term < self.messages.term;
        let sending = self.messages.is_sending(&target);
        match self.messages.last_commanded.get(&target) {
            Some(LastCommanded { generation: Some(last_commanded), .. })
                if former && !sending && sequence_of(last_commanded) < sequence_of(&report.generation) =>
            {
                self.messages.mark_unverified(&target, None);
            }
            None if former && self.engine.desired(&target).is_none() => return self.forget_target(&target),
            _ => {}
        }
        self.engine.handle(Event::Report(target, Box::new(report)));
    }

    /// Deletes a target and all its messages.
    pub fn forget_target(&mut self, target: &Target) {
        let messages = &mut self.messages;
        messages.dirty.remove(target);
        messages.last_commanded.remove(target);
        messages.commands.remove(target);
        messages.from_former_engine.remove(target);
        messages.stale_effects.remove(target);
        messages.executed.remove(target);
        messages.reports.remove(target);
        messages.reports_in_flight.remove(target);
        self.applied.remove(target);
    }
}
