//! What is said of callbacks on their objects: the condition `CallbackDelivered`, from the first callback that was not
//! taken. An object whose callbacks are all taken is not written. Pure: times are Unix milliseconds.

use std::collections::{BTreeSet, HashMap};

use eno_core::Name;
use serde::{Deserialize, Serialize};

/// Writes at any time.
const MAX_CONCURRENT_WRITES: usize = 4;
/// What passes within this time is not said.
const FIRST_DELAY: i64 = 1000;
/// An object is written so often at most, but to say that all is well again, or what may be lost.
const MIN_INTERVAL: i64 = 5000;

/// A callback that was not taken.
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
    /// Its generation at that transition, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<i64>,
    /// Which of the object's transitions was not delivered.
    pub counter: u64,
    /// Its sequence in the outbox.
    pub sequence: u64,
    /// The last one that was, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivered: Option<u64>,
    /// How often it was tried.
    pub attempts: u32,
    /// When it is tried again, Unix milliseconds; absent: not by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_try: Option<i64>,
    /// Why it was not taken.
    pub error: String,
    /// When the first one was not taken, Unix milliseconds.
    pub since: i64,
}

/// What is to be said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Of which object, and what was not delivered.
    pub about: Undelivered,
    /// The callback that was taken and after which all was well again, or none when the object wants no callbacks any
    /// more; and when that was.
    pub recovered: Option<(Option<u64>, i64)>,
}

/// How saying it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteOutcome {
    /// It is said.
    Done,
    /// There is no such object any more.
    Gone,
    /// It is to be tried again.
    Retry,
}

#[derive(Debug)]
struct Item {
    notice: Notice,
    /// The object has the condition, or may have it.
    shown: bool,
    /// What is being written.
    running: Option<Notice>,
    due: Option<i64>,
    last: i64,
}

/// All that is or was to be said.
#[derive(Debug, Default)]
pub struct Notices {
    items: HashMap<Name, Item>,
    due: BTreeSet<(i64, Name)>,
    running: usize,
}

impl Notices {
    /// Takes up what was said before. `settled`: its callback is delivered, so far as is known.
    pub fn restore(&mut self, object: &Name, about: Undelivered, settled: bool, now: i64) {
        let recovered = settled.then_some((Some(about.counter), now));
        let notice = Notice { about, recovered };
        let item = Item { notice, shown: true, running: None, due: None, last: 0 };
        self.items.insert(object.clone(), item);
        self.schedule(object, now);
    }

    /// Whether something is or was to be said of an object.
    pub fn contains(&self, object: &Name) -> bool {
        self.items.contains_key(object)
    }

    /// That it was said may be lost: all that is not well is said once more.
    pub fn rewrite_all(&mut self, now: i64) {
        let written = |item: &Item| item.shown || item.running.is_some();
        let lasting = self.items.iter().filter(|(_, item)| written(item) && item.notice.recovered.is_none());
        let due: Vec<_> =
            lasting.map(|(object, item)| (object.clone(), now.max(item.last + MIN_INTERVAL))).collect();
        for (object, at) in due {
            self.schedule(&object, at);
        }
    }

    /// A callback was not taken.
    pub fn failed(&mut self, object: &Name, mut about: Undelivered, now: i64) {
        let at = if let Some(item) = self.items.get_mut(object) {
            match item.notice.recovered {
                None => {
                    about.since = item.notice.about.since;
                    about.delivered = about.delivered.max(item.notice.about.delivered);
                }
                Some((counter, _)) => about.delivered = about.delivered.max(counter),
            }
            item.notice = Notice { about, recovered: None };
            item.due.unwrap_or_else(|| now.max(item.last + MIN_INTERVAL))
        } else {
            let notice = Notice { about, recovered: None };
            let item = Item { notice, shown: false, running: None, due: None, last: 0 };
            self.items.insert(object.clone(), item);
            now + FIRST_DELAY
        };
        self.schedule(object, at);
    }

    /// A callback was taken, or with `None` is not wanted any more.
    pub fn delivered(&mut self, object: &Name, counter: Option<u64>, now: i64) {
        let Some(item) = self.items.get_mut(object) else { return };
        if item.shown || item.running.is_some() {
            if item.notice.recovered.is_none() {
                item.notice.recovered = Some((counter, now));
                self.schedule(object, now);
            }
        } else {
            if let Some(due) = item.due {
                self.due.remove(&(due, object.clone()));
            }
            self.items.remove(object);
        }
    }

    fn schedule(&mut self, object: &Name, at: i64) {
        let Some(item) = self.items.get_mut(object) else { return };
        if let Some(due) = item.due.replace(at) {
            self.due.remove(&(due, object.clone()));
        }
        // While one is being written, the next waits for its end.
        if item.running.is_none() {
            self.due.insert((at, object.clone()));
        }
    }

