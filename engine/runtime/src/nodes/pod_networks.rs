//! Maintains PodNetworks: one object per pod with its interfaces. It has the name of the pod and is owned by it, so it
//! is garbage-collected with the pod. No other client writes them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use eno_core::{Key, LinkEntry, Name, PodInterface, PodView};
use eno_nbi_crds::{self as crds, PodNetwork, PodNetworkStatus};
use eno_schemas::Text;
use futures::TryStreamExt as _;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use kube::runtime::events::EventType;
use kube::{Client, Resource as _, ResourceExt as _};
use serde::Deserialize as _;
use serde_json::json;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::api::MANAGER;
use crate::metrics::Metrics;
use crate::nodes::reconcile_queue::{self, QueueOptions};
use crate::status::bounds::first_entries;
use crate::status::convert::joined;
use crate::status::events::{Events, pod_ref};

/// Objects per page of a list.
const PAGE_SIZE: u32 = 500;
/// Delay after a failure.
const RETRY_DELAY: Duration = Duration::from_secs(2);
/// Delay that combines the steps in which a pod gets its interfaces.
const BATCH_DELAY: Duration = Duration::from_millis(250);
/// Maximum concurrent writes.
const MAX_CONCURRENT_WRITES: usize = 8;
/// Maximum interfaces of a pod in its status.
const MAX_INTERFACES: usize = 256;
/// Maximum addresses of an interface.
const MAX_ADDRESSES: usize = 64;
/// Maximum routes of an interface.
const MAX_ROUTES: usize = 256;
/// Maximum bytes of each list.
const MAX_BYTES: usize = 512 * 1024;

/// Messages to the task that writes PodNetworks.
#[derive(Debug)]
pub enum Update {
    /// Namespace, name, uid and interfaces of a pod; `None`: it has none any more.
    Desired(Name, Name, Name, Option<Box<PodView>>),
    /// All pods of the initial state were sent; other PodNetworks are leftovers.
    InitialSyncDone,
}

/// The namespace and the name of a pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct PodName(Name, Name);

impl std::fmt::Display for PodName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.0, self.1)
    }
}

/// A PodNetwork on the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
struct StoredPodNetwork {
    /// Uid of the pod that owns it.
    uid: Name,
    /// Hash of its status.
    content: u64,
}

/// All PodNetworks on the API server. Only this task creates or changes them. One that is garbage-collected with its
/// pod is not desired any more.
type StoredPodNetworks = Arc<Mutex<HashMap<PodName, StoredPodNetwork>>>;

/// Keeps PodNetworks in their desired state until `stop`.
pub async fn run(
    client: Client,
    mut updates: mpsc::UnboundedReceiver<Update>,
    events: Events,
    metrics: Arc<Metrics>,
    stop: CancellationToken,
) {
    let Some(existing) = stop.run_until_cancelled(list(&client)).await else { return };
    let mut leftover: BTreeSet<PodName> = existing.keys().cloned().collect();
    let all = StoredPodNetworks::new(Mutex::new(existing));
    let (queue, desired) = mpsc::unbounded_channel();
    let sort = async {
        while let Some(update) = updates.recv().await {
            match update {
                Update::Desired(namespace, name, uid, view) => {
                    let id = PodName(namespace, name);
                    leftover.remove(&id);
                    // The receiver ends together with this task.
                    let _ = queue.send((id, (Some(uid), view)));
                }
                Update::InitialSyncDone => {
                    for id in std::mem::take(&mut leftover) {
                        let _ = queue.send((id, (None, None)));
                    }
                }
            }
        }
    };
    let options =
        QueueOptions { what: "pod-network", concurrency: MAX_CONCURRENT_WRITES, delay: BATCH_DELAY };
    let write = reconcile_queue::run(
        options,
        desired,
        &metrics,
        stop.clone(),
        |id| &id.0,
        |id, (uid, view)| reconcile(client.clone(), all.clone(), events.clone(), id, uid, view),
    );
    tokio::select! {
        () = sort => {}
        () = write => {}
    }
}

