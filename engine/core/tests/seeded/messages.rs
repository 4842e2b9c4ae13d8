//! What NATS holds and what is on its way there and from there: commands, which the engine publishes in the place of the
//! one that it knows of, and which may take effect without an answer, late, or never; and reports.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use eno_core::{Event, Target};
use eno_schemas::{Applied, Desired, Generation, Outcome, Report};

use super::cluster::{AT, Cluster};
use super::mutants::Mutant;
use crate::world::closed;

/// A command in its place.
struct Command {
    generation: Generation,
    desired: Desired,
    position: u64,
}

/// What the engine believes to be the last command of a target.
#[derive(Default)]
struct Held {
    /// `None`: it is not sure of it.
    generation: Option<Generation>,
    position: u64,
}

/// A command on its way.
struct Sent {
    target: Target,
    generation: Generation,
    desired: Desired,
    /// The position of the one whose place it takes; 0: there is none.
    expected: u64,
}

#[derive(Default)]
pub struct Messages {
    term: u64,
    sequence: u64,
    position: u64,
    /// Targets of which something else is wanted.
    dirty: BTreeSet<Target>,
    held: BTreeMap<Target, Held>,
    sent: Vec<Sent>,
    commands: BTreeMap<Target, Command>,
    /// Those of which the last command is of a former engine and came after the present one began.
    late: BTreeSet<Target>,
    /// Those of which the driver has done such a command.
    astray: BTreeSet<Target>,
    /// Those whose driver has done what it was told last, and reported on it.
    done: BTreeSet<Target>,
    reports: BTreeMap<Target, Report>,
    /// Reports that the engine has not heard yet.
    mail: BTreeMap<Target, VecDeque<Report>>,
}

fn order(generation: &Generation) -> (u64, u64) {
    (generation.term, generation.sequence)
}

impl Messages {
    /// A new engine begins, with what it is told of this.
    pub fn begin(&mut self) -> Vec<Event> {
        self.term += 1;
        self.sequence = 0;
        // It knows of all that is there.
        self.late.clear();
        self.astray.clear();
        let mut events = Vec::new();
        self.held.clear();
        for (target, command) in &self.commands {
            events.push(Event::StoredCommand(target.clone(), Box::new(command.desired.clone())));
            let held = Held { generation: Some(command.generation.clone()), position: command.position };
            self.held.insert(target.clone(), held);
        }
        for (target, report) in &self.reports {
            events.push(Event::Report(target.clone(), Box::new(report.clone())));
        }
        events
    }

    /// The engine is gone; what it has sent is on its way.
    pub fn crash(&mut self) {
        self.dirty.clear();
        self.mail.clear();
    }

    pub fn changed(&mut self, target: Target) {
        self.dirty.insert(target);
    }

    pub fn commanded(&self) -> impl Iterator<Item = (&Target, &Desired)> {
        self.commands.iter().map(|(target, command)| (target, &command.desired))
    }

    /// What a former engine had on its way has taken effect: that is put right once it is known, and until then things
    /// may be there that the present engine knows nothing of.
    pub fn is_astray(&self, target: &Target) -> bool {
        self.astray.contains(target)
    }

    /// Nothing is under way.
    pub fn are_quiet(&self) -> bool {
        self.dirty.is_empty() && self.sent.is_empty() && self.mail.is_empty()
    }

    fn is_sending(&self, target: &Target) -> bool {
        self.sent.iter().any(|sent| sent.target == *target && sent.generation.term == self.term)
    }

    /// What the engine believes of this one no longer holds.
    fn say_again(&mut self, target: &Target, position: Option<u64>) {
        let held = self.held.entry(target.clone()).or_default();
        held.generation = None;
        held.position = position.unwrap_or(held.position);
        self.dirty.insert(target.clone());
    }
}

impl Cluster {
    pub fn publish_one(&mut self) {
        if let Some(target) = self.chance.pick(self.messages.dirty.iter()).cloned() {
            self.publish(&target);
        }
    }

    pub fn work_one(&mut self) {
        if let Some(target) = self.chance.pick(self.messages.commands.keys()).cloned() {
            let dies = self.chance.once_in(6);
            self.work(&target, dies);
        }
    }

    /// All that is under way arrives.
    pub fn exchange(&mut self) {
        for target in self.messages.dirty.clone() {
            self.publish(&target);
        }
        while !self.messages.sent.is_empty() {
            let sent = self.messages.sent.remove(0);
            self.take(sent, true);
        }
        for target in self.messages.commands.keys().cloned().collect::<Vec<_>>() {
            self.work(&target, false);
        }
        for (target, reports) in std::mem::take(&mut self.messages.mail) {
            for report in reports {
                self.hear(target.clone(), report);
            }
        }
    }

    /// One at a time is on its way.
    fn publish(&mut self, target: &Target) {
        if self.messages.is_sending(target) {
            return;
        }
        self.messages.dirty.remove(target);
        let Some((_, desired)) = self.engine.desired(target) else { return };
        let hash = desired.hash();
        let held = self.messages.held.entry(target.clone()).or_default();
        if held.generation.as_ref().is_some_and(|generation| generation.hash == hash) {
            return;
        }
        self.messages.sequence += 1;
        let (term, sequence) = (self.messages.term, self.messages.sequence);
        let generation = Generation { term, sequence, hash };
        self.engine.handle(Event::CommandIssued(target.clone(), generation.clone()));
        let sent = Sent { target: target.clone(), generation, desired, expected: held.position };
        self.messages.sent.push(sent);
    }

