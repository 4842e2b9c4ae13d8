//! Transactions over several switches: all participants confirm their change, or all roll it back.
//!
//! A transaction is *open* until it is decided. It is confirmed when all participants hold their change and none
//! refused anything new; otherwise it is aborted. Each participant then gets the decision, and is bound to the
//! transaction until it has carried the decision out.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use eno_queue::Backoff;
use eno_schemas::{Decision, Desired, Generation, Transaction, Tree};

use crate::{Name, Target};

use super::{PendingCommand, ReadyCommands, Schedule, State};

/// Maximum time from the opening of a transaction to its decision.
pub const DEADLINE: Duration = Duration::from_secs(30);
/// A switch retries an aborted transaction at once, this many times, and then with delays.
const IMMEDIATE_RETRIES: u32 = 2;

/// A switch that takes part in a transaction, with its desired state.
#[derive(Clone, Debug)]
pub struct Participant {
    /// The switch.
    pub target: Target,
    /// Its driver.
    pub driver: Name,
    /// Its desired state.
    pub desired: Arc<Desired>,
    /// The hashes of its parts; see [`PendingCommand::tree`].
    pub tree: Option<Arc<Tree>>,
    /// Hash of the desired state.
    pub hash: String,
}

/// The outcome that a driver reported for a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriverAnswer {
    /// The command is carried out.
    Applied,
    /// The change is made and can still be rolled back.
    Held {
        /// The driver left out a part of the change.
        refused: bool,
    },
    /// The change was rolled back.
    RolledBack,
    /// The driver failed,
    Failed,
    /// or failed and retries on its own.
    WillRetry,
}

impl DriverAnswer {
    /// True when the driver does nothing more about the command.
    pub fn is_final(self) -> bool {
        !matches!(self, Self::Held { .. })
    }
}

/// A transaction that was decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecidedTransaction {
    /// Its identifier, `<term>-<number>`.
    pub id: String,
    /// `confirmed`, `refused`, `failed` or `late`.
    pub outcome: &'static str,
    /// Time from the opening to the decision.
    pub took: Duration,
    /// Number of participants.
    pub participants: usize,
    /// Participants without an answer at the deadline, and those that rolled back before it.
    pub late: Vec<Target>,
}

#[derive(Debug)]
pub(super) struct OpenTransaction {
    transaction: Transaction,
    opened: Duration,
    /// By target; each is the target of its participant.
    participants: BTreeMap<Target, ParticipantState>,
}

#[derive(Debug)]
struct ParticipantState {
    participant: Participant,
    /// Generation of its last command.
    generation: Generation,
    stage: Stage,
    /// A former leader left the transaction open: the state of the switch is unknown until it rolled back.
    inherited: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The driver makes the change.
    Working,
    /// The driver holds the change.
    Holding { refused: bool },
    /// The decision is made and not yet sent to the driver.
    DecisionPending,
    /// The decision is sent, and the driver carries it out.
    DecisionSent,
    /// The participant is no longer bound to the transaction.
    Released,
}

impl OpenTransaction {
    /// The switches that are still bound to the transaction.
    pub fn switches(&self) -> impl Iterator<Item = Name> {
        let bound = self.participants.iter().filter(|(_, part)| part.stage != Stage::Released);
        bound.filter_map(|(target, _)| match target {
            Target::Fabric(name) => Some(name.clone()),
            Target::Nad(..) | Target::Node(_) | Target::Speaker(_) => None,
        })
    }

    #[cfg(test)]
    pub fn first_participant(&self) -> (Participant, Generation) {
        let first = self.participants.values().next().expect("a participant");
        (first.participant.clone(), first.generation.clone())
    }

    #[cfg(test)]
    pub fn transaction(&self) -> &Transaction {
        &self.transaction
    }

    fn part(&mut self, target: &Target) -> Option<&mut ParticipantState> {
        self.participants.get_mut(target).filter(|part| part.stage != Stage::Released)
    }

    fn binds(&self, target: &Target) -> bool {
        self.participants.get(target).is_some_and(|part| part.stage != Stage::Released)
    }

    fn stages(&self) -> impl Iterator<Item = Stage> {
        self.participants.values().map(|part| part.stage)
    }

    fn is_decided(&self) -> bool {
        self.transaction.decision.is_some()
    }
}

impl Schedule {
    /// Opens a transaction of these switches; `deadline`: [`DEADLINE`] from now, RFC 3339.
    pub fn open_transaction(
        &mut self,
        all: Vec<Participant>,
        deadline: String,
        now: Duration,
    ) -> Vec<(Participant, PendingCommand)> {
        self.opened += 1;
        let transaction = Transaction {
            id: format!("{}-{}", self.term, self.opened),
            participants: all.iter().map(|participant| participant.target.to_string()).collect(),
            deadline,
            decide_within_ms: None,
            decision: None,
        };
        let mut participants = BTreeMap::new();
        let mut commands = Vec::with_capacity(all.len());
        for participant in all {
            let command = self.issue(
                &participant.target,
                &participant.driver,
                participant.hash.clone(),
                Some(transaction.clone()),
                now,
            );
            let part = ParticipantState {
                participant: participant.clone(),
                generation: command.generation.clone(),
                stage: Stage::Working,
                inherited: false,
            };
            participants.insert(participant.target.clone(), part);
            commands.push((participant, command));
        }
        self.transactions.push(OpenTransaction { transaction, opened: now, participants });
        commands
    }