    /// The next one to say, if its time has come.
    pub fn next(&mut self, now: i64) -> Option<(Name, Notice)> {
        if self.running >= MAX_CONCURRENT_WRITES || self.due.first().is_none_or(|(at, _)| *at > now) {
            return None;
        }
        let (_, object) = self.due.pop_first()?;
        let item = self.items.get_mut(&object)?;
        item.due = None;
        item.running = Some(item.notice.clone());
        self.running += 1;
        Some((object, item.notice.clone()))
    }

    /// When [`Self::next`] has something that it has not now, unless a write ends before.
    pub fn wake(&self) -> Option<i64> {
        self.due.first().map(|(at, _)| *at).filter(|_| self.running < MAX_CONCURRENT_WRITES)
    }

    /// Saying it ended.
    pub fn written(&mut self, object: &Name, outcome: WriteOutcome, now: i64) {
        let Some(item) = self.items.get_mut(object) else { return };
        let Some(notice) = item.running.take() else { return };
        self.running -= 1;
        item.last = now;
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
                if let Some(due) = item.due.take() {
                    self.schedule(object, due);
                }
            }
            WriteOutcome::Retry => {
                // Whether it arrived is not known.
                item.shown = true;
                self.schedule(object, now + MIN_INTERVAL);
            }
        }
    }

    /// How many objects have a callback that was not taken.
    pub fn len(&self) -> usize {
        self.items.values().filter(|item| item.notice.recovered.is_none()).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            since: 7,
        }
    }

    fn name() -> Name {
        "L2Service._.a".into()
    }

    #[test]
    fn transient_failure_is_not_written() {
        let mut notices = Notices::default();
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
        let mut notices = Notices::default();
        notices.failed(&name(), undelivered(3, 1), 0);
        let (_, notice) = notices.next(FIRST_DELAY).unwrap();
        assert_eq!((notice.about.counter, notice.recovered), (3, None));
        // It fails again while that is written.
        notices.failed(&name(), Undelivered { since: 99, ..undelivered(3, 2) }, FIRST_DELAY);
        assert_eq!(notices.next(i64::MAX), None);
        notices.written(&name(), WriteOutcome::Done, FIRST_DELAY);
        let again = notices.wake().unwrap();
        assert!(again <= FIRST_DELAY + MIN_INTERVAL);
        let (_, notice) = notices.next(again).unwrap();
        assert_eq!((notice.about.attempts, notice.about.since), (2, 7));
        notices.written(&name(), WriteOutcome::Done, again);
        notices.failed(&name(), undelivered(3, 3), again + 1);
        assert_eq!(notices.wake(), Some(again + MIN_INTERVAL));
        notices.delivered(&name(), Some(3), again + 2);
        let (_, notice) = notices.next(again + 2).unwrap();
        assert_eq!(notice.recovered, Some((Some(3), again + 2)));
        assert_eq!(notices.len(), 0);
        notices.written(&name(), WriteOutcome::Done, again + 2);
        assert_eq!(notices.wake(), None);
        // What was delivered meanwhile is known of the next one.
        notices.failed(&name(), undelivered(4, 1), again + 3);
        assert_eq!(notices.next(again + 3 + FIRST_DELAY).unwrap().1.about.counter, 4);
    }

    #[test]
    fn recovery_during_write_is_written_afterwards() {
        let mut notices = Notices::default();
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
        let mut notices = Notices::default();
        notices.restore(&name(), undelivered(1, 5), true, 100);
        assert_eq!(notices.next(100).unwrap().1.recovered, Some((Some(1), 100)));
        let mut notices = Notices::default();
        notices.restore(&name(), undelivered(1, 5), false, 100);
        assert_eq!(notices.next(100).unwrap().1.recovered, None);
        notices.written(&name(), WriteOutcome::Done, 100);
        notices.delivered(&name(), Some(1), 101);
        assert!(notices.next(101).unwrap().1.recovered.is_some());
    }

    #[test]
    fn rewrite_all_schedules_written_failures_again() {
        let mut notices = Notices::default();
        notices.failed(&name(), undelivered(1, 1), 0);
        // Not said yet.
        notices.rewrite_all(0);
        assert_eq!(notices.wake(), Some(FIRST_DELAY));
        notices.next(FIRST_DELAY).unwrap();
        // While it is said the first time.
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
        let mut notices = Notices::default();
        for n in 0..10 {
            notices.failed(&n.to_string().into(), undelivered(1, 1), 0);
        }
        assert_eq!(std::iter::from_fn(|| notices.next(FIRST_DELAY)).count(), MAX_CONCURRENT_WRITES);
        assert_eq!(notices.wake(), None);
    }
}
