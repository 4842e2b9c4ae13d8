//! Measures the start of an engine with all objects existing.

use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use kube::Client;
use serde::Serialize;

use super::counters;
use crate::engine_metrics::{self, CAUGHT_UP, pending_work};
use crate::sandbox::Sandbox;

/// Interval of polls of the engine's metrics.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
const TIMEOUT: Duration = Duration::from_mins(5);

/// The cost of a start.
#[derive(Debug, Clone, Copy, Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Restart {
    /// Seconds from the start of the process until all is read, computed and published.
    pub(super) seconds: f64,
    /// Seconds from the start of leading until then, from the engine's metrics.
    pub(super) seconds_of_leading: f64,
    /// Writes to the API server during the restart, until there are none for two seconds.
    pub(super) writes: u64,
}

/// Restarts the engine and measures its start.
pub(super) async fn measure(
    sandbox: &Sandbox,
    http: &reqwest::Client,
    client: &Client,
) -> anyhow::Result<Restart> {
    let engine = eno_parts::ENGINE.name;
    let before = super::until_quiet(client).await?;
    sandbox.stop_child(engine).await?;
    let started = Instant::now();
    sandbox.start_child(engine).await?;
    let url = format!("{}/metrics", sandbox.url(engine).context("the engine's metrics")?);
    let seconds_of_leading = loop {
        let metrics = http.get(&url).send().await?.text().await?;
        if pending_work(&metrics).is_none() {
            break engine_metrics::value(&metrics, CAUGHT_UP).unwrap_or_default();
        }
        if started.elapsed() > TIMEOUT {
            bail!("the engine is not in step with the cluster after {} s", TIMEOUT.as_secs());
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    };
    let seconds = started.elapsed().as_secs_f64();
    let writes = counters::since(&super::until_quiet(client).await?, &before).values().sum();
    Ok(Restart { seconds, seconds_of_leading, writes })
}
