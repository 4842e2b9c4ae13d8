//! 1,000 ports of pods in a real switch (userspace datapath): one reconcile, side by side with one `ovs-vsctl` per
//! port. Both wait until ovs-vswitchd has them. Needs root, for network namespaces.
//!
//! Each `ovs-vsctl` takes longer the more ports there are, so it is measured in a switch when that is empty,
//! full, and in between. The time for all ports one by one is the area below that curve.

#[expect(dead_code, reason = "the tests use more of it")]
#[path = "../tests/ovs/fixture.rs"]
mod fixture;

use std::process::Command;
use std::time::{Duration, Instant};

use eno_driver_node::ovs::Ovs;
use fixture::{Node, access, bridge, desired};

const PORTS: u16 = 1000;
/// Ports by `ovs-vsctl` with none, a quarter, half, three quarters and all of the others there.
const SAMPLE: u16 = 8;
const FILLED: [u16; 5] = [0, PORTS / 4, PORTS / 2, PORTS / 4 * 3, PORTS];

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let _runtime = runtime.enter();
    let samples = SAMPLE * u16::try_from(FILLED.len()).unwrap();
    let per_port = |elapsed: Duration, ports: u16| elapsed.as_secs_f64() * 1e3 / f64::from(ports);
    let fill = |ovs: &Ovs, ports: u16| {
        let mut wanted = desired();
        wanted.bridges.insert("br1".into(), bridge(&[], &[]));
        for number in 0..ports {
            wanted.ports.insert(format!("v{number}"), access("br1", 10));
        }
        let start = Instant::now();
        let applied = runtime.block_on(ovs.reconcile(&wanted)).unwrap();
        let elapsed = start.elapsed();
        assert_eq!((applied.rejected.len(), applied.ports.len()), (0, ports.into()));
        elapsed
    };
    let start = || {
        let node = Node::start();
        veths(&node, PORTS + samples);
        let ovs = node.database.ovs();
        fill(&ovs, 0);
        (node, ovs)
    };
    let native = {
        let (_node, ovs) = start();
        per_port(fill(&ovs, PORTS), PORTS)
    };
    let (node, ovs) = start();
    println!("per port, until the switch has it");
    println!("  one reconcile of {PORTS} ports            {native:9.3} ms");
    let mut next = PORTS;
    let steps: Vec<f64> = FILLED
        .iter()
        .map(|filled| {
            fill(&ovs, *filled);
            let start = Instant::now();
            for number in next..next + SAMPLE {
                vsctl(&node, &["add-port", "br1", &format!("v{number}"), "tag=10"]);
            }
            next += SAMPLE;
            let step = per_port(start.elapsed(), SAMPLE);
            println!("  ovs-vsctl add-port with {filled:4} there      {step:9.3} ms");
            step
        })
        .collect();
    let areas: Vec<f64> = steps.windows(2).map(|pair| f64::midpoint(pair[0], pair[1])).collect();
    let one_by_one = areas.iter().sum::<f64>() / (f64::from(samples / SAMPLE) - 1.0);
    println!("  {PORTS} ports by ovs-vsctl, on average     {one_by_one:9.3} ms");
    println!("  {:.0} times faster", one_by_one / native);
}

/// Interfaces `v0`, `v1` and so on, whose other ends lead nowhere.
fn veths(node: &Node, count: u16) {
    let batch = node.database.path("veths");
    let line = |number| format!("link add name v{number} type veth peer name w{number}\n");
    std::fs::write(&batch, (0..count).map(line).collect::<String>()).unwrap();
    node.ip(&["-batch", &batch.display().to_string()]);
}

fn vsctl(node: &Node, args: &[&str]) {
    let remote = format!("--db=unix:{}", node.database.path("db.sock").display());
    let done = Command::new("ovs-vsctl").args(["--timeout=30", &remote]).args(args).status().unwrap();
    assert!(done.success());
}