    /// A command arrives at NATS, and its answer at the engine; either may be lost.
    pub fn arrive_command(&mut self) {
        if self.messages.sent.is_empty() {
            return;
        }
        let at = self.chance.below(self.messages.sent.len());
        let sent = self.messages.sent.remove(at);
        if self.chance.once_in(10) {
            if sent.generation.term == self.messages.term {
                self.messages.say_again(&sent.target, None);
            }
            return;
        }
        let answered = !self.chance.once_in(10);
        self.take(sent, answered);
    }

    /// It is stored, where nothing came between. Who sent it learns that, unless the answer is lost or it is no more.
    fn take(&mut self, sent: Sent, answered: bool) {
        let Sent { target, generation, desired, expected } = sent;
        let messages = &mut self.messages;
        let found = messages.commands.get(&target).map_or(0, |command| command.position);
        let own = generation.term == messages.term;
        if found != expected && self.mutant != Some(Mutant::CheckThenAct) {
            if own {
                messages.say_again(&target, Some(found));
            }
            return;
        }
        messages.position += 1;
        let position = messages.position;
        messages.done.remove(&target);
        if own {
            messages.late.remove(&target);
        } else {
            messages.late.insert(target.clone());
        }
        if own && answered {
            let held = Held { generation: Some(generation.clone()), position };
            messages.held.insert(target.clone(), held);
        } else if own {
            messages.say_again(&target, None);
        }
        messages.commands.insert(target, Command { generation, desired, position });
    }

    /// A driver does what it was told last. `dies`: before it reports, so that it does it again.
    fn work(&mut self, target: &Target, dies: bool) {
        let Command { generation, desired, .. } = &self.messages.commands[target];
        let older = |report: &Report| order(generation) < order(&report.generation);
        if self.messages.done.contains(target) || self.messages.reports.get(target).is_some_and(older) {
            return;
        }
        let applied = match desired {
            Desired::Fabric(fabric) => {
                let ports = fabric.ports.iter().map(|port| (port.name.clone(), port.vlans.clone())).collect();
                Applied::Fabric {
                    vlans: fabric.vlans.iter().map(|vlan| vlan.vid).collect(),
                    closed: Some(closed(&ports)),
                    before: BTreeMap::new(),
                    ports,
                    carried: BTreeMap::new(),
                }
            }
            Desired::Nad(nad) => Applied::Nad { present: nad.attachment.is_some() },
            Desired::Node(_) => return,
        };
        let report = Report {
            driver: if matches!(target, Target::Nad(..)) { "nad" } else { "netconf" }.into(),
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
        if self.messages.late.contains(target) {
            self.messages.astray.insert(target.clone());
        } else {
            self.messages.astray.remove(target);
        }
        if self.mutant != Some(Mutant::NothingDone) {
            self.truth.insert(target.clone(), desired.clone());
        }
        if dies {
            return;
        }
        self.messages.done.insert(target.clone());
        self.messages.reports.insert(target.clone(), report.clone());
        self.messages.mail.entry(target.clone()).or_default().push_back(report);
    }

    pub fn arrive_report(&mut self) {
        let Some(target) = self.chance.pick(self.messages.mail.keys()).cloned() else { return };
        let reports = self.messages.mail.get_mut(&target).unwrap();
        if self.chance.once_in(4) {
            reports.drain(..reports.len() - 1);
        }
        let again = self.chance.once_in(6);
        let report = if again { reports[0].clone() } else { reports.pop_front().unwrap() };
        if reports.is_empty() {
            self.messages.mail.remove(&target);
        }
        self.hear(target, report);
    }

    /// The engine hears a report. One on a command that was not there when it began is of a former engine's, and what is
    /// wanted is said again.
    fn hear(&mut self, target: Target, mut report: Report) {
        let said = self.messages.held.get(&target).and_then(|held| held.generation.as_ref());
        if let Some(said) = said.filter(|_| self.mutant == Some(Mutant::GenerationIgnored)) {
            report.generation = said.clone();
        }
        let former = report.generation.term < self.messages.term;
        let sending = self.messages.is_sending(&target);
        match self.messages.held.get(&target) {
            Some(Held { generation: Some(held), .. })
                if former && !sending && order(held) < order(&report.generation) =>
            {
                self.messages.say_again(&target, None);
            }
            None if former && self.engine.desired(&target).is_none() => return self.forget(&target),
            _ => {}
        }
        self.engine.handle(Event::Report(target, Box::new(report)));
    }

    /// A target is gone, and all that is known of it.
    pub fn forget(&mut self, target: &Target) {
        let messages = &mut self.messages;
        messages.dirty.remove(target);
        messages.held.remove(target);
        messages.commands.remove(target);
        messages.late.remove(target);
        messages.astray.remove(target);
        messages.done.remove(target);
        messages.reports.remove(target);
        messages.mail.remove(target);
        self.truth.remove(target);
    }
}
