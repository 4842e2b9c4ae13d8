//! When a target's next command may be published. Pure: time comes in.
//!
//! While a driver works on a generation of a target, changes of the target pile up in its desired state; the next
//! command takes them all. A switch that was told something a moment ago is besides told more only when its changes
//! pause, or have waited long enough: so a flood of small changes becomes few transactions, while a lone change goes
//! at once.

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

use eno_core::{Name, Target};
use eno_schemas::Generation;

use crate::drivers::instance_of;

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
}

/// The targets, and what each waits for.
#[derive(Debug)]
pub struct Gate {
    term: u64,
    sequence: u64,
    slots: HashMap<Target, Slot>,
    dirty: BTreeSet<Target>,
    alive: BTreeSet<Name>,
    publishing: usize,
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
    Publishing { generation: Generation, reported: bool },
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
            alive: BTreeSet::new(),
            publishing: 0,
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

    /// A driver reported on a generation, and is done with it.
    pub fn reported(&mut self, target: &Target, generation: &Generation) {
        let Some(slot) = self.slots.get_mut(target) else { return };
        match &mut slot.state {
            State::Outstanding(waiting, _) if *waiting <= *generation => slot.state = State::Idle,
            State::Publishing { generation: waiting, reported } => *reported |= *waiting <= *generation,
            _ => {}
        }
    }

    /// The targets whose turn has come, and when to ask again if nothing else happens before.
    pub fn due(&self, now: Instant) -> (Vec<Target>, Option<Instant>) {
        let mut due = Vec::new();
        let mut next: Option<Instant> = None;
        let room = PUBLISHING.saturating_sub(self.publishing);
        for target in &self.dirty {
            if due.len() >= room {
                break;
            }
            match self.wait(target, now) {
                Wait::Now => due.push(target.clone()),
                Wait::Until(at) => next = Some(next.map_or(at, |next| next.min(at))),
                Wait::Publish => {}
            }
        }
        (due, next)
    }

