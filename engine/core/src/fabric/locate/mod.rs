//! Which ports and links explain the probes that fail, as those that pass leave them.
//!
//! The path of a probe is not known. So one that passes clears only what is on all of its possible paths, and one that
//! fails suspects what is on any. Possible are all simple paths of the VLAN's graph: switches, and the PhysicalNetworks
//! with several ports, joined by links and ports that carry the VLAN. No VLAN passes through a node or a router.

mod blocks;
mod graph;
mod message;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use crate::Name;

use super::topology::{Ports, Topology};
use graph::{Graph, Route};
use message::Wording;

/// A probe from a node on a VLAN.
#[derive(Clone, Debug)]
pub struct Probe {
    /// The node that asks.
    pub from: Name,
    /// Who is asked.
    pub to: ProbeEnd,
    /// There was an answer.
    pub passed: bool,
}

/// Who is asked by a probe.
#[derive(Clone, Debug)]
pub enum ProbeEnd {
    /// Another node.
    Node(Name),
    /// A gateway.
    Gateway(Arc<Gateway>),
}

/// A gateway. Without ports and devices that carry the VLAN, its place is not known.
#[derive(Clone, Debug, Default)]
pub struct Gateway {
    /// What messages call it, such as its address. No two gateways have the same.
    pub label: String,
    /// The ports by which the fabric leads to it.
    pub ports: BTreeSet<(Name, u16)>,
    /// The switches and routers that have its address themselves.
    pub devices: BTreeSet<Name>,
}

/// What may keep packets of a VLAN from passing.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Fault {
    /// A port of a switch that leads to a node or to the outside, or what is behind it.
    Port((Name, u16)),
    /// A node that is not behind one known port. If none is known, this includes the way to it.
    Node(Name),
    /// A gateway that is not behind one known port, by its label. If none is known, this includes the way to it.
    Gateway(String),
    /// A link: the ports at both ends, the lower one first.
    Link((Name, u16), (Name, u16)),
}

/// An explanation of probes that fail. `Display` is a message of about 300 bytes at most.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suspicion {
    /// One or several of them explain the probes, and nothing else does. A single one: it alone.
    pub faults: BTreeSet<Fault>,
    /// Those of them that each explain all of these probes alone.
    pub alone: BTreeSet<Fault>,
    /// How many probes fail.
    pub lost: usize,
    message: String,
}

impl fmt::Display for Suspicion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// What explains the probes that fail on a VLAN, most of them first. `ports`: those that carry the VLAN. Probes that may
/// fail for the same reason are in one explanation.
pub fn locate(topology: &Topology, ports: &Ports, probes: &[Probe]) -> Vec<Suspicion> {
    if probes.iter().all(|probe| probe.passed) {
        return Vec::new();
    }
    let mut graph = Graph::new(topology, ports);
    let mut evidence = Evidence::default();
    let mut lost = Vec::new();
    for probe in probes {
        let route = graph.route(&probe.from, &probe.to);
        if probe.passed {
            evidence.pass(probe, route);
        } else {
            lost.push((probe, route));
        }
    }
    let (mut known, mut unknown) = (Vec::new(), Vec::new());
    for (probe, mut route) in lost {
        route.any.retain(|segment| !evidence.cleared.contains(segment));
        route.all.retain(|segment| !evidence.cleared.contains(segment));
        if route.any.is_empty() {
            let ends = graph.ends(&probe.from, &probe.to);
            unknown.push(Route { any: ends.clone(), all: ends });
        } else {
            known.push(route);
        }
    }
    let known = proven(&graph, &mut known).into_iter().chain(groups(&known));
    // A probe that nothing on its way explains says of its ends only that one of them is likely.
    let unknown = groups(&unknown).into_iter().map(Group::likely);
    let groups: Vec<(Group, bool)> =
        known.map(|group| (group, true)).chain(unknown.map(|group| (group, false))).collect();
    let all_others_pass = groups.len() == 1 && evidence.passed > 0;
    let suspicions = groups.into_iter().map(|(group, is_on_way)| {
        suspicion(&graph, &evidence, group, Wording { is_on_way, all_others_pass, ..Wording::default() })
    });
    let mut suspicions: Vec<Suspicion> = suspicions.collect();
    suspicions.sort_by(|a, b| b.lost.cmp(&a.lost).then_with(|| a.message.cmp(&b.message)));
    suspicions
}

/// What the probes that pass tell.
#[derive(Default)]
struct Evidence {
    passed: usize,
    /// The segments on all paths of one of them.
    cleared: BTreeSet<usize>,
    /// The segments on any path of one of them.
    may_pass: BTreeSet<usize>,
    /// The labels of gateways that answer.
    answering: BTreeSet<String>,
}

impl Evidence {
    fn pass(&mut self, probe: &Probe, route: Route) {
        self.passed += 1;
        self.cleared.extend(route.all);
        self.may_pass.extend(route.any);
        if let ProbeEnd::Gateway(gateway) = &probe.to {
            self.answering.insert(gateway.label.clone());
        }
    }
}

