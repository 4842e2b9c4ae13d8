//! What Nodes say of the networks on them: a label for each ConnectionPoint whose path is there, and an extended
//! resource for each Open vSwitch bridge, as ovs-cni's marker writes it, which a pod that needs the bridge asks for.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use eno_core::Name;
use kube::Client;
use kube::api::{Api, ObjectMeta, Patch, PatchParams};
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::api::MANAGER;
use crate::metrics::Metrics;
use crate::seen::{self, SlimNode};

/// Before the name of a ConnectionPoint: a label of the nodes on which its path is there.
pub const LABEL_PREFIX: &str = "cp.eno.k8s.io/";
/// The value of such a label.
const LABEL_VALUE: &str = "ready";
/// Before the name of an Open vSwitch bridge: the resource that ovs-cni's marker offers and that NADs name.
const RESOURCE_PREFIX: &str = "ovs-cni.network.kubevirt.io/";
/// So many pods of a node may use a bridge, as ovs-cni's marker has it.
const RESOURCE_COUNT: &str = "1k";
/// The longest name of a label, after its prefix.
const LABEL_LENGTH: usize = 63;
/// After a failure.
const PAUSE: Duration = Duration::from_secs(2);

/// The label of a ConnectionPoint. A name that is too long ends in a hash.
pub fn label(point: &str) -> String {
    if point.len() <= LABEL_LENGTH {
        return format!("{LABEL_PREFIX}{point}");
    }
    let digest = Sha256::digest(point.as_bytes());
    let hash = digest.iter().take(8).fold(String::new(), |hash, byte| hash + &format!("{byte:02x}"));
    let kept = point.floor_char_boundary(LABEL_LENGTH - hash.len() - 1);
    format!("{LABEL_PREFIX}{}-{hash}", &point[..kept])
}

/// What is wanted of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    labels: BTreeSet<String>,
    resources: BTreeSet<String>,
}

impl Wanted {
    /// Of these ConnectionPoints and Open vSwitch bridges.
    pub fn new(points: &BTreeSet<Name>, bridges: &BTreeSet<Name>) -> Self {
        Self {
            labels: points.iter().map(|point| label(point)).collect(),
            resources: bridges.iter().map(|bridge| format!("{RESOURCE_PREFIX}{bridge}")).collect(),
        }
    }
}

/// What is on a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    uid: String,
    /// Those with our prefix.
    labels: BTreeMap<String, String>,
    /// Those with the prefix of ovs-cni.
    resources: BTreeMap<String, Offer>,
}

/// Who offers a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Offer {
    /// We do.
    Ours,
    /// Another manager does, such as ovs-cni's marker.
    Others,
    /// Nobody: the kubelet took it back when it began anew.
    Nobody,
}

impl Found {
    /// Reads what a Node has.
    pub fn read<'a>(meta: &ObjectMeta, capacity: impl Iterator<Item = &'a BTreeMap<String, String>>) -> Self {
        let labels = meta.labels.iter().flatten().filter(|(label, _)| label.starts_with(LABEL_PREFIX));
        let resources = capacity.flatten().filter(|(name, _)| name.starts_with(RESOURCE_PREFIX));
        let offer = |name: &str, quantity: &str| match quantity {
            _ if is_ours(meta, name) => Offer::Ours,
            "0" => Offer::Nobody,
            _ => Offer::Others,
        };
        Self {
            uid: meta.uid.clone().unwrap_or_default(),
            labels: labels.map(|(label, value)| (label.clone(), value.clone())).collect(),
            resources: resources.map(|(name, quantity)| (name.clone(), offer(name, quantity))).collect(),
        }
    }
}

/// We were the last to write this resource of a Node.
fn is_ours(meta: &ObjectMeta, resource: &str) -> bool {
    let mut entries = meta.managed_fields.iter().flatten();
    entries.any(|entry| {
        let fields = entry.fields_v1.as_ref().map(|fields| &fields.0["f:status"]["f:capacity"]);
        entry.manager.as_deref() == Some(MANAGER)
            && fields.is_some_and(|fields| fields.get(format!("f:{resource}")).is_some())
    })
}