/// Lists the PodNetworks, with retries until it succeeds.
async fn list(client: &Client) -> HashMap<PodName, StoredPodNetwork> {
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource());
    loop {
        match pages(&api).await {
            Ok(existing) => return existing,
            Err(error) => warn!(%error, "the PodNetworks can't be listed, trying again"),
        }
        tokio::time::sleep(RETRY_DELAY).await;
    }
}

async fn pages(api: &Api<DynamicObject>) -> Result<HashMap<PodName, StoredPodNetwork>, kube::Error> {
    let first = (Some(ListParams::default().limit(PAGE_SIZE)), HashMap::new());
    let pages = futures::stream::try_unfold(first.0, |params| async move {
        let Some(params) = params else { return Ok(None) };
        let page = api.list(&params).await?;
        let next = page.metadata.continue_.clone().filter(|token| !token.is_empty());
        Ok(Some((
            page.items,
            next.map(|token| ListParams::default().limit(PAGE_SIZE).continue_token(&token)),
        )))
    });
    pages
        .try_fold(first.1, |mut all, items| async move {
            for object in items {
                let id = PodName(object.namespace().unwrap_or_default().into(), object.name_any().into());
                let owner = object.owner_references().iter().find(|owner| owner.kind == "Pod");
                let uid = owner.map_or_else(|| Name::from(""), |owner| owner.uid.as_str().into());
                all.insert(id, StoredPodNetwork { uid, content: content(&read_status(&object)) });
            }
            Ok(all)
        })
        .await
}

/// The resource of PodNetworks. They have no spec.
pub fn resource() -> ApiResource {
    ApiResource::erase::<PodNetwork>(&())
}

/// The status of a PodNetwork; an unreadable one counts as empty and is rewritten.
pub fn read_status(object: &DynamicObject) -> PodNetworkStatus {
    object
        .data
        .get("status")
        .and_then(|status| PodNetworkStatus::deserialize(status).ok())
        .unwrap_or_default()
}

fn content(status: &PodNetworkStatus) -> u64 {
    let mut hasher = DefaultHasher::new();
    serde_json::to_vec(status).unwrap_or_default().hash(&mut hasher);
    hasher.finish()
}

/// Reconciles the PodNetwork of a pod. Without a uid, it is deleted whatever pod owns it.
async fn reconcile(
    client: Client,
    all: StoredPodNetworks,
    events: Events,
    id: PodName,
    uid: Option<Name>,
    view: Option<Box<PodView>>,
) -> Result<(), kube::Error> {
    let api: Api<DynamicObject> = Api::namespaced_with(client, &id.0, &resource());
    let remember = |existing: Option<StoredPodNetwork>| {
        let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
        match existing {
            Some(existing) => _ = all.insert(id.clone(), existing),
            None => _ = all.remove(&id),
        }
    };
    let existing = all.lock().unwrap_or_else(PoisonError::into_inner).get(&id).cloned();
    let is_other_pods =
        existing.as_ref().is_some_and(|existing| uid.as_ref().is_some_and(|uid| *uid != existing.uid));
    let (Some(uid), Some(view)) = (uid, view) else {
        if existing.is_some() && !is_other_pods {
            delete(&api, &id.1).await?;
            remember(None);
        }
        return Ok(());
    };
    let status = status(&id.0, &view);
    let content = content(&status);
    if is_other_pods {
        // The object of a former pod of this name, which is about to be garbage-collected.
        delete(&api, &id.1).await?;
        remember(None);
    } else if existing.as_ref().is_some_and(|existing| existing.content == content) {
        return Ok(());
    }
    if existing.is_none() || is_other_pods {
        create(&api, &id, &uid).await?;
    }
    match write_status(&api, &id.1, &status).await {
        Err(kube::Error::Api(answer)) if answer.code == 404 => {
            create(&api, &id, &uid).await?;
            write_status(&api, &id.1, &status).await?;
        }
        result => result?,
    }
    for interface in &view.interfaces {
        let reason = match interface.kind {
            "none" => "ReferenceNotFound",
            "refused" => "NotAttached",
            _ => continue,
        };
        let problem = interface.problem.as_deref().unwrap_or_default();
        events.publish(pod_ref(&id.0, &id.1, &uid), EventType::Warning, reason, "Attach", problem);
    }
    remember(Some(StoredPodNetwork { uid, content }));
    Ok(())
}

