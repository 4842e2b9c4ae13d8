//! The messages that NATS stores: the last command and the last report of each target, by the driver in their subjects.

#![allow(dead_code, reason = "each of its users needs a part of it")]

use std::collections::BTreeMap;

use eno_core::{Event, Name, StoredCommand, Target};
use eno_schemas::{Command, Generation, Report};

/// A command that NATS stores.
#[derive(Clone, Debug)]
pub struct StoredMessage {
    /// Its sequence in the stream.
    pub sequence: u64,
    /// The command.
    pub command: Command,
}

/// The streams of commands and reports.
#[derive(Debug, Default)]
pub struct Nats {
    /// The sequence of the last message in the stream of commands.
    last_sequence: u64,
    /// The last command on each subject.
    commands: BTreeMap<(Target, Name), StoredMessage>,
    /// The last report on each subject.
    reports: BTreeMap<(Target, Name), Report>,
}

/// Term and sequence of a generation, by which drivers order commands.
pub fn order(generation: &Generation) -> (u64, u64) {
    (generation.term, generation.sequence)
}

impl Nats {
    /// Stores a command if `expected` is the last sequence of its subject. Returns its sequence, or the last one.
    pub fn publish(&mut self, target: &Target, command: Command, expected: u64) -> Result<u64, u64> {
        let subject = (target.clone(), Name::from(command.driver.as_str()));
        let last = self.commands.get(&subject);
        let found = last.map_or(0, |last| last.sequence);
        if found != expected {
            // An earlier attempt may have succeeded without an answer.
            let is_stored = last.is_some_and(|last| last.command.generation == command.generation);
            return if is_stored { Ok(found) } else { Err(found) };
        }
        self.last_sequence += 1;
        self.commands.insert(subject, StoredMessage { sequence: self.last_sequence, command });
        Ok(self.last_sequence)
    }

    /// Deletes the messages about a target on the subjects of this driver.
    pub fn purge(&mut self, target: &Target, driver: &Name) {
        let subject = (target.clone(), driver.clone());
        self.commands.remove(&subject);
        self.reports.remove(&subject);
    }

    /// Stores a report unless an equal or a newer one is there, or the target has no command any more. True: it is
    /// stored.
    pub fn store_report(&mut self, target: &Target, report: &Report) -> bool {
        let subject = (target.clone(), Name::from(report.driver.as_str()));
        let is_kept =
            |stored: &Report| order(&stored.generation) > order(&report.generation) || stored == report;
        if !self.commands.contains_key(&subject) || self.reports.get(&subject).is_some_and(is_kept) {
            return false;
        }
        self.reports.insert(subject, report.clone());
        true
    }

    /// The last command of a target.
    pub fn command(&self, target: &Target, driver: &str) -> Option<&StoredMessage> {
        self.commands.get(&(target.clone(), driver.into()))
    }

    /// The last command of a target, whichever its driver is.
    pub fn command_of(&self, target: &Target) -> Option<&Command> {
        let mut all = self.commands.iter().filter(|((other, _), _)| other == target);
        all.next_back().map(|(_, stored)| &stored.command)
    }

    /// The last report on a target.
    pub fn report(&self, target: &Target, driver: &str) -> Option<&Report> {
        self.reports.get(&(target.clone(), driver.into()))
    }

    /// All commands, with their targets and drivers.
    pub fn commands(&self) -> impl ExactSizeIterator<Item = (&(Target, Name), &StoredMessage)> {
        self.commands.iter()
    }

    /// The sequence of the last message in the stream of commands.
    pub fn last_sequence(&self) -> u64 {
        self.last_sequence
    }

    /// The sequence of the last command of each target.
    pub fn sequences(&self) -> BTreeMap<Target, u64> {
        self.commands.iter().map(|((target, _), stored)| (target.clone(), stored.sequence)).collect()
    }

    /// A server that is killed loses the last command of a target.
    pub fn lose_command(&mut self, target: &Target, driver: &Name) {
        self.commands.remove(&(target.clone(), driver.clone()));
    }

    /// Replaces the hashes of all commands, and of the reports on them.
    pub fn replace_hashes(&mut self, new: impl Fn(&Target, &str) -> String) {
        let commands =
            self.commands.iter_mut().map(|(subject, stored)| (subject, &mut stored.command.generation));
        let reports = self.reports.iter_mut().map(|(subject, report)| (subject, &mut report.generation));
        for ((target, _), generation) in commands.chain(reports) {
            generation.hash = new(target, &generation.hash);
        }
    }

    /// The streams are lost and created again.
    pub fn lose_streams(&mut self) {
        *self = Self::default();
    }

    /// The commands and reports, as a new engine reads them.
    pub fn events(&self) -> Vec<Event> {
        let commands = self.commands.iter().map(|((target, driver), stored)| StoredCommand {
            target: target.clone(),
            driver: driver.clone(),
            sequence: stored.sequence,
            command: Some(stored.command.clone()),
        });
        let reports = self.reports.iter().map(|((target, _), report)| (target, report));
        let reports = reports.map(|(target, report)| Event::Report(target.clone(), Box::new(report.clone())));
        [Event::StoredCommands(commands.collect())].into_iter().chain(reports).collect()
    }
}
