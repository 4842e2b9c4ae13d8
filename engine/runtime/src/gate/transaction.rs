//! Changes of several switches that are confirmed on all or taken back on all.
//!
//! A transaction is *open* until it is decided: confirmed when all of its participants hold their change and none
//! refused anything new, else aborted. Then each is told; a participant is bound by it until it has done as decided.

use std::time::{Duration, Instant};

use eno_core::{Name, Target};
use eno_schemas::{Decision, Desired, Generation, Transaction};

use super::{Due, Gate, State, Turn};

/// It is decided after so long at the latest.
pub const DEADLINE: Duration = Duration::from_secs(30);
/// After an abort a switch goes on at once, with what is wanted then. When that is aborted too, and again, it rests for so
/// long, and each time twice as long as before,
const REST: Duration = Duration::from_millis(250);
const AT_ONCE: u32 = 2;
/// but no longer than this.
const LONGEST_REST: Duration = Duration::from_secs(30);

/// A switch that takes part, with the state that is wanted of it.
#[derive(Clone, Debug)]
pub struct Participant {
    /// The switch.
    pub target: Target,
    /// Its driver.
    pub driver: Name,
    /// What is to be there.
    pub desired: Desired,
    /// The state's hash.
    pub hash: String,
}

/// What a driver said of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is done with it.
    Applied,
    /// Its change can still be taken back.
    Held {
        /// It left out something that was to change.
        refused: bool,
    },
    /// It took its change back.
    RolledBack,
    /// It could do nothing,
    Failed,
    /// and will try again by itself.
    Waits,
}

impl Answer {
    /// The driver does nothing more about the command.
    pub fn is_final(self) -> bool {
        !matches!(self, Self::Held { .. })
    }
}

/// A transaction that was decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Its name.
    pub id: String,
    /// In one word: `confirmed`, `refused`, `failed`, `late`.
    pub outcome: &'static str,
    /// From its opening to the decision.
    pub took: Duration,
    /// How many took part.
    pub participants: usize,
    /// Those that had not answered at the deadline, or took their change back before it.
    pub late: Vec<Target>,
}

#[derive(Debug)]
pub(super) struct Open {
    transaction: Transaction,
    opened: Instant,
    parts: Vec<Part>,
}

#[derive(Debug)]
struct Part {
    who: Participant,
    /// Its last word.
    generation: Generation,
    stage: Stage,
    /// A former leader left it open: until it is taken back it is not known what is there.
    found: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// It makes its change.
    Working,
    /// It holds its change.
    Holding { refused: bool },
    /// It has not been told yet what was decided.
    Untold,
    /// It does as decided.
    Told,
    /// It no longer has to do with it.
    Over,
}

impl Open {
    /// Its switches that are still bound by it.
    pub fn switches(&self) -> impl Iterator<Item = Name> {
        self.parts.iter().filter(|part| part.stage != Stage::Over).filter_map(|part| match &part.who.target {
            Target::Fabric(name) => Some(name.clone()),
            Target::Nad(..) | Target::Node(_) => None,
        })
    }

    #[cfg(test)]
    pub fn found(&self) -> (Participant, Generation) {
        (self.parts[0].who.clone(), self.parts[0].generation.clone())
    }

    #[cfg(test)]
    pub fn transaction(&self) -> &Transaction {
        &self.transaction
    }

    fn part(&mut self, target: &Target) -> Option<&mut Part> {
        self.parts.iter_mut().find(|part| part.who.target == *target && part.stage != Stage::Over)
    }

    fn is_decided(&self) -> bool {
        self.transaction.decision.is_some()
    }
}

impl Gate {
    /// Opens a transaction of these switches; `deadline`: [`DEADLINE`] from now, RFC 3339.
    pub fn open(
        &mut self,
        all: Vec<Participant>,
        deadline: String,
        now: Instant,
    ) -> Vec<(Participant, Turn)> {
        self.opened += 1;
        let transaction = Transaction {
            id: format!("{}-{}", self.term, self.opened),
            participants: all.iter().map(|who| who.target.to_string()).collect(),
            deadline,
            decision: None,
        };
        let mut parts = Vec::with_capacity(all.len());
        let mut turns = Vec::with_capacity(all.len());
        for who in all {
            let turn = self.issue(&who.target, &who.driver, who.hash.clone(), Some(transaction.clone()), now);
            parts.push(Part {
                who: who.clone(),
                generation: turn.generation.clone(),
                stage: Stage::Working,
                found: false,
            });
            turns.push((who, turn));
        }
        self.transactions.push(Open { transaction, opened: now, parts });
        turns
    }

