//! When devices are looked at without having been asked to: each once in a while, and after its session was lost.

use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

/// Losses within this time are taken for one outage.
const OUTAGE: Duration = Duration::from_secs(5);
/// How many devices are connected to again within a second of an outage, on average.
const RECONNECTS_PER_SECOND: u32 = 40;

/// Looks at each device again some time after it was last read: about its interval later, not at the same time as
/// others.
#[derive(Debug, Default)]
pub(crate) struct AuditSchedule {
    due: Mutex<BTreeMap<String, Audit>>,
    /// One is due earlier than it was.
    sooner: Notify,
}

/// When a device is looked at again.
#[derive(Clone, Copy, Debug)]
struct Audit {
    interval: Duration,
    at: Instant,
}

impl AuditSchedule {
    fn due(&self) -> MutexGuard<'_, BTreeMap<String, Audit>> {
        self.due.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It was read just now, and is to be looked at about `interval` later.
    pub(crate) fn record_read(&self, target: &str, interval: Duration) {
        // Between three and five quarters of the interval.
        let at = Instant::now() + interval * 3 / 4 + random_up_to(interval / 2);
        let before = self.due().insert(target.to_owned(), Audit { interval, at });
        if before.is_none_or(|before| at < before.at) {
            self.sooner.notify_one();
        }
    }

    /// It is gone.
    pub(crate) fn forget(&self, target: &str) {
        self.due().remove(target);
    }

    /// Waits for the next that is due.
    pub(crate) async fn next(&self) -> String {
        loop {
            let first = self
                .due()
                .iter()
                .min_by_key(|(_, audit)| audit.at)
                .map(|(name, audit)| (name.clone(), *audit));
            match first {
                Some((target, audit)) if audit.at <= Instant::now() => {
                    self.record_read(&target, audit.interval);
                    return target;
                }
                Some((_, audit)) => {
                    // What ends it does not matter: the first is looked for anew.
                    let _ = tokio::time::timeout_at(audit.at, self.sooner.notified()).await;
                }
                None => self.sooner.notified().await,
            }
        }
    }
}

/// Lost sessions, so that not all devices are connected to at once when the network between comes back.
#[derive(Debug, Default)]
pub(crate) struct ReconnectPacer(Mutex<Option<(Instant, u32)>>);

impl ReconnectPacer {
    /// A session was lost: how long to wait before the device is looked at. One alone is looked at at once; of many,
    /// the later ones are spread over a time that grows with their number.
    pub(crate) fn lost(&self) -> Duration {
        let mut outage = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let earlier = match *outage {
            Some((last, count)) if now - last <= OUTAGE => count,
            _ => 0,
        };
        *outage = Some((now, earlier + 1));
        random_up_to(Duration::from_secs(1) * earlier / RECONNECTS_PER_SECOND)
    }
}

/// Something between nothing and `longest`.
pub(crate) fn random_up_to(longest: Duration) -> Duration {
    let permille = u32::try_from(RandomState::new().hash_one(()) % 1001).unwrap_or(0);
    longest * permille / 1000
}

#[cfg(test)]
mod tests {
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
        let mut turns: BTreeMap<String, Vec<Duration>> = BTreeMap::new();
        for _ in 0..1000 {
            turns.entry(audits.next().await).or_default().push(start.elapsed());
        }
        assert_eq!(turns.len(), names.len());
        for (name, times) in &turns {
            let mut last = Duration::ZERO;
            for time in times {
                let apart = (*time).checked_sub(last).unwrap();
                assert!(apart >= interval * 3 / 4 && apart <= interval * 5 / 4, "{name}: {apart:?}");
                last = *time;
            }
        }
        let mut all: Vec<Duration> = turns.into_values().flatten().collect();
        all.sort_unstable();
        let at_once = all
            .chunk_by(|a, b| (*b).checked_sub(*a).unwrap() < Duration::from_millis(1))
            .map(<[_]>::len)
            .max();
        assert!(at_once < Some(10), "{at_once:?} at the same time");
        audits.forget("switch0");
        assert!(!audits.due().contains_key("switch0"));
    }

    #[tokio::test(start_paused = true)]
    async fn each_device_has_its_own_audit_interval() {
        let audits = AuditSchedule::default();
        audits.record_read("slow", Duration::from_hours(1));
        let start = Instant::now();
        // One that comes while the other is waited for has its turn in time.
        let (first, ()) = tokio::join!(audits.next(), async {
            tokio::task::yield_now().await;
            audits.record_read("fast", Duration::from_mins(1));
        });
        assert_eq!(first, "fast");
        assert!(start.elapsed() <= Duration::from_secs(75), "{:?}", start.elapsed());
        let mut turns: BTreeMap<String, u32> = BTreeMap::new();
        while start.elapsed() < Duration::from_hours(2) {
            *turns.entry(audits.next().await).or_default() += 1;
        }
        assert!((96..=160).contains(&turns["fast"]) && (1..=3).contains(&turns["slow"]), "{turns:?}");
        // A longer interval counts from the next time on that it is read.
        audits.record_read("fast", Duration::from_hours(3));
        assert_eq!(audits.next().await, "slow");
    }

    #[tokio::test(start_paused = true)]
    async fn reconnects_after_an_outage_are_spread() {
        let reconnects = ReconnectPacer::default();
        assert_eq!(reconnects.lost(), Duration::ZERO);
        let mut waits: Vec<Duration> = (0..1000).map(|_| reconnects.lost()).collect();
        waits.sort_unstable();
        assert!(
            waits[500] > Duration::from_secs(3) && waits[999] <= Duration::from_secs(25),
            "{:?}",
            waits[500]
        );
        for second in 0..25 {
            let within = Duration::from_secs(second)..Duration::from_secs(second + 1);
            let count = waits.iter().filter(|wait| within.contains(*wait)).count();
            assert!(count < 250, "{count} in second {second}");
        }
        tokio::time::advance(OUTAGE * 2).await;
        assert_eq!(reconnects.lost(), Duration::ZERO);
    }
}
