//! The identifier of the cluster on devices survives changes of leaders and losses of its stores.

use std::time::Duration;

use eno_conformance::NatsServer;
use eno_engine::EngineArgs;
use eno_engine::lease::CLUSTER;
use eno_nbi_crds::{FabricDevice, L2Service, Phase, PhysicalNetwork};
use eno_schemas::subject;
use futures::TryStreamExt as _;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt as _};
use serde_json::json;
use tokio::time::{interval, timeout};
use tokio_util::sync::CancellationToken;

use crate::api::{Engine, TIMEOUT, until};
use crate::cluster::phase;
use crate::fabric::{self, ReceivedCommands};

fn start_engine(args: &EngineArgs, cluster_id: Option<&str>) -> Engine {
    Engine::start(EngineArgs { cluster_id: cluster_id.map(str::to_owned), ..args.clone() })
}

struct Bench<'a> {
    nats: &'a NatsServer,
    client: &'a Client,
    leases: Api<Lease>,
    devices: Api<FabricDevice>,
    received: ReceivedCommands,
}

impl Bench<'_> {
    /// Creates a service and returns the identifier in the command of the switch.
    async fn cluster_id_of_command(&self, vid: u16) -> String {
        let services: Api<L2Service> = Api::all(self.client.clone());
        let spec = serde_json::from_value(json!({ "SegmentationID": vid, "PhysicalNW": ["id-gw"] })).unwrap();
        let name = format!("id-{vid}");
        services.create(&PostParams::default(), &L2Service::new(&name, spec)).await.unwrap();
        phase(&services, &name, Phase::Ready).await;
        self.received.lock().unwrap().last().unwrap().cluster.clone()
    }

    async fn stored_id(&self) -> Option<String> {
        self.leases.get("eno-engine").await.unwrap().annotations().get(CLUSTER).cloned()
    }

    async fn wait_until_stored(&self, id: &str) {
        let is_stored = |lease: Option<&Lease>| {
            lease.is_some_and(|lease| lease.annotations().get(CLUSTER).map(String::as_str) == Some(id))
        };
        until(&self.leases, "eno-engine", is_stored).await;
    }

    async fn forget_in_lease(&self) {
        let none = json!({ "metadata": { "annotations": { CLUSTER: null } } });
        self.leases.patch("eno-engine", &PatchParams::default(), &Patch::Merge(none)).await.unwrap();
        assert_eq!(self.stored_id().await, None);
    }

    async fn forget_in_status(&self) {
        let none = json!({ "status": { "clusterID": null } });
        self.devices.patch_status("id-leaf", &PatchParams::default(), &Patch::Merge(none)).await.unwrap();
    }

    /// Deletes the Lease. Returns in another second than that in which the last engine began to lead, which is its
    /// term: nothing else tells the next engine of it.
    async fn lose_lease(&self) {
        self.leases.delete("eno-engine", &DeleteParams::default()).await.unwrap();
        let (mut tick, now) = (interval(Duration::from_millis(20)), Timestamp::now().as_second());
        while Timestamp::now().as_second() == now {
            tick.tick().await;
        }
    }

    async fn lose_streams(&self) {
        let connection = self.nats.connect("eno-test").await;
        let streams: Vec<String> = connection.jetstream.stream_names().try_collect().await.unwrap();
        for stream in [subject::COMMANDS, subject::RESULTS] {
            assert!(streams.iter().any(|name| name == stream));
            connection.jetstream.delete_stream(stream).await.unwrap();
        }
    }
}

pub async fn id_survives_losses(nats: &NatsServer, client: &Client, args: &EngineArgs) {
    let stop = CancellationToken::new();
    let (received, driver) = fabric::start(nats.connect("eno-driver-memory").await, stop.clone());
    let networks: Api<PhysicalNetwork> = Api::all(client.clone());
    let spec = serde_json::from_value(json!({ "SegmentationIDs": ["1-4094"] })).unwrap();
    networks.create(&PostParams::default(), &PhysicalNetwork::new("id-gw", spec)).await.unwrap();
    let bench = Bench {
        nats,
        client,
        leases: Api::namespaced(client.clone(), "eno-system"),
        devices: Api::all(client.clone()),
        received,
    };
    // Without a configured or stored identifier, it is derived from the cluster's uid.
    bench.lose_lease().await;
    let engine = start_engine(args, None);
    let is_stored =
        |lease: Option<&Lease>| lease.is_some_and(|lease| lease.annotations().contains_key(CLUSTER));
    until(&bench.leases, "eno-engine", is_stored).await;
    assert_eq!(bench.stored_id().await.unwrap().len(), 8);
    engine.end().await;

    // Older manifests configured k8s.
    let engine = start_engine(args, Some("k8s"));
    let spec = json!({
        "Driver": "memory", "Address": "id-leaf", "Ports": [{ "Name": "eth1", "PhysicalNW": "id-gw" }],
    });
    let device = FabricDevice::new("id-leaf", serde_json::from_value(spec).unwrap());
    bench.devices.create(&PostParams::default(), &device).await.unwrap();
    assert_eq!(bench.cluster_id_of_command(2001).await, "k8s");
    bench.wait_until_stored("k8s").await;
    let known = |device: Option<&FabricDevice>| {
        let id = device.and_then(|device| device.status.as_ref()?.cluster_id.as_deref());
        id == Some("k8s")
    };
    until(&bench.devices, "id-leaf", known).await;
    engine.end().await;

    // An engine with those manifests stored the identifier on devices only, and the current manifests configure none.
    // No command opens a transaction or requests another VLAN than before.
    bench.forget_in_lease().await;
    bench.forget_in_status().await;
    let before = bench.received.lock().unwrap().last().unwrap().clone();
    let since = bench.received.lock().unwrap().len();
    let engine = start_engine(args, None);
    bench.wait_until_stored("k8s").await;
    until(&bench.devices, "id-leaf", known).await;
    for command in &bench.received.lock().unwrap()[since..] {
        assert_eq!(
            (&command.cluster, &command.vlans, &command.ports),
            (&before.cluster, &before.vlans, &before.ports)
        );
    }
    assert_eq!(bench.cluster_id_of_command(2002).await, "k8s");
    engine.end().await;

    // The Lease is deleted and NATS has lost all streams.
    bench.lose_lease().await;
    bench.lose_streams().await;
    let engine = start_engine(args, None);
    assert_eq!(bench.cluster_id_of_command(2003).await, "k8s");
    bench.wait_until_stored("k8s").await;
    engine.end().await;

    // The configured identifier wins.
    let engine = start_engine(args, Some("other"));
    assert_eq!(bench.cluster_id_of_command(2004).await, "other");
    bench.wait_until_stored("other").await;
    engine.end().await;
    stop.cancel();
    timeout(TIMEOUT, driver).await.expect("the driver ends").unwrap();
}
