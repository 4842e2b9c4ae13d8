//! Which callback is tried next. Pure: time and chance come in; times are Unix milliseconds.
//!
//! One at a time per object and in order; a bounded number per host and in all. Hosts that are not known to answer
//! promptly share parts of all, so that those that don't answer never take the place of those that do.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::time::Duration;

use eno_core::Name;
use serde::{Deserialize, Serialize};

/// Posts at any time.
const MAX_POSTS: usize = 512;
/// Posts to one host at any time.
const MAX_POSTS_PER_HOST: usize = 8;
/// Of all, those to hosts of which nothing is known.
const MAX_POSTS_UNKNOWN: usize = 256;
/// Of all, those to hosts whose last answer was not prompt.
const MAX_POSTS_SLOW: usize = 128;
/// Posts to one host at any time that is not known to be prompt.
const MAX_POSTS_PER_OTHER_HOST: usize = 2;
/// An answer, whatever it is, within this time is prompt.
const PROMPT: Duration = Duration::from_secs(1);
/// How many hosts are remembered while nothing is to be posted to them.
const MAX_IDLE_HOSTS: usize = 4096;
const FIRST_DELAY: Duration = Duration::from_secs(1);
const MAX_DELAY: Duration = Duration::from_hours(1);
/// When what could not be tried is to be tried, in milliseconds.
const NOT_ATTEMPTED_DELAY: i64 = 1000;

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
pub struct DueCallback {
    /// Whose.
    pub object: Name,
    /// The transition's sequence in the outbox.
    pub sequence: u64,
    /// How often it was tried before.
    pub attempts: u32,
}

/// How a try ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttemptEnd {
    /// There is nothing more to do about this transition.
    Done,
    /// It could not be tried, through no fault of its endpoint.
    NotAttempted,
    /// It is to be tried again, after this time if one was asked for.
    Retry {
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
    objects: HashMap<Name, ObjectQueue>,
    hosts: HashMap<Name, Host>,
    /// Hosts that may get one more post, by their pace.
    pools: [HostPool; Pace::ALL.len()],
    /// The lane whose turn it is.
    next_pool: usize,
    later: BTreeSet<(i64, Name)>,
    /// Transitions that only the floor remembers.
    without_entry: BTreeSet<u64>,
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
struct HostPool {
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
            Self::Prompt => (MAX_POSTS_PER_HOST, MAX_POSTS),
            Self::Unknown => (MAX_POSTS_PER_OTHER_HOST, MAX_POSTS_UNKNOWN),
            Self::Slow => (MAX_POSTS_PER_OTHER_HOST, MAX_POSTS_SLOW),
        }
    }
}

#[derive(Debug, Default)]
struct Host {
    /// Objects whose turn it is.
    waiting: VecDeque<Name>,
    busy: usize,
    pace: Pace,
    /// It is in a lane.
    in_pool: bool,
}

impl Host {
    fn may_have_more(&self) -> bool {
        !self.waiting.is_empty() && self.busy < self.pace.limits().0
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
    /// It is tried again at [`ObjectQueue::next_try`].
    Later,
    /// Somebody else posts for this object.
    Paused,
}

#[derive(Debug, Default)]
struct ObjectQueue {
    pending: VecDeque<(u64, Name)>,
    stage: Stage,
    attempts: u32,
    next_try: i64,
    last_error: String,
    /// It has an entry of its own.
    has_entry: bool,
}

impl Schedule {
    /// Goes on after this transition.
    pub fn new(outbox: i128, floor: u64) -> Self {
        Self { outbox, read: floor, saved: floor, ..Self::default() }
    }

    /// Takes up an object that has an entry, with its transitions up to the floor.
    pub fn restore(&mut self, object: Name, entry: Entry, pending: Vec<(u64, Name)>) {
        let mut queue = ObjectQueue { pending: pending.into(), has_entry: true, ..ObjectQueue::default() };
        match queue.pending.front() {
            // All of them were delivered or have left the outbox.
            None => {
                self.changed.insert(object.clone());
            }
            Some((first, host)) => {
                if entry.attempts > 0 {
                    self.hosts.entry(host.clone()).or_default().pace = Pace::Slow;
                }
                // Tries are counted of the transition that they were made with.
                queue.attempts = if *first == entry.from { entry.attempts } else { 0 };
                queue.next_try = entry.next_try;
                queue.last_error = entry.last_error;
                queue.stage = Stage::Later;
                self.pending += queue.pending.len();
                self.later.insert((queue.next_try, object.clone()));
            }
        }
        self.objects.insert(object, queue);
    }

