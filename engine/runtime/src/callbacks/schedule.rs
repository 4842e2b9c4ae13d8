//! Which callback is tried next. Pure: time and chance come in; times are Unix milliseconds.
//!
//! One at a time per object and in order; a bounded number per host and in all. Hosts that are not known to answer
//! promptly share parts of all, so that those that don't answer never take the place of those that do.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::time::Duration;

use eno_core::Name;
use serde::{Deserialize, Serialize};

/// Posts at any time.
const ALL: usize = 512;
/// Posts to one host at any time.
const PER_HOST: usize = 8;
/// Of all, those to hosts of which nothing is known.
const ALL_UNKNOWN: usize = 256;
/// Of all, those to hosts whose last answer was not prompt.
const ALL_SLOW: usize = 128;
/// Posts to one host at any time that is not known to be prompt.
const PER_OTHER_HOST: usize = 2;
/// An answer, whatever it is, within this time is prompt.
const PROMPT: Duration = Duration::from_secs(1);
/// How many hosts are remembered while nothing is to be posted to them.
const HOSTS: usize = 4096;
const FIRST_DELAY: Duration = Duration::from_secs(1);
const LAST_DELAY: Duration = Duration::from_hours(1);
/// When what could not be tried is to be tried, in milliseconds.
const UNTRIED: i64 = 1000;

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
    /// How often it was tried before.
    pub attempts: u32,
}

/// How a try ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// There is nothing more to do about this transition.
    Done,
    /// It could not be tried, through no fault of its endpoint.
    Untried,
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
    hosts: HashMap<Name, Host>,
    /// Hosts that may get one more post, by their pace.
    lanes: [Lane; Pace::ALL.len()],
    /// The lane whose turn it is.
    turn: usize,
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
struct Lane {
    hosts: VecDeque<Name>,
    running: usize,
}

/// How a host answered last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Pace {
    Prompt,
    #[default]
    Unknown,
    Slow,
}

impl Pace {
    const ALL: [Self; 3] = [Self::Prompt, Self::Unknown, Self::Slow];

    /// Posts at any time to one host, and to all of them.
    fn limits(self) -> (usize, usize) {
        match self {
            Self::Prompt => (PER_HOST, ALL),
            Self::Unknown => (PER_OTHER_HOST, ALL_UNKNOWN),
            Self::Slow => (PER_OTHER_HOST, ALL_SLOW),
        }
    }
}

#[derive(Debug, Default)]
struct Host {
    /// Objects whose turn it is.
    queue: VecDeque<Name>,
    busy: usize,
    pace: Pace,
    /// It is in a lane.
    offered: bool,
}

impl Host {
    fn may_have_more(&self) -> bool {
        !self.queue.is_empty() && self.busy < self.pace.limits().0
    }
}

/// Where the first of a line is.
#[derive(Debug, Default, PartialEq, Eq)]
enum Stage {
    /// There is none, or it is still to be put somewhere.
    #[default]
    Idle,
    /// In the queue of its host.
    Queued,
    /// A try is under way, to this host, which was of this pace.
    Running { host: Name, pace: Pace },
    /// It is tried again at [`Line::next_try`].
    Later,
    /// Somebody else posts for this object.
    Occupied,
}

