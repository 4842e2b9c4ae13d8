//! Real nodes that run real pods, and their complete removal.

use std::collections::BTreeSet;
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use eno_control_plane::node::{CNI_BIN, OVSDB_SOCKET, Service, TEST_IMAGE};
use eno_control_plane::parts::Parts;
use eno_control_plane::{ControlPlane, ControlPlaneOptions, NodeError, NodesOptions};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{AttachParams, ListParams, LogParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use tokio::io::AsyncReadExt;

use crate::control_plane::ready_owner;

const TIMEOUT: Duration = Duration::from_mins(1);

async fn until<T>(what: &str, mut probe: impl AsyncFnMut() -> Option<T>) -> T {
    let mut tick = tokio::time::interval(Duration::from_millis(50));
    let polling = async {
        loop {
            tick.tick().await;
            if let Some(seen) = probe().await {
                return seen;
            }
        }
    };
    tokio::time::timeout(TIMEOUT, polling).await.unwrap_or_else(|_| panic!("{what}"))
}

fn options(dir: &Path, names: &[&str]) -> ControlPlaneOptions {
    let names = names.iter().map(|name| (*name).to_owned()).collect();
    let mut nodes = NodesOptions::new(env!("CARGO_BIN_EXE_eno-sandbox-node"), names);
    nodes.gateways.push("gw".to_owned());
    nodes.aliases.push("example.org/tools/shell".to_owned());
    ControlPlaneOptions::new(dir, Parts::from_env().unwrap()).with_nodes(nodes)
}

async fn nodes_ready(client: &Client, wanted: usize) -> Vec<Node> {
    let api: Api<Node> = Api::all(client.clone());
    let ready = |node: &Node| {
        let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
        let tainted = node.spec.iter().any(|spec| spec.taints.iter().flatten().next().is_some());
        conditions.into_iter().any(|c| c.type_ == "Ready" && c.status == "True") && !tainted
    };
    until("nodes are ready", async || {
        let nodes = api.list(&ListParams::default()).await.ok()?.items;
        (nodes.iter().filter(|node| ready(node)).count() == wanted).then_some(nodes)
    })
    .await
}

/// A Deployment whose pods are spread over the nodes.
fn deployment(name: &str, image: &str, replicas: usize) -> Deployment {
    let labels = json!({"app": name});
    serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {
                "topologySpreadConstraints": [{
                    "maxSkew": 1,
                    "topologyKey": "kubernetes.io/hostname",
                    "whenUnsatisfiable": "DoNotSchedule",
                    "labelSelector": {"matchLabels": labels},
                }],
                "containers": [{
                    "name": "shell",
                    "image": image,
                    "imagePullPolicy": "Always",
                    "command": ["/bin/bash", "-c", "echo started; exec sleep 100000"],
                }],
            }},
        },
    }))
    .unwrap()
}

async fn run(client: &Client, name: &str, image: &str, replicas: usize) -> Vec<Pod> {
    let deployments: Api<Deployment> = Api::default_namespaced(client.clone());
    deployments.create(&PostParams::default(), &deployment(name, image, replicas)).await.unwrap();
    running(client, name, replicas).await
}

async fn running(client: &Client, name: &str, wanted: usize) -> Vec<Pod> {
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let selected = ListParams::default().labels(&format!("app={name}"));
    until("pods run", async || {
        let pods = pods.list(&selected).await.ok()?.items;
        let runs = |pod: &&Pod| {
            pod.status.as_ref().is_some_and(|status| {
                status.container_statuses.iter().flatten().any(|container| container.ready)
            })
        };
        (pods.iter().filter(runs).count() == wanted).then_some(pods)
    })
    .await
}

async fn exec(client: &Client, pod: &str, command: &[&str]) -> String {
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let mut process = pods
        .exec(pod, command.iter().copied(), &AttachParams::default().stdout(true).stderr(false))
        .await
        .unwrap();
    let mut output = String::new();
    process.stdout().unwrap().read_to_string(&mut output).await.unwrap();
    output
}

fn address(pod: &Pod) -> Ipv4Addr {
    pod.status.as_ref().unwrap().pod_ip.as_ref().unwrap().parse().unwrap()
}

