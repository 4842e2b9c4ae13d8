//! Which switch ports carry what, worked out from the cables. Pure.

use std::collections::{BTreeMap, BTreeSet};

use eno_simulator::{Boot, Topology};

use super::model::{Ends, World};

/// A port of a switch, by both names.
pub(super) type Port = (String, String);

/// What a switch has to run: its VLANs by name, and the VLANs on its ports.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Carried {
    pub(super) vlans: BTreeMap<u16, String>,
    pub(super) ports: BTreeMap<String, BTreeSet<u16>>,
    /// VLANs of ours that somebody took away ([`Foreign::taken`]).
    pub(super) taken: BTreeSet<u16>,
}

/// The cables of a leaf–spine.
#[derive(Debug, Clone)]
pub(super) struct Fabric {
    pub(super) switches: Vec<String>,
    /// The switches that come up with a configuration that was saved apart.
    pub(super) with_startup: BTreeSet<String>,
    nodes: Vec<Port>,
    gateway: Option<Port>,
    /// Leaf first.
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

    /// The port that a node hangs on.
    pub(super) fn node(&self, node: usize) -> Option<&Port> {
        self.nodes.get(node)
    }

    /// The ports that join these: between several leaves, all of their links, since every spine is on a shortest way.
    fn joined(&self, ends: BTreeSet<&Port>) -> BTreeSet<Port> {
        let leaves: BTreeSet<&String> = ends.iter().map(|(leaf, _)| leaf).collect();
        let mut ports: BTreeSet<Port> = ends.into_iter().cloned().collect();
        if leaves.len() > 1 {
            let between = self.links.iter().filter(|((leaf, _), _)| leaves.contains(leaf));
            ports.extend(between.flat_map(|(leaf, spine)| [leaf.clone(), spine.clone()]));
        }
        ports
    }

    /// What every switch has to run.
    pub(super) fn carried(
        &self,
        world: &World,
        ends: &Ends,
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
        for (name, end) in &ends.services {
            let Some(service) = &end.realised else { continue };
            let users = ends.attachments.values().filter_map(|end| end.realised.as_ref());
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

/// What others did by hand.
#[derive(Debug, Clone, Default)]
pub(super) struct Foreign {
    /// What they configured, which is to stay.
    pub(super) configured: BTreeSet<(Port, u16)>,
    /// The VLANs of ours that they took from a switch. When the network leaves before the VLAN is put back, its ports go
    /// on listing what is no VLAN any more: the name, which told that it is ours, is gone.
    pub(super) taken: BTreeSet<(String, u16)>,
}

impl Foreign {
    /// A switch came up again: what was configured by hand may be lost with the rest.
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
        world.take(&Action::CreateService(1, Service { vid: 100, out }));
        let services = BTreeSet::from([1]);
        let wanted = Attachment { services, point: 0, vlans: VlanType::Access, dpdk: false };
        world.take(&Action::CreateAttachment(1, wanted));
        let mut foreign = Foreign::default();
        foreign.configured.insert((("spine2".to_owned(), "Ethernet9".to_owned()), 3000));
        let all = fabric.carried(&world, &world.ends(), &foreign, "eno-x-");
        let ports = all.iter().flat_map(|(switch, carried)| {
            carried.ports.iter().map(move |(port, vids)| format!("{switch} {port} {vids:?}"))
        });
        ports.collect()
    }

    #[test]
    fn one_leaf_needs_no_spine() {
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
