//! Schedules writes of the condition `CallbackDelivered`, from the first failed callback on. Objects whose callbacks
//! all succeed get no condition. Pure: times are Unix milliseconds.

use std::collections::HashMap;

use eno_core::Name;
use eno_queue::DelayQueue;
use serde::{Deserialize, Serialize};

/// Maximum concurrent writes.
const MAX_CONCURRENT_WRITES: usize = 4;
/// Delay after the beginning of a failed attempt, in milliseconds. A recovery within it cancels the write. No attempt
/// takes longer, so the time of the write does not tell how the attempt ended.
pub const DELAY: i64 = 16_000;
/// Minimum interval of writes of one object in milliseconds. Recoveries are written at once.
const MIN_INTERVAL: i64 = 5000;

/// An object with a failing callback.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Undelivered {
    /// The object's kind.
    pub kind: String,
    /// Its namespace, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// Its generation at the transition, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<i64>,
    /// Counter of the transition that was not delivered.
    pub counter: u64,
    /// Sequence of that transition in the outbox.
    pub sequence: u64,
    /// Counter of the last delivered transition, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivered: Option<u64>,
    /// Number of attempts.
    pub attempts: u32,
    /// Time of the next attempt in Unix milliseconds; absent: there is no automatic one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_try: Option<i64>,
    /// Error of the last attempt, for admins.
    pub error: String,
    /// The same for the writers of the object; absent: they read only that it was not taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shown: Option<String>,
    /// When the first failed attempt began, Unix milliseconds.
    pub since: i64,
}

/// A condition to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// The object and its failing callback.
    pub about: Undelivered,
    /// The recovery and its time: the delivered callback, or `None` if the object wants no callbacks any more.
    pub recovered: Option<(Option<u64>, i64)>,
}

/// Outcome of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteOutcome {
    /// The condition is written.
    Done,
    /// The object is gone.
    Gone,
    /// The write has to be retried.
    Retry,
}

#[derive(Debug)]
struct Item {
    notice: Notice,
    /// The object has the condition, or may have it.
    shown: bool,
    /// The notice being written.
    running: Option<Notice>,
    /// When the next write is due after the one in progress.
    next: Option<i64>,
    /// Time of the last write.
    last: i64,
}

/// All pending and written notices.
#[derive(Debug, Default)]
pub struct Notices {
    /// See [`DELAY`].
    delay: i64,
    /// The notice of each object.
    items: HashMap<Name, Item>,
    /// Objects whose notice waits for its write.
    due: DelayQueue<Name, i64>,
    /// Number of writes in progress.
    running: usize,
}

impl Notices {
    /// `delay`: [`DELAY`], or less in tests.
    pub fn new(delay: i64) -> Self {
        Self { delay, ..Self::default() }
    }

    /// Restores a notice that was written before. `settled`: its callback is delivered, as far as is known.
    pub fn restore(&mut self, object: &Name, about: Undelivered, settled: bool, now: i64) {
        let recovered = settled.then_some((Some(about.counter), now));
        let notice = Notice { about, recovered };
        let item = Item { notice, shown: true, running: None, next: None, last: 0 };
        self.items.insert(object.clone(), item);
        self.schedule(object, now);
    }

    /// True when the object has a notice.
    pub fn contains(&self, object: &Name) -> bool {
        self.items.contains_key(object)
    }

    /// Schedules all written failures again, since records of them may be lost.
    pub fn rewrite_all(&mut self, now: i64) {
        let written = |item: &Item| item.shown || item.running.is_some();
        let lasting = self.items.iter().filter(|(_, item)| written(item) && item.notice.recovered.is_none());
        let due: Vec<_> =
            lasting.map(|(object, item)| (object.clone(), now.max(item.last + MIN_INTERVAL))).collect();
        for (object, at) in due {
            self.schedule(&object, at);
        }
    }

    /// A callback failed.
    pub fn failed(&mut self, object: &Name, mut about: Undelivered, now: i64) {
        let earliest = now.max(about.since.saturating_add(self.delay));
        let at = if let Some(item) = self.items.get_mut(object) {
            match item.notice.recovered {
                None => {
                    about.since = item.notice.about.since;
                    about.delivered = about.delivered.max(item.notice.about.delivered);
                }
                Some((counter, _)) => about.delivered = about.delivered.max(counter),
            }
            item.notice = Notice { about, recovered: None };
            item.next.or(self.due.due(object)).unwrap_or_else(|| earliest.max(item.last + MIN_INTERVAL))
        } else {
            let notice = Notice { about, recovered: None };
            let item = Item { notice, shown: false, running: None, next: None, last: 0 };
            self.items.insert(object.clone(), item);
            earliest
        };
        self.schedule(object, at);
    }

