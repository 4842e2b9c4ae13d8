//! When a target's next command may be published. Pure: time comes in.
//!
//! While a driver works on a generation of a target, changes of the target pile up in its desired state; the next
//! command takes them all. A switch that was told something a moment ago is besides told more only when its changes
//! pause, or have waited long enough: so a flood of small changes becomes few transactions, while a lone change goes
//! at once. Switches that change together wait for each other, and go as one transaction (`transaction`).

mod transaction;

#[cfg(test)]
mod tests;

use std::cmp::Ordering;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, Instant};

use eno_core::{Name, Target, TransactionGroup};
use eno_sbi::FairQueue;
use eno_schemas::{Decision, Generation, Transaction};

use crate::drivers::instance_of;

use transaction::OpenTransaction;
pub use transaction::{DEADLINE, DecidedTransaction, DriverAnswer, Participant};

/// A switch that was told nothing for so long is told at once.
const IDLE_AFTER: Duration = Duration::from_millis(500);
/// Else its changes have to pause for so long: a few of them for a moment,
const DEBOUNCE: Duration = Duration::from_millis(40);
const FEW_CHANGES: u32 = 2;
/// more of them, which others are likely to follow, for longer.
const LONG_DEBOUNCE: Duration = Duration::from_millis(600);
/// No change waits longer than that.
const MAX_DELAY: Duration = Duration::from_millis(900);
/// A driver that is alive and says nothing for so long gets the next command all the same: it looks for a newer
/// generation before it commits.
const DRIVER_TIMEOUT: Duration = Duration::from_secs(15);
/// After a publish that failed.
const RETRY_DELAY: Duration = Duration::from_millis(500);
/// So many publishes wait for NATS at once.
const MAX_PUBLISHING: usize = 256;

/// A command as NATS holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredCommand {
    /// Whose it is.
    pub driver: Name,
    /// The last one.
    pub generation: Option<Generation>,
    /// It is of a transaction that is not confirmed: what it asks for has to be said again.
    pub unconfirmed: bool,
    /// The sequence of the last message on its subject; 0: there is none.
    pub sequence: u64,
}

/// A command that may go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingCommand {
    /// Which word it is.
    pub generation: Generation,
    /// The sequence that the subject must have, so that no other engine's word is replaced.
    pub expected: u64,
    /// The driver that had the target before, if it was another one: its subjects are to be purged.
    pub moved_from: Option<Name>,
    /// The transaction that it opens or decides.
    pub transaction: Option<Transaction>,
}

/// What may be published now, and when to ask again: at once where a target waits only for others that are handed out
/// here, since those may have nothing to publish.
#[derive(Debug, Default)]
pub struct ReadyCommands {
    /// Targets whose turn has come, each by itself.
    pub single: Vec<Target>,
    /// Switches whose turn has come together.
    pub joint: Vec<Vec<Target>>,
    /// Participants that are to be told what was decided.
    pub decisions: Vec<Target>,
    /// When to ask again if nothing else happens before.
    pub next: Option<Instant>,
}

impl ReadyCommands {
    fn check_at(&mut self, at: Instant) {
        self.next = Some(self.next.map_or(at, |next| next.min(at)));
    }
}

/// The targets, and what each waits for.
#[derive(Debug)]
pub struct CommandScheduler {
    term: u64,
    sequence: u64,
    slots: HashMap<Target, Slot>,
    dirty: BTreeSet<Target>,
    /// Their words are being taken off NATS, so many times at once, which would take a later one along.
    removing: BTreeMap<Target, u32>,
    alive: BTreeSet<Name>,
    publishing: usize,
    opened: u64,
    transactions: Vec<OpenTransaction>,
    decided: Vec<DecidedTransaction>,
}

