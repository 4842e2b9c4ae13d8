//! The graph of a VLAN, and what is on the paths of a probe.
//!
//! A *segment* is a block of the graph between switches and PhysicalNetworks, or one thing at the end of a path: a port,
//! a link to a router, or the end itself. So a segment with one fault is on all paths that lead over it, and each fault
//! of another segment is on some of them.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::Name;
use crate::kinds::LeadsTo;

use super::blocks::Blocks;
use super::{Fault, Gateway, Ports, ProbeEnd, Topology};

/// A port of a switch.
type Port<'a> = (&'a Name, u16);

/// A vertex of the graph, and the segment between it and an end if there is one.
type Way = (usize, Option<usize>);

/// The segments on the paths of a probe.
#[derive(Debug, Default)]
pub struct Route {
    /// On some path.
    pub any: BTreeSet<usize>,
    /// The only fault of each is on every path.
    pub all: BTreeSet<usize>,
}

/// The graph of a VLAN.
pub struct Graph<'a> {
    pub topology: &'a Topology,
    ports: &'a Ports,
    /// Switches, and PhysicalNetworks with several ports.
    vertices: HashMap<Vertex<'a>, usize>,
    blocks: Blocks,
    /// The ways to each node.
    nodes: BTreeMap<&'a Name, BTreeSet<Way>>,
    /// The ways to each router.
    routers: BTreeMap<&'a Name, BTreeSet<Way>>,
    /// By segment: its faults. Blocks come first.
    segments: Vec<Vec<Fault>>,
    /// The segments that are no blocks, by their fault.
    singles: HashMap<Fault, usize>,
    /// Ends of which no way is known.
    placeless: BTreeSet<usize>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Vertex<'a> {
    Switch(&'a Name),
    Network(&'a Name),
}

/// An end of a probe.
struct End {
    ways: BTreeSet<Way>,
    /// The end itself, where no single port stands for it.
    own: Option<usize>,
}

impl<'a> Graph<'a> {
    /// Builds the graph of a VLAN that `ports` carry.
    pub fn new(topology: &'a Topology, ports: &'a Ports) -> Self {
        let mut graph = Self {
            topology,
            ports,
            vertices: HashMap::new(),
            blocks: Blocks::new(0, &[]),
            nodes: BTreeMap::new(),
            routers: BTreeMap::new(),
            segments: Vec::new(),
            singles: HashMap::new(),
            placeless: BTreeSet::new(),
        };
        let switches = ports.keys().filter(|device| !topology.is_router(device));
        graph.vertices = switches.map(Vertex::Switch).zip(0..).collect();
        let mut edges: BTreeMap<Fault, (usize, usize)> = BTreeMap::new();
        let mut networks: BTreeMap<&Name, Vec<Port<'a>>> = BTreeMap::new();
        let mut ends: Vec<(Port<'a>, &'a LeadsTo)> = Vec::new();
        for port in graph.carrying() {
            match topology.leads_to(port.0, port.1) {
                Some(LeadsTo::PhysicalNetwork(name)) => networks.entry(name).or_default().push(port),
                Some(lead @ (LeadsTo::Node { .. } | LeadsTo::Device { .. })) => {
                    match graph.far_switch(port) {
                        Some(far) => drop(edges.insert(graph.fault(port), (graph.switch(port.0), far))),
                        None => ends.push((port, lead)),
                    }
                }
                None => {}
            }
        }
        for (name, ports) in networks.into_iter().filter(|(_, ports)| ports.len() > 1) {
            let network = graph.vertices.len();
            graph.vertices.insert(Vertex::Network(name), network);
            edges.extend(ports.into_iter().map(|port| (graph.fault(port), (graph.switch(port.0), network))));
        }
        graph.find_blocks(&edges);
        for (port, lead) in ends {
            let way = graph.way_by(port);
            match lead {
                LeadsTo::Node { node, .. } => drop(graph.nodes.entry(node).or_default().insert(way)),
                LeadsTo::Device { device, .. } => drop(graph.routers.entry(device).or_default().insert(way)),
                LeadsTo::PhysicalNetwork(_) => {}
            }
        }
        graph
    }

    /// The ports of switches that carry the VLAN.
    fn carrying(&self) -> impl Iterator<Item = Port<'a>> + use<'a> {
        let (ports, topology) = (self.ports, self.topology);
        let switches = ports.iter().filter(|(device, _)| !topology.is_router(device));
        switches.flat_map(|(device, indices)| indices.iter().map(move |index| (device, *index)))
    }

    /// The vertex of a switch that carries the VLAN.
    fn switch(&self, name: &Name) -> usize {
        self.vertices[&Vertex::Switch(name)]
    }

    /// The port at the other end of a link.
    fn far_end(&self, (device, index): Port<'_>) -> Option<(&'a Name, u16)> {
        let LeadsTo::Device { device: far, port } = self.topology.leads_to(device, index)? else {
            return None;
        };
        let far_index = self.topology.port_names(far).binary_search(port).ok()?;
        Some((far, u16::try_from(far_index).ok()?))
    }

    /// The switch at the other end of a link, if the VLAN is led over that.
    fn far_switch(&self, port: Port<'_>) -> Option<usize> {
        let (far, index) = self.far_end(port)?;
        let carries = self.ports.get(far)?.binary_search(&index).is_ok();
        self.vertices.get(&Vertex::Switch(far)).copied().filter(|_| carries)
    }

    /// The fault of a port, or of the link that it is an end of.
    fn fault(&self, port: Port<'_>) -> Fault {
        let own = (port.0.clone(), port.1);
        match self.far_end(port).map(|(far, index)| (far.clone(), index)) {
            None => Fault::Port(own),
            Some(far) if far < own => Fault::Link(far, own),
            Some(far) => Fault::Link(own, far),
        }
    }

    fn find_blocks(&mut self, edges: &BTreeMap<Fault, (usize, usize)>) {
        let (faults, edges): (Vec<&Fault>, Vec<(usize, usize)>) = edges.iter().unzip();
        self.blocks = Blocks::new(self.vertices.len(), &edges);
        let faults_of = |edges: &Vec<usize>| {
            let mut faults: Vec<Fault> = edges.iter().map(|edge| faults[*edge].clone()).collect();
            faults.sort();
            faults
        };
        self.segments = self.blocks.edges.iter().map(faults_of).collect();
    }

    /// The segment of something at the end of a path.
    fn single(&mut self, fault: Fault) -> usize {
        *self.singles.entry(fault).or_insert_with_key(|fault| {
            self.segments.push(vec![fault.clone()]);
            self.segments.len() - 1
        })
    }

    /// The way over a port to what it leads to.
    fn way_by(&mut self, port: Port<'_>) -> Way {
        let fault = self.fault(port);
        (self.switch(port.0), Some(self.single(fault)))
    }

    /// The faults of a segment.
    pub fn faults(&self, segment: usize) -> &[Fault] {
        &self.segments[segment]
    }

    /// True for a block.
    pub fn is_block(&self, segment: usize) -> bool {
        segment < self.blocks.edges.len()
    }

    /// True for an end of which no way is known: it stands for what leads to it too.
    pub fn includes_its_way(&self, segment: usize) -> bool {
        self.placeless.contains(&segment)
    }

    /// The segments of the ends of a probe themselves.
    pub fn ends(&mut self, from: &Name, to: &ProbeEnd) -> BTreeSet<usize> {
        let to = match to {
            ProbeEnd::Node(name) => Fault::Node(name.clone()),
            ProbeEnd::Gateway(gateway) => Fault::Gateway(gateway.label.clone()),
        };
        BTreeSet::from([self.single(Fault::Node(from.clone())), self.single(to)])
    }

    /// The segments on the paths of a probe. There are none if no path is known.
    pub fn route(&mut self, from: &Name, to: &ProbeEnd) -> Route {
        let from = self.node(from);
        let to = match to {
            ProbeEnd::Node(name) => self.node(name),
            ProbeEnd::Gateway(gateway) => self.gateway(gateway),
        };
        let mut route = if from.ways.is_empty() || to.ways.is_empty() {
            self.route_into_the_unknown(&from.ways.union(&to.ways).copied().collect())
        } else {
            match self.route_between(&from.ways, &to.ways) {
                Some(route) => route,
                None => return Route::default(),
            }
        };
        for own in [from.own, to.own].into_iter().flatten() {
            route.any.insert(own);
            route.all.insert(own);
        }
        route.all.retain(|segment| self.segments[*segment].len() == 1);
        route
    }

    /// The segments between the vertices of some ways and an end that may be anywhere.
    fn route_into_the_unknown(&self, ways: &BTreeSet<Way>) -> Route {
        let ports = || ways.iter().filter_map(|(_, port)| *port);
        let blocks = ways.iter().flat_map(|(vertex, _)| self.blocks.around(*vertex));
        let all = if ways.len() == 1 { ports().collect() } else { BTreeSet::new() };
        Route { any: blocks.chain(ports()).collect(), all }
    }

    /// The segments between two ends. `None`: no path joins them.
    fn route_between(&self, from: &BTreeSet<Way>, to: &BTreeSet<Way>) -> Option<Route> {
        let mut route: Option<Route> = None;
        for (a, first) in from {
            for (b, last) in to {
                let Some(mut path) = self.blocks.between(*a, *b) else { continue };
                path.extend([*first, *last].into_iter().flatten());
                let Some(route) = &mut route else {
                    route = Some(Route { any: path.clone(), all: path });
                    continue;
                };
                route.all.retain(|segment| path.contains(segment));
                route.any.append(&mut path);
            }
        }
        route
    }

    fn node(&mut self, name: &Name) -> End {
        let ways = self.nodes.get(name).cloned().unwrap_or_default();
        self.end(ways, Fault::Node(name.clone()))
    }

    fn gateway(&mut self, gateway: &Gateway) -> End {
        let mut ways = BTreeSet::new();
        for (device, index) in &gateway.ports {
            let carries = self.ports.get(device).is_some_and(|indices| indices.binary_search(index).is_ok());
            if self.topology.is_router(device) {
                ways.extend(self.routers.get(device).into_iter().flatten());
            } else if carries {
                ways.insert(self.way_to_gateway((device, *index)));
            }
        }
        for device in &gateway.devices {
            ways.extend(self.vertices.get(&Vertex::Switch(device)).map(|vertex| (*vertex, None)));
            ways.extend(self.routers.get(device).into_iter().flatten());
        }
        self.end(ways, Fault::Gateway(gateway.label.clone()))
    }

    /// The way to a gateway over a port. What is behind a vertex may be reached by other ports too.
    fn way_to_gateway(&mut self, port: Port<'_>) -> Way {
        let vertex = match self.topology.leads_to(port.0, port.1) {
            Some(LeadsTo::PhysicalNetwork(name)) => self.vertices.get(&Vertex::Network(name)).copied(),
            _ => self.far_switch(port),
        };
        vertex.map_or_else(|| self.way_by(port), |vertex| (vertex, None))
    }

    fn end(&mut self, ways: BTreeSet<Way>, own: Fault) -> End {
        let is_behind_one_port = ways.len() == 1 && ways.iter().all(|(_, port)| port.is_some());
        let own = (!is_behind_one_port).then(|| self.single(own));
        self.placeless.extend(own.filter(|_| ways.is_empty()));
        End { ways, own }
    }
}
