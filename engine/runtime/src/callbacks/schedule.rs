//! Which callback is tried next. Pure: time and chance come in; times are Unix milliseconds.
//!
//! One at a time per object and in order; a bounded number per host and in all, so that an endpoint that does not
//! answer delays no other.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::time::Duration;

use eno_core::Name;
use serde::{Deserialize, Serialize};

/// Posts at any time.
const ALL: usize = 256;
/// Posts to one host at any time.
const PER_HOST: usize = 8;
const FIRST_DELAY: Duration = Duration::from_secs(1);
const LAST_DELAY: Duration = Duration::from_mins(10);

/// What is remembered of an object whose endpoint did not take a callback.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// The sequence of the first transition that was not delivered.
    pub from: u64,
    /// How often it was tried.
    pub attempts: u32,
    /// When it is tried again.
    pub next_try: i64,
    /// Why it was not taken.
    pub last_error: String,
}

/// A callback to try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Whose.
    pub object: Name,
    /// The transition's sequence in the outbox.
    pub sequence: u64,
}

/// How a try ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// There is nothing more to do about this transition.
    Done,
    /// It is to be tried again, after this time if one was asked for.
    Again {
        /// Why.
        error: String,
        /// What the endpoint asked for.
        after: Option<Duration>,
    },
}

/// A change of what is remembered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Of which object.
    pub object: Name,
    /// `None`: nothing is left to remember.
    pub entry: Option<Entry>,
}

/// All callbacks that are not delivered.
#[derive(Debug, Default)]
pub struct Schedule {
    lines: HashMap<Name, Line>,
    /// Objects whose turn it is, by host.
    ready: HashMap<Name, VecDeque<Name>>,
    /// Hosts with objects in `ready`, each once.
    hosts: VecDeque<Name>,
    busy: HashMap<Name, usize>,
    running: usize,
    later: BTreeSet<(i64, Name)>,
    /// Transitions that only the floor remembers.
    floating: BTreeSet<u64>,
    /// The last transition that was read.
    read: u64,
    changed: HashSet<Name>,
    pending: usize,
    /// When the outbox was created, which tells it from one that was made anew.
    pub outbox: i128,
    /// The floor that is written.
    pub saved: u64,
}

#[derive(Debug, Default)]
struct Line {
    pending: VecDeque<(u64, Name)>,
    /// The host of the try that is under way.
    running: Option<Name>,
    attempts: u32,
    next_try: i64,
    last_error: String,
    /// It has an entry of its own.
    remembered: bool,
}

impl Schedule {
    /// Goes on after this transition.
    pub fn new(outbox: i128, floor: u64) -> Self {
        Self { outbox, read: floor, saved: floor, ..Self::default() }
    }

    /// Takes up an object that has an entry, with its transitions up to the floor.
    pub fn restore(&mut self, object: Name, entry: Entry, pending: Vec<(u64, Name)>) {
        if pending.is_empty() {
            // All of them were delivered or have left the outbox.
            self.lines.insert(object.clone(), Line { remembered: true, ..Line::default() });
            self.changed.insert(object);
            return;
        }
        self.pending += pending.len();
        self.later.insert((entry.next_try, object.clone()));
        let line = Line {
            pending: pending.into(),
            running: None,
            attempts: entry.attempts,
            next_try: entry.next_try,
            last_error: entry.last_error,
            remembered: true,
        };
        self.lines.insert(object, line);
    }

    /// A transition was read; `host`: where it is to be posted, if anywhere.
    pub fn add(&mut self, object: Name, sequence: u64, host: Option<Name>) {
        self.read = self.read.max(sequence);
        let Some(host) = host else { return };
        let line = self.lines.entry(object.clone()).or_default();
        self.pending += 1;
        let idle = line.pending.is_empty() && line.running.is_none();
        line.pending.push_back((sequence, host.clone()));
        if !line.remembered {
            self.floating.insert(sequence);
        }
        if idle {
            self.enqueue(object, host);
        }
    }

    fn enqueue(&mut self, object: Name, host: Name) {
        let queue = self.ready.entry(host.clone()).or_default();
        if queue.is_empty() {
            self.hosts.push_back(host);
        }
        queue.push_back(object);
    }

    /// The next one to try, if its turn has come.
    pub fn next(&mut self, now: i64) -> Option<Turn> {
        while let Some((at, _)) = self.later.first()
            && *at <= now
        {
            let Some((_, object)) = self.later.pop_first() else { break };
            let head = self.lines.get(&object).and_then(|line| line.pending.front());
            if let Some((_, host)) = head.cloned() {
                self.enqueue(object, host);
            }
        }
        if self.running >= ALL {
            return None;
        }
        for _ in 0..self.hosts.len() {
            let host = self.hosts.pop_front()?;
            let busy = self.busy.get(&host).copied().unwrap_or_default();
            let Some(queue) = self.ready.get_mut(&host) else { continue };
            if busy >= PER_HOST {
                self.hosts.push_back(host);
                continue;
            }
            let object = queue.pop_front();
            if queue.is_empty() {
                self.ready.remove(&host);
            } else {
                self.hosts.push_back(host.clone());
            }
            let Some(object) = object else { continue };
            let Some(line) = self.lines.get_mut(&object) else { continue };
            let Some((sequence, _)) = line.pending.front() else { continue };
            let sequence = *sequence;
            line.running = Some(host.clone());
            *self.busy.entry(host).or_default() += 1;
            self.running += 1;
            return Some(Turn { object, sequence });
        }
        None
    }

