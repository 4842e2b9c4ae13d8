//! Watches of pods and nodes, and writes for them, on a real API server.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use eno_control_plane::parts::Parts;
use eno_control_plane::{ControlPlane, ControlPlaneOptions};
use eno_core::{Event, Key, Kind, LinkEntry, Name, Pod, PodInterface, PodView, Uses};
use eno_nbi_crds::{PodConfig, crds};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::events::v1::Event as KubeEvent;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::wait::{Condition, await_condition, conditions};
use kube::{Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::metrics::Metrics;
use crate::nodes::node_labels;
use crate::nodes::pod_networks;
use crate::nodes::samples;
use crate::status::events::Events;
use crate::watch;
use crate::watch::mailbox::Input;

const TIMEOUT: Duration = Duration::from_mins(1);

#[tokio::test(flavor = "multi_thread")]
async fn api_server_watches_and_writes_cover_nodes_pods_and_samples() {
    let dir = tempfile::tempdir().unwrap();
    let cluster =
        ControlPlane::start(ControlPlaneOptions::new(dir.path(), Parts::from_env().unwrap())).await.unwrap();
    let client = cluster.client().await.unwrap();
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    for crd in crds() {
        api.create(&PostParams::default(), &crd).await.unwrap();
        until(&api, &crd.name_any(), conditions::is_crd_established()).await;
    }
    let mut tasks = JoinSet::new();
    let (mailbox, mut inputs) = mpsc::channel(64);
    let (updates, labelled) = mpsc::unbounded_channel();
    let metrics = Arc::new(Metrics::default());
    watch::start(&mut tasks, &client, &mailbox, "kube-system".into(), updates.clone(), &metrics).await;
    tasks.spawn(node_labels::run(client.clone(), labelled, metrics.clone(), CancellationToken::new()));
    nodes(&client, &updates, &mut inputs).await;
    pods(&client, &mut inputs).await;
    // The watches end without a receiver.
    drop(inputs);
    pod_networks_of(&client).await;
    samples_of(&client).await;
    drop(tasks);
    cluster.stop().await;
}

async fn until<K>(api: &Api<K>, name: &str, condition: impl Condition<K>) -> Option<K>
where
    K: Clone + std::fmt::Debug + Send + DeserializeOwned + Resource + 'static,
{
    timeout(TIMEOUT, await_condition(api.clone(), name, condition)).await.expect(name).unwrap()
}

/// Receives inputs until an event matches.
async fn wait_for_event<T>(inputs: &mut mpsc::Receiver<Input>, desired: impl Fn(&Event) -> Option<T>) -> T {
    let wait = async {
        loop {
            if let Input::Event(event) = inputs.recv().await.unwrap()
                && let Some(found) = desired(&event)
            {
                return found;
            }
        }
    };
    timeout(TIMEOUT, wait).await.expect("it is reported")
}

async fn nodes(
    client: &Client,
    updates: &mpsc::UnboundedSender<node_labels::Update>,
    inputs: &mut mpsc::Receiver<Input>,
) {
    const BRIDGE: &str = "ovs-cni.network.kubevirt.io/br-data";
    const POINT: &str = "cp.eno.k8s.io/cp1";
    let api: Api<core::Node> = Api::all(client.clone());
    let node: core::Node =
        serde_json::from_value(json!({ "metadata": { "name": "worker1", "labels": { "rack": "1" } } }))
            .unwrap();
    api.create(&PostParams::default(), &node).await.unwrap();
    let ready = |event: &Event| match event {
        Event::Node { name, labels, ready } if &**name == "worker1" => Some((labels.clone(), *ready)),
        _ => None,
    };
    let (labels, is_ready) = wait_for_event(inputs, ready).await;
    assert!(labels["rack"] == "1" && !is_ready);
    let conditions = json!({ "status": { "conditions": [{ "type": "Ready", "status": "True" }] } });
    api.patch_status("worker1", &PatchParams::default(), &Patch::Strategic(conditions)).await.unwrap();
    wait_for_event(inputs, |event| ready(event).filter(|(_, ready)| *ready)).await;

    let want = |points: &[&str], bridges: &[&str]| {
        let names = |all: &[&str]| all.iter().map(|one| Name::from(*one)).collect::<BTreeSet<_>>();
        let desired = node_labels::DesiredLabels::new(&names(points), &names(bridges));
        updates.send(node_labels::Update::Desired("worker1".into(), desired)).unwrap();
    };
    let capacity = |node: &core::Node| {
        let of =
            |resources: Option<&BTreeMap<String, _>>| resources.is_some_and(|all| all.contains_key(BRIDGE));
        let status = node.status.as_ref();
        of(status.and_then(|status| status.capacity.as_ref()))
            && of(status.and_then(|status| status.allocatable.as_ref()))
    };
    let labelled = move |node: Option<&core::Node>| {
        node.is_some_and(|node| {
            node.labels().get(POINT).is_some_and(|value| value == "ready") && capacity(node)
        })
    };
    want(&["cp1"], &["br-data"]);
    until(&api, "worker1", labelled).await;
    let (labels, _) = wait_for_event(inputs, ready).await;
    assert_eq!(labels.len(), 1, "our own labels are no news: {labels:?}");
    // The engine restores what another client removed.
    let off = json!({ "metadata": { "labels": { POINT: null } }, "status": { "capacity": { BRIDGE: "0" } } });
    api.patch("worker1", &PatchParams::default(), &Patch::Merge(&off)).await.unwrap();
    let kubelet = PatchParams { field_manager: Some("kubelet".into()), ..PatchParams::default() };
    api.patch_status("worker1", &kubelet, &Patch::Merge(&off)).await.unwrap();
    let restored = move |node: Option<&core::Node>| {
        let count = |node: &core::Node| {
            node.status.as_ref()?.capacity.as_ref()?.get(BRIDGE).map(|count| count.0.clone())
        };
        labelled(node) && node.and_then(count).as_deref() == Some("1k")
    };
    until(&api, "worker1", restored).await;
    want(&[], &[]);
    let bare = move |node: Option<&core::Node>| {
        node.is_some_and(|node| {
            !node.labels().contains_key(POINT) && node.labels().contains_key("rack") && !capacity(node)
        })
    };
    until(&api, "worker1", bare).await;
}

fn a_pod(name: &str) -> core::Pod {
    serde_json::from_value(json!({
        "metadata": { "name": name, "namespace": "default", "labels": { "podconfig": "pc", "app": "x" } },
        "spec": { "nodeName": "worker1", "automountServiceAccountToken": false, "terminationGracePeriodSeconds": 0,
            "containers": [{ "name": "main", "image": "i" }] },
    }))
    .unwrap()
}

async fn pods(client: &Client, inputs: &mut mpsc::Receiver<Input>) {
    let accounts: Api<core::ServiceAccount> = Api::default_namespaced(client.clone());
    until(&accounts, "default", |account: Option<&core::ServiceAccount>| account.is_some()).await;
    let api: Api<core::Pod> = Api::default_namespaced(client.clone());
    let made = api.create(&PostParams::default(), &a_pod("p")).await.unwrap();
    let uid = Name::from(made.uid().unwrap());
    let pod = |event: &Event| match event {
        Event::Pod(pod) if pod.uid == uid => Some((**pod).clone()),
        _ => None,
    };
    let fresh = Pod {
        uid: uid.clone(),
        namespace: "default".into(),
        name: "p".into(),
        uses: Uses::default(),
        labels: [("podconfig".into(), "pc".into())].into(),
        node: Some("worker1".into()),
        host_network: false,
        container: None,
        attached: Vec::new(),
    };
    assert_eq!(wait_for_event(inputs, pod).await, fresh);
    let status = |state: Value| {
        json!({ "status": { "phase": "Running", "containerStatuses": [
            { "name": "main", "image": "i", "imageID": "", "ready": true, "restartCount": 0,
              "containerID": "containerd://4b", "state": state },
        ] } })
    };
    let runs = status(json!({ "running": { "startedAt": "2026-01-01T00:00:00Z" } }));
    api.patch_status("p", &PatchParams::default(), &Patch::Merge(runs)).await.unwrap();
    assert_eq!(wait_for_event(inputs, pod).await, Pod { container: Some("containerd://4b".into()), ..fresh });
    // A finished pod counts as gone.
    let done = json!({ "status": { "phase": "Succeeded" } });
    api.patch_status("p", &PatchParams::default(), &Patch::Merge(done)).await.unwrap();
    wait_for_event(inputs, |event| {
        matches!(event, Event::PodGone(gone_uid) if *gone_uid == uid).then_some(())
    })
    .await;
}

fn view(mtu: u32) -> PodView {
    let entry = LinkEntry {
        link: "pc0".into(),
        name: "pc0123".into(),
        host_name: Some("hpc0123".into()),
        bridge: Some("pcbr0".into()),
        mac: Some("02:00:00:00:00:01".into()),
        mtu,
        addresses: vec!["192.168.100.2/24".parse().unwrap()],
    };
    let owner = Key::namespaced(Kind::PodConfig, &"default".into(), &"pc".into());
    let interface = PodInterface { owner, kind: "veth", entry, routes: vec![], problem: None };
    PodView { node: "worker1".into(), interfaces: vec![interface] }
}

async fn pod_networks_of(client: &Client) {
    let pods: Api<core::Pod> = Api::default_namespaced(client.clone());
    let api: Api<DynamicObject> = Api::default_namespaced_with(client.clone(), &pod_networks::resource());
    let events: Api<KubeEvent> = Api::default_namespaced(client.clone());
    let mut uids = Vec::new();
    for name in ["a", "b"] {
        let made = pods.create(&PostParams::default(), &a_pod(name)).await.unwrap();
        uids.push(Name::from(made.uid().unwrap()));
    }
    let metrics = Arc::new(Metrics::default());
    let start = || {
        let (updates, receiver) = mpsc::unbounded_channel();
        let stop = CancellationToken::new();
        let events = Events::start(client.clone(), "test", metrics.clone(), stop.clone());
        let task =
            tokio::spawn(pod_networks::run(client.clone(), receiver, events, metrics.clone(), stop.clone()));
        (updates, stop, task)
    };
    let want = |updates: &mpsc::UnboundedSender<pod_networks::Update>, name: &str, uid: &Name, view| {
        updates
            .send(pod_networks::Update::Desired("default".into(), name.into(), uid.clone(), view))
            .unwrap();
    };
    let mtu = |desired| {
        move |object: Option<&DynamicObject>| {
            let interfaces =
                object.map(|object| pod_networks::read_status(object).interfaces).unwrap_or_default();
            interfaces.first().is_some_and(|one| one.mtu == Some(desired))
        }
    };
    let (updates, stop, task) = start();
    want(&updates, "a", &uids[0], Some(Box::new(view(1500))));
    want(&updates, "b", &uids[1], Some(Box::new(view(1500))));
    let made = until(&api, "a", mtu(1500)).await.unwrap();
    until(&api, "b", mtu(1500)).await;
    let owner = &made.owner_references()[0];
    assert_eq!((owner.kind.as_str(), owner.uid.as_str()), ("Pod", &*uids[0]));
    assert_eq!(pod_networks::read_status(&made).interfaces[0].addresses, ["192.168.100.2/24"]);
    stop.cancel();
    timeout(TIMEOUT, task).await.unwrap().unwrap();

    // The next leader leaves unchanged objects alone and deletes those that are not desired.
    let (updates, stop, task) = start();
    want(&updates, "a", &uids[0], Some(Box::new(view(1500))));
    updates.send(pod_networks::Update::InitialSyncDone).unwrap();
    until(&api, "b", |object: Option<&DynamicObject>| object.is_none()).await;
    assert_eq!(api.get("a").await.unwrap().metadata.resource_version, made.metadata.resource_version);
    want(&updates, "a", &uids[0], Some(Box::new(view(9000))));
    until(&api, "a", mtu(9000)).await;
    // A new pod of the same name gets a new object, and updates of the former pod are ignored.
    pods.delete("a", &DeleteParams::default()).await.unwrap();
    until(&pods, "a", conditions::is_deleted(&uids[0])).await;
    let next = Name::from(pods.create(&PostParams::default(), &a_pod("a")).await.unwrap().uid().unwrap());
    want(&updates, "a", &next, Some(Box::new(view(1400))));
    until(&api, "a", mtu(1400)).await;
    want(&updates, "a", &uids[0], None);
    // The pod gets an Event about a PodConfig that its label names and that does not exist.
    let mut missing = view(1300);
    missing.interfaces.push(PodInterface {
        kind: "none",
        problem: Some("there is no PodConfig pc".into()),
        ..missing.interfaces[0].clone()
    });
    want(&updates, "b", &uids[1], Some(Box::new(missing)));
    until(&api, "b", mtu(1300)).await;
    let on_the_pod = |event: &KubeEvent| {
        event.regarding.as_ref().is_some_and(|regarding| regarding.uid.as_deref() == Some(&*uids[1]))
            && event.note.as_deref() == Some("there is no PodConfig pc")
    };
    let written = async {
        while !events.list(&ListParams::default()).await.unwrap().iter().any(on_the_pod) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(TIMEOUT, written).await.expect("an Event on the pod");
    let left = api.get("a").await.unwrap();
    assert_eq!(left.owner_references()[0].uid, *next);
    // The object is garbage-collected with its pod, without any update.
    pods.delete("a", &DeleteParams::default()).await.unwrap();
    until(&api, "a", |object: Option<&DynamicObject>| object.is_none()).await;
    want(&updates, "a", &next, None);
    want(&updates, "b", &uids[1], None);
    until(&api, "b", |object: Option<&DynamicObject>| object.is_none()).await;
    stop.cancel();
    timeout(TIMEOUT, task).await.unwrap().unwrap();
}

async fn samples_of(client: &Client) {
    let configs: Api<PodConfig> = Api::default_namespaced(client.clone());
    let deployments: Api<Deployment> = Api::default_namespaced(client.clone());
    let events: Api<KubeEvent> = Api::default_namespaced(client.clone());
    let mut config = PodConfig::new("podconfig-sample-a", serde_json::from_value(json!({})).unwrap());
    config.metadata.namespace = Some("default".into());
    let uid = Name::from(configs.create(&PostParams::default(), &config).await.unwrap().uid().unwrap());
    let owner = Key::namespaced(Kind::PodConfig, &"default".into(), &"podconfig-sample-a".into());
    // The quota allows no pods, so the pods of the Deployment are refused.
    let quotas: Api<core::ResourceQuota> = Api::default_namespaced(client.clone());
    let quota = json!({ "metadata": { "name": "none" }, "spec": { "hard": { "pods": "0" } } });
    quotas.create(&PostParams::default(), &serde_json::from_value(quota).unwrap()).await.unwrap();
    let counted = |one: Option<&core::ResourceQuota>| {
        one.and_then(|one| one.status.as_ref()).is_some_and(|status| status.used.is_some())
    };
    until(&quotas, "none", counted).await;
    let (mailbox, mut inputs) = mpsc::channel(8);
    let metrics = Arc::new(Metrics::default());
    let mut wait = tokio::time::interval(Duration::from_millis(50));
    for image in [None, Some(Arc::from("registry.example.com/test:1"))] {
        let stop = CancellationToken::new();
        let (updates, receiver) = mpsc::unbounded_channel();
        let event_writer = Events::start(client.clone(), "test", metrics.clone(), stop.clone());
        let task = tokio::spawn(samples::run(
            client.clone(),
            image.clone(),
            receiver,
            mailbox.clone(),
            event_writer,
            metrics.clone(),
            stop.clone(),
        ));
        updates.send((owner.clone(), (uid.clone(), "cnf-example-a".into()))).unwrap();
        if image.is_none() {
            let found = async {
                loop {
                    wait.tick().await;
                    let all = events.list(&ListParams::default()).await.unwrap().items;
                    let one = all.into_iter().find(|event| event.reason.as_deref() == Some("SampleNotMade"));
                    if let Some(event) = one {
                        return event.note.unwrap();
                    }
                }
            };
            let note = timeout(TIMEOUT, found).await.expect("an Event says so");
            assert!(note.contains("--sample-image"), "{note}");
        } else {
            let made =
                until(&deployments, "cnf-example-a", |one: Option<&Deployment>| one.is_some()).await.unwrap();
            assert_eq!(made.owner_references()[0].uid, *uid);
            let refused = wait_for_event(&mut inputs, |event| match event {
                Event::SampleRefused(key, message) if *key == owner => Some(message.to_string()),
                _ => None,
            });
            let message = refused.await;
            assert!(
                message.contains("Deployment cnf-example-a are refused") && message.contains("quota"),
                "{message}"
            );
        }
        stop.cancel();
        timeout(TIMEOUT, task).await.unwrap().unwrap();
    }
    // The Deployment is garbage-collected with its owner.
    configs.delete("podconfig-sample-a", &DeleteParams::default()).await.unwrap();
    until(&deployments, "cnf-example-a", |one: Option<&Deployment>| one.is_none()).await;
}
