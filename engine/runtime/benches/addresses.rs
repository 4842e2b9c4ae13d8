//! How long pods on 100 nodes wait for an address: those of a Subnet with the Ipam eno, and with whereabouts on the same API
//! server.
//!
//! ```text
//! cargo build --release -p eno-ipam
//! WHEREABOUTS=…/whereabouts WHEREABOUTS_CRDS=…/doc/crds cargo bench -p eno-engine --bench addresses
//! ```
//!
//! Engine, API server, NATS and plugins are real. Agents are real in what concerns addresses, and all are in this process.
//! Each node calls the plugin for its pods as a container runtime does, one pod after the other. A call that fails is
//! repeated at once.
//!
//! The pods exist before the first call, as objects. The attachment is created with the first call. So the measured time
//! begins without leases of nodes, and ends with the last answer. Requests to the API server are counted until ENO is quiet
//! again, without those of an idle cluster.

mod cluster;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use eno_driver_node::addresses::Addresses;
use eno_nbi_crds::{L2Service, L2ServiceAttachment, Subnet, manifest};
use eno_sbi::{Driver, Identity, Reconciled, Work};
use eno_schemas::{Applied, Desired, PayloadKind};
use futures::future::join_all;
use futures::{Stream, StreamExt as _, stream};
use ipnet::IpNet;
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use kube::Client;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, PostParams};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep, timeout_at};

use cluster::api::{apply, delete, until};
use cluster::{Cluster, NAMESPACE, cpu_of_the_engine, create_network, requests};

const NODES: usize = 100;
/// Pods on all nodes.
const SIZES: [usize; 2] = [500, 5000];
/// A plugin is stopped after this time.
const LIMIT: Duration = Duration::from_mins(6);
/// For which requests of an idle cluster are counted.
const IDLE: Duration = Duration::from_secs(10);
/// Kinds of requests that are printed, the most frequent ones.
const KINDS: usize = 8;

/// The part of the agent that concerns addresses. All else is carried out.
struct Agent {
    node: String,
    addresses: Addresses,
}

impl Driver for Agent {
    fn identity(&self) -> Identity {
        Identity { name: "node".into(), kinds: vec![PayloadKind::Node], capabilities: Vec::new() }
    }

    fn only_target(&self) -> Option<String> {
        Some(self.node.clone())
    }

    async fn reconcile(&self, work: Work) -> Reconciled {
        let Desired::Node(desired) = &work.command.desired else { panic!("{:?}", work.command) };
        let mut applied = desired.carried_out(|_, link| link.carried_out("1"));
        if let Applied::Node { addresses, .. } = &mut applied {
            *addresses = self.addresses.reconcile(&desired.addresses).await.unwrap();
        }
        Reconciled::applied(applied)
    }

    fn changed(&self) -> impl Stream<Item = String> + Send + 'static {
        let node = self.node.clone();
        self.addresses.changed().map(move |()| node.clone())
    }
}

/// An IPAM plugin, and how it is called.
#[derive(Clone)]
struct Plugin {
    name: &'static str,
    program: PathBuf,
    config: String,
    /// Has a folder for each node.
    folder: PathBuf,
}

impl Plugin {
    fn new(name: &'static str, program: PathBuf, folder: &Path, ipam: &Value) -> Self {
        let config = json!({ "cniVersion": "0.3.1", "name": "bench", "type": "ovs", "ipam": ipam });
        Self { name, program, config: config.to_string(), folder: folder.to_owned() }
    }

    /// Calls it for a pod, and returns its answer. A folder stands for the network namespace of the pod.
    async fn call(&self, command: &str, node: &str, pod: &str) -> Result<Value, String> {
        let folder = self.folder.join(node);
        let mut program = Command::new(&self.program);
        program
            .env_clear()
            .env("ENO_IPAM_DIR", &folder)
            .env("CNI_NETNS", &folder)
            .env("CNI_PATH", "/opt/cni/bin");
        program.envs([("CNI_COMMAND", command), ("CNI_CONTAINERID", pod), ("CNI_IFNAME", "net1")]);
        let pod = format!("K8S_POD_NAMESPACE={NAMESPACE};K8S_POD_NAME={pod};K8S_POD_UID={pod}");
        program.env("CNI_ARGS", format!("IgnoreUnknown=1;{pod}"));
        program.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
        let mut child = program.spawn().unwrap();
        child.stdin.take().unwrap().write_all(self.config.as_bytes()).await.unwrap();
        let output = child.wait_with_output().await.unwrap();
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        Ok(serde_json::from_slice(&output.stdout).unwrap_or_default())
    }

