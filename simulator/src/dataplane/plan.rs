//! Plans the data plane: a bridge per switch and an interface per connected port. Does no IO.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use crate::dataplane::{DataPlaneError, PortWire};
use crate::topology::{LinkEnd, Topology};

/// The RSTP bridge priority of a bridge that is not preferred as root.
const LOW_PRIORITY: u16 = 0x8000;

/// The bridges and interfaces of the data plane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Plan {
    /// In the order of the topology.
    pub(super) bridges: Vec<Bridge>,
}

/// The bridge of a switch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Bridge {
    /// The switch's name.
    pub(super) switch: String,
    /// The bridge's name: `sw` and the switch's number.
    pub(super) name: String,
    /// The switch's number, from 1.
    pub(super) number: usize,
    /// RSTP bridge priority, a multiple of 4096; the lowest becomes the root.
    pub(super) priority: u16,
    /// Its connected ports.
    pub(super) ports: Vec<Port>,
}

impl Bridge {
    /// The name of the second bridge of the switch: that of the interfaces of VRFs. A new port of a bridge with RSTP
    /// would not forward for seconds, and without RSTP it gets no broadcasts.
    pub(super) fn vrf_bridge(&self) -> String {
        format!("{}vrf", self.name)
    }

    /// The interface of the second bridge that is connected to the first.
    pub(super) fn vrf_uplink(&self) -> String {
        format!("{}u", self.name)
    }

    /// The interface of the bridge that is connected to the second one.
    pub(super) fn vrf_downlink(&self) -> String {
        format!("{}d", self.name)
    }
}

/// A connected port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Port {
    /// Its name in the topology.
    pub(super) name: String,
    /// Its number on the switch, from 1.
    pub(super) number: usize,
    /// Its interface name: the bridge's name, `p` and the port's number.
    pub(super) interface: String,
    /// The other end of its link.
    pub(super) peer: Peer,
}

/// The other end of a port's link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Peer {
    /// Another switch port.
    Port {
        /// The switch and port.
        end: LinkEnd,
        /// Its interface.
        interface: String,
    },
    /// An external interface.
    Outside {
        /// Path of its network namespace; that of the simulator if absent.
        netns: Option<PathBuf>,
        /// The interface's name there.
        interface: String,
    },
}

impl Plan {
    /// Plans the data plane of a topology with external interfaces.
    pub(super) fn new(topology: &Topology, wires: &[PortWire]) -> Result<Self, DataPlaneError> {
        let interfaces = interfaces(topology);
        let mut peers = BTreeMap::new();
        for link in &topology.links {
            for (here, there) in [(&link.a, &link.b), (&link.b, &link.a)] {
                let peer = Peer::Port { end: there.clone(), interface: interfaces[there].interface.clone() };
                peers.insert(here.clone(), peer);
            }
        }
        let mut outside = BTreeSet::new();
        for wire in wires {
            let end = LinkEnd { switch: wire.switch.clone(), port: wire.port.clone() };
            if !interfaces.contains_key(&end) {
                return Err(DataPlaneError::NoSuchPort { wire: wire.clone() });
            }
            let (netns, interface) = (wire.netns.clone(), wire.interface.clone());
            if !outside.insert((netns.clone(), interface.clone())) {
                return Err(DataPlaneError::InterfaceTwice { wire: wire.clone() });
            }
            if peers.insert(end, Peer::Outside { netns, interface }).is_some() {
                return Err(DataPlaneError::PortTaken { wire: wire.clone() });
            }
        }
        let bridges = topology.switches.iter().zip(1..).map(|(spec, number)| {
            let ports = spec.ports.iter().filter_map(|port| {
                let end = LinkEnd { switch: spec.name.clone(), port: port.clone() };
                let PortInterface { number, interface } = interfaces[&end].clone();
                Some(Port { name: port.clone(), number, interface, peer: peers.remove(&end)? })
            });
            Bridge {
                switch: spec.name.clone(),
                name: bridge_name(number),
                number,
                // A router is no root: it would change with its links.
                priority: if spec.role.is_switch() { 0 } else { LOW_PRIORITY },
                ports: ports.collect(),
            }
        });
        let mut bridges: Vec<_> = bridges.collect();
        set_root_priorities(&mut bridges);
        Ok(Self { bridges })
    }

