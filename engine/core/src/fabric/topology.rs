//! The fabric as a graph: which switch ports lead to which nodes, networks and other switches.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use crate::Name;
use crate::kinds::{DeviceSpec, LeadsTo};

/// Sorted indices into [`crate::fabric::device::DeviceTarget::ports`]. Networks with the same endpoints share them.
pub type Indices = Arc<[u16]>;

/// Ports of switches, by device.
pub type Ports = BTreeMap<Name, Indices>;

/// Adds `more` to `ports`.
pub fn add_ports(ports: &mut Ports, more: &Ports) {
    for (device, indices) in more {
        add_indices(ports, device, indices);
    }
}

fn add_indices(ports: &mut Ports, device: &Name, more: &Indices) {
    match ports.get_mut(device) {
        None => drop(ports.insert(device.clone(), more.clone())),
        Some(own) => {
            if more.iter().all(|index| own.binary_search(index).is_ok()) {
                return;
            }
            let both: BTreeSet<u16> = own.iter().chain(&**more).copied().collect();
            *own = both.into_iter().collect();
        }
    }
}

/// The graph of switches. A port's index is its position among the device's ports sorted by name, which include ports
/// that only the other end of a link names.
#[derive(Debug, Default)]
pub struct Topology {
    /// By device: the names of its ports, sorted.
    ports: BTreeMap<Name, Vec<Name>>,
    /// By device: what its ports lead to, in the same order.
    leads: BTreeMap<Name, Vec<LeadsTo>>,
    /// By node: the ports that lead to it, as NIC, device and port index.
    nodes: HashMap<Name, Vec<(Name, Name, u16)>>,
    /// By PhysicalNetwork: the ports that lead to it.
    networks: HashMap<Name, Ports>,
    /// The links between devices, sorted.
    links: Vec<Link>,
    /// By device: the devices that it has a link to.
    neighbours: HashMap<Name, BTreeSet<Name>>,
    /// By router: its ports to switches. They are no links: no VLAN is led through a router.
    routers: BTreeMap<Name, Vec<RouterPort>>,
    /// By device: the name of its component.
    component: HashMap<Name, Name>,
    /// By device: what is wrong with its links.
    conflicts: BTreeMap<Name, String>,
    /// The results of [`Self::paths_between`], by endpoints.
    path_cache: RefCell<HashMap<Vec<Name>, Arc<Ports>>>,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Link {
    /// The lower end: device and port index.
    a: (Name, u16),
    /// The higher end.
    b: (Name, u16),
}

/// A port of a router that leads to a switch.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct RouterPort {
    /// The LAG that it is a member of, or its own name.
    interface: Name,
    /// Its index.
    port: u16,
    /// The switch and the index of its port.
    far: (Name, u16),
}

