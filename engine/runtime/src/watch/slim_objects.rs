//! Pods and nodes reduced to the fields that the engine reads. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use eno_core::{Labels, Name, Pod};
use eno_nbi_crds::{ATTACH_LABEL_PREFIX, PODCONFIG_LABEL, PODNETWORKCONFIG_LABEL};
use k8s_openapi::api::core::v1 as core;
use kube::api::{ApiResource, Object};
use serde::{Deserialize, Serialize};

use crate::nodes::node_labels::{self, NodeState};
use crate::watch::networks;

/// A pod.
pub type SlimPod = Object<PodSpec, PodStatus>;

/// A node.
pub type SlimNode = Object<NodeSpec, Option<NodeStatus>>;

/// The resource of pods.
pub fn pods() -> ApiResource {
    ApiResource::erase::<core::Pod>(&())
}

/// The resource of nodes.
pub fn nodes() -> ApiResource {
    ApiResource::erase::<core::Node>(&())
}

/// The fields of a pod's spec that are read.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSpec {
    node_name: Option<Name>,
    host_network: bool,
    containers: Vec<Container>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Container {
    name: String,
}

/// The fields of a pod's status that are read.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodStatus {
    container_statuses: Vec<ContainerStatus>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ContainerStatus {
    name: String,
    #[serde(rename = "containerID")]
    container_id: String,
    state: ContainerState,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct ContainerState {
    running: Option<Running>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Running {}

/// A pod in the core's form. `multus`: the namespace of Multus.
pub fn pod(uid: Name, source: &SlimPod, multus: &str) -> Pod {
    let meta = &source.metadata;
    let namespace = meta.namespace.as_deref().unwrap_or_default();
    let chooses = |label: &str| {
        label == PODCONFIG_LABEL || label == PODNETWORKCONFIG_LABEL || label.starts_with(ATTACH_LABEL_PREFIX)
    };
    let labels = meta.labels.iter().flatten().filter(|(label, _)| chooses(label));
    Pod {
        uid,
        namespace: namespace.into(),
        name: meta.name.as_deref().unwrap_or_default().into(),
        uses: networks::used(namespace, meta.annotations.as_ref(), meta.labels.as_ref(), multus),
        labels: labels.map(|(label, value)| (label.as_str().into(), value.as_str().into())).collect(),
        node: source.spec.node_name.clone(),
        host_network: source.spec.host_network,
        container: container(source),
        attached: networks::attached(namespace, meta.annotations.as_ref()),
    }
}

/// The first container of the spec, if it runs. The statuses have another order than the containers.
fn container(pod: &SlimPod) -> Option<Name> {
    let first = &pod.spec.containers.first()?.name;
    let status = pod.status.as_ref()?.container_statuses.iter().find(|status| status.name == *first)?;
    let runs = status.state.running.is_some() && !status.container_id.is_empty();
    runs.then(|| status.container_id.as_str().into())
}

/// No field of a node's spec is read.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct NodeSpec {}

/// The fields of a node's status that are read.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeStatus {
    conditions: Vec<Condition>,
    /// Quantities by resource.
    pub capacity: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
}

/// The labels of a node except the engine's own, and whether the node is ready.
pub fn node(source: &SlimNode) -> (Labels, bool) {
    let labels = source.metadata.labels.iter().flatten();
    let labels = labels.filter(|(label, _)| !label.starts_with(node_labels::LABEL_PREFIX));
    let conditions = source.status.iter().flatten().flat_map(|status| &status.conditions);
    let ready = conditions.clone().any(|one| one.kind == "Ready" && one.status == "True");
    (labels.map(|(label, value)| (label.clone(), value.clone())).collect(), ready)
}

/// The labels and resources that the engine or ovs-cni's marker wrote.
pub fn node_state(source: &SlimNode) -> Arc<NodeState> {
    Arc::new(NodeState::read(&source.metadata, source.status.iter().flatten().map(|status| &status.capacity)))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn slim(change: impl FnOnce(&mut Value)) -> Pod {
        let mut value = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": "p", "namespace": "ns", "uid": "u", "resourceVersion": "7",
                "labels": { "app": "x", "podconfig": "pc", "podNetworkConfig": "pnc", "attach.eno.k8s.io/l2sa": "net7" },
                "annotations": { "k8s.v1.cni.cncf.io/networks": "nad" } },
            "spec": { "nodeName": "worker1", "containers": [{ "name": "main", "image": "i" }, { "name": "a" }],
                "tolerations": [{ "key": "k" }] },
            "status": { "phase": "Running", "podIP": "10.0.0.1", "containerStatuses": [
                { "name": "a", "containerID": "containerd://aa", "state": { "running": { "startedAt": "2026-01-01T00:00:00Z" } } },
                { "name": "main", "containerID": "containerd://bb", "state": { "running": {} }, "ready": true },
            ] },
        });
        change(&mut value);
        pod("u".into(), &serde_json::from_value(value).unwrap(), networks::MULTUS_NAMESPACE)
    }

    #[test]
    fn running_pod_yields_first_container_and_selecting_labels() {
        let pod = slim(|_| {});
        assert_eq!((&*pod.namespace, &*pod.name, pod.host_network), ("ns", "p", false));
        assert_eq!(pod.node.as_deref(), Some("worker1"));
        assert_eq!(pod.container.as_deref(), Some("containerd://bb"), "the first of the spec");
        assert_eq!(pod.uses.named(), ["l2sa", "nad"].map(|name| ("ns".into(), Name::from(name))));
        let labels = [("attach.eno.k8s.io/l2sa", "net7"), ("podNetworkConfig", "pnc"), ("podconfig", "pc")];
        assert_eq!(pod.labels, labels.map(|(label, value)| (label.into(), value.into())).into());
    }

    #[test]
    fn interfaces_that_multus_made_are_read_of_the_annotation() {
        let pod = slim(|pod| {
            let status = json!([{ "name": "ns/nad", "interface": "net1" }]).to_string();
            pod["metadata"]["annotations"]["k8s.v1.cni.cncf.io/network-status"] = status.into();
        });
        assert_eq!(pod.attached[0].interface.as_deref(), Some("net1"));
    }

    #[test]
    fn pod_without_running_first_container_has_no_container() {
        let waits = |pod: &mut Value| {
            pod["status"]["containerStatuses"][1]["state"] = json!({ "waiting": { "reason": "x" } });
        };
        assert_eq!(slim(waits).container, None, "another container may run already");
        assert_eq!(slim(|pod| pod["status"] = json!({ "phase": "Pending" })).container, None);
        let fresh = slim(|pod| {
            pod["spec"] = json!({ "hostNetwork": true, "containers": [{ "name": "main" }] });
            pod.as_object_mut().unwrap().remove("status");
        });
        assert!(fresh.node.is_none() && fresh.host_network);
    }

    #[test]
    fn node_labels_exclude_own_prefix() {
        let mut value = json!({ "metadata": { "name": "n", "labels": { "a": "b", "cp.eno.k8s.io/x": "ready" } },
            "spec": { "podCIDR": "10.0.0.0/24" },
            "status": { "conditions": [{ "type": "DiskPressure", "status": "True" }, { "type": "Ready", "status": "True" }] } });
        let read = |value: &Value| node(&serde_json::from_value(value.clone()).unwrap());
        assert_eq!(read(&value), (Labels::from([("a".into(), "b".into())]), true));
        value["status"]["conditions"][1]["status"] = "Unknown".into();
        assert!(!read(&value).1);
        value["status"] = json!({});
        assert!(!read(&value).1);
    }
}
