//! CPU time of the engine, its writes and its messages with 200 VLANs on 50 nodes that probe: a real API server and a
//! real nats-server, and agents that find by themselves that all packets pass.
//!
//! The engine has threads of its own in this process, whose CPU time is taken. Agents report only what has changed (the
//! bench of the agent counts that), so they are silent here as well while nothing changes. Then each of them finds that
//! packets of one VLAN are lost, and that they pass again.

#![allow(dead_code, reason = "the tests use more of it")]

#[path = "../tests/api.rs"]
mod api;

use std::fs;
use std::time::{Duration, Instant};

use eno_conformance::NatsServer;
use eno_engine::{CallbackArgs, EngineArgs};
use eno_nbi_crds::{L2Service, L2ServiceAttachment, manifest};
use eno_sbi::daemon::HttpArgs;
use eno_sbi::host::{HostOptions, Ownership, run};
use eno_sbi::nats::Connection;
use eno_sbi::{Driver, Identity, Reconciled, Work};
use eno_schemas::{Applied, Desired, PayloadKind, VlanId, VlanSet, subject};
use futures::{Stream, StreamExt as _, stream};
use k8s_openapi::api::core::v1::Node;
use kube::Client;
use kube::api::{Api, ListParams, PostParams};
use serde_json::json;
use tokio::runtime::Builder;
use tokio::sync::watch;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use api::{apply, apply_file, create_namespace, start_cluster};

const NODES: usize = 50;
const VLANS: u16 = 200;
const FIRST_VLAN: u16 = 100;
/// Seconds for which nothing changes.
const QUIET: u16 = 60;
/// How often packets of a VLAN are lost and pass again.
const ROUNDS: u16 = 5;
const NAMESPACE: &str = "bench";
/// The beginning of the names of the engine's threads.
const THREADS: &str = "engine";

/// A driver that has carried out everything.
struct Simulated {
    name: &'static str,
    kind: PayloadKind,
    node: Option<String>,
    /// The VLANs whose packets are lost.
    lost: watch::Receiver<VlanSet>,
}

impl Driver for Simulated {
    fn identity(&self) -> Identity {
        Identity { name: self.name.into(), kinds: vec![self.kind], capabilities: Vec::new() }
    }

    fn only_target(&self) -> Option<String> {
        self.node.clone()
    }

    async fn reconcile(&self, work: Work) -> Reconciled {
        let mut applied = match &work.command.desired {
            Desired::Node(desired) => desired.carried_out(|_, link| link.carried_out("1")),
            Desired::Nad(desired) => Applied::Nad { present: desired.attachment.is_some() },
            Desired::Fabric(desired) => desired.carried_out(),
        };
        if let Applied::Node { probes, .. } = &mut applied {
            for found in probes {
                found.lost = found.passed.intersection(&self.lost.borrow());
                found.passed = found.passed.difference(&found.lost);
            }
        }
        Reconciled::applied(applied)
    }

    fn changed(&self) -> impl Stream<Item = String> + Send + 'static {
        let changes = stream::unfold(self.lost.clone(), |mut lost| async move {
            lost.changed().await.ok()?;
            Some(((), lost))
        });
        let node = self.node.clone().unwrap_or_default();
        changes.map(move |()| node.clone())
    }
}

/// What was used in some time.
struct Used {
    seconds: f64,
    /// Milliseconds of CPU time of the engine.
    cpu: f64,
    /// Messages on the streams of commands and reports, and writes to the API.
    commands: u64,
    reports: u64,
    writes: f64,
}

/// What was used so far.
async fn used(started: Instant, client: &Client, connection: &Connection) -> Used {
    Used {
        seconds: started.elapsed().as_secs_f64(),
        cpu: cpu_of_the_engine(),
        commands: messages(connection, subject::COMMANDS).await,
        reports: messages(connection, subject::RESULTS).await,
        writes: writes(client).await,
    }
}

impl Used {
    fn print(&self, what: &str, before: &Self) {
        let seconds = self.seconds - before.seconds;
        let cpu = self.cpu - before.cpu;
        println!(
            "{what}: {seconds:.1} s, engine {cpu:.0} ms of CPU ({:.3} % of a core), {} commands, {} reports, {} writes",
            cpu / seconds / 10.0,
            self.commands - before.commands,
            self.reports - before.reports,
            self.writes - before.writes,
        );
    }
}

