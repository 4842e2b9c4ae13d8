//! An engine that starts with everything there already.

use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use kube::Client;
use serde::Serialize;

use super::counters;
use crate::engine_metrics;
use crate::sandbox::{Role, Sandbox};

/// Between two looks at the engine's metrics.
const LOOK: Duration = Duration::from_millis(20);
const LIMIT: Duration = Duration::from_mins(5);

/// What a start costs.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Restart {
    /// From the start of the process until all is seen and worked out and nothing is left to be said, in seconds.
    pub(super) seconds: f64,
    /// Writes to the API server from then on and before, until there are none for two seconds.
    pub(super) writes: u64,
}

/// Stops the engine and starts it again.
pub(super) async fn measure(
    sandbox: &Sandbox,
    http: &reqwest::Client,
    client: &Client,
) -> anyhow::Result<Restart> {
    let engine = Role::Engine.name();
    let before = super::quiet(client).await?;
    sandbox.stop_child(engine).await?;
    let started = Instant::now();
    sandbox.start_child(engine).await?;
    let url = format!("{}/metrics", sandbox.url(engine).context("the engine's metrics")?);
    loop {
        let metrics = http.get(&url).send().await?.text().await?;
        if is_done(&metrics) {
            break;
        }
        if started.elapsed() > LIMIT {
            bail!("the engine is not in step with the cluster after {} s", LIMIT.as_secs());
        }
        tokio::time::sleep(LOOK).await;
    }
    let seconds = started.elapsed().as_secs_f64();
    let writes = counters::since(&super::quiet(client).await?, &before).values().sum();
    Ok(Restart { seconds, writes })
}

/// All was worked out at least once, and nothing of that is left to be done.
fn is_done(metrics: &str) -> bool {
    engine_metrics::value(metrics, "eno_engine_settle_seconds_count").is_some_and(|count| count > 0.0)
        && engine_metrics::under_way(metrics).is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_that_has_seen_nothing_yet_is_not_done() {
        let metrics = |count: u32, waiting: u32| {
            format!(
                "eno_engine_mailbox 0\neno_engine_publish_waiting {waiting}\neno_engine_publish_outstanding 0\n\
                 eno_engine_outbox_lag 0\neno_engine_settle_seconds_sum 0.1\neno_engine_settle_seconds_count {count}\n"
            )
        };
        assert!(is_done(&metrics(2, 0)));
        assert!(!is_done(&metrics(0, 0)) && !is_done(&metrics(2, 1)) && !is_done(""));
    }
}
