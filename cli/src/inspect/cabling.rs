//! Where the ports of switches lead, by the FabricDevices.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use eno_engine::forecast::{ClusterState, Kind};
use eno_nbi_crds::FabricDevice;
use kube::ResourceExt as _;

/// A port of a switch: FabricDevice and port.
pub(crate) type PortId = (String, String);

/// What is at the other end of a port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum End {
    /// A node, and its NIC if it is named.
    Node(String, Option<String>),
    /// A PhysicalNetwork.
    Network(String),
    /// A switch, and its port if it is named.
    Device(String, Option<String>),
}

/// A listed port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Port {
    /// The LAG that it is a member of.
    pub lag: Option<String>,
    /// What it leads to; `None`: nothing is named.
    pub end: Option<End>,
}

/// A cable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    /// The port of the one switch.
    pub port: PortId,
    /// What it leads to.
    pub end: End,
}

impl Link {
    /// Identifies the link: `device:port`.
    pub(crate) fn id(&self) -> String {
        format!("{}:{}", self.port.0, self.port.1)
    }

    /// The port of the other switch, if that is named.
    pub(crate) fn other(&self) -> Option<PortId> {
        match &self.end {
            End::Device(device, Some(port)) => Some((device.clone(), port.clone())),
            _ => None,
        }
    }
}

/// The ports and cables of all switches.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Cabling {
    /// The listed ports.
    pub ports: BTreeMap<PortId, Port>,
    /// Every cable once, though both ends may list it.
    pub links: Vec<Link>,
    /// How many switches are between each switch and the next node or network: 0 for leaves, 1 for spines.
    pub levels: BTreeMap<String, usize>,
}

impl Cabling {
    /// The cabling by the FabricDevices. Pure.
    pub(crate) fn new(world: &ClusterState) -> Self {
        let mut cabling = Self::default();
        let mut devices = BTreeSet::new();
        let objects = world.keys().filter(|key| key.kind == Kind::FabricDevice);
        for object in objects.filter_map(|key| world.object(key)) {
            let Ok(device) = object.clone().try_parse::<FabricDevice>() else { continue };
            let name = device.name_any();
            for port in device.spec.ports {
                let end = match (port.node, port.physical_nw, port.device) {
                    (Some(node), ..) => Some(End::Node(node, port.interface)),
                    (_, Some(network), _) => Some(End::Network(network)),
                    (.., Some(device)) => Some(End::Device(device, port.port)),
                    _ => None,
                };
                cabling.ports.insert((name.clone(), port.name), Port { lag: port.lag, end });
            }
            devices.insert(name);
        }
        cabling.links = links(&cabling.ports);
        cabling.levels = levels(&devices, &cabling.links);
        cabling
    }
}

fn links(ports: &BTreeMap<PortId, Port>) -> Vec<Link> {
    let mut links: Vec<Link> = Vec::new();
    let mut seen: BTreeSet<PortId> = BTreeSet::new();
    for (port, Port { end, .. }) in ports {
        let Some(end) = end.clone().filter(|_| !seen.contains(port)) else { continue };
        let link = Link { port: port.clone(), end };
        // The other end may name this one without a port.
        let is_known = links.iter().any(|known| match (&known.end, link.other()) {
            (End::Device(device, None), Some((other, _))) => *device == port.0 && known.port.0 == other,
            _ => false,
        });
        seen.extend(link.other());
        if !is_known {
            links.push(link);
        }
    }
    links
}

fn levels(devices: &BTreeSet<String>, links: &[Link]) -> BTreeMap<String, usize> {
    let mut neighbours: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let mut levels: BTreeMap<String, usize> = BTreeMap::new();
    for Link { port: (device, _), end } in links {
        match end {
            End::Device(other, _) => {
                neighbours.entry(device).or_default().insert(other);
                neighbours.entry(other).or_default().insert(device);
            }
            End::Node(..) | End::Network(_) => drop(levels.insert(device.clone(), 0)),
        }
    }
    let mut next: VecDeque<String> = levels.keys().cloned().collect();
    while let Some(device) = next.pop_front() {
        let level = levels.get(&device).copied().unwrap_or_default() + 1;
        for other in neighbours.get(device.as_str()).into_iter().flatten() {
            if devices.contains(*other) && !levels.contains_key(*other) {
                levels.insert((*other).to_owned(), level);
                next.push_back((*other).to_owned());
            }
        }
    }
    // A leaf without a node is as far from nodes as a switch above the spines. Its name tells: leaf9 is like leaf1.
    let stem = |name: &str| name.trim_end_matches(|c: char| c.is_ascii_digit()).to_owned();
    let leaves: BTreeSet<String> =
        levels.iter().filter(|(_, level)| **level == 0).map(|(name, _)| stem(name)).collect();
    for device in devices {
        let level = levels.entry(device.clone()).or_default();
        if leaves.contains(&stem(device)) {
            *level = 0;
        }
    }
    levels
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cables_count_once_and_levels_by_distance() {
        let id = |device: &str, port: &str| (device.to_owned(), port.to_owned());
        let port = |end| Port { lag: None, end: Some(end) };
        let device = |device: &str, port: &str| End::Device(device.into(), Some(port.into()));
        let ports = BTreeMap::from([
            (id("leaf1", "1"), port(End::Node("node1".into(), Some("eth1".into())))),
            (id("leaf1", "49"), port(device("spine1", "1"))),
            (id("spine1", "1"), port(device("leaf1", "49"))),
            (id("spine1", "9"), port(End::Device("super1".into(), None))),
        ]);
        let links = links(&ports);
        let ids: Vec<String> = links.iter().map(Link::id).collect();
        assert_eq!(ids, ["leaf1:1", "leaf1:49", "spine1:9"]);
        let links = [links, vec![Link { port: id("leaf2", "49"), end: device("spine1", "2") }]].concat();
        let devices = ["alone", "leaf1", "leaf2", "spine1", "super1"].map(str::to_owned).into();
        let levels = levels(&devices, &links);
        let expected = [("alone", 0), ("leaf1", 0), ("leaf2", 0), ("spine1", 1), ("super1", 2)];
        assert_eq!(levels, expected.map(|(name, level)| (name.to_owned(), level)).into());
    }
}
