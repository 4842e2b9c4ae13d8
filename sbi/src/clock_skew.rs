//! The difference between the clocks of two processes, by a time that one of them sent through NATS.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

/// Difference from which on the clock of a process counts as wrong.
pub const MAX_CLOCK_SKEW: SignedDuration = SignedDuration::from_secs(30);

/// By how much a clock that showed `at` when a message was sent is ahead of the clock that shows `now`; negative: behind.
/// `age`: the time since NATS stored the message, so the clock of NATS does not matter. `None`: `at` is not a time.
pub fn clock_skew(at: &str, age: Duration, now: Timestamp) -> Option<SignedDuration> {
    let at: Timestamp = at.parse().ok()?;
    let age = SignedDuration::try_from(age).ok()?;
    Some(at.duration_since(now).saturating_add(age))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn age_of_the_message_is_no_skew() {
        let now: Timestamp = "2030-01-01T00:00:00Z".parse().unwrap();
        let skew = |at, age| clock_skew(at, Duration::from_secs(age), now).map(|skew| skew.as_secs());
        assert_eq!(skew("2030-01-01T00:00:00Z", 0), Some(0));
        assert_eq!(skew("2029-12-31T23:59:50Z", 10), Some(0));
        assert_eq!(skew("2030-01-01T00:05:00Z", 10), Some(310));
        assert_eq!(skew("2029-12-31T23:55:00Z", 10), Some(-290));
        assert_eq!(skew("yesterday", 0), None);
    }
}
