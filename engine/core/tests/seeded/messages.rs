//! What is in flight between the engine and NATS: commands and purges, the answers to them, and what the watches of the
//! streams deliver. A command may be stored late, without an answer, or never.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use eno_core::{Event, Name, Participant, PendingCommand, StreamEvent, Target};
use eno_schemas::{Command, Decision, Generation, Report};

use super::cluster::{Cluster, Violation};
use crate::nats::{StoredMessage, order};

/// A command that an engine sent.
#[derive(Debug)]
struct Publish {
    target: Target,
    command: Command,
    /// The sequence of the message that it replaces; 0: there is none.
    expected: u64,
}

/// The messages in flight.
#[derive(Debug, Default)]
pub struct Messages {
    /// Commands on the way to NATS.
    commands: Vec<Publish>,
    /// Purges on the way to NATS.
    purges: Vec<(Target, Name)>,
    /// Answers of NATS on the way to the engine.
    answers: Vec<StreamEvent>,
    /// The stored commands that the watch of the engine has not delivered, in order.
    stored: VecDeque<(Target, Name, u64)>,
    /// The stored reports that the watch of the engine has not delivered, in order.
    reports: BTreeMap<Target, VecDeque<Report>>,
    /// The generations of stored commands whose sender did not hear of it.
    pub unanswered: BTreeSet<Generation>,
    /// The decisions of transactions that were stored.
    decisions: BTreeMap<String, Decision>,
    /// The transactions with a stored decision, each with a target that it was stored for.
    pub decided: BTreeSet<(Target, String)>,
}

impl Messages {
    /// A report was stored.
    pub fn report_stored(&mut self, target: &Target, report: Report) {
        self.reports.entry(target.clone()).or_default().push_back(report);
    }

    /// No message is in flight.
    pub fn are_quiescent(&self) -> bool {
        self.commands.is_empty()
            && self.purges.is_empty()
            && self.answers.is_empty()
            && self.stored.is_empty()
            && self.reports.is_empty()
    }
}

impl Cluster {
    /// The messages of a crashed engine: its commands may be stored later.
    pub fn engine_crashed(&mut self) {
        for (target, driver) in std::mem::take(&mut self.messages.purges) {
            if self.random.one_in(2) {
                self.nats.purge(&target, &driver);
            }
        }
        self.messages.answers.clear();
        self.messages.stored.clear();
        self.messages.reports.clear();
    }

    /// The watch of commands begins with the last one of each target.
    pub fn watch_commands(&mut self) {
        let mut stored: Vec<_> = self
            .nats
            .commands()
            .map(|((target, driver), stored)| (stored.sequence, target.clone(), driver.clone()))
            .collect();
        stored.sort_unstable();
        self.messages.stored = stored.into_iter().map(|(at, target, driver)| (target, driver, at)).collect();
    }

    /// The engine sends a command.
    pub fn send_command(
        &mut self,
        participant: Participant,
        pending: PendingCommand,
    ) -> Result<(), Violation> {
        let Participant { target, driver, desired, .. } = participant;
        if let Some(former) = pending.moved_from {
            self.nats.purge(&target, &former);
        }
        let command = Command {
            driver: driver.to_string(),
            target: target.to_string(),
            generation: pending.generation,
            desired: Arc::unwrap_or_clone(desired),
            transaction: pending.transaction,
        };
        self.trace(|| format!("command {command:?} after {}", pending.expected));
        self.check_decision(&command)?;
        self.messages.commands.push(Publish { target, command, expected: pending.expected });
        Ok(())
    }

    /// The engine has the messages about a target that is gone purged.
    pub fn send_purge(&mut self, target: Target, driver: Name) {
        self.messages.purges.push((target, driver));
    }

    /// A command reaches NATS, or it or its answer is lost.
    pub fn deliver_command(&mut self) -> Result<(), Violation> {
        if self.messages.commands.is_empty() {
            return Ok(());
        }
        let at = self.random.below(self.messages.commands.len());
        let publish = self.messages.commands.remove(at);
        if self.random.one_in(10) {
            let answer = StreamEvent::NotPublished(publish.target, None);
            self.answer(publish.command.generation.term, answer);
            return Ok(());
        }
        let is_answered = !self.random.one_in(10);
        self.store_command(publish, is_answered)
    }

    /// Stores the command if it replaces the one that its sender expected. `is_answered`: the sender hears of it.
    fn store_command(&mut self, publish: Publish, is_answered: bool) -> Result<(), Violation> {
        let Publish { target, command, expected } = publish;
        let (generation, driver) = (command.generation.clone(), Name::from(command.driver.as_str()));
        let term = generation.term;
        let before = self.nats.last_sequence();
        let stored = self.nats.publish(&target, command.clone(), expected);
        if self.nats.last_sequence() > before {
            self.messages.stored.push_back((target.clone(), driver, self.nats.last_sequence()));
            self.check_stored(&target, &command)?;
        }
        self.trace(|| format!("NATS: {target} {generation} {stored:?} answered {is_answered}"));
        let answer = match stored {
            _ if !is_answered => {
                self.messages.unanswered.insert(generation);
                StreamEvent::NotPublished(target, None)
            }
            Ok(sequence) => StreamEvent::Published(target, generation, sequence),
            Err(found) => StreamEvent::NotPublished(target, Some(found)),
        };
        self.answer(term, answer);
        Ok(())
    }

