//! Node labels and extended resources for the networks on nodes: a label per ConnectionPoint whose path is ready, and
//! an extended resource per Open vSwitch bridge. The resource is that of ovs-cni's marker; pods that need the bridge
//! request it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use eno_core::Name;
use eno_queue::DelayQueue;
use kube::api::{Api, ListParams, ObjectMeta, Patch, PatchParams};
use kube::{Client, ResourceExt as _};
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::api::MANAGER;
use crate::metrics::Metrics;
use crate::watch::slim_objects::{self, SlimNode};

/// Prefix of the label of a ConnectionPoint; the node has it while the path is ready.
pub const LABEL_PREFIX: &str = "cp.eno.k8s.io/";
/// Value of that label.
const LABEL_VALUE: &str = "ready";
/// Prefix of the extended resource of an Open vSwitch bridge, as ovs-cni's marker writes it and NADs name it.
const RESOURCE_PREFIX: &str = "ovs-cni.network.kubevirt.io/";
/// Quantity of the resource, as ovs-cni's marker writes it.
const RESOURCE_COUNT: &str = "1k";
/// Maximum length of a label after its prefix (Kubernetes label syntax).
const MAX_LABEL_LEN: usize = 63;
/// Delay after a failure.
const RETRY_DELAY: Duration = Duration::from_secs(2);

/// The label of a ConnectionPoint. A name that is too long is cut and ends in a hash.
pub fn label(point: &str) -> String {
    if point.len() <= MAX_LABEL_LEN {
        return format!("{LABEL_PREFIX}{point}");
    }
    let digest = Sha256::digest(point.as_bytes());
    let hash = digest.iter().take(8).fold(String::new(), |hash, byte| hash + &format!("{byte:02x}"));
    let kept = point.floor_char_boundary(MAX_LABEL_LEN - hash.len() - 1);
    format!("{LABEL_PREFIX}{}-{hash}", &point[..kept])
}

/// The desired labels and resources of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DesiredLabels {
    labels: BTreeSet<String>,
    resources: BTreeSet<String>,
}

impl DesiredLabels {
    /// For these ConnectionPoints and Open vSwitch bridges.
    pub fn new(points: &BTreeSet<Name>, bridges: &BTreeSet<Name>) -> Self {
        Self {
            labels: points.iter().map(|point| label(point)).collect(),
            resources: bridges.iter().map(|bridge| format!("{RESOURCE_PREFIX}{bridge}")).collect(),
        }
    }
}

/// The current labels and resources of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeState {
    uid: String,
    /// Labels with [`LABEL_PREFIX`].
    labels: BTreeMap<String, String>,
    /// Resources with [`RESOURCE_PREFIX`].
    resources: BTreeMap<String, ResourceOwner>,
}

/// The manager that wrote a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ResourceOwner {
    /// This engine.
    Ours,
    /// Another manager, such as ovs-cni's marker.
    Other,
    /// None: a restarted kubelet reset it to 0.
    Nobody,
}

impl NodeState {
    /// Reads the state of a Node.
    pub fn read<'a>(meta: &ObjectMeta, capacity: impl Iterator<Item = &'a BTreeMap<String, String>>) -> Self {
        let labels = meta.labels.iter().flatten().filter(|(label, _)| label.starts_with(LABEL_PREFIX));
        let resources = capacity.flatten().filter(|(name, _)| name.starts_with(RESOURCE_PREFIX));
        let owner = |name: &str, quantity: &str| match quantity {
            _ if is_ours(meta, name) => ResourceOwner::Ours,
            "0" => ResourceOwner::Nobody,
            _ => ResourceOwner::Other,
        };
        Self {
            uid: meta.uid.clone().unwrap_or_default(),
            labels: labels.map(|(label, value)| (label.clone(), value.clone())).collect(),
            resources: resources.map(|(name, quantity)| (name.clone(), owner(name, quantity))).collect(),
        }
    }
}

/// True when the engine wrote this resource of a Node last.
fn is_ours(meta: &ObjectMeta, resource: &str) -> bool {
    let mut entries = meta.managed_fields.iter().flatten();
    entries.any(|entry| {
        let fields = entry.fields_v1.as_ref().map(|fields| &fields.0["f:status"]["f:capacity"]);
        entry.manager.as_deref() == Some(MANAGER)
            && fields.is_some_and(|fields| fields.get(format!("f:{resource}")).is_some())
    })
}