impl Topology {
    /// Builds the graph of all devices.
    pub fn new<'a>(devices: impl Iterator<Item = (&'a Name, &'a DeviceSpec)> + Clone) -> Self {
        let mut topology = Self::default();
        let mut listed: BTreeMap<Name, BTreeMap<Name, LeadsTo>> = BTreeMap::new();
        let mut lags: HashMap<(Name, Name), Name> = HashMap::new();
        for (name, spec) in devices {
            if !spec.device.role.is_switch() {
                topology.routers.insert(name.clone(), Vec::new());
                let members = spec.ports.iter().filter_map(|port| Some((port, port.lag.clone()?)));
                lags.extend(members.map(|(port, lag)| ((name.clone(), port.name.clone()), lag)));
            }
            let ports = spec.ports.iter().map(|port| (port.name.clone(), port.leads_to.clone()));
            listed.insert(name.clone(), ports.collect());
        }
        topology.add_far_ends(&mut listed);
        for (device, ports) in &listed {
            topology.ports.insert(device.clone(), ports.keys().cloned().collect());
            topology.leads.insert(device.clone(), ports.values().cloned().collect());
            topology.component.insert(device.clone(), device.clone());
        }
        for (device, ports) in &listed {
            for (index, lead) in (0u16..).zip(ports.values()) {
                topology.add_port(device, index, lead);
            }
        }
        topology.links.sort();
        topology.links.dedup();
        topology.finish_router_ports(&lags);
        topology.name_components();
        topology
    }

    /// Adds links that only one end names, and notes ends that disagree.
    fn add_far_ends(&mut self, listed: &mut BTreeMap<Name, BTreeMap<Name, LeadsTo>>) {
        let ends: Vec<_> = listed
            .iter()
            .flat_map(|(device, ports)| {
                ports.iter().map(move |(port, lead)| (device.clone(), port.clone(), lead.clone()))
            })
            .collect();
        for (device, port, lead) in ends {
            let LeadsTo::Device { device: far, port: far_port } = lead else { continue };
            let back = LeadsTo::Device { device: device.clone(), port: port.clone() };
            let Some(far_ports) = listed.get_mut(&far) else { continue };
            let seen = far_ports.entry(far_port.clone()).or_insert_with(|| back.clone());
            if *seen != back {
                let problem = format!(
                    "spec.Ports[{port}]: it leads to port {far_port} of FabricDevice {far}, which leads elsewhere; correct one of the two"
                );
                self.conflicts.insert(device, problem);
            }
        }
    }

    fn add_port(&mut self, device: &Name, index: u16, lead: &LeadsTo) {
        match lead {
            LeadsTo::Node { .. } | LeadsTo::PhysicalNetwork(_) if self.is_router(device) => {}
            LeadsTo::Node { node, interface } => {
                self.nodes.entry(node.clone()).or_default().push((interface.clone(), device.clone(), index));
            }
            LeadsTo::PhysicalNetwork(network) => {
                add_indices(self.networks.entry(network.clone()).or_default(), device, &[index].into());
            }
            LeadsTo::Device { device: far, port } => {
                let Some(far_index) = self.ports.get(far).and_then(|ports| index_of(ports, port)) else {
                    return;
                };
                if self.is_router(device) || self.is_router(far) {
                    self.add_router_port((device, index), (far, far_index));
                    return self.add_router_port((far, far_index), (device, index));
                }
                let (mut a, mut b) = ((device.clone(), index), (far.clone(), far_index));
                if b < a {
                    std::mem::swap(&mut a, &mut b);
                }
                self.links.push(Link { a, b });
                self.neighbours.entry(device.clone()).or_default().insert(far.clone());
                self.neighbours.entry(far.clone()).or_default().insert(device.clone());
            }
        }
    }

    /// Adds the port of a router that leads to a switch. Routers are not led to each other.
    fn add_router_port(&mut self, (device, port): (&Name, u16), (far, far_port): (&Name, u16)) {
        let interface = self.ports.get(device).and_then(|ports| ports.get(usize::from(port))).cloned();
        if !self.is_router(far)
            && let (Some(interface), Some(ports)) = (interface, self.routers.get_mut(device))
        {
            ports.push(RouterPort { interface, port, far: (far.clone(), far_port) });
        }
    }

    /// Names the LAGs of the ports of routers, by router and port. Both ends of a link may have named it.
    fn finish_router_ports(&mut self, lags: &HashMap<(Name, Name), Name>) {
        for (router, ports) in &mut self.routers {
            for port in ports.iter_mut() {
                if let Some(lag) = lags.get(&(router.clone(), port.interface.clone())) {
                    port.interface = lag.clone();
                }
            }
            ports.sort();
            ports.dedup();
        }
    }

    /// True for a router: no VLAN is led through it.
    pub fn is_router(&self, device: &Name) -> bool {
        self.routers.contains_key(device)
    }

    /// The components that a router has ports to.
    pub fn fabrics_of(&self, router: &Name) -> BTreeSet<&Name> {
        self.routers
            .get(router)
            .into_iter()
            .flatten()
            .filter_map(|port| self.component(&port.far.0))
            .collect()
    }

    /// True when two devices are in one component, or one is a router with a port to that of the other.
    pub fn are_joined(&self, one: &Name, other: &Name) -> bool {
        let leads = |router: &Name, to: &Name| {
            self.component(to).is_some_and(|fabric| self.fabrics_of(router).contains(fabric))
        };
        self.component(one) == self.component(other) || leads(one, other) || leads(other, one)
    }

    /// The ports by which a VLAN is led to a router from one of `fabrics`, or from any when that is empty: one of the
    /// router, and those at the other ends of its interface. `Err`: why there are none, as a sentence.
    pub fn router_ports(&self, router: &Name, fabrics: &BTreeSet<&Name>) -> Result<Ports, String> {
        let leads = |port: &&RouterPort| {
            fabrics.is_empty() || self.component(&port.far.0).is_some_and(|fabric| fabrics.contains(fabric))
        };
        let ports: Vec<&RouterPort> = self.routers.get(router).into_iter().flatten().filter(leads).collect();
        let Some(first) = ports.first() else {
            let whose = fabrics
                .first()
                .map_or_else(String::new, |name| format!(" to the fabric of FabricDevice {name}"));
            return Err(format!(
                "no port of FabricDevice {router} leads{whose}: name the link in its Ports, with Device and Port"
            ));
        };
        if let Some(other) = ports.iter().find(|port| port.interface != first.interface) {
            return Err(format!(
                "{} and {} of FabricDevice {router} both lead to the service's fabric, and a VLAN is on one interface of a \
                 router: make them one Lag, or name only one of them in its Ports",
                first.interface, other.interface
            ));
        }
        let mut led = Ports::from([(router.clone(), [first.port].into())]);
        for port in ports {
            add_indices(&mut led, &port.far.0, &[port.far.1].into());
        }
        Ok(led)
    }

    /// Names each component after its first device.
    fn name_components(&mut self) {
        let mut named: BTreeSet<Name> = BTreeSet::new();
        for device in self.ports.keys() {
            if named.contains(device) {
                continue;
            }
            for reached in self.distances(device).into_keys() {
                self.component.insert(reached.clone(), device.clone());
                named.insert(reached);
            }
        }
    }

    fn distances(&self, from: &Name) -> HashMap<Name, u32> {
        let mut distances = HashMap::from([(from.clone(), 0)]);
        let mut queue = VecDeque::from([from.clone()]);
        while let Some(device) = queue.pop_front() {
            let next = distances[&device] + 1;
            for neighbour in self.neighbours.get(&device).into_iter().flatten() {
                if !distances.contains_key(neighbour) {
                    distances.insert(neighbour.clone(), next);
                    queue.push_back(neighbour.clone());
                }
            }
        }
        distances
    }

    /// True when both are the same graph.
    pub fn same(&self, other: &Self) -> bool {
        self.ports == other.ports
            && self.leads == other.leads
            && self.conflicts == other.conflicts
            && self.routers == other.routers
    }

    /// The names of a device's ports, by index.
    pub fn port_names(&self, device: &Name) -> &[Name] {
        self.ports.get(device).map_or(&[], Vec::as_slice)
    }

    /// What a port of a device leads to.
    pub fn leads_to(&self, device: &Name, index: u16) -> Option<&LeadsTo> {
        self.leads.get(device)?.get(usize::from(index))
    }

    /// The nodes at ports of a switch.
    pub fn nodes_at(&self, device: &Name) -> BTreeSet<&Name> {
        let leads = self.leads.get(device).filter(|_| !self.is_router(device));
        let nodes = leads.into_iter().flatten().filter_map(|lead| match lead {
            LeadsTo::Node { node, .. } => Some(node),
            LeadsTo::Device { .. } | LeadsTo::PhysicalNetwork(_) => None,
        });
        nodes.collect()
    }

    /// The connected component of the device, named after its first device.
    pub fn component(&self, device: &Name) -> Option<&Name> {
        self.component.get(device)
    }

    /// The problem with the links of a device.
    pub fn conflict(&self, device: &Name) -> Option<&str> {
        self.conflicts.get(device).map(String::as_str)
    }

    /// The switch ports of a node's NICs: of those in `nics`, or of all when it is empty.
    pub fn node_ports(&self, node: &Name, nics: &[&str]) -> Ports {
        let mut ports = Ports::new();
        for (nic, device, index) in self.nodes.get(node).into_iter().flatten() {
            if nics.is_empty() || nics.contains(&&**nic) {
                add_indices(&mut ports, device, &[*index].into());
            }
        }
        ports
    }

    /// True when a port leads to this NIC of the node.
    pub fn has_nic(&self, node: &Name, nic: &str) -> bool {
        self.nodes.get(node).is_some_and(|ports| ports.iter().any(|(name, ..)| **name == *nic))
    }

    /// The ports that lead to a network outside the fabric.
    pub fn network_ports(&self, network: &Name) -> Option<&Ports> {
        self.networks.get(network)
    }

    /// Groups the switches of `ends` by connected part of the fabric. Links join parts, and so does each of
    /// `networks` with ports in several.
    pub fn parts<'a>(
        &self,
        ends: impl IntoIterator<Item = &'a Name>,
        networks: impl IntoIterator<Item = &'a Ports>,
    ) -> Vec<BTreeSet<Name>> {
        let component = |device: &Name| self.component.get(device);
        let ends = ends.into_iter().map(|device| {
            (component(device).into_iter().collect::<BTreeSet<_>>(), BTreeSet::from([device.clone()]))
        });
        let networks =
            networks.into_iter().map(|ports| (ports.keys().filter_map(component).collect(), BTreeSet::new()));
        let mut parts: Vec<(BTreeSet<&Name>, BTreeSet<Name>)> = Vec::new();
        for (mut components, mut devices) in ends.chain(networks) {
            parts.retain_mut(|part| {
                let apart = part.0.is_disjoint(&components);
                if !apart {
                    components.append(&mut part.0);
                    devices.append(&mut part.1);
                }
                apart
            });
            parts.push((components, devices));
        }
        let mut parts: Vec<_> = parts.into_iter().map(|(_, devices)| devices).collect();
        parts.retain(|devices| !devices.is_empty());
        parts.sort();
        parts
    }

    /// The ports of all links between the switches of `ends`: those among the switches on any shortest path between
    /// two of them. So a leaf–spine keeps all of its redundancy.
    pub fn paths_between<'a>(&self, ends: impl Iterator<Item = &'a Name>) -> Arc<Ports> {
        let ends = ends.filter(|end| !self.is_router(end));
        let ends: Vec<Name> = ends.cloned().collect::<BTreeSet<_>>().into_iter().collect();
        if ends.len() < 2 {
            return Arc::default();
        }
        if let Some(known) = self.path_cache.borrow().get(&ends) {
            return known.clone();
        }
        let distances: Vec<HashMap<Name, u32>> = ends.iter().map(|end| self.distances(end)).collect();
        let on_shortest_path = |device: &Name| {
            distances.iter().enumerate().any(|(i, from_a)| {
                distances.iter().zip(&ends).skip(i + 1).any(|(from_b, b)| {
                    matches!((from_a.get(device), from_b.get(device), from_a.get(b)),
                        (Some(x), Some(y), Some(whole)) if x + y == *whole)
                })
            })
        };
        let devices: BTreeSet<&Name> = self.ports.keys().filter(|device| on_shortest_path(device)).collect();
        let mut indices: BTreeMap<&Name, BTreeSet<u16>> = BTreeMap::new();
        for Link { a, b } in &self.links {
            if devices.contains(&a.0) && devices.contains(&b.0) {
                for (device, index) in [a, b] {
                    indices.entry(device).or_default().insert(*index);
                }
            }
        }
        let indices = indices.into_iter();
        let ports: Ports =
            indices.map(|(device, indices)| (device.clone(), indices.into_iter().collect())).collect();
        let ports = Arc::new(ports);
        self.path_cache.borrow_mut().insert(ends, ports.clone());
        ports
    }
}

