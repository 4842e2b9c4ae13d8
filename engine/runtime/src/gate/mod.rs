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

use transaction::Open;
pub use transaction::{Answer, DEADLINE, Ended, Participant};

/// A switch that was told nothing for so long is told at once.
const REST: Duration = Duration::from_millis(500);
/// Else its changes have to pause for so long: a few of them for a moment,
const PAUSE: Duration = Duration::from_millis(40);
const FEW: u32 = 2;
/// more of them, which others are likely to follow, for longer.
const LONG_PAUSE: Duration = Duration::from_millis(600);
/// No change waits longer than that.
const LIMIT: Duration = Duration::from_millis(900);
/// A driver that is alive and says nothing for so long gets the next command all the same: it looks for a newer
/// generation before it commits.
const PATIENCE: Duration = Duration::from_secs(15);
/// After a publish that failed.
const RETRY: Duration = Duration::from_millis(500);
/// So many publishes wait for NATS at once.
const PUBLISHING: usize = 256;

/// A command as NATS holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
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
pub struct Turn {
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
pub struct Due {
    /// Targets whose turn has come, each by itself.
    pub alone: Vec<Target>,
    /// Switches whose turn has come together.
    pub together: Vec<Vec<Target>>,
    /// Participants that are to be told what was decided.
    pub decided: Vec<Target>,
    /// When to ask again if nothing else happens before.
    pub next: Option<Instant>,
}

impl Due {
    fn again(&mut self, at: Instant) {
        self.next = Some(self.next.map_or(at, |next| next.min(at)));
    }
}

/// The targets, and what each waits for.
#[derive(Debug)]
pub struct Gate {
    term: u64,
    sequence: u64,
    slots: HashMap<Target, Slot>,
    dirty: BTreeSet<Target>,
    /// Their words are being taken off NATS, so many times at once, which would take a later one along.
    forgetting: BTreeMap<Target, u32>,
    alive: BTreeSet<Name>,
    publishing: usize,
    opened: u64,
    transactions: Vec<Open>,
    ended: Vec<Ended>,
}

#[derive(Debug, Default)]
struct Slot {
    held: Option<Held>,
    state: State,
    /// When the last command was taken.
    told: Option<Instant>,
    /// The changes that no command has taken yet.
    changes: Option<Changes>,
    /// After a failure nothing is tried until then.
    retry: Option<Instant>,
    /// It was said again since a report on it could not be read.
    unread: bool,
    /// How many transactions in a row were aborted in which it took part, and until when it rests from them.
    aborts: u32,
    rest: Option<Instant>,
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

impl Gate {
    /// For the engine of this term.
    pub fn new(term: u64) -> Self {
        Self {
            term,
            sequence: 0,
            slots: HashMap::new(),
            dirty: BTreeSet::new(),
            forgetting: BTreeMap::new(),
            alive: BTreeSet::new(),
            publishing: 0,
            opened: 0,
            transactions: Vec::new(),
            ended: Vec::new(),
        }
    }

    /// A command was found on NATS.
    pub fn found(&mut self, target: Target, held: Held) {
        self.slots.entry(target).or_default().held = Some(held);
    }

    /// The drivers that are alive.
    pub fn alive(&mut self, drivers: BTreeSet<Name>) {
        self.alive = drivers;
    }

    /// What is wanted of the target changed.
    pub fn changed(&mut self, target: Target, now: Instant) {
        let slot = self.slots.entry(target.clone()).or_default();
        let before = slot.changes.map_or((now, 0), |changes| (changes.first, changes.count));
        slot.changes = Some(Changes { first: before.0, last: now, count: before.1.saturating_add(1) });
        self.dirty.insert(target);
    }

    /// A driver reported on a generation. True when it refuses its part of a transaction that was open.
    pub fn reported(
        &mut self,
        target: &Target,
        generation: &Generation,
        answer: Answer,
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
        self.answered(target, generation, answer, now)
    }

