//! Interfaces of running pods on a real API server and a real NATS server, with a simulated agent.

use std::sync::Arc;
use std::time::Duration;

use eno_conformance::NatsServer;
use eno_engine::EngineArgs;
use eno_nbi_crds::{Bridge, ConfigPhase, ConnectionPoint, PodConfig, PodNetworkConfig, manifest};
use eno_schemas::NodeDesired;
use futures::FutureExt as _;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Node, Pod, ServiceAccount};
use k8s_openapi::api::events::v1::Event;
use kube::api::{
    Api, ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, PostParams,
};
use kube::runtime::wait::Condition;
use kube::{Client, ResourceExt as _};
use serde_json::json;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::api::{Engine, TIMEOUT, apply, apply_file, create_namespace, delete, start_cluster, until};
use crate::cluster::engine_args;

const NAMESPACE: &str = "cnf-test";

/// Creates a pod with a running container on the node.
async fn run_pod(client: &Client, name: &str, label: &str, value: &str) -> Pod {
    let api: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    let pod = serde_json::from_value(json!({
        "metadata": { "name": name, "labels": { label: value } },
        "spec": { "nodeName": "worker1", "automountServiceAccountToken": false, "terminationGracePeriodSeconds": 0,
            "containers": [{ "name": "main", "image": "i" }] },
    }));
    api.create(&PostParams::default(), &pod.unwrap()).await.unwrap();
    let status = json!({ "status": { "phase": "Running", "containerStatuses": [
        { "name": "main", "image": "i", "imageID": "", "ready": true, "restartCount": 0,
          "containerID": format!("containerd://{name}"), "state": { "running": { "startedAt": "2026-01-01T00:00:00Z" } } },
    ] } });
    api.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await.unwrap()
}

async fn end_pod(client: &Client, name: &str) {
    delete(&Api::<Pod>::namespaced(client.clone(), NAMESPACE), name).await;
}