    /// Calls it for the pods of a node, one after the other, and repeats what fails.
    async fn call_all(&self, command: &str, node: &str, pods: Vec<String>, until: Instant) -> Called {
        let mut called = Called::default();
        for pod in pods {
            loop {
                match timeout_at(until, self.call(command, node, &pod)).await {
                    Ok(Ok(answer)) => {
                        called.answers.push((pod, answer, Instant::now()));
                        break;
                    }
                    Ok(Err(failure)) => called.failures.push(failure),
                    Err(_) => return called,
                }
            }
        }
        called
    }
}

/// What calls led to.
#[derive(Default)]
struct Called {
    /// The pods with their answers.
    answers: Vec<(String, Value, Instant)>,
    failures: Vec<String>,
}

/// One plugin on all nodes.
struct Side<'a> {
    cluster: &'a Cluster,
    plugin: Plugin,
    /// Requests of an idle cluster in a second.
    idle: &'a BTreeMap<[String; 3], f64>,
}

impl Side<'_> {
    /// Calls the plugin for these pods of each node, while something else is done. Returns the pods that had an answer, with
    /// their addresses, and the time of a pod.
    async fn measure(
        &self,
        command: &'static str,
        pods: &[Vec<String>],
        meanwhile: impl Future<Output = ()>,
    ) -> (Vec<Vec<(String, Option<IpAddr>)>>, Duration) {
        let before = (requests(&self.cluster.client).await, cpu_of_the_engine());
        let started = Instant::now();
        let calls = self.cluster.nodes.iter().zip(pods).map(|(node, pods)| {
            let (plugin, node, pods) = (self.plugin.clone(), node.clone(), pods.clone());
            tokio::spawn(async move { plugin.call_all(command, &node, pods, started + LIMIT).await })
        });
        let calls: Vec<_> = calls.collect();
        meanwhile.await;
        let called = join_all(calls).await.into_iter().map(Result::unwrap).collect::<Vec<_>>();
        let times =
            |called: &Called| called.answers.iter().map(|(_, _, at)| *at - started).collect::<Vec<_>>();
        let times: Vec<_> = called.iter().map(times).collect();
        let last = times.iter().flatten().max().copied().unwrap_or_default();
        let first = times.iter().filter_map(|times| times.first()).max().copied().unwrap_or_default();
        let failures: Vec<_> = called.iter().flat_map(|called| &called.failures).collect();
        let (count, all) = (times.iter().flatten().count(), pods.iter().map(Vec::len).sum());
        let stopped = if count < all { format!(", stopped at {count} of {all}") } else { String::new() };
        println!(
            "{:11} {command} of {all} pods: {:.2} s, one on each node after {:.2} s, {} failures{stopped}",
            self.plugin.name,
            last.as_secs_f64(),
            first.as_secs_f64(),
            failures.len(),
        );
        if let Some(failure) = failures.first() {
            println!("    the first failure: {}", failure.split_whitespace().collect::<Vec<_>>().join(" "));
        }
        self.cluster.until_quiet().await;
        let cpu = cpu_of_the_engine() - before.1;
        let counted = self.requests_since(&before.0, started.elapsed()).await;
        println!("    {counted}; engine {cpu:.0} ms of CPU");
        let answers = called.into_iter().map(|called| {
            let answers = called.answers.into_iter();
            answers.map(|(pod, answer, _)| (pod, address(&answer))).collect()
        });
        (answers.collect(), last / u32::try_from(count.max(1)).unwrap())
    }

    /// The requests since then, without those of an idle cluster.
    async fn requests_since(&self, before: &BTreeMap<[String; 3], f64>, time: Duration) -> String {
        let now = requests(&self.cluster.client).await.into_iter();
        // A watch ends after some minutes, whatever happens.
        let now = now
            .filter(|([verb, _, resource], _)| verb != "WATCH" && resource.starts_with(char::is_alphabetic));
        let more = now.map(|(key, count)| {
            let idle = self.idle.get(&key).copied().unwrap_or(0.0) * time.as_secs_f64();
            ((count - before.get(&key).copied().unwrap_or(0.0) - idle).round(), key)
        });
        let mut more: Vec<_> = more.filter(|(count, _)| *count > 0.0).collect();
        more.sort_by(|a, b| b.partial_cmp(a).unwrap());
        let all = more.iter().fold(0.0, |all, (count, _)| all + count);
        let kinds =
            more.iter().take(KINDS).map(|(count, [verb, _, resource])| format!("{count} {verb} {resource}"));
        format!("{all} requests: {}", kinds.collect::<Vec<_>>().join(", "))
    }

    /// Measures ADD and DEL. Returns the time of a pod.
    async fn measure_both(&self, pods: &[Vec<String>], meanwhile: impl Future<Output = ()>) -> [Duration; 2] {
        let (added, add) = self.measure("ADD", pods, meanwhile).await;
        let addresses: Vec<_> = added.iter().flatten().map(|(_, address)| address.unwrap()).collect();
        let distinct: BTreeSet<_> = addresses.iter().collect();
        assert_eq!(distinct.len(), addresses.len(), "no address has two pods");
        let added: Vec<Vec<String>> =
            added.into_iter().map(|pods| pods.into_iter().map(|(pod, _)| pod).collect()).collect();
        let (_, del) = self.measure("DEL", &added, async {}).await;
        [add, del]
    }
}