    /// A former leader left this transaction open, or told only some of its participants what was decided: this one is
    /// told first, so that it is known what is there before anything else is asked for.
    pub fn decide_found(
        &mut self,
        who: Participant,
        generation: Generation,
        transaction: Transaction,
        now: Instant,
    ) {
        let found = transaction.decision == Some(Decision::Abort);
        let part = Part { who, generation, stage: Stage::Untold, found };
        self.transactions.push(Open { transaction, opened: now, parts: vec![part] });
    }

    /// Lets go the participants that were found and of which `stays` is no longer true: nobody would answer.
    pub fn release(&mut self, stays: impl Fn(&Participant) -> bool) {
        for part in self.transactions.iter_mut().flat_map(|open| &mut open.parts) {
            if part.found && part.stage != Stage::Over && !stays(&part.who) {
                part.stage = Stage::Over;
            }
        }
        self.clear();
    }

    /// Takes a participant's turn to be told what was decided.
    pub fn decision(&mut self, target: &Target, now: Instant) -> Option<(Participant, Turn)> {
        let open = self.transactions.iter_mut().filter(|open| open.is_decided());
        let (transaction, part) = open
            .map(|open| (open.transaction.clone(), open.part(target)))
            .find_map(|(t, part)| Some((t, part?)))?;
        part.stage = Stage::Told;
        let who = part.who.clone();
        let turn = self.issue(target, &who.driver, who.hash.clone(), Some(transaction), now);
        if let Some(part) = self.transactions.iter_mut().find_map(|open| open.part(target)) {
            part.generation = turn.generation.clone();
        }
        Some((who, turn))
    }

    /// The transactions that were decided since this was last asked.
    pub fn ended(&mut self) -> Vec<Ended> {
        std::mem::take(&mut self.ended)
    }

    /// The transaction that binds a target.
    pub fn transaction(&self, target: &Target) -> Option<&str> {
        let bound = |open: &&Open| {
            open.parts.iter().any(|part| part.who.target == *target && part.stage != Stage::Over)
        };
        self.transactions.iter().find(bound).map(|open| open.transaction.id.as_str())
    }

    /// True while a transaction has the say about a target.
    pub(super) fn is_bound(&self, target: &Target) -> bool {
        self.transaction(target).is_some()
    }

    /// What has to be told of decisions, and the time at which those that are open end.
    pub(super) fn decisions(&self, now: Instant, due: &mut Due) {
        for open in &self.transactions {
            if !open.is_decided() {
                due.again(open.opened + DEADLINE);
            }
            for part in &open.parts {
                let Some(slot) = self.slots.get(&part.who.target) else { continue };
                match (part.stage, &slot.state) {
                    (Stage::Untold, State::Idle | State::Outstanding(..)) => {
                        match slot.retry.filter(|at| *at > now) {
                            Some(at) => due.again(at),
                            None => due.decided.push(part.who.target.clone()),
                        }
                    }
                    (Stage::Told, State::Outstanding(_, since)) if !part.found => {
                        due.again(*since + super::PATIENCE);
                    }
                    _ => {}
                }
            }
        }
    }

    /// Decides what is overdue, and lets go who does not do as decided.
    pub(super) fn expire(&mut self, now: Instant) {
        let overdue = |open: &Open| !open.is_decided() && open.opened + DEADLINE <= now;
        while let Some(index) = self.transactions.iter().position(overdue) {
            let parts = self.transactions[index].parts.iter();
            let late = parts.filter(|part| part.stage == Stage::Working).map(|part| part.who.target.clone());
            let late = late.collect();
            self.decide(index, Decision::Abort, "late", late, now);
        }
        let silent = |slots: &std::collections::HashMap<Target, super::Slot>, part: &Part| {
            let state = slots.get(&part.who.target).map(|slot| &slot.state);
            match state {
                Some(State::Outstanding(_, since)) => *since + super::PATIENCE <= now,
                Some(_) => false,
                None => true,
            }
        };
        for open in &mut self.transactions {
            for part in &mut open.parts {
                if part.stage == Stage::Told && !part.found && silent(&self.slots, part) {
                    part.stage = Stage::Over;
                }
            }
        }
        self.clear();
    }

