//! Nodes, their bridges and NICs, and NetworkAttachmentDefinitions.

use std::collections::{BTreeMap, BTreeSet};

use eno_engine::forecast::{ClusterState, Key, Kind};
use eno_nbi_crds::{ConnectionPoint, NodePool};
use eno_schemas::{Applied, Cni, HostNetwork, NadDesired, VlanSet};
use kube::core::Selector;
use serde_json::Value;

use super::progress::network_progress;
use super::{Builder, Hop, Inputs, Part, Tier, network_key};
use crate::inspect::cabling::End;
use crate::inspect::path::{NAD_DRIVER, NODE_DRIVER, State, state_of};
use crate::inspect::status::conditions;

impl Builder<'_> {
    /// Adds the pods, interfaces, bridges and NICs of an attachment. Returns the nodes, with their NICs.
    pub(super) fn attachment(
        &mut self,
        key: &Key,
        networks: &BTreeSet<String>,
    ) -> BTreeMap<String, BTreeSet<String>> {
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
    pub(super) fn host(
        &mut self,
        node: &str,
        bridge: &str,
        nics: &BTreeSet<String>,
        vlans: &VlanSet,
    ) -> String {
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
                state_of(report, &report.rejected, present)
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
    pub(super) fn by_condition(&self, key: &Key, kind: &str) -> (State, String) {
        let found = self.inputs.world.object(key).map(conditions).unwrap_or_default();
        match found.into_iter().find(|condition| condition.kind == kind) {
            Some(condition) if condition.status == "True" => (State::Confirmed, String::new()),
            Some(condition) if condition.reason == "Refused" => (State::Refused, condition.message),
            Some(condition) => (State::Waiting, condition.message),
            None => (State::Unknown, String::new()),
        }
    }
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