fn address(answer: &Value) -> Option<IpAddr> {
    Some(answer["ips"][0]["address"].as_str()?.parse::<IpNet>().unwrap().addr())
}

fn main() {
    cluster::measure(measure);
}

async fn measure(engine: Handle) {
    let folder = tempfile::tempdir().unwrap();
    let mut cluster = Cluster::start(&engine, NODES).await;
    for node in cluster.nodes.clone() {
        let pools = folder.path().join(&node);
        std::fs::create_dir(&pools).unwrap();
        let addresses = Addresses::new(pools, folder.path().join("namespaces"));
        cluster.run(Agent { node, addresses }).await;
    }
    let client = cluster.client.clone();
    let whereabouts = match std::env::var_os("WHEREABOUTS") {
        Some(program) => Some((PathBuf::from(program), prepare_whereabouts(&cluster, folder.path()).await)),
        None => None,
    };
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), NAMESPACE);
    until(&accounts, "default", |account: Option<&ServiceAccount>| account.is_some()).await;
    cluster.until_quiet().await;
    let idle = idle(&client).await;

    for (round, size) in SIZES.into_iter().enumerate() {
        let name = format!("of{size}");
        let subnet = json!({ "Type": "v4", "Ipam": "eno", "Address": format!("10.{round}.0.0"), "Mask": 16 });
        apply(&client, manifest("Subnet", &name, subnet)).await;
        let pods = create_pods(&client, size, &name).await;
        cluster.until_quiet().await;
        let ipam = json!({ "type": "eno-ipam", "pools": [name] });
        let plugin = Plugin::new("eno-ipam", eno_ipam(), folder.path(), &ipam);
        let service = json!({ "SegmentationID": 100 + round, "Subnets": [name] });
        let side = Side { cluster: &cluster, plugin, idle: &idle };
        let ours = side.measure_both(&pods, create_network(&client, &name, service)).await;
        println!("    {} leases are left", leases(folder.path(), &cluster.nodes, &name));
        if let Some((program, configuration)) = &whereabouts {
            let range = format!("10.{round}.0.0/16");
            let ipam = json!({ "type": "whereabouts", "range": range, "configuration_path": configuration });
            let plugin = Plugin::new("whereabouts", program.clone(), folder.path(), &ipam);
            let side = Side { cluster: &cluster, plugin, idle: &idle };
            let theirs = side.measure_both(&pods, async {}).await;
            println!("    {} allocations are left", allocations(&client, &range).await);
            let [add, del] = [0, 1].map(|at| theirs[at].div_duration_f64(ours[at]));
            println!("eno-ipam is faster by: ADD {add:.1}, DEL {del:.1}");
        }
        delete_pods(&client).await;
        delete(&Api::<L2ServiceAttachment>::namespaced(client.clone(), NAMESPACE), &name).await;
        delete(&Api::<L2Service>::all(client.clone()), &name).await;
        delete(&Api::<Subnet>::all(client.clone()), &name).await;
        cluster.until_quiet().await;
    }
    cluster.end().await;
}

