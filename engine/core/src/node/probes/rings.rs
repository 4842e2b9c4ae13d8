//! Who asks whom, and the probes of a node.

use std::collections::BTreeSet;
use std::ops::Bound;

use eno_schemas::{CrossedVlans, NetworkProbes, ProbedGateway, ProbedPath, VerifyBetween};

use crate::Name;
use crate::kinds::Verify;
use crate::node::Nodes;
use crate::node::demands::Usage;
use crate::node::points::PlacedPoint;
use crate::node::probes::network::Probed;
use crate::node::target::NodeTarget;
use crate::work::Work;

/// The MTU of a network for which none is wanted.
const DEFAULT_MTU: u32 = 1500;
/// The least MTU of a link with IPv6 (RFC 8200, 5).
const MIN_MTU: u32 = 1280;

impl Nodes {
    /// The node that another one asks at a connection point, and the one that asks it.
    pub(crate) fn neighbours(&self, point: &Name, name: &Name) -> Option<(&Name, &Name)> {
        let nodes = &self.points.get(point)?.nodes;
        let asks =
            |other: &&Name| *other != name && self.targets.get(*other).is_some_and(NodeTarget::is_probing);
        let after = (Bound::Excluded(name), Bound::Unbounded);
        let next = nodes.range::<Name, _>(after).find(asks).or_else(|| nodes.iter().find(asks))?;
        let before = nodes.range::<Name, _>(..name).rev().find(asks);
        Some((next, before.or_else(|| nodes.iter().rev().find(asks))?))
    }

    /// True when at least two nodes of a connection point probe.
    pub(crate) fn has_ring(&self, point: &Name) -> bool {
        let nodes = self.points.get(point).into_iter().flat_map(|placed| placed.nodes.iter());
        nodes.filter_map(|name| self.targets.get(name)).filter(|node| node.is_probing()).nth(1).is_some()
    }

    /// True when the agent of a node that probes at a connection point is alive.
    pub(crate) fn has_agent(&self, point: &Name) -> bool {
        let nodes = self.points.get(point).into_iter().flat_map(|placed| placed.nodes.iter());
        let mut alive = nodes.filter(|name| self.probes.alive.contains(*name));
        alive.any(|name| self.targets.get(name).is_some_and(NodeTarget::is_probing))
    }

    /// Bytes of the packets that are to pass on a network of a connection point: what its attachments want.
    pub(crate) fn probed_mtu(&self, point: &Name, network: &str) -> u16 {
        let usage = self.usage.get(point).and_then(|networks| networks.get(network));
        let wanted = usage.and_then(Usage::mtu).unwrap_or(DEFAULT_MTU).max(MIN_MTU);
        u16::try_from(wanted).unwrap_or(u16::MAX)
    }

    /// The probes of a node.
    pub(in crate::node) fn render_probes(&self, name: &Name, node: &NodeTarget) -> Vec<NetworkProbes> {
        let mut all = Vec::new();
        if !node.is_probing() {
            return all;
        }
        for point in node.points.keys() {
            let (Some(placed), Some(networks)) = (self.points.get(point), self.probes.networks.get(point))
            else {
                continue;
            };
            for (network, _) in self.networks_of(point) {
                let probed = networks.get(network);
                let probes = probed.map(|probed| self.render_network(placed, (point, network), name, probed));
                all.extend(probes.filter(|probes| {
                    !probes.paths.is_empty() && (probes.next.is_some() || !probes.gateways.is_empty())
                }));
            }
        }
        all
    }

    fn render_network(
        &self,
        placed: &PlacedPoint,
        (point, network): (&Name, &str),
        name: &Name,
        probed: &Probed,
    ) -> NetworkProbes {
        let Verify { between, interval, .. } = placed.verify;
        let neighbours = if between == VerifyBetween::Gateway { None } else { self.neighbours(point, name) };
        let paths = probed.paths.iter().map(|((revision, is_sized), vlans)| {
            let mtu = (*is_sized && neighbours.is_some()).then(|| self.probed_mtu(point, network));
            let size = mtu.map(|mtu| format!("-{mtu}")).unwrap_or_default();
            ProbedPath { revision: format!("{revision:08x}{size}"), vlans: vlans.clone(), mtu }
        });
        let crossed: BTreeSet<CrossedVlans> = match neighbours {
            Some(_) => probed.crossed.values().flatten().copied().collect(),
            None => BTreeSet::new(),
        };
        let gateways = probed.gateways.iter().filter(|_| between != VerifyBetween::Nodes);
        let gateways =
            gateways.map(|(address, vlans)| ProbedGateway { address: *address, vlans: vlans.clone() });
        NetworkProbes {
            point: point.to_string(),
            network: network.to_owned(),
            next: neighbours.map(|(next, _)| next.to_string()),
            previous: neighbours.map(|(_, previous)| previous.to_string()),
            paths: paths.collect(),
            gateways: gateways.collect(),
            crossed: crossed.into_iter().collect(),
            interval,
        }
    }

    /// Sets how a connection point is probed.
    pub(in crate::node) fn set_verify(&mut self, point: &Name, verify: Verify, work: &mut Work) {
        let Some(placed) = self.points.get_mut(point).filter(|placed| placed.verify != verify) else {
            return;
        };
        placed.verify = verify;
        self.evaluate_probed(point, work);
        self.publish_point(point);
    }

    /// A node joins or leaves the rings of its connection points.
    pub(in crate::node) fn update_rings(&mut self, name: &Name, work: &mut Work) {
        let Some(node) = self.targets.get(name) else { return };
        let points: Vec<Name> = node.points.keys().cloned().collect();
        work.evaluate.extend(self.probes.verifying.iter().cloned());
        for point in points {
            self.evaluate_probed(&point, work);
            let neighbours =
                self.neighbours(&point, name).map(|(next, before)| [next, before].map(Name::clone));
            let neighbours: Vec<Name> = neighbours.into_iter().flatten().collect();
            work.lookup.extend(neighbours.iter().cloned());
            self.changed.extend(neighbours);
            self.changed.insert(name.clone());
        }
    }
}