/// Asserts that addresses are stored in the status before the node gets them.
async fn check_addresses_are_recorded(client: Client, desired: NodeDesired) {
    let mut written: Vec<(String, String)> = Vec::new();
    for pod in desired.pods.values() {
        assert_eq!(pod.namespace, NAMESPACE);
    }
    for object in Api::<PodConfig>::namespaced(client, NAMESPACE).list(&ListParams::default()).await.unwrap()
    {
        for lease in object.status.unwrap_or_default().addresses {
            written.extend(lease.addresses.into_iter().map(|address| (lease.uid.clone(), address)));
        }
    }
    for (uid, pod) in &desired.pods {
        for address in pod.links.iter().flat_map(|link| &link.addresses) {
            assert!(
                written.contains(&(uid.clone(), address.to_string())),
                "{address} of {uid} in {written:?}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn running_pods_get_requested_interfaces() {
    let dir = tempfile::tempdir().unwrap();
    let (cluster, client) = start_cluster(dir.path()).await;
    for name in ["eno-system", NAMESPACE] {
        create_namespace(&client, name).await;
    }
    for file in ["rbac/engine.yaml", "policy/node-marks.yaml"] {
        apply_file(&client, file).await;
    }
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), NAMESPACE);
    until(&accounts, "default", |account: Option<&ServiceAccount>| account.is_some()).await;
    let nodes: Api<Node> = Api::all(client.clone());
    let node = serde_json::from_value(json!({ "metadata": { "name": "worker1" } })).unwrap();
    nodes.create(&PostParams::default(), &node).await.unwrap();
    let ready = json!({ "status": { "conditions": [{ "type": "Ready", "status": "True" }] } });
    nodes.patch_status("worker1", &PatchParams::default(), &Patch::Strategic(ready)).await.unwrap();

    let nats = NatsServer::start().await;
    let args = EngineArgs {
        nodes: true,
        sample_image: Some("registry.example.com/test:1".into()),
        multus_namespace: "kube-system".into(),
        ..engine_args(&cluster, &nats)
    };
    let stop = CancellationToken::new();
    let check: crate::agent::Check = {
        let client = client.clone();
        Arc::new(move |desired| check_addresses_are_recorded(client.clone(), desired).boxed())
    };
    let (received, driver) =
        crate::agent::start("worker1", nats.connect("eno-driver-node").await, check, stop.clone());
    let engine = Engine::start(args.clone());

    check_node_labels(&client, &nodes).await;
    let configs: Api<PodConfig> = Api::namespaced(client.clone(), NAMESPACE);
    check_two_pods(&client, &configs).await;

    // The next leader writes nothing and changes no address.
    let before = configs.get("podconfig-sample-a").await.unwrap();
    engine.end().await;
    let engine = Engine::start(args);
    run_pod(&client, "q", "podNetworkConfig", "podnetwork-sample-a").await;
    check_other_kinds(&client).await;
    let after = configs.get("podconfig-sample-a").await.unwrap();
    assert_eq!(before.metadata.resource_version, after.metadata.resource_version, "{before:#?} {after:#?}");

    check_cleanup(&client, &configs, &received).await;
    stop.cancel();
    timeout(TIMEOUT, driver).await.expect("the agent ends").unwrap();
    engine.end().await;
    cluster.stop().await;
}

/// The node has the label of a ConnectionPoint until that is deleted.
async fn check_node_labels(client: &Client, nodes: &Api<Node>) {
    let opts = r#"{"BridgeName": "br-data"}"#;
    let cnis = json!([{ "Name": "ovs", "SupportedInterfaceTypes": ["kernel"], "Opts": opts }]);
    apply(client, manifest("ConnectionPoint", "cp1", json!({ "SupportedCnis": cnis }))).await;
    let labelled = |node: Option<&Node>| {
        node.is_some_and(|node| {
            let capacity = node.status.as_ref().and_then(|status| status.capacity.as_ref());
            node.labels().get("cp.eno.k8s.io/cp1").is_some_and(|value| value == "ready")
                && capacity.is_some_and(|all| all.contains_key("ovs-cni.network.kubevirt.io/br-data"))
        })
    };
    until(nodes, "worker1", labelled).await;
    delete(&Api::<ConnectionPoint>::all(client.clone()), "cp1").await;
    until(nodes, "worker1", move |node: Option<&Node>| node.is_some() && !labelled(node)).await;
}

fn reads(phase: ConfigPhase, pods: usize) -> impl Condition<PodConfig> {
    move |object: Option<&PodConfig>| {
        let status = object.and_then(|object| object.status.as_ref());
        status.is_some_and(|status| status.phase == Some(phase) && status.pod_configurations.len() == pods)
    }
}

async fn check_two_pods(client: &Client, configs: &Api<PodConfig>) {
    let spec = json!({
        "sampleDeployment": { "create": false, "name": "cnf-example-a" },
        "networkAttachments": [
            { "name": "pc0", "linkType": "veth", "master": "pcbr0", "parent": "pc0", "cidr": "192.168.100.0/24" },
            { "name": "pc1", "linkType": "veth", "master": "pcbr1", "parent": "pc1", "cidr": "192.168.99.0/24" },
        ],
    });
    apply(client, manifest("PodConfig", &format!("{NAMESPACE}/podconfig-sample-a"), spec)).await;
    let pod = run_pod(client, "p1", "podconfig", "podconfig-sample-a").await;
    until(configs, "podconfig-sample-a", reads(ConfigPhase::Configured, 1)).await;
    run_pod(client, "p2", "podconfig", "podconfig-sample-a").await;
    let object = until(configs, "podconfig-sample-a", reads(ConfigPhase::Configured, 2)).await.unwrap();
    assert_eq!(object.finalizers(), ["podconfig.finalizers.opdev.io"]);
    let status = object.status.unwrap();
    let leases: Vec<_> =
        status.pod_configurations.iter().map(|pod| (pod.pod_name.as_str(), &pod.config_list)).collect();
    let pc = |index: u32, host: u32| {
        let (pid, net) = (crate::agent::PID, 100 - index);
        format!(
            "{{podVethName:pc{index}{pid} podIPAddr:192.168.{net}.{host}/24 peerVethName:hpc{index}{pid} bridge:pcbr{index}}}"
        )
    };
    assert_eq!(leases, [("p1", &vec![pc(0, 2), pc(1, 2)]), ("p2", &vec![pc(0, 3), pc(1, 3)])]);

    // The PodNetwork lists all interfaces of the pod.
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("eno.k8s.io", "v1alpha1", "PodNetwork"));
    let networks: Api<DynamicObject> = Api::namespaced_with(client.clone(), NAMESPACE, &resource);
    let both = |object: Option<&DynamicObject>| {
        object.is_some_and(|object| {
            let interfaces = object.data["status"]["interfaces"].as_array().cloned().unwrap_or_default();
            interfaces.iter().filter(|one| one["name"].is_string()).count() == 2
        })
    };
    let network = until(&networks, "p1", both).await.unwrap();
    assert_eq!(Some(&network.owner_references()[0].uid), pod.uid().as_ref());
    assert_eq!(network.data["status"]["node"], "worker1");

    // The pod gets an Event of the repair.
    let events: Api<Event> = Api::namespaced(client.clone(), NAMESPACE);
    let mut wait = tokio::time::interval(Duration::from_millis(50));
    let received = async {
        loop {
            wait.tick().await;
            let all = events.list(&ListParams::default()).await.unwrap().items;
            if let Some(event) = all.into_iter().find(|event| event.reason.as_deref() == Some("Repaired")) {
                return event.regarding.unwrap();
            }
        }
    };
    let regarding = timeout(TIMEOUT, received).await.expect("an Event tells of the repair");
    assert_eq!((regarding.kind.as_deref(), regarding.name.as_deref()), (Some("Pod"), Some("p1")));
}

