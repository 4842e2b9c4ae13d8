//! Random fabrics with faults, and what probes find in them, apart from the code under test.

use proptest::prelude::*;

use super::*;

/// A random fabric and its probes. Numbers stand for devices and ends, modulo how many there are.
#[derive(Clone, Debug)]
pub struct Random {
    devices: usize,
    links: Vec<(usize, usize)>,
    /// By node: its devices.
    nodes: Vec<Vec<usize>>,
    /// By gateway: how it is known, and its devices.
    pub gateways: Vec<(Place, Vec<usize>)>,
    /// Node, end, and what its path depends on.
    probes: Vec<(usize, usize, u64)>,
    /// What is broken, of all that may be.
    pub broken: Vec<usize>,
}

#[derive(Clone, Copy, Debug)]
pub enum Place {
    Network,
    Router,
    Device,
    Anywhere,
}

pub fn random(
    devices: usize,
    links: usize,
    broken: std::ops::RangeInclusive<usize>,
) -> impl Strategy<Value = Random> {
    let place = prop::sample::select(vec![Place::Network, Place::Router, Place::Device, Place::Anywhere]);
    let some = |most: usize| prop::collection::vec(0..100usize, 1..=most);
    let parts = (
        1..=devices,
        prop::collection::vec((0..100usize, 0..100usize), 0..=links),
        prop::collection::vec(some(2), 2..6),
        prop::collection::vec((place, some(3)), 0..3),
        prop::collection::vec((0..100usize, 0..100usize, any::<u64>()), 1..25),
        prop::collection::vec(0..1000usize, broken),
    );
    parts.prop_map(|(devices, links, nodes, gateways, probes, broken)| Random {
        devices,
        links,
        nodes,
        gateways,
        probes,
        broken,
    })
}

/// Two vertices, and what breaks the edge between them; `None`: nothing does.
type Edge = (String, String, Option<Fault>);

/// A fabric, and apart from the code under test what a packet may do in it.
pub struct Model {
    pub topology: Topology,
    pub ports: Ports,
    /// Edges that any packet may take.
    inner: Vec<Edge>,
    /// By end: its edges, the last of which lead to the end.
    ends: Vec<(ProbeEnd, Vec<Edge>)>,
    nodes: usize,
}

impl Random {
    pub fn model(&self) -> Model {
        let device = |number: usize| format!("d{}", number % self.devices);
        let mut text: Vec<String> =
            (0..self.devices).map(|number| format!("d{number}.0=unused{number}.0")).collect();
        let mut used = 0;
        let mut name = |device: &str| {
            used += 1;
            format!("{device}.{used}")
        };
        // Ports have an index only once all are there. So edges have the names of their ports until then.
        let mut inner: Vec<(String, String, Option<Vec<String>>)> = Vec::new();
        for (a, b) in self.links.iter().map(|(a, b)| (device(*a), device(*b))).filter(|(a, b)| a != b) {
            let (near, far) = (name(&a), name(&b));
            text.push(format!("{near}~{far}"));
            inner.push((a, b, Some(vec![near, far])));
        }
        let mut ends = Vec::new();
        for (number, devices) in self.nodes.iter().enumerate() {
            let end = format!("node{number}");
            let mut edges = Vec::new();
            for (nic, device) in devices.iter().map(|number| device(*number)).enumerate() {
                let port = name(&device);
                text.push(format!("{port}={end}.eth{nic}"));
                edges.push((device, end.clone(), Some(vec![port])));
            }
            ends.push((end, None, edges));
        }
        for (number, (place, devices)) in self.gateways.iter().enumerate() {
            let (label, end) = (format!("10.0.0.{number}"), format!("way{number}"));
            let mut edges = Vec::new();
            let mut known = String::new();
            for (count, device) in devices.iter().map(|number| device(*number)).enumerate() {
                match place {
                    Place::Network => {
                        let port = name(&device);
                        text.push(format!("{port}=net{number}"));
                        known = format!("{known}{}{port}", if known.is_empty() { "=" } else { "," });
                        let edge = (device, end.clone(), Some(vec![port]));
                        if devices.len() > 1 { inner.push(edge) } else { edges.push(edge) }
                    }
                    Place::Router => {
                        let (near, far) = (format!("gw{number}.{count}"), name(&device));
                        text.push(format!("{near}~{far}"));
                        known = format!("@gw{number}");
                        edges.push((device, end.clone(), Some(vec![far, near])));
                    }
                    Place::Device => {
                        known = format!("{known}{}{device}", if known.is_empty() { "@" } else { "," });
                        edges.push((device, end.clone(), None));
                    }
                    Place::Anywhere => {}
                }
            }
            if matches!(place, Place::Anywhere) {
                edges.extend((0..self.devices).map(|number| (device(number), end.clone(), None)));
            }
            ends.push((end, Some(format!("{label}{known}")), edges));
        }
        let (topology, ports) = fabric(&text.join(" "));
        let fault = |names: Vec<String>| {
            let ends: BTreeSet<_> = names.iter().map(|name| port(&topology, name)).collect();
            let mut ends = ends.into_iter();
            match (ends.next(), ends.next()) {
                (Some(one), Some(other)) => Fault::Link(one, other),
                (Some(one), None) => Fault::Port(one),
                _ => unreachable!("an edge has a port"),
            }
        };
        let resolve = |(a, b, names): (String, String, Option<Vec<String>>)| (a, b, names.map(fault));
        let inner: Vec<Edge> = inner.into_iter().map(resolve).collect();
        let ends = ends.into_iter().map(|(name, gateway, edges)| {
            let (target, own) = match gateway {
                None => (ProbeEnd::Node((*name).into()), Fault::Node((*name).into())),
                Some(text) => {
                    let gateway = gateways(&topology, &text).remove(0);
                    (ProbeEnd::Gateway(gateway.clone()), Fault::Gateway(gateway.label.clone()))
                }
            };
            let is_behind_one_port = matches!(&*edges, [(.., Some(_))]);
            let mut edges: Vec<Edge> = edges.into_iter().map(resolve).collect();
            edges.push((name.clone(), format!("{name}*"), (!is_behind_one_port).then_some(own)));
            (target, edges)
        });
        let ends = ends.collect();
        Model { inner, ends, topology, ports, nodes: self.nodes.len() }
    }
}

