//! A sandbox with nodes: programs in pods, machines on the fabric, and recovery from crashes on a node. It needs the
//! programs of the workspace: `cargo build --workspace --bins`.

use std::time::Duration;

use eno::apply::apply;
use eno_control_plane::parts::Parts;
use eno_lab::sandbox::{MANAGER, Sandbox, SandboxOptions, TEST_IMAGE};
use eno_simulator::Topology;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::DynamicObject;
use kube::runtime::wait::{await_condition, conditions};
use serde_json::json;

const TIMEOUT: Duration = Duration::from_mins(1);

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
    tokio::time::timeout(TIMEOUT, running).await.expect("a pod that runs in time").expect("a watch");
}

#[tokio::test]
#[ignore = "needs root: network namespaces, cgroups and mounts"]
async fn pods_exec_programs_and_nodes_survive_crashes() {
    let dir = tempfile::tempdir().expect("a directory");
    let parts = Parts::from_env().expect("a place for the control plane's programs");
    let mut options = SandboxOptions::new(dir.path().join("sandbox"), parts).expect("eno");
    options.topology = Topology::leaf_spine(2, 1, 2);
    options.nodes = 2;
    (options.engine, options.drivers, options.agents) = (false, false, false);
    let sandbox = Sandbox::start(options).await.expect("a sandbox with nodes");
    assert_eq!(sandbox.nodes().iter().map(|node| node.name.as_str()).collect::<Vec<_>>(), ["node1", "node2"]);

    // Output and exit code of a program in a pod.
    run(&sandbox, "one", "node1").await;
    let output = sandbox.exec("default", "one", &["ip", "-o", "addr", "show", "eth0"]).await.expect("ip");
    assert!(output.success() && output.stdout.contains("10.244.1."), "{output:?}");
    let script = ["sh", "-c", "echo no >&2; exit 3"];
    let output = sandbox.exec("default", "one", &script).await.expect("sh");
    assert_eq!((output.code, output.stderr.as_str()), (3, "no\n"));
    let missing = sandbox.exec("default", "one", &["no-such-program"]).await;
    assert!(missing.map_or(true, |output| !output.success()));

    // Nodes and gateway are cabled to the fabric.
    for machine in ["node1", "node2", "dc-gw"] {
        let machine = sandbox.machine(machine).expect("a machine");
        let links = machine.command("ip").args(["-o", "link", "show", "eth1"]).output().expect("ip");
        assert!(String::from_utf8_lossy(&links.stdout).contains("state UP"), "{links:?}");
    }

    // A crashed kubelet is restarted under its name.
    let kill = |pid: u32| {
        let pid = nix::unistd::Pid::from_raw(pid.cast_signed());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).expect("a process");
    };
    let before = sandbox.pid("node2-kubelet").expect("a kubelet");
    kill(before);
    let recovered = async {
        let mut tick = tokio::time::interval(Duration::from_millis(20));
        while sandbox.pid("node2-kubelet").is_none_or(|pid| pid == before) {
            tick.tick().await;
        }
        run(&sandbox, "two", "node2").await;
        // A node is restarted too; when its first process ends, all others end with it.
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
        () = recovered => {}
        ended = sandbox.supervise() => panic!("{ended}"),
    }
    sandbox.stop().await;
}

#[tokio::test]
async fn more_nodes_than_in_the_topology_are_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let parts = Parts::from_env().expect("a place for the control plane's programs");
    let mut options = SandboxOptions::new(dir.path().join("sandbox"), parts).expect("eno");
    options.nodes = 5;
    let error = Sandbox::start(options).await.err().expect("a refusal").to_string();
    assert_eq!(error, "5 nodes are wanted, the topology has 4");
}