    /// A driver reported on this generation. True when it came after what was said last, or stands in its place (it has
    /// another hash), or what stands there could not be read: the word of a former leader, or what is no command, replaced
    /// the target's command, and what is wanted has to be said again.
    pub fn overwritten(&mut self, target: &Target, generation: &Generation, now: Instant) -> bool {
        let Some(slot) = self.slots.get_mut(target) else { return false };
        // One that is on its way to NATS is refused there, and tried again.
        let settled = !matches!(slot.state, State::Publishing { .. });
        let former = generation.term < self.term;
        let Some(held) = slot.held.as_mut().filter(|_| settled && generation.term <= self.term) else {
            return false;
        };
        let Some(found) = &held.generation else { return former };
        let order = |generation: &Generation| (generation.term, generation.sequence);
        let another = match order(found).cmp(&order(generation)) {
            Ordering::Less => true,
            Ordering::Equal => found.hash != generation.hash,
            Ordering::Greater => false,
        };
        if another {
            held.generation = None;
            // Who has said this has no other command to answer.
            slot.state = State::Idle;
            self.changed(target.clone(), now);
        }
        another
    }

    /// The last report of this driver on the target can't be read, and it may be the answer to what was said last. That
    /// is said again, but once: one that never can be read would have no end.
    pub fn unread(&mut self, target: &Target, driver: &Name, now: Instant) {
        let Some(slot) = self.slots.get_mut(target).filter(|slot| !slot.unread) else { return };
        let Some(held) = slot.held.as_mut().filter(|held| held.driver == *driver) else { return };
        held.generation = None;
        slot.unread = true;
        self.changed(target.clone(), now);
    }

    /// True unless a generation of this engine's term is above all of its own.
    pub fn has_issued(&self, generation: &Generation) -> bool {
        generation.sequence <= self.sequence
    }

    /// The targets whose turn has come. `groups` tells which of these switches have to change together.
    pub fn due(&mut self, now: Instant, groups: impl FnOnce(&[Name]) -> Vec<TransactionGroup>) -> Due {
        self.expire(now);
        let mut due = Due::default();
        self.decisions(now, &mut due);
        let room = PUBLISHING.saturating_sub(self.publishing);
        // Switches that may have to wait for others; those whose driver is stuck or away wait for nobody.
        let mut switches: Vec<Name> = Vec::new();
        let mut alone = FairQueue::default();
        let mut ready = false;
        for target in &self.dirty {
            let wait = self.wait(target, now);
            if let Target::Fabric(name) = target
                && !self.is_stuck(target, now)
            {
                ready |= matches!(wait, Wait::Now);
                switches.push(name.clone());
                continue;
            }
            match wait {
                Wait::Now => alone.push(lane(target), target),
                Wait::Publish => {}
                Wait::Until(at) => due.again(at),
            }
        }
        // A namespace with many takes no other's turn.
        due.alone.extend(std::iter::from_fn(|| alone.pop()).take(room).cloned());
        if room > 0 && !alone.is_empty() {
            due.again(now);
        }
        if ready {
            switches.extend(self.transactions.iter().flat_map(Open::switches));
            for group in groups(&switches) {
                self.group(group, now, &mut due);
            }
        } else {
            for name in switches {
                if let Wait::Until(at) = self.wait(&Target::Fabric(name), now) {
                    due.again(at);
                }
            }
        }
        due
    }

    /// A group goes when the turn of all of them has come.
    fn group(&self, group: TransactionGroup, now: Instant, due: &mut Due) {
        let targets = |names: Vec<Name>| names.into_iter().map(Target::Fabric).collect::<Vec<_>>();
        let (holding, plain) = (targets(group.holding), targets(group.plain));
        let mut all_may = true;
        for target in holding.iter().chain(&plain) {
            match self.wait(target, now) {
                Wait::Now if self.dirty.contains(target) => {}
                Wait::Until(at) => {
                    all_may = false;
                    due.again(at);
                }
                Wait::Now | Wait::Publish => all_may = false,
            }
        }
        if !all_may {
            return;
        }
        if holding.len() > 1 {
            due.together.push(holding);
            if !plain.is_empty() {
                due.again(now);
            }
        } else {
            due.alone.extend(holding);
            due.alone.extend(plain);
        }
    }