#[derive(Debug, Default)]
struct Line {
    pending: VecDeque<(u64, Name)>,
    stage: Stage,
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
        let mut line = Line { pending: pending.into(), remembered: true, ..Line::default() };
        match line.pending.front() {
            // All of them were delivered or have left the outbox.
            None => {
                self.changed.insert(object.clone());
            }
            Some((first, host)) => {
                if entry.attempts > 0 {
                    self.hosts.entry(host.clone()).or_default().pace = Pace::Slow;
                }
                // Tries are counted of the transition that they were made with.
                line.attempts = if *first == entry.from { entry.attempts } else { 0 };
                line.next_try = entry.next_try;
                line.last_error = entry.last_error;
                line.stage = Stage::Later;
                self.pending += line.pending.len();
                self.later.insert((line.next_try, object.clone()));
            }
        }
        self.lines.insert(object, line);
    }

    /// An object was seen to have an entry. One that is not known here is written anew, or taken out.
    pub fn has_entry(&mut self, object: &Name) {
        let line = self.lines.entry(object.clone()).or_default();
        if !line.remembered {
            line.remembered = true;
            self.changed.insert(object.clone());
        }
    }

    /// An object was seen to have no entry any more. True: it is to have one, which is written anew.
    pub fn lacks_entry(&mut self, object: &Name) -> bool {
        let remembered = self.lines.get(object).is_some_and(|line| line.remembered);
        if remembered {
            self.changed.insert(object.clone());
        }
        remembered
    }

    /// What is remembered may be lost, and is written once more.
    pub fn write_again(&mut self) {
        let remembered = self.lines.iter().filter(|(_, line)| line.remembered);
        self.changed.extend(remembered.map(|(object, _)| object.clone()));
        self.saved = 0;
    }

    /// A transition was read; `host`: where it is to be posted, if anywhere. One that was read before is passed over:
    /// a consumer that the server lost before anything came begins with the first.
    pub fn add(&mut self, object: &Name, sequence: u64, host: Option<Name>) {
        if sequence <= self.read {
            return;
        }
        self.read = sequence;
        let Some(host) = host else { return };
        let line = self.lines.entry(object.clone()).or_default();
        self.pending += 1;
        line.pending.push_back((sequence, host));
        if !line.remembered {
            self.floating.insert(sequence);
        }
        self.rouse(object);
    }

    /// Puts the first of a line that is idle into the queue of its host.
    fn rouse(&mut self, object: &Name) {
        let Some(line) = self.lines.get_mut(object).filter(|line| line.stage == Stage::Idle) else { return };
        let Some((_, host)) = line.pending.front() else { return };
        line.stage = Stage::Queued;
        let host = host.clone();
        self.hosts.entry(host.clone()).or_default().queue.push_back(object.clone());
        self.offer(&host);
    }

    fn offer(&mut self, name: &Name) {
        let Some(host) = self.hosts.get_mut(name) else { return };
        if !host.offered && host.may_have_more() {
            host.offered = true;
            self.lanes[host.pace as usize].hosts.push_back(name.clone());
        }
        let idle = host.queue.is_empty() && host.busy == 0;
        if idle && (host.pace == Pace::Unknown || self.hosts.len() > HOSTS) {
            self.hosts.remove(name);
        }
    }

    /// The next one to try, if its turn has come.
    pub fn next(&mut self, now: i64) -> Option<Turn> {
        while let Some((at, _)) = self.later.first()
            && *at <= now
        {
            let Some((_, object)) = self.later.pop_first() else { break };
            if let Some(line) = self.lines.get_mut(&object) {
                line.stage = Stage::Idle;
            }
            self.rouse(&object);
        }
        while self.running() < ALL {
            let count = self.lanes.len();
            let lane = (0..count).map(|n| (self.turn + n) % count).find(|lane| {
                let Lane { hosts, running } = &self.lanes[*lane];
                !hosts.is_empty() && *running < Pace::ALL[*lane].limits().1
            })?;
            let pace = Pace::ALL[lane];
            let name = self.lanes[lane].hosts.pop_front()?;
            let Some(host) = self.hosts.get_mut(&name) else { continue };
            host.offered = false;
            if host.pace != pace || !host.may_have_more() {
                self.offer(&name);
                continue;
            }
            let Some(object) = host.queue.pop_front() else { continue };
            let queued = self.lines.get_mut(&object).filter(|line| line.stage == Stage::Queued);
            let Some((line, sequence)) = queued
                .and_then(|line| line.pending.front().map(|(sequence, _)| *sequence).map(|s| (line, s)))
            else {
                self.offer(&name);
                continue;
            };
            host.busy += 1;
            self.lanes[lane].running += 1;
            self.turn = (lane + 1) % count;
            line.stage = Stage::Running { host: name.clone(), pace };
            let attempts = line.attempts;
            self.offer(&name);
            return Some(Turn { object, sequence, attempts });
        }
        None
    }

    fn running(&self) -> usize {
        self.lanes.iter().map(|lane| lane.running).sum()
    }

    /// When [`Self::next`] has something that it has not now, unless a try ends before.
    pub fn wake(&self) -> Option<i64> {
        self.later.first().map(|(at, _)| *at)
    }

    /// A try ended after so long. `chance` is between 0 and 1.
    pub fn ended(&mut self, object: &Name, ended: Ended, took: Duration, now: i64, chance: f64) {
        let Some(line) = self.lines.get_mut(object) else { return };
        let (name, pace) = match std::mem::take(&mut line.stage) {
            Stage::Running { host, pace } => (host, pace),
            other => {
                line.stage = other;
                return;
            }
        };
        let tried = ended != Ended::Untried;
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
                } else if line.pending.is_empty() {
                    self.lines.remove(object);
                }
            }
            Ended::Again { error, after } => {
                line.attempts = line.attempts.saturating_add(1);
                let delay = back_off(line.attempts, chance).max(after.unwrap_or_default());
                line.next_try = now.saturating_add(i64::try_from(delay.as_millis()).unwrap_or(i64::MAX));
                line.last_error = error;
                line.stage = Stage::Later;
                self.later.insert((line.next_try, object.clone()));
                self.changed.insert(object.clone());
            }
            Ended::Untried => {
                line.next_try = now.saturating_add(UNTRIED);
                line.stage = Stage::Later;
                self.later.insert((line.next_try, object.clone()));
            }
        }
        self.lanes[pace as usize].running -= 1;
        if let Some(host) = self.hosts.get_mut(&name) {
            host.busy -= 1;
            if tried {
                host.pace = if took <= PROMPT { Pace::Prompt } else { Pace::Slow };
            }
        }
        self.rouse(object);
        self.offer(&name);
    }

    /// When the first of an object is tried again, if it waits for that.
    pub fn next_try(&self, object: &Name) -> Option<i64> {
        self.lines.get(object).filter(|line| line.stage == Stage::Later).map(|line| line.next_try)
    }

    /// Whether callbacks of an object wait.
    pub fn is_waiting(&self, object: &Name) -> bool {
        self.lines.get(object).is_some_and(|line| !line.pending.is_empty())
    }

    /// Keeps an object's callbacks back while somebody else posts for it; false: one is on its way.
    pub fn occupy(&mut self, object: &Name) -> bool {
        let line = self.lines.entry(object.clone()).or_default();
        match line.stage {
            Stage::Running { .. } | Stage::Occupied => return false,
            Stage::Later => {
                self.later.remove(&(line.next_try, object.clone()));
            }
            Stage::Queued => {
                for host in self.hosts.values_mut() {
                    host.queue.retain(|one| one != object);
                }
            }
            Stage::Idle => {}
        }
        line.stage = Stage::Occupied;
        true
    }

    /// Lets an object's callbacks go on, at once; how many there are.
    pub fn vacate(&mut self, object: &Name) -> usize {
        let Some(line) = self.lines.get_mut(object) else { return 0 };
        line.stage = Stage::Idle;
        let waiting = line.pending.len();
        if waiting == 0 && !line.remembered {
            self.lines.remove(object);
        }
        self.rouse(object);
        waiting
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
        } else if line.pending.is_empty() && line.stage == Stage::Idle {
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

/// How long after that many tries the next one is: doubling up to a bound, a fifth more or less by chance.
fn back_off(attempts: u32, chance: f64) -> Duration {
    let doubled = FIRST_DELAY.saturating_mul(2_u32.saturating_pow(attempts.clamp(1, 16) - 1));
    doubled.min(LAST_DELAY).mul_f64(0.8 + 0.4 * chance.clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests;
