//! What running pods are given: by which objects, with which addresses, and how far that is.

pub mod ipam;
pub mod template;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use eno_schemas::{HostNetwork, LinkName, NodePod, PodLink, PrimaryLink};
use ipnet::IpNet;

use crate::{Key, Kind, Name, Pod, PodView};

use ipam::{Ipam, PoolKey};
use template::BridgeAsk;

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
    pub givers: HashMap<Key, Giver>,
    /// Addresses.
    pub ipam: Ipam,
    /// What only one can have.
    pub claims: HashMap<Claim, Claimant>,
    /// By node and bridge of pods: what is asked of it, and by how many links.
    pub bridges: BTreeMap<(Name, String), BTreeMap<BridgeAsk, u32>>,
    /// Who can't be given something that another has.
    pub blocked: BTreeSet<(Key, Name)>,
}

/// A pod.
#[derive(Debug)]
pub struct PodState {
    /// As last heard of.
    pub pod: Pod,
    /// The objects that its labels name.
    pub asked: BTreeSet<Key>,
    /// The objects that have an entry for it.
    pub entries: BTreeSet<Key>,
    /// What it is given, in the order in which its interfaces are made.
    pub given: BTreeMap<Key, Given>,
    /// As last told.
    pub view: Option<PodView>,
}

/// What one object gives to one pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Given {
    /// Its name in the spec, and the interface.
    pub links: Vec<(Name, PodLink)>,
    /// A change of the primary interface.
    pub primary: Option<PrimaryLink>,
    /// What is asked of bridges of pods.
    pub bridges: Vec<(String, BridgeAsk)>,
}

/// An object that gives something to pods.
#[derive(Debug, Default)]
pub struct Giver {
    /// By the pod's uid.
    pub entries: BTreeMap<Name, Entry>,
    /// Counts the changes of leases.
    pub leased: u64,
    /// Up to which count they are written down.
    pub recorded: u64,
    /// Pods whose leases are not, by the count.
    pub awaiting: BTreeMap<u64, Name>,
}

/// One pod of a [`Giver`].
#[derive(Debug, Default)]
pub struct Entry {
    /// The pod's name.
    pub name: Name,
    /// By the name of the link.
    pub leases: BTreeMap<Name, Vec<Lease>>,
    /// The count of the last change of these.
    pub leased_at: u64,
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
    pub was_given: bool,
    /// It is to lose everything, which the node has to confirm.
    pub leaving: Option<Leaving>,
}

/// A pod that loses what it was given.
#[derive(Clone, Debug)]
pub struct Leaving {
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

impl Giver {
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
        let is_given = |given: &Given| !given.links.is_empty() || given.primary.is_some();
        let container = self.pod.container.as_ref().filter(|_| self.given.values().any(is_given))?;
        let links = self.given.values().flat_map(|given| given.links.iter().map(|(_, link)| link.clone()));
        Some(Arc::new(NodePod {
            namespace: self.pod.namespace.to_string(),
            name: self.pod.name.to_string(),
            container: container.to_string(),
            links: links.collect(),
            primary: self.given.values().find_map(|given| given.primary.clone()),
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
        self.pods.retain(|_, state| !state.asked.is_empty() || !state.entries.is_empty());
        self.pods.shrink_to_fit();
    }

    /// What a bridge of pods is to be on a node; `None`: not there.
    pub fn bridge(&self, node: &Name, bridge: &str) -> Option<HostNetwork> {
        let asks = self.bridges.get(&(node.clone(), bridge.to_owned()))?;
        let addresses: BTreeSet<IpNet> = asks.keys().flat_map(|ask| ask.addresses.iter().copied()).collect();
        let mtu = asks.keys().filter_map(|ask| ask.mtu).max();
        Some(HostNetwork::PodBridge { addresses: addresses.into_iter().collect(), mtu })
    }

    /// Counts what a link asks of its bridge on a node; true when that is a change.
    pub fn ask_bridge(&mut self, node: &Name, bridge: &str, ask: &BridgeAsk, more: bool) -> bool {
        let key = (node.clone(), bridge.to_owned());
        let asks = self.bridges.entry(key.clone()).or_default();
        let count = asks.entry(ask.clone()).or_default();
        *count = if more { *count + 1 } else { count.saturating_sub(1) };
        let changed = *count == u32::from(more);
        if *count == 0 {
            asks.remove(ask);
        }
        if asks.is_empty() {
            self.bridges.remove(&key);
        }
        changed
    }
}

/// The objects that a pod's labels name.
pub fn asked(pod: &Pod) -> BTreeSet<Key> {
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
pub fn asked_name<'a>(pod: &'a Pod, attachment: &str) -> &'a str {
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
