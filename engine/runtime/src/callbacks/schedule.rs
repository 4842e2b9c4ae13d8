//! Decides which callback is posted next. Pure: times are Unix milliseconds, and time and random numbers are
//! arguments.
//!
//! Callbacks of an object are posted in order and one at a time. Posts are limited per host and in total. Hosts that
//! are not known to respond promptly share a part of the total, so that dead hosts never displace responsive ones.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::time::Duration;

use eno_core::Name;
use eno_queue::{Backoff, DelayQueue};
use serde::{Deserialize, Serialize};

/// Maximum concurrent posts.
const MAX_POSTS: usize = 512;
/// Maximum concurrent posts per host.
const MAX_POSTS_PER_HOST: usize = 8;
/// Maximum concurrent posts to all hosts of unknown pace.
const MAX_POSTS_UNKNOWN: usize = 256;
/// Maximum concurrent posts to all slow hosts.
const MAX_POSTS_SLOW: usize = 128;
/// Maximum concurrent posts per host of unknown or slow pace.
const MAX_POSTS_PER_OTHER_HOST: usize = 2;
/// A host is prompt if it responds within this time, whatever the response.
const PROMPT: Duration = Duration::from_secs(1);
/// Maximum hosts that are remembered without pending posts.
const MAX_IDLE_HOSTS: usize = 4096;
const BACKOFF: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_hours(1)).with_jitter(0.8, 1.2);
/// Delay in milliseconds after a callback could not be attempted.
const NOT_ATTEMPTED_DELAY: i64 = 1000;

/// The stored state of an object whose endpoint failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// Sequence of the first transition that was not delivered.
    pub from: u64,
    /// Number of attempts.
    pub attempts: u32,
    /// Time of the next attempt, Unix milliseconds.
    pub next_try: i64,
    /// Error of the last attempt.
    pub last_error: String,
}

/// A callback to post.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DueCallback {
    /// The object.
    pub object: Name,
    /// The transition's sequence in the outbox.
    pub sequence: u64,
    /// Number of earlier attempts.
    pub attempts: u32,
}

/// Outcome of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttemptEnd {
    /// Nothing is left to do for this transition.
    Done,
    /// It could not be attempted, for a reason other than its endpoint.
    NotAttempted,
    /// It has to be retried.
    Retry {
        /// Error text.
        error: String,
        /// Minimum delay that the endpoint asked for.
        after: Option<Duration>,
    },
}

/// A change of the stored state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The object.
    pub object: Name,
    /// The new entry; `None`: the entry is deleted.
    pub entry: Option<Entry>,
}

/// All pending callbacks.
#[derive(Debug, Default)]
pub struct Schedule {
    /// Pending callbacks of each object.
    objects: HashMap<Name, ObjectQueue>,
    /// Known hosts.
    hosts: HashMap<Name, Host>,
    /// Hosts that may get another post, by pace.
    pools: [HostPool; Pace::ALL.len()],
    /// Index of the pool that is served next.
    next_pool: usize,
    /// Objects that wait for a retry.
    later: DelayQueue<Name, i64>,
    /// Pending transitions of objects without an entry; they hold the floor down.
    without_entry: BTreeSet<u64>,
    /// Sequence of the newest transition that was read.
    read: u64,
    /// Objects whose stored entry has to change.
    changed: HashSet<Name>,
    /// Number of pending callbacks.
    pending: usize,
    /// Creation time of the outbox, which identifies it.
    pub outbox: i128,
    /// The stored floor.
    pub saved: u64,
}

#[derive(Debug, Default)]
struct HostPool {
    hosts: VecDeque<Name>,
    running: usize,
}

/// How fast a host responded last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Pace {
    Prompt,
    #[default]
    Unknown,
    Slow,
}

impl Pace {
    const ALL: [Self; 3] = [Self::Prompt, Self::Unknown, Self::Slow];

    /// Maximum concurrent posts per host, and for all hosts of this pace.
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
    /// Objects with a callback to post.
    waiting: VecDeque<Name>,
    busy: usize,
    pace: Pace,
    /// The host is in a pool.
    in_pool: bool,
}

impl Host {
    fn may_have_more(&self) -> bool {
        !self.waiting.is_empty() && self.busy < self.pace.limits().0
    }
}

/// The stage of the first callback of an object.
#[derive(Debug, Default, PartialEq, Eq)]
enum Stage {
    /// There is none, or it is not queued yet.
    #[default]
    Idle,
    /// In the queue of its host.
    Queued,
    /// An attempt is in progress, at this host, which had this pace.
    Running { host: Name, pace: Pace },
    /// It waits for its retry at [`ObjectQueue::next_try`].
    Later,
    /// A request posts for this object.
    Paused,
}

#[derive(Debug, Default)]
struct ObjectQueue {
    /// Sequence and host of each pending transition, in order.
    pending: VecDeque<(u64, Name)>,
    /// Stage of the first one.
    stage: Stage,
    /// Attempts of the first one.
    attempts: u32,
    /// Time of its retry, Unix milliseconds.
    next_try: i64,
    /// Error of its last attempt.
    last_error: String,
    /// The object has an entry in the bucket.
    has_entry: bool,
}

