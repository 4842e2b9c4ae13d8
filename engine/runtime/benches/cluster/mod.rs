//! What the benches share: a real API server, a real nats-server, nodes, and the engine. The engine has threads of its own
//! in this process, whose CPU time is taken.

#![allow(dead_code, reason = "no bench uses all of it")]

#[path = "../../tests/api.rs"]
pub mod api;

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use eno_conformance::NatsServer;
use eno_control_plane::ControlPlane;
use eno_engine::{CallbackArgs, EngineArgs};
use eno_nbi_crds::manifest;
use eno_sbi::daemon::HttpArgs;
use eno_sbi::host::{HostOptions, Ownership, run};
use eno_sbi::nats::Connection;
use eno_sbi::{Driver, Identity, Reconciled, Work};
use eno_schemas::{Applied, Desired, PayloadKind};
use k8s_openapi::api::core::v1::Node;
use kube::Client;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::json;
use tempfile::TempDir;
use tokio::runtime::{Builder, Handle};
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use api::{apply, apply_file, create_namespace, start_cluster};

pub const NAMESPACE: &str = "bench";
/// The ConnectionPoint on all nodes.
pub const POINT: &str = "bench";
/// The beginning of the names of the engine's threads.
const THREADS: &str = "engine";
const LABEL: &str = "bench";

/// Runs a bench. `measure` gets the runtime of the engine.
pub fn measure<F: Future<Output = ()>>(measure: impl FnOnce(Handle) -> F) {
    let engine = Builder::new_multi_thread().thread_name(THREADS).enable_all().build().unwrap();
    let others = Builder::new_multi_thread().thread_name("others").enable_all().build().unwrap();
    others.block_on(measure(engine.handle().clone()));
    engine.shutdown_background();
}

/// A cluster with an engine, and drivers in this process.
pub struct Cluster {
    pub control_plane: ControlPlane,
    pub client: Client,
    pub connection: Connection,
    pub nodes: Vec<String>,
    nats: NatsServer,
    engine: JoinHandle<anyhow::Result<()>>,
    drivers: Vec<AbortOnDropHandle<()>>,
    stop: CancellationToken,
    _dir: TempDir,
}

impl Cluster {
    /// Starts all but the agents, and creates the nodes with a ConnectionPoint.
    pub async fn start(engine: &Handle, nodes: usize) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (control_plane, client) = start_cluster(dir.path()).await;
        for name in ["eno-system", NAMESPACE] {
            create_namespace(&client, name).await;
        }
        apply_file(&client, "rbac/engine.yaml").await;
        let nats = NatsServer::start().await;
        let account = "system:serviceaccount:eno-system:eno-engine";
        let args = EngineArgs {
            kubeconfig: Some(control_plane.kubeconfig_for(account, None).unwrap()),
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
        let engine = engine.spawn(eno_engine::run(args, stop.clone()));
        let nodes: Vec<String> = (0..nodes).map(|node| format!("node{node}")).collect();
        create_nodes(&client, &nodes).await;
        create_point(&client).await;
        let connection = nats.connect("eno-bench").await;
        let drivers = Vec::new();
        let mut cluster =
            Self { control_plane, client, connection, nodes, nats, engine, drivers, stop, _dir: dir };
        cluster.run(Attachments).await;
        cluster
    }

    /// Runs a driver until the end.
    pub async fn run(&mut self, driver: impl Driver) {
        let connection = self.nats.connect(&format!("eno-driver-{}", driver.identity().name)).await;
        let options = match driver.only_target() {
            Some(instance) => {
                HostOptions { instance, ..HostOptions::new(connection, Ownership::PerTarget, "1") }
            }
            None => HostOptions::new(connection, Ownership::WholeDriver, "1"),
        };
        let stop = self.stop.clone();
        let task = async move { run(driver, options, stop).await.unwrap() };
        self.drivers.push(AbortOnDropHandle::new(tokio::spawn(task)));
    }

    /// Waits until ENO writes nothing for two seconds.
    pub async fn until_quiet(&self) {
        let mut seen = writes(&self.client).await;
        loop {
            sleep(Duration::from_secs(2)).await;
            let now = writes(&self.client).await;
            if now <= seen {
                return;
            }
            seen = now;
        }
    }