    /// A callback was delivered; `None`: the object wants no callbacks any more.
    pub fn delivered(&mut self, object: &Name, counter: Option<u64>, now: i64) {
        let Some(item) = self.items.get_mut(object) else { return };
        if item.shown || item.running.is_some() {
            if item.notice.recovered.is_none() {
                item.notice.recovered = Some((counter, now));
                self.schedule(object, now);
            }
        } else {
            self.due.remove(object);
            self.items.remove(object);
        }
    }

    fn schedule(&mut self, object: &Name, at: i64) {
        let Some(item) = self.items.get_mut(object) else { return };
        if item.running.is_some() {
            item.next = Some(at);
        } else {
            self.due.insert(object.clone(), at);
        }
    }

    /// The next notice to write, if one is due.
    pub fn next(&mut self, now: i64) -> Option<(Name, Notice)> {
        if self.running >= MAX_CONCURRENT_WRITES {
            return None;
        }
        let object = self.due.pop(now)?;
        let item = self.items.get_mut(&object)?;
        item.running = Some(item.notice.clone());
        self.running += 1;
        Some((object, item.notice.clone()))
    }

    /// When [`Self::next`] may return a notice, unless a write ends before.
    pub fn wake(&self) -> Option<i64> {
        self.due.wake().filter(|_| self.running < MAX_CONCURRENT_WRITES)
    }

    /// A write ended.
    pub fn written(&mut self, object: &Name, outcome: WriteOutcome, now: i64) {
        let Some(item) = self.items.get_mut(object) else { return };
        let Some(notice) = item.running.take() else { return };
        self.running -= 1;
        item.last = now;
        let next = item.next.take();
        let changed = item.notice != notice;
        match outcome {
            WriteOutcome::Gone => {
                self.items.remove(object);
            }
            WriteOutcome::Done if notice.recovered.is_some() && !changed => {
                self.items.remove(object);
            }
            WriteOutcome::Done => {
                item.shown = true;
                if let Some(at) = next {
                    self.schedule(object, at);
                }
            }
            WriteOutcome::Retry => {
                // The write may have succeeded.
                item.shown = true;
                self.schedule(object, now + MIN_INTERVAL);
            }
        }
    }