    fn wait(&self, target: &Target, now: Instant) -> Wait {
        if self.is_bound(target) || self.forgetting.contains_key(target) {
            return Wait::Publish;
        }
        let Some(slot) = self.slots.get(target) else { return Wait::Now };
        let paced = match (target, slot.told, slot.changes) {
            (Target::Fabric(_), Some(told), Some(changes)) if changes.first < told + REST => {
                let pause = if changes.count <= FEW { PAUSE } else { LONG_PAUSE };
                Some((changes.last + pause).min(changes.first + LIMIT)).filter(|at| *at > now)
            }
            _ => None,
        };
        let paced = paced.max(slot.retry.max(slot.rest).filter(|at| *at > now));
        let held = slot.held.as_ref();
        match &slot.state {
            State::Publishing { .. } => Wait::Publish,
            State::Outstanding(_, since) if held.is_some_and(|held| self.is_alive(&held.driver, target)) => {
                let patience = *since + PATIENCE;
                if patience > now { Wait::Until(patience) } else { paced.map_or(Wait::Now, Wait::Until) }
            }
            _ => paced.map_or(Wait::Now, Wait::Until),
        }
    }

    /// True when the target has a command that nobody seems to work on.
    fn is_stuck(&self, target: &Target, now: Instant) -> bool {
        let Some(slot) = self.slots.get(target) else { return false };
        let State::Outstanding(_, since) = slot.state else { return false };
        let alive = slot.held.as_ref().is_some_and(|held| self.is_alive(&held.driver, target));
        !self.is_bound(target) && (!alive || since + PATIENCE <= now)
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
    pub fn take(&mut self, target: &Target, driver: &Name, hash: String, now: Instant) -> Option<Turn> {
        if self.is_said(target, driver, &hash) {
            self.pass(target);
            return None;
        }
        Some(self.issue(target, driver, hash, None, now))
    }

    /// True when NATS holds this state, and it counts.
    pub fn is_said(&self, target: &Target, driver: &Name, hash: &str) -> bool {
        let held = self.slots.get(target).and_then(|slot| slot.held.as_ref());
        held.is_some_and(|held| {
            held.driver == *driver
                && !held.unconfirmed
                && held.generation.as_ref().is_some_and(|generation| generation.hash == hash)
        })
    }

    /// The target's turn passes without a word.
    fn pass(&mut self, target: &Target) {
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
    ) -> Turn {
        self.sequence += 1;
        let generation = Generation { term: self.term, sequence: self.sequence, hash };
        let slot = self.slots.entry(target.clone()).or_default();
        if transaction.as_ref().is_none_or(|transaction| transaction.decision.is_none()) {
            self.dirty.remove(target);
            slot.changes = None;
        }
        let held = slot.held.take();
        let moved_from = held.as_ref().filter(|held| held.driver != *driver).map(|held| held.driver.clone());
        let held = held.filter(|held| held.driver == *driver);
        let expected = held.as_ref().map_or(0, |held| held.sequence);
        let unconfirmed =
            transaction.as_ref().is_some_and(|transaction| transaction.decision != Some(Decision::Confirm));
        slot.state = State::Publishing { generation: generation.clone(), reported: false, unconfirmed };
        slot.held = Some(Held {
            driver: driver.clone(),
            // Until NATS has it, the one before is there.
            unconfirmed: held.as_ref().is_some_and(|held| held.unconfirmed),
            generation: held.and_then(|held| held.generation),
            sequence: expected,
        });
        slot.told = Some(now);
        self.publishing += 1;
        Turn { generation, expected, moved_from, transaction }
    }

    /// There is no such target any more.
    pub fn dropped(&mut self, target: &Target) {
        self.dirty.remove(target);
    }

    /// NATS holds the generation that was taken, at this sequence of its stream.
    pub fn published(&mut self, target: &Target, generation: &Generation, sequence: u64, now: Instant) {
        self.publishing = self.publishing.saturating_sub(1);
        let Some(slot) = self.slots.get_mut(target) else { return };
        let (reported, unconfirmed) = match slot.state {
            State::Publishing { reported, unconfirmed, .. } => (reported, unconfirmed),
            State::Idle | State::Outstanding(..) => (false, false),
        };
        if let Some(held) = &mut slot.held {
            held.generation = Some(generation.clone());
            held.unconfirmed = unconfirmed;
            held.sequence = sequence;
        }
        slot.state = if reported { State::Idle } else { State::Outstanding(generation.clone(), now) };
    }

    /// The publish failed: the target waits for its turn again. `found`: the sequence that its subject has, where that
    /// was what was wrong; then the next try may follow at once.
    pub fn failed(&mut self, target: &Target, found: Option<u64>, now: Instant) {
        self.publishing = self.publishing.saturating_sub(1);
        if let Some(slot) = self.slots.get_mut(target) {
            slot.state = State::Idle;
            slot.retry = found.is_none().then_some(now + RETRY);
            if let Some(held) = &mut slot.held {
                // Another one's word is there, or this one, taken without an answer.
                held.generation = None;
                held.sequence = found.unwrap_or(held.sequence);
            }
            if !self.failed_to_decide(target, now) {
                self.dirty.insert(target.clone());
            }
        }
    }

    /// The target is gone; its driver's name, when a command of it is on NATS: then its words are to be taken off there.
    pub fn forget(&mut self, target: &Target, now: Instant) -> Option<Name> {
        self.leave(target, now);
        self.dirty.remove(target);
        let driver = self.slots.remove(target)?.held?.driver;
        *self.forgetting.entry(target.clone()).or_default() += 1;
        Some(driver)
    }

    /// Somebody has words on NATS about a target; true: no command of it is known, and they are to be taken off there.
    pub fn forget_unknown(&mut self, target: &Target) -> bool {
        let unknown = self.driver(target).is_none();
        if unknown {
            *self.forgetting.entry(target.clone()).or_default() += 1;
        }
        unknown
    }

    /// The target's words are off NATS, or that failed.
    pub fn forgotten(&mut self, target: &Target) {
        if let Entry::Occupied(mut left) = self.forgetting.entry(target.clone()) {
            *left.get_mut() -= 1;
            if *left.get() == 0 {
                left.remove();
            }
        }
    }

    /// NATS lost its streams: every target is to be published again.
    pub fn lost(&mut self) {
        self.transactions.clear();
        for (target, slot) in &mut self.slots {
            if let Some(held) = &mut slot.held {
                held.generation = None;
                held.sequence = 0;
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
    pub fn kept(&mut self, kept: &BTreeMap<Target, u64>, now: Instant) -> usize {
        let bound: BTreeSet<Target> =
            self.slots.keys().filter(|target| self.is_bound(target)).cloned().collect();
        let mut lost = Vec::new();
        for (target, slot) in &mut self.slots {
            // One that is on its way is refused where something else stands than was there, and tried again.
            let settled = !matches!(slot.state, State::Publishing { .. }) && !bound.contains(target);
            let found = kept.get(target).copied().unwrap_or_default();
            let Some(held) = slot.held.as_mut().filter(|held| settled && found < held.sequence) else {
                continue;
            };
            held.generation = None;
            held.sequence = found;
            // Nobody answers it.
            slot.state = State::Idle;
            lost.push(target.clone());
        }
        let count = lost.len();
        for target in lost {
            self.changed(target, now);
        }
        count
    }

    /// The driver whose subject holds the target's command.
    pub fn driver(&self, target: &Target) -> Option<&Name> {
        self.slots.get(target)?.held.as_ref().map(|held| &held.driver)
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
    Publish,
}

/// Whom a target's turn is counted for: its namespace, and all that are in none together.
fn lane(target: &Target) -> &str {
    match target {
        Target::Nad(namespace, _) => namespace,
        Target::Fabric(_) | Target::Node(_) => "",
    }
}
