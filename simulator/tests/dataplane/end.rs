//! What is left of a data plane: nothing. And how it bears with what others do to it.

use std::path::Path;
use std::process::{Command, Stdio};

use eno_simulator::{FabricOptions, SimulatorArgs, Topology, run};

use crate::dataplane::bench::{Bench, NODE2, PATIENCE, access, daemons, start, wires};
use crate::dataplane::host::{Host, succeed};

/// Waits for what others do.
async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let wait = async {
        while !condition() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.unwrap_or_else(|_| panic!("{what}"));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: makes network namespaces"]
async fn the_end_of_the_fabric_removes_everything() {
    let bench = Bench::new(2).await;
    assert!(bench.node1.has("eth1"));
    assert_eq!(daemons(bench.dir.path()).len(), 2);
    bench.fabric.shutdown().await;
    assert!(!bench.node1.has("eth1") && !bench.node2.has("eth1"));
    assert_eq!(daemons(bench.dir.path()), []);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: makes network namespaces"]
async fn a_fabric_that_is_dropped_removes_everything() {
    let bench = Bench::new(1).await;
    let Bench { fabric, node1, dir, .. } = bench;
    drop(fabric);
    eventually("the interface stays", || !node1.has("eth1")).await;
    eventually("the daemons stay", || daemons(dir.path()).is_empty()).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: makes network namespaces"]
async fn the_command_has_a_data_plane_on_request() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (node1, node2) = (Host::new(), Host::new());
    let args = SimulatorArgs {
        topology: None,
        dir: dir.path().to_owned(),
        control: None,
        data_plane: true,
        wires: wires(&node1, &node2),
    };
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let running = tokio::spawn(run(args, async { stopped.await.expect("told to stop") }));
    eventually("the fabric is not ready", || dir.path().join("fabric.json").exists()).await;
    assert!(node1.has("eth1") && node2.has("eth1"));
    stop.send(()).expect("it runs");
    running.await.expect("no panic").expect("it ends well");
    assert!(!node1.has("eth1") && !node2.has("eth1"));
}

/// Says to [`a_simulator_that_is_killed_leaves_nothing`]'s child what it is.
const VICTIM: &str = "ENO_TEST_DATA_PLANE_VICTIM";

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: makes network namespaces"]
async fn a_simulator_that_is_killed_leaves_nothing() {
    let topology = Topology::leaf_spine(2, 1, 2);
    if let Ok(told) = std::env::var(VICTIM) {
        let (dir, wires): (std::path::PathBuf, Vec<eno_simulator::PortWire>) =
            serde_json::from_str(&told).expect("a directory and wires");
        let fabric = start(&topology, &dir, &wires).await.expect("the fabric starts");
        fabric.data_plane().expect("it was asked for").settled().await;
        std::fs::write(dir.join("ready"), "").expect("the directory is there");
        std::future::pending::<()>().await;
    }
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (node1, node2) = (Host::new(), Host::new());
    let wires = wires(&node1, &node2);
    let mut victim = Command::new(std::env::current_exe().expect("this program"));
    victim.args([
        "--exact",
        "--include-ignored",
        "dataplane::end::a_simulator_that_is_killed_leaves_nothing",
    ]);
    victim.env(VICTIM, serde_json::to_string(&(dir.path(), &wires)).expect("JSON"));
    let mut victim = victim.stdout(Stdio::null()).spawn().expect("it starts");
    eventually("it is not ready", || dir.path().join("ready").exists()).await;
    assert!(node1.has("eth1"));
    assert_eq!(daemons(dir.path()).len(), 2);
    victim.kill().expect("it runs");
    victim.wait().expect("it was killed");

    // At once, with the same directory and the same names.
    let fabric = start(&topology, dir.path(), &wires).await.expect("the fabric starts again");
    tokio::time::timeout(PATIENCE, fabric.data_plane().expect("it was asked for").settled())
        .await
        .expect("it settles");
    assert_eq!(daemons(dir.path()).len(), 2);
    fabric.shutdown().await;
    assert!(!node1.has("eth1"));
    assert_eq!(daemons(dir.path()), []);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: makes network namespaces"]
async fn daemons_that_die_are_started_again() {
    let bench = Bench::new(1).await;
    bench.carry(&[100]).await;
    for leaf in ["leaf1", "leaf2"] {
        bench.change(leaf, &access("Ethernet1", 100)).await;
    }
    for program in ["ovs-vswitchd", "ovsdb-server"] {
        let found = |name: &str| {
            daemons(bench.dir.path()).into_iter().find(|(_, found)| found == name).map(|(pid, _)| pid)
        };
        let pid = found(program).expect(program);
        succeed(Command::new("kill").args(["-KILL", &pid.to_string()]));
        eventually("it is not started again", || found(program).is_some_and(|other| other != pid)).await;
        let settled = || bench.data_plane().status().ready;
        eventually("it doesn't settle", settled).await;
        assert!(bench.node1.pings(NODE2), "{program} was killed");
    }
    bench.fabric.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: makes network namespaces"]
async fn a_host_that_goes_does_not_disturb_others() {
    let bench = Bench::new(1).await;
    bench.carry(&[100]).await;
    let Bench { fabric, node1, node2, dir: _dir } = bench;
    drop(node1);
    let leaf = fabric.switch("leaf1").expect("leaf1");
    leaf.change_by_hand(&access("Ethernet1", 100)).expect("the port exists");
    let data_plane = fabric.data_plane().expect("it was asked for");
    let applied = || data_plane.status().switches["leaf1"].applied == *leaf.version().borrow();
    eventually("the change is not applied", applied).await;
    assert!(node2.has_carrier());
    fabric.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: makes network namespaces"]
async fn a_taken_name_is_said_and_nothing_is_left() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (node1, node2) = (Host::new(), Host::new());
    succeed(node2.command("ip").args(["link", "add", "eth1", "type", "veth", "peer", "name", "eth2"]));
    let error = start(&Topology::leaf_spine(2, 1, 2), dir.path(), &wires(&node1, &node2))
        .await
        .expect_err("the name is taken")
        .to_string();
    assert!(error.contains("eth1") && error.contains("File exists"), "{error}");
    eventually("the interface stays", || !node1.has("eth1")).await;
    eventually("the daemons stay", || daemons(dir.path()).is_empty()).await;
}

#[tokio::test]
async fn without_a_data_plane_there_is_none() {
    let fabric = eno_simulator::Fabric::start(&Topology::leaf_spine(1, 0, 0), FabricOptions::default())
        .await
        .expect("starts");
    assert!(fabric.data_plane().is_none());
    fabric.shutdown().await;
}

#[tokio::test]
async fn wires_into_nothing_are_refused_before_anything_is_made() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let wire = "leaf1/Ethernet77=eth1".parse().expect("a wire");
    let error = start(&Topology::leaf_spine(1, 0, 0), dir.path(), &[wire]).await.expect_err("no such port");
    assert!(error.to_string().contains("no port Ethernet77 on a switch leaf1"), "{error}");
    assert!(!Path::exists(&dir.path().join("dataplane")));
}
