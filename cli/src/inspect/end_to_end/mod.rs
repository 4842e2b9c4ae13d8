//! The path of an object from pods to the gateway, hop by hop. Pure.

mod gateways;
mod hosts;
mod pods;
mod switches;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use eno_engine::follow::ListScope;
use eno_engine::forecast::{ClusterState, Key, Kind, PodInfo};
use eno_engine::observation::{self, DesiredState, Observation, Tier};
use eno_schemas::{VlanId, VlanSet};
use serde::Serialize;

use crate::inspect::cabling::PortId;
use crate::inspect::path::{Fabric, NODE_DRIVER, Reports, State, networks};
use crate::inspect::status::conditions;

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
    /// A VRF: the FabricDevice, and the name there.
    Vrf(String, String),
    /// The interface by which a device leads a VLAN into a VRF: the FabricDevice and the VLAN.
    Routed(String, VlanId),
    /// Something that is at no place, such as a link that is missing.
    Elsewhere,
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
    /// The core that knows the objects and the reports.
    pub observation: &'a Observation,
    /// The desired state of nodes and NetworkAttachmentDefinitions.
    pub desired: &'a DesiredState,
    /// The desired state of switches.
    pub fabric: &'a Fabric,
    /// The last reports.
    pub reports: &'a Reports,
}

/// The tiers of which the viewer may not list all that decides their hops.
pub(crate) fn hidden_tiers(world: &ClusterState) -> Vec<Tier> {
    let lists = |kind| world.scope_of(kind) != ListScope::Nothing;
    let switches = lists(Kind::FabricDevice);
    let vrfs = lists(Kind::VRF) && lists(Kind::VRFAttachment);
    let nodes = lists(Kind::ConnectionPoint) && lists(Kind::NodePool);
    let pods = world.scope_of_pods() != ListScope::Nothing;
    let tiers = [
        (Tier::Pods, pods),
        (Tier::Interfaces, pods),
        (Tier::Bridges, nodes),
        (Tier::Nics, nodes),
        (Tier::Leaves, switches),
        (Tier::Spines, switches),
        (Tier::Gateways, switches && vrfs),
    ];
    tiers.into_iter().filter(|(_, lists)| !lists).map(|(tier, _)| tier).collect()
}

/// The path of an object. It has no hops if the object is none on a path.
pub(crate) fn path(inputs: Inputs<'_>, key: &Key) -> Path {
    let mut builder = Builder::new(inputs);
    if key.kind.has_vlan() {
        for attachment in attachments_of(inputs.world, key) {
            builder.object(&attachment);
        }
    }
    builder.object(key);
    builder.finish()
}

/// The attachments of a network, to pods and to VRFs.
pub(crate) fn attachments_of(world: &ClusterState, network: &Key) -> Vec<Key> {
    let network = network.to_string();
    let attaches = |kind| matches!(kind, Kind::L2ServiceAttachment | Kind::VRFAttachment);
    let attachments = world.keys().filter(|key| attaches(key.kind));
    attachments.filter(|key| networks(world, key).contains(&network)).cloned().collect()
}

struct Builder<'a> {
    inputs: Inputs<'a>,
    hops: BTreeMap<String, Hop>,
    links: BTreeSet<(String, String)>,
    /// The pods, by uid.
    pods: BTreeMap<String, PodInfo<'a>>,
    /// The ports on the path.
    ports: BTreeMap<PortId, switches::Port<'a>>,
}

impl<'a> Builder<'a> {
    fn new(inputs: Inputs<'a>) -> Self {
        let pods = inputs.world.pods().map(|pod| (pod.uid().to_owned(), pod)).collect();
        let (hops, links, ports) = (BTreeMap::new(), BTreeSet::new(), BTreeMap::new());
        Self { inputs, hops, links, pods, ports }
    }

    /// Adds the path of one object, as the core has it.
    fn object(&mut self, key: &Key) {
        let path = self.inputs.observation.path(key);
        let vlans = self.vlans(&networks(self.inputs.world, key));
        self.hosts(key, &path, &vlans);
        self.interfaces(key, &path, &vlans);
        self.switches(key, &path);
        self.switches(key, &self.inputs.observation.ways_into_vrfs(key));
        for hop in &path {
            use observation::Part as Core;
            if matches!(hop.part, Core::Link | Core::Sample | Core::Agents | Core::Change(None)) {
                self.elsewhere(hop);
            }
        }
    }

    /// Adds a hop that is at no place.
    fn elsewhere(&mut self, hop: &observation::Hop<'_>) {
        let (state, message) = self.inputs.reports.verdict("", "", hop);
        let label = hop.part.to_string();
        self.add(Hop {
            id: format!("part:{label}"),
            tier: hop.part.tier(),
            group: label.clone(),
            label,
            detail: String::new(),
            state,
            message,
            vlans: VlanSet::EMPTY,
            mtu: None,
            addresses: Vec::new(),
            part: Part::Elsewhere,
        });
    }

    /// The VLANs of networks, by their specs.
    fn vlans(&self, networks: &BTreeSet<String>) -> VlanSet {
        let ids = networks.iter().filter_map(|network| {
            let key = Key::of_network(network)?;
            let field = if key.kind == Kind::L2Service { "SegmentationID" } else { "Vlan" };
            let id = self.inputs.world.object(&key)?.data.pointer(&format!("/spec/{field}"))?.as_u64()?;
            VlanId::new(u16::try_from(id).ok()?).ok()
        });
        ids.collect()
    }

    /// The state of a hop on a node.
    fn on_node(&self, node: &str, hop: &observation::Hop<'_>) -> (State, String) {
        self.inputs.reports.verdict(NODE_DRIVER, node, hop)
    }

    /// The state that a condition of the object tells.
    fn by_condition(&self, key: &Key, kind: &str) -> (State, String) {
        let found = self.inputs.world.object(key).map(conditions).unwrap_or_default();
        match found.into_iter().find(|condition| condition.kind == kind) {
            Some(condition) if condition.status == "True" => (State::Confirmed, String::new()),
            Some(condition) if condition.reason == "Refused" => (State::Refused, condition.message),
            Some(condition) => (State::Waiting, condition.message),
            None => (State::Unknown, String::new()),
        }
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

    fn finish(mut self) -> Path {
        self.place_ports();
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
