//! A sandbox with nodes: programs in pods, machines on the fabric, and what happens when a program of a node ends.
//! Needs the programs of the workspace: cargo build --workspace --bins.

use std::time::Duration;

use eno::apply::apply;
use eno::sandbox::{MANAGER, Sandbox, SandboxOptions, TEST_IMAGE};
use eno_control_plane::parts::Parts;
use eno_simulator::Topology;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::DynamicObject;
use kube::runtime::wait::{await_condition, conditions};
use serde_json::json;

const PATIENCE: Duration = Duration::from_mins(1);

fn pod(name: &str, node: &str) -> DynamicObject {
    let pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "nodeSelector": {"kubernetes.io/hostname": node},
            "containers": [{"name": "shell", "image": TEST_IMAGE}],
        },
    });
    serde_json::from_value(pod).expect("a pod")
}

async fn run(sandbox: &Sandbox, name: &str, node: &str) {
    apply(&sandbox.client(), MANAGER, &pod(name, node)).await.expect("a pod");
    let pods: Api<Pod> = Api::namespaced(sandbox.client(), "default");
    let running = await_condition(pods, name, conditions::is_pod_running());
    tokio::time::timeout(PATIENCE, running).await.expect("a pod that runs in time").expect("a watch");
}

#[tokio::test]
#[ignore = "needs root: network namespaces, cgroups and mounts"]
async fn pods_run_programs_and_a_node_gets_over_its_end_and_that_of_its_kubelet() {
    let dir = tempfile::tempdir().expect("a directory");
    let parts = Parts::from_env().expect("a place for the control plane's programs");
    let mut options = SandboxOptions::new(dir.path().join("sandbox"), parts).expect("eno");
    options.topology = Topology::leaf_spine(2, 1, 2);
    options.nodes = 2;
    (options.engine, options.drivers, options.agents) = (false, false, false);
    let sandbox = Sandbox::start(options).await.expect("a sandbox with nodes");
    assert_eq!(sandbox.nodes().iter().map(|node| node.name.as_str()).collect::<Vec<_>>(), ["node1", "node2"]);

    // What a program in a pod writes, and how it ends.
    run(&sandbox, "one", "node1").await;
    let output = sandbox.exec("default", "one", &["ip", "-o", "addr", "show", "eth0"]).await.expect("ip");
    assert!(output.success() && output.stdout.contains("10.244.1."), "{output:?}");
    let script = ["sh", "-c", "echo no >&2; exit 3"];
    let output = sandbox.exec("default", "one", &script).await.expect("sh");
    assert_eq!((output.code, output.stderr.as_str()), (3, "no\n"));
    let missing = sandbox.exec("default", "one", &["no-such-program"]).await;
    assert!(missing.map_or(true, |output| !output.success()));

    // Nodes and gateway hang on the fabric, and nothing of that is in the machine's own network.
    for machine in ["node1", "node2", "dc-gw"] {
        let machine = sandbox.machine(machine).expect("a machine");
        let links = machine.command("ip").args(["-o", "link", "show", "eth1"]).output().expect("ip");
        assert!(String::from_utf8_lossy(&links.stdout).contains("state UP"), "{links:?}");
    }

    // A kubelet that dies is started again, under its name.
    let kill = |pid: u32| {
        let pid = nix::unistd::Pid::from_raw(pid.cast_signed());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).expect("a process");
    };
    let before = sandbox.pid("node2-kubelet").expect("a kubelet");
    kill(before);
    let again = async {
        let mut tick = tokio::time::interval(Duration::from_millis(20));
        while sandbox.pid("node2-kubelet").is_none_or(|pid| pid == before) {
            tick.tick().await;
        }
        run(&sandbox, "two", "node2").await;
        // So is a node, whose first process ends with all others.
        let before = sandbox.machine("node1").expect("a machine").pid();
        kill(before);
        let up =
            || sandbox.machine("node1").is_some_and(|machine| machine.pid() != before && machine.is_up());
        while !up() || sandbox.pid("node1-kubelet").is_none() {
            tick.tick().await;
        }
        run(&sandbox, "three", "node1").await;
        let cabled = || {
            let machine = sandbox.machine("node1").expect("a machine");
            let links = machine.command("ip").args(["-o", "link", "show", "eth1"]).output().expect("ip");
            String::from_utf8_lossy(&links.stdout).contains("state UP")
        };
        while !cabled() {
            tick.tick().await;
        }
    };
    tokio::select! {
        () = again => {}
        ended = sandbox.supervise() => panic!("{ended}"),
    }
    sandbox.stop().await;
}

#[tokio::test]
async fn more_nodes_than_the_topology_has_are_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let parts = Parts::from_env().expect("a place for the control plane's programs");
    let mut options = SandboxOptions::new(dir.path().join("sandbox"), parts).expect("eno");
    options.nodes = 5;
    let error = Sandbox::start(options).await.err().expect("a refusal").to_string();
    assert_eq!(error, "5 nodes are wanted, the topology has 4");
}
