//! Computes the VLANs of switch ports from the cables. Pure.

use std::collections::{BTreeMap, BTreeSet};

use eno_simulator::{Boot, Topology};

use super::model::{ExpectedObjects, World};

/// A port: name of the switch and of the port.
pub(super) type Port = (String, String);

/// The expected configuration of a switch: VLANs with names, and the VLANs of each port.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Carried {
    pub(super) vlans: BTreeMap<u16, String>,
    pub(super) ports: BTreeMap<String, BTreeSet<u16>>,
    /// The operator's VLANs that were removed manually ([`Foreign::taken`]).
    pub(super) taken: BTreeSet<u16>,
}

/// The cables of a leaf–spine fabric.
#[derive(Debug, Clone)]
pub(super) struct Fabric {
    pub(super) switches: Vec<String>,
    /// The switches with a separate startup configuration.
    pub(super) with_startup: BTreeSet<String>,
    nodes: Vec<Port>,
    gateway: Option<Port>,
    /// The links, each with the leaf's port first.
    links: Vec<(Port, Port)>,
}

impl Fabric {
    pub(super) fn new(topology: &Topology) -> Self {
        let end = |end: &eno_simulator::LinkEnd| (end.switch.clone(), end.port.clone());
        let with_startup = topology.switches.iter().filter(|switch| switch.capabilities.startup);
        Self {
            switches: topology.switches.iter().map(|switch| switch.name.clone()).collect(),
            with_startup: with_startup.map(|switch| switch.name.clone()).collect(),
            nodes: topology
                .nodes
                .iter()
                .flat_map(|node| node.interfaces.iter().map(|one| (one.switch.clone(), one.port.clone())))
                .collect(),
            gateway: topology.physical_networks.first().map(|one| (one.switch.clone(), one.port.clone())),
            links: topology.links.iter().map(|link| (end(&link.a), end(&link.b))).collect(),
        }
    }

    /// The switch port of a node.
    pub(super) fn node(&self, node: usize) -> Option<&Port> {
        self.nodes.get(node)
    }

    /// The ports that connect the endpoints. Between several leaves these are all of their links, since every spine is
    /// on a shortest path.
    fn joined(&self, endpoints: BTreeSet<&Port>) -> BTreeSet<Port> {
        let leaves: BTreeSet<&String> = endpoints.iter().map(|(leaf, _)| leaf).collect();
        let mut ports: BTreeSet<Port> = endpoints.into_iter().cloned().collect();
        if leaves.len() > 1 {
            let between = self.links.iter().filter(|((leaf, _), _)| leaves.contains(leaf));
            ports.extend(between.flat_map(|(leaf, spine)| [leaf.clone(), spine.clone()]));
        }
        ports
    }

    /// The expected configuration of every switch.
    pub(super) fn carried(
        &self,
        world: &World,
        expected: &ExpectedObjects,
        foreign: &Foreign,
        prefix: &str,
    ) -> BTreeMap<String, Carried> {
        let mut all: BTreeMap<String, Carried> =
            self.switches.iter().map(|name| (name.clone(), Carried::default())).collect();
        let mut put = |(switch, port): &Port, vid: u16, name: String| {
            let Some(carried) = all.get_mut(switch) else { return };
            carried.vlans.insert(vid, name);
            carried.ports.entry(port.clone()).or_default().insert(vid);
        };
        for (name, end) in &expected.services {
            let Some(service) = &end.realised else { continue };
            let users = expected.attachments.values().filter_map(|end| end.realised.as_ref());
            let points = users.filter(|user| user.services.contains(name)).map(|user| user.point);
            let members = points.filter_map(|point| world.points.get(point)).flat_map(|point| &point.members);
            let nodes = members.filter_map(|node| self.node(*node));
            let gateway = self.gateway.as_ref().filter(|_| service.out);
            for port in self.joined(nodes.chain(gateway).collect()) {
                put(&port, service.vid, format!("{prefix}{}", service.vid));
            }
        }
        for (port, vid) in &foreign.configured {
            put(port, *vid, foreign_name(*vid));
        }
        for (switch, vid) in &foreign.taken {
            all.entry(switch.clone()).or_default().taken.insert(*vid);
        }
        all
    }
}

/// Manual changes of switches.
#[derive(Debug, Clone, Default)]
pub(super) struct Foreign {
    /// Foreign VLANs on ports, which must stay.
    pub(super) configured: BTreeSet<(Port, u16)>,
    /// The operator's VLANs that were removed manually from a switch. If the network is deleted before the VLAN is
    /// restored, its ports keep listing it. The VLAN's name, which marked it as the operator's, is gone.
    pub(super) taken: BTreeSet<(String, u16)>,
}

impl Foreign {
    /// A switch has rebooted; a factory reset also loses the manual changes.
    pub(super) fn rebooted(&mut self, switch: &str, with: Boot) {
        if with == Boot::Factory {
            self.configured.retain(|((on, _), _)| on != switch);
            self.taken.retain(|(on, _)| on != switch);
        }
    }
}

pub(super) fn foreign_name(vid: u16) -> String {
    format!("others-{vid}")
}

#[cfg(test)]
mod tests {
    use eno_nbi_crds::VlanType;

    use super::super::model::{Action, Attachment, Point, Service};
    use super::*;

    fn carried(members: &[usize], out: bool) -> Vec<String> {
        let fabric = Fabric::new(&Topology::leaf_spine(3, 2, 6));
        let point = Point { bridge: 0, members: members.iter().copied().collect() };
        let mut world = World { points: vec![point], ..World::default() };
        world.record(&Action::CreateService(1, Service { vid: 100, out }));
        let services = BTreeSet::from([1]);
        let wanted = Attachment { services, point: 0, vlans: VlanType::Access, dpdk: false };
        world.record(&Action::CreateAttachment(1, wanted));
        let mut foreign = Foreign::default();
        foreign.configured.insert((("spine2".to_owned(), "Ethernet9".to_owned()), 3000));
        let all = fabric.carried(&world, &world.expected(), &foreign, "eno-x-");
        let ports = all.iter().flat_map(|(switch, carried)| {
            carried.ports.iter().map(move |(port, vids)| format!("{switch} {port} {vids:?}"))
        });
        ports.collect()
    }

    #[test]
    fn single_leaf_has_no_spine() {
        assert_eq!(
            carried(&[0, 1], false),
            ["leaf1 Ethernet1 {100}", "leaf1 Ethernet2 {100}", "spine2 Ethernet9 {3000}"]
        );
    }

    #[test]
    fn leaves_are_joined_by_all_spines() {
        let found = carried(&[0], true);
        assert_eq!(
            found,
            [
                "leaf1 Ethernet1 {100}",
                "leaf1 Ethernet49 {100}",
                "leaf1 Ethernet50 {100}",
                "leaf3 Ethernet48 {100}",
                "leaf3 Ethernet49 {100}",
                "leaf3 Ethernet50 {100}",
                "spine1 Ethernet1 {100}",
                "spine1 Ethernet3 {100}",
                "spine2 Ethernet1 {100}",
                "spine2 Ethernet3 {100}",
                "spine2 Ethernet9 {3000}",
            ]
        );
    }
}
