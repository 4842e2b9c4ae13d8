//! The interfaces of running pods: the objects that give them, their addresses, and their state.

pub mod bridges;
pub mod grant;
pub mod hot_plug;
pub mod ipam;
pub mod leases;
pub mod state;
pub mod template;
pub mod view;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use eno_schemas::{HostNetwork, LinkName, NodePod, PodLink, PrimaryLink};
use ipnet::IpNet;

use crate::{Key, Kind, Name, Pod, PodView};

use ipam::{Ipam, PoolKey};
use template::BridgeRequest;

/// Prefix of the label that hot-plugs the attachment whose name follows.
const HOT_PLUG: &str = "attach.eno.k8s.io/";

/// All pods with interfaces of ours, and all objects that give them.
#[derive(Debug, Default)]
pub struct Pods {
    /// Pods by uid.
    pub states: HashMap<Name, PodState>,
    /// By object: the pods whose labels name it.
    pub selected: HashMap<Key, BTreeSet<Name>>,
    /// By object: what it gives to pods.
    pub providers: HashMap<Key, Provider>,
    /// The leased addresses.
    pub ipam: Ipam,
    /// The holders of exclusive names and hardware addresses.
    pub claims: HashMap<Claim, Claimant>,
    /// By node and pod bridge: the requests of links, each with their number.
    pub bridges: BTreeMap<(Name, String), BTreeMap<BridgeRequest, u32>>,
    /// Pairs of an object and a pod uid that wait for something that another pod holds.
    pub blocked: BTreeSet<(Key, Name)>,
    /// By name of a host interface: the objects that name it as a pod bridge or parent.
    pub bridge_users: HashMap<String, BTreeSet<Key>>,
    /// Addresses of deleted objects were restored from agents' reports, once after the start.
    pub orphans_restored: bool,
    /// Objects whose leases are to be restored from their status.
    pub restore_queue: BTreeSet<Key>,
    /// As `queue`, for pods that already have something: they are planned before all others.
    pub queue_first: BTreeSet<(Key, Name)>,
    /// Pairs of an object and a pod uid: what the one gives to the other is to be planned.
    pub queue: BTreeSet<(Key, Name)>,
    /// Pod uids whose PodNetwork may have changed.
    pub view_queue: BTreeSet<Name>,
}

/// A pod.
#[derive(Debug)]
pub struct PodState {
    /// The pod as the API server has it.
    pub pod: Pod,
    /// The objects that its labels name.
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
pub struct Grant {
    /// The name of each link in the spec, and the interface.
    pub links: Vec<(Name, PodLink)>,
    /// A change of the primary interface.
    pub primary: Option<PrimaryLink>,
    /// The requests of its links to pod bridges.
    pub bridges: Vec<(String, BridgeRequest)>,
}

/// An object that gives something to pods.
#[derive(Debug, Default)]
pub struct Provider {
    /// Its pods by uid.
    pub entries: BTreeMap<Name, Entry>,
    /// The revision of the leases: counts their changes.
    pub lease_revision: u64,
    /// The last revision that is written to the status.
    pub written_revision: u64,
    /// By revision: pods whose leases are not written yet.
    pub unwritten: BTreeMap<u64, Name>,
}

/// One pod of a [`Provider`].
#[derive(Debug, Default)]
pub struct Entry {
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
pub struct Withdrawal {
    /// Where it runs.
    pub node: Name,
    /// The version of the nodes since which it is withdrawn.
    pub version: u64,
}

/// A leased address of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The pool in which it is unique.
    pub pool: PoolKey,
    /// With the prefix length of its network.
    pub address: IpNet,
}

/// An exclusive name or hardware address.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Claim {
    /// The name of an interface of a pod: pod uid, name.
    Name(Name, String),
    /// A hardware address on a master that pods of a node share: node, master, address.
    Mac(Name, String, String),
}

/// The holder of a claim: the object, the pod's uid and name.
pub type Claimant = (Key, Name, Name);

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
    /// Drops the pods that request nothing and have nothing.
    pub fn forget_idle(&mut self) {
        self.states.retain(|_, state| !state.requested.is_empty() || !state.entries.is_empty());
        self.states.shrink_to_fit();
    }

    /// The desired state of a pod bridge on a node. `None`: it is not wanted.
    pub fn bridge(&self, node: &Name, bridge: &str) -> Option<HostNetwork> {
        let requests = self.bridges.get(&(node.clone(), bridge.to_owned()))?;
        let addresses: BTreeSet<IpNet> =
            requests.keys().flat_map(|request| request.addresses.iter().copied()).collect();
        let mtu = requests.keys().filter_map(|request| request.mtu).max();
        Some(HostNetwork::PodBridge { addresses: addresses.into_iter().collect(), mtu })
    }

    /// Counts a link's request to its bridge on a node in or out. Returns true on a change.
    pub fn count_bridge_request(
        &mut self,
        node: &Name,
        bridge: &str,
        request: &BridgeRequest,
        more: bool,
    ) -> bool {
        let key = (node.clone(), bridge.to_owned());
        let requests = self.bridges.entry(key.clone()).or_default();
        let count = requests.entry(request.clone()).or_default();
        *count = if more { *count + 1 } else { count.saturating_sub(1) };
        let changed = *count == u32::from(more);
        if *count == 0 {
            requests.remove(request);
        }
        if requests.is_empty() {
            self.bridges.remove(&key);
        }
        changed
    }
}

/// The objects that a pod's labels name.
pub fn requested(pod: &Pod) -> BTreeSet<Key> {
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
pub fn requested_name<'a>(pod: &'a Pod, attachment: &str) -> &'a str {
    pod.labels.get(format!("{HOT_PLUG}{attachment}").as_str()).map_or("", |name| &**name)
}

/// The claim on the name of a link of a pod.
pub fn name_claim(uid: &Name, name: &LinkName) -> Claim {
    match name {
        LinkName::Fixed(name) => Claim::Name(uid.clone(), name.clone()),
        // A PID follows the name, so it can't be equal to a fixed one.
        LinkName::WithPid(name) => Claim::Name(uid.clone(), format!("{name}<PID>")),
    }
}