async fn delete(api: &Api<DynamicObject>, name: &str) -> Result<(), kube::Error> {
    match api.delete(name, &DeleteParams::background()).await {
        Err(kube::Error::Api(answer)) if answer.code == 404 => Ok(()),
        result => result.map(|_| ()),
    }
}

async fn create(api: &Api<DynamicObject>, id: &PodName, uid: &str) -> Result<(), kube::Error> {
    let body = json!({
        "apiVersion": PodNetwork::api_version(&()),
        "kind": PodNetwork::kind(&()),
        "metadata": {
            "name": &*id.1,
            "ownerReferences": [{ "apiVersion": "v1", "kind": "Pod", "name": &*id.1, "uid": uid }],
        },
    });
    api.patch(&id.1, &PatchParams::apply(MANAGER).force(), &Patch::Apply(body)).await.map(|_| ())
}

async fn write_status(
    api: &Api<DynamicObject>,
    name: &str,
    status: &PodNetworkStatus,
) -> Result<(), kube::Error> {
    let body = json!({
        "apiVersion": PodNetwork::api_version(&()),
        "kind": PodNetwork::kind(&()),
        "metadata": { "name": name },
        "status": status,
    });
    api.patch_status(name, &PatchParams::apply(MANAGER).force(), &Patch::Apply(body)).await.map(|_| ())
}

/// The status for a pod, within the bounds of its fields.
fn status(namespace: &str, view: &PodView) -> PodNetworkStatus {
    let mut left_out = BTreeMap::new();
    let bounded = |one| interface(namespace, one, &mut left_out);
    let interfaces: Vec<_> = view.interfaces.iter().map(bounded).collect();
    let names = joined(interfaces.iter().filter_map(|interface| interface.name.as_deref()));
    let addresses = joined(interfaces.iter().flat_map(|interface| &interface.addresses));
    let (interfaces, more) = first_entries(interfaces.into_iter(), MAX_INTERFACES, MAX_BYTES);
    note_left_out(&mut left_out, "interfaces", more);
    PodNetworkStatus { node: view.node.to_string(), interface_names: names, addresses, interfaces, left_out }
}

fn note_left_out(left_out: &mut BTreeMap<String, i64>, list: &str, count: usize) {
    if let Ok(count) = i64::try_from(count)
        && count > 0
    {
        *left_out.entry(list.to_owned()).or_default() += count;
    }
}

/// An interface in its bounds. Adds to `left_out` what its lists leave out.
fn interface(
    pods_own: &str,
    source: &PodInterface,
    left_out: &mut BTreeMap<String, i64>,
) -> crds::PodInterface {
    let Key { kind, namespace, name } = &source.owner;
    let name = if **namespace == *pods_own { name.to_string() } else { format!("{namespace}/{name}") };
    let LinkEntry { link, name: called, host_name, bridge, mac, mtu, addresses } = &source.entry;
    let is_there = !called.is_empty();
    let (shown, more) = first_entries(addresses.iter().map(ToString::to_string), MAX_ADDRESSES, MAX_BYTES);
    note_left_out(left_out, "addresses", more);
    let (routes, more) = first_entries(source.routes.iter().cloned(), MAX_ROUTES, MAX_BYTES);
    note_left_out(left_out, "routes", more);
    crds::PodInterface {
        owner: crds::PodNetworkOwner { kind: kind.to_string(), name },
        link: link.to_string(),
        kind: source.kind.into(),
        name: is_there.then(|| called.clone()),
        host_name: host_name.clone(),
        bridge: bridge.clone(),
        hardware_addr: mac.clone(),
        mtu: is_there.then_some(*mtu),
        addresses: shown,
        routes,
        message: source.problem.as_ref().map(|problem| Text::new(problem).into()),
    }
}

