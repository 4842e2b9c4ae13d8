//! Switches, their ports, and the links between them.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use eno_engine::forecast::{Key, Kind};
use eno_engine::observation::{self, LeadsTo};
use eno_schemas::VlanSet;

use super::{Builder, Hop, Inputs, Part, State, Tier};
use crate::inspect::cabling::PortId;

/// A port on a path.
pub(super) struct Port<'a> {
    pub(super) leads_to: Option<&'a LeadsTo>,
    vlans: VlanSet,
    state: State,
    message: String,
}

impl<'a> Builder<'a> {
    /// Takes the ports of switches on a path.
    pub(super) fn switches(&mut self, key: &Key, path: &[observation::Hop<'a>]) {
        use observation::Part as Core;
        for hop in path {
            match hop.part {
                Core::Port { vlan, .. } => self.port(hop, &VlanSet::from_iter([vlan])),
                Core::Vrf { .. } => self.vrf(hop),
                Core::Routed { .. } => self.routed(hop),
                Core::Device(name) | Core::Item(name, _) => {
                    let (state, message) = self.inputs.reports.on_switch(self.inputs.observation, hop);
                    self.switch(name, VlanSet::EMPTY, state, message);
                }
                _ => {}
            }
        }
        if key.kind == Kind::FabricDevice {
            self.all_ports(&key.name);
            self.all_vrfs(&key.name);
        }
    }

    /// Takes all ports of a switch that carry VLANs, and those at the other ends of its links.
    fn all_ports(&mut self, device: &str) {
        let Inputs { observation, fabric, .. } = self.inputs;
        for hop in observation.ports(device, None) {
            let observation::Part::Port { port, leads_to, .. } = hop.part else { continue };
            let desired = fabric.switches.get(device).and_then(|(_, desired)| {
                desired.ports.iter().find(|desired| desired.name == port).map(|desired| &desired.vlans)
            });
            let vlans = desired.unwrap_or(&VlanSet::EMPTY);
            self.port(&hop, vlans);
            if let Some(LeadsTo::Device { device, port: far }) = leads_to {
                let is_far = |hop: &observation::Hop<'a>| matches!(hop.part, observation::Part::Port { port, .. } if *port == **far);
                let others = observation.ports(device, None).into_iter();
                others.filter(is_far).for_each(|hop| self.port(&hop, vlans));
            }
        }
    }

    /// Takes a port that carries these VLANs.
    fn port(&mut self, hop: &observation::Hop<'a>, vlans: &VlanSet) {
        let observation::Part::Port { device, port, leads_to, .. } = hop.part else { return };
        let (state, message) = self.inputs.reports.on_switch(self.inputs.observation, hop);
        let known = self.ports.entry((device.to_string(), port.to_owned())).or_insert_with(|| Port {
            leads_to,
            vlans: VlanSet::EMPTY,
            state: State::Confirmed,
            message: String::new(),
        });
        known.vlans = known.vlans.union(vlans);
        if state < known.state {
            (known.state, known.message) = (state, message);
        }
    }

    /// Adds the ports to nodes and gateways; of a switch without any and without a VRF, the switch itself. Connects them by
    /// the links that carry VLANs of the path.
    pub(super) fn place_ports(&mut self) {
        let ports = std::mem::take(&mut self.ports);
        let vrfs = self.at_vrfs();
        let mut ends: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for (device, hop) in &vrfs {
            ends.entry(device).or_default().push(hop.clone());
        }
        for (id, port) in &ports {
            let end = self.end(id, port);
            ends.entry(&id.0).or_default().extend(end);
        }
        self.add_routers(&ports, &vrfs, &mut ends);
        // What stands for a switch.
        let mut places = ends.clone();
        for device in ends.keys().filter(|device| self.hops.contains_key(&format!("switch:{device}"))) {
            places.insert(device, vec![format!("switch:{device}")]);
        }
        for ((device, _), port) in &ports {
            let is_object = self.hops.contains_key(&format!("switch:{device}"));
            if is_object || ends.get(device.as_str()).is_none_or(Vec::is_empty) {
                let hop = self.switch(device, port.vlans.clone(), port.state, port.message.clone());
                places.insert(device, vec![hop]);
            }
        }
        let mut pairs = Vec::new();
        for ((device, _), port) in &ports {
            let Some(LeadsTo::Device { device: other, .. }) = port.leads_to else { continue };
            for one in places.get(device.as_str()).into_iter().flatten() {
                let others = places.get(&**other).into_iter().flatten();
                pairs.extend(others.map(|another| (one.clone(), another.clone())));
            }
        }
        // A node and a gateway on one switch.
        for (device, own) in &ends {
            for one in own {
                let others = places.get(device).into_iter().flatten();
                pairs.extend(others.map(|another| (one.clone(), another.clone())));
            }
        }
        for (one, another) in pairs {
            let tier = |id: &str| self.hops.get(id).map(|hop| hop.tier);
            match tier(&one).cmp(&tier(&another)) {
                Ordering::Less => self.link(&one, &another),
                Ordering::Greater => self.link(&another, &one),
                // Between two spines: both list the link.
                Ordering::Equal if tier(&one) == Some(Tier::Spines) && one < another => {
                    self.link(&one, &another);
                }
                Ordering::Equal => {}
            }
        }
    }

    /// Adds a port to a node or a gateway.
    fn end(&mut self, id: &PortId, port: &Port<'_>) -> Option<String> {
        let (switch, name) = id;
        let (tier, label, detail) = match port.leads_to? {
            LeadsTo::Node { node, interface } => {
                let nic = format!("nic:{node}:{interface}");
                if self.hops.contains_key(&nic) {
                    self.link(&nic, &format!("port:{switch}:{name}"));
                }
                (Tier::Leaves, name.clone(), format!("{switch} to {node}"))
            }
            LeadsTo::PhysicalNetwork(network) => {
                (Tier::Gateways, network.to_string(), format!("{switch} {name}"))
            }
            LeadsTo::Device { .. } => return None,
        };
        Some(self.add(Hop {
            id: format!("port:{switch}:{name}"),
            tier,
            label,
            detail,
            group: format!("FabricDevice/{switch}"),
            state: port.state,
            message: port.message.clone(),
            vlans: port.vlans.clone(),
            mtu: None,
            addresses: Vec::new(),
            part: Part::Port(id.clone()),
        }))
    }

    fn switch(&mut self, name: &str, vlans: VlanSet, state: State, message: String) -> String {
        self.add(Hop {
            id: format!("switch:{name}"),
            tier: Tier::Spines,
            label: name.to_owned(),
            detail: self.inputs.observation.driver_of(name).to_owned(),
            group: format!("FabricDevice/{name}"),
            state,
            message,
            vlans,
            mtu: None,
            addresses: Vec::new(),
            part: Part::Switch(name.to_owned()),
        })
    }
}
