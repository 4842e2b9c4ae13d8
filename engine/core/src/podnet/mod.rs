//! What running pods are given: by which objects, with which addresses, and how far that is.

pub mod ipam;
pub mod template;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use eno_schemas::{HostNetwork, LinkName, NodePod, PodLink, PrimaryLink};
use ipnet::IpNet;

use crate::{Key, Kind, Name, Pod, PodView};

use ipam::{Ipam, PoolKey};
use template::BridgeRequest;

/// Before the name of the attachment in the label that hot-plugs it.
const HOT_PLUG: &str = "attach.eno.k8s.io/";

/// All pods that are, or were, given something, and all objects that give.
#[derive(Debug, Default)]
pub struct PodNet {
    /// By uid.
    pub pods: HashMap<Name, PodState>,
    /// By object: the pods whose labels name it.
    pub selected: HashMap<Key, BTreeSet<Name>>,
    /// What objects give.
    pub providers: HashMap<Key, Provider>,
    /// Addresses.
    pub ipam: Ipam,
    /// What only one can have.
    pub claims: HashMap<Claim, Claimant>,
    /// By node and bridge of pods: what is asked of it, and by how many links.
    pub bridges: BTreeMap<(Name, String), BTreeMap<BridgeRequest, u32>>,
    /// Who can't be given something that another has.
    pub blocked: BTreeSet<(Key, Name)>,
}

/// A pod.
#[derive(Debug)]
pub struct PodState {
    /// As last heard of.
    pub pod: Pod,
    /// The objects that its labels name.
    pub requested: BTreeSet<Key>,
    /// The objects that have an entry for it.
    pub entries: BTreeSet<Key>,
    /// What it is given, in the order in which its interfaces are made.
    pub grants: BTreeMap<Key, Grant>,
    /// As last told.
    pub view: Option<PodView>,
}

/// What one object gives to one pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Grant {
    /// Its name in the spec, and the interface.
    pub links: Vec<(Name, PodLink)>,
    /// A change of the primary interface.
    pub primary: Option<PrimaryLink>,
    /// What is asked of bridges of pods.
    pub bridges: Vec<(String, BridgeRequest)>,
}

/// An object that gives something to pods.
#[derive(Debug, Default)]
pub struct Provider {
    /// By the pod's uid.
    pub entries: BTreeMap<Name, Entry>,
    /// Counts the changes of leases.
    pub lease_revision: u64,
    /// Up to which count they are written down.
    pub written_revision: u64,
    /// Pods whose leases are not, by the count.
    pub unwritten: BTreeMap<u64, Name>,
}

/// One pod of a [`Provider`].
#[derive(Debug, Default)]
pub struct Entry {
    /// The pod's name.
    pub name: Name,
    /// By the name of the link.
    pub leases: BTreeMap<Name, Vec<Lease>>,
    /// The count of the last change of these.
    pub lease_revision: u64,
    /// What it had, with the link's name, until the node says that it has not any more.
    pub retiring: Vec<(Name, Lease)>,
    /// The version of the nodes without those; `None`: they are still wanted.
    pub retired_at: Option<u64>,
    /// The interface's name, where the label leaves that to us.
    pub ifname: Option<String>,
    /// It is not, or not entirely, given, and why.
    pub problem: Option<String>,
    /// What it has of what only one can have.
    pub claims: BTreeSet<Claim>,
    /// The pod was given something, in this process or before it.
    pub was_granted: bool,
    /// It is to lose everything, which the node has to confirm.
    pub withdrawal: Option<Withdrawal>,
}

/// A pod that loses what it was given.
#[derive(Clone, Debug)]
pub struct Withdrawal {
    /// Where it runs.
    pub node: Name,
    /// Since which version of the nodes.
    pub version: u64,
}

/// An address of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Where it is unique.
    pub pool: PoolKey,
    /// With the prefix length of its network.
    pub address: IpNet,
}

/// Something that only one can have.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Claim {
    /// The name of an interface of a pod.
    Name(Name, String),
    /// A hardware address on something that several pods share on a node.
    Mac(Name, String, String),
}

/// Who has it: the object, the pod's uid and name.
pub type Claimant = (Key, Name, Name);

impl Provider {
    /// The entry of a pod, made when it is not there yet.
    pub fn entry(&mut self, uid: &Name, name: &Name) -> &mut Entry {
        let entry = self.entries.entry(uid.clone()).or_default();
        entry.name = name.clone();
        entry
    }
}

impl PodState {
    /// All that it is given, for its node's command; `None`: nothing.
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

    /// It can be given something now.
    pub fn runs(&self) -> bool {
        self.pod.node.is_some() && self.pod.container.is_some()
    }
}

impl PodNet {
    /// Forgets the pods that ask for nothing and have nothing.
    pub fn forget_idle(&mut self) {
        self.pods.retain(|_, state| !state.requested.is_empty() || !state.entries.is_empty());
        self.pods.shrink_to_fit();
    }

    /// What a bridge of pods is to be on a node; `None`: not there.
    pub fn bridge(&self, node: &Name, bridge: &str) -> Option<HostNetwork> {
        let requests = self.bridges.get(&(node.clone(), bridge.to_owned()))?;
        let addresses: BTreeSet<IpNet> =
            requests.keys().flat_map(|request| request.addresses.iter().copied()).collect();
        let mtu = requests.keys().filter_map(|request| request.mtu).max();
        Some(HostNetwork::PodBridge { addresses: addresses.into_iter().collect(), mtu })
    }

    /// Counts what a link asks of its bridge on a node; true when that is a change.
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

/// What a pod's label wants the interface of a hot-plugged attachment to be called; empty: anything.
pub fn requested_name<'a>(pod: &'a Pod, attachment: &str) -> &'a str {
    pod.labels.get(format!("{HOT_PLUG}{attachment}").as_str()).map_or("", |name| &**name)
}

/// What claims the name of a link of a pod.
pub fn name_claim(uid: &Name, name: &LinkName) -> Claim {
    match name {
        LinkName::Fixed(name) => Claim::Name(uid.clone(), name.clone()),
        // A PID follows, so that no fixed name is meant.
        LinkName::WithPid(name) => Claim::Name(uid.clone(), format!("{name}<PID>")),
    }
}
