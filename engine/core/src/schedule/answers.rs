//! What drivers and NATS answer to commands.

use std::cmp::Ordering;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use eno_schemas::{ChangeReport, Command, Decision, Generation, Outcome, Report, Transaction};

use crate::{Name, Target};

use super::{DriverAnswer, Participant, Schedule, State, Stored};

/// Delay after a failed publish.
pub(super) const RETRY_DELAY: Duration = Duration::from_millis(500);

/// A command that NATS held before this engine led.
#[derive(Debug)]
pub struct StoredCommand {
    /// Its target.
    pub target: Target,
    /// The driver in its subject.
    pub driver: Name,
    /// Its sequence in the stream.
    pub sequence: u64,
    /// The command; `None`: it is unreadable.
    pub command: Option<Command>,
}

/// What NATS answers to commands, and what its streams hold of them.
#[derive(Debug)]
pub enum StreamEvent {
    /// NATS stored a command at this sequence.
    Published(Target, Generation, u64),
    /// NATS did not store a command; with the last sequence of the subject, if known.
    NotPublished(Target, Option<u64>),
    /// The messages of a removed target are purged, or that failed.
    TargetRemoved(Target),
    /// Sequences of all commands that NATS stores, read after a reconnect.
    StoredSequences(BTreeMap<Target, u64>),
    /// NATS lost its streams, which were recreated empty.
    StreamsLost,
    /// The last report of this driver on the target is unreadable.
    ReportUnreadable(Target, Name),
}

/// Why a command is published again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Republished {
    /// NATS lost it.
    Lost,
    /// A late command of a former leader or an invalid message replaced it.
    Replaced,
}

/// How far a report counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Receipt {
    /// It says nothing about the desired state.
    Ignored,
    /// It is an observation of the target.
    Observed,
    /// Besides, the driver refuses its part of an open transaction.
    Refused,
}

impl Schedule {
    /// Loads the commands that NATS stored before this engine led.
    pub(crate) fn restore(&mut self, commands: &[StoredCommand]) {
        let transaction = |stored: &StoredCommand| stored.command.as_ref()?.transaction.clone();
        // A decision that reached one participant holds for all of them.
        let confirmed: BTreeSet<String> = commands
            .iter()
            .filter_map(transaction)
            .filter(|transaction| transaction.decision == Some(Decision::Confirm))
            .map(|transaction| transaction.id)
            .collect();
        for stored in commands {
            let (target, driver) = (stored.target.clone(), stored.driver.clone());
            let open =
                transaction(stored).filter(|transaction| transaction.decision != Some(Decision::Confirm));
            let generation = stored.command.as_ref().map(|command| command.generation.clone());
            let slot = self.slots.entry(target.clone()).or_default();
            slot.stored = Some(Stored {
                driver: driver.clone(),
                generation: generation.clone(),
                unconfirmed: open.is_some(),
                sequence: stored.sequence,
            });
            if let (Some(open), Some(command), Some(generation)) = (open, &stored.command, generation) {
                let decision = if confirmed.contains(&open.id) { Decision::Confirm } else { Decision::Abort };
                let desired = command.desired.clone();
                let participant = Participant { target, driver, desired, hash: generation.hash.clone() };
                let transaction = Transaction { decision: Some(decision), ..open };
                self.decide_inherited(participant, generation, transaction, self.now);
            }
        }
    }

    /// True if the report counts: it is of the target's present driver, and no failure of a command that was replaced.
    pub(crate) fn accepts(&self, target: &Target, report: &Report) -> bool {
        self.is_of_driver(target, report)
            && !(matches!(report.outcome, Outcome::Failed(_)) && self.is_replaced(target, &report.generation))
    }

    fn is_of_driver(&self, target: &Target, report: &Report) -> bool {
        self.driver(target).is_none_or(|driver| **driver == *report.driver)
    }

