//! Times single changes, and measures what they cost.

use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::BenchArgs;
use super::counters::{self, Cpu};
use super::load::{Apis, EVERYWHERE, SERVICES, Tracker, each};
use super::racks;
use super::report::percentile;
use crate::sandbox::Sandbox;

/// Number of single changes before the timed ones. The first VLAN of a port costs a command more.
const WARM_UP: usize = 3;

/// Single changes with a number of pairs there.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Changes {
    /// Number of pairs that were there.
    pub(super) there: usize,
    /// Median time of one more service and attachment on all switches, in milliseconds.
    pub(super) median_ms: f64,
    /// The 95th percentile of the same, in milliseconds.
    pub(super) p95_ms: f64,
    /// CPU milliseconds of each part for one such change.
    pub(super) cpu_ms: Cpu,
    /// Bytes that the engine and the driver of switches sent to NATS, for each such change and switch.
    pub(super) sent_bytes_per_switch: f64,
    /// Median time of one more service and attachment between two racks, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) between_racks_ms: Option<f64>,
}

/// Measures single changes with `there` pairs there.
pub(super) async fn measure(
    args: &BenchArgs,
    sandbox: &Sandbox,
    http: &reqwest::Client,
    apis: &Apis,
    tracker: &Tracker,
    there: usize,
    with_racks: bool,
) -> anyhow::Result<Changes> {
    for sample in 0..WARM_UP {
        time(apis, tracker, sample, EVERYWHERE.name).await?;
    }
    let (cpu_before, sent_before) = (counters::cpu(sandbox)?, counters::sent_bytes(http, sandbox).await?);
    let mut samples = Vec::with_capacity(args.samples);
    for sample in WARM_UP..WARM_UP + args.samples {
        samples.push(time(apis, tracker, sample, EVERYWHERE.name).await?);
    }
    let sent = counters::sent_bytes(http, sandbox).await? - sent_before;
    let cpu = counters::all_cpu_since(counters::cpu(sandbox)?, &cpu_before);
    remove(WARM_UP + args.samples, args, apis, tracker, there).await?;
    #[expect(clippy::cast_precision_loss, reason = "figures for people")]
    let [changes, switches] = [args.samples, sandbox.switches().len()].map(|count| count as f64);
    let between_racks_ms =
        if with_racks { Some(between_racks(args, apis, tracker, there).await?) } else { None };
    Ok(Changes {
        there,
        median_ms: percentile(&mut samples, 50),
        p95_ms: percentile(&mut samples, 95),
        cpu_ms: cpu.into_iter().map(|(part, seconds)| (part, seconds * 1000.0 / changes)).collect(),
        sent_bytes_per_switch: sent / changes / switches,
        between_racks_ms,
    })
}

/// The median time of changes between the first two racks, in milliseconds.
async fn between_racks(
    args: &BenchArgs,
    apis: &Apis,
    tracker: &Tracker,
    there: usize,
) -> anyhow::Result<f64> {
    let mut samples = Vec::with_capacity(args.samples);
    for sample in 0..WARM_UP + args.samples {
        let took = time(apis, tracker, sample, racks::FIRST).await?;
        if sample >= WARM_UP {
            samples.push(took);
        }
    }
    remove(WARM_UP + args.samples, args, apis, tracker, there).await?;
    Ok(percentile(&mut samples, 50))
}

/// The time of a single change, in milliseconds.
async fn time(apis: &Apis, tracker: &Tracker, sample: usize, place: &str) -> anyhow::Result<f64> {
    let started = Instant::now();
    let pair = apis.add(sample, place).await?;
    tracker.until("one change", |seen| pair.iter().all(|one| seen.ready.contains(one))).await?;
    Ok(started.elapsed().as_secs_f64() * 1000.0)
}

/// Deletes this many single changes, of which `there` pairs are left.
pub(super) async fn remove(
    count: usize,
    args: &BenchArgs,
    apis: &Apis,
    tracker: &Tracker,
    there: usize,
) -> anyhow::Result<()> {
    each(0..count, args.concurrency, |sample| apis.remove(sample)).await?;
    let objects = there + there.min(SERVICES);
    tracker.until("deleting the single changes", |seen| seen.present.len() == objects).await
}
