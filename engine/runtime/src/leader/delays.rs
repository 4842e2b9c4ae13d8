//! What the core waits for: references that may still arrive, retries of refused networks, and errors that may pass.

use std::time::{Duration, Instant};

use eno_core::{Event, Key, Name, STALLED_AFTER};
use eno_queue::Backoff;
use eno_sbi::random;
use jiff::Timestamp;

use super::Leader;

/// Time for objects that are applied together to arrive.
const REFERENCE_TIMEOUT: Duration = Duration::from_secs(1);

/// Something that the core waits for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Delayed {
    /// The references of this object may still arrive.
    References(Key),
    /// The network, which a switch refused, is tried again; with the attempt.
    Retry(Key, u32),
    /// The error of this object, which began at this time, counts as lasting.
    Deadline(Key, Name),
}

impl Leader {
    /// Waits for the references of an object.
    pub(super) fn wait_for_references(&mut self, key: Key) {
        self.delayed.insert(Delayed::References(key), Instant::now() + REFERENCE_TIMEOUT);
    }

    /// Schedules a retry of a network.
    pub(super) fn schedule_retry(&mut self, network: Key, attempt: u32) {
        let delay = Backoff::REFUSED.delay(attempt, random());
        self.delayed.insert(Delayed::Retry(network, attempt), Instant::now() + delay);
    }

    /// Starts the deadline of an error.
    pub(super) fn start_deadline(&mut self, key: Key, since: Name) {
        let at = Instant::now() + left(&since, Timestamp::now());
        self.delayed.insert(Delayed::Deadline(key, since), at);
    }

    /// Passes delays that are over to the core.
    pub(super) fn run_due(&mut self) {
        let now = Instant::now();
        let mut waiting = Vec::new();
        while let Some(due) = self.delayed.pop(now) {
            match due {
                Delayed::References(key) => waiting.push(key),
                Delayed::Retry(network, attempt) => self.engine.handle(Event::RetryDue(network, attempt)),
                Delayed::Deadline(key, since) => self.engine.handle(Event::DeadlineExceeded { key, since }),
            }
        }
        self.check_references(waiting);
    }
}

/// Time left until the deadline of an error that began at `since`. Another engine with another clock may have set that
/// time.
fn left(since: &str, now: Timestamp) -> Duration {
    let stands = since.parse::<Timestamp>().map(|since| now.duration_since(since));
    let stands = stands.map(|stands| Duration::try_from(stands).unwrap_or_default());
    STALLED_AFTER.saturating_sub(stands.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadline_counts_from_start_of_error() {
        let now = "2026-01-02T03:04:05Z".parse().unwrap();
        let left = |since| left(since, now).as_secs();
        assert_eq!(left("2026-01-02T03:03:45Z"), 40);
        assert_eq!(left("2026-01-02T03:00:00Z"), 0);
        // With a clock that is ahead, and with an invalid time.
        assert_eq!((left("2026-01-02T03:14:05Z"), left("")), (60, 60));
    }
}