/// The program of a release build.
fn eno_ipam() -> PathBuf {
    std::env::var_os("ENO_IPAM").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/release/eno-ipam"),
        PathBuf::from,
    )
}

/// The requests of an idle cluster in a second.
async fn idle(client: &Client) -> BTreeMap<[String; 3], f64> {
    let before = requests(client).await;
    sleep(IDLE).await;
    let after = requests(client).await.into_iter();
    let rate = |(key, count): ([String; 3], f64)| {
        let rate = (count - before.get(&key).copied().unwrap_or(0.0)) / IDLE.as_secs_f64();
        (key, rate)
    };
    after.map(rate).collect()
}

/// Creates pods that use an attachment, and returns their names by node.
async fn create_pods(client: &Client, count: usize, attachment: &str) -> Vec<Vec<String>> {
    let api: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    let create = |pod: usize| {
        let api = api.clone();
        let object = json!({
            "metadata": { "name": format!("pod{pod}"), "annotations": { "k8s.v1.cni.cncf.io/networks": attachment } },
            "spec": { "nodeName": format!("node{}", pod % NODES), "automountServiceAccountToken": false,
                "containers": [{ "name": "main", "image": "i" }] },
        });
        let object = serde_json::from_value(object).unwrap();
        async move { drop(api.create(&PostParams::default(), &object).await.unwrap()) }
    };
    stream::iter((0..count).map(create)).buffer_unordered(16).collect::<()>().await;
    (0..NODES).map(|node| (node..count).step_by(NODES).map(|pod| format!("pod{pod}")).collect()).collect()
}

async fn delete_pods(client: &Client) {
    let api: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    api.delete_collection(&DeleteParams::default().grace_period(0), &ListParams::default()).await.unwrap();
    while !api.list(&ListParams::default().limit(1)).await.unwrap().items.is_empty() {
        sleep(Duration::from_millis(200)).await;
    }
}

/// The leases on all nodes.
fn leases(folder: &Path, nodes: &[String], subnet: &str) -> usize {
    let of = |node: &String| {
        folder.join(node).join(subnet).join("leases").read_dir().into_iter().flatten().count()
    };
    nodes.iter().map(of).sum()
}

/// Creates the CRDs of whereabouts, and its configuration as its DaemonSet does. Returns the file of that.
async fn prepare_whereabouts(cluster: &Cluster, folder: &Path) -> PathBuf {
    let crds = std::env::var("WHEREABOUTS_CRDS").expect("the folder with the CRDs of whereabouts");
    for file in Path::new(&crds).read_dir().unwrap() {
        for document in std::fs::read_to_string(file.unwrap().path()).unwrap().split("---\n") {
            let object: Value = serde_saphyr::from_str(document).unwrap_or_default();
            if object["kind"] == "CustomResourceDefinition" {
                apply(&cluster.client, object).await;
            }
        }
    }
    let configuration = json!({ "datastore": "kubernetes", "kubernetes": { "kubeconfig": cluster.control_plane.kubeconfig() } });
    let file = folder.join("whereabouts.conf");
    std::fs::write(&file, configuration.to_string()).unwrap();
    file
}

/// The addresses of a range that whereabouts has given and not taken back.
async fn allocations(client: &Client, range: &str) -> usize {
    let resource =
        ApiResource::from_gvk(&GroupVersionKind::gvk("whereabouts.cni.cncf.io", "v1alpha1", "IPPool"));
    let pools = Api::<DynamicObject>::all_with(client.clone(), &resource);
    let pools = pools.list(&ListParams::default()).await.unwrap();
    let of_range = pools.iter().filter(|pool| pool.data["spec"]["range"] == range);
    of_range.map(|pool| pool.data["spec"]["allocations"].as_object().map_or(0, serde_json::Map::len)).sum()
}
