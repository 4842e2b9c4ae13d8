//! Polls of conditions that have no watch.

use std::time::{Duration, Instant};

use tokio::time::{interval, timeout};

use crate::TIMEOUT;

const INTERVAL: Duration = Duration::from_millis(50);

/// Polls until the probe finds something; `None`: it found nothing within [`TIMEOUT`].
pub async fn poll<T>(probe: impl AsyncFnMut() -> Option<T>) -> Option<T> {
    poll_within(TIMEOUT, probe).await
}

/// Polls until the probe finds something; `None`: it found nothing within the limit.
pub async fn poll_within<T>(limit: Duration, mut probe: impl AsyncFnMut() -> Option<T>) -> Option<T> {
    let polling = async {
        let mut ticks = interval(INTERVAL);
        loop {
            ticks.tick().await;
            if let Some(found) = probe().await {
                return found;
            }
        }
    };
    timeout(limit, polling).await.ok()
}

/// Polls until the condition holds, and returns how long that took. Panics after [`TIMEOUT`].
pub async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) -> Duration {
    let began = Instant::now();
    let seen = poll(async || condition().await.then_some(())).await;
    assert!(seen.is_some(), "{what}: not seen");
    began.elapsed()
}