fn node_of(pod: &Pod) -> &str {
    pod.spec.as_ref().unwrap().node_name.as_ref().unwrap()
}

/// The host resources of a control plane with nodes, for checks that all are released.
struct HostResources {
    dir: PathBuf,
    /// The host's interface to the nodes; its name is also the prefix of their cgroups.
    link: String,
    /// The PID namespaces of the machines.
    namespaces: BTreeSet<PathBuf>,
}

impl HostResources {
    fn collect(dir: &Path, address: Ipv4Addr) -> Self {
        let pid_namespace = |entry: fs::DirEntry| {
            let pid = fs::read_to_string(entry.path().join("pid")).unwrap();
            fs::read_link(format!("/proc/{pid}/ns/pid")).unwrap()
        };
        let machines = fs::read_dir(dir.join("nodes")).unwrap();
        let namespaces = machines.map(|entry| pid_namespace(entry.unwrap())).collect();
        let resources = Self { dir: dir.to_owned(), link: interface_with(address).unwrap(), namespaces };
        assert!(!resources.processes().is_empty() && !resources.cgroups().is_empty());
        resources
    }

    fn processes(&self) -> Vec<String> {
        let pids =
            fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let inside = |pid: &String| {
            let namespace = fs::read_link(format!("/proc/{pid}/ns/pid"));
            namespace.is_ok_and(|namespace| self.namespaces.contains(&namespace))
        };
        pids.filter(inside).collect()
    }

    fn cgroups(&self) -> Vec<PathBuf> {
        let hierarchies = fs::read_dir("/sys/fs/cgroup").unwrap().map(|entry| entry.unwrap().path());
        let hierarchies = hierarchies.chain([PathBuf::from("/sys/fs/cgroup")]).filter(|path| path.is_dir());
        let entries = hierarchies.flat_map(|path| fs::read_dir(path).into_iter().flatten().flatten());
        let ours = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(&self.link));
        ours.map(|entry| entry.path()).collect()
    }

    fn remaining(&self) -> Vec<String> {
        let mut remaining = self.processes();
        remaining.extend(self.cgroups().into_iter().map(|path| path.display().to_string()));
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let ours = mounts.lines().filter(|line| line.contains(self.dir.to_str().unwrap()));
        remaining.extend(ours.map(str::to_owned));
        let link = Path::new("/sys/class/net").join(&self.link);
        remaining.extend(link.exists().then(|| self.link.clone()));
        remaining
    }

    async fn wait_until_released(&self) {
        let gone = until("", async || self.remaining().is_empty().then_some(()));
        let late = tokio::time::timeout(TIMEOUT / 2, gone).await.is_err();
        assert!(!late, "left: {:#?}", self.remaining());
    }
}

fn interface_with(address: Ipv4Addr) -> Option<String> {
    let all = nix::ifaddrs::getifaddrs().unwrap();
    let mut ours =
        all.filter(|one| one.address.as_ref().and_then(|a| Some(a.as_sockaddr_in()?.ip())) == Some(address));
    ours.next().map(|one| one.interface_name)
}

