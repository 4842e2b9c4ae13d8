//! The path of an object from pods to the gateway, hop by hop. Pure.

use std::collections::{BTreeMap, BTreeSet};

use eno_engine::follow::ListScope;
use eno_engine::forecast::{ClusterState, DesiredState, Key, Kind, Name, PodInfo};
use eno_nbi_crds::{ConnectionPoint, NodePool};
use eno_schemas::{
    Applied, AppliedLink, Cni, FabricDesired, FabricPort, HostNetwork, NadDesired, PodLink, Report, VlanSet,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::Selector;
use serde::Serialize;
use serde_json::Value;

use crate::inspect::addresses::{NetworkStatus, network_statuses};
use crate::inspect::cabling::{Cabling, End, PortId};
use crate::inspect::path::{
    Fabric, NAD_DRIVER, NODE_DRIVER, Reports, State, evaluate, networks, outcome, switch_progress,
    vlans_and_ports,
};
use crate::inspect::status::conditions;

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
            for used in &pod.uses {
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

    /// Adds the pods, interfaces, bridges and NICs of an attachment. Returns the nodes, with their NICs.
    fn attachment(&mut self, key: &Key, networks: &BTreeSet<String>) -> BTreeMap<String, BTreeSet<String>> {
        let Inputs { world, desired, .. } = self.inputs;
        let name = format!("{}/{}", key.namespace, key.name);
        let nad = desired.network_attachment_definitions.get(&name);
        let point = connection_point(world, key);
        let bridge =
            nad.and_then(|nad| self.bridge_of(nad)).or_else(|| point.as_ref().and_then(bridge_of_point));
        let nodes = self.nodes(bridge.as_deref(), point.as_ref(), networks);
        let vlans = self.vlans(networks);
        let mut bridges = BTreeMap::new();
        for (node, nics) in &nodes {
            let bridge = bridge.clone().unwrap_or_else(|| "devices".into());
            bridges.insert(node.clone(), self.host(node, &bridge, nics, &vlans));
        }
        let used = self.pods(key, nad, &bridges, &vlans);
        let nad_hop = self.nad(key, &name, nad, &vlans);
        if !used {
            for bridge in bridges.values() {
                self.link(&nad_hop, bridge);
            }
        }
        nodes
    }

    /// The VLANs of networks, on any switch or by their specs.
    fn vlans(&self, networks: &BTreeSet<String>) -> VlanSet {
        let ids = networks.iter().filter_map(|network| {
            let key = network_key(network)?;
            let field = if key.kind == Kind::L2Service { "SegmentationID" } else { "Vlan" };
            let id = self.inputs.world.object(&key)?.data.pointer(&format!("/spec/{field}"))?.as_u64()?;
            eno_schemas::VlanId::new(u16::try_from(id).ok()?).ok()
        });
        ids.collect()
    }

    /// The bridge, the NIC or the pool of devices that a NetworkAttachmentDefinition names. A VLAN interface counts as its
    /// NIC.
    fn bridge_of(&self, nad: &NadDesired) -> Option<String> {
        let is_network =
            |name: &str| self.inputs.desired.nodes.values().any(|node| node.networks.contains_key(name));
        match &nad.attachment.as_ref()?.cni {
            Cni::Ovs { bridge, .. } | Cni::Bridge { bridge } | Cni::Userspace { bridge, .. } => {
                Some(bridge.clone())
            }
            Cni::Macvlan { master } | Cni::Ipvlan { master } | Cni::Vlan { master } => {
                let nic = master.rsplit_once('.').map_or(master.as_str(), |(nic, _)| nic);
                Some(if !is_network(master) && is_network(nic) { nic.to_owned() } else { master.clone() })
            }
            Cni::HostDevice { pool } | Cni::Sriov { pool, .. } => Some(pool.clone()),
        }
    }

    /// The nodes where pods may use an attachment, with the NICs that lead to the fabric.
    fn nodes(
        &mut self,
        bridge: Option<&str>,
        point: Option<&ConnectionPoint>,
        networks: &BTreeSet<String>,
    ) -> BTreeMap<String, BTreeSet<String>> {
        let Inputs { world, desired, cabling, .. } = self.inputs;
        let pool = point.and_then(|point| nodes_of(world, point));
        let is_in_pool = |node: &str| pool.as_ref().is_none_or(|pool| pool.contains(node));
        let listed = point.map(|point| point.spec.interfaces.as_slice()).unwrap_or_default();
        let mut nodes: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (name, node) in desired.nodes.iter().filter(|(name, _)| is_in_pool(name)) {
            if let Some((bridge, network)) = bridge.and_then(|name| Some((name, node.networks.get(name)?))) {
                nodes.entry(name.clone()).or_default().extend(nics_of(bridge, network));
            }
        }
        let of_agents = !nodes.is_empty();
        let wired: BTreeSet<String> =
            nodes.iter().filter(|(_, nics)| !nics.is_empty()).map(|(node, _)| node.clone()).collect();
        let carriers = self.carriers(networks);
        for ((device, port), info) in &cabling.ports {
            let Some(End::Node(node, nic)) = &info.end else { continue };
            let is_listed = nic.as_ref().is_none_or(|nic| listed.is_empty() || listed.contains(nic));
            let carries = carriers.get(device.as_str()).is_some_and(|ports| ports.contains(port));
            let is_wanted =
                is_in_pool(node) && !wired.contains(node) && (nodes.contains_key(node) || !of_agents);
            if is_listed && carries && is_wanted {
                nodes.entry(node.clone()).or_default().extend(nic.clone());
            }
        }
        nodes
    }

    /// Adds the bridge and the NICs of a node. Returns the id of the bridge.
    fn host(&mut self, node: &str, bridge: &str, nics: &BTreeSet<String>, vlans: &VlanSet) -> String {
        let Inputs { desired, reports, world, .. } = self.inputs;
        let network = desired.nodes.get(node).and_then(|node| node.networks.get(bridge));
        let (state, message, mtu) = match network {
            Some(network) => {
                let mut mtu = None;
                let (state, message) = reports.progress(NODE_DRIVER, node, |report| {
                    let (progress, applied) = network_progress(report, bridge, network, vlans);
                    mtu = applied;
                    progress
                });
                (state, message, mtu.or_else(|| mtu_of(network)))
            }
            None if world.has_agents() => {
                (State::Unknown, "its agent has nothing to configure there".into(), None)
            }
            None => (State::Unknown, "no agent runs on the node, so this is configured by hand".into(), None),
        };
        let part = Part::Network(node.to_owned(), bridge.to_owned());
        let hop = |tier, id: String, label: &str| Hop {
            id,
            tier,
            label: label.to_owned(),
            detail: node.to_owned(),
            group: format!("Node/{node}"),
            state,
            message: message.clone(),
            vlans: vlans.clone(),
            mtu,
            addresses: Vec::new(),
            part: part.clone(),
        };
        let id = self.add(hop(Tier::Bridges, format!("bridge:{node}:{bridge}"), bridge));
        for nic in nics {
            let nic = self.add(hop(Tier::Nics, format!("nic:{node}:{nic}"), nic));
            self.link(&id, &nic);
        }
        id
    }

    /// Adds the NetworkAttachmentDefinition of an attachment.
    fn nad(&mut self, key: &Key, name: &str, nad: Option<&NadDesired>, vlans: &VlanSet) -> String {
        let Inputs { reports, .. } = self.inputs;
        let (state, message) = if reports.are_known() && nad.is_some() {
            reports.progress(NAD_DRIVER, name, |report| {
                let present = matches!(report.applied, Some(Applied::Nad { present: true }));
                match report.rejected.first() {
                    Some(rejection) => (State::Refused, rejection.reason.clone()),
                    None => outcome(report, present),
                }
            })
        } else {
            self.by_condition(key, "NADReady")
        };
        self.add(Hop {
            id: format!("nad:{name}"),
            tier: Tier::Interfaces,
            label: name.to_owned(),
            detail: "NetworkAttachmentDefinition".into(),
            group: format!("NetworkAttachmentDefinition/{name}"),
            state,
            message,
            vlans: vlans.clone(),
            mtu: nad.and_then(|nad| nad.attachment.as_ref()?.mtu),
            addresses: Vec::new(),
            part: Part::Nad(name.to_owned()),
        })
    }

    /// The progress that a condition of the object tells.
    fn by_condition(&self, key: &Key, kind: &str) -> (State, String) {
        let found = self.inputs.world.object(key).map(conditions).unwrap_or_default();
        match found.into_iter().find(|condition| condition.kind == kind) {
            Some(condition) if condition.status == "True" => (State::Confirmed, String::new()),
            Some(condition) if condition.reason == "Refused" => (State::Refused, condition.message),
            Some(condition) => (State::Waiting, condition.message),
            None => (State::Unknown, String::new()),
        }
    }

    /// Adds the pods that use an attachment, and their interfaces. False: there are none.
    fn pods(
        &mut self,
        key: &Key,
        nad: Option<&NadDesired>,
        bridges: &BTreeMap<String, String>,
        vlans: &VlanSet,
    ) -> bool {
        let (namespace, name) = (&key.namespace, &key.name);
        let mut any = false;
        for pod in self.users.get(&(namespace.clone(), name.clone())).cloned().unwrap_or_default() {
            any = true;
            let hop = self.add(pod_hop(&pod));
            let mut interfaces = self.links_in(&pod, key, vlans);
            let own = format!("{namespace}/{name}");
            for status in network_statuses(pod.metadata).into_iter().filter(|status| status.name == own) {
                interfaces.push(self.attached(&pod, &status, nad, vlans));
            }
            if interfaces.is_empty() {
                let missing = missing_interface(&pod, vlans, self.by_condition(key, "PodsReady"));
                interfaces.push(self.add(missing));
            }
            for interface in interfaces {
                self.link(&hop, &interface);
                if let Some(bridge) = pod.node.as_deref().and_then(|node| bridges.get(node)) {
                    self.link(&interface, bridge);
                }
            }
        }
        any
    }

    /// Adds the interfaces of an object that the agent makes in a pod.
    fn links_in(&mut self, pod: &PodInfo<'_>, key: &Key, vlans: &VlanSet) -> Vec<String> {
        let Inputs { desired, reports, .. } = self.inputs;
        // The ids of interfaces have no namespace: they are of the pod's own.
        let Some(node) = pod.node.as_deref().filter(|_| *pod.namespace() == *key.namespace) else {
            return Vec::new();
        };
        let links = desired.nodes.get(node).and_then(|node| node.pods.get(pod.uid())).map(|pod| &pod.links);
        let prefix = format!("{}/{}/", key.kind, key.name);
        let own = links.into_iter().flatten().filter(|link| link.id.starts_with(&prefix));
        let mut found = Vec::new();
        for link in own {
            let mut applied = None;
            let (state, message) = reports.progress(NODE_DRIVER, node, |report| {
                let (progress, seen) = link_progress(report, pod.uid(), link);
                applied = seen.cloned();
                progress
            });
            let label = applied.as_ref().map_or_else(|| link_name(link), |applied| applied.name.clone());
            let addresses = applied.as_ref().map_or(&link.addresses, |applied| &applied.addresses);
            found.push(self.add(Hop {
                id: format!("link:{}:{}", pod.uid(), link.id),
                tier: Tier::Interfaces,
                label,
                detail: pod_name(pod),
                group: workload(pod.metadata),
                state,
                message,
                vlans: vlans.clone(),
                mtu: applied.as_ref().map(|applied| applied.mtu).or(link.mtu),
                addresses: addresses.iter().map(ToString::to_string).collect(),
                part: Part::Link(node.to_owned(), pod.uid().to_owned(), link.id.clone()),
            }));
        }
        found
    }

    /// Adds an interface that Multus reports.
    fn attached(
        &mut self,
        pod: &PodInfo<'_>,
        status: &NetworkStatus,
        nad: Option<&NadDesired>,
        vlans: &VlanSet,
    ) -> String {
        self.add(Hop {
            id: format!("interface:{}:{}", pod.uid(), status.interface),
            tier: Tier::Interfaces,
            label: status.interface.clone(),
            detail: pod_name(pod),
            group: workload(pod.metadata),
            state: State::Confirmed,
            message: String::new(),
            vlans: vlans.clone(),
            mtu: nad.and_then(|nad| nad.attachment.as_ref()?.mtu),
            addresses: status.ips.clone(),
            part: Part::Attached(pod.uid().to_owned(), status.interface.clone()),
        })
    }

    /// Adds the pods with interfaces of a configuration, and the bridges of these.
    fn links_of(&mut self, key: &Key) {
        let world = self.inputs.world;
        for pod in world.pods().filter(|pod| *pod.namespace() == *key.namespace) {
            let interfaces = self.links_in(&pod, key, &VlanSet::EMPTY);
            let Some(node) = pod.node.as_deref().filter(|_| !interfaces.is_empty()) else { continue };
            let hop = self.add(pod_hop(&pod));
            for interface in interfaces {
                self.link(&hop, &interface);
                let bridge = self.master_of(node, pod.uid(), &interface);
                if let Some(bridge) = bridge {
                    let bridge = self.host(node, &bridge, &BTreeSet::new(), &VlanSet::EMPTY);
                    self.link(&interface, &bridge);
                }
            }
        }
    }

    /// The bridge of a pod's interface.
    fn master_of(&self, node: &str, uid: &str, hop: &str) -> Option<String> {
        let links = &self.inputs.desired.nodes.get(node)?.pods.get(uid)?.links;
        let link = links.iter().find(|link| hop.ends_with(&format!(":{}", link.id)))?;
        match &link.kind {
            eno_schemas::LinkKind::Veth { master: Some(master) } => Some(master.bridge().to_owned()),
            _ => None,
        }
    }

    /// Adds the switches of networks. `nodes`: only the ports to these.
    fn switches(&mut self, networks: &BTreeSet<String>, nodes: Option<&BTreeMap<String, BTreeSet<String>>>) {
        let Inputs { fabric, .. } = self.inputs;
        let switches: Vec<(&String, VlanSet)> = fabric
            .switches
            .iter()
            .map(|(switch, (_, desired))| (switch, vlans_and_ports(desired, networks).0))
            .filter(|(_, vlans)| !vlans.is_empty())
            .collect();
        let mut representatives: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (switch, vlans) in &switches {
            let hops = self.ports(switch, vlans, nodes);
            representatives.insert((*switch).clone(), hops);
        }
        self.cables(&switches, &representatives);
    }

    /// Adds the ports of a switch to nodes and gateways; without any, the switch itself. Returns the hops.
    fn ports(
        &mut self,
        switch: &str,
        vlans: &VlanSet,
        nodes: Option<&BTreeMap<String, BTreeSet<String>>>,
    ) -> Vec<String> {
        let Inputs { fabric, cabling, .. } = self.inputs;
        let Some((_, desired)) = fabric.switches.get(switch) else { return Vec::new() };
        let mut hops = Vec::new();
        for port in desired.ports.iter().filter(|port| !port.vlans.intersection(vlans).is_empty()) {
            let id = (switch.to_owned(), port.name.clone());
            match cabling.ports.get(&id).and_then(|port| port.end.as_ref()) {
                Some(End::Node(node, nic)) if nodes.is_none_or(|nodes| nodes.contains_key(node)) => {
                    let hop = self.port_hop(Tier::Leaves, &id, port, vlans, node);
                    self.nic_to_port(node, nic.as_deref(), &hop);
                    hops.push(hop);
                }
                Some(End::Network(network)) => {
                    hops.push(self.port_hop(Tier::Gateways, &id, port, vlans, network));
                }
                _ => {}
            }
        }
        if hops.is_empty() {
            hops.push(self.switch_hop(switch, desired, vlans));
        }
        hops
    }

    fn nic_to_port(&mut self, node: &str, nic: Option<&str>, port: &str) {
        let prefix = nic.map_or_else(|| format!("nic:{node}:"), |nic| format!("nic:{node}:{nic}"));
        let nics = self
            .hops
            .keys()
            .filter(|id| id.starts_with(&prefix))
            .filter(|id| nic.is_none() || **id == prefix);
        for nic in nics.cloned().collect::<Vec<_>>() {
            self.link(&nic, port);
        }
    }

    fn port_hop(&mut self, tier: Tier, id: &PortId, port: &FabricPort, vlans: &VlanSet, to: &str) -> String {
        let Inputs { world, fabric, reports, .. } = self.inputs;
        let (switch, name) = id;
        let driver = fabric.switches.get(switch).map_or("", |(driver, _)| driver);
        let own = port.vlans.intersection(vlans);
        let (state, message) =
            switch_progress(world, reports, driver, switch, |report| evaluate(report, [port], &own));
        let (label, detail) = match tier {
            Tier::Gateways => (to.to_owned(), format!("{switch} {name}")),
            _ => (name.clone(), format!("{switch} to {to}")),
        };
        self.add(Hop {
            id: format!("port:{switch}:{name}"),
            tier,
            label,
            detail,
            group: format!("FabricDevice/{switch}"),
            state,
            message,
            vlans: own,
            mtu: None,
            addresses: Vec::new(),
            part: Part::Port(id.clone()),
        })
    }

    fn switch_hop(&mut self, switch: &str, desired: &FabricDesired, vlans: &VlanSet) -> String {
        let Inputs { world, fabric, reports, .. } = self.inputs;
        let driver = fabric.switches.get(switch).map_or("", |(driver, _)| driver);
        let (state, message) =
            switch_progress(world, reports, driver, switch, |report| evaluate(report, &desired.ports, vlans));
        self.add(Hop {
            id: format!("switch:{switch}"),
            tier: Tier::Spines,
            label: switch.to_owned(),
            detail: driver.to_owned(),
            group: format!("FabricDevice/{switch}"),
            state,
            message,
            vlans: vlans.clone(),
            mtu: None,
            addresses: Vec::new(),
            part: Part::Switch(switch.to_owned()),
        })
    }

    /// Connects the hops of switches by the cables that carry VLANs of the path.
    fn cables(&mut self, switches: &[(&String, VlanSet)], representatives: &BTreeMap<String, Vec<String>>) {
        let Inputs { fabric, cabling, .. } = self.inputs;
        let carries = |switch: &str, port: &str| {
            let vlans = switches.iter().find(|(name, _)| *name == switch).map(|(_, vlans)| vlans);
            let desired = fabric.switches.get(switch).map(|(_, desired)| desired);
            let port = desired.and_then(|desired| desired.ports.iter().find(|one| one.name == port));
            matches!((vlans, port), (Some(vlans), Some(port)) if !port.vlans.intersection(vlans).is_empty())
        };
        let mut pairs = Vec::new();
        for link in &cabling.links {
            let End::Device(other, _) = &link.end else { continue };
            let (device, port) = &link.port;
            if carries(device, port) || link.other().is_some_and(|(device, port)| carries(&device, &port)) {
                for one in representatives.get(device).into_iter().flatten() {
                    for another in representatives.get(other).into_iter().flatten() {
                        pairs.push((one.clone(), another.clone()));
                    }
                }
            }
        }
        // A node and a gateway on one switch.
        for hops in representatives.values() {
            for one in hops {
                pairs.extend(hops.iter().map(|another| (one.clone(), another.clone())));
            }
        }
        for (one, another) in pairs {
            let tier = |id: &str| self.hops.get(id).map(|hop| hop.tier);
            match tier(&one).cmp(&tier(&another)) {
                std::cmp::Ordering::Less => self.link(&one, &another),
                std::cmp::Ordering::Greater => self.link(&another, &one),
                // Between two spines.
                std::cmp::Ordering::Equal if tier(&one) == Some(Tier::Spines) && one != another => {
                    self.link(&one, &another);
                }
                std::cmp::Ordering::Equal => {}
            }
        }
    }

    /// Adds a switch with all of its ports that carry VLANs, and what is at their other ends.
    fn device(&mut self, switch: &str) {
        let Inputs { fabric, cabling, .. } = self.inputs;
        let Some((_, desired)) = fabric.switches.get(switch) else { return };
        let vlans: VlanSet = desired.vlans.iter().map(|vlan| vlan.vid).collect();
        let own = self.switch_hop(switch, desired, &vlans);
        for port in &desired.ports {
            let id = (switch.to_owned(), port.name.clone());
            match cabling.ports.get(&id).and_then(|port| port.end.as_ref()) {
                Some(End::Node(node, _)) => {
                    let hop = self.port_hop(Tier::Leaves, &id, port, &vlans, node);
                    self.link(&hop, &own);
                }
                Some(End::Network(network)) => {
                    let hop = self.port_hop(Tier::Gateways, &id, port, &vlans, network);
                    self.link(&own, &hop);
                }
                Some(End::Device(other, _)) => {
                    let Some((_, desired)) = fabric.switches.get(other) else { continue };
                    let other = self.switch_hop(other, desired, &port.vlans);
                    self.link(&own, &other);
                }
                None => {}
            }
        }
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

fn connection_point(world: &ClusterState, attachment: &Key) -> Option<ConnectionPoint> {
    let name = world.object(attachment)?.data.pointer("/spec/ConnectionPoint")?.as_str()?;
    let point = world.object(&Key::cluster(Kind::ConnectionPoint, &name.into()))?;
    point.clone().try_parse().ok()
}

/// The nodes of a ConnectionPoint; `None`: all, or they are not known.
fn nodes_of(world: &ClusterState, point: &ConnectionPoint) -> Option<BTreeSet<String>> {
    let pool = point.spec.node_pool.as_deref()?;
    let pool = world.object(&Key::cluster(Kind::NodePool, &pool.into()))?;
    let pool: NodePool = pool.clone().try_parse().ok()?;
    world.nodes_of(&Selector::try_from(pool.spec.node_selector).ok()?)
}

/// The bridge, the NIC or the pool of devices of the first CNI plugin of a ConnectionPoint.
fn bridge_of_point(point: &ConnectionPoint) -> Option<String> {
    let opts = point.spec.supported_cnis.first()?.opts.as_deref()?;
    let opts: Value = serde_json::from_str(opts).ok()?;
    let named = ["BridgeName", "Master", "PoolName"].into_iter().find_map(|key| opts.get(key)?.as_str());
    named.map(str::to_owned)
}

/// The NICs of a network of a host.
fn nics_of(name: &str, network: &HostNetwork) -> Vec<String> {
    match network {
        HostNetwork::Ovs { uplink, .. } | HostNetwork::Bridge { uplink, .. } => {
            uplink.iter().flat_map(|uplink| uplink.interfaces.clone()).collect()
        }
        HostNetwork::Master { bond, .. } if bond.is_empty() => vec![name.to_owned()],
        HostNetwork::Master { bond, .. } => bond.clone(),
        HostNetwork::PodBridge { .. } => Vec::new(),
    }
}

fn mtu_of(network: &HostNetwork) -> Option<u32> {
    match network {
        HostNetwork::Ovs { uplink, .. } => uplink.as_ref().and_then(|uplink| uplink.mtu),
        HostNetwork::Bridge { mtu, .. }
        | HostNetwork::Master { mtu, .. }
        | HostNetwork::PodBridge { mtu, .. } => *mtu,
    }
}

/// The progress of VLANs on a network of a host, and its MTU.
fn network_progress(
    report: &Report,
    name: &str,
    network: &HostNetwork,
    vlans: &VlanSet,
) -> ((State, String), Option<u32>) {
    let desired = match network {
        HostNetwork::Ovs { vlans: all, .. }
        | HostNetwork::Bridge { vlans: all, .. }
        | HostNetwork::Master { vlans: all, .. } => all.intersection(vlans),
        HostNetwork::PodBridge { .. } => VlanSet::EMPTY,
    };
    let covers = |item: &eno_schemas::Item| match item.vlan {
        Some(vid) => desired.contains(vid) && item.covers(vid, name),
        None => item.pod.is_none() && item.port.as_deref().is_none_or(|own| own == name),
    };
    let applied = match &report.applied {
        Some(Applied::Node { networks, .. }) => networks.get(name),
        _ => None,
    };
    let mtu = applied.and_then(|applied| applied.mtu);
    if let Some(rejection) = report.rejected.iter().find(|rejection| covers(&rejection.item)) {
        return ((State::Refused, format!("{}: {}", rejection.item, rejection.reason)), mtu);
    }
    (outcome(report, applied.is_some_and(|applied| desired.is_subset(&applied.vlans))), mtu)
}

/// The progress of an interface in a pod, and what is observed of it.
fn link_progress<'a>(
    report: &'a Report,
    uid: &str,
    link: &PodLink,
) -> ((State, String), Option<&'a AppliedLink>) {
    let applied = match &report.applied {
        Some(Applied::Node { pods, .. }) => pods.get(uid).and_then(|links| links.get(&link.id)),
        _ => None,
    };
    if let Some(rejection) = report.rejected.iter().find(|one| one.item.covers_link(uid, &link.id)) {
        return ((State::Refused, rejection.reason.clone()), applied);
    }
    (outcome(report, applied.is_some_and(|applied| applied.revision == link.revision)), applied)
}

fn link_name(link: &PodLink) -> String {
    match &link.name {
        eno_schemas::LinkName::Fixed(name) => name.clone(),
        eno_schemas::LinkName::WithPid(name) => format!("{name}<PID>"),
    }
}

fn pod_name(pod: &PodInfo<'_>) -> String {
    format!("{}/{}", pod.namespace(), pod.name())
}

fn pod_hop(pod: &PodInfo<'_>) -> Hop {
    let (state, message) = match &pod.node {
        Some(_) => (State::Confirmed, String::new()),
        None => (State::Waiting, "no node runs it yet".to_owned()),
    };
    Hop {
        id: format!("pod:{}", pod.uid()),
        tier: Tier::Pods,
        label: pod_name(pod),
        detail: pod.node.as_deref().unwrap_or_default().to_owned(),
        group: workload(pod.metadata),
        state,
        message,
        vlans: VlanSet::EMPTY,
        mtu: None,
        addresses: Vec::new(),
        part: Part::Pod(pod.uid().to_owned()),
    }
}

/// The place of an interface that neither Multus nor the agent has made. `pods`: the progress of all pods.
fn missing_interface(pod: &PodInfo<'_>, vlans: &VlanSet, pods: (State, String)) -> Hop {
    let (state, message) = match pods {
        (State::Confirmed | State::Unknown, _) => {
            (State::Waiting, "neither Multus nor an agent reports an interface of it in the pod".to_owned())
        }
        refused_or_waiting => refused_or_waiting,
    };
    Hop {
        id: format!("interface:{}:", pod.uid()),
        tier: Tier::Interfaces,
        label: "no interface yet".into(),
        state,
        message,
        vlans: vlans.clone(),
        detail: pod_name(pod),
        ..pod_hop(pod)
    }
}

/// The workload of a pod: `KIND/NAMESPACE/NAME`. Of a ReplicaSet that a Deployment owns, the Deployment.
pub(crate) fn workload(pod: &ObjectMeta) -> String {
    let namespace = pod.namespace.as_deref().unwrap_or_default();
    let owner = pod.owner_references.iter().flatten().find(|owner| owner.controller == Some(true));
    let hash = pod.labels.as_ref().and_then(|labels| labels.get("pod-template-hash"));
    match (owner, hash) {
        (Some(owner), Some(hash)) if owner.kind == "ReplicaSet" => {
            let name = owner.name.strip_suffix(hash.as_str()).and_then(|name| name.strip_suffix('-'));
            name.map_or_else(
                || format!("ReplicaSet/{namespace}/{}", owner.name),
                |name| format!("Deployment/{namespace}/{name}"),
            )
        }
        (Some(owner), _) => format!("{}/{namespace}/{}", owner.kind, owner.name),
        (None, _) => format!("Pod/{namespace}/{}", pod.name.as_deref().unwrap_or_default()),
    }
}
