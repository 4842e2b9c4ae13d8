//! New probes on request: whether all nodes have a result that is newer than the request.

use std::collections::BTreeSet;

use eno_schemas::{CrossedVlans, ProbeResults, VerifyBetween, VlanSet};

use crate::node::Nodes;
use crate::{Key, Name};

/// What a node found after a request.
#[derive(Debug)]
pub(crate) struct NewResults<'a> {
    /// The node.
    pub node: &'a Name,
    /// The node that it asks.
    pub next: Option<&'a Name>,
    /// What it found.
    pub results: &'a ProbeResults,
}

impl Nodes {
    /// Notes whether an object asks for new probes and has no answer yet: it is evaluated when a node reports.
    pub(crate) fn set_verifying(&mut self, key: &Key, is_verifying: bool) {
        if is_verifying {
            self.probes.verifying.insert(key.clone());
        } else {
            self.probes.verifying.remove(key);
        }
    }

    /// The VLANs of an object at a connection point, each with one that must not be reached from there.
    pub(crate) fn crossed(&self, key: &Key, point: &Name, network: &str) -> BTreeSet<CrossedVlans> {
        let probed = self.probes.networks.get(point).and_then(|networks| networks.get(network));
        let crossed = probed.filter(|_| self.asks_next(point)).and_then(|probed| probed.crossed.get(key));
        crossed.cloned().unwrap_or_default()
    }

    /// True when nodes of a connection point ask each other.
    fn asks_next(&self, point: &Name) -> bool {
        let placed = self.points.get(point);
        placed.is_some_and(|placed| placed.verify.between != VerifyBetween::Gateway) && self.has_ring(point)
    }

    /// What the nodes of a connection point found on VLANs, and between those of pairs, since new probes were asked for there.
    /// `None`: a node that probes has no such result on one of them. VLANs on which nobody is asked have none.
    pub(crate) fn new_results(
        &self,
        point: &Name,
        network: &str,
        vlans: &VlanSet,
        crossed: &BTreeSet<CrossedVlans>,
    ) -> Option<Vec<NewResults<'_>>> {
        let placed = self.points.get(point)?;
        let probed = self.probes.networks.get(point)?.get(network)?;
        let asks_next = self.asks_next(point);
        let gateways = probed.gateways.values().filter(|_| placed.verify.between != VerifyBetween::Nodes);
        let with_gateways = gateways.fold(VlanSet::EMPTY, |all, own| all.union(own));
        let vlans = if asks_next { vlans.clone() } else { vlans.intersection(&with_gateways) };
        let others = crossed.iter().map(|pair| pair.other);
        let since = vlans.iter().chain(others).map(|vid| probed.since.get(&vid).copied());
        let since = since.collect::<Option<Vec<u64>>>()?.into_iter().max().unwrap_or_default();
        let key = (point.clone(), network.to_owned());
        let nodes = placed.nodes.iter().filter_map(|name| Some((name, self.targets.get(name)?)));
        let results = nodes.filter(|(_, node)| node.is_probing() && !vlans.is_empty()).map(|(name, node)| {
            let results = &**node.counted.get(&key).filter(|_| node.caught_up(since))?;
            let next = self.neighbours(point, name).filter(|_| asks_next).map(|(next, _)| next);
            let has_result =
                |pair: &CrossedVlans| results.isolated.contains(pair) || results.leaking.contains(pair);
            let is_complete = vlans.is_subset(&covered(results)) && crossed.iter().all(has_result);
            is_complete.then_some(NewResults { node: name, next, results })
        });
        results.collect()
    }
}

/// The VLANs with a result.
fn covered(results: &ProbeResults) -> VlanSet {
    let unasked = results.unasked.iter().map(|unasked| &unasked.vlans);
    let sets = results.gateways.iter().map(|answer| &answer.vlans).chain(unasked);
    let of_next = results.passed.union(&results.lost).union(&results.too_big);
    sets.fold(of_next, |all, own| all.union(own))
}