    /// An object was seen to have an entry. One that is not known here is written anew, or taken out.
    pub fn entry_found(&mut self, object: &Name) {
        let queue = self.objects.entry(object.clone()).or_default();
        if !queue.has_entry {
            queue.has_entry = true;
            self.changed.insert(object.clone());
        }
    }

    /// An object was seen to have no entry any more. True: it is to have one, which is written anew.
    pub fn entry_missing(&mut self, object: &Name) -> bool {
        let entry_expected = self.objects.get(object).is_some_and(|queue| queue.has_entry);
        if entry_expected {
            self.changed.insert(object.clone());
        }
        entry_expected
    }

    /// What is remembered may be lost, and is written once more.
    pub fn rewrite_entries(&mut self) {
        let entry_expected = self.objects.iter().filter(|(_, queue)| queue.has_entry);
        self.changed.extend(entry_expected.map(|(object, _)| object.clone()));
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
        let queue = self.objects.entry(object.clone()).or_default();
        self.pending += 1;
        queue.pending.push_back((sequence, host));
        if !queue.has_entry {
            self.without_entry.insert(sequence);
        }
        self.enqueue_object(object);
    }

    /// Puts the first of a line that is idle into the queue of its host.
    fn enqueue_object(&mut self, object: &Name) {
        let Some(queue) = self.objects.get_mut(object).filter(|queue| queue.stage == Stage::Idle) else {
            return;
        };
        let Some((_, host)) = queue.pending.front() else { return };
        queue.stage = Stage::Queued;
        let host = host.clone();
        self.hosts.entry(host.clone()).or_default().waiting.push_back(object.clone());
        self.enqueue_host(&host);
    }

    fn enqueue_host(&mut self, name: &Name) {
        let Some(host) = self.hosts.get_mut(name) else { return };
        if !host.in_pool && host.may_have_more() {
            host.in_pool = true;
            self.pools[host.pace as usize].hosts.push_back(name.clone());
        }
        let idle = host.waiting.is_empty() && host.busy == 0;
        if idle && (host.pace == Pace::Unknown || self.hosts.len() > MAX_IDLE_HOSTS) {
            self.hosts.remove(name);
        }
    }

    /// The next one to try, if its turn has come.
    pub fn next(&mut self, now: i64) -> Option<DueCallback> {
        while let Some((at, _)) = self.later.first()
            && *at <= now
        {
            let Some((_, object)) = self.later.pop_first() else { break };
            if let Some(queue) = self.objects.get_mut(&object) {
                queue.stage = Stage::Idle;
            }
            self.enqueue_object(&object);
        }
        while self.running() < MAX_POSTS {
            let count = self.pools.len();
            let pool = (0..count).map(|n| (self.next_pool + n) % count).find(|pool| {
                let HostPool { hosts, running } = &self.pools[*pool];
                !hosts.is_empty() && *running < Pace::ALL[*pool].limits().1
            })?;
            let pace = Pace::ALL[pool];
            let name = self.pools[pool].hosts.pop_front()?;
            let Some(host) = self.hosts.get_mut(&name) else { continue };
            host.in_pool = false;
            if host.pace != pace || !host.may_have_more() {
                self.enqueue_host(&name);
                continue;
            }
            let Some(object) = host.waiting.pop_front() else { continue };
            let queued = self.objects.get_mut(&object).filter(|queue| queue.stage == Stage::Queued);
            let Some((queue, sequence)) = queued
                .and_then(|queue| queue.pending.front().map(|(sequence, _)| *sequence).map(|s| (queue, s)))
            else {
                self.enqueue_host(&name);
                continue;
            };
            host.busy += 1;
            self.pools[pool].running += 1;
            self.next_pool = (pool + 1) % count;
            queue.stage = Stage::Running { host: name.clone(), pace };
            let attempts = queue.attempts;
            self.enqueue_host(&name);
            return Some(DueCallback { object, sequence, attempts });
        }
        None
    }

    fn running(&self) -> usize {
        self.pools.iter().map(|pool| pool.running).sum()
    }

    /// When [`Self::next`] has something that it has not now, unless a try ends before.
    pub fn wake(&self) -> Option<i64> {
        self.later.first().map(|(at, _)| *at)
    }