fn main() {
    let engine = Builder::new_multi_thread().thread_name(THREADS).enable_all().build().unwrap();
    let others = Builder::new_multi_thread().thread_name("others").enable_all().build().unwrap();
    others.block_on(measure(engine.handle()));
    engine.shutdown_background();
}

async fn measure(engine: &tokio::runtime::Handle) {
    let dir = tempfile::tempdir().unwrap();
    let (cluster, client) = start_cluster(dir.path()).await;
    for name in ["eno-system", NAMESPACE] {
        create_namespace(&client, name).await;
    }
    apply_file(&client, "rbac/engine.yaml").await;
    let nats = NatsServer::start().await;
    let args = EngineArgs {
        kubeconfig: Some(
            cluster.kubeconfig_for("system:serviceaccount:eno-system:eno-engine", None).unwrap(),
        ),
        namespace: "eno-system".into(),
        cluster_id: None,
        bridge_domains: false,
        verify: true,
        nodes: true,
        node_login_keys: None,
        sample_image: None,
        multus_namespace: "kube-system".into(),
        callbacks: CallbackArgs::default(),
        nats: nats.args(),
        http: HttpArgs::at("127.0.0.1:0".parse().unwrap()),
    };
    let stop = CancellationToken::new();
    let task = engine.spawn(eno_engine::run(args, stop.clone()));
    let names: Vec<String> = (0..NODES).map(|node| format!("node{node}")).collect();
    create_nodes(&client, &names).await;

    let connection = nats.connect("eno-bench").await;
    let (lost, seen) = watch::channel(VlanSet::EMPTY);
    let mut drivers = Vec::new();
    let simulated = |node: &String| Simulated {
        name: "node",
        kind: PayloadKind::Node,
        node: Some(node.clone()),
        lost: seen.clone(),
    };
    for driver in names.iter().map(simulated) {
        let instance = driver.node.clone().unwrap();
        let options = HostOptions::new(nats.connect("eno-driver-node").await, Ownership::PerTarget, "1");
        let options = HostOptions { instance, ..options };
        drivers.push(AbortOnDropHandle::new(tokio::spawn(run(driver, options, stop.clone()))));
    }
    let nad = Simulated { name: "nad", kind: PayloadKind::Nad, node: None, lost: seen.clone() };
    let options = HostOptions::new(nats.connect("eno-driver-nad").await, Ownership::WholeDriver, "1");
    drivers.push(AbortOnDropHandle::new(tokio::spawn(run(nad, options, stop.clone()))));

    let started = Instant::now();
    until_quiet(&client).await;
    let alone = used(started, &client, &connection).await;
    // The measured time.
    sleep(Duration::from_secs(QUIET.into())).await;
    let before = used(started, &client, &connection).await;
    before.print(&format!("{NODES} nodes without a VLAN"), &alone);
    create_networks(&client).await;
    until_verified(&client, VLANS.into()).await;
    until_quiet(&client).await;
    let ready = used(started, &client, &connection).await;
    ready.print(&format!("{VLANS} VLANs on {NODES} nodes are verified"), &before);
    // The measured time.
    sleep(Duration::from_secs(QUIET.into())).await;
    let quiet = used(started, &client, &connection).await;
    quiet.print("nothing changes", &ready);
    for round in 0..ROUNDS {
        lost.send_replace(VlanSet::from_iter([VlanId::new(FIRST_VLAN + round).unwrap()]));
        until_verified(&client, usize::from(VLANS) - 1).await;
        lost.send_replace(VlanSet::EMPTY);
        until_verified(&client, VLANS.into()).await;
    }
    until_quiet(&client).await;
    used(started, &client, &connection)
        .await
        .print(&format!("packets of a VLAN are lost on all nodes, and pass again, {ROUNDS} times"), &quiet);
    stop.cancel();
    task.await.unwrap().unwrap();
    cluster.stop().await;
}

async fn create_nodes(client: &Client, names: &[String]) {
    let nodes: Api<Node> = Api::all(client.clone());
    for name in names {
        let node = json!({ "metadata": { "name": name, "labels": { "bench": "1" } } });
        nodes.create(&PostParams::default(), &serde_json::from_value(node).unwrap()).await.unwrap();
        let ready = json!({ "status": { "conditions": [{ "type": "Ready", "status": "True" }] } });
        let ready = kube::api::Patch::Strategic(ready);
        nodes.patch_status(name, &kube::api::PatchParams::default(), &ready).await.unwrap();
    }
}