impl Schedule {
    /// Starts after the transition `floor`.
    pub fn new(outbox: i128, floor: u64) -> Self {
        Self { outbox, read: floor, saved: floor, ..Self::default() }
    }

    /// Restores an object with an entry, with its transitions up to the floor.
    pub fn restore(&mut self, object: Name, entry: Entry, pending: Vec<(u64, Name)>) {
        let mut queue = ObjectQueue { pending: pending.into(), has_entry: true, ..ObjectQueue::default() };
        match queue.pending.front() {
            // All are delivered or have left the outbox.
            None => {
                self.changed.insert(object.clone());
            }
            Some((first, host)) => {
                if entry.attempts > 0 {
                    self.hosts.entry(host.clone()).or_default().pace = Pace::Slow;
                }
                // The attempts belong to the transition that they were made for.
                queue.attempts = if *first == entry.from { entry.attempts } else { 0 };
                queue.next_try = entry.next_try;
                queue.last_error = entry.last_error;
                queue.stage = Stage::Later;
                self.pending += queue.pending.len();
                self.later.insert(object.clone(), queue.next_try);
            }
        }
        self.objects.insert(object, queue);
    }

    /// The bucket has an entry of this object. An unknown entry is rewritten or deleted.
    pub fn entry_found(&mut self, object: &Name) {
        let queue = self.objects.entry(object.clone()).or_default();
        if !queue.has_entry {
            queue.has_entry = true;
            self.changed.insert(object.clone());
        }
    }

    /// The entry of this object is missing. True: it should exist, and is written again.
    pub fn entry_missing(&mut self, object: &Name) -> bool {
        let entry_expected = self.objects.get(object).is_some_and(|queue| queue.has_entry);
        if entry_expected {
            self.changed.insert(object.clone());
        }
        entry_expected
    }

    /// Stored entries may be lost: writes all of them again.
    pub fn rewrite_entries(&mut self) {
        let entry_expected = self.objects.iter().filter(|(_, queue)| queue.has_entry);
        self.changed.extend(entry_expected.map(|(object, _)| object.clone()));
        self.saved = 0;
    }

    /// Adds a transition; `host`: its endpoint, if it has one. A transition that was read before is skipped: a
    /// consumer that the server recreated starts at the first one.
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

    /// Puts an idle object into the queue of its host.
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

    /// The next callback to post, if one is due.
    pub fn next(&mut self, now: i64) -> Option<DueCallback> {
        while let Some(object) = self.later.pop(now) {
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

    /// When [`Self::next`] may return a callback, unless an attempt ends before.
    pub fn wake(&self) -> Option<i64> {
        self.later.wake()
    }

    /// An attempt ended after the time `took`. `random` is between 0 and 1.
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
                let delay = BACKOFF.delay(queue.attempts, random).max(after.unwrap_or_default());
                queue.next_try = now.saturating_add(i64::try_from(delay.as_millis()).unwrap_or(i64::MAX));
                queue.last_error = error;
                queue.stage = Stage::Later;
                self.later.insert(object.clone(), queue.next_try);
                self.changed.insert(object.clone());
            }
            AttemptEnd::NotAttempted => {
                queue.next_try = now.saturating_add(NOT_ATTEMPTED_DELAY);
                queue.stage = Stage::Later;
                self.later.insert(object.clone(), queue.next_try);
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

    /// The time at which the object's first callback is retried, if it waits for that.
    pub fn next_try(&self, object: &Name) -> Option<i64> {
        self.objects.get(object).filter(|queue| queue.stage == Stage::Later).map(|queue| queue.next_try)
    }

    /// True when the object has pending callbacks.
    pub fn is_waiting(&self, object: &Name) -> bool {
        self.objects.get(object).is_some_and(|queue| !queue.pending.is_empty())
    }

    /// Pauses an object while a request posts for it. False: an attempt is in progress.
    pub fn pause(&mut self, object: &Name) -> bool {
        let queue = self.objects.entry(object.clone()).or_default();
        match queue.stage {
            Stage::Running { .. } | Stage::Paused => return false,
            Stage::Later => {
                self.later.remove(object);
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

    /// Resumes an object at once. Returns the number of its pending callbacks.
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

    /// The changes of the stored state. Each is confirmed by [`Self::change_saved`] after it is written.
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
            // Transitions that arrived while the entry was deleted.
            self.without_entry.extend(queue.pending.iter().map(|(sequence, _)| *sequence));
        }
    }

    /// All transitions up to here are delivered, except those of objects with an entry.
    pub fn floor(&self) -> u64 {
        self.without_entry.first().map_or(self.read, |first| first - 1)
    }

    /// The newest transition that was read.
    pub fn read(&self) -> u64 {
        self.read
    }

    /// Number of pending callbacks.
    pub fn len(&self) -> usize {
        self.pending
    }
}

#[cfg(test)]
mod tests;
