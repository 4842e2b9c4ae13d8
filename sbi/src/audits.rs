//! When devices are read again without a command or a notification.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use eno_queue::DelayQueue;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::random::random_up_to;

/// Schedules the audits of all devices. Each is due about one interval after its last read, spread over time.
#[derive(Debug, Default)]
pub struct AuditSchedule {
    audits: Mutex<Audits>,
    /// Notified when an audit becomes due earlier.
    sooner: Notify,
}

#[derive(Debug, Default)]
struct Audits {
    due: DelayQueue<String, Instant>,
    intervals: HashMap<String, Duration>,
}

impl AuditSchedule {
    fn audits(&self) -> MutexGuard<'_, Audits> {
        self.audits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a read. The next audit is due after about `interval`.
    pub fn record_read(&self, target: &str, interval: Duration) {
        // Between three and five quarters of the interval.
        let at = Instant::now() + interval * 3 / 4 + random_up_to(interval / 2);
        let mut audits = self.audits();
        let before = audits.due.wake();
        audits.due.insert(target.to_owned(), at);
        audits.intervals.insert(target.to_owned(), interval);
        if before.is_none_or(|before| at < before) {
            self.sooner.notify_one();
        }
    }

    /// Forgets a device that is gone.
    pub fn forget(&self, target: &str) {
        let mut audits = self.audits();
        audits.due.remove(target);
        audits.intervals.remove(target);
    }

    /// Waits for the next due audit.
    pub async fn next(&self) -> String {
        loop {
            let (due, wake) = {
                let mut audits = self.audits();
                let due = audits.due.pop(Instant::now());
                let interval = due.as_ref().and_then(|target| audits.intervals.get(target).copied());
                (due.zip(interval), audits.due.wake())
            };
            if let Some((target, interval)) = due {
                self.record_read(&target, interval);
                return target;
            }
            match wake {
                // After the timeout or a notification, the first audit is determined again.
                Some(at) => drop(tokio::time::timeout_at(at, self.sooner.notified()).await),
                None => self.sooner.notified().await,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn each_device_is_audited_once_per_interval() {
        let interval = Duration::from_mins(10);
        let audits = AuditSchedule::default();
        let names: Vec<String> = (0..100).map(|number| format!("switch{number}")).collect();
        for name in &names {
            audits.record_read(name, interval);
        }
        let start = Instant::now();
        let mut audited_at: BTreeMap<String, Vec<Duration>> = BTreeMap::new();
        for _ in 0..1000 {
            audited_at.entry(audits.next().await).or_default().push(start.elapsed());
        }
        assert_eq!(audited_at.len(), names.len());
        for (name, times) in &audited_at {
            let mut last = Duration::ZERO;
            for time in times {
                let apart = (*time).checked_sub(last).unwrap();
                assert!(apart >= interval * 3 / 4 && apart <= interval * 5 / 4, "{name}: {apart:?}");
                last = *time;
            }
        }
        let mut all: Vec<Duration> = audited_at.into_values().flatten().collect();
        all.sort_unstable();
        let at_once = all
            .chunk_by(|a, b| (*b).checked_sub(*a).unwrap() < Duration::from_millis(1))
            .map(<[_]>::len)
            .max();
        assert!(at_once < Some(10), "{at_once:?} at the same time");
        audits.forget("switch0");
        assert!(audits.audits().due.due(&"switch0".to_owned()).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn each_device_has_its_own_audit_interval() {
        let audits = AuditSchedule::default();
        audits.record_read("slow", Duration::from_hours(1));
        let start = Instant::now();
        // A device that is added during the wait is audited in time.
        let (first, ()) = tokio::join!(audits.next(), async {
            tokio::task::yield_now().await;
            audits.record_read("fast", Duration::from_mins(1));
        });
        assert_eq!(first, "fast");
        assert!(start.elapsed() <= Duration::from_secs(75), "{:?}", start.elapsed());
        let mut audited_at: BTreeMap<String, u32> = BTreeMap::new();
        while start.elapsed() < Duration::from_hours(2) {
            *audited_at.entry(audits.next().await).or_default() += 1;
        }
        assert!(
            (96..=160).contains(&audited_at["fast"]) && (1..=3).contains(&audited_at["slow"]),
            "{audited_at:?}"
        );
        // A longer interval counts from the next read.
        audits.record_read("fast", Duration::from_hours(3));
        assert_eq!(audits.next().await, "slow");
    }
}