#[derive(Debug, Default)]
struct Slot {
    stored: Option<StoredCommand>,
    state: State,
    /// When the last command was taken.
    last_issued: Option<Instant>,
    /// The changes that no command has taken yet.
    changes: Option<Changes>,
    /// After a failure nothing is tried until then.
    retry_at: Option<Instant>,
    /// It was said again since a report on it could not be read.
    resent_unreadable: bool,
    /// How many transactions in a row were aborted in which it took part, and until when it rests from them.
    aborts: u32,
    backoff_until: Option<Instant>,
}

#[derive(Clone, Copy, Debug)]
struct Changes {
    first: Instant,
    last: Instant,
    count: u32,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Idle,
    /// Given to NATS, which has not confirmed it yet; the driver may be faster with its report.
    Publishing { generation: Generation, reported: bool, unconfirmed: bool },
    /// With the driver.
    Outstanding(Generation, Instant),
}

impl CommandScheduler {
    /// For the engine of this term.
    pub fn new(term: u64) -> Self {
        Self {
            term,
            sequence: 0,
            slots: HashMap::new(),
            dirty: BTreeSet::new(),
            removing: BTreeMap::new(),
            alive: BTreeSet::new(),
            publishing: 0,
            opened: 0,
            transactions: Vec::new(),
            decided: Vec::new(),
        }
    }

    /// A command was found on NATS.
    pub fn load_stored(&mut self, target: Target, stored: StoredCommand) {
        self.slots.entry(target).or_default().stored = Some(stored);
    }

    /// The drivers that are alive.
    pub fn set_alive(&mut self, drivers: BTreeSet<Name>) {
        self.alive = drivers;
    }

    /// What is wanted of the target changed.
    pub fn mark_dirty(&mut self, target: Target, now: Instant) {
        let slot = self.slots.entry(target.clone()).or_default();
        let before = slot.changes.map_or((now, 0), |changes| (changes.first, changes.count));
        slot.changes = Some(Changes { first: before.0, last: now, count: before.1.saturating_add(1) });
        self.dirty.insert(target);
    }

