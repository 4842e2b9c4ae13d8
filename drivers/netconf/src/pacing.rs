//! Spreads reads of devices after lost sessions.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use eno_sbi::random_up_to;
use tokio::time::Instant;

/// Losses within this time count as one outage.
const OUTAGE: Duration = Duration::from_secs(5);
/// Average reconnects per second after an outage.
const RECONNECTS_PER_SECOND: u32 = 40;

/// Spreads reconnects after lost sessions, so that an outage does not cause a burst.
#[derive(Debug, Default)]
pub(crate) struct ReconnectPacer(Mutex<Option<(Instant, u32)>>);

impl ReconnectPacer {
    /// Returns the delay before the device is read after a lost session. A single loss has none. The delays of an
    /// outage grow with its losses.
    pub(crate) fn delay_after_loss(&self) -> Duration {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn reconnects_after_an_outage_are_spread() {
        let reconnects = ReconnectPacer::default();
        assert_eq!(reconnects.delay_after_loss(), Duration::ZERO);
        let mut waits: Vec<Duration> = (0..1000).map(|_| reconnects.delay_after_loss()).collect();
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
        assert_eq!(reconnects.delay_after_loss(), Duration::ZERO);
    }
}
