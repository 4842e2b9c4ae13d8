//! Deadlines at which transient errors count as lasting.

use std::time::{Duration, Instant};

use eno_core::{Event, Key, Name, STALLED_AFTER};
use jiff::Timestamp;

use super::Leader;

impl Leader {
    /// Starts the deadline of an error.
    pub(super) fn start_deadline(&mut self, key: Key, since: Name) {
        let at = Instant::now() + left(&since, Timestamp::now());
        self.deadlines.insert((at, key, since));
    }

    /// Passes deadlines that are over to the core.
    pub(super) fn run_due_deadlines(&mut self) {
        let now = Instant::now();
        while self.deadlines.first().is_some_and(|(at, ..)| *at <= now)
            && let Some((_, key, since)) = self.deadlines.pop_first()
        {
            self.engine.handle(Event::DeadlineExceeded { key, since });
        }
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