    /// When [`Self::next`] has something that it has not now, unless a try ends before.
    pub fn wake(&self) -> Option<i64> {
        self.later.first().map(|(at, _)| *at)
    }

    /// A try ended. `chance` is between 0 and 1.
    pub fn ended(&mut self, object: &Name, ended: Ended, now: i64, chance: f64) {
        let Some(line) = self.lines.get_mut(object) else { return };
        let Some(host) = line.running.take() else { return };
        self.running -= 1;
        if let Some(busy) = self.busy.get_mut(&host) {
            *busy -= 1;
            if *busy == 0 {
                self.busy.remove(&host);
            }
        }
        match ended {
            Ended::Done => {
                if let Some((sequence, _)) = line.pending.pop_front() {
                    self.floating.remove(&sequence);
                    self.pending -= 1;
                }
                line.attempts = 0;
                line.last_error.clear();
                if line.remembered {
                    self.changed.insert(object.clone());
                }
                match line.pending.front().cloned() {
                    Some((_, host)) => self.enqueue(object.clone(), host),
                    None if !line.remembered => {
                        self.lines.remove(object);
                    }
                    None => {}
                }
            }
            Ended::Again { error, after } => {
                line.attempts = line.attempts.saturating_add(1);
                let delay = (FIRST_DELAY * 2_u32.saturating_pow(line.attempts.min(16) - 1)).min(LAST_DELAY);
                let delay = delay.mul_f64(0.8 + 0.4 * chance.clamp(0.0, 1.0)).max(after.unwrap_or_default());
                line.next_try = now.saturating_add(i64::try_from(delay.as_millis()).unwrap_or(i64::MAX));
                line.last_error = error;
                self.later.insert((line.next_try, object.clone()));
                self.changed.insert(object.clone());
            }
        }
    }

    /// What changed of what is remembered. Each is confirmed by [`Self::remembered`] once it is written.
    pub fn changes(&self) -> Vec<Change> {
        let change = |object: &Name| {
            let line = self.lines.get(object)?;
            let entry = line.pending.front().map(|(from, _)| Entry {
                from: *from,
                attempts: line.attempts,
                next_try: line.next_try,
                last_error: line.last_error.clone(),
            });
            Some(Change { object: object.clone(), entry })
        };
        self.changed.iter().filter_map(change).collect()
    }

    /// A change is written.
    pub fn remembered(&mut self, change: &Change) {
        self.changed.remove(&change.object);
        let Some(line) = self.lines.get_mut(&change.object) else { return };
        line.remembered = change.entry.is_some();
        if line.remembered {
            for (sequence, _) in &line.pending {
                self.floating.remove(sequence);
            }
        } else if line.pending.is_empty() {
            self.lines.remove(&change.object);
        } else {
            // They came while the entry was being deleted.
            self.floating.extend(line.pending.iter().map(|(sequence, _)| *sequence));
        }
    }

    /// Up to here nothing is left to do, but for objects that have an entry.
    pub fn floor(&self) -> u64 {
        self.floating.first().map_or(self.read, |first| first - 1)
    }

