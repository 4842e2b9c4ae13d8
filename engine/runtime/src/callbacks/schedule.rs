//! Decides which callback is posted next. Pure: times are Unix milliseconds, and time and random numbers are
//! arguments.
//!
//! Callbacks of an object are posted in order and one at a time. [`Hosts`] decides which host gets the next post.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::time::Duration;

use eno_core::Name;
use eno_queue::{Backoff, DelayQueue};
use serde::{Deserialize, Serialize};

use super::hosts::{Hosts, Pace, Started};

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
    /// The hosts of the endpoints.
    hosts: Hosts,
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
    /// The first one left the outbox during its attempt: the second one takes its place.
    is_replaced: bool,
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
                    self.hosts.mark_slow(host);
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

    /// The same for a transition that takes the place of the object's last one, which leaves the outbox.
    pub fn add_joined(&mut self, object: &Name, sequence: u64, host: Option<Name>) {
        if sequence > self.read && host.is_some() {
            self.drop_last(object);
        }
        self.add(object, sequence, host);
    }

    /// Forgets the last transition of an object, to which another one is added.
    fn drop_last(&mut self, object: &Name) {
        let Some(queue) = self.objects.get_mut(object) else { return };
        if queue.pending.len() == 1 && matches!(queue.stage, Stage::Running { .. } | Stage::Paused) {
            queue.is_replaced = queue.stage != Stage::Paused;
            return;
        }
        if let Some((sequence, _)) = queue.pending.pop_back() {
            self.without_entry.remove(&sequence);
            self.pending -= 1;
            if queue.has_entry && queue.pending.is_empty() {
                self.changed.insert(object.clone());
            }
        }
    }

    /// Puts an idle object into the queue of its host.
    fn enqueue_object(&mut self, object: &Name) {
        let Some(queue) = self.objects.get_mut(object).filter(|queue| queue.stage == Stage::Idle) else {
            return;
        };
        let Some((_, host)) = queue.pending.front() else { return };
        queue.stage = Stage::Queued;
        self.hosts.push(host, object.clone());
    }

    /// The next callback to post, if one is due.
    pub fn next(&mut self, now: i64) -> Option<DueCallback> {
        while let Some(object) = self.later.pop(now) {
            if let Some(queue) = self.objects.get_mut(&object) {
                queue.stage = Stage::Idle;
            }
            self.enqueue_object(&object);
        }
        while let Some(Started { object, host, pace }) = self.hosts.start() {
            let queue = self.objects.get_mut(&object).filter(|queue| queue.stage == Stage::Queued);
            let first = queue.and_then(|queue| Some((queue.pending.front()?.0, queue)));
            if let Some((sequence, queue)) = first {
                queue.stage = Stage::Running { host, pace };
                return Some(DueCallback { object, sequence, attempts: queue.attempts });
            }
            self.hosts.ended(&host, pace, None);
            self.hosts.offer(&host);
        }
        None
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
        if std::mem::take(&mut queue.is_replaced)
            && ended != AttemptEnd::Done
            && let Some((sequence, _)) = queue.pending.pop_front()
        {
            // The attempts go on with its successor.
            self.without_entry.remove(&sequence);
            self.pending -= 1;
        }
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
        self.hosts.ended(&name, pace, attempted.then_some(took));
        self.enqueue_object(object);
        self.hosts.offer(&name);
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
            Stage::Queued => self.hosts.remove(object),
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
