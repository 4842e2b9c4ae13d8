//! The interfaces of running pods: the objects that give them, their addresses, and their state.

pub mod bridges;
mod changes;
mod claims;
mod grant;
pub mod hot_plug;
pub mod ipam;
mod leases;
pub(crate) mod ranges;
mod sample;
pub mod state;
mod sub_interfaces;
pub mod template;
pub mod usage;

pub mod view;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use eno_schemas::{NodePod, PodLink, PrimaryLink};
use ipnet::IpNet;

use crate::node::Nodes;
use crate::store::Store;
use crate::work::Work;
use crate::{Key, Kind, Name, Pod, PodView};

use claims::{Claim, Claimant};
use ipam::{Ipam, PoolKey};
pub(crate) use ranges::GONE_AFTER;
use ranges::Ranges;
use sample::Sample;
use template::BridgeRequest;

/// Prefix of the label that hot-plugs the attachment whose name follows.
const HOT_PLUG: &str = "attach.eno.k8s.io/";

/// All pods with interfaces of ours, and all objects that give them.
#[derive(Debug, Default)]
pub struct Pods {
    /// Pods by uid.
    states: HashMap<Name, PodState>,
    /// By object: the pods whose labels name it, or that Multus gave an interface by it.
    selected: HashMap<Key, BTreeSet<Name>>,
    /// By object: what it gives to pods.
    providers: HashMap<Key, Provider>,
    /// The leased addresses.
    ipam: Ipam,
    /// Addresses were released since the last [`Pods::take_released`].
    released: bool,
    /// The blocks of nodes.
    ranges: Ranges,
    /// The holders of exclusive names and hardware addresses.
    claims: HashMap<Claim, Claimant>,
    /// By node and pod bridge: the requests of links, each with their number.
    bridges: BTreeMap<(Name, String), BTreeMap<BridgeRequest, u32>>,
    /// Pairs of an object and a pod uid that wait for something that another pod holds.
    blocked: BTreeSet<(Key, Name)>,
    /// By name of a host interface: the objects that name it as a pod bridge or parent.
    bridge_users: HashMap<String, BTreeSet<Key>>,
    /// The inverse of `bridge_users`.
    interfaces: HashMap<Key, BTreeSet<String>>,
    /// By PodConfig: its sample Deployment.
    samples: HashMap<Key, Sample>,
    /// Addresses of deleted objects were restored from agents' reports, once after the start.
    orphans_restored: bool,
    /// Objects whose leases are to be restored from their status.
    restore_queue: BTreeSet<Key>,
    /// As `queue`, for pods that already have something: they are planned before all others.
    queue_first: BTreeSet<(Key, Name)>,
    /// Pairs of an object and a pod uid: what the one gives to the other is to be planned.
    queue: BTreeSet<(Key, Name)>,
    /// Pod uids whose PodNetwork may have changed.
    view_queue: BTreeSet<Name>,
}

/// What pods read and change beside themselves.
pub(crate) struct Context<'a> {
    pub store: &'a Store,
    pub nodes: &'a mut Nodes,
    pub work: &'a mut Work,
    /// The time since the beginning of the leadership.
    pub now: Duration,
}

/// A pod.
#[derive(Debug)]
struct PodState {
    /// The pod as the API server has it.
    pub pod: Pod,
    /// The objects that its labels name, and those by which Multus gave it interfaces.
    pub requested: BTreeSet<Key>,
    /// The objects that have an entry for it.
    pub entries: BTreeSet<Key>,
    /// The grant of each object, in the order in which its interfaces are made.
    pub grants: BTreeMap<Key, Grant>,
    /// Its PodNetwork as last emitted.
    pub view: Option<PodView>,
}

/// The interfaces that one object gives to one pod.
#[derive(Clone, Debug, Default, PartialEq)]
struct Grant {
    /// The name of each link in the spec, and the interface.
    pub links: Vec<(Name, PodLink)>,
    /// A change of the primary interface.
    pub primary: Option<PrimaryLink>,
    /// The requests of its links to pod bridges.
    pub bridges: Vec<(String, BridgeRequest)>,
}

/// An object that gives something to pods.
#[derive(Debug, Default)]
struct Provider {
    /// Its pods by uid.
    pub entries: BTreeMap<Name, Entry>,
    /// The revision of the leases: counts their changes.
    pub lease_revision: u64,
    /// The last revision that is written to the status.
    pub written_revision: u64,
    /// The bytes of all leases in the status at most: gone ones count until all are counted again. `None`: not counted.
    pub lease_bytes: Option<usize>,
    /// By revision: pods whose leases are not written yet.
    pub unwritten: BTreeMap<u64, Name>,
}

/// One pod of a [`Provider`].
#[derive(Debug, Default)]
struct Entry {
    /// The pod's name.
    pub name: Name,
    /// The addresses by name of the link.
    pub leases: BTreeMap<Name, Vec<Lease>>,
    /// The revision of the last change of `leases`.
    pub lease_revision: u64,
    /// Former leases with the link's name. They are released when the node has confirmed.
    pub retiring: Vec<(Name, Lease)>,
    /// The version of the nodes without the retiring ones; `None`: they are still wanted.
    pub retired_at: Option<u64>,
    /// The interface's name, where the label doesn't say one.
    pub ifname: Option<String>,
    /// The status says that the pod has interfaces of the object, so that the next leader lets it keep them.
    pub is_recorded: bool,
    /// Why it is not, or not entirely, given.
    pub problem: Option<String>,
    /// The claims that it holds.
    pub claims: BTreeSet<Claim>,
    /// The pod was given something, by this process or a former leader.
    pub was_granted: bool,
    /// It loses everything, and the node has not confirmed that yet.
    pub withdrawal: Option<Withdrawal>,
}

