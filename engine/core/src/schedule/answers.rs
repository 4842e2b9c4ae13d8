//! What drivers and NATS answer to commands.

use std::cmp::Ordering;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use eno_schemas::{ChangeReport, Decision, Desired, Generation, Outcome, Report, Transaction, Tree};

use crate::{Name, StoredCommand, StreamEvent, Target};

use super::{DriverAnswer, Participant, Schedule, Slot, State, Stored};

/// Delay after a failed publish.
pub(super) const RETRY_DELAY: Duration = Duration::from_millis(500);
/// Longest delay before a command takes its place again, if others write on its subject time after time, or if its
/// driver can't read it. A decision of a transaction waits no longer either.
const MAX_COMMAND_DELAY: Duration = Duration::from_secs(1);
/// The same if it asks for a report in the place of one that is not the driver's. A driver whose reports stay unreadable
/// would otherwise cause an endless loop.
const MAX_REPORT_DELAY: Duration = Duration::from_mins(1);

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
            if stored.command.as_ref().is_some_and(|command| self.is_foreign(&command.generation)) {
                let stored =
                    Stored { driver: driver.clone(), generation: None, unconfirmed: false, sequence: 0 };
                self.slots.entry(target.clone()).or_default().stored = Some(stored);
                self.purge(target, driver);
                continue;
            }
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
                let (desired, hash) = (Arc::new(command.desired.clone()), generation.hash.clone());
                let tree = match &*desired {
                    Desired::Fabric(desired) => Some(Tree::of(desired)),
                    Desired::Nad(_) | Desired::Node(_) | Desired::Speaker(_) => None,
                };
                let tree = tree.filter(|tree| tree.root().to_string() == hash).map(Arc::new);
                let participant = Participant { target, driver, desired, tree, hash };
                let transaction = Transaction { decision: Some(decision), ..open };
                self.decide_inherited(participant, generation, transaction, self.now);
            }
        }
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
        let replaced = self.replace_foreign_command(target, generation, self.now);
        if replaced && matches!(report.outcome, Outcome::Failed(_)) {
            return Receipt::Ignored;
        }
        if !replaced && self.driver(target).is_none() {
            self.uncommanded.insert((target.clone(), report.driver.as_str().into()));
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
            return Receipt::Refused;
        }
        if replaced {
            // Only a report on the command that takes its place confirms a state.
            report.generation.hash.clear();
        }
        Receipt::Observed
    }

    /// Takes in what NATS answers.
    pub(crate) fn on_stream(&mut self, event: StreamEvent) {
        let now = self.now;
        match event {
            StreamEvent::Published(target, generation, sequence) => {
                self.confirm_published(&target, &generation, sequence, now);
            }
            StreamEvent::NotPublished(target, found) => self.publish_failed(&target, found, now),
            StreamEvent::TargetRemoved(target, driver) => self.removal_done(&target, &driver, now),
            StreamEvent::CommandStored(target, driver, sequence) => {
                self.command_stored(target, driver, sequence, now);
            }
            StreamEvent::StoredSequences(sequences) => self.compare_with_stream(&sequences, now),
            StreamEvent::StreamsLost => self.streams_lost(),
            StreamEvent::ReportUnreadable(target, driver) => {
                self.publish_again(&target, &driver, MAX_REPORT_DELAY, now);
            }
            StreamEvent::CommandUnread(target, driver) => {
                self.publish_again(&target, &driver, MAX_COMMAND_DELAY, now);
            }
        }
    }

    /// True for a generation that this engine did not issue and no former engine can have: each term is higher than all
    /// former ones. So no message raises a term.
    pub(crate) fn is_foreign(&self, generation: &Generation) -> bool {
        generation.term > self.term || (generation.term == self.term && generation.sequence > self.sequence)
    }

    /// The messages of a target, with the driver in their subjects, that have to be purged since the last call.
    pub(crate) fn take_purges(&mut self) -> Vec<(Target, Name)> {
        std::mem::take(&mut self.purges)
    }

    /// Has the messages about a target on the subjects of this driver purged. Commands for that driver wait, since a
    /// purge would delete a newer one too.
    pub(crate) fn purge(&mut self, target: Target, driver: Name) {
        self.removing.entry(target.clone()).or_default().push(driver.clone());
        self.purges.push((target, driver));
    }

    pub(super) fn is_removing(&self, target: &Target, driver: &str) -> bool {
        self.removing.get(target).is_some_and(|drivers| drivers.iter().any(|other| **other == *driver))
    }

    /// A report is of a generation that nobody issued.
    pub(crate) fn report_unissued(&mut self, target: Target, driver: &str, generation: Generation) {
        self.distrust(&target, driver, self.now);
        self.unissued.push((target, generation));
    }

    /// Has command and report purged, so that the driver forgets a generation that nobody issued, and has the command
    /// published again.
    fn distrust(&mut self, target: &Target, driver: &str, now: Duration) {
        if self.is_removing(target, driver) {
            return;
        }
        let is_bound = self.is_bound(target);
        let Some(slot) = self.slots.get_mut(target).filter(|slot| slot.is_of(driver)) else {
            // The command to come may have this very generation, and then the driver's report is no other one.
            return self.purge(target.clone(), driver.into());
        };
        // The purge would delete what is being published, or what the driver holds. A decision can be sent again.
        if matches!(slot.state, State::Publishing { .. }) || (is_bound && !self.repeat_decision(target)) {
            self.distrusted.insert((target.clone(), driver.into()));
            return;
        }
        let Some(slot) = self.slots.get_mut(target) else { return };
        slot.seen = 0;
        slot.disturb(now, MAX_REPORT_DELAY);
        if let Some(stored) = &mut slot.stored {
            (stored.generation, stored.sequence) = (None, 0);
        }
        slot.state = State::Idle;
        self.mark_dirty(target.clone(), now);
        self.purge(target.clone(), driver.into());
    }

    /// Has the messages purged that had to wait for a publish or a transaction.
    pub(super) fn purge_distrusted(&mut self, now: Duration) {
        for (target, driver) in std::mem::take(&mut self.distrusted) {
            self.distrust(&target, &driver, now);
        }
    }

    /// NATS stored a message on the subject of a command. Unless it is ours, ours takes its place again.
    pub(super) fn command_stored(&mut self, target: Target, driver: Name, sequence: u64, now: Duration) {
        let bound = self.is_bound(&target);
        let Some(slot) = self.slots.get_mut(&target).filter(|slot| slot.is_of(&driver)) else {
            self.uncommanded.insert((target, driver));
            return;
        };
        slot.seen = slot.seen.max(sequence);
        if !matches!(slot.state, State::Publishing { .. }) && slot.is_overwritten() {
            self.replace_overwritten(&target, bound, now);
        }
    }

    /// Schedules the command again that a message of somebody else replaced. A command of an undecided transaction is left
    /// to the decision.
    fn replace_overwritten(&mut self, target: &Target, bound: bool, now: Duration) {
        let Some(slot) = self.slots.get_mut(target) else { return };
        let seen = slot.seen;
        let Some(stored) = &mut slot.stored else { return };
        stored.sequence = seen;
        if bound {
            if !self.repeat_decision(target) {
                return;
            }
        } else if stored.generation.take().is_none() {
            // A command that waits to be published again is not put off by further messages.
            return;
        } else {
            self.mark_dirty(target.clone(), now);
        }
        let Some(slot) = self.slots.get_mut(target) else { return };
        slot.state = State::Idle;
        slot.disturb(now, MAX_COMMAND_DELAY);
        self.republished.push((target.clone(), Republished::Replaced));
    }

    /// Targets with messages on the subjects of a driver that they have no command for, since the last call: the former
    /// leader died before it removed them, or somebody else wrote them. Such reports may be of this term as well: after
    /// a purge, a NATS server that is killed may restore older messages of the subject. Those that are being purged are
    /// left to a later call.
    pub(crate) fn take_uncommanded(&mut self) -> BTreeSet<(Target, Name)> {
        let (later, mut now): (BTreeSet<_>, BTreeSet<_>) = std::mem::take(&mut self.uncommanded)
            .into_iter()
            .partition(|(target, driver)| self.is_removing(target, driver));
        self.uncommanded = later;
        now.retain(|(target, driver)| self.driver(target) != Some(driver));
        now
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

    /// The last report of this driver on the target is unreadable and may have taken the place of the answer to the last
    /// command, or the driver can't read the command. The command is published again, after `longest` at the latest.
    pub(super) fn publish_again(&mut self, target: &Target, driver: &Name, longest: Duration, now: Duration) {
        let Some(slot) = self.slots.get_mut(target).filter(|slot| slot.is_of(driver)) else {
            self.uncommanded.insert((target.clone(), driver.clone()));
            return;
        };
        let Some(stored) = &mut slot.stored else { return };
        if stored.generation.take().is_none() {
            return;
        }
        slot.disturb(now, longest);
        self.mark_dirty(target.clone(), now);
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
        if slot.is_overwritten() {
            let bound = self.is_bound(target);
            self.replace_overwritten(target, bound, now);
        }
    }

    /// The publish failed, and the target becomes ready again. `found`: the actual last sequence of the subject if the
    /// expected one was wrong; the retry may then follow at once.
    pub(super) fn publish_failed(&mut self, target: &Target, found: Option<u64>, now: Duration) {
        self.publishing = self.publishing.saturating_sub(1);
        if let Some(slot) = self.slots.get_mut(target) {
            slot.state = State::Idle;
            match found {
                Some(_) => slot.disturb(now, MAX_COMMAND_DELAY),
                None => slot.retry_at = Some(now + RETRY_DELAY),
            }
            if let Some(stored) = &mut slot.stored {
                // The subject holds a command of another engine, or this one was stored without an acknowledgement.
                stored.generation = None;
                stored.sequence = found.unwrap_or(stored.sequence);
            }
            slot.seen = found.unwrap_or(slot.seen);
            if !self.decision_publish_failed(target, now) {
                self.dirty.insert(target.clone());
            }
        }
    }

    /// A purge of the target's messages on the subjects of this driver ended or failed.
    pub(super) fn removal_done(&mut self, target: &Target, driver: &Name, now: Duration) {
        if let Entry::Occupied(mut left) = self.removing.entry(target.clone()) {
            if let Some(ended) = left.get().iter().position(|other| other == driver) {
                left.get_mut().swap_remove(ended);
            }
            if left.get().is_empty() {
                left.remove();
            }
        }
        // The target became this driver's during the purge, which may have deleted its command.
        if self.slots.get(target).is_some_and(|slot| slot.is_of(driver) && slot.has_sent()) {
            self.distrust(target, driver, now);
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
            slot.seen = 0;
            if !matches!(slot.state, State::Publishing { .. }) {
                slot.state = State::Idle;
            }
            self.dirty.insert(target.clone());
        }
    }

    /// Compares the commands with the sequences that NATS stores, and schedules lost ones again. A server that is
    /// killed may lose the last message of a subject and the one before it.
    /// Undecided transactions are left to their deadlines.
    pub(super) fn compare_with_stream(&mut self, sequences: &BTreeMap<Target, u64>, now: Duration) {
        let is_undecided = |target: &&Target| self.is_bound(target) && !self.has_sent_decision(target);
        let undecided: BTreeSet<Target> = self.slots.keys().filter(is_undecided).cloned().collect();
        let mut lost = Vec::new();
        for (target, slot) in &mut self.slots {
            // NATS refuses a publish in progress if the last sequence differs, and it is retried.
            let settled = !matches!(slot.state, State::Publishing { .. }) && !undecided.contains(target);
            let found = sequences.get(target).copied().unwrap_or_default();
            let Some(stored) = slot.stored.as_mut().filter(|stored| settled && found < stored.sequence)
            else {
                continue;
            };
            stored.generation = None;
            (stored.sequence, slot.seen) = (found, found);
            // No driver answers a lost command.
            slot.state = State::Idle;
            lost.push(target.clone());
        }
        for target in lost {
            if !self.repeat_decision(&target) {
                self.mark_dirty(target.clone(), now);
            }
            self.republished.push((target, Republished::Lost));
        }
    }
}

impl Slot {
    fn is_of(&self, driver: &str) -> bool {
        self.stored.as_ref().is_some_and(|stored| *stored.driver == *driver)
    }

    /// True if NATS has the command, or is about to store it.
    fn has_sent(&self) -> bool {
        matches!(self.state, State::Publishing { .. })
            || self.stored.as_ref().is_some_and(|stored| stored.sequence > 0)
    }

    /// True if another message came after the command.
    fn is_overwritten(&self) -> bool {
        self.stored.as_ref().is_some_and(|stored| stored.sequence < self.seen)
    }

    /// Somebody else wrote on the subjects of the target. The next command waits, the longer the more often that happens,
    /// and not at the first time.
    fn disturb(&mut self, now: Duration, longest: Duration) {
        let (last, count) = self.disturbed.unwrap_or_default();
        let count = if now.saturating_sub(last) > 2 * longest { 0 } else { count };
        let delay =
            if count == 0 { Duration::ZERO } else { Duration::from_millis(50) * (1 << count.min(12)) };
        self.retry_at = (count > 0).then(|| now + delay.min(longest));
        self.disturbed = Some((now, count.saturating_add(1)));
    }
}
