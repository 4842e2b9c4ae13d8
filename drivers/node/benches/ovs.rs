//! 1,000 ports of pods in a real switch (userspace datapath): one reconcile, side by side with one `ovs-vsctl` per
//! port. Both wait until ovs-vswitchd has them. Needs root, for network namespaces.
//!
//! `ovs-vsctl` is measured on a sample, and first, while the switch has no ports: each of its steps takes longer
//! the more there are.

#[expect(dead_code, reason = "the tests use more of it")]
#[path = "../tests/ovs/rig.rs"]
mod rig;

use std::process::Command;
use std::time::{Duration, Instant};

use rig::{Node, access, bridge, desired};

const PORTS: u16 = 1000;
const SAMPLE: u16 = 30;

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let node = Node::start();
    veths(&node, PORTS + SAMPLE);
    let per_port = |elapsed: Duration, ports: u16| elapsed.as_secs_f64() * 1e3 / f64::from(ports);

    vsctl(&node, &["add-br", "sample", "--", "set", "bridge", "sample", "datapath_type=netdev"]);
    let start = Instant::now();
    for number in PORTS..PORTS + SAMPLE {
        vsctl(&node, &["add-port", "sample", &format!("v{number}"), "tag=10"]);
    }
    let one_by_one = per_port(start.elapsed(), SAMPLE);

    let mut wanted = desired();
    wanted.bridges.insert("br1".into(), bridge(&[], &[]));
    for number in 0..PORTS {
        wanted.ports.insert(format!("v{number}"), access("br1", 10));
    }
    let native = runtime.block_on(async {
        let ovs = node.database.ovs();
        ovs.reconcile(&desired()).await.unwrap();
        let start = Instant::now();
        let applied = ovs.reconcile(&wanted).await.unwrap();
        let elapsed = start.elapsed();
        assert_eq!((applied.rejected.len(), applied.ports.len()), (0, PORTS.into()));
        per_port(elapsed, PORTS)
    });
    println!("per port, until the switch has it");
    println!("  one reconcile of {PORTS} ports     {native:9.3} ms");
    println!("  ovs-vsctl add-port, {SAMPLE} ports    {one_by_one:9.3} ms");
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