/// The merge patches of a node's metadata and status from the current to the desired state. `None`: nothing to change.
fn patches(desired: &DesiredLabels, current: &NodeState) -> (Option<Value>, Option<Value>) {
    let mut labels = Map::new();
    for label in &desired.labels {
        if current.labels.get(label).is_none_or(|value| value != LABEL_VALUE) {
            labels.insert(label.clone(), LABEL_VALUE.into());
        }
    }
    for label in current.labels.keys().filter(|label| !desired.labels.contains(*label)) {
        labels.insert(label.clone(), Value::Null);
    }
    let mut resources = Map::new();
    for resource in &desired.resources {
        if matches!(current.resources.get(resource), None | Some(ResourceOwner::Nobody)) {
            resources.insert(resource.clone(), RESOURCE_COUNT.into());
        }
    }
    for (resource, owner) in &current.resources {
        if *owner == ResourceOwner::Ours && !desired.resources.contains(resource) {
            resources.insert(resource.clone(), Value::Null);
        }
    }
    // With the uid, the patch never changes another node of the same name.
    let labels =
        (!labels.is_empty()).then(|| json!({ "metadata": { "uid": current.uid, "labels": labels } }));
    let status = (!resources.is_empty()).then(|| {
        // The kubelet derives `allocatable` from `capacity` at its next report; writing both lets the scheduler use it
        // at once.
        json!({ "metadata": { "uid": current.uid }, "status": { "capacity": resources, "allocatable": resources } })
    });
    (labels, status)
}

/// Removes the labels and extended resources that the engine wrote on any node. Returns the names of the changed nodes.
/// No engine may run meanwhile. A retry goes on after an error.
pub async fn unmark_nodes(client: Client) -> Result<Vec<String>, kube::Error> {
    let nodes: Api<SlimNode> = Api::all_with(client, &slim_objects::nodes());
    let mut changed = Vec::new();
    for node in nodes.list(&ListParams::default()).await?.items {
        let (labels, status) = patches(&DesiredLabels::default(), &slim_objects::node_state(&node));
        if labels.is_some() || status.is_some() {
            let name = node.name_any();
            write(&nodes, &name, labels, status).await?;
            changed.push(name);
        }
    }
    Ok(changed)
}

/// Messages to the task that labels nodes.
#[derive(Debug)]
pub enum Update {
    /// The current state of a node.
    NodeSeen(Name, Arc<NodeState>),
    /// The node is gone.
    NodeGone(Name),
    /// The desired state of a node.
    Desired(Name, DesiredLabels),
}

#[derive(Debug, Default)]
struct Slot {
    desired: Option<DesiredLabels>,
    current: Option<Arc<NodeState>>,
    running: bool,
}

/// Keeps nodes in their desired state until `stop`, whoever changes them.
pub async fn run(
    client: Client,
    mut updates: mpsc::UnboundedReceiver<Update>,
    metrics: Arc<Metrics>,
    stop: CancellationToken,
) {
    let nodes: Api<SlimNode> = Api::all_with(client, &slim_objects::nodes());
    let mut slots: HashMap<Name, Slot> = HashMap::new();
    let mut to_check: BTreeSet<Name> = BTreeSet::new();
    let mut retries: DelayQueue<Name, Instant> = DelayQueue::default();
    let mut running: JoinSet<(Name, WriteResult)> = JoinSet::new();
    loop {
        for name in std::mem::take(&mut to_check) {
            let Some(slot) = slots.get_mut(&name).filter(|slot| !slot.running) else { continue };
            // A node without a known desired state keeps its labels.
            let (Some(desired), Some(current)) = (&slot.desired, &slot.current) else { continue };
            let (labels, status) = patches(desired, current);
            if labels.is_some() || status.is_some() {
                slot.running = true;
                let nodes = nodes.clone();
                running.spawn(async move {
                    let result = write(&nodes, &name, labels, status).await;
                    (name, result)
                });
            }
        }
        let wake = retries.wake();
        tokio::select! {
            () = stop.cancelled() => return,
            update = updates.recv() => match update {
                None => return,
                Some(Update::NodeGone(name)) => _ = slots.remove(&name),
                Some(Update::NodeSeen(name, current)) => {
                    slots.entry(name.clone()).or_default().current = Some(current);
                    to_check.insert(name);
                }
                Some(Update::Desired(name, desired)) => {
                    slots.entry(name.clone()).or_default().desired = Some(desired);
                    to_check.insert(name);
                }
            },
            Some(done) = running.join_next() => {
                let Ok((name, result)) = done else { continue };
                let Some(slot) = slots.get_mut(&name) else { continue };
                match result {
                    Ok(current) => {
                        metrics.write("node", "done");
                        slot.running = false;
                        // A node that is gone is checked again when a node of its name appears.
                        slot.current = current;
                        to_check.insert(name);
                    }
                    Err(error) => {
                        metrics.write("node", "retry");
                        warn!(node = &*name, %error, "the Node was not marked, trying again");
                        // The slot counts as running until the retry.
                        retries.insert(name, Instant::now() + RETRY_DELAY);
                    }
                }
            }
            () = async { sleep_until(wake.unwrap_or_else(Instant::now)).await }, if wake.is_some() => {
                let now = Instant::now();
                while let Some(name) = retries.pop(now) {
                    if let Some(slot) = slots.get_mut(&name) {
                        slot.running = false;
                    }
                    to_check.insert(name);
                }
            }
        }
    }
}