/// The merge patches that bring a node from what is there to what is wanted, of its metadata and of its status.
/// `None`: nothing is to be done.
fn patches(wanted: &Wanted, found: &Found) -> (Option<Value>, Option<Value>) {
    let mut labels = Map::new();
    for label in &wanted.labels {
        if found.labels.get(label).is_none_or(|value| value != LABEL_VALUE) {
            labels.insert(label.clone(), LABEL_VALUE.into());
        }
    }
    for label in found.labels.keys().filter(|label| !wanted.labels.contains(*label)) {
        labels.insert(label.clone(), Value::Null);
    }
    let mut resources = Map::new();
    for resource in &wanted.resources {
        if matches!(found.resources.get(resource), None | Some(Offer::Nobody)) {
            resources.insert(resource.clone(), RESOURCE_COUNT.into());
        }
    }
    for (resource, offer) in &found.resources {
        if *offer == Offer::Ours && !wanted.resources.contains(resource) {
            resources.insert(resource.clone(), Value::Null);
        }
    }
    // With the uid in it, a patch never touches another node of the same name.
    let labels = (!labels.is_empty()).then(|| json!({ "metadata": { "uid": found.uid, "labels": labels } }));
    let status = (!resources.is_empty()).then(|| {
        // The kubelet works `allocatable` out from `capacity` at its next report; the scheduler need not wait for that.
        json!({ "metadata": { "uid": found.uid }, "status": { "capacity": resources, "allocatable": resources } })
    });
    (labels, status)
}

/// What the task that marks nodes is told.
#[derive(Debug)]
pub enum Word {
    /// A node was seen.
    Seen(Name, Arc<Found>),
    /// A node is gone.
    Gone(Name),
    /// This is to be on the node.
    Wanted(Name, Wanted),
}

#[derive(Debug, Default)]
struct Slot {
    wanted: Option<Wanted>,
    found: Option<Arc<Found>>,
    running: bool,
}

/// Keeps the nodes marked until `stop`, whoever else changes what is there.
pub async fn run(
    client: Client,
    mut words: mpsc::UnboundedReceiver<Word>,
    metrics: Arc<Metrics>,
    stop: CancellationToken,
) {
    let nodes: Api<SlimNode> = Api::all_with(client, &seen::nodes());
    let mut slots: HashMap<Name, Slot> = HashMap::new();
    let mut look: BTreeSet<Name> = BTreeSet::new();
    let mut later: BTreeSet<(Instant, Name)> = BTreeSet::new();
    let mut running: JoinSet<(Name, Written)> = JoinSet::new();
    loop {
        for name in std::mem::take(&mut look) {
            let Some(slot) = slots.get_mut(&name).filter(|slot| !slot.running) else { continue };
            // Until something is said of a node, what it was marked with before stays.
            let (Some(wanted), Some(found)) = (&slot.wanted, &slot.found) else { continue };
            let (labels, status) = patches(wanted, found);
            if labels.is_some() || status.is_some() {
                slot.running = true;
                let nodes = nodes.clone();
                running.spawn(async move {
                    let result = write(&nodes, &name, labels, status).await;
                    (name, result)
                });
            }
        }
        let wake = later.first().map(|(at, _)| *at);
        tokio::select! {
            () = stop.cancelled() => return,
            word = words.recv() => match word {
                None => return,
                Some(Word::Gone(name)) => _ = slots.remove(&name),
                Some(Word::Seen(name, found)) => {
                    slots.entry(name.clone()).or_default().found = Some(found);
                    look.insert(name);
                }
                Some(Word::Wanted(name, wanted)) => {
                    slots.entry(name.clone()).or_default().wanted = Some(wanted);
                    look.insert(name);
                }
            },
            Some(done) = running.join_next() => {
                let Ok((name, result)) = done else { continue };
                let Some(slot) = slots.get_mut(&name) else { continue };
                match result {
                    Ok(found) => {
                        metrics.write("node", "done");
                        slot.running = false;
                        // A node that is gone is looked at again when one of its name is seen.
                        slot.found = found;
                        look.insert(name);
                    }
                    Err(error) => {
                        metrics.write("node", "retry");
                        warn!(node = &*name, %error, "the Node was not marked, trying again");
                        // It counts as running until then.
                        later.insert((Instant::now() + PAUSE, name));
                    }
                }
            }
            () = async { sleep_until(wake.unwrap_or_else(Instant::now)).await }, if wake.is_some() => {
                let now = Instant::now();
                while let Some((_, name)) = later.first().filter(|(at, _)| *at <= now).cloned() {
                    later.pop_first();
                    if let Some(slot) = slots.get_mut(&name) {
                        slot.running = false;
                    }
                    look.insert(name);
                }
            }
        }
    }
}

/// What is there after a write; `None`: the node is gone.
type Written = Result<Option<Arc<Found>>, kube::Error>;

