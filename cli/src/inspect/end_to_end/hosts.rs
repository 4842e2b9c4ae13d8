//! Nodes, their bridges and NICs.

use eno_engine::forecast::{ClusterState, Key, Kind};
use eno_engine::observation::{self, LeadsTo};
use eno_nbi_crds::ConnectionPoint;
use eno_schemas::{Applied, Cni, NadDesired, VlanSet};
use serde_json::Value;

use super::{Builder, Hop, Part, State, Tier};
use crate::inspect::path::NODE_DRIVER;

impl Builder<'_> {
    /// Adds the networks of nodes on a path, and their NICs.
    pub(super) fn hosts(&mut self, key: &Key, path: &[observation::Hop<'_>], vlans: &VlanSet) {
        use observation::Part as Core;
        for hop in path {
            match hop.part {
                Core::Network { node, network, .. } | Core::PodBridge { node, bridge: network, .. } => {
                    let (state, message) = self.on_node(node, hop);
                    self.bridge(node, network, vlans, state, message);
                }
                Core::Nic { node, network, nic } => {
                    let (state, message) = self.on_node(node, hop);
                    let bridge = self.bridge(node, network, vlans, state, message);
                    self.nic(node, nic, &bridge);
                }
                _ => {}
            }
        }
        if key.kind == Kind::L2ServiceAttachment {
            self.hosts_of_ports(key, path, vlans);
        }
    }

    /// Adds what ports lead to on nodes where the core has no network: nobody configures it, or the node is not ready.
    fn hosts_of_ports(&mut self, key: &Key, path: &[observation::Hop<'_>], vlans: &VlanSet) {
        let bridge = self.bridge_of_attachment(key);
        for hop in path {
            let observation::Part::Port { leads_to: Some(LeadsTo::Node { node, interface }), .. } = hop.part
            else {
                continue;
            };
            let nics = format!("nic:{node}:");
            if self.hops.range(nics.clone()..).next().is_some_and(|(id, _)| id.starts_with(&nics)) {
                continue;
            }
            let own = format!("bridge:{node}:{bridge}");
            if !self.hops.contains_key(&own) {
                let why = match self.inputs.world.nodes().find(|(name, _)| *name == &**node) {
                    Some((_, false)) => "the node is not ready",
                    _ if self.inputs.world.has_agents() => "its agent has nothing to configure there",
                    _ => "no agent runs on the node, so this is configured by hand",
                };
                self.bridge(node, &bridge, vlans, State::Unknown, why.into());
            }
            self.nic(node, interface, &own);
        }
    }

    /// Adds a network of a node. Returns the id of its hop.
    fn bridge(&mut self, node: &str, name: &str, vlans: &VlanSet, state: State, message: String) -> String {
        let applied =
            match self.inputs.reports.get(NODE_DRIVER, node).and_then(|report| report.applied.as_ref()) {
                Some(Applied::Node { networks, .. }) => networks.get(name).and_then(|network| network.mtu),
                _ => None,
            };
        let desired = self.inputs.desired.nodes.get(node).and_then(|node| node.networks.get(name));
        self.add(Hop {
            id: format!("bridge:{node}:{name}"),
            tier: Tier::Bridges,
            label: name.to_owned(),
            detail: node.to_owned(),
            group: format!("Node/{node}"),
            state,
            message,
            vlans: vlans.clone(),
            mtu: applied.or_else(|| desired.and_then(|network| network.carried_out().mtu)),
            addresses: Vec::new(),
            part: Part::Network(node.to_owned(), name.to_owned()),
        })
    }

    /// Adds a NIC of a network of a node. It is as the network is.
    fn nic(&mut self, node: &str, name: &str, bridge: &str) {
        let Some(network) = self.hops.get(bridge).cloned() else { return };
        let id = format!("nic:{node}:{name}");
        let nic = self.add(Hop { id, tier: Tier::Nics, label: name.to_owned(), ..network });
        self.link(bridge, &nic);
    }

    /// The networks of nodes on the path of an attachment: the first of each node.
    pub(super) fn bridge_on(&self, node: &str, key: &Key, path: &[observation::Hop<'_>]) -> Option<String> {
        use observation::Part as Core;
        let networks = path.iter().find_map(|hop| match hop.part {
            Core::Network { node: on, network, .. } if **on == *node => Some(network.to_owned()),
            _ => None,
        });
        let is_attachment = key.kind == Kind::L2ServiceAttachment;
        let name = networks.or_else(|| is_attachment.then(|| self.bridge_of_attachment(key)))?;
        Some(format!("bridge:{node}:{name}")).filter(|id| self.hops.contains_key(id))
    }

    /// The network of nodes that an attachment uses, as its NetworkAttachmentDefinition or its ConnectionPoint names it.
    fn bridge_of_attachment(&self, key: &Key) -> String {
        let name = format!("{}/{}", key.namespace, key.name);
        let nad = self.inputs.desired.network_attachment_definitions.get(&name);
        let of_point = || bridge_of_point(&connection_point(self.inputs.world, key)?);
        nad.and_then(|nad| self.bridge_of(nad)).or_else(of_point).unwrap_or_else(|| "devices".into())
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
}

fn connection_point(world: &ClusterState, attachment: &Key) -> Option<ConnectionPoint> {
    let name = world.object(attachment)?.data.pointer("/spec/ConnectionPoint")?.as_str()?;
    let point = world.object(&Key::cluster(Kind::ConnectionPoint, &name.into()))?;
    point.clone().try_parse().ok()
}

/// The bridge, the NIC or the pool of devices of the first CNI plugin of a ConnectionPoint.
fn bridge_of_point(point: &ConnectionPoint) -> Option<String> {
    let opts = point.spec.supported_cnis.first()?.opts.as_deref()?;
    let opts: Value = serde_json::from_str(opts).ok()?;
    let named = ["BridgeName", "Master", "PoolName"].into_iter().find_map(|key| opts.get(key)?.as_str());
    named.map(str::to_owned)
}