#[cfg(test)]
mod tests {
    use eno_core::Kind;

    use super::*;
    use crate::status::crd_bounds::excess;

    #[test]
    fn pod_network_status_of_any_size_is_within_the_bounds_of_the_crd() {
        let entry = LinkEntry {
            link: "l".into(),
            name: "eth0".into(),
            host_name: None,
            bridge: None,
            mac: None,
            mtu: 1500,
            addresses: (0..100).map(|n| format!("10.0.0.{n}/24").parse().unwrap()).collect(),
        };
        let interface = |n: usize| PodInterface {
            owner: Key::namespaced(Kind::PodConfig, &"ns".into(), &"pc".into()),
            kind: "veth",
            entry: entry.clone(),
            routes: vec!["default".into(); if n == 0 { 300 } else { 0 }],
            problem: Some("x".repeat(5000)),
        };
        let json = |count: usize| {
            let view = PodView { node: "worker1".into(), interfaces: (0..count).map(interface).collect() };
            serde_json::to_value(status("ns", &view)).unwrap()
        };
        let small = json(2);
        assert_eq!(excess("PodNetwork", &small), Vec::<String>::new());
        assert_eq!(small["leftOut"], json!({ "addresses": 72, "routes": 44 }));
        let large = json(1000);
        assert_eq!(excess("PodNetwork", &large), Vec::<String>::new());
        assert!(large.to_string().len() < 600 * 1024, "{}", large.to_string().len());
        let shown = large["interfaces"].as_array().unwrap().len();
        assert_eq!(large["leftOut"]["interfaces"], 1000 - shown);
    }

    #[test]
    fn pod_network_status_lists_interfaces_of_pod() {
        let owner = Key::namespaced(Kind::PodConfig, &"ns".into(), &"pc".into());
        let there = LinkEntry {
            link: "pc0".into(),
            name: "pc0123".into(),
            host_name: Some("hpc0123".into()),
            bridge: Some("pcbr0".into()),
            mac: Some("02:00:00:00:00:01".into()),
            mtu: 1500,
            addresses: vec!["192.168.100.2/24".parse().unwrap()],
        };
        let not = LinkEntry { name: String::new(), mtu: 0, addresses: vec![], ..there.clone() };
        let second = LinkEntry {
            link: "pc1".into(),
            name: "pc1123".into(),
            addresses: vec!["192.168.101.2/24".parse().unwrap(), "fd00::2/64".parse().unwrap()],
            ..there.clone()
        };
        let of = |entry, problem| PodInterface {
            owner: owner.clone(),
            kind: "veth",
            entry,
            routes: vec!["default via 192.168.100.1".into()],
            problem,
        };
        let view = PodView {
            node: "worker1".into(),
            interfaces: vec![of(there, None), of(second, None), of(not, Some("the name is too long".into()))],
        };
        let json = serde_json::to_value(status("ns", &view)).unwrap();
        assert_eq!(json["interfaces"][0]["owner"], json!({ "kind": "PodConfig", "name": "pc" }));
        assert_eq!(json["interfaces"][0]["addresses"], json!(["192.168.100.2/24"]));
        assert_eq!(json["interfaces"][0]["mtu"], 1500);
        assert_eq!(json["interfaces"][2]["message"], "the name is too long");
        assert!(json["interfaces"][2].get("name").is_none() && json["interfaces"][2].get("mtu").is_none());
        assert_eq!(json["interfaceNames"], "pc0123, pc1123");
        assert_eq!(json["addresses"], "192.168.100.2/24, 192.168.101.2/24, fd00::2/64");
    }
}