    /// An answer goes to the engine of this term, unless it has crashed.
    fn answer(&mut self, term: u64, answer: StreamEvent) {
        if term == self.term {
            self.messages.answers.push(answer);
        }
    }

    /// Invariant of a stored command: no transaction has two decisions.
    fn check_stored(&mut self, target: &Target, command: &Command) -> Result<(), Violation> {
        let Some(transaction) = &command.transaction else { return Ok(()) };
        let Some(decision) = transaction.decision else { return Ok(()) };
        self.messages.decided.insert((target.clone(), transaction.id.clone()));
        if command.generation.term < self.term {
            return Ok(());
        }
        let first = *self.messages.decisions.entry(transaction.id.clone()).or_insert(decision);
        if first == decision {
            return Ok(());
        }
        Err(format!("transaction {} is decided twice: {first:?} and {decision:?}", transaction.id))
    }

    /// A purge takes place.
    pub fn deliver_purge(&mut self) {
        if self.messages.purges.is_empty() {
            return;
        }
        let at = self.random.below(self.messages.purges.len());
        let (target, driver) = self.messages.purges.remove(at);
        self.purge(target, driver);
    }

    fn purge(&mut self, target: Target, driver: Name) {
        self.trace(|| format!("NATS purges {target}"));
        self.nats.purge(&target, &driver);
        self.messages.answers.push(StreamEvent::TargetRemoved(target, driver));
    }

    /// An answer of NATS reaches the engine.
    pub fn deliver_answer(&mut self) {
        if !self.messages.answers.is_empty() {
            let at = self.random.below(self.messages.answers.len());
            let answer = self.messages.answers.remove(at);
            self.tell(Event::Stream(answer));
        }
    }

    /// The watch of commands delivers the next one.
    pub fn deliver_stored(&mut self) {
        if let Some((target, driver, sequence)) = self.messages.stored.pop_front() {
            self.tell(Event::Stream(StreamEvent::CommandStored(target, driver, sequence)));
        }
    }

    /// The watch of reports delivers one. Those in between may be skipped, and the last one may be repeated.
    pub fn deliver_report(&mut self) {
        let Some(target) = self.random.pick(self.messages.reports.keys()).cloned() else { return };
        let reports = self.messages.reports.get_mut(&target).unwrap();
        if self.random.one_in(4) {
            reports.drain(..reports.len() - 1);
        }
        let is_repeated = self.random.one_in(6);
        let report = if is_repeated { reports[0].clone() } else { reports.pop_front().unwrap() };
        if reports.is_empty() {
            self.messages.reports.remove(&target);
        }
        self.tell(Event::Report(target, Box::new(report)));
    }

    /// Delivers all messages in flight.
    pub fn deliver_all_messages(&mut self) -> Result<(), Violation> {
        while !self.messages.commands.is_empty() {
            let publish = self.messages.commands.remove(0);
            self.store_command(publish, true)?;
        }
        for (target, driver) in std::mem::take(&mut self.messages.purges) {
            self.purge(target, driver);
        }
        for answer in std::mem::take(&mut self.messages.answers) {
            self.tell(Event::Stream(answer));
        }
        while !self.messages.stored.is_empty() {
            self.deliver_stored();
        }
        for (target, reports) in std::mem::take(&mut self.messages.reports) {
            for report in reports {
                self.tell(Event::Report(target.clone(), Box::new(report)));
            }
        }
        Ok(())
    }

    /// A server of NATS is killed and loses the last command of a target: half of the time, one of the few decisions that
    /// no driver has answered. The engine reads what is left.
    pub fn lose_command(&mut self) {
        let is_decision = |stored: &StoredMessage| {
            stored.command.transaction.as_ref().is_some_and(|transaction| transaction.decision.is_some())
        };
        let is_answered = |target: &Target, stored: &StoredMessage| {
            let report = self.nats.report(target, &stored.command.driver);
            report.is_some_and(|report| order(&report.generation) >= order(&stored.command.generation))
        };
        let commands = || self.nats.commands();
        let all: Vec<_> = commands().map(|(subject, _)| subject.clone()).collect();
        let decisions =
            commands().filter(|((target, _), stored)| is_decision(stored) && !is_answered(target, stored));
        let decisions: Vec<_> = decisions.map(|(subject, _)| subject.clone()).collect();
        let chosen = if decisions.is_empty() || self.random.one_in(2) { all } else { decisions };
        let Some((target, driver)) = self.random.pick(chosen.into_iter()) else { return };
        self.trace(|| format!("NATS loses the command of {target}"));
        self.nats.lose_command(&target, &driver);
        self.messages.stored.retain(|(other, ..)| *other != target);
        self.crash_driver(&target);
        let sequences = self.nats.sequences();
        self.tell(Event::Stream(StreamEvent::StoredSequences(sequences)));
        self.read_sequences_again();
    }

    /// NATS loses its streams, which are created again.
    pub fn lose_streams(&mut self) {
        self.trace(|| "NATS loses its streams".into());
        self.crash_drivers();
        self.nats.lose_streams();
        self.first_late = 0;
        self.messages.stored.clear();
        self.messages.reports.clear();
        self.tell(Event::Stream(StreamEvent::StreamsLost));
        self.read_sequences_again();
    }

    /// The stored command is of a former engine, and was not there when the present one started.
    pub fn is_late(&self, stored: &StoredMessage) -> bool {
        stored.command.generation.term < self.term && stored.sequence > self.first_late
    }
}
