//! The whole engine on a real API server and a real NATS server, without drivers.

use std::net::SocketAddr;
use std::time::Duration;

use async_nats::jetstream::{Context, kv, stream};
use clap::Parser;
use eno_conformance::NatsServer;
use eno_control_plane::parts::Parts;
use eno_control_plane::{ControlPlane, ControlPlaneOptions, pick_port};
use eno_nbi_crds::{FINALIZER, L2Service, Phase, RECORDED, crds};
use eno_schemas::{LeftOut, Subject, SubjectKind, Transition, decode, subject};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams, PostParams};
use kube::runtime::wait::{Condition, await_condition, conditions};
use kube::{Client, ResourceExt as _};
use serde_json::json;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::{EngineArgs, run};

const TIMEOUT: Duration = Duration::from_mins(2);

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    engine: EngineArgs,
}

/// An engine with its API server and NATS server.
struct System {
    _directory: tempfile::TempDir,
    cluster: ControlPlane,
    services: Api<L2Service>,
    address: SocketAddr,
    stop: CancellationToken,
    engine: JoinHandle<anyhow::Result<()>>,
}

impl System {
    async fn start(nats: &NatsServer) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let options = ControlPlaneOptions::new(directory.path(), Parts::from_env().unwrap());
        let cluster = ControlPlane::start(options).await.unwrap();
        let client = cluster.client().await.unwrap();
        let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
        for definition in crds() {
            definitions.create(&PostParams::default(), &definition).await.unwrap();
            let name = definition.name_any();
            let established = await_condition(definitions.clone(), &name, conditions::is_crd_established());
            timeout(TIMEOUT, established).await.expect(&name).unwrap();
        }
        let address = SocketAddr::from(([127, 0, 0, 1], pick_port().unwrap()));
        let kubeconfig = cluster.kubeconfig().to_str().unwrap();
        let (url, listen) = (nats.url(), address.to_string());
        let arguments = ["engine", "--kubeconfig", kubeconfig, "--namespace", "default", "--nodes=false"];
        let more = ["--nats-url", &url, "--listen", &listen];
        let args = Cli::parse_from(arguments.into_iter().chain(more)).engine;
        let stop = CancellationToken::new();
        let engine = tokio::spawn(run(args, stop.clone()));
        let services = Api::all(Client::clone(&client));
        Self { _directory: directory, cluster, services, address, stop, engine }
    }

    /// Creates a service with labels of 78 bytes each.
    async fn create(&self, name: &str, id: u16, labels: usize) {
        let labels: serde_json::Map<_, _> =
            (0..labels).map(|n| (format!("l{n:0>8}"), "x".repeat(63).into())).collect();
        let service = json!({
            "apiVersion": "eno.k8s.io/v1alpha1", "kind": "L2Service",
            "metadata": { "name": name, "labels": labels }, "spec": { "SegmentationID": id },
        });
        self.services
            .create(&PostParams::default(), &serde_json::from_value(service).unwrap())
            .await
            .unwrap();
    }

    async fn until(&self, name: &str, what: &str, condition: impl Condition<L2Service>) {
        let reached = await_condition(self.services.clone(), name, condition);
        timeout(TIMEOUT, reached).await.unwrap_or_else(|_| panic!("{name}: {what}")).unwrap();
    }

    async fn until_ready(&self, name: &str) {
        self.until(name, "ready", |service: Option<&L2Service>| {
            let status = service.and_then(|service| service.status.as_ref());
            status.is_some_and(|status| status.phase == Some(Phase::Ready))
        })
        .await;
    }

    async fn delete(&self, name: &str) {
        self.services.delete(name, &DeleteParams::default()).await.unwrap();
        self.until(name, "gone", |service: Option<&L2Service>| service.is_none()).await;
    }

    /// The status and body of `/readyz`.
    async fn readiness(&self) -> (u16, String) {
        let answer = reqwest::get(format!("http://{}/readyz", self.address)).await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    }

    async fn end(self) {
        self.stop.cancel();
        timeout(TIMEOUT, self.engine).await.expect("an end").unwrap().unwrap();
        self.cluster.stop().await;
    }
}

