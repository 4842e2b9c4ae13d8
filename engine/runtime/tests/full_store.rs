//! Objects and stores at their limits: the largest object, and a server without space.

use std::net::SocketAddr;
use std::time::Duration;

use async_nats::jetstream::{Context, kv, stream};
use eno_conformance::NatsServer;
use eno_control_plane::{ControlPlane, pick_port};
use eno_nbi_crds::{FINALIZER, L2Service, Phase, RECORDED};
use eno_sbi::daemon::HttpArgs;
use eno_schemas::{Subject, SubjectKind, Transition, decode, subject};
use kube::ResourceExt as _;
use kube::api::{Api, PostParams};
use serde_json::json;
use tempfile::TempDir;

use crate::api::{Engine, apply_file, create_namespace, delete, start_cluster, until};
use crate::cluster::{engine_args, phase};

/// An engine with an API server.
struct System {
    _directory: TempDir,
    cluster: ControlPlane,
    services: Api<L2Service>,
    /// Of the engine's probes.
    address: SocketAddr,
    engine: Engine,
}

impl System {
    async fn start(nats: &NatsServer) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (cluster, client) = start_cluster(directory.path()).await;
        create_namespace(&client, "eno-system").await;
        apply_file(&client, "rbac/engine.yaml").await;
        let address = SocketAddr::from(([127, 0, 0, 1], pick_port().unwrap()));
        let mut args = engine_args(&cluster, nats);
        args.http = HttpArgs::at(address);
        let engine = Engine::start(args);
        Self { _directory: directory, cluster, services: Api::all(client), address, engine }
    }

    /// Creates a service with labels of 78 bytes each.
    async fn create(&self, name: &str, id: u16, labels: usize) {
        let spec = serde_json::from_value(json!({ "SegmentationID": id })).unwrap();
        let mut service = L2Service::new(name, spec);
        *service.labels_mut() = (0..labels).map(|n| (format!("l{n:0>8}"), "x".repeat(63))).collect();
        self.services.create(&PostParams::default(), &service).await.unwrap();
    }

    async fn get(&self, path: &str) -> (u16, String) {
        let answer = reqwest::get(format!("http://{}/{path}", self.address)).await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    }

    async fn end(self) {
        self.engine.end().await;
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
    phase(&system.services, "large", Phase::Ready).await;
    let transition = last_transition(&jetstream, "large").await;
    assert_eq!(transition.left_out, None);
    assert_eq!(transition.object["metadata"]["labels"].as_object().unwrap().len(), 14_500);
    assert_eq!(transition.object["metadata"]["finalizers"][0], FINALIZER);
    delete(&system.services, "large").await;
    assert_eq!(last_transition(&jetstream, "large").await.phase, eno_schemas::Phase::Deleted);
    system.end().await;
}

/// Creates the streams as a server has them that is too small to reserve their bounds.
async fn create_unbounded(jetstream: &Context) {
    for (name, kind, max_messages_per_subject) in [
        (subject::COMMANDS, SubjectKind::Command, 1),
        (subject::PARTS, SubjectKind::Part, 1),
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
    let nats = NatsServer::with_store("112MB").await;
    let jetstream = nats.connect("eno-engine").await.jetstream;
    create_unbounded(&jetstream).await;
    let system = System::start(&nats).await;
    system.create("before", 100, 0).await;
    phase(&system.services, "before", Phase::Ready).await;
    assert_eq!(system.get("readyz").await.0, 200);
    let junk = stream::Config { name: "JUNK".into(), subjects: vec!["junk".into()], ..Default::default() };
    jetstream.create_stream(junk).await.unwrap();
    let fill = async || jetstream.publish("junk", vec![0; 1_000_000].into()).await.unwrap().await;
    while fill().await.is_ok() {}
    system.create("during", 101, 0).await;
    let is_refused = |service: Option<&L2Service>| {
        refusal(service).is_some_and(|message| message.contains("insufficient resources"))
    };
    until(&system.services, "during", is_refused).await;
    let (status, text) = system.get("readyz").await;
    assert_eq!(status, 503, "{text}");
    assert!(text.contains("NATS stores nothing in ENO_TRANSITIONS: insufficient resources"), "{text}");
    assert!(system.get("metrics").await.1.contains("eno_engine_nats_refuses 1"));
    // There is room again, and nobody does anything else.
    jetstream.delete_stream("JUNK").await.unwrap();
    phase(&system.services, "during", Phase::Ready).await;
    until(&system.services, "during", |service: Option<&L2Service>| refusal(service).is_none()).await;
    assert_eq!(system.get("readyz").await.0, 200);
    assert_eq!(last_transition(&jetstream, "during").await.phase, eno_schemas::Phase::Ready);
    system.end().await;
}
