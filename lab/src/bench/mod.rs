//! Benchmarks the operator on a fabric of simulated switches; see `docs/src/explanation/benchmark.md`.

mod bare;
mod changes;
mod counters;
mod gateway;
mod load;
mod pod_latency;
mod racks;
mod report;
mod restart;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use eno_control_plane::parts::Parts;
use eno_simulator::Topology;
use futures::future::try_join_all;
use tokio_util::sync::CancellationToken;

use crate::sandbox::{Sandbox, SandboxOptions};
use crate::switch;
use counters::{Cpu, Writes};
use eno::apply::apply_all;
use gateway::Gateway;
use load::{Apis, EVERYWHERE, MAX_SAMPLES, SERVICES, Tracker, each};
use pod_latency::Answers;
use racks::Racks;
use report::{CpuSeconds, Figures};

/// Measures how fast and how big the operator is, in sandboxes of its own.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  eno bench
  eno bench --size 4000 --there 100,4000 --leaves 48 --spines 16 --nodes 480 --json figures.json")]
pub struct BenchArgs {
    /// How many attachments, each with an L2Service of its own (from 4,000 on they share them).
    #[arg(long, default_value_t = 1000, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..))]
    size: usize,
    /// With how many attachments there single changes are timed, in ascending order; the last number is the size.
    /// Without it, they are timed once all are there.
    #[arg(long, value_delimiter = ',', value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..))]
    there: Vec<usize>,
    /// How many requests the client makes at a time.
    #[arg(long, default_value_t = 16, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=1000))]
    concurrency: usize,
    /// How many single changes are timed.
    #[arg(long, default_value_t = 50, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=MAX_SAMPLES as u64))]
    samples: usize,
    /// For how many seconds nothing is changed, to see that nothing is written.
    #[arg(long, default_value_t = 10)]
    idle: u64,
    /// How many leaves the fabric has.
    #[arg(long, default_value_t = 2, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=512))]
    leaves: usize,
    /// How many spines it has.
    #[arg(long, default_value_t = 2, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=32))]
    spines: usize,
    /// How many nodes hang on the leaves, spread evenly.
    #[arg(long, default_value_t = 4, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=10_000))]
    nodes: usize,
    /// Leave out the bare client.
    #[arg(long)]
    no_bare: bool,
    /// How often a running pod gets a network, to time its first answer; needs root, without which it is left out.
    #[arg(long, default_value_t = 20)]
    answers: usize,
    /// Time these first answers and nothing else.
    #[arg(long, conflicts_with = "only_gateway")]
    only_answers: bool,
    /// How many networks a gateway router leads into VRFs, to compare them with as many on a PhysicalNetwork.
    #[arg(long, default_value_t = 500, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(..=SERVICES as u64))]
    gateway: usize,
    /// Compare these and nothing else.
    #[arg(long)]
    only_gateway: bool,
    /// Write the figures to this file as JSON too.
    #[arg(long)]
    json: Option<PathBuf>,
}

/// The table of the figures that `--json` wrote, in Markdown.
pub fn markdown(json: &str) -> anyhow::Result<String> {
    let figures: Figures = serde_json::from_str(json).context("reading the figures of eno bench --json")?;
    Ok(figures.markdown())
}

/// Measures, and prints the figures; an error when a figure is more than 1.2 times its aim.
pub async fn run(args: BenchArgs, stop: CancellationToken) -> anyhow::Result<()> {
    check_there(&args.there, args.size)?;
    tokio::select! {
        answers = measure_answers(&args), if args.only_answers => {
            eno::outln!("{}", serde_json::to_string_pretty(&answers?).context("writing the figures as JSON")?);
            Ok(())
        }
        gateway = measure_gateway(&args), if args.only_gateway => {
            let gateway = gateway?;
            eno::outln!("{}", serde_json::to_string_pretty(&gateway).context("writing the figures as JSON")?);
            Ok(())
        }
        figures = measure(&args), if !args.only_answers && !args.only_gateway => {
            let figures = figures?;
            eno::outln!("{}", figures.table());
            let json = serde_json::to_string_pretty(&figures).context("writing the figures as JSON")?;
            eno::outln!("{json}");
            if let Some(path) = &args.json {
                std::fs::write(path, json + "\n").with_context(|| format!("writing {}", path.display()))?;
            }
            let missed = figures.missed();
            if !missed.is_empty() {
                bail!("a figure is more than 1.2 times its aim: {}", missed.join("; "));
            }
            Ok(())
        }
        // Dropping the future kills the sandbox.
        () = stop.cancelled() => bail!("stopped"),
    }
}