/// The message of a service's condition `Recorded`.
fn refusal(service: Option<&L2Service>) -> Option<&str> {
    let status = service?.status.as_ref()?;
    let condition = status.conditions.iter().find(|condition| condition.type_ == RECORDED)?;
    (condition.status == "False").then_some(&*condition.message)
}

/// The last transition of a service.
async fn last_transition(jetstream: &Context, name: &str) -> Transition {
    let outbox = jetstream.get_stream(subject::TRANSITIONS).await.unwrap();
    let subject = Subject::transition("L2Service", None, name).to_string();
    decode(&outbox.get_last_raw_message_by_subject(&subject).await.unwrap().payload).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn largest_object_gets_its_status_and_is_deleted() {
    let nats = NatsServer::start().await;
    let system = System::start(&nats).await;
    let jetstream = nats.connect("eno-engine").await.jetstream;
    // The API server takes hardly more labels: it stores their names twice.
    system.create("large", 100, 14_500).await;
    system.until_ready("large").await;
    let transition = last_transition(&jetstream, "large").await;
    assert_eq!(transition.left_out, None::<LeftOut>);
    assert_eq!(transition.object["metadata"]["labels"].as_object().unwrap().len(), 14_500);
    assert_eq!(transition.object["metadata"]["finalizers"][0], FINALIZER);
    system.delete("large").await;
    assert_eq!(last_transition(&jetstream, "large").await.phase, Phase::Deleted);
    system.end().await;
}

/// Creates the streams as a server has them that is too small to reserve their bounds.
async fn create_unbound(jetstream: &Context) {
    for (name, kind, max_messages_per_subject) in [
        (subject::COMMANDS, SubjectKind::Command, 1),
        (subject::RESULTS, SubjectKind::Result, 1),
        (subject::TRANSITIONS, SubjectKind::Transition, -1),
        (subject::HISTORY, SubjectKind::History, -1),
        (subject::DEAD_LETTERS, SubjectKind::DeadLetter, -1),
    ] {
        let subjects = vec![kind.all()];
        let config =
            stream::Config { name: name.into(), subjects, max_messages_per_subject, ..Default::default() };
        jetstream.create_stream(config).await.unwrap();
    }
    for bucket in [subject::DRIVERS, subject::OWNERS, subject::CALLBACKS] {
        let limit_markers = Some(Duration::from_secs(15));
        let config = kv::Config { bucket: bucket.into(), history: 1, limit_markers, ..Default::default() };
        jetstream.create_key_value(config).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn full_server_is_told_at_once_and_work_goes_on_with_space() {
    let nats = NatsServer::with_store("128MB").await;
    let jetstream = nats.connect("eno-engine").await.jetstream;
    create_unbound(&jetstream).await;
    let system = System::start(&nats).await;
    system.create("before", 100, 0).await;
    system.until_ready("before").await;
    assert_eq!(system.readiness().await.0, 200);
    let junk = stream::Config { name: "JUNK".into(), subjects: vec!["junk".into()], ..Default::default() };
    jetstream.create_stream(junk).await.unwrap();
    let fill = async || jetstream.publish("junk", vec![0; 1_000_000].into()).await.unwrap().await;
    while fill().await.is_ok() {}
    system.create("during", 101, 0).await;
    let refused = |service: Option<&L2Service>| {
        refusal(service).is_some_and(|message| message.contains("insufficient resources"))
    };
    system.until("during", "the refusal in its condition", refused).await;
    let (status, text) = system.readiness().await;
    assert_eq!(status, 503, "{text}");
    assert!(text.contains("NATS stores nothing in ENO_TRANSITIONS: insufficient resources"), "{text}");
    let metrics = reqwest::get(format!("http://{}/metrics", system.address)).await.unwrap();
    assert!(metrics.text().await.unwrap().contains("eno_engine_nats_refuses 1"));
    // There is room again, and nobody does anything else.
    jetstream.delete_stream("JUNK").await.unwrap();
    system.until_ready("during").await;
    system.until("during", "no refusal", |service: Option<&L2Service>| refusal(service).is_none()).await;
    assert_eq!(system.readiness().await.0, 200);
    assert_eq!(last_transition(&jetstream, "during").await.phase, Phase::Ready);
    system.end().await;
}