/// Probes that fail, and that may do so for the same reason.
#[derive(Default)]
struct Group {
    lost: usize,
    /// By segment: of how many probes it is on all paths, and of how many on any.
    segments: BTreeMap<usize, (usize, usize)>,
}

impl Group {
    /// The segments that explain all of the probes alone.
    fn alone(&self) -> impl Iterator<Item = usize> {
        self.segments.iter().filter(|(_, (_, any))| *any == self.lost).map(|(segment, _)| *segment)
    }

    /// Keeps what explains all of the probes alone, if anything does.
    fn likely(mut self) -> Self {
        let alone: BTreeSet<usize> = self.alone().collect();
        if !alone.is_empty() {
            self.segments.retain(|segment, _| alone.contains(segment));
        }
        self
    }
}

/// Takes the probes that faults without an alternative explain: each is all that explains some probe. What else is on the
/// way of these probes is no more suspect than it would be without them.
fn proven(graph: &Graph<'_>, lost: &mut Vec<Route>) -> Vec<Group> {
    let only = |route: &Route| route.any.first().copied().filter(|_| route.any.len() == 1);
    let is_one = |segment: &usize| graph.faults(*segment).len() == 1;
    let mut proven: BTreeMap<usize, usize> =
        lost.iter().filter_map(only).filter(is_one).map(|segment| (segment, 0)).collect();
    lost.retain(|route| {
        let mut is_explained = false;
        for (segment, count) in &mut proven {
            if route.all.contains(segment) || only(route) == Some(*segment) {
                *count += 1;
                is_explained = true;
            }
        }
        !is_explained
    });
    let group = |(segment, lost)| Group { lost, segments: BTreeMap::from([(segment, (lost, lost))]) };
    proven.into_iter().map(group).collect()
}

/// Groups probes by what they have in common.
fn groups(routes: &[Route]) -> Vec<Group> {
    // By segment: another segment of the same group, or itself.
    let mut joined: BTreeMap<usize, usize> = BTreeMap::new();
    for route in routes {
        let mut first = None;
        for segment in &route.any {
            let name = name_of(&mut joined, *segment);
            joined.insert(name, *first.get_or_insert(name));
        }
    }
    let mut groups: BTreeMap<usize, Group> = BTreeMap::new();
    for route in routes {
        let Some(segment) = route.any.first() else { continue };
        let group = groups.entry(name_of(&mut joined, *segment)).or_default();
        group.lost += 1;
        for segment in &route.any {
            let (all, any) = group.segments.entry(*segment).or_default();
            *any += 1;
            *all += usize::from(route.all.contains(segment));
        }
    }
    groups.into_values().collect()
}

/// The segment that a group is named after. It shortens the way there.
fn name_of(joined: &mut BTreeMap<usize, usize>, segment: usize) -> usize {
    let mut name = segment;
    while let Some(next) = joined.get(&name).copied().filter(|next| *next != name) {
        name = next;
    }
    let mut at = segment;
    while at != name {
        at = joined.insert(at, name).unwrap_or(name);
    }
    joined.insert(name, name);
    name
}

/// The explanation of a group.
fn suspicion(graph: &Graph<'_>, evidence: &Evidence, mut group: Group, wording: Wording) -> Suspicion {
    let mut alone: BTreeSet<usize> = group.alone().collect();
    if alone.iter().any(|segment| graph.includes_its_way(*segment)) {
        alone.retain(|segment| !graph.is_block(*segment));
        group.segments.retain(|segment, _| !graph.is_block(*segment));
    }
    // What is on all paths explains more than what may be on one.
    let explains = |segment: usize| group.segments.get(&segment).copied().unwrap_or_default();
    let mut ranked: Vec<usize> = group.segments.keys().copied().collect();
    ranked.sort_by_key(|segment| (Reverse(explains(*segment)), graph.faults(*segment)));
    let one_is_certain = alone.iter().any(|segment| explains(*segment).0 == group.lost);
    if one_is_certain {
        ranked.retain(|segment| alone.contains(segment));
    }
    let faults_of = |segments: &mut dyn Iterator<Item = usize>| -> BTreeSet<Fault> {
        segments.flat_map(|segment| graph.faults(segment)).cloned().collect()
    };
    let (faults, alone) = (faults_of(&mut group.segments.keys().copied()), faults_of(&mut alone.into_iter()));
    let named: Vec<&Fault> = ranked.iter().flat_map(|segment| graph.faults(*segment)).collect();
    let message = Wording {
        lost: group.lost,
        others: faults.len().saturating_sub(named.len()),
        one_of: one_is_certain || alone.len() == faults.len(),
        others_may_pass: ranked.iter().any(|segment| evidence.may_pass.contains(segment)),
        is_silent: matches!(*named, [Fault::Gateway(label)] if !evidence.answering.contains(label)),
        ..wording
    }
    .message(graph.topology, &named);
    Suspicion { faults, alone, lost: group.lost, message }
}