/// The withdrawal of everything that an object gave to a pod.
#[derive(Clone, Debug)]
struct Withdrawal {
    /// Where it runs.
    pub node: Name,
    /// The version of the nodes since which it is withdrawn.
    pub version: u64,
}

/// A leased address of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lease {
    /// The pool in which it is unique.
    pub pool: PoolKey,
    /// With the prefix length of its network.
    pub address: IpNet,
}

impl Provider {
    /// The entry of a pod, created when there is none.
    pub fn entry(&mut self, uid: &Name, name: &Name) -> &mut Entry {
        let entry = self.entries.entry(uid.clone()).or_default();
        entry.name = name.clone();
        entry
    }
}

impl PodState {
    /// Everything that it is given, for its node's command. `None`: nothing.
    pub fn render(&self) -> Option<Arc<NodePod>> {
        let is_given = |grant: &Grant| !grant.links.is_empty() || grant.primary.is_some();
        let container = self.pod.container.as_ref().filter(|_| self.grants.values().any(is_given))?;
        let links = self.grants.values().flat_map(|grant| grant.links.iter().map(|(_, link)| link.clone()));
        Some(Arc::new(NodePod {
            namespace: self.pod.namespace.to_string(),
            name: self.pod.name.to_string(),
            container: container.to_string(),
            links: links.collect(),
            primary: self.grants.values().find_map(|grant| grant.primary.clone()),
        }))
    }

    /// True when it runs, so that it can be given interfaces.
    pub fn runs(&self) -> bool {
        self.pod.node.is_some() && self.pod.container.is_some()
    }
}

impl Pods {
    /// The leased addresses.
    pub fn ipam(&self) -> &Ipam {
        &self.ipam
    }

    /// The pod that has a lease of a Subnet's address, or got it from its node, as text.
    pub fn lease_holder(&self, nodes: &Nodes, subnet: &Name, address: IpAddr) -> Option<String> {
        let pool = PoolKey::Subnet(subnet.clone());
        if let Some((_, block)) = self.ipam.block_of(&pool, address) {
            let used = &nodes.node(&block.node)?.observed_addresses(subnet)?.used;
            let pod = used.iter().find(|one| one.address == address)?;
            return Some(format!("Pod {}/{}", pod.namespace, pod.pod));
        }
        let (owner, uid, _) = self.ipam.holder(&pool, address)?;
        if owner.kind == Kind::Subnet {
            return Some(format!("Pod {uid}"));
        }
        let pod = self.states.get(uid).map(|state| &state.pod);
        Some(pod.map_or_else(|| owner.to_string(), |pod| format!("Pod {}/{}", pod.namespace, pod.name)))
    }

    /// The revision of the leases that an object's status shows.
    pub fn lease_revision(&self, key: &Key) -> u64 {
        if key.kind == Kind::Subnet {
            return self.ranges.revision(&key.name);
        }
        self.providers.get(key).map_or(0, |provider| provider.lease_revision)
    }

    fn entry(&self, key: &Key, uid: &Name) -> Option<&Entry> {
        self.providers.get(key)?.entries.get(uid)
    }

    fn entry_mut(&mut self, key: &Key, uid: &Name) -> Option<&mut Entry> {
        self.providers.get_mut(key)?.entries.get_mut(uid)
    }
}

/// The attachments whose NetworkAttachmentDefinition a pod uses by name, or that its labels name.
pub fn used_attachments(pod: &Pod, has_agents: bool) -> BTreeSet<Key> {
    let nads = pod.uses.named().iter();
    let nads = nads.map(|(namespace, name)| Key::namespaced(Kind::L2ServiceAttachment, namespace, name));
    let hot = labelled(pod).into_iter().filter(|key| has_agents && key.kind == Kind::L2ServiceAttachment);
    nads.chain(hot).collect()
}

/// The objects that may give something to a pod: those that its labels name, and those by which Multus made interfaces
/// for it.
fn requested(pod: &Pod) -> BTreeSet<Key> {
    let attached = pod.asked_for().map(|own| &own.nad);
    let attached =
        attached.map(|(namespace, name)| Key::namespaced(Kind::L2ServiceAttachment, namespace, name));
    labelled(pod).into_iter().chain(attached).collect()
}

/// The name of a pod in the status of an object: with its namespace, if that is another one.
fn shown_name(key: &Key, pod: &Pod) -> Name {
    if pod.namespace == key.namespace {
        return pod.name.clone();
    }
    format!("{}/{}", pod.namespace, pod.name).into()
}

/// The objects that a pod's labels name.
fn labelled(pod: &Pod) -> BTreeSet<Key> {
    let named = |kind, label: &str| {
        let name = pod.labels.get(label).filter(|name| !name.is_empty());
        name.map(|name| Key::namespaced(kind, &pod.namespace, name))
    };
    let hot = pod.labels.keys().filter_map(|label| label.strip_prefix(HOT_PLUG));
    let hot = hot.map(|name| Key::namespaced(Kind::L2ServiceAttachment, &pod.namespace, &Name::from(name)));
    let configs = [named(Kind::PodNetworkConfig, "podNetworkConfig"), named(Kind::PodConfig, "podconfig")];
    configs.into_iter().flatten().chain(hot).collect()
}

/// The interface name that a pod's label requests for a hot-plugged attachment; empty: any.
fn requested_name<'a>(pod: &'a Pod, attachment: &str) -> &'a str {
    pod.labels.get(format!("{HOT_PLUG}{attachment}").as_str()).map_or("", |name| &**name)
}
