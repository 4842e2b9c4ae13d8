//! CPU time of probes: two agents with 1,000 VLANs on real switches (userspace datapath), a third switch as their fabric
//! and a real nats-server. Needs root, for network namespaces.
//!
//! Both agents are in this process. After the first round, its CPU time and that of its children is taken over one
//! interval, in which each VLAN is probed once. Then hardly a probe is due for a while, which tells what the agents
//! cost without probes. The interval is shorter than the default one, so the figures of the default one are computed from it.

#![allow(dead_code, unused_imports, clippy::wildcard_imports, reason = "the tests use more of it")]

#[path = "../tests/agent/mod.rs"]
mod agent;
#[path = "../tests/host/mod.rs"]
mod host;
#[path = "../tests/ovs/mod.rs"]
mod ovs;
#[path = "../tests/pods/mod.rs"]
mod pods;
#[path = "../tests/probes/mod.rs"]
mod probes;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use eno_conformance::{Engine, RunningHost};
use eno_driver_node::addresses::Addresses;
use eno_driver_node::driver::{NodeDriver, Switch};
use eno_driver_node::host::Host;
use eno_driver_node::host::state::Installation;
use eno_driver_node::pods::{Options, Pods};
use eno_driver_node::probes::{ProbeMetrics, Probes};
use eno_sbi::host::{HostOptions, Ownership};
use eno_schemas::{NetworkProbes, OvsDatapath, subject};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

use agent::conformance::NoPods;
use probes::fixture::{World, name, ring};

/// VLANs of each agent.
const VLANS: u16 = 1000;
/// Seconds between two probes of a VLAN while the agents are measured.
const INTERVAL: u16 = 120;
/// Seconds for which the agents are measured without probes.
const QUIET: u16 = 30;
/// Seconds between two probes of a VLAN by default.
const DEFAULT_INTERVAL: f64 = 600.0;

/// What was used in some time.
struct Used {
    /// Milliseconds of CPU time, by program.
    cpu: BTreeMap<String, f64>,
    /// Probes by outcome.
    probes: BTreeMap<String, f64>,
    /// Messages on the stream of reports.
    reports: u64,
}