/// Checks the numbers of pairs with which single changes are timed.
fn check_there(there: &[usize], size: usize) -> anyhow::Result<()> {
    if there.windows(2).any(|pair| pair[0] >= pair[1]) {
        bail!("the numbers of --there must ascend");
    }
    match there.last() {
        Some(last) if *last != size => {
            bail!("the last number of --there is {last}, and must be that of --size, which is {size}")
        }
        _ => Ok(()),
    }
}

async fn measure(args: &BenchArgs) -> anyhow::Result<Figures> {
    let dir = tempfile::Builder::new().prefix("eno-bench-").tempdir().context("making a directory")?;
    eprintln!("the whole system, with {} pairs", args.size);
    let sandbox = sandbox(args, &dir.path().join("whole"), true).await?;
    let figures = measure_operator(args, &sandbox).await;
    sandbox.stop().await;
    let mut figures = figures?;
    if !args.no_bare {
        let writes = figures.our_writes.values().sum();
        eprintln!("a bare client, with {} creates and {writes} other writes", 2 * args.size);
        let sandbox = self::sandbox(args, &dir.path().join("bare"), false).await?;
        let bare = bare::run(&sandbox, args.size, writes, args.concurrency).await;
        sandbox.stop().await;
        let bare = bare?;
        figures.bare_client = Some(bare.creating.as_secs_f64());
        figures.bare_client_deleting = Some(bare.deleting.as_secs_f64());
        figures.cpu.bare_creating = bare.creating_cpu;
        figures.cpu.bare_deleting = bare.deleting_cpu;
    }
    figures.gateway = measure_gateway(args).await?;
    figures.answers = measure_answers(args).await?;
    Ok(figures)
}

/// Networks in VRFs of a router against the same on a PhysicalNetwork; `None` if there are to be none.
async fn measure_gateway(args: &BenchArgs) -> anyhow::Result<Option<Gateway>> {
    if args.gateway == 0 {
        return Ok(None);
    }
    eprintln!("{} networks on a PhysicalNetwork, and as many in VRFs", args.gateway);
    let dir = tempfile::Builder::new().prefix("eno-bench-").tempdir().context("making a directory")?;
    gateway::measure(args, dir.path(), args.gateway).await.map(Some)
}

/// The first replies of pods on two real nodes; `None` where nodes can't run.
async fn measure_answers(args: &BenchArgs) -> anyhow::Result<Option<Answers>> {
    if args.answers == 0 || !pod_latency::can_be_measured() {
        return Ok(None);
    }
    eprintln!("the first answer after a pod's label, {} times", args.answers);
    let dir = tempfile::Builder::new().prefix("eno-bench-").tempdir().context("making a directory")?;
    let mut options = options(dir.path(), Topology::leaf_spine(2, 2, 2))?;
    options.nodes = 2;
    let sandbox = Sandbox::start(options).await?;
    let answers = pod_latency::measure(&sandbox, args.answers).await;
    sandbox.stop().await;
    Ok(Some(answers?))
}

fn options(dir: &Path, topology: Topology) -> anyhow::Result<SandboxOptions> {
    let mut options = SandboxOptions::new(dir, Parts::from_env()?)?;
    options.topology = topology;
    options.report = Arc::new(|line| eprintln!("  {line}"));
    Ok(options)
}

fn topology(args: &BenchArgs) -> Topology {
    Topology::leaf_spine(args.leaves, args.spines, args.nodes)
}

