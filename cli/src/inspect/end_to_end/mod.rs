//! The path of an object from pods to the gateway, hop by hop. Pure.

mod hosts;
mod pods;
mod progress;
mod switches;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use eno_engine::follow::ListScope;
use eno_engine::forecast::{ClusterState, DesiredState, Key, Kind, Name, PodInfo};
use eno_schemas::VlanSet;
use serde::Serialize;

use crate::inspect::cabling::{Cabling, PortId};
use crate::inspect::path::{Fabric, Reports, State, networks, vlans_and_ports};

/// A tier of a path, from the pod to the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Tier {
    /// Pods.
    Pods,
    /// Interfaces in pods, and NetworkAttachmentDefinitions.
    Interfaces,
    /// Bridges, or what takes their place, on nodes.
    Bridges,
    /// NICs of nodes.
    Nics,
    /// Ports of switches to nodes.
    Leaves,
    /// Switches between them.
    Spines,
    /// Ports of switches to PhysicalNetworks.
    Gateways,
}

/// A hop of a path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Hop {
    /// Unique in the path, and the same after each change.
    pub id: String,
    /// Its tier.
    pub tier: Tier,
    /// Its name.
    pub label: String,
    /// What it belongs to, such as the node of a bridge.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub detail: String,
    /// Hops of one group may be drawn as one: a workload, a node, a switch.
    pub group: String,
    /// Its progress.
    pub state: State,
    /// An explanation of the state.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The VLANs of the path there.
    #[serde(skip_serializing_if = "VlanSet::is_empty")]
    pub vlans: VlanSet,
    /// The MTU in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// The addresses.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<String>,
    /// The thing itself.
    #[serde(skip)]
    pub part: Part,
}

/// The thing that a hop is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// A pod, by its uid.
    Pod(String),
    /// An interface of a pod that an agent makes: the node, the uid of the pod, and the id of the link.
    Link(String, String, String),
    /// An interface of a pod that Multus has made: the uid of the pod, and the name.
    Attached(String, String),
    /// A NetworkAttachmentDefinition, as `<namespace>/<name>`.
    Nad(String),
    /// A network of a host: the node and the name.
    Network(String, String),
    /// A port of a switch.
    Port(PortId),
    /// A switch.
    Switch(String),
}

/// A connection of two hops.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) struct Link {
    /// A hop, by its id.
    pub from: String,
    /// The next one towards the gateway.
    pub to: String,
    /// The worse one of both.
    pub state: State,
}

/// A path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Path {
    /// By tier, then by name.
    pub hops: Vec<Hop>,
    /// The connections.
    pub links: Vec<Link>,
}

/// What a path is computed of.
#[derive(Clone, Copy)]
pub(crate) struct Inputs<'a> {
    /// The objects.
    pub world: &'a ClusterState,
    /// The desired state of nodes and NetworkAttachmentDefinitions.
    pub desired: &'a DesiredState,
    /// The desired state of switches.
    pub fabric: &'a Fabric,
    /// Where ports lead.
    pub cabling: &'a Cabling,
    /// The last reports.
    pub reports: &'a Reports,
}

/// The tiers of which the viewer may not list all that decides their hops.
pub(crate) fn hidden_tiers(world: &ClusterState) -> Vec<Tier> {
    let lists = |kind| world.scope_of(kind) != ListScope::Nothing;
    let switches = lists(Kind::FabricDevice);
    let nodes = lists(Kind::ConnectionPoint) && lists(Kind::NodePool);
    let pods = world.scope_of_pods() != ListScope::Nothing;
    let tiers = [
        (Tier::Pods, pods),
        (Tier::Interfaces, pods),
        (Tier::Bridges, nodes),
        (Tier::Nics, nodes),
        (Tier::Leaves, switches),
        (Tier::Spines, switches),
        (Tier::Gateways, switches),
    ];
    tiers.into_iter().filter(|(_, lists)| !lists).map(|(tier, _)| tier).collect()
}