    fn wait(&self, target: &Target, now: Instant) -> Wait {
        let Some(slot) = self.slots.get(target) else { return Wait::Now };
        let paced = match (target, slot.told, slot.changes) {
            (Target::Fabric(_), Some(told), Some(changes)) if changes.first < told + REST => {
                let pause = if changes.count <= FEW { PAUSE } else { LONG_PAUSE };
                Some((changes.last + pause).min(changes.first + LIMIT)).filter(|at| *at > now)
            }
            _ => None,
        };
        let paced = paced.max(slot.retry.filter(|at| *at > now));
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

    /// A node is the target of one process only.
    fn is_alive(&self, driver: &Name, target: &Target) -> bool {
        match target {
            Target::Node(node) => self.alive.contains(&instance_of(driver, node)),
            Target::Fabric(_) | Target::Nad(..) => self.alive.contains(driver),
        }
    }

    /// Takes a due target's turn with the state that is wanted now; `None`: that is what NATS holds already.
    pub fn take(&mut self, target: &Target, driver: &Name, hash: String, now: Instant) -> Option<Turn> {
        self.dirty.remove(target);
        let slot = self.slots.entry(target.clone()).or_default();
        slot.changes = None;
        let held = slot.held.as_ref();
        let same_driver = held.is_some_and(|held| held.driver == *driver);
        if same_driver
            && held
                .and_then(|held| held.generation.as_ref())
                .is_some_and(|generation| generation.hash == hash)
        {
            return None;
        }
        let moved_from = held.filter(|_| !same_driver).map(|held| held.driver.clone());
        let expected = held.filter(|_| same_driver).map_or(0, |held| held.sequence);
        self.sequence += 1;
        let generation = Generation { term: self.term, sequence: self.sequence, hash };
        slot.state = State::Publishing { generation: generation.clone(), reported: false };
        slot.held = Some(Held {
            driver: driver.clone(),
            generation: held.filter(|_| same_driver).and_then(|held| held.generation.clone()),
            sequence: expected,
        });
        slot.told = Some(now);
        self.publishing += 1;
        Some(Turn { generation, expected, moved_from })
    }

    /// There is no such target any more.
    pub fn dropped(&mut self, target: &Target) {
        self.dirty.remove(target);
    }

    /// NATS holds the generation that was taken, at this sequence of its stream.
    pub fn published(&mut self, target: &Target, generation: &Generation, sequence: u64, now: Instant) {
        self.publishing = self.publishing.saturating_sub(1);
        let Some(slot) = self.slots.get_mut(target) else { return };
        if let Some(held) = &mut slot.held {
            held.generation = Some(generation.clone());
            held.sequence = sequence;
        }
        let reported = matches!(slot.state, State::Publishing { reported: true, .. });
        slot.state = if reported { State::Idle } else { State::Outstanding(generation.clone(), now) };
    }

    /// The publish failed: the target waits for its turn again. `found`: the sequence that its subject has, where that
    /// was what was wrong; then the next try may follow at once.
    pub fn failed(&mut self, target: &Target, found: Option<u64>, now: Instant) {
        self.publishing = self.publishing.saturating_sub(1);
        if let Some(slot) = self.slots.get_mut(target) {
            slot.state = State::Idle;
            slot.retry = found.is_none().then_some(now + RETRY);
            if let (Some(held), Some(sequence)) = (&mut slot.held, found) {
                held.sequence = sequence;
            }
            self.dirty.insert(target.clone());
        }
    }

    /// The target is gone; its driver's name, when a command of it is on NATS.
    pub fn forget(&mut self, target: &Target) -> Option<Name> {
        self.dirty.remove(target);
        self.slots.remove(target)?.held.map(|held| held.driver)
    }

    /// NATS lost its streams: every target is to be published again.
    pub fn lost(&mut self) {
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
    /// Until NATS has confirmed the one before.
    Publish,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fabric() -> Target {
        Target::Fabric("leaf1".into())
    }

    fn nad() -> Target {
        Target::Nad("ns".into(), "a".into())
    }

    /// Publishes what is due and tells how many went.
    fn turn(gate: &mut Gate, target: &Target, hash: &str, now: Instant) -> Option<Turn> {
        gate.changed(target.clone(), now);
        let (due, _) = gate.due(now);
        if !due.contains(target) {
            return None;
        }
        let turn = gate.take(target, &"netconf".into(), hash.into(), now)?;
        gate.published(target, &turn.generation, 7, now);
        Some(turn)
    }

    fn alive(gate: &mut Gate) {
        gate.alive(BTreeSet::from(["netconf".into()]));
    }

    #[test]
    fn one_outstanding_while_the_driver_is_alive() {
        let now = Instant::now();
        let mut gate = Gate::new(3);
        alive(&mut gate);
        let first = turn(&mut gate, &nad(), "a", now).unwrap();
        assert_eq!((first.generation.term, first.generation.sequence, first.expected), (3, 1, 0));
        assert_eq!(turn(&mut gate, &nad(), "b", now), None);
        let (due, next) = gate.due(now);
        assert!(due.is_empty());
        assert_eq!(next, Some(now + PATIENCE));
        gate.reported(&nad(), &first.generation);
        assert_eq!(turn(&mut gate, &nad(), "b", now).unwrap().expected, 7);
    }

    #[test]
    fn a_driver_that_is_away_or_silent_does_not_hold_up() {
        let now = Instant::now();
        let mut gate = Gate::new(1);
        turn(&mut gate, &nad(), "a", now).unwrap();
        turn(&mut gate, &nad(), "b", now).unwrap();
        alive(&mut gate);
        assert_eq!(turn(&mut gate, &nad(), "c", now), None);
        assert!(turn(&mut gate, &nad(), "c", now + PATIENCE).is_some());
    }

    #[test]
    fn another_node_s_agent_is_not_waited_for() {
        let now = Instant::now();
        let node = Target::Node("worker1".into());
        let mut gate = Gate::new(1);
        let go = |gate: &mut Gate, hash: &str| {
            gate.changed(node.clone(), now);
            if !gate.due(now).0.contains(&node) {
                return false;
            }
            let turn = gate.take(&node, &"node".into(), hash.into(), now).unwrap();
            gate.published(&node, &turn.generation, 1, now);
            true
        };
        gate.alive(BTreeSet::from(["node", "node/worker2"].map(Name::from)));
        // At once, as often as there is news.
        assert!(go(&mut gate, "a") && go(&mut gate, "b"));
        gate.alive(BTreeSet::from(["node", "node/worker1"].map(Name::from)));
        assert!(!go(&mut gate, "c"));
    }

    #[test]
    fn an_older_report_opens_nothing() {
        let now = Instant::now();
        let mut gate = Gate::new(1);
        alive(&mut gate);
        let first = turn(&mut gate, &nad(), "a", now).unwrap();
        gate.reported(&nad(), &first.generation);
        turn(&mut gate, &nad(), "b", now).unwrap();
        gate.reported(&nad(), &first.generation);
        assert_eq!(turn(&mut gate, &nad(), "c", now), None);
    }

    #[test]
    fn a_report_may_overtake_the_confirmation_of_nats() {
        let now = Instant::now();
        let mut gate = Gate::new(1);
        alive(&mut gate);
        gate.changed(nad(), now);
        let turn = gate.take(&nad(), &"netconf".into(), "a".into(), now).unwrap();
        gate.changed(nad(), now);
        assert_eq!(gate.due(now).0, []);
        gate.reported(&nad(), &turn.generation);
        gate.published(&nad(), &turn.generation, 1, now);
        assert_eq!(gate.due(now).0, [nad()]);
    }

    #[test]
    fn the_same_state_keeps_its_generation() {
        let now = Instant::now();
        let mut gate = Gate::new(9);
        let generation = Generation { term: 8, sequence: 5, hash: "a".into() };
        gate.found(nad(), Held { driver: "netconf".into(), generation: Some(generation), sequence: 4 });
        assert_eq!(turn(&mut gate, &nad(), "a", now), None);
        assert_eq!(gate.due(now).0, []);
        assert_eq!(turn(&mut gate, &nad(), "b", now).unwrap().expected, 4);
        gate.lost();
        let again = turn(&mut gate, &nad(), "b", now).unwrap();
        assert_eq!((again.expected, again.generation.term), (0, 9));
    }

    #[test]
    fn switches_are_paced_and_nads_are_not() {
        let start = Instant::now();
        let mut gate = Gate::new(1);
        let mut sent = 0;
        for tick in 0..600_u32 {
            let now = start + Duration::from_millis(10) * tick;
            sent += u32::from(turn(&mut gate, &fabric(), &format!("{tick}"), now).is_some());
        }
        // One at once, then one in 0.9 s over 6 s.
        assert_eq!(sent, 7);
        let later = start + Duration::from_secs(20);
        assert!(turn(&mut gate, &fabric(), "lone", later).is_some());
        assert!(turn(&mut gate, &fabric(), "next", later + PAUSE / 2).is_none());
        assert!(gate.due(later + PAUSE * 2).0.contains(&fabric()), "the changes paused");
        for hash in 0..20 {
            assert!(turn(&mut gate, &nad(), &hash.to_string(), start).is_some());
        }
    }

    #[test]
    fn a_target_that_changes_hands() {
        let now = Instant::now();
        let mut gate = Gate::new(1);
        turn(&mut gate, &nad(), "a", now).unwrap();
        gate.changed(nad(), now);
        let turn = gate.take(&nad(), &"other".into(), "a".into(), now).unwrap();
        assert_eq!((turn.moved_from, turn.expected), (Some("netconf".into()), 0));
        assert_eq!(gate.forget(&nad()), Some("other".into()));
    }

    #[test]
    fn a_failed_publish_is_tried_again() {
        let now = Instant::now();
        let mut gate = Gate::new(1);
        gate.changed(nad(), now);
        gate.take(&nad(), &"netconf".into(), "a".into(), now).unwrap();
        gate.failed(&nad(), Some(42), now);
        let turn = gate.take(&nad(), &"netconf".into(), "a".into(), now).unwrap();
        assert_eq!(turn.expected, 42);
        gate.failed(&nad(), None, now);
        assert_eq!(gate.due(now), (vec![], Some(now + RETRY)));
        assert_eq!(gate.due(now + RETRY).0, [nad()]);
    }
}
