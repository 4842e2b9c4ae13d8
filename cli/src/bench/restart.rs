//! An engine that starts with everything there already.

use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use kube::Client;
use serde::Serialize;

use super::counters;
use crate::engine_metrics::{self, CAUGHT_UP, under_way};
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
    /// The same from taking the lead, as the engine tells it.
    pub(super) seconds_of_leading: f64,
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
    let seconds_of_leading = loop {
        let metrics = http.get(&url).send().await?.text().await?;
        if under_way(&metrics).is_none() {
            break engine_metrics::value(&metrics, CAUGHT_UP).unwrap_or_default();
        }
        if started.elapsed() > LIMIT {
            bail!("the engine is not in step with the cluster after {} s", LIMIT.as_secs());
        }
        tokio::time::sleep(LOOK).await;
    };
    let seconds = started.elapsed().as_secs_f64();
    let writes = counters::since(&super::quiet(client).await?, &before).values().sum();
    Ok(Restart { seconds, seconds_of_leading, writes })
}