    /// Decides a transaction that a former leader left open, or whose decision reached only some participants. The
    /// decision is sent before any new command, so that the state of the switch is known.
    pub fn decide_inherited(
        &mut self,
        participant: Participant,
        generation: Generation,
        transaction: Transaction,
        now: Duration,
    ) {
        let inherited = transaction.decision == Some(Decision::Abort);
        let target = participant.target.clone();
        let part = ParticipantState { participant, generation, stage: Stage::DecisionPending, inherited };
        let participants = BTreeMap::from([(target, part)]);
        self.transactions.push(OpenTransaction { transaction, opened: now, participants });
    }

    /// Releases inherited participants for which `stays` is false: their driver or address changed, so nobody would
    /// answer.
    pub fn release_inherited(&mut self, stays: impl Fn(&Participant) -> bool) {
        for part in self.transactions.iter_mut().flat_map(|open| open.participants.values_mut()) {
            if part.inherited && part.stage != Stage::Released && !stays(&part.participant) {
                part.stage = Stage::Released;
            }
        }
        self.drop_finished();
    }

    /// Issues the command that carries the decision to a participant.
    pub fn issue_decision(
        &mut self,
        target: &Target,
        now: Duration,
    ) -> Option<(Participant, PendingCommand)> {
        let open = self.transactions.iter_mut().filter(|open| open.is_decided());
        let (transaction, part) = open
            .map(|open| (open.transaction.clone(), open.part(target)))
            .find_map(|(t, part)| Some((t, part?)))?;
        part.stage = Stage::DecisionSent;
        let participant = part.participant.clone();
        let command =
            self.issue(target, &participant.driver, participant.hash.clone(), Some(transaction), now);
        if let Some(part) = self.transactions.iter_mut().find_map(|open| open.part(target)) {
            part.generation = command.generation.clone();
        }
        Some((participant, command))
    }

    /// Returns the transactions that were decided since the last call.
    pub fn take_decided(&mut self) -> Vec<DecidedTransaction> {
        std::mem::take(&mut self.decided)
    }

    /// The transaction that binds a target.
    pub fn transaction(&self, target: &Target) -> Option<&str> {
        let binding = self.transactions.iter().find(|open| open.binds(target));
        binding.map(|open| open.transaction.id.as_str())
    }

    /// True while a transaction binds the target.
    pub(super) fn is_bound(&self, target: &Target) -> bool {
        self.transaction(target).is_some()
    }

    /// Adds the participants that need a decision, and the deadlines of open transactions.
    pub(super) fn collect_decisions(&self, now: Duration, ready: &mut ReadyCommands) {
        for open in &self.transactions {
            if !open.is_decided() {
                ready.check_at(open.opened + DEADLINE);
            }
            for part in open.participants.values() {
                let Some(slot) = self.slots.get(&part.participant.target) else { continue };
                match (part.stage, &slot.state) {
                    // The end of the purge is an event.
                    (Stage::DecisionPending, _)
                        if self.is_removing(&part.participant.target, &part.participant.driver) => {}
                    (Stage::DecisionPending, State::Idle | State::Outstanding(..)) => {
                        match slot.retry_at.filter(|at| *at > now) {
                            Some(at) => ready.check_at(at),
                            None => ready.decisions.push(part.participant.target.clone()),
                        }
                    }
                    (Stage::DecisionSent, State::Outstanding(_, since)) if !part.inherited => {
                        ready.check_at(*since + super::DRIVER_TIMEOUT);
                    }
                    _ => {}
                }
            }
        }
    }

    /// Aborts overdue transactions, and releases participants that do not carry out their decision in time.
    pub(super) fn expire(&mut self, now: Duration) {
        let overdue = |open: &OpenTransaction| !open.is_decided() && open.opened + DEADLINE <= now;
        while let Some(index) = self.transactions.iter().position(overdue) {
            let participants = self.transactions[index].participants.values();
            let late = participants
                .filter(|part| part.stage == Stage::Working)
                .map(|part| part.participant.target.clone());
            let late = late.collect();
            self.decide(index, Decision::Abort, "late", late, now);
        }
        let timed_out = |slots: &std::collections::HashMap<Target, super::Slot>, part: &ParticipantState| {
            let state = slots.get(&part.participant.target).map(|slot| &slot.state);
            match state {
                Some(State::Outstanding(_, since)) => *since + super::DRIVER_TIMEOUT <= now,
                Some(_) => false,
                None => true,
            }
        };
        for open in &mut self.transactions {
            for part in open.participants.values_mut() {
                if part.stage == Stage::DecisionSent && !part.inherited && timed_out(&self.slots, part) {
                    part.stage = Stage::Released;
                }
            }
        }
        self.drop_finished();
    }