    /// Takes in a report. `refuses`: whether a change that the driver holds lacks a part of what was issued.
    pub(crate) fn receive(
        &mut self,
        target: &Target,
        report: &mut Report,
        refuses: impl FnOnce(&Report) -> bool,
    ) -> Receipt {
        if !self.is_of_driver(target, report) {
            return Receipt::Ignored;
        }
        let generation = &report.generation;
        if generation.term > self.term || (generation.term == self.term && !self.has_issued(generation)) {
            self.conflicting_term = self.conflicting_term.max(Some(generation.term));
        }
        let replaced = self.replace_foreign_command(target, generation, self.now);
        if replaced && matches!(report.outcome, Outcome::Failed(_)) {
            return Receipt::Ignored;
        }
        if !replaced && self.driver(target).is_none() {
            self.uncommanded.insert(target.clone(), report.driver.as_str().into());
        }
        let answer = match report.outcome {
            Outcome::Progress { .. } => return Receipt::Observed,
            Outcome::Applied => DriverAnswer::Applied,
            Outcome::Held => DriverAnswer::Held { refused: refuses(report) },
            Outcome::RolledBack { .. } => DriverAnswer::RolledBack,
            Outcome::Failed(ref failure) if failure.retryable => DriverAnswer::WillRetry,
            Outcome::Failed(_) => DriverAnswer::Failed,
        };
        if answer == DriverAnswer::RolledBack && report.change.is_none() {
            report.change = self.transaction(target).map(|id| ChangeReport {
                transaction: Some(id.to_owned()),
                at: report.at.clone(),
                took_ms: 0,
                added: 0,
                removed: 0,
            });
        }
        if self.handle_report(target, &report.generation, answer, self.now) {
            Receipt::Refused
        } else {
            Receipt::Observed
        }
    }

    /// Takes in what NATS answers.
    pub(crate) fn on_stream(&mut self, event: StreamEvent) {
        let now = self.now;
        match event {
            StreamEvent::Published(target, generation, sequence) => {
                self.confirm_published(&target, &generation, sequence, now);
            }
            StreamEvent::NotPublished(target, found) => self.publish_failed(&target, found, now),
            StreamEvent::TargetRemoved(target) => self.removal_done(&target),
            StreamEvent::StoredSequences(sequences) => self.compare_with_stream(&sequences, now),
            StreamEvent::StreamsLost => self.streams_lost(),
            StreamEvent::ReportUnreadable(target, driver) => self.report_unreadable(&target, &driver, now),
        }
    }

    /// The highest term of another engine that is not lower than this one.
    pub(crate) fn conflicting_term(&self) -> Option<u64> {
        self.conflicting_term
    }

    /// Reported targets that have no known command, with the drivers that reported, since the last call. The former
    /// leader died before it removed them. Such reports may be of this term as well: after a purge, a NATS server that
    /// is killed may restore older messages of the subject.
    pub(crate) fn take_uncommanded(&mut self) -> BTreeMap<Target, Name> {
        let mut reported = std::mem::take(&mut self.uncommanded);
        reported.retain(|target, _| self.driver(target).is_none());
        reported
    }

    /// The messages of a target without a known command are being purged.
    pub(crate) fn remove_unknown(&mut self, target: &Target) {
        *self.removing.entry(target.clone()).or_default() += 1;
    }

    /// A driver reported on a generation. True: it refuses its part of an open transaction.
    pub(super) fn handle_report(
        &mut self,
        target: &Target,
        generation: &Generation,
        answer: DriverAnswer,
        now: Duration,
    ) -> bool {
        let Some(slot) = self.slots.get_mut(target) else { return false };
        if answer.is_final() {
            match &mut slot.state {
                State::Outstanding(waiting, _) if *waiting <= *generation => slot.state = State::Idle,
                State::Publishing { generation: waiting, reported, .. } => {
                    *reported |= *waiting <= *generation;
                }
                _ => {}
            }
        }
        self.handle_answer(target, generation, answer, now)
    }

    /// True if another message replaced the target's command: a late command of a former leader, or an invalid one. The
    /// report shows it by a generation that is newer than the last command or has another hash, or when the stored
    /// command was unreadable.
    fn is_replaced(&self, target: &Target, generation: &Generation) -> bool {
        let Some(slot) = self.slots.get(target) else { return false };
        // NATS refuses a publish in progress in that case, and it is retried.
        let settled = !matches!(slot.state, State::Publishing { .. });
        let Some(stored) = slot.stored.as_ref().filter(|_| settled && generation.term <= self.term) else {
            return false;
        };
        let Some(found) = &stored.generation else { return generation.term < self.term };
        let order = |generation: &Generation| (generation.term, generation.sequence);
        match order(found).cmp(&order(generation)) {
            Ordering::Less => true,
            Ordering::Equal => found.hash != generation.hash,
            Ordering::Greater => false,
        }
    }

    /// Schedules the target's command again if a report on this generation shows that another message replaced it.
    pub(super) fn replace_foreign_command(
        &mut self,
        target: &Target,
        generation: &Generation,
        now: Duration,
    ) -> bool {
        let replaced = self.is_replaced(target, generation);
        if let Some(slot) = self.slots.get_mut(target).filter(|_| replaced)
            && let Some(stored) = &mut slot.stored
            && stored.generation.take().is_some()
        {
            // The driver that reported this works on no other command.
            slot.state = State::Idle;
            self.mark_dirty(target.clone(), now);
        }
        if replaced {
            self.republished.push((target.clone(), Republished::Replaced));
        }
        replaced
    }