/// Writes the patches.
async fn write(nodes: &Api<SlimNode>, name: &str, labels: Option<Value>, status: Option<Value>) -> Written {
    let params = PatchParams { field_manager: Some(MANAGER.into()), ..PatchParams::default() };
    let mut found = None;
    let mut result = Ok(());
    if let Some(labels) = labels {
        result = nodes
            .patch(name, &params, &Patch::Merge(labels))
            .await
            .map(|node| found = Some(seen::found(&node)));
    }
    if let (Ok(()), Some(status)) = (&result, status) {
        let patch = Patch::Merge(status);
        result = nodes.patch_status(name, &params, &patch).await.map(|node| found = Some(seen::found(&node)));
    }
    match result {
        Ok(()) => Ok(found),
        Err(kube::Error::Api(status)) if status.code == 404 || crate::api::of_another(&status) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(points: &[&str], bridges: &[&str]) -> Wanted {
        let names = |all: &[&str]| all.iter().map(|one| Name::from(*one)).collect();
        Wanted::new(&names(points), &names(bridges))
    }

    fn found(change: &Value) -> Found {
        let mut node =
            json!({ "metadata": { "name": "n", "uid": "u", "labels": {} }, "spec": {}, "status": {} });
        for (pointer, value) in change.as_object().unwrap() {
            let (outer, inner) = pointer.split_once('.').unwrap();
            node[outer][inner] = value.clone();
        }
        let node: SlimNode = serde_json::from_value(node).unwrap();
        (*seen::found(&node)).clone()
    }

    fn managed(by: &str) -> Value {
        json!([{ "manager": by, "operation": "Update", "subresource": "status",
            "fieldsV1": { "f:status": { "f:capacity": { "f:ovs-cni.network.kubevirt.io/br-data": {} } } } }])
    }

    #[test]
    fn labels_of_connection_points() {
        assert_eq!(label("cp1"), "cp.eno.k8s.io/cp1");
        let long = "a".repeat(64);
        let (one, other) = (label(&long), label(&(long.clone() + "b")));
        assert!(one != other && one.len() == LABEL_PREFIX.len() + LABEL_LENGTH && one == label(&long));
    }

    #[test]
    fn a_node_without_marks_gets_them() {
        let (labels, status) = patches(&wanted(&["cp1"], &["br-data"]), &found(&json!({})));
        assert_eq!(
            labels.unwrap(),
            json!({ "metadata": { "uid": "u", "labels": { "cp.eno.k8s.io/cp1": "ready" } } })
        );
        let resource = json!({ "ovs-cni.network.kubevirt.io/br-data": "1k" });
        assert_eq!(status.unwrap()["status"], json!({ "capacity": resource, "allocatable": resource }));
    }

    #[test]
    fn nothing_is_written_when_nothing_differs() {
        let marked = found(&json!({
            "metadata.labels": { "cp.eno.k8s.io/cp1": "ready", "other": "x" },
            "metadata.managedFields": managed(MANAGER),
            "status.capacity": { "cpu": "2", "ovs-cni.network.kubevirt.io/br-data": "1k" } }));
        assert_eq!(patches(&wanted(&["cp1"], &["br-data"]), &marked), (None, None));
        let (labels, status) = patches(&wanted(&[], &[]), &marked);
        assert_eq!(labels.unwrap()["metadata"]["labels"], json!({ "cp.eno.k8s.io/cp1": null }));
        assert_eq!(
            status.unwrap()["status"]["capacity"],
            json!({ "ovs-cni.network.kubevirt.io/br-data": null })
        );
    }

    #[test]
    fn what_another_marker_offers_is_left_to_it() {
        let capacity = |quantity: &str| json!({ "ovs-cni.network.kubevirt.io/br-data": quantity });
        let theirs =
            found(&json!({ "metadata.managedFields": managed("marker"), "status.capacity": capacity("1k") }));
        assert_eq!(patches(&wanted(&[], &["br-data"]), &theirs), (None, None));
        assert_eq!(patches(&wanted(&[], &[]), &theirs), (None, None));
        // The kubelet takes back all extended resources when the node began anew.
        let reset =
            found(&json!({ "metadata.managedFields": managed("kubelet"), "status.capacity": capacity("0") }));
        assert!(patches(&wanted(&[], &["br-data"]), &reset).1.is_some());
        assert_eq!(patches(&wanted(&[], &[]), &reset), (None, None));
    }

    #[test]
    fn a_label_of_another_value_is_put_right() {
        let wrong = found(&json!({ "metadata.labels": { "cp.eno.k8s.io/cp1": "no" } }));
        assert!(patches(&wanted(&["cp1"], &[]), &wrong).0.is_some());
    }
}
