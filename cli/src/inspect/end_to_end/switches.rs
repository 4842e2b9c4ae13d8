//! Switches, their ports, and the cables between them.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use eno_schemas::{FabricDesired, FabricPort, VlanSet};

use super::{Builder, Hop, Inputs, Part, Tier};
use crate::inspect::cabling::{End, PortId};
use crate::inspect::path::{evaluate, switch_progress, vlans_and_ports};

impl Builder<'_> {
    /// Adds the switches of networks. `nodes`: only the ports to these.
    pub(super) fn switches(
        &mut self,
        networks: &BTreeSet<String>,
        nodes: Option<&BTreeMap<String, BTreeSet<String>>>,
    ) {
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
                Ordering::Less => self.link(&one, &another),
                Ordering::Greater => self.link(&another, &one),
                // Between two spines.
                Ordering::Equal if tier(&one) == Some(Tier::Spines) && one != another => {
                    self.link(&one, &another);
                }
                Ordering::Equal => {}
            }
        }
    }

    /// Adds a switch with all of its ports that carry VLANs, and what is at their other ends.
    pub(super) fn device(&mut self, switch: &str) {
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
}