#[tokio::test]
#[ignore = "needs root: network namespaces, cgroups and mounts"]
async fn nodes_run_pods_and_stop_releases_all_resources() {
    let dir = tempfile::tempdir().unwrap();
    let control_plane = ControlPlane::start(options(dir.path(), &["east", "west"])).await.unwrap();
    let client = control_plane.client().await.unwrap();
    nodes_ready(&client, 2).await;
    let resources = HostResources::collect(control_plane.dir(), control_plane.address());

    // A Deployment with an aliased image runs pods on both nodes, and they reach each other.
    let pods = run(&client, "spread", "example.org/tools/shell:1.0", 2).await;
    let names: BTreeSet<_> = pods.iter().map(node_of).collect();
    assert_eq!(names, BTreeSet::from(["east", "west"]));
    let shown = exec(&client, &pods[0].name_any(), &["ip", "-4", "addr", "show", "eth0"]).await;
    assert!(shown.contains(&format!("inet {}/24", address(&pods[0]))), "{shown}");
    let other = address(&pods[1]).to_string();
    let ping = exec(&client, &pods[0].name_any(), &["ping", "-c", "1", "-W", "5", &other]).await;
    assert!(ping.contains(" 0% packet loss"), "{ping}");
    let api: Api<Pod> = Api::default_namespaced(client.clone());
    let log = api.logs(&pods[0].name_any(), &LogParams::default()).await.unwrap();
    assert_eq!(log, "started\n");

    // Each machine has its own CNI plugins, Open vSwitch and processes.
    let nodes = control_plane.nodes().unwrap();
    for name in ["east", "west", "gw"] {
        let machine = nodes.machine(name).unwrap();
        assert!(machine.inside(OVSDB_SOCKET).exists());
        let output = machine
            .command("ovs-vsctl")
            .args(["add-br", "br0", "--", "set", "bridge", "br0"])
            .arg("datapath_type=netdev")
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
    }
    let east = nodes.machine("east").unwrap();
    assert!(east.inside(CNI_BIN).join("macvlan").exists());
    let output = east.command("hostname").output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "east\n");
    let output = east.command("sh").args(["-c", "exit 7"]).status().unwrap();
    assert_eq!(output.code(), Some(7));

    // containerd can restart after a crash without restarting pods.
    let child = east.child(Service::Containerd);
    control_plane.supervisor().kill_child(&child).await.unwrap();
    nodes.start_service(control_plane.supervisor(), "east", Service::Containerd).await.unwrap();
    let pid = control_plane.supervisor().pid(&child).unwrap();
    assert!(pid > 0);
    run(&client, "later", TEST_IMAGE, 2).await;
    let same = running(&client, "spread", 2).await;
    let restarts =
        same.iter().flat_map(|pod| pod.status.iter().flat_map(|s| s.container_statuses.iter().flatten()));
    assert_eq!(restarts.map(|container| container.restart_count).sum::<i32>(), 0);

    control_plane.stop().await;
    resources.wait_until_released().await;
}

#[tokio::test]
#[ignore = "needs root: network namespaces, cgroups and mounts"]
async fn killed_owner_releases_all_resources_and_directory_starts_again() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("cluster");
    let program = env!("CARGO_BIN_EXE_eno-control-plane");
    let mut owner = ready_owner(program, &["--nodes", "1"], &dir).await;
    let read = kube::config::Kubeconfig::read_from(dir.join("kubeconfig")).unwrap();
    let how = kube::config::KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(read, &how).await.unwrap();
    let address: Ipv4Addr = config.cluster_url.host().unwrap().parse().unwrap();
    let client = Client::try_from(config).unwrap();
    nodes_ready(&client, 1).await;
    run(&client, "before", TEST_IMAGE, 2).await;
    let resources = HostResources::collect(&dir, address);

    owner.kill().await.unwrap();
    resources.wait_until_released().await;

    // Another owner starts at once with the same node name: the pods are restarted.
    let mut again = options(&dir, &["node1"]);
    if let Some(nodes) = &mut again.nodes {
        nodes.gateways.clear();
    }
    let control_plane = ControlPlane::start(again).await.unwrap();
    assert_eq!(control_plane.address(), address);
    let client = control_plane.client().await.unwrap();
    let nodes = control_plane.nodes().unwrap();
    let netns = nodes.get("node1").unwrap().machine().network_namespace();
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    until("the pods run anew", async || {
        let pods = pods.list(&ListParams::default()).await.ok()?;
        let restarted = pods.iter().filter(|pod| {
            let statuses = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
            statuses.into_iter().any(|container| container.ready && container.restart_count > 0)
        });
        (restarted.count() == 2).then_some(())
    })
    .await;
    assert!(netns.exists());
    let resources = HostResources::collect(&dir, address);
    // Dropping the control plane without a stop also releases everything.
    drop(control_plane);
    resources.wait_until_released().await;
}

#[test]
fn check_refuses_invalid_host_names() {
    for bad in ["", "A", "a/b", "..", "-a", "gw", "hub"] {
        let refused = options(Path::new("/nowhere"), &[bad]).nodes.unwrap().check();
        assert!(matches!(refused, Err(NodeError::Name { .. })), "{bad}: {refused:?}");
    }
}