async fn check_other_kinds(client: &Client) {
    let name = |name: &str| format!("{NAMESPACE}/{name}");
    let spec = json!({ "name": "pnobr0", "cidr": "192.168.100.0/24" });
    apply(client, manifest("Bridge", &name("bridge-sample"), spec)).await;
    let spec = json!({ "Name": "podnetwork-sample-a", "eth0": { "mtu": 1400 } });
    apply(client, manifest("PodNetworkConfig", &name("podnetwork-sample-a"), spec)).await;
    let configs: Api<PodNetworkConfig> = Api::namespaced(client.clone(), NAMESPACE);
    let configured = |object: Option<&PodNetworkConfig>| {
        let status = object.and_then(|object| object.status.as_ref());
        status.is_some_and(|status| {
            status.phase == Some(ConfigPhase::Configured)
                && status.pod_network_configs.first().is_some_and(|pod| pod.config_list == ["MTU: 1400"])
        })
    };
    until(&configs, "podnetwork-sample-a", configured).await;
    let bridges: Api<Bridge> = Api::namespaced(client.clone(), NAMESPACE);
    let configured = |object: Option<&Bridge>| {
        object
            .and_then(|object| object.status.as_ref()?.phase)
            .is_some_and(|phase| phase == ConfigPhase::Configured)
    };
    let bridge = until(&bridges, "bridge-sample", configured).await.unwrap();
    assert_eq!(bridge.finalizers(), ["bridge.finalizers.opdev.io"]);
    delete(&configs, "podnetwork-sample-a").await;
    delete(&bridges, "bridge-sample").await;
    end_pod(client, "q").await;
}

async fn check_cleanup(client: &Client, configs: &Api<PodConfig>, received: &crate::agent::ReceivedCommands) {
    // A deleted pod releases its addresses.
    end_pod(client, "p1").await;
    let object = until(configs, "podconfig-sample-a", reads(ConfigPhase::Configured, 1)).await.unwrap();
    assert!(object.status.unwrap().addresses.iter().all(|lease| lease.pod == "p2"));

    let create = json!({ "spec": { "sampleDeployment": { "create": true } } });
    configs.patch("podconfig-sample-a", &PatchParams::default(), &Patch::Merge(create)).await.unwrap();
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), NAMESPACE);
    until(&deployments, "cnf-example-a", |one: Option<&Deployment>| one.is_some()).await;

    delete(configs, "podconfig-sample-a").await;
    let received = received.lock().unwrap();
    let last = received.last().unwrap();
    assert!(last.pods.is_empty() && last.networks.is_empty(), "{last:?}");
}