    /// All ports, with their bridges.
    pub(super) fn ports(&self) -> impl Iterator<Item = (&Bridge, &Port)> {
        self.bridges.iter().flat_map(|bridge| bridge.ports.iter().map(move |port| (bridge, port)))
    }
}

/// Prefers the switches with the most links, the spines of a leaf-spine, as RSTP root. Then no path between two
/// leaves crosses a third one.
fn set_root_priorities(bridges: &mut [Bridge]) {
    let links =
        |bridge: &Bridge| bridge.ports.iter().filter(|port| matches!(port.peer, Peer::Port { .. })).count();
    // A switch with external interfaces is a leaf, regardless of its number of links.
    let rank = |bridge: &Bridge| (bridge.ports.len() == links(bridge), links(bridge));
    let switches = bridges.iter().filter(|bridge| bridge.priority == 0);
    let Some(best) = switches.map(rank).max() else { return };
    for bridge in bridges.iter_mut().filter(|bridge| bridge.priority == 0) {
        bridge.priority = if rank(bridge) == best { 0x7000 } else { LOW_PRIORITY };
    }
}

#[derive(Clone)]
struct PortInterface {
    number: usize,
    interface: String,
}

fn bridge_name(number: usize) -> String {
    format!("sw{number}")
}

/// The interface of each port. Its name has numbers instead of port names to fit into the kernel's 15 bytes.
fn interfaces(topology: &Topology) -> BTreeMap<LinkEnd, PortInterface> {
    let switches = topology.switches.iter().zip(1..);
    let ports = switches.flat_map(|(spec, switch)| {
        spec.ports.iter().zip(1..).map(move |(port, number)| {
            let end = LinkEnd { switch: spec.name.clone(), port: port.clone() };
            (end, PortInterface { number, interface: format!("{}p{number}", bridge_name(switch)) })
        })
    });
    ports.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wire(text: &str) -> PortWire {
        text.parse().expect(text)
    }

    #[test]
    fn plan_gives_connected_ports_interfaces_and_prefers_spines_as_root() {
        let wires = [wire("leaf1/Ethernet1=/run/netns/a:eth1"), wire("leaf2/Ethernet48=gw0")];
        let plan = Plan::new(&Topology::leaf_spine(2, 2, 4), &wires).expect("it fits");
        let shown: Vec<_> =
            plan.ports().map(|(bridge, port)| (bridge.switch.as_str(), &*port.interface)).collect();
        let expected = [
            ("leaf1", "sw1p1"),
            ("leaf1", "sw1p49"),
            ("leaf1", "sw1p50"),
            ("leaf2", "sw2p48"),
            ("leaf2", "sw2p49"),
            ("leaf2", "sw2p50"),
            ("spine1", "sw3p1"),
            ("spine1", "sw3p2"),
            ("spine2", "sw4p1"),
            ("spine2", "sw4p2"),
        ];
        assert_eq!(shown, expected);
        let uplink = &plan.bridges[0].ports[2];
        let spine2 = LinkEnd { switch: "spine2".to_owned(), port: "Ethernet1".to_owned() };
        assert_eq!(uplink.peer, Peer::Port { end: spine2, interface: "sw4p1".to_owned() });
        let priorities: Vec<_> = plan.bridges.iter().map(|bridge| bridge.priority).collect();
        assert_eq!(priorities, [0x8000, 0x8000, 0x7000, 0x7000]);
    }

    #[test]
    fn plan_refuses_invalid_wires() {
        let cases = [
            (vec!["leaf9/Ethernet1=a"], "no port"),
            (vec!["leaf1/Ethernet51=a"], "no port"),
            (vec!["leaf1/Ethernet49=a"], "taken"),
            (vec!["leaf1/Ethernet1=a", "leaf1/Ethernet1=b"], "taken"),
            (vec!["leaf1/Ethernet1=/n:a", "leaf1/Ethernet2=/n:a"], "twice"),
        ];
        for (wires, expected) in cases {
            let wires: Vec<_> = wires.into_iter().map(wire).collect();
            let error = Plan::new(&Topology::leaf_spine(2, 2, 4), &wires).expect_err(expected).to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