/// The path of an object. It has no hops if the object is none on a path.
pub(crate) fn path(inputs: Inputs<'_>, key: &Key) -> Path {
    let mut builder = Builder::new(inputs);
    match key.kind {
        Kind::L2Service | Kind::L2BridgeDomain => {
            for attachment in attachments_of(inputs.world, key) {
                builder.attachment(&attachment, &networks(inputs.world, key));
            }
            builder.switches(&networks(inputs.world, key), None);
        }
        Kind::L2ServiceAttachment => {
            let networks = networks(inputs.world, key);
            let nodes = builder.attachment(key, &networks);
            builder.switches(&networks, Some(&nodes));
        }
        Kind::PodNetworkConfig | Kind::PodConfig => builder.links_of(key),
        Kind::FabricDevice => builder.device(&key.name),
        _ => {}
    }
    builder.finish()
}

/// The attachments of a network.
pub(crate) fn attachments_of(world: &ClusterState, network: &Key) -> Vec<Key> {
    let network = network.to_string();
    let attachments = world.keys().filter(|key| key.kind == Kind::L2ServiceAttachment);
    attachments.filter(|key| networks(world, key).contains(&network)).cloned().collect()
}

struct Builder<'a> {
    inputs: Inputs<'a>,
    hops: BTreeMap<String, Hop>,
    links: BTreeSet<(String, String)>,
    /// The pods that use each NetworkAttachmentDefinition, by its namespace and name.
    users: BTreeMap<(Name, Name), Vec<PodInfo<'a>>>,
    /// The ports that carry networks, by switch.
    carriers: BTreeMap<BTreeSet<String>, BTreeMap<&'a str, BTreeSet<String>>>,
}

impl<'a> Builder<'a> {
    fn new(inputs: Inputs<'a>) -> Self {
        let mut users: BTreeMap<(Name, Name), Vec<PodInfo<'a>>> = BTreeMap::new();
        for pod in inputs.world.pods() {
            for used in pod.uses.named() {
                users.entry(used.clone()).or_default().push(pod.clone());
            }
        }
        let (hops, links) = (BTreeMap::new(), BTreeSet::new());
        Self { inputs, hops, links, users, carriers: BTreeMap::new() }
    }

    /// The ports that carry `networks`, by switch.
    fn carriers(&mut self, networks: &BTreeSet<String>) -> &BTreeMap<&'a str, BTreeSet<String>> {
        let switches = &self.inputs.fabric.switches;
        self.carriers.entry(networks.clone()).or_insert_with(|| {
            let ports = |desired| vlans_and_ports(desired, networks).1.into_iter().collect();
            switches.iter().map(|(switch, (_, desired))| (switch.as_str(), ports(desired))).collect()
        })
    }

    fn add(&mut self, hop: Hop) -> String {
        let id = hop.id.clone();
        match self.hops.get_mut(&id) {
            Some(known) => {
                known.vlans = known.vlans.union(&hop.vlans);
                if hop.state < known.state {
                    (known.state, known.message) = (hop.state, hop.message);
                }
            }
            None => drop(self.hops.insert(id.clone(), hop)),
        }
        id
    }

    fn link(&mut self, from: &str, to: &str) {
        self.links.insert((from.to_owned(), to.to_owned()));
    }

    fn finish(self) -> Path {
        let state = |id: &str| self.hops.get(id).map_or(State::Unknown, |hop| hop.state);
        let links = self.links.iter().map(|(from, to)| Link {
            from: from.clone(),
            to: to.clone(),
            state: state(from).min(state(to)),
        });
        let links = links.collect();
        let mut hops: Vec<Hop> = self.hops.into_values().collect();
        hops.sort_by(|a, b| (a.tier, &a.group, &a.label, &a.id).cmp(&(b.tier, &b.group, &b.label, &b.id)));
        Path { hops, links }
    }
}
/// A network as written in `owners`.
pub(crate) fn network_key(text: &str) -> Option<Key> {
    let (kind, name) = text.split_once('/')?;
    let kind = [Kind::L2Service, Kind::L2BridgeDomain].into_iter().find(|known| known.as_str() == kind)?;
    Some(Key::cluster(kind, &name.into()))
}