    /// A driver reported on a generation. True when it refuses its part of a transaction that was open.
    pub fn handle_report(
        &mut self,
        target: &Target,
        generation: &Generation,
        answer: DriverAnswer,
        now: Instant,
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

    /// A driver reported on this generation. True when it came after what was said last, or stands in its place (it has
    /// another hash), or what stands there could not be read: the word of a former leader, or what is no command, replaced
    /// the target's command, and what is wanted has to be said again.
    pub fn command_replaced(&mut self, target: &Target, generation: &Generation, now: Instant) -> bool {
        let Some(slot) = self.slots.get_mut(target) else { return false };
        // One that is on its way to NATS is refused there, and tried again.
        let settled = !matches!(slot.state, State::Publishing { .. });
        let from_former_term = generation.term < self.term;
        let Some(stored) = slot.stored.as_mut().filter(|_| settled && generation.term <= self.term) else {
            return false;
        };
        let Some(found) = &stored.generation else { return from_former_term };
        let order = |generation: &Generation| (generation.term, generation.sequence);
        let another = match order(found).cmp(&order(generation)) {
            Ordering::Less => true,
            Ordering::Equal => found.hash != generation.hash,
            Ordering::Greater => false,
        };
        if another {
            stored.generation = None;
            // Who has said this has no other command to answer.
            slot.state = State::Idle;
            self.mark_dirty(target.clone(), now);
        }
        another
    }

    /// The last report of this driver on the target can't be read, and it may be the answer to what was said last. That
    /// is said again, but once: one that never can be read would have no end.
    pub fn report_unreadable(&mut self, target: &Target, driver: &Name, now: Instant) {
        let Some(slot) = self.slots.get_mut(target).filter(|slot| !slot.resent_unreadable) else { return };
        let Some(stored) = slot.stored.as_mut().filter(|stored| stored.driver == *driver) else { return };
        stored.generation = None;
        slot.resent_unreadable = true;
        self.mark_dirty(target.clone(), now);
    }

    /// True unless a generation of this engine's term is above all of its own.
    pub fn has_issued(&self, generation: &Generation) -> bool {
        generation.sequence <= self.sequence
    }

    /// The targets whose turn has come. `groups` tells which of these switches have to change together.
    pub fn ready(
        &mut self,
        now: Instant,
        groups: impl FnOnce(&[Name]) -> Vec<TransactionGroup>,
    ) -> ReadyCommands {
        self.expire(now);
        let mut ready = ReadyCommands::default();
        self.collect_decisions(now, &mut ready);
        let free_publishes = MAX_PUBLISHING.saturating_sub(self.publishing);
        // Switches that may have to wait for others; those whose driver is stuck or away wait for nobody.
        let mut switches: Vec<Name> = Vec::new();
        let mut alone = FairQueue::default();
        let mut any_ready = false;
        for target in &self.dirty {
            let wait = self.wait(target, now);
            if let Target::Fabric(name) = target
                && !self.is_stuck(target, now)
            {
                any_ready |= matches!(wait, Wait::Now);
                switches.push(name.clone());
                continue;
            }
            match wait {
                Wait::Now => alone.push(fairness_key(target), target),
                Wait::Blocked => {}
                Wait::Until(at) => ready.check_at(at),
            }
        }
        // A namespace with many takes no other's turn.
        ready.single.extend(std::iter::from_fn(|| alone.pop()).take(free_publishes).cloned());
        if free_publishes > 0 && !alone.is_empty() {
            ready.check_at(now);
        }
        if any_ready {
            switches.extend(self.transactions.iter().flat_map(OpenTransaction::switches));
            for group in groups(&switches) {
                self.add_group(group, now, &mut ready);
            }
        } else {
            for name in switches {
                if let Wait::Until(at) = self.wait(&Target::Fabric(name), now) {
                    ready.check_at(at);
                }
            }
        }
        ready
    }

    /// A group goes when the turn of all of them has come.
    fn add_group(&self, group: TransactionGroup, now: Instant, ready: &mut ReadyCommands) {
        let targets = |names: Vec<Name>| names.into_iter().map(Target::Fabric).collect::<Vec<_>>();
        let (holding, plain) = (targets(group.holding), targets(group.plain));
        let mut all_may = true;
        for target in holding.iter().chain(&plain) {
            match self.wait(target, now) {
                Wait::Now if self.dirty.contains(target) => {}
                Wait::Until(at) => {
                    all_may = false;
                    ready.check_at(at);
                }
                Wait::Now | Wait::Blocked => all_may = false,
            }
        }
        if !all_may {
            return;
        }
        if holding.len() > 1 {
            ready.joint.push(holding);
            if !plain.is_empty() {
                ready.check_at(now);
            }
        } else {
            ready.single.extend(holding);
            ready.single.extend(plain);
        }
    }

    fn wait(&self, target: &Target, now: Instant) -> Wait {
        if self.is_bound(target) || self.removing.contains_key(target) {
            return Wait::Blocked;
        }
        let Some(slot) = self.slots.get(target) else { return Wait::Now };
        let paced = match (target, slot.last_issued, slot.changes) {
            (Target::Fabric(_), Some(last_issued), Some(changes))
                if changes.first < last_issued + IDLE_AFTER =>
            {
                let pause = if changes.count <= FEW_CHANGES { DEBOUNCE } else { LONG_DEBOUNCE };
                Some((changes.last + pause).min(changes.first + MAX_DELAY)).filter(|at| *at > now)
            }
            _ => None,
        };
        let paced = paced.max(slot.retry_at.max(slot.backoff_until).filter(|at| *at > now));
        let stored = slot.stored.as_ref();
        match &slot.state {
            State::Publishing { .. } => Wait::Blocked,
            State::Outstanding(_, since)
                if stored.is_some_and(|stored| self.is_alive(&stored.driver, target)) =>
            {
                let patience = *since + DRIVER_TIMEOUT;
                if patience > now { Wait::Until(patience) } else { paced.map_or(Wait::Now, Wait::Until) }
            }
            _ => paced.map_or(Wait::Now, Wait::Until),
        }
    }

    /// True when the target has a command that nobody seems to work on.
    fn is_stuck(&self, target: &Target, now: Instant) -> bool {
        let Some(slot) = self.slots.get(target) else { return false };
        let State::Outstanding(_, since) = slot.state else { return false };
        let alive = slot.stored.as_ref().is_some_and(|stored| self.is_alive(&stored.driver, target));
        !self.is_bound(target) && (!alive || since + DRIVER_TIMEOUT <= now)
    }

    /// True when the target's driver is alive and says nothing about its command.
    pub fn is_silent(&self, target: &Target, now: Instant) -> bool {
        let driver = self.driver(target);
        self.is_stuck(target, now) && driver.is_some_and(|driver| self.is_alive(driver, target))
    }

    /// A node is the target of one process only.
    fn is_alive(&self, driver: &Name, target: &Target) -> bool {
        match target {
            Target::Node(node) => self.alive.contains(&instance_of(driver, node)),
            Target::Fabric(_) | Target::Nad(..) => self.alive.contains(driver),
        }
    }

    /// Takes a due target's turn with the state that is wanted now; `None`: that is what NATS holds already.
    pub fn issue_if_changed(
        &mut self,
        target: &Target,
        driver: &Name,
        hash: String,
        now: Instant,
    ) -> Option<PendingCommand> {
        if self.is_commanded(target, driver, &hash) {
            self.skip(target);
            return None;
        }
        Some(self.issue(target, driver, hash, None, now))
    }

    /// True when NATS holds this state, and it counts.
    pub fn is_commanded(&self, target: &Target, driver: &Name, hash: &str) -> bool {
        let stored = self.slots.get(target).and_then(|slot| slot.stored.as_ref());
        stored.is_some_and(|stored| {
            stored.driver == *driver
                && !stored.unconfirmed
                && stored.generation.as_ref().is_some_and(|generation| generation.hash == hash)
        })
    }

    /// The target's turn passes without a word.
    fn skip(&mut self, target: &Target) {
        self.dirty.remove(target);
        self.slots.entry(target.clone()).or_default().changes = None;
    }

    /// Gives the target its next word.
    fn issue(
        &mut self,
        target: &Target,
        driver: &Name,
        hash: String,
        transaction: Option<Transaction>,
        now: Instant,
    ) -> PendingCommand {
        self.sequence += 1;
        let generation = Generation { term: self.term, sequence: self.sequence, hash };
        let slot = self.slots.entry(target.clone()).or_default();
        if transaction.as_ref().is_none_or(|transaction| transaction.decision.is_none()) {
            self.dirty.remove(target);
            slot.changes = None;
        }
        let stored = slot.stored.take();
        let moved_from =
            stored.as_ref().filter(|stored| stored.driver != *driver).map(|stored| stored.driver.clone());
        let stored = stored.filter(|stored| stored.driver == *driver);
        let expected = stored.as_ref().map_or(0, |stored| stored.sequence);
        let unconfirmed =
            transaction.as_ref().is_some_and(|transaction| transaction.decision != Some(Decision::Confirm));
        slot.state = State::Publishing { generation: generation.clone(), reported: false, unconfirmed };
        slot.stored = Some(StoredCommand {
            driver: driver.clone(),
            // Until NATS has it, the one before is there.
            unconfirmed: stored.as_ref().is_some_and(|stored| stored.unconfirmed),
            generation: stored.and_then(|stored| stored.generation),
            sequence: expected,
        });
        slot.last_issued = Some(now);
        self.publishing += 1;
        PendingCommand { generation, expected, moved_from, transaction }
    }

    /// There is no such target any more.
    pub fn discard_change(&mut self, target: &Target) {
        self.dirty.remove(target);
    }

    /// NATS holds the generation that was taken, at this sequence of its stream.
    pub fn confirm_published(
        &mut self,
        target: &Target,
        generation: &Generation,
        sequence: u64,
        now: Instant,
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

    /// The publish failed: the target waits for its turn again. `found`: the sequence that its subject has, where that
    /// was what was wrong; then the next try may follow at once.
    pub fn publish_failed(&mut self, target: &Target, found: Option<u64>, now: Instant) {
        self.publishing = self.publishing.saturating_sub(1);
        if let Some(slot) = self.slots.get_mut(target) {
            slot.state = State::Idle;
            slot.retry_at = found.is_none().then_some(now + RETRY_DELAY);
            if let Some(stored) = &mut slot.stored {
                // Another one's word is there, or this one, taken without an answer.
                stored.generation = None;
                stored.sequence = found.unwrap_or(stored.sequence);
            }
            if !self.decision_publish_failed(target, now) {
                self.dirty.insert(target.clone());
            }
        }
    }

    /// The target is gone; its driver's name, when a command of it is on NATS: then its words are to be taken off there.
    pub fn remove_target(&mut self, target: &Target, now: Instant) -> Option<Name> {
        self.remove_participant(target, now);
        self.dirty.remove(target);
        let driver = self.slots.remove(target)?.stored?.driver;
        *self.removing.entry(target.clone()).or_default() += 1;
        Some(driver)
    }

    /// Somebody has words on NATS about a target; true: no command of it is known, and they are to be taken off there.
    pub fn remove_unknown(&mut self, target: &Target) -> bool {
        let unknown = self.driver(target).is_none();
        if unknown {
            *self.removing.entry(target.clone()).or_default() += 1;
        }
        unknown
    }

    /// The target's words are off NATS, or that failed.
    pub fn removal_done(&mut self, target: &Target) {
        if let Entry::Occupied(mut left) = self.removing.entry(target.clone()) {
            *left.get_mut() -= 1;
            if *left.get() == 0 {
                left.remove();
            }
        }
    }

    /// NATS lost its streams: every target is to be published again.
    pub fn streams_lost(&mut self) {
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

    /// NATS holds these commands, by their sequences: what it had and lost is to be published again. A server that is
    /// killed may lose the last message of a subject, and the one before it. How many there are. Of a transaction its
    /// deadlines decide.
    pub fn compare_with_stream(&mut self, sequences: &BTreeMap<Target, u64>, now: Instant) -> usize {
        let bound: BTreeSet<Target> =
            self.slots.keys().filter(|target| self.is_bound(target)).cloned().collect();
        let mut lost = Vec::new();
        for (target, slot) in &mut self.slots {
            // One that is on its way is refused where something else stands than was there, and tried again.
            let settled = !matches!(slot.state, State::Publishing { .. }) && !bound.contains(target);
            let found = sequences.get(target).copied().unwrap_or_default();
            let Some(stored) = slot.stored.as_mut().filter(|stored| settled && found < stored.sequence)
            else {
                continue;
            };
            stored.generation = None;
            stored.sequence = found;
            // Nobody answers it.
            slot.state = State::Idle;
            lost.push(target.clone());
        }
        let count = lost.len();
        for target in lost {
            self.mark_dirty(target, now);
        }
        count
    }

    /// The driver whose subject holds the target's command.
    pub fn driver(&self, target: &Target) -> Option<&Name> {
        self.slots.get(target)?.stored.as_ref().map(|stored| &stored.driver)
    }

    /// How many targets have a change that was not published yet, and how many wait for their driver.
    pub fn counts(&self) -> (usize, usize) {
        let outstanding = self.slots.values().filter(|slot| slot.state != State::Idle).count();
        (self.dirty.len(), outstanding)
    }
}

enum Wait {
    Now,
    Until(Instant),
    /// Until NATS has confirmed the one before, or has forgotten the target, or a transaction is decided.
    Blocked,
}

/// Whom a target's turn is counted for: its namespace, and all that are in none together.
fn fairness_key(target: &Target) -> &str {
    match target {
        Target::Nad(namespace, _) => namespace,
        Target::Fabric(_) | Target::Node(_) => "",
    }
}
