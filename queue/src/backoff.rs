//! Delays between the attempts of something that fails.

use std::time::Duration;

/// The delay after the first failure, doubled with each further one up to a maximum, with jitter.
///
/// `backon` is not used: its delays are an iterator that draws random numbers itself. Here, the number of failures may
/// come from storage, and tests choose the random number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Backoff {
    first: Duration,
    max: Duration,
    jitter: (f64, f64),
}

/// What is retried, and when.
impl Backoff {
    /// A target whose work failed and may succeed later: a device that does not answer, or is locked. The host of its
    /// driver retries it.
    pub const FAILED_TARGET: Self =
        Self::new(Duration::from_millis(500), Duration::from_mins(1)).with_jitter(1.0, 2.0);
    /// What a device refuses. The engine retries a network that it withholds, and the host of the driver all that is
    /// still commanded.
    pub const REFUSED: Self =
        Self::new(Duration::from_secs(5), Duration::from_mins(5)).with_jitter(0.75, 1.0);
    /// A transaction over several devices that was aborted, after retries at once.
    pub const ABORTED_TRANSACTION: Self = Self::new(Duration::from_millis(250), Duration::from_secs(30));

    /// Delays from `first` to `max`, without jitter.
    #[must_use]
    pub const fn new(first: Duration, max: Duration) -> Self {
        Self { first, max, jitter: (1.0, 1.0) }
    }

    /// Multiplies each delay by a random factor from `low` to `high`.
    #[must_use]
    pub const fn with_jitter(self, low: f64, high: f64) -> Self {
        Self { jitter: (low, high), ..self }
    }

    /// The delay after this number of failures in a row, which is at least 1. `random` is between 0 and 1.
    #[must_use]
    pub fn delay(&self, failures: u32, random: f64) -> Duration {
        let doubled = self.first.saturating_mul(2_u32.saturating_pow(failures.saturating_sub(1)));
        let (low, high) = self.jitter;
        doubled.min(self.max).mul_f64(low + (high - low) * random.clamp(0.0, 1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delay_doubles_up_to_the_maximum() {
        let backoff = Backoff::new(Duration::from_secs(5), Duration::from_mins(5));
        let delays = [0, 1, 2, 3, 7, 40, u32::MAX].map(|failures| backoff.delay(failures, 0.5).as_secs());
        assert_eq!(delays, [5, 5, 10, 20, 300, 300, 300]);
    }

    #[test]
    fn refused_items_are_retried_less_often_than_failed_targets() {
        let delays = |policy: Backoff| [1, 2, 3, 10].map(|failures| policy.delay(failures, 1.0).as_secs());
        assert_eq!(delays(Backoff::REFUSED), [5, 10, 20, 300]);
        assert_eq!(delays(Backoff::FAILED_TARGET), [1, 2, 4, 120]);
    }

    #[test]
    fn jitter_multiplies_the_delay() {
        let backoff = Backoff::new(Duration::from_secs(10), Duration::from_secs(15)).with_jitter(0.75, 1.0);
        let delays = [0.0, 1.0, 7.0].map(|random| backoff.delay(1, random).as_millis());
        assert_eq!(delays, [7500, 10_000, 10_000]);
        assert_eq!(backoff.delay(2, 0.0), Duration::from_millis(11_250));
    }
}