async fn sandbox(args: &BenchArgs, dir: &Path, operator: bool) -> anyhow::Result<Sandbox> {
    let mut options = options(dir, topology(args))?;
    options.engine = operator;
    options.drivers = operator;
    let sandbox = Sandbox::start(options).await?;
    sandbox.admission_bound().await;
    Ok(sandbox)
}

async fn measure_operator(args: &BenchArgs, sandbox: &Sandbox) -> anyhow::Result<Figures> {
    let client = sandbox.client();
    let http = reqwest::Client::new();
    let racks = Racks::of(&topology(args));
    let mut pools_and_points = vec![EVERYWHERE];
    pools_and_points.extend(racks.iter().flat_map(Racks::pools_and_points));
    apply_all(&client, "eno-bench", &load::base(&pools_and_points)?).await?;
    let apis = Apis::new(&client);
    let tracker = Tracker::start(&apis);

    let mut created = Created::default();
    let mut changes = Vec::new();
    for there in args.there.iter().copied().filter(|there| *there < args.size) {
        created.create(args, sandbox, &http, &apis, &tracker, there).await?;
        until_quiet(&client).await?;
        let changes_of = changes::measure(args, sandbox, &http, &apis, &tracker, there, racks.is_some());
        changes.push(changes_of.await?);
    }
    created.create(args, sandbox, &http, &apis, &tracker, args.size).await?;
    let create_to_ready = created.took.as_secs_f64();
    eprintln!("  everything ready after {create_to_ready:.2} s");
    let mut our_writes = created.writes;
    remove_creates(&mut our_writes, args.size.min(SERVICES), args.size);
    let engine_memory = counters::resident_kib(sandbox, eno_parts::ENGINE.name)?;
    let driver_memory = counters::resident_kib(sandbox, eno_parts::DRIVER_NETCONF.name)?;

    let before = until_quiet(&client).await?;
    // The benchmark measures the writes of this idle time.
    tokio::time::sleep(Duration::from_secs(args.idle)).await;
    let idle_writes = counters::since(&counters::writes(&client).await?, &before).values().sum();

    let peak_of_first_engine = counters::peak_memory_mib(sandbox)?;
    let restart = restart::measure(sandbox, &http, &client).await?;
    eprintln!("  an engine that was started anew has caught up after {:.2} s", restart.seconds);

    let with_all =
        changes::measure(args, sandbox, &http, &apis, &tracker, args.size, racks.is_some()).await?;
    let racks = match racks.iter().zip(with_all.between_racks_ms).next() {
        Some((racks, alone)) => Some(racks.measure(args, sandbox, &http, &apis, &tracker, alone).await?),
        None => None,
    };
    let before = until_quiet(&client).await?;
    let cpu_before = counters::cpu(sandbox)?;
    let delete_to_nothing = delete(args, sandbox, &http, &apis, &tracker).await?;
    let deleting = counters::cpu_since(counters::cpu(sandbox)?, &cpu_before);
    let deleting_writes = counters::since(&counters::writes(&client).await?, &before);
    eprintln!("  nothing left after {:.2} s", delete_to_nothing.as_secs_f64());
    let mut peak_memory = counters::peak_memory_mib(sandbox)?;
    for (part, earlier) in peak_of_first_engine {
        let most = peak_memory.entry(part).or_default();
        *most = earlier.max(*most);
    }
    let sum: u64 = our_writes.values().sum();
    let (one_change_median_ms, one_change_p95_ms) = (with_all.median_ms, with_all.p95_ms);
    changes.push(with_all);
    #[expect(clippy::cast_precision_loss, reason = "figures for people")]
    Ok(Figures {
        size: args.size,
        switches: args.leaves + args.spines,
        nodes: args.nodes,
        concurrency: args.concurrency,
        create_to_ready,
        bare_client: None,
        bare_client_deleting: None,
        cpu: CpuSeconds { creating: created.cpu, deleting, ..CpuSeconds::default() },
        deleting_writes,
        our_writes_per_pair: sum as f64 / args.size as f64,
        our_writes,
        transactions: created.transactions,
        idle_writes,
        idle_seconds: args.idle,
        restart,
        one_change_median_ms,
        one_change_p95_ms,
        changes,
        between_racks_ms: racks,
        engine_memory_mib: engine_memory as f64 / 1024.0,
        driver_memory_mib: driver_memory as f64 / 1024.0,
        peak_memory_mib: peak_memory,
        memory_limits_mib: counters::memory_limits_mib()?,
        delete_to_nothing: delete_to_nothing.as_secs_f64(),
        gateway: None,
        answers: None,
    })
}

