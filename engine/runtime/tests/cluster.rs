//! The engine on a real API server and a real NATS server: leader election, finalizers, and outbox before status.

use std::time::Duration;

use async_nats::jetstream::stream::LastRawMessageErrorKind;
use eno_conformance::NatsServer;
use eno_control_plane::ControlPlane;
use eno_engine::EngineArgs;
use eno_engine::lease::{Candidate, TERM, Times};
use eno_nbi_crds::{FINALIZER, FabricDevice, L2Service, Phase, PhysicalNetwork};
use eno_schemas::{CommandMessage, Subject, Transition, decode, decode_command, subject};
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Client, ResourceExt as _};
use serde_json::json;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::api::{Engine, TIMEOUT, apply_file, create_namespace, delete, start_cluster, until};

#[tokio::test(flavor = "multi_thread")]
async fn engine_leads_reconciles_and_cleans_up_on_real_cluster() {
    let dir = tempfile::tempdir().unwrap();
    let (cluster, client) = start_cluster(dir.path()).await;
    lease_has_one_holder(&client).await;
    Box::pin(object_lifecycle(&cluster, &client)).await;
    cluster.stop().await;
}

async fn lease_has_one_holder(client: &Client) {
    let times = Times {
        duration: Duration::from_secs(2),
        renew: Duration::from_millis(300),
        give_up: Duration::from_millis(1500),
        poll: Duration::from_millis(100),
    };
    let candidate = |identity| Candidate::new(client.clone(), "default", "test", identity, times);
    let leases: Api<Lease> = Api::namespaced(client.clone(), "default");
    let (a, b) = (candidate("a"), candidate("b"));
    let never = CancellationToken::new();
    let before = u64::try_from(jiff::Timestamp::now().as_second()).unwrap();
    let first = a.lead(&never).await.unwrap();
    assert!(first.term >= before, "{}", first.term);
    let term = first.term;
    // The second candidate waits beyond the Lease duration, since the first renews, and leads after the release.
    let mut second = std::pin::pin!(b.lead(&never));
    assert!(timeout(times.duration * 2, &mut second).await.is_err());
    assert!(!first.lost.is_cancelled());
    a.release(first).await;
    let second = timeout(times.duration / 2, second).await.expect("at once").unwrap();
    assert!(second.term > term);
    let term = second.term;
    // Another holder in the Lease ends the leadership.
    let patch = json!({ "spec": { "holderIdentity": "c", "leaseDurationSeconds": 1 } });
    leases.patch("test", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    timeout(TIMEOUT, second.lost.cancelled()).await.expect("the loss is seen");
    b.release(second).await;
    // Candidate c never renews.
    let third = timeout(TIMEOUT, a.lead(&never)).await.expect("c's Lease runs out").unwrap();
    assert!(third.term > term);
    let lease = leases.get("test").await.unwrap();
    assert_eq!(lease.annotations()[TERM], third.term.to_string());
    // A Lease that is made anew continues.
    let term = third.term;
    while u64::try_from(jiff::Timestamp::now().as_second()).unwrap() <= term {
        tokio::task::yield_now().await;
    }
    leases.delete("test", &kube::api::DeleteParams::default()).await.unwrap();
    timeout(TIMEOUT, third.lost.cancelled()).await.expect("the loss is seen");
    a.release(third).await;
    let fourth = timeout(TIMEOUT, b.lead(&never)).await.expect("nobody holds the Lease").unwrap();
    assert!(fourth.term > term);
    b.release(fourth).await;
    // A stopped candidate does not acquire the Lease.
    let stopped = CancellationToken::new();
    stopped.cancel();
    assert!(candidate("d").lead(&stopped).await.is_none());
}

fn service(vid: u16) -> L2Service {
    let spec = serde_json::from_value(json!({ "SegmentationID": vid })).unwrap();
    L2Service::new(&format!("s{vid}"), spec)
}

pub async fn phase(api: &Api<L2Service>, name: &str, phase: Phase) -> L2Service {
    let reached = |object: Option<&L2Service>| {
        object.and_then(|object| object.status.as_ref()?.phase).is_some_and(|now| now == phase)
    };
    until(api, name, reached).await.unwrap()
}

/// Arguments of an engine that uses the role of `deploy/rbac`.
pub fn engine_args(cluster: &ControlPlane, nats: &NatsServer) -> EngineArgs {
    let account = "system:serviceaccount:eno-system:eno-engine";
    EngineArgs {
        kubeconfig: Some(cluster.kubeconfig_for(account, None).unwrap()),
        namespace: "eno-system".into(),
        cluster_id: None,
        bridge_domains: false,
        verify: true,
        nodes: false,
        node_login_keys: None,
        sample_image: None,
        multus_namespace: "kube-system".into(),
        callbacks: eno_engine::CallbackArgs::default(),
        nats: nats.args(),
        http: eno_sbi::daemon::HttpArgs::at("127.0.0.1:0".parse().unwrap()),
    }
}

async fn object_lifecycle(cluster: &ControlPlane, client: &Client) {
    let mut nats = NatsServer::start().await;
    create_namespace(client, "eno-system").await;
    apply_file(client, "rbac/engine.yaml").await;
    let args = engine_args(cluster, &nats);
    let engine = Engine::start(args.clone());
    let services: Api<L2Service> = Api::all(client.clone());

    // The object becomes ready, with the finalizer and every transition in the outbox.
    services.create(&PostParams::default(), &service(10)).await.unwrap();
    let ready = phase(&services, "s10", Phase::Ready).await;
    assert!(ready.finalizers().iter().any(|one| one == FINALIZER));
    let connection = nats.connect("eno-test").await;
    let last = last(&connection, "s10").await.unwrap();
    assert_eq!((last.phase, Some(last.uid)), (eno_schemas::Phase::Ready, ready.uid()));
    assert!(last.object["metadata"].get("managedFields").is_none());
    assert_eq!(last.object["spec"]["SegmentationID"], 10);
    assert_eq!(last.object["status"]["phase"], "ready");

    // A foreign finalizer is preserved and delays the deletion.
    let mut with_finalizer = service(11);
    with_finalizer.finalizers_mut().push("example.com/hold".into());
    services.create(&PostParams::default(), &with_finalizer).await.unwrap();
    phase(&services, "s11", Phase::Ready).await;
    services.delete("s11", &DeleteParams::default()).await.unwrap();
    let only_theirs =
        |object: Option<&L2Service>| object.is_some_and(|o| o.finalizers() == ["example.com/hold"]);
    until(&services, "s11", only_theirs).await;
    let release = json!({ "metadata": { "finalizers": [] } });
    services.patch("s11", &PatchParams::default(), &Patch::Merge(release)).await.unwrap();

    // Without NATS no status is written; afterwards the outbox comes before the status.
    drop(connection);
    nats.kill().await;
    services.create(&PostParams::default(), &service(12)).await.unwrap();
    let finalized = |object: Option<&L2Service>| object.is_some_and(|o| !o.finalizers().is_empty());
    let observed = until(&services, "s12", finalized).await.unwrap();
    assert_eq!(observed.status.and_then(|status| status.phase), None);
    let watch = watcher(services.clone(), watcher::Config::default().fields("metadata.name=s12"));
    let mut watch = watch.applied_objects().boxed();
    nats.restart().await;
    let connection = nats.connect("eno-test").await;
    let received = async {
        while let Some(object) = watch.try_next().await.unwrap() {
            let Some(status) = object.status.filter(|status| status.phase.is_some()) else { continue };
            let last = self::last(&connection, "s12").await.expect("the outbox has it before the status");
            assert!(last.counter >= u64::try_from(status.transitions.unwrap_or_default()).unwrap());
            if status.phase == Some(Phase::Ready) {
                return;
            }
        }
    };
    timeout(TIMEOUT, received).await.expect("s12 becomes ready");

    // The next leader has a higher term and changes nothing.
    let leases: Api<Lease> = Api::namespaced(client.clone(), "eno-system");
    let term = async || leases.get("eno-engine").await.unwrap().annotations()[TERM].parse::<u64>().unwrap();
    let former = term().await;
    engine.end().await;
    let before = services.get("s12").await.unwrap().resource_version();
    let engine = Engine::start(args.clone());
    services.create(&PostParams::default(), &service(13)).await.unwrap();
    phase(&services, "s13", Phase::Ready).await;
    assert_eq!(services.get("s12").await.unwrap().resource_version(), before);
    assert!(term().await > former);

    // The last transition is published before the object is gone.
    for name in ["s10", "s12", "s13"] {
        delete(&services, name).await;
        assert_eq!(last_phase(&connection, name).await, Some(eno_schemas::Phase::Deleted));
    }
    service_reaches_switch_and_leaves(&nats, client).await;
    engine.end().await;
    crate::cluster_id::id_survives_losses(&nats, client, &args).await;
}

/// A service with a physical network behind a switch.
async fn service_reaches_switch_and_leaves(nats: &NatsServer, client: &Client) {
    let services: Api<L2Service> = Api::all(client.clone());
    let networks: Api<PhysicalNetwork> = Api::all(client.clone());
    let devices: Api<FabricDevice> = Api::all(client.clone());
    let connection = nats.connect("eno-test").await;
    let stop = CancellationToken::new();
    let (received, driver) = crate::fabric::start(nats.connect("eno-driver-memory").await, stop.clone());
    let spec = serde_json::from_value(json!({ "SegmentationIDs": ["1-4094"] })).unwrap();
    networks.create(&PostParams::default(), &PhysicalNetwork::new("gw", spec)).await.unwrap();
    let spec =
        json!({ "Driver": "memory", "Address": "leaf1", "Ports": [{ "Name": "eth1", "PhysicalNW": "gw" }] });
    let device = FabricDevice::new("leaf1", serde_json::from_value(spec).unwrap());
    devices.create(&PostParams::default(), &device).await.unwrap();
    let spec = serde_json::from_value(json!({ "SegmentationID": 100, "PhysicalNW": ["gw"] })).unwrap();
    services.create(&PostParams::default(), &L2Service::new("led-out", spec)).await.unwrap();
    phase(&services, "led-out", Phase::Ready).await;
    let port = received.lock().unwrap().last().unwrap().ports[0].clone();
    assert_eq!((port.name.as_str(), port.vlans.to_string().as_str()), ("eth1", "100"));

    // The driver reads commands in parts: the switch, the root, a group and a block.
    let parts_are = async |count: u64| {
        let stored = async {
            loop {
                let stream = connection.jetstream.get_stream(subject::PARTS).await;
                if stream.is_ok_and(|stream| stream.cached_info().state.messages == count) {
                    return;
                }
                tokio::task::yield_now().await;
            }
        };
        timeout(TIMEOUT, stored).await.unwrap_or_else(|_| panic!("never {count} parts"));
    };
    let commands = connection.jetstream.get_stream(subject::COMMANDS).await.unwrap();
    let of_switch = Subject::command("memory", "leaf1").to_string();
    let message = commands.get_last_raw_message_by_subject(&of_switch).await.unwrap();
    assert!(matches!(decode_command(&message.payload), Ok(CommandMessage::Head(_))), "{message:?}");
    // NATS loses the parts alone: they are published again, without a command.
    connection.jetstream.delete_stream(subject::PARTS).await.unwrap();
    parts_are(4).await;
    let unchanged = commands.get_last_raw_message_by_subject(&of_switch).await.unwrap();
    assert_eq!(unchanged.sequence, message.sequence);

    // NATS loses all streams: the engine publishes every command again.
    let before = received.lock().unwrap().len();
    for stream in [subject::COMMANDS, subject::RESULTS] {
        connection.jetstream.delete_stream(stream).await.unwrap();
    }
    let spec = serde_json::from_value(json!({ "SegmentationID": 101, "PhysicalNW": ["gw"] })).unwrap();
    services.create(&PostParams::default(), &L2Service::new("after", spec)).await.unwrap();
    phase(&services, "after", Phase::Ready).await;
    {
        let received = received.lock().unwrap();
        assert!(received.len() > before);
        assert_eq!(received.last().unwrap().ports[0].vlans.to_string(), "100-101");
    }

    // All objects are deleted, and the switch is removed from NATS.
    for name in ["led-out", "after"] {
        delete(&services, name).await;
    }
    assert!(received.lock().unwrap().last().unwrap().vlans.is_empty());
    delete(&devices, "leaf1").await;
    delete(&networks, "gw").await;
    let forgotten = async {
        let stream = connection.jetstream.get_stream(subject::COMMANDS).await.unwrap();
        while stream.get_info().await.unwrap().state.messages > 0 {
            tokio::task::yield_now().await;
        }
    };
    timeout(TIMEOUT, forgotten).await.expect("its command is taken off NATS");
    parts_are(0).await;
    stop.cancel();
    timeout(TIMEOUT, driver).await.expect("the driver ends").unwrap();
}

async fn last(connection: &eno_sbi::nats::Connection, name: &str) -> Option<Transition> {
    let stream = connection.jetstream.get_stream(subject::TRANSITIONS).await.unwrap();
    let subject = Subject::transition("L2Service", None, name).to_string();
    match stream.get_last_raw_message_by_subject(&subject).await {
        Ok(message) => Some(decode(&message.payload).unwrap()),
        Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => None,
        Err(error) => panic!("{error}"),
    }
}

async fn last_phase(connection: &eno_sbi::nats::Connection, name: &str) -> Option<eno_schemas::Phase> {
    last(connection, name).await.map(|transition| transition.phase)
}
