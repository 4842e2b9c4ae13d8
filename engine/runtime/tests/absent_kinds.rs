//! An engine that begins while the API server does not know a kind.

use std::net::SocketAddr;

use eno_conformance::NatsServer;
use eno_control_plane::pick_port;
use eno_nbi_crds::{FabricDevice, L2Service, Phase, PhysicalNetwork, Route, crds};
use eno_sbi::daemon::HttpArgs;
use eno_schemas::VlanId;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::runtime::wait::conditions;
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::api::{Engine, TIMEOUT, apply_file, create_namespace, delete, start_cluster, until};
use crate::cluster::{engine_args, phase};

async fn create_definition(client: &Client, name: &str) {
    let definition = crds().into_iter().find(|definition| definition.name_any() == name).expect("a kind");
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    definitions.create(&PostParams::default(), &definition).await.unwrap();
    until(&definitions, name, conditions::is_crd_established()).await;
}

async fn delete_definition(client: &Client, name: &str) {
    delete(&Api::<CustomResourceDefinition>::all(client.clone()), name).await;
}

async fn create_service(services: &Api<L2Service>, name: &str, vid: u16, networks: &[&str]) {
    let spec: Value = json!({ "SegmentationID": vid, "PhysicalNW": networks });
    let service = L2Service::new(name, serde_json::from_value(spec).unwrap());
    services.create(&PostParams::default(), &service).await.unwrap();
}

async fn create_network(networks: &Api<PhysicalNetwork>) {
    let spec = serde_json::from_value(json!({ "SegmentationIDs": ["1-4094"] })).unwrap();
    networks.create(&PostParams::default(), &PhysicalNetwork::new("gw", spec)).await.unwrap();
}

/// Waits until the engine says that the API server lacks a kind.
async fn until_absent(address: SocketAddr, kind: &str) {
    let line = format!("eno_engine_kind_absent{{kind=\"{kind}\"}} 1");
    let metrics = async || match reqwest::get(format!("http://{address}/metrics")).await {
        Ok(answer) => answer.text().await.unwrap_or_default(),
        Err(_) => String::new(),
    };
    let seen = async { while !metrics().await.contains(&line) {} };
    timeout(TIMEOUT, seen).await.expect("the metric tells of the kind");
}

#[tokio::test(flavor = "multi_thread")]
async fn engine_begins_without_a_kind_and_takes_nothing_away() {
    let (directory, nats) = (tempfile::tempdir().unwrap(), NatsServer::start().await);
    let (cluster, client) = start_cluster(directory.path()).await;
    create_namespace(&client, "eno-system").await;
    apply_file(&client, "rbac/engine.yaml").await;
    let address = SocketAddr::from(([127, 0, 0, 1], pick_port().unwrap()));
    let mut args = engine_args(&cluster, &nats);
    args.http = HttpArgs::at(address);
    let services: Api<L2Service> = Api::all(client.clone());
    let networks: Api<PhysicalNetwork> = Api::all(client.clone());
    let stop = CancellationToken::new();
    let (received, driver) = crate::fabric::start(nats.connect("eno-driver-memory").await, stop.clone());
    let vlans = || received.lock().unwrap().last().unwrap().ports[0].vlans.to_string();

    let engine = Engine::start(args.clone());
    create_network(&networks).await;
    let spec =
        json!({ "Driver": "memory", "Address": "leaf1", "Ports": [{ "Name": "eth1", "PhysicalNW": "gw" }] });
    let device = FabricDevice::new("leaf1", serde_json::from_value(spec).unwrap());
    Api::all(client.clone()).create(&PostParams::default(), &device).await.unwrap();
    create_service(&services, "kept", 100, &["gw"]).await;
    phase(&services, "kept", Phase::Ready).await;
    assert_eq!(vlans(), "100");
    engine.end().await;

    // Nothing that is realised names a Route.
    delete_definition(&client, "routes.eno.k8s.io").await;
    let engine = Engine::start(args.clone());
    create_service(&services, "without-routes", 101, &["gw"]).await;
    phase(&services, "without-routes", Phase::Ready).await;
    assert_eq!(vlans(), "100-101");
    until_absent(address, "Route").await;
    create_definition(&client, "routes.eno.k8s.io").await;
    let routes: Api<Route> = Api::all(client.clone());
    let spec = json!({ "Prefix": "30.30.0.0", "Mask": 16, "NextHop": "10.10.0.1" });
    let route = Route::new("out", serde_json::from_value(spec).unwrap());
    routes.create(&PostParams::default(), &route).await.unwrap();
    let is_ready = |route: Option<&Route>| {
        route.and_then(|route| route.status.as_ref()?.phase).is_some_and(|phase| phase == Phase::Ready)
    };
    until(&routes, "out", is_ready).await;
    engine.end().await;

    // What is realised names a PhysicalNetwork, so nothing is decided until the kind is back.
    let before = received.lock().unwrap().len();
    let release = json!({ "metadata": { "finalizers": [] } });
    networks.patch("gw", &PatchParams::default(), &Patch::Merge(release)).await.unwrap();
    delete_definition(&client, "physicalnetworks.eno.k8s.io").await;
    create_service(&services, "waits", 102, &["gw"]).await;
    let engine = Engine::start(args);
    until_absent(address, "PhysicalNetwork").await;
    create_definition(&client, "physicalnetworks.eno.k8s.io").await;
    create_network(&networks).await;
    phase(&services, "waits", Phase::Ready).await;
    assert_eq!(vlans(), "100-102");
    let kept = VlanId::new(100).unwrap();
    assert!(received.lock().unwrap()[before..].iter().all(|command| command.ports[0].vlans.contains(kept)));

    engine.end().await;
    stop.cancel();
    timeout(TIMEOUT, driver).await.expect("the driver ends").unwrap();
    cluster.stop().await;
}