/// A ConnectionPoint on all nodes, and services with an attachment each.
async fn create_networks(client: &Client) {
    let selector = json!({ "NodeSelector": { "matchLabels": { "bench": "1" } } });
    apply(client, manifest("NodePool", "bench", selector)).await;
    let opts = r#"{"BridgeName": "br-bench"}"#;
    let cnis = json!([{ "Name": "ovs", "SupportedInterfaceTypes": ["kernel"], "Opts": opts }]);
    let point = json!({ "SupportedCnis": cnis, "NodePool": "bench", "Interfaces": ["eth1"] });
    apply(client, manifest("ConnectionPoint", "bench", point)).await;
    for vlan in 0..VLANS {
        let name = format!("s{vlan}");
        let service = json!({ "SegmentationID": FIRST_VLAN + vlan });
        apply(client, manifest("L2Service", &name, service)).await;
        let attachment = json!({ "L2Services": [name], "ConnectionPoint": "bench", "PodInterfaceType": "kernel",
            "VlanType": "access" });
        apply(client, manifest("L2ServiceAttachment", &format!("{NAMESPACE}/{name}"), attachment)).await;
    }
}

/// Waits until as many attachments are verified, and services.
async fn until_verified(client: &Client, count: usize) {
    let services: Api<L2Service> = Api::all(client.clone());
    let attachments: Api<L2ServiceAttachment> = Api::namespaced(client.clone(), NAMESPACE);
    let is_true = |conditions: Option<&[eno_nbi_crds::Condition]>| {
        conditions.into_iter().flatten().any(|one| one.type_ == "Verified" && one.status == "True")
    };
    loop {
        let all = attachments.list(&ListParams::default()).await.unwrap();
        let of = |one: &&L2ServiceAttachment| is_true(one.status.as_ref().map(|status| &*status.conditions));
        let verified = all.iter().filter(of).count();
        let all = services.list(&ListParams::default()).await.unwrap();
        let of = |one: &&L2Service| is_true(one.status.as_ref().map(|status| &*status.conditions));
        if (verified, all.iter().filter(of).count()) == (count, count) {
            return;
        }
        sleep(Duration::from_millis(200)).await;
    }
}

/// Waits until nothing is written for two seconds.
async fn until_quiet(client: &Client) {
    let mut seen = writes(client).await;
    loop {
        sleep(Duration::from_secs(2)).await;
        let now = writes(client).await;
        if now <= seen {
            return;
        }
        seen = now;
    }
}

/// The messages that a stream has got so far.
async fn messages(connection: &Connection, stream: &str) -> u64 {
    let stream = connection.jetstream.get_stream(stream).await.unwrap();
    stream.get_info().await.unwrap().state.last_sequence
}

/// The writes to objects of ENO, to nodes and Events so far.
async fn writes(client: &Client) -> f64 {
    let request = axum::http::Request::get("/metrics").body(Vec::new()).unwrap();
    let metrics = client.request_text(request).await.unwrap();
    let written = metrics.lines().filter_map(|line| {
        let (labels, count) = line.strip_prefix("apiserver_request_total{")?.rsplit_once("} ")?;
        let has = |name: &str, values: &[&str]| {
            values.iter().any(|value| labels.contains(&format!("{name}=\"{value}\"")))
        };
        let is_write = has("verb", &["POST", "PUT", "PATCH", "APPLY", "DELETE"]);
        let is_ours = has("group", &["eno.k8s.io", "events.k8s.io"]) || has("resource", &["nodes"]);
        (is_write && is_ours).then(|| count.trim().parse::<f64>().unwrap())
    });
    written.sum()
}

/// Milliseconds of CPU time of the engine so far.
fn cpu_of_the_engine() -> f64 {
    let threads = fs::read_dir("/proc/self/task").unwrap().flatten();
    let stats = threads.filter_map(|thread| fs::read_to_string(thread.path().join("stat")).ok());
    let of_engine = stats.filter_map(|stat| {
        let (before, fields) = stat.rsplit_once(") ")?;
        // The time in the program and in the kernel, in hundredths of a second.
        let ticks =
            fields.split(' ').skip(11).take(2).map(|field| field.parse::<f64>().unwrap()).sum::<f64>();
        before.split_once(" (")?.1.starts_with(THREADS).then_some(ticks * 10.0)
    });
    of_engine.sum()
}