impl Model {
    /// The edges that the packets of a probe may take, and between which vertices.
    fn edges(&self, from: usize, to: usize) -> (Vec<&Edge>, &str, &str) {
        let edges = self.inner.iter().chain(&self.ends[from].1).chain(&self.ends[to].1).collect();
        let last = |end: usize| &*self.ends[end].1.last().expect("an edge").1;
        (edges, last(from), last(to))
    }

    /// All that may break.
    fn faults(&self) -> Vec<&Fault> {
        let edges = self.inner.iter().chain(self.ends.iter().flat_map(|(_, edges)| edges));
        let faults: BTreeSet<&Fault> = edges.filter_map(|(.., fault)| fault.as_ref()).collect();
        faults.into_iter().collect()
    }

    /// The faults that are on all paths of a probe: without each of them there is none.
    pub fn on_all(&self, from: usize, to: usize) -> BTreeSet<&Fault> {
        let (edges, start, goal) = self.edges(from, to);
        let faults: BTreeSet<&Fault> = edges.iter().filter_map(|(.., fault)| fault.as_ref()).collect();
        let is_on_all = |fault: &&Fault| {
            let left: Vec<&Edge> =
                edges.iter().copied().filter(|(.., other)| other.as_ref() != Some(*fault)).collect();
            path(&left, start, goal, 0).is_none()
        };
        faults.into_iter().filter(is_on_all).collect()
    }

    /// The faults that are on some path of a probe, by listing all paths.
    pub fn on_any(&self, from: usize, to: usize) -> BTreeSet<&Fault> {
        let (edges, start, goal) = self.edges(from, to);
        let (mut found, mut way) = (BTreeSet::new(), vec![]);
        list(&edges, &mut vec![start], goal, &mut way, &mut found);
        found
    }
}

/// A simple path, as `seed` has it.
fn path<'a>(edges: &[&'a Edge], start: &'a str, goal: &str, seed: u64) -> Option<Vec<&'a Fault>> {
    let (mut seen, mut way) = (BTreeSet::from([start]), vec![(start, None)]);
    let mut state = seed;
    loop {
        let (here, _) = *way.last()?;
        if here == goal {
            return Some(way.into_iter().filter_map(|(_, fault): (_, Option<&Fault>)| fault).collect());
        }
        let next = edges.iter().filter_map(|(a, b, fault)| {
            let to = if a == here {
                b
            } else if b == here {
                a
            } else {
                return None;
            };
            (!seen.contains(&**to)).then_some((&**to, fault.as_ref()))
        });
        let next: Vec<_> = next.collect();
        if next.is_empty() {
            way.pop();
            continue;
        }
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let index = usize::try_from(state >> 33).expect("31 bits") % next.len();
        seen.insert(next[index].0);
        way.push(next[index]);
    }
}

fn list<'a>(
    edges: &[&'a Edge],
    seen: &mut Vec<&'a str>,
    goal: &str,
    way: &mut Vec<Option<&'a Fault>>,
    found: &mut BTreeSet<&'a Fault>,
) {
    let here = *seen.last().expect("a vertex");
    if here == goal {
        found.extend(way.iter().flatten());
        return;
    }
    for (a, b, fault) in edges {
        let to = if a == here {
            b
        } else if b == here {
            a
        } else {
            continue;
        };
        if !seen.contains(&&**to) {
            seen.push(to);
            way.push(fault.as_ref());
            list(edges, seen, goal, way, found);
            seen.pop();
            way.pop();
        }
    }
}

/// Carries the probes out: what they ask, which end that is, and the faults on the path of each.
pub fn carried_out<'a>(random: &Random, model: &'a Model) -> Vec<(Probe, usize, usize, Vec<&'a Fault>)> {
    let faults = model.faults();
    let broken: BTreeSet<&Fault> = random.broken.iter().map(|number| faults[number % faults.len()]).collect();
    let carried_out = random.probes.iter().filter_map(|(from, to, seed)| {
        let (from, to) = (from % model.nodes, to % model.ends.len());
        let (edges, start, goal) = model.edges(from, to);
        let path = path(&edges, start, goal, *seed).filter(|_| from != to)?;
        let met: Vec<&Fault> = path.into_iter().filter(|fault| broken.contains(fault)).collect();
        let name = format!("node{from}");
        let probe = Probe { from: (*name).into(), to: model.ends[to].0.clone(), passed: met.is_empty() };
        Some((probe, from, to, met))
    });
    carried_out.collect()
}

/// True if an explanation has one of these faults, or the end of the probe, which stands for the way to it.
pub fn has(suspicion: &Suspicion, met: &[&Fault], probe: &Probe) -> bool {
    let is_placeless = |fault: &Fault| match (fault, &probe.to) {
        (Fault::Gateway(label), ProbeEnd::Gateway(gateway)) => {
            *label == gateway.label && gateway.ports.is_empty() && gateway.devices.is_empty()
        }
        _ => false,
    };
    suspicion.faults.iter().any(|fault| met.contains(&fault) || is_placeless(fault))
}