    pub async fn end(self) {
        self.stop.cancel();
        self.engine.await.unwrap().unwrap();
        self.control_plane.stop().await;
    }
}

/// The driver of NetworkAttachmentDefinitions, which has carried out everything.
struct Attachments;

impl Driver for Attachments {
    fn identity(&self) -> Identity {
        Identity { name: "nad".into(), kinds: vec![PayloadKind::Nad], capabilities: Vec::new() }
    }

    async fn reconcile(&self, work: Work) -> Reconciled {
        let Desired::Nad(desired) = &work.command.desired else { panic!("{:?}", work.command) };
        Reconciled::applied(Applied::Nad { present: desired.attachment.is_some() })
    }
}

async fn create_nodes(client: &Client, names: &[String]) {
    let nodes: Api<Node> = Api::all(client.clone());
    for name in names {
        let node = json!({ "metadata": { "name": name, "labels": { LABEL: "1" } } });
        nodes.create(&PostParams::default(), &serde_json::from_value(node).unwrap()).await.unwrap();
        let ready = json!({ "status": { "conditions": [{ "type": "Ready", "status": "True" }] } });
        nodes.patch_status(name, &PatchParams::default(), &Patch::Strategic(ready)).await.unwrap();
    }
}

async fn create_point(client: &Client) {
    let selector = json!({ "NodeSelector": { "matchLabels": { LABEL: "1" } } });
    apply(client, manifest("NodePool", "bench", selector)).await;
    let opts = r#"{"BridgeName": "br-bench"}"#;
    let cnis = json!([{ "Name": "ovs", "SupportedInterfaceTypes": ["kernel"], "Opts": opts }]);
    let point = json!({ "SupportedCnis": cnis, "NodePool": "bench", "Interfaces": ["eth1"] });
    apply(client, manifest("ConnectionPoint", POINT, point)).await;
}

/// Creates an L2Service, and an attachment of the same name.
pub async fn create_network(client: &Client, name: &str, service: serde_json::Value) {
    apply(client, manifest("L2Service", name, service)).await;
    let attachment = json!({ "L2Services": [name], "ConnectionPoint": POINT, "PodInterfaceType": "kernel",
        "VlanType": "access" });
    apply(client, manifest("L2ServiceAttachment", &format!("{NAMESPACE}/{name}"), attachment)).await;
}

/// Requests to the API server so far, by verb, group, and resource with its subresource.
pub async fn requests(client: &Client) -> BTreeMap<[String; 3], f64> {
    let request = http::Request::get("/metrics").body(Vec::new()).unwrap();
    let metrics = client.request_text(request).await.unwrap();
    let mut requests = BTreeMap::new();
    for line in metrics.lines() {
        let Some((labels, count)) =
            line.strip_prefix("apiserver_request_total{").and_then(|rest| rest.rsplit_once("} "))
        else {
            continue;
        };
        let label = |name: &str| {
            let value = labels.split(',').find_map(|label| label.strip_prefix(name)?.strip_prefix("=\""));
            value.unwrap_or_default().trim_end_matches('"').to_owned()
        };
        let mut resource = label("resource");
        if !label("subresource").is_empty() {
            resource = format!("{resource}/{}", label("subresource"));
        }
        let key = [label("verb"), label("group"), resource];
        *requests.entry(key).or_default() += count.trim().parse::<f64>().unwrap();
    }
    requests
}

/// The writes to objects of ENO, to nodes and Events so far.
pub async fn writes(client: &Client) -> f64 {
    let requests = requests(client).await.into_iter();
    let written = requests.filter(|([verb, group, resource], _)| {
        let is_ours = ["eno.k8s.io", "events.k8s.io"].contains(&&**group)
            || resource.split('/').next() == Some("nodes");
        ["POST", "PUT", "PATCH", "APPLY", "DELETE"].contains(&&**verb) && is_ours
    });
    written.map(|(_, count)| count).sum()
}

/// Milliseconds of CPU time of the engine so far.
pub fn cpu_of_the_engine() -> f64 {
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
