//! Brings many things to what is wanted of each. Only the latest word on a thing counts, a thing is written by one
//! write at a time, and what fails is tried again.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::metrics::Metrics;

/// After a failure.
const PAUSE: Duration = Duration::from_secs(2);

/// How it is done.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// For metrics and logs.
    pub what: &'static str,
    /// So many are written at once.
    pub at_once: usize,
    /// A word waits for so long for a later one.
    pub gather: Duration,
}

/// Takes words and carries them out with `bring` until `stop` or until nobody says anything any more.
pub async fn run<K, V, F, Work, E>(
    pace: Pace,
    mut words: mpsc::UnboundedReceiver<(K, V)>,
    metrics: &Metrics,
    stop: CancellationToken,
    bring: F,
) where
    K: Clone + Display + Ord + Send + 'static,
    V: Clone + Send + 'static,
    F: Fn(K, V) -> Work,
    Work: Future<Output = Result<(), E>> + Send + 'static,
    E: Display + Send + 'static,
{
    let mut wanted: BTreeMap<K, V> = BTreeMap::new();
    let mut due: BTreeSet<(Instant, K)> = BTreeSet::new();
    let mut busy: BTreeSet<K> = BTreeSet::new();
    let mut running: JoinSet<(K, V, Result<(), E>)> = JoinSet::new();
    loop {
        let now = Instant::now();
        while running.len() < pace.at_once
            && let Some((_, key)) = due.first().filter(|(at, _)| *at <= now).cloned()
        {
            due.pop_first();
            // A word on a thing that is being written is due after that.
            let Some(word) = wanted.remove(&key) else { continue };
            busy.insert(key.clone());
            let work = bring(key.clone(), word.clone());
            running.spawn(async move { (key, word, work.await) });
        }
        let wake = due.first().map(|(at, _)| *at).filter(|_| running.len() < pace.at_once);
        tokio::select! {
            () = stop.cancelled() => return,
            word = words.recv() => {
                let Some((key, word)) = word else { return };
                if wanted.insert(key.clone(), word).is_none() && !busy.contains(&key) {
                    due.insert((Instant::now() + pace.gather, key));
                }
            }
            Some(done) = running.join_next() => {
                let Ok((key, word, result)) = done else { continue };
                busy.remove(&key);
                let mut at = Instant::now();
                match result {
                    Ok(()) => metrics.write(pace.what, "done"),
                    Err(error) => {
                        metrics.write(pace.what, "retry");
                        warn!(what = pace.what, name = %key, %error, "not written, trying again");
                        wanted.entry(key.clone()).or_insert(word);
                        at += PAUSE;
                    }
                }
                if wanted.contains_key(&key) {
                    due.insert((at, key));
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
    async fn the_latest_word_counts_and_failures_are_tried_again() {
        let (say, words) = mpsc::unbounded_channel();
        let (tell, mut told) = mpsc::unbounded_channel();
        let failures = Arc::new(Mutex::new(1));
        for (key, word) in [("a", 1), ("b", 1), ("a", 2)] {
            say.send((key, word)).unwrap();
        }
        let pace = Pace { what: "test", at_once: 1, gather: Duration::from_millis(10) };
        let metrics = Metrics::default();
        let stop = CancellationToken::new();
        let work = run(pace, words, &metrics, stop.clone(), |key, word| {
            let (tell, failures) = (tell.clone(), failures.clone());
            async move {
                let mut left = failures.lock().unwrap();
                if key == "b" && *left > 0 {
                    *left -= 1;
                    return Err("busy");
                }
                tell.send((key, word)).unwrap();
                Ok(())
            }
        });
        let look = async {
            assert_eq!(told.recv().await, Some(("a", 2)));
            say.send(("b", 2)).unwrap();
            assert_eq!(told.recv().await, Some(("b", 2)));
            assert!(told.try_recv().is_err());
            stop.cancel();
        };
        tokio::join!(work, look);
    }
}