    /// A try ended after so long. `random` is between 0 and 1.
    pub fn attempt_ended(&mut self, object: &Name, ended: AttemptEnd, took: Duration, now: i64, random: f64) {
        let Some(queue) = self.objects.get_mut(object) else { return };
        let (name, pace) = match std::mem::take(&mut queue.stage) {
            Stage::Running { host, pace } => (host, pace),
            other => {
                queue.stage = other;
                return;
            }
        };
        let attempted = ended != AttemptEnd::NotAttempted;
        match ended {
            AttemptEnd::Done => {
                if let Some((sequence, _)) = queue.pending.pop_front() {
                    self.without_entry.remove(&sequence);
                    self.pending -= 1;
                }
                queue.attempts = 0;
                queue.last_error.clear();
                if queue.has_entry {
                    self.changed.insert(object.clone());
                } else if queue.pending.is_empty() {
                    self.objects.remove(object);
                }
            }
            AttemptEnd::Retry { error, after } => {
                queue.attempts = queue.attempts.saturating_add(1);
                let delay = retry_delay(queue.attempts, random).max(after.unwrap_or_default());
                queue.next_try = now.saturating_add(i64::try_from(delay.as_millis()).unwrap_or(i64::MAX));
                queue.last_error = error;
                queue.stage = Stage::Later;
                self.later.insert((queue.next_try, object.clone()));
                self.changed.insert(object.clone());
            }
            AttemptEnd::NotAttempted => {
                queue.next_try = now.saturating_add(NOT_ATTEMPTED_DELAY);
                queue.stage = Stage::Later;
                self.later.insert((queue.next_try, object.clone()));
            }
        }
        self.pools[pace as usize].running -= 1;
        if let Some(host) = self.hosts.get_mut(&name) {
            host.busy -= 1;
            if attempted {
                host.pace = if took <= PROMPT { Pace::Prompt } else { Pace::Slow };
            }
        }
        self.enqueue_object(object);
        self.enqueue_host(&name);
    }

    /// When the first of an object is tried again, if it waits for that.
    pub fn next_try(&self, object: &Name) -> Option<i64> {
        self.objects.get(object).filter(|queue| queue.stage == Stage::Later).map(|queue| queue.next_try)
    }

    /// Whether callbacks of an object wait.
    pub fn is_waiting(&self, object: &Name) -> bool {
        self.objects.get(object).is_some_and(|queue| !queue.pending.is_empty())
    }

    /// Keeps an object's callbacks back while somebody else posts for it; false: one is on its way.
    pub fn pause(&mut self, object: &Name) -> bool {
        let queue = self.objects.entry(object.clone()).or_default();
        match queue.stage {
            Stage::Running { .. } | Stage::Paused => return false,
            Stage::Later => {
                self.later.remove(&(queue.next_try, object.clone()));
            }
            Stage::Queued => {
                for host in self.hosts.values_mut() {
                    host.waiting.retain(|one| one != object);
                }
            }
            Stage::Idle => {}
        }
        queue.stage = Stage::Paused;
        true
    }

    /// Lets an object's callbacks go on, at once; how many there are.
    pub fn resume(&mut self, object: &Name) -> usize {
        let Some(queue) = self.objects.get_mut(object) else { return 0 };
        queue.stage = Stage::Idle;
        let waiting = queue.pending.len();
        if waiting == 0 && !queue.has_entry {
            self.objects.remove(object);
        }
        self.enqueue_object(object);
        waiting
    }

    /// What changed of what is remembered. Each is confirmed by [`Self::remembered`] once it is written.
    pub fn changes(&self) -> Vec<Change> {
        let change = |object: &Name| {
            let queue = self.objects.get(object)?;
            let entry = queue.pending.front().map(|(from, _)| Entry {
                from: *from,
                attempts: queue.attempts,
                next_try: queue.next_try,
                last_error: queue.last_error.clone(),
            });
            Some(Change { object: object.clone(), entry })
        };
        self.changed.iter().filter_map(change).collect()
    }

    /// A change is written.
    pub fn change_saved(&mut self, change: &Change) {
        self.changed.remove(&change.object);
        let Some(queue) = self.objects.get_mut(&change.object) else { return };
        queue.has_entry = change.entry.is_some();
        if queue.has_entry {
            for (sequence, _) in &queue.pending {
                self.without_entry.remove(sequence);
            }
        } else if queue.pending.is_empty() && queue.stage == Stage::Idle {
            self.objects.remove(&change.object);
        } else {
            // They came while the entry was being deleted.
            self.without_entry.extend(queue.pending.iter().map(|(sequence, _)| *sequence));
        }
    }

    /// Up to here nothing is left to do, but for objects that have an entry.
    pub fn floor(&self) -> u64 {
        self.without_entry.first().map_or(self.read, |first| first - 1)
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
fn retry_delay(attempts: u32, random: f64) -> Duration {
    let doubled = FIRST_DELAY.saturating_mul(2_u32.saturating_pow(attempts.clamp(1, 16) - 1));
    doubled.min(MAX_DELAY).mul_f64(0.8 + 0.4 * random.clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests;