    /// The last transition that was read.
    pub fn read(&self) -> u64 {
        self.read
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn again() -> Ended {
        Ended::Again { error: "no".into(), after: None }
    }

    fn turns(schedule: &mut Schedule, now: i64) -> Vec<(String, u64)> {
        std::iter::from_fn(|| schedule.next(now))
            .map(|turn| (turn.object.to_string(), turn.sequence))
            .collect()
    }

    fn save(schedule: &mut Schedule) -> Vec<Change> {
        let changes = schedule.changes();
        for change in &changes {
            schedule.remembered(change);
        }
        changes
    }

    #[test]
    fn in_order_and_one_at_a_time_per_object() {
        let mut schedule = Schedule::new(0, 0);
        for sequence in 1..=3 {
            schedule.add("a".into(), sequence, Some("h".into()));
        }
        schedule.add("b".into(), 4, Some("h".into()));
        schedule.add("c".into(), 5, None);
        assert_eq!(turns(&mut schedule, 0), [("a".into(), 1), ("b".into(), 4)]);
        assert_eq!(schedule.floor(), 0);
        schedule.ended(&"b".into(), Ended::Done, 0, 0.5);
        schedule.ended(&"a".into(), Ended::Done, 0, 0.5);
        assert_eq!(schedule.floor(), 1);
        assert_eq!(turns(&mut schedule, 0), [("a".into(), 2)]);
        schedule.ended(&"a".into(), Ended::Done, 0, 0.5);
        assert_eq!(turns(&mut schedule, 0), [("a".into(), 3)]);
        schedule.ended(&"a".into(), Ended::Done, 0, 0.5);
        assert_eq!((schedule.floor(), schedule.len()), (5, 0));
        assert!(save(&mut schedule).is_empty());
    }

    #[test]
    fn failures_back_off_and_are_remembered() {
        let mut schedule = Schedule::new(0, 0);
        schedule.add("a".into(), 1, Some("h".into()));
        schedule.add("a".into(), 2, Some("h".into()));
        assert_eq!(turns(&mut schedule, 0).len(), 1);
        schedule.ended(&"a".into(), again(), 0, 0.5);
        assert_eq!(schedule.floor(), 0);
        let entry = save(&mut schedule)[0].entry.clone().unwrap();
        assert_eq!((entry.from, entry.attempts, entry.next_try), (1, 1, 1000));
        // The entry holds its place from here on, also for what comes later.
        assert_eq!(schedule.floor(), 2);
        schedule.add("a".into(), 3, Some("h".into()));
        assert_eq!(schedule.floor(), 3);
        assert!(turns(&mut schedule, 999).is_empty());
        assert_eq!(schedule.wake(), Some(1000));
        assert_eq!(turns(&mut schedule, 1000), [("a".into(), 1)]);
        schedule.ended(&"a".into(), again(), 1000, 0.5);
        assert_eq!(schedule.wake(), Some(3000));
        for sequence in 1..=3 {
            assert_eq!(turns(&mut schedule, 3000), [("a".into(), sequence)]);
            schedule.ended(&"a".into(), Ended::Done, 3000, 0.5);
        }
        assert_eq!(save(&mut schedule), [Change { object: "a".into(), entry: None }]);
        assert_eq!((schedule.floor(), schedule.len()), (3, 0));
    }

    #[test]
    fn the_endpoint_may_ask_for_more_time() {
        let mut schedule = Schedule::new(0, 0);
        schedule.add("a".into(), 1, Some("h".into()));
        turns(&mut schedule, 0);
        let after = Some(Duration::from_mins(2));
        schedule.ended(&"a".into(), Ended::Again { error: String::new(), after }, 0, 0.5);
        assert_eq!(schedule.wake(), Some(120_000));
    }

    #[test]
    fn the_longest_pause_is_bounded() {
        let mut schedule = Schedule::new(0, 0);
        schedule.add("a".into(), 1, Some("h".into()));
        let mut now = 0;
        for _ in 0..100 {
            assert_eq!(turns(&mut schedule, now).len(), 1);
            schedule.ended(&"a".into(), again(), now, 1.0);
            let next = schedule.wake().unwrap();
            assert!(next - now <= 12 * 60 * 1000);
            now = next;
        }
    }

    #[test]
    fn one_host_does_not_delay_another() {
        let mut schedule = Schedule::new(0, 0);
        for sequence in 1..=100_u64 {
            schedule.add(format!("dead{sequence}").into(), sequence, Some("dead".into()));
        }
        schedule.add("a".into(), 101, Some("alive".into()));
        let turns = turns(&mut schedule, 0);
        assert_eq!(turns.len(), PER_HOST + 1);
        assert!(turns.contains(&("a".into(), 101)));
        schedule.ended(&"dead1".into(), again(), 0, 0.5);
        assert_eq!(schedule.next(0).map(|turn| turn.sequence), Some(9));
    }

    #[test]
    fn goes_on_after_a_restart() {
        let mut schedule = Schedule::new(0, 10);
        let entry = Entry { from: 3, attempts: 4, next_try: 500, last_error: "no".into() };
        schedule.restore("a".into(), entry, vec![(3, "h".into()), (7, "h".into())]);
        schedule.add("a".into(), 11, Some("h".into()));
        assert_eq!((schedule.read(), schedule.floor()), (11, 11));
        assert!(turns(&mut schedule, 499).is_empty());
        for sequence in [3, 7, 11] {
            assert_eq!(turns(&mut schedule, 500), [("a".into(), sequence)]);
            schedule.ended(&"a".into(), Ended::Done, 500, 0.5);
        }
        assert_eq!(save(&mut schedule)[0].entry, None);
        let mut schedule = Schedule::new(0, 10);
        let entry = Entry { from: 3, attempts: 4, next_try: 500, last_error: "no".into() };
        schedule.restore("gone".into(), entry, Vec::new());
        assert_eq!(save(&mut schedule)[0].entry, None);
        assert!(schedule.changes().is_empty());
    }
}