    /// Handles the answer of a driver, which may complete the decision. True: it refuses its part of an open
    /// transaction.
    pub(super) fn handle_answer(
        &mut self,
        target: &Target,
        generation: &Generation,
        answer: DriverAnswer,
        now: Duration,
    ) -> bool {
        let Some(index) = self.transactions.iter().position(|open| open.binds(target)) else {
            return false;
        };
        let open = &mut self.transactions[index];
        let decided = open.is_decided();
        let Some(part) = open.part(target).filter(|part| part.generation <= *generation) else {
            return false;
        };
        if decided {
            let waits = part.inherited && answer == DriverAnswer::WillRetry;
            if part.stage == Stage::DecisionSent && answer.is_final() && !waits {
                part.stage = Stage::Released;
                self.drop_finished();
            }
            return false;
        }
        match answer {
            DriverAnswer::Held { refused } => part.stage = Stage::Holding { refused },
            // The driver had nothing to change.
            DriverAnswer::Applied => part.stage = Stage::Holding { refused: false },
            DriverAnswer::Failed | DriverAnswer::WillRetry => {
                part.stage = Stage::Released;
                self.dirty.insert(target.clone());
                self.decide(index, Decision::Abort, "failed", Vec::new(), now);
                return false;
            }
            DriverAnswer::RolledBack => {
                self.decide(index, Decision::Abort, "late", vec![target.clone()], now);
                return false;
            }
        }
        let refuses = answer == DriverAnswer::Held { refused: true };
        if open.stages().any(|stage| stage == Stage::Working) {
            return refuses;
        }
        if open.stages().any(|stage| stage == (Stage::Holding { refused: true })) {
            self.decide(index, Decision::Abort, "refused", Vec::new(), now);
        } else {
            self.decide(index, Decision::Confirm, "confirmed", Vec::new(), now);
        }
        refuses
    }

    /// `late`: the participants that caused the delay.
    fn decide(
        &mut self,
        index: usize,
        decision: Decision,
        outcome: &'static str,
        late: Vec<Target>,
        now: Duration,
    ) {
        let open = &mut self.transactions[index];
        open.transaction.decision = Some(decision);
        for part in open.participants.values_mut().filter(|part| part.stage != Stage::Released) {
            let target = &part.participant.target;
            if let Some(slot) = self.slots.get_mut(target) {
                slot.aborts = if decision == Decision::Abort { slot.aborts.saturating_add(1) } else { 0 };
                let delayed = slot.aborts.checked_sub(IMMEDIATE_RETRIES).filter(|delayed| *delayed > 0);
                slot.backoff_until =
                    delayed.map(|retries| now + Backoff::ABORTED_TRANSACTION.delay(retries, 0.0));
            }
            part.stage = if late.contains(target) { Stage::Released } else { Stage::DecisionPending };
            if decision == Decision::Abort {
                // The target is commanded again at once, with its current desired state.
                self.dirty.insert(target.clone());
            }
        }
        let (id, participants) = (open.transaction.id.clone(), open.participants.len());
        let took = now.saturating_sub(open.opened);
        self.decided.push(DecidedTransaction { id, outcome, took, participants, late });
        self.drop_finished();
    }

    /// The target is gone and no longer waited for.
    pub(super) fn remove_participant(&mut self, target: &Target, now: Duration) {
        let Some(index) = self.transactions.iter().position(|open| open.binds(target)) else {
            return;
        };
        let open = &mut self.transactions[index];
        open.part(target).into_iter().for_each(|part| part.stage = Stage::Released);
        if open.is_decided() {
            self.drop_finished();
        } else {
            self.decide(index, Decision::Abort, "failed", Vec::new(), now);
        }
    }

    /// A publish failed. True: it carried a decision and is retried. If it was to open a transaction, that is aborted,
    /// so that the other participants do not wait.
    pub(super) fn decision_publish_failed(&mut self, target: &Target, now: Duration) -> bool {
        if self.repeat_decision(target) {
            return true;
        }
        let Some(index) = self.transactions.iter().position(|open| open.binds(target)) else {
            return false;
        };
        let open = &mut self.transactions[index];
        let decided = open.is_decided();
        let Some(part) = open.part(target) else { return false };
        part.stage = Stage::Released;
        if decided {
            self.drop_finished();
        } else {
            self.decide(index, Decision::Abort, "failed", Vec::new(), now);
        }
        false
    }

    /// True if a participant was sent its decision and has not carried it out.
    pub(super) fn has_sent_decision(&self, target: &Target) -> bool {
        let mut parts = self.transactions.iter().filter_map(|open| open.participants.get(target));
        parts.any(|part| part.stage == Stage::DecisionSent)
    }

    /// NATS does not have the decision that a participant was sent: it is sent again. False: none was sent.
    pub(super) fn repeat_decision(&mut self, target: &Target) -> bool {
        let sent = |part: &&mut ParticipantState| part.stage == Stage::DecisionSent;
        let part = self.transactions.iter_mut().find_map(|open| open.part(target).filter(sent));
        part.map(|part| part.stage = Stage::DecisionPending).is_some()
    }

    fn drop_finished(&mut self) {
        self.transactions.retain(|open| open.stages().any(|stage| stage != Stage::Released));
    }
}