    /// A driver said something; it may be the last that was waited for. True when it refuses its part of a transaction
    /// that was open.
    pub(super) fn answered(
        &mut self,
        target: &Target,
        generation: &Generation,
        answer: Answer,
        now: Instant,
    ) -> bool {
        let Some(index) = self.transactions.iter_mut().position(|open| open.part(target).is_some()) else {
            return false;
        };
        let open = &mut self.transactions[index];
        let decided = open.is_decided();
        let Some(part) = open.part(target).filter(|part| part.generation <= *generation) else {
            return false;
        };
        if decided {
            let waits = part.found && answer == Answer::Waits;
            if part.stage == Stage::Told && answer.is_final() && !waits {
                part.stage = Stage::Over;
                self.clear();
            }
            return false;
        }
        match answer {
            Answer::Held { refused } => part.stage = Stage::Holding { refused },
            // It had nothing to take back.
            Answer::Applied => part.stage = Stage::Holding { refused: false },
            Answer::Failed | Answer::Waits => {
                part.stage = Stage::Over;
                self.dirty.insert(target.clone());
                self.decide(index, Decision::Abort, "failed", Vec::new(), now);
                return false;
            }
            Answer::RolledBack => {
                self.decide(index, Decision::Abort, "late", vec![target.clone()], now);
                return false;
            }
        }
        let refuses = answer == Answer::Held { refused: true };
        let stages = open.parts.iter().map(|part| part.stage);
        if stages.clone().any(|stage| stage == Stage::Working) {
            return refuses;
        }
        if stages.clone().any(|stage| stage == Stage::Holding { refused: true }) {
            self.decide(index, Decision::Abort, "refused", Vec::new(), now);
        } else {
            self.decide(index, Decision::Confirm, "confirmed", Vec::new(), now);
        }
        refuses
    }

    /// `late`: those that are to blame for the time that was lost.
    fn decide(
        &mut self,
        index: usize,
        decision: Decision,
        outcome: &'static str,
        late: Vec<Target>,
        now: Instant,
    ) {
        let open = &mut self.transactions[index];
        open.transaction.decision = Some(decision);
        for part in open.parts.iter_mut().filter(|part| part.stage != Stage::Over) {
            let target = &part.who.target;
            if let Some(slot) = self.slots.get_mut(target) {
                slot.aborts = if decision == Decision::Abort { slot.aborts.saturating_add(1) } else { 0 };
                let twice = slot.aborts.checked_sub(AT_ONCE + 1).map(|times| 2_u32.saturating_pow(times));
                slot.rest = twice.map(|times| now + REST.saturating_mul(times).min(LONGEST_REST));
            }
            part.stage = if late.contains(target) { Stage::Over } else { Stage::Untold };
            if decision == Decision::Abort {
                // It goes again at once, with what is wanted then.
                self.dirty.insert(target.clone());
            }
        }
        let (id, participants) = (open.transaction.id.clone(), open.parts.len());
        let took = now.saturating_duration_since(open.opened);
        self.ended.push(Ended { id, outcome, took, participants, late });
        self.clear();
    }

    /// A target is gone: nobody waits for it any more.
    pub(super) fn leave(&mut self, target: &Target, now: Instant) {
        let Some(index) = self.transactions.iter_mut().position(|open| open.part(target).is_some()) else {
            return;
        };
        let open = &mut self.transactions[index];
        open.part(target).into_iter().for_each(|part| part.stage = Stage::Over);
        if open.is_decided() {
            self.clear();
        } else {
            self.decide(index, Decision::Abort, "failed", Vec::new(), now);
        }
    }

    /// A publish failed. True when it was of a decision, which is tried again; of a command that was to open a
    /// transaction, the others are not kept waiting.
    pub(super) fn failed_to_decide(&mut self, target: &Target, now: Instant) -> bool {
        let Some(index) = self.transactions.iter_mut().position(|open| open.part(target).is_some()) else {
            return false;
        };
        let open = &mut self.transactions[index];
        let decided = open.is_decided();
        let Some(part) = open.part(target) else { return false };
        if part.stage == Stage::Told {
            part.stage = Stage::Untold;
            return true;
        }
        part.stage = Stage::Over;
        if decided {
            self.clear();
        } else {
            self.decide(index, Decision::Abort, "failed", Vec::new(), now);
        }
        false
    }

    fn clear(&mut self) {
        self.transactions.retain(|open| open.parts.iter().any(|part| part.stage != Stage::Over));
    }
}