    /// The last report of this driver on the target is unreadable and may answer the last command. The command is
    /// published again, but only once: a report that stays unreadable would cause an endless loop.
    pub(super) fn report_unreadable(&mut self, target: &Target, driver: &Name, now: Duration) {
        let Some(slot) = self.slots.get_mut(target).filter(|slot| !slot.resent_unreadable) else { return };
        let Some(stored) = slot.stored.as_mut().filter(|stored| stored.driver == *driver) else { return };
        stored.generation = None;
        slot.resent_unreadable = true;
        self.mark_dirty(target.clone(), now);
    }

    /// False if a generation of this engine's term is newer than all that this engine issued.
    pub(super) fn has_issued(&self, generation: &Generation) -> bool {
        generation.sequence <= self.sequence
    }

    /// NATS acknowledged the command at this sequence of its stream.
    pub(super) fn confirm_published(
        &mut self,
        target: &Target,
        generation: &Generation,
        sequence: u64,
        now: Duration,
    ) {
        self.publishing = self.publishing.saturating_sub(1);
        let Some(slot) = self.slots.get_mut(target) else { return };
        let (reported, unconfirmed) = match slot.state {
            State::Publishing { reported, unconfirmed, .. } => (reported, unconfirmed),
            State::Idle | State::Outstanding(..) => (false, false),
        };
        if let Some(stored) = &mut slot.stored {
            stored.generation = Some(generation.clone());
            stored.unconfirmed = unconfirmed;
            stored.sequence = sequence;
        }
        slot.state = if reported { State::Idle } else { State::Outstanding(generation.clone(), now) };
    }

    /// The publish failed, and the target becomes ready again. `found`: the actual last sequence of the subject if the
    /// expected one was wrong; the retry may then follow at once.
    pub(super) fn publish_failed(&mut self, target: &Target, found: Option<u64>, now: Duration) {
        self.publishing = self.publishing.saturating_sub(1);
        if let Some(slot) = self.slots.get_mut(target) {
            slot.state = State::Idle;
            slot.retry_at = found.is_none().then_some(now + RETRY_DELAY);
            if let Some(stored) = &mut slot.stored {
                // The subject holds a command of another engine, or this one was stored without an acknowledgement.
                stored.generation = None;
                stored.sequence = found.unwrap_or(stored.sequence);
            }
            if !self.decision_publish_failed(target, now) {
                self.dirty.insert(target.clone());
            }
        }
    }

    /// A purge of the target's messages ended or failed.
    pub(super) fn removal_done(&mut self, target: &Target) {
        if let Entry::Occupied(mut left) = self.removing.entry(target.clone()) {
            *left.get_mut() -= 1;
            if *left.get() == 0 {
                left.remove();
            }
        }
    }

    /// NATS lost its streams: every target has to be published again.
    pub(super) fn streams_lost(&mut self) {
        self.transactions.clear();
        for (target, slot) in &mut self.slots {
            if let Some(stored) = &mut slot.stored {
                stored.generation = None;
                stored.sequence = 0;
            }
            if !matches!(slot.state, State::Publishing { .. }) {
                slot.state = State::Idle;
            }
            self.dirty.insert(target.clone());
        }
    }

    /// Compares the commands with the sequences that NATS stores, and schedules lost ones again. A server that is
    /// killed may lose the last message of a subject and the one before it.
    /// Transactions are left to their deadlines.
    pub(super) fn compare_with_stream(&mut self, sequences: &BTreeMap<Target, u64>, now: Duration) {
        let bound: BTreeSet<Target> =
            self.slots.keys().filter(|target| self.is_bound(target)).cloned().collect();
        let mut lost = Vec::new();
        for (target, slot) in &mut self.slots {
            // NATS refuses a publish in progress if the last sequence differs, and it is retried.
            let settled = !matches!(slot.state, State::Publishing { .. }) && !bound.contains(target);
            let found = sequences.get(target).copied().unwrap_or_default();
            let Some(stored) = slot.stored.as_mut().filter(|stored| settled && found < stored.sequence)
            else {
                continue;
            };
            stored.generation = None;
            stored.sequence = found;
            // No driver answers a lost command.
            slot.state = State::Idle;
            lost.push(target.clone());
        }
        for target in lost {
            self.mark_dirty(target.clone(), now);
            self.republished.push((target, Republished::Lost));
        }
    }
}