fn index_of(ports: &[Name], port: &Name) -> Option<u16> {
    ports.iter().position(|name| name == port).and_then(|index| u16::try_from(index).ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::DevicePort;
    use eno_schemas::{Device, PortMode};

    fn device(ports: &[(&str, LeadsTo)]) -> DeviceSpec {
        DeviceSpec {
            driver: "netconf".into(),
            device: Device::new("x:830"),
            ports: ports
                .iter()
                .map(|(name, leads_to)| DevicePort {
                    name: (*name).into(),
                    mode: PortMode::Keep,
                    lag: None,
                    leads_to: leads_to.clone(),
                })
                .collect(),
        }
    }

    fn link(device: &str, port: &str) -> LeadsTo {
        LeadsTo::Device { device: device.into(), port: port.into() }
    }

    fn node(name: &str) -> LeadsTo {
        LeadsTo::Node { node: name.into(), interface: "eth1".into() }
    }

    fn leaf_spine() -> Vec<(Name, DeviceSpec)> {
        let mut devices: Vec<(Name, DeviceSpec)> = ["leaf1", "leaf2", "leaf3"]
            .iter()
            .map(|leaf| {
                let node = node(&leaf.replace("leaf", "node"));
                let far = format!("p-{leaf}");
                (
                    (*leaf).into(),
                    device(&[("n", node), ("u1", link("spine1", &far)), ("u2", link("spine2", &far))]),
                )
            })
            .collect();
        // The spines name none of their links: it is enough that the leaves do.
        devices.push(("spine1".into(), device(&[])));
        devices.push(("spine2".into(), device(&[("gw", LeadsTo::PhysicalNetwork("dc".into()))])));
        devices.push(("alone".into(), device(&[("n", node("node9"))])));
        devices
    }

    fn names(topology: &Topology, ports: &Ports) -> Vec<String> {
        ports
            .iter()
            .flat_map(|(device, indices)| {
                indices
                    .iter()
                    .map(move |i| format!("{device}:{}", topology.port_names(device)[usize::from(*i)]))
            })
            .collect()
    }

    #[test]
    fn paths_between_leaves_use_all_shortest_paths() {
        let devices = leaf_spine();
        let topology = Topology::new(devices.iter().map(|(name, spec)| (name, spec)));
        let paths = |ends: &[&str]| {
            let ends: Vec<Name> = ends.iter().map(|end| Name::from(*end)).collect();
            names(&topology, &topology.paths_between(ends.iter()))
        };
        assert_eq!(
            paths(&["leaf1", "leaf3"]),
            [
                "leaf1:u1",
                "leaf1:u2",
                "leaf3:u1",
                "leaf3:u2",
                "spine1:p-leaf1",
                "spine1:p-leaf3",
                "spine2:p-leaf1",
                "spine2:p-leaf3"
            ]
        );
        assert_eq!(paths(&["leaf2", "spine2"]), ["leaf2:u2", "spine2:p-leaf2"]);
        assert!(paths(&["leaf1"]).is_empty());
        assert!(paths(&["leaf1", "alone"]).is_empty());
        assert_eq!(topology.component(&"spine2".into()), Some(&"leaf1".into()));
        assert_eq!(topology.component(&"alone".into()), Some(&"alone".into()));
        assert_eq!(names(&topology, &topology.node_ports(&"node2".into(), &["eth1"])), ["leaf2:n"]);
        assert!(topology.node_ports(&"node2".into(), &["eth0"]).is_empty());
        assert_eq!(names(&topology, topology.network_ports(&"dc".into()).unwrap()), ["spine2:gw"]);
    }

    #[test]
    fn parts_are_joined_by_links_and_physical_networks() {
        let mut devices = leaf_spine();
        for (name, leads_to) in [("plane", LeadsTo::PhysicalNetwork("dc".into())), ("other", node("node8"))] {
            devices.push((name.into(), device(&[("1", leads_to)])));
        }
        let topology = Topology::new(devices.iter().map(|(name, spec)| (name, spec)));
        let parts = |ends: &[&str], network: Option<&str>| {
            let ends: Vec<Name> = ends.iter().map(|end| Name::from(*end)).collect();
            let network = network.and_then(|name| topology.network_ports(&name.into()));
            let parts = topology.parts(&ends, network);
            parts
                .iter()
                .map(|part| part.iter().map(|name| &**name).collect::<Vec<_>>().join(" "))
                .collect::<Vec<_>>()
        };
        assert!(parts(&[], Some("dc")).is_empty());
        assert_eq!(parts(&["leaf1", "leaf3"], None), ["leaf1 leaf3"]);
        assert_eq!(parts(&["plane", "leaf1", "leaf3"], None), ["leaf1 leaf3", "plane"]);
        assert_eq!(parts(&["plane", "leaf1", "leaf3"], Some("dc")), ["leaf1 leaf3 plane"]);
        assert_eq!(
            parts(&["leaf2", "other", "plane", "alone"], Some("dc")),
            ["alone", "leaf2 plane", "other"]
        );
        assert_eq!(topology.component(&"plane".into()), Some(&"plane".into()), "an ID is still unique there");
    }

    #[test]
    fn ends_of_a_link_that_disagree_are_a_conflict() {
        let devices: Vec<(Name, DeviceSpec)> =
            vec![("a".into(), device(&[("1", link("b", "1"))])), ("b".into(), device(&[("1", node("n"))]))];
        let topology = Topology::new(devices.iter().map(|(name, spec)| (name, spec)));
        assert!(topology.conflict(&"a".into()).unwrap().contains("leads elsewhere"));
        assert!(topology.conflict(&"b".into()).is_none());
    }
}