/// The state after a write; `None`: the node is gone.
type WriteResult = Result<Option<Arc<NodeState>>, kube::Error>;

/// Writes the patches.
async fn write(
    nodes: &Api<SlimNode>,
    name: &str,
    labels: Option<Value>,
    status: Option<Value>,
) -> WriteResult {
    let params = PatchParams { field_manager: Some(MANAGER.into()), ..PatchParams::default() };
    let mut current = None;
    let mut result = Ok(());
    if let Some(labels) = labels {
        result = nodes
            .patch(name, &params, &Patch::Merge(labels))
            .await
            .map(|node| current = Some(slim_objects::node_state(&node)));
    }
    if let (Ok(()), Some(status)) = (&result, status) {
        let patch = Patch::Merge(status);
        result = nodes
            .patch_status(name, &params, &patch)
            .await
            .map(|node| current = Some(slim_objects::node_state(&node)));
    }
    match result {
        Ok(()) => Ok(current),
        Err(kube::Error::Api(status)) if status.code == 404 || crate::api::is_uid_mismatch(&status) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn desired(points: &[&str], bridges: &[&str]) -> DesiredLabels {
        let names = |all: &[&str]| all.iter().map(|one| Name::from(*one)).collect();
        DesiredLabels::new(&names(points), &names(bridges))
    }

    fn current(change: &Value) -> NodeState {
        let mut node =
            json!({ "metadata": { "name": "n", "uid": "u", "labels": {} }, "spec": {}, "status": {} });
        for (pointer, value) in change.as_object().unwrap() {
            let (outer, inner) = pointer.split_once('.').unwrap();
            node[outer][inner] = value.clone();
        }
        let node: SlimNode = serde_json::from_value(node).unwrap();
        (*slim_objects::node_state(&node)).clone()
    }

    fn managed(by: &str) -> Value {
        json!([{ "manager": by, "operation": "Update", "subresource": "status",
            "fieldsV1": { "f:status": { "f:capacity": { "f:ovs-cni.network.kubevirt.io/br-data": {} } } } }])
    }

    #[test]
    fn connection_point_label_is_shortened_with_hash() {
        assert_eq!(label("cp1"), "cp.eno.k8s.io/cp1");
        let long = "a".repeat(64);
        let (one, other) = (label(&long), label(&(long.clone() + "b")));
        assert!(one != other && one.len() == LABEL_PREFIX.len() + MAX_LABEL_LEN && one == label(&long));
    }

    #[test]
    fn bare_node_gets_labels_and_resources() {
        let (labels, status) = patches(&desired(&["cp1"], &["br-data"]), &current(&json!({})));
        assert_eq!(
            labels.unwrap(),
            json!({ "metadata": { "uid": "u", "labels": { "cp.eno.k8s.io/cp1": "ready" } } })
        );
        let resource = json!({ "ovs-cni.network.kubevirt.io/br-data": "1k" });
        assert_eq!(status.unwrap()["status"], json!({ "capacity": resource, "allocatable": resource }));
    }

    #[test]
    fn unchanged_node_yields_no_patch() {
        let labelled = current(&json!({
            "metadata.labels": { "cp.eno.k8s.io/cp1": "ready", "other": "x" },
            "metadata.managedFields": managed(MANAGER),
            "status.capacity": { "cpu": "2", "ovs-cni.network.kubevirt.io/br-data": "1k" } }));
        assert_eq!(patches(&desired(&["cp1"], &["br-data"]), &labelled), (None, None));
        let (labels, status) = patches(&desired(&[], &[]), &labelled);
        assert_eq!(labels.unwrap()["metadata"]["labels"], json!({ "cp.eno.k8s.io/cp1": null }));
        assert_eq!(
            status.unwrap()["status"]["capacity"],
            json!({ "ovs-cni.network.kubevirt.io/br-data": null })
        );
    }

    #[test]
    fn resources_of_other_managers_are_preserved() {
        let capacity = |quantity: &str| json!({ "ovs-cni.network.kubevirt.io/br-data": quantity });
        let foreign = current(
            &json!({ "metadata.managedFields": managed("marker"), "status.capacity": capacity("1k") }),
        );
        assert_eq!(patches(&desired(&[], &["br-data"]), &foreign), (None, None));
        assert_eq!(patches(&desired(&[], &[]), &foreign), (None, None));
        // A restarted kubelet resets all extended resources.
        let reset = current(
            &json!({ "metadata.managedFields": managed("kubelet"), "status.capacity": capacity("0") }),
        );
        assert!(patches(&desired(&[], &["br-data"]), &reset).1.is_some());
        assert_eq!(patches(&desired(&[], &[]), &reset), (None, None));
    }

    #[test]
    fn wrong_label_value_is_corrected() {
        let wrong = current(&json!({ "metadata.labels": { "cp.eno.k8s.io/cp1": "no" } }));
        assert!(patches(&desired(&["cp1"], &[]), &wrong).0.is_some());
    }
}