#[tokio::main]
async fn main() {
    let mut world = World::new(2).await;
    let mut registry = Registry::default();
    let metrics = ProbeMetrics::default();
    metrics.register(&mut registry);
    let folder = tempfile::tempdir().unwrap();
    let mut agents = Vec::new();
    for node in 0..2 {
        agents.push(start_agent(&world, node, &metrics, folder.path()).await);
    }
    let started = Instant::now();
    command(&mut world, INTERVAL).await;
    while probes(&registry).get("passed").is_none_or(|passed| *passed < 2.0 * f64::from(VLANS)) {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    println!("the first round takes {:.1} s", started.elapsed().as_secs_f64());
    let probing = used(&world.engine, &registry, INTERVAL).await;
    command(&mut world, u16::MAX).await;
    // What is under way ends meanwhile.
    tokio::time::sleep(Duration::from_secs(15)).await;
    let quiet = used(&world.engine, &registry, QUIET).await;

    println!("in {INTERVAL} s: {:?}, {} reports", probing.probes, probing.reports);
    println!("in {QUIET} s without: {:?}, {} reports", quiet.probes, quiet.reports);
    // Some probes are still due in the time without.
    let per_second = |used: &Used, seconds: u16| used.probes.values().sum::<f64>() / f64::from(seconds);
    let (asked, unasked) = (per_second(&probing, INTERVAL), per_second(&quiet, QUIET));
    println!("{:16} {:>10} {:>14} {:>18}", "% of a core:", "idle", "1,000 in 600 s", "and ms per probe");
    for (program, milliseconds) in &probing.cpu {
        let busy = milliseconds / f64::from(INTERVAL);
        let idle = quiet.cpu.get(program).copied().unwrap_or_default() / f64::from(QUIET);
        let of_probe = (busy - idle) / (asked - unasked);
        let share = of_probe * f64::from(VLANS) / DEFAULT_INTERVAL / 10.0;
        println!("{program:16} {:10.3} {share:14.3} {of_probe:18.3}", (idle - of_probe * unasked) / 10.0);
    }
}

/// Starts the agent of a node, which counts its probes there.
async fn start_agent(
    world: &World,
    node: usize,
    metrics: &ProbeMetrics,
    folder: &std::path::Path,
) -> RunningHost {
    let namespace = world.nodes[node].namespace();
    let options = Options {
        host: namespace.clone(),
        audit: Duration::from_hours(1),
        allowed_masters: BTreeSet::new(),
        ovs_datapath: OvsDatapath::Netdev,
        proc_sys_net: "/proc/sys/net".into(),
        namespaces: folder.to_owned(),
    };
    let database = &world.nodes[node].switch.database;
    let switch = Arc::new(Switch::new(database.ovs(), Some(database.path("db.sock"))));
    let probes = Probes::start(
        &name(node),
        namespace.clone(),
        "/proc/sys/net".into(),
        Arc::clone(&switch),
        metrics.clone(),
    );
    let host = Host::new(namespace, Installation::default());
    let addresses = Addresses::new(folder.join("no-ipam"), folder);
    let driver = NodeDriver::new(name(node), addresses, host, Pods::new(NoPods, options), switch, probes);
    let mut options = HostOptions::new(world.server.connect("eno-driver").await, Ownership::PerTarget, "0");
    options.instance = name(node);
    RunningHost::start(driver, options)
}

/// Commands both agents to probe all VLANs at this interval.
async fn command(world: &mut World, interval: u16) {
    for node in 0..2 {
        let probes = ring(node, &format!("1-{VLANS}"));
        world.command(node, vec![NetworkProbes { interval: interval.into(), ..probes }]).await;
    }
}

/// What is used in as many seconds.
async fn used(engine: &Engine, registry: &Registry, seconds: u16) -> Used {
    let (cpu_before, probes_before, reports_before) = (cpu(), probes(registry), reports(engine).await);
    tokio::time::sleep(Duration::from_secs(seconds.into())).await;
    let (mut cpu, mut probes) = (cpu(), probes(registry));
    for (program, milliseconds) in &mut cpu {
        *milliseconds -= cpu_before.get(program).copied().unwrap_or_default();
    }
    for (outcome, count) in &mut probes {
        *count -= probes_before.get(outcome).copied().unwrap_or_default();
    }
    Used { cpu, probes, reports: reports(engine).await - reports_before }
}

/// The probes so far, by outcome.
fn probes(registry: &Registry) -> BTreeMap<String, f64> {
    let mut text = String::new();
    encode(&mut text, registry).unwrap();
    let counters = text.lines().filter_map(|line| line.split_once("outcome=\"")?.1.split_once("\"} "));
    counters.map(|(outcome, count)| (outcome.to_owned(), count.parse().unwrap())).collect()
}

/// The last sequence of the stream of reports.
async fn reports(engine: &Engine) -> u64 {
    let stream = engine.connection.jetstream.get_stream(subject::RESULTS).await.unwrap();
    stream.get_info().await.unwrap().state.last_sequence
}

/// Milliseconds of CPU time so far, by program: this process and its children.
fn cpu() -> BTreeMap<String, f64> {
    let mut all = BTreeMap::new();
    let own = std::process::id().to_string();
    for process in fs::read_dir("/proc").unwrap().flatten() {
        let Ok(stat) = fs::read_to_string(process.path().join("stat")) else { continue };
        let Some((before, fields)) = stat.rsplit_once(") ") else { continue };
        let Some((id, program)) = before.split_once(" (") else { continue };
        let fields: Vec<&str> = fields.split(' ').collect();
        // The parent, and the time in the program and in the kernel, in hundredths of a second.
        if id == own || fields[1] == own {
            let ticks: f64 = fields[11..13].iter().map(|field| field.parse::<f64>().unwrap()).sum();
            *all.entry(if id == own { "both agents" } else { program }.to_owned()).or_default() +=
                ticks * 10.0;
        }
    }
    all
}
