//! Teardown of the data plane, and its behaviour when daemons, hosts or the simulator fail.

use std::path::Path;
use std::process::{Command, Stdio};

use eno_simulator::{FabricOptions, SimulatorArgs, Topology, run};

use crate::dataplane::gateway::{instance, member, subinterface};
use crate::dataplane::host::{Host, succeed};
use crate::dataplane::openconfig_bgp;
use crate::dataplane::testbed::{NODE2, TIMEOUT, Testbed, access, bgp_daemons, daemons, start, wires};

/// Waits for a condition, at most [`TIMEOUT`].
pub async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let wait = async {
        while !condition() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(TIMEOUT, wait).await.unwrap_or_else(|_| panic!("{what}"));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: makes network namespaces"]
async fn shutdown_removes_interfaces_and_daemons() {
    let testbed = Testbed::new(2).await;
    assert!(testbed.node1.has("eth1"));
    assert_eq!(daemons(testbed.dir.path()).len(), 2);
    testbed.fabric.shutdown().await;
    assert!(!testbed.node1.has("eth1") && !testbed.node2.has("eth1"));
    assert_eq!(daemons(testbed.dir.path()), []);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: makes network namespaces"]
async fn dropped_fabric_removes_interfaces_and_daemons() {
    let testbed = Testbed::new(1).await;
    let Testbed { fabric, node1, dir, .. } = testbed;
    drop(fabric);
    eventually("the interface stays", || !node1.has("eth1")).await;
    eventually("the daemons stay", || daemons(dir.path()).is_empty()).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: makes network namespaces"]
async fn simulator_command_runs_data_plane_on_request() {
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

/// Environment variable with the arguments of the child process of [`killed_simulator_leaves_no_interfaces_or_daemons`].
const CHILD_ARGUMENTS: &str = "ENO_TEST_DATA_PLANE_VICTIM";

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: makes network namespaces"]
async fn killed_simulator_leaves_no_interfaces_or_daemons() {
    let mut topology = Topology::leaf_spine(2, 1, 2);
    topology.add_router("gw1", "openconfig", &["spine1"]);
    let vrf = subinterface(100, &["10.7.0.254/24"]) + &instance("blue", &member("Ethernet1", Some(100)));
    let bgp = openconfig_bgp::instance("blue", &openconfig_bgp::global(65000), "");
    topology.switches.last_mut().expect("gw1").configuration = Some(vrf + &bgp);
    let programs = |dir: &Path| bgp_daemons(dir).into_iter().map(|(_, name)| name).collect::<Vec<_>>();
    if let Ok(arguments) = std::env::var(CHILD_ARGUMENTS) {
        let (dir, wires): (std::path::PathBuf, Vec<eno_simulator::PortWire>) =
            serde_json::from_str(&arguments).expect("a directory and wires");
        let fabric = start(&topology, &dir, &wires).await.expect("the fabric starts");
        fabric.data_plane().expect("it was asked for").settled().await;
        std::fs::write(dir.join("ready"), "").expect("the directory is there");
        std::future::pending::<()>().await;
    }
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (node1, node2) = (Host::new(), Host::new());
    let wires = wires(&node1, &node2);
    let mut child = Command::new(std::env::current_exe().expect("this program"));
    child.args([
        "--exact",
        "--include-ignored",
        "dataplane::teardown::killed_simulator_leaves_no_interfaces_or_daemons",
    ]);
    child.env(CHILD_ARGUMENTS, serde_json::to_string(&(dir.path(), &wires)).expect("JSON"));
    let mut child = child.stdout(Stdio::null()).spawn().expect("it starts");
    eventually("it is not ready", || dir.path().join("ready").exists()).await;
    assert!(node1.has("eth1"));
    assert_eq!(daemons(dir.path()).len(), 2);
    assert_eq!(programs(dir.path()), ["bgpd", "zebra"]);
    let before = bgp_daemons(dir.path());
    child.kill().expect("it runs");
    child.wait().expect("it was killed");

    // Start again at once with the same directory and the same names.
    let fabric = start(&topology, dir.path(), &wires).await.expect("the fabric starts again");
    tokio::time::timeout(TIMEOUT, fabric.data_plane().expect("it was asked for").settled())
        .await
        .expect("it settles");
    assert_eq!(daemons(dir.path()).len(), 2);
    assert_eq!(programs(dir.path()), ["bgpd", "zebra"]);
    assert!(bgp_daemons(dir.path()).iter().all(|daemon| !before.contains(daemon)), "{before:?}");
    fabric.shutdown().await;
    assert!(!node1.has("eth1"));
    assert_eq!(daemons(dir.path()), []);
    assert_eq!(bgp_daemons(dir.path()), []);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: makes network namespaces"]
async fn killed_ovs_daemons_are_restarted() {
    let testbed = Testbed::carrying_vlan_100(1).await;
    for program in ["ovs-vswitchd", "ovsdb-server"] {
        let found = |name: &str| {
            daemons(testbed.dir.path()).into_iter().find(|(_, found)| found == name).map(|(pid, _)| pid)
        };
        let pid = found(program).expect(program);
        succeed(Command::new("kill").args(["-KILL", &pid.to_string()]));
        eventually("it is not started again", || found(program).is_some_and(|other| other != pid)).await;
        let settled = || testbed.data_plane().status().ready;
        eventually("it doesn't settle", settled).await;
        assert!(testbed.node1.reaches(NODE2), "{program} was killed");
    }
    testbed.fabric.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: makes network namespaces"]
async fn removed_host_does_not_affect_other_hosts() {
    let testbed = Testbed::new(1).await;
    testbed.carry_vlans(&[100]).await;
    let Testbed { fabric, node1, node2, dir: _dir } = testbed;
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
async fn start_reports_taken_interface_name_and_cleans_up() {
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
async fn fabric_has_no_data_plane_by_default() {
    let fabric = eno_simulator::Fabric::start(&Topology::leaf_spine(1, 0, 0), FabricOptions::default())
        .await
        .expect("starts");
    assert!(fabric.data_plane().is_none());
    fabric.shutdown().await;
}

#[tokio::test]
async fn start_refuses_wire_to_missing_port_before_creating_anything() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let wire = "leaf1/Ethernet77=eth1".parse().expect("a wire");
    let error = start(&Topology::leaf_spine(1, 0, 0), dir.path(), &[wire]).await.expect_err("no such port");
    assert!(error.to_string().contains("no port Ethernet77 on a switch leaf1"), "{error}");
    assert!(!Path::exists(&dir.path().join("dataplane")));
}