    /// Number of objects with a failing callback.
    pub fn len(&self) -> usize {
        self.items.values().filter(|item| item.notice.recovered.is_none()).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST_DELAY: i64 = 1000;

    fn undelivered(counter: u64, attempts: u32) -> Undelivered {
        Undelivered {
            kind: "L2Service".into(),
            namespace: None,
            name: "a".into(),
            uid: "u".into(),
            generation: Some(1),
            counter,
            sequence: counter,
            delivered: None,
            attempts,
            next_try: Some(0),
            error: "no".into(),
            shown: None,
            since: 0,
        }
    }

    fn name() -> Name {
        "L2Service._.a".into()
    }

    #[test]
    fn transient_failure_is_not_written() {
        let mut notices = Notices::new(FIRST_DELAY);
        notices.failed(&name(), undelivered(1, 1), 0);
        assert_eq!(
            (notices.next(FIRST_DELAY - 1), notices.wake(), notices.len()),
            (None, Some(FIRST_DELAY), 1)
        );
        notices.delivered(&name(), Some(1), FIRST_DELAY - 1);
        assert_eq!((notices.next(i64::MAX), notices.wake(), notices.len()), (None, None, 0));
        notices.delivered(&name(), Some(2), FIRST_DELAY);
        assert_eq!(notices.next(i64::MAX), None);
    }

    #[test]
    fn lasting_failure_is_rate_limited_and_recovery_immediate() {
        let mut notices = Notices::new(FIRST_DELAY);
        notices.failed(&name(), undelivered(3, 1), 0);
        let (_, notice) = notices.next(FIRST_DELAY).unwrap();
        assert_eq!((notice.about.counter, notice.recovered), (3, None));
        // Another failure during the write.
        notices.failed(&name(), Undelivered { since: 99, ..undelivered(3, 2) }, FIRST_DELAY);
        assert_eq!(notices.next(i64::MAX), None);
        notices.written(&name(), WriteOutcome::Done, FIRST_DELAY);
        let again = notices.wake().unwrap();
        assert!(again <= FIRST_DELAY + MIN_INTERVAL);
        let (_, notice) = notices.next(again).unwrap();
        assert_eq!((notice.about.attempts, notice.about.since), (2, 0));
        notices.written(&name(), WriteOutcome::Done, again);
        notices.failed(&name(), undelivered(3, 3), again + 1);
        assert_eq!(notices.wake(), Some(again + MIN_INTERVAL));
        notices.delivered(&name(), Some(3), again + 2);
        let (_, notice) = notices.next(again + 2).unwrap();
        assert_eq!(notice.recovered, Some((Some(3), again + 2)));
        assert_eq!(notices.len(), 0);
        notices.written(&name(), WriteOutcome::Done, again + 2);
        assert_eq!(notices.wake(), None);
        // The next failure knows the last delivery.
        notices.failed(&name(), undelivered(4, 1), again + 3);
        assert_eq!(notices.next(again + 3 + FIRST_DELAY).unwrap().1.about.counter, 4);
    }

    #[test]
    fn recovery_during_write_is_written_afterwards() {
        let mut notices = Notices::new(FIRST_DELAY);
        notices.failed(&name(), undelivered(1, 1), 0);
        notices.next(FIRST_DELAY).unwrap();
        notices.delivered(&name(), Some(1), FIRST_DELAY);
        notices.written(&name(), WriteOutcome::Retry, FIRST_DELAY);
        let at = notices.wake().unwrap();
        assert!(notices.next(at).unwrap().1.recovered.is_some());
        notices.failed(&name(), undelivered(2, 1), at);
        notices.written(&name(), WriteOutcome::Done, at);
        let at = notices.wake().unwrap();
        let (_, notice) = notices.next(at).unwrap();
        assert_eq!((notice.about.counter, notice.about.delivered, notice.recovered), (2, Some(1), None));
        notices.written(&name(), WriteOutcome::Gone, at);
        assert_eq!((notices.len(), notices.wake()), (0, None));
    }

    #[test]
    fn restored_notice_continues_or_recovers() {
        let mut notices = Notices::new(FIRST_DELAY);
        notices.restore(&name(), undelivered(1, 5), true, 100);
        assert_eq!(notices.next(100).unwrap().1.recovered, Some((Some(1), 100)));
        let mut notices = Notices::new(FIRST_DELAY);
        notices.restore(&name(), undelivered(1, 5), false, 100);
        assert_eq!(notices.next(100).unwrap().1.recovered, None);
        notices.written(&name(), WriteOutcome::Done, 100);
        notices.delivered(&name(), Some(1), 101);
        assert!(notices.next(101).unwrap().1.recovered.is_some());
    }

    #[test]
    fn rewrite_all_schedules_written_failures_again() {
        let mut notices = Notices::new(FIRST_DELAY);
        notices.failed(&name(), undelivered(1, 1), 0);
        // Not written yet.
        notices.rewrite_all(0);
        assert_eq!(notices.wake(), Some(FIRST_DELAY));
        notices.next(FIRST_DELAY).unwrap();
        // During the first write.
        notices.rewrite_all(FIRST_DELAY);
        notices.written(&name(), WriteOutcome::Done, FIRST_DELAY);
        let again = notices.wake().unwrap();
        assert!(again <= FIRST_DELAY + MIN_INTERVAL);
        assert_eq!(notices.next(again).unwrap().1.recovered, None);
        notices.written(&name(), WriteOutcome::Done, again);
        assert_eq!(notices.wake(), None);
        notices.rewrite_all(again + 1);
        assert_eq!(notices.wake(), Some(again + MIN_INTERVAL));
        notices.delivered(&name(), Some(1), again + 2);
        assert!(notices.next(again + 2).unwrap().1.recovered.is_some());
        notices.written(&name(), WriteOutcome::Done, again + 2);
        notices.rewrite_all(again + 3);
        assert_eq!(notices.wake(), None);
    }

    #[test]
    fn concurrent_writes_are_limited() {
        let mut notices = Notices::new(FIRST_DELAY);
        for n in 0..10 {
            notices.failed(&n.to_string().into(), undelivered(1, 1), 0);
        }
        assert_eq!(std::iter::from_fn(|| notices.next(FIRST_DELAY)).count(), MAX_CONCURRENT_WRITES);
        assert_eq!(notices.wake(), None);
    }

    #[test]
    fn time_of_the_write_tells_nothing_about_the_attempt() {
        let write = |took: i64| {
            let mut notices = Notices::new(DELAY);
            notices.failed(&name(), undelivered(1, 1), took);
            let first = notices.wake().unwrap();
            notices.next(first).unwrap();
            notices.written(&name(), WriteOutcome::Done, first);
            notices.delivered(&name(), Some(1), 50_000);
            notices.next(50_000).unwrap();
            // The endpoint was changed before the recovery is written.
            notices.failed(&name(), Undelivered { since: 60_000, ..undelivered(2, 1) }, 60_000 + took);
            notices.written(&name(), WriteOutcome::Done, 50_010);
            (first, notices.wake().unwrap())
        };
        assert_eq!(write(1), (16_000, 76_000));
        assert_eq!(write(15_000), (16_000, 76_000));
    }
}