/// What it took to create the pairs that are there, without what was measured in between.
#[derive(Default)]
struct Created {
    pairs: usize,
    /// The time until the last one was ready.
    took: Duration,
    cpu: Cpu,
    writes: Writes,
    /// NETCONF transactions by switch.
    transactions: BTreeMap<String, u64>,
}

impl Created {
    /// Creates further pairs until there are `pairs`, and waits until they are ready.
    async fn create(
        &mut self,
        args: &BenchArgs,
        sandbox: &Sandbox,
        http: &reqwest::Client,
        apis: &Apis,
        tracker: &Tracker,
        pairs: usize,
    ) -> anyhow::Result<()> {
        let client = sandbox.client();
        let writes = counters::writes(&client).await?;
        let cpu = counters::cpu(sandbox)?;
        let transactions = counters::transactions(http, sandbox).await?;
        let started = Instant::now();
        each(self.pairs..pairs, args.concurrency, |index| apis.create(index)).await?;
        let objects = pairs + pairs.min(SERVICES);
        tracker.until("creating", |seen| seen.ready.len() == objects).await?;
        self.took += started.elapsed();
        counters::add(&mut self.cpu, counters::cpu_since(counters::cpu(sandbox)?, &cpu));
        counters::add(&mut self.writes, counters::since(&counters::writes(&client).await?, &writes));
        let transactions = after(counters::transactions(http, sandbox).await?, &transactions);
        counters::add(&mut self.transactions, transactions);
        self.pairs = pairs;
        Ok(())
    }
}

/// Removes the client's own creates from the counts.
fn remove_creates(writes: &mut Writes, services: usize, attachments: usize) {
    for (resource, count) in [("POST l2services", services), ("POST l2serviceattachments", attachments)] {
        if let Some(known) = writes.get_mut(resource) {
            *known = known.saturating_sub(count as u64);
        }
    }
    writes.retain(|_, count| *count > 0);
}

fn after(now: BTreeMap<String, u64>, before: &BTreeMap<String, u64>) -> BTreeMap<String, u64> {
    now.into_iter()
        .map(|(name, count)| (name.clone(), count - before.get(&name).copied().unwrap_or(0)))
        .collect()
}

/// The writes so far, once there are none for two seconds: informative statuses are written later.
async fn until_quiet(client: &kube::Client) -> anyhow::Result<counters::Writes> {
    let mut seen = counters::writes(client).await?;
    loop {
        tokio::time::sleep(Duration::from_secs(2)).await;
        let now = counters::writes(client).await?;
        if now == seen {
            return Ok(now);
        }
        seen = now;
    }
}

/// Deletes everything, and waits until no object and no VLAN is left.
async fn delete(
    args: &BenchArgs,
    sandbox: &Sandbox,
    http: &reqwest::Client,
    apis: &Apis,
    tracker: &Tracker,
) -> anyhow::Result<Duration> {
    let started = Instant::now();
    each(0..args.size, args.concurrency, |index| apis.delete(index)).await?;
    tracker.until("deleting", |seen| seen.present.is_empty()).await?;
    let empty =
        try_join_all(sandbox.switches().iter().map(|info| switch::until_without_managed_vlans(http, info)));
    empty.await.context("asking the switches")?;
    Ok(started.elapsed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_pairs_ascend_to_the_size() {
        assert!(check_there(&[], 1000).is_ok());
        assert!(check_there(&[100, 1000], 1000).is_ok());
        assert!(check_there(&[100, 1000], 4000).is_err());
        assert!(check_there(&[1000, 100, 1000], 1000).is_err());
        assert!(check_there(&[100, 100], 100).is_err());
    }
}
