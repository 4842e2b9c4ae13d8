//! Who asks whom, and the probes of a node.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use eno_schemas::{CrossedVlans, NetworkProbes, ProbedGateway, ProbedPath, VerifyBetween, VlanId};

use crate::Name;
use crate::kinds::Verify;
use crate::node::Nodes;
use crate::node::points::PlacedPoint;
use crate::node::probes::network::Probed;
use crate::node::target::NodeTarget;
use crate::work::Work;

impl Nodes {
    /// A node that probes at a connection point: others ask it, and wait for its results. One that joins does not, until it
    /// has a network of the connection point.
    pub(crate) fn probes_at(&self, point: &Name, name: &Name) -> Option<&NodeTarget> {
        let is_able = |node: &&NodeTarget| node.can_probe() && node.points.contains_key(point);
        let node = self.targets.get(name).filter(is_able)?;
        if self.probes.without_visits.contains(name) {
            return None;
        }
        let has_network = |(network, _): (&String, _)| node.observed_network(network).is_some();
        self.networks_of(point).any(has_network).then_some(node)
    }

    /// The connection points at which a node probes.
    pub(in crate::node) fn rings_of(&self, name: &Name) -> BTreeSet<Name> {
        let points = self.targets.get(name).into_iter().flat_map(|node| node.points.keys());
        points.filter(|point| self.probes_at(point, name).is_some()).cloned().collect()
    }

    /// Notes which agents say that they do not probe. Nothing waits for these.
    pub(crate) fn set_without_visits(&mut self, nodes: BTreeSet<Name>, work: &mut Work) {
        let before = std::mem::replace(&mut self.probes.without_visits, nodes);
        for name in before.symmetric_difference(&self.probes.without_visits.clone()) {
            self.recount(name, work);
            self.update_rings(name, work);
            self.reevaluate_waiters(name, work);
            self.label_queue.insert(name.clone());
        }
    }

    /// True when the agent of a node of a connection point says that it does not probe.
    pub(crate) fn has_agent_without_visits(&self, point: &Name) -> bool {
        let mut nodes = self.points.get(point).into_iter().flat_map(|placed| placed.nodes.iter());
        nodes.any(|name| self.probes.without_visits.contains(name))
    }

    /// The node that another one asks at a connection point, and the one that asks it.
    pub(crate) fn neighbours(&self, point: &Name, name: &Name) -> Option<(&Name, &Name)> {
        let nodes = &self.points.get(point)?.nodes;
        let asks = |other: &&Name| *other != name && self.probes_at(point, other).is_some();
        let after = (Bound::Excluded(name), Bound::Unbounded);
        let next = nodes.range::<Name, _>(after).find(asks).or_else(|| nodes.iter().find(asks))?;
        let before = nodes.range::<Name, _>(..name).rev().find(asks);
        Some((next, before.or_else(|| nodes.iter().rev().find(asks))?))
    }

    /// True when at least two nodes of a connection point probe.
    pub(crate) fn has_ring(&self, point: &Name) -> bool {
        let nodes = self.points.get(point).into_iter().flat_map(|placed| placed.nodes.iter());
        nodes.filter(|name| self.probes_at(point, name).is_some()).nth(1).is_some()
    }

    /// True when the agent of a node that probes at a connection point is alive.
    pub(crate) fn has_agent(&self, point: &Name) -> bool {
        let nodes = self.points.get(point).into_iter().flat_map(|placed| placed.nodes.iter());
        let mut alive = nodes.filter(|name| self.probes.alive.contains(*name));
        alive.any(|name| self.probes_at(point, name).is_some())
    }

    /// Bytes of the packets that are to pass on a VLAN. `None`: nobody asks for this.
    pub(crate) fn probed_size(&self, point: &Name, network: &str, vid: VlanId) -> Option<u16> {
        self.probes.networks.get(point)?.get(network)?.size(vid)
    }

    /// The probes of a node.
    pub(in crate::node) fn render_probes(&self, name: &Name, node: &NodeTarget) -> Vec<NetworkProbes> {
        let mut all = Vec::new();
        for point in node.points.keys().filter(|point| self.probes_at(point, name).is_some()) {
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
        let paths = probed.paths.iter().map(|((revision, size), vlans)| {
            let mtu = size.filter(|_| neighbours.is_some());
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

    /// The nodes of a connection point ask other ones: what they report on a command before `version` is no answer to a request for
    /// new probes. Returns true when there is one.
    pub(in crate::node) fn renew_asked(&mut self, point: &Name, version: u64) -> bool {
        let networks = self.probes.networks.get_mut(point).into_iter().flat_map(BTreeMap::values_mut);
        let mut is_asked = false;
        for since in networks.flat_map(|probed| probed.since.values_mut()) {
            (*since, is_asked) = (version, true);
        }
        is_asked
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
            work.lookup.extend(neighbours.iter().chain([name]).cloned());
            if self.renew_asked(&point, self.version + 1) {
                self.version += 1;
                for one in neighbours.iter().chain([name]) {
                    if let Some(node) = self.targets.get_mut(one) {
                        node.touch(self.version);
                    }
                }
            }
            self.changed.extend(neighbours);
            self.changed.insert(name.clone());
        }
    }
}
