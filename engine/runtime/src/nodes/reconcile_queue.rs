//! A work queue that reconciles many items. Only the latest value of an item counts, each item is written by one task
//! at a time, and failures are retried.

use std::collections::{HashMap, HashSet};
use std::fmt::Display;
use std::hash::Hash;
use std::time::Duration;

use eno_queue::WorkQueue;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::metrics::Metrics;

/// Delay after a failure.
const RETRY_DELAY: Duration = Duration::from_secs(2);

/// Options of a queue.
#[derive(Clone, Copy, Debug)]
pub struct QueueOptions {
    /// Name of the items in metrics and logs.
    pub what: &'static str,
    /// Maximum concurrent writes.
    pub concurrency: usize,
    /// Delay in which a later value may replace one.
    pub delay: Duration,
}

/// Takes updates and carries them out with `reconcile`, until `stop` or until the senders have ended. `namespace` returns
/// the namespace of an item; namespaces are served in turn.
pub async fn run<K, V, F, Work, E>(
    options: QueueOptions,
    mut updates: mpsc::UnboundedReceiver<(K, V)>,
    metrics: &Metrics,
    stop: CancellationToken,
    namespace: fn(&K) -> &str,
    reconcile: F,
) where
    K: Clone + Display + Hash + Ord + Send + 'static,
    V: Clone + Send + 'static,
    F: Fn(K, V) -> Work,
    Work: Future<Output = Result<(), E>> + Send + 'static,
    E: Display + Send + 'static,
{
    let mut desired: HashMap<K, V> = HashMap::new();
    let mut queue = WorkQueue::new(namespace);
    let mut busy: HashSet<K> = HashSet::new();
    let mut running: JoinSet<(K, V, Result<(), E>)> = JoinSet::new();
    loop {
        let now = Instant::now();
        while running.len() < options.concurrency
            && let Some(key) = queue.pop(now)
        {
            // An update of an item that is being written is due afterwards.
            let Some(value) = desired.remove(&key) else { continue };
            busy.insert(key.clone());
            let work = reconcile(key.clone(), value.clone());
            running.spawn(async move { (key, value, work.await) });
        }
        let wake = queue.wake().filter(|_| running.len() < options.concurrency);
        tokio::select! {
            () = stop.cancelled() => return,
            value = updates.recv() => {
                let Some((key, value)) = value else { return };
                if desired.insert(key.clone(), value).is_none() && !busy.contains(&key) {
                    queue.add_at(&key, Instant::now() + options.delay);
                }
            }
            Some(done) = running.join_next() => {
                let Ok((key, value, result)) = done else { continue };
                busy.remove(&key);
                let mut at = Instant::now();
                match result {
                    Ok(()) => metrics.write(options.what, "done"),
                    Err(error) => {
                        metrics.write(options.what, "retry");
                        warn!(what = options.what, name = %key, %error, "not written, trying again");
                        desired.entry(key.clone()).or_insert(value);
                        at += RETRY_DELAY;
                    }
                }
                if desired.contains_key(&key) {
                    queue.add_at(&key, at);
                }
            }
            () = async { sleep_until(wake.unwrap_or_else(Instant::now)).await }, if wake.is_some() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn latest_value_wins_and_failures_are_retried() {
        let (sender, updates) = mpsc::unbounded_channel();
        let (written_sender, mut written) = mpsc::unbounded_channel();
        let failures = Arc::new(Mutex::new(1));
        for (key, value) in [("a", 1), ("b", 1), ("a", 2)] {
            sender.send((key, value)).unwrap();
        }
        let options = QueueOptions { what: "test", concurrency: 1, delay: Duration::from_millis(10) };
        let metrics = Metrics::default();
        let stop = CancellationToken::new();
        let work = run(
            options,
            updates,
            &metrics,
            stop.clone(),
            |_| "",
            |key, value| {
                let (written_sender, failures) = (written_sender.clone(), failures.clone());
                async move {
                    let mut left = failures.lock().unwrap();
                    if key == "b" && *left > 0 {
                        *left -= 1;
                        return Err("busy");
                    }
                    written_sender.send((key, value)).unwrap();
                    Ok(())
                }
            },
        );
        let check = async {
            assert_eq!(written.recv().await, Some(("a", 2)));
            sender.send(("b", 2)).unwrap();
            assert_eq!(written.recv().await, Some(("b", 2)));
            assert!(written.try_recv().is_err());
            stop.cancel();
        };
        tokio::join!(work, check);
    }
}
