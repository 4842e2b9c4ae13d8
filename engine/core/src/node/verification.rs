//! New probes on request: whether all nodes have a result that is newer than the request.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use eno_schemas::{CrossedVlans, ProbeOutcome, ProbeResults, VerifyBetween, VlanId, VlanSet};

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

    /// By gateway that nodes of a connection point ask in a network: the VLANs.
    pub(crate) fn gateways(&self, point: &Name, network: &str) -> BTreeMap<IpAddr, VlanSet> {
        let placed = self.points.get(point);
        let asks = placed.is_some_and(|placed| placed.verify.between != VerifyBetween::Nodes);
        let probed = self.probes.networks.get(point).and_then(|networks| networks.get(network));
        probed.filter(|_| asks).map(|probed| probed.gateways.clone()).unwrap_or_default()
    }

    /// Those of these VLANs on which nodes ask each other, or a gateway.
    pub(crate) fn asked_vlans(&self, point: &Name, network: &str, vlans: &VlanSet) -> VlanSet {
        if self.asks_next(point) {
            return vlans.clone();
        }
        let gateways = self.gateways(point, network);
        gateways.values().fold(VlanSet::EMPTY, |all, own| all.union(own)).intersection(vlans)
    }

    /// What the nodes of a connection point found on VLANs, and between those of pairs, since new probes were asked for there.
    /// `None`: a node that probes has no such result on one of them. Somebody is asked on each of these.
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
        let others = crossed.iter().map(|pair| pair.other);
        let since = vlans.iter().chain(others).map(|vid| probed.since.get(&vid).copied());
        let since = since.collect::<Option<Vec<u64>>>()?.into_iter().max().unwrap_or_default();
        let key = (point.clone(), network.to_owned());
        let nodes = placed.nodes.iter().filter_map(|name| Some((name, self.probes_at(point, name)?)));
        let results = nodes.filter(|_| !vlans.is_empty()).map(|(name, node)| {
            let results = &**node.counted.get(&key).filter(|_| node.caught_up(since))?;
            let next = self.neighbours(point, name).filter(|_| asks_next).map(|(next, _)| next);
            let has_result = |pair: &CrossedVlans| outcome_of_pair(results, *pair).is_some();
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

/// What a node found between two VLANs. `None`: that is to come. Silence tells of isolation only where each of them passes.
pub(crate) fn outcome_of_pair(results: &ProbeResults, pair: CrossedVlans) -> Option<ProbeOutcome> {
    let passes = |vid| results.passed.contains(vid) || results.too_big.contains(vid);
    if results.leaking.contains(&pair) {
        Some(ProbeOutcome::Leaking)
    } else if failed_vlan(results, pair).is_some() {
        Some(ProbeOutcome::Unasked)
    } else {
        let is_isolated = results.isolated.contains(&pair) && passes(pair.vlan) && passes(pair.other);
        is_isolated.then_some(ProbeOutcome::Isolated)
    }
}

/// The first VLAN of a pair on which a node does not reach the next one.
pub(crate) fn failed_vlan(results: &ProbeResults, pair: CrossedVlans) -> Option<VlanId> {
    let is_unasked = |vid: VlanId| results.unasked.iter().any(|unasked| unasked.vlans.contains(vid));
    [pair.vlan, pair.other].into_iter().find(|vid| results.lost.contains(*vid) || is_unasked(*vid))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_tells_of_isolation_only_where_both_vlans_pass() {
        let set = |ids: &[u16]| ids.iter().filter_map(|id| VlanId::new(*id).ok()).collect::<VlanSet>();
        let [vlan, other] = [10, 20].map(|id| VlanId::new(id).unwrap());
        let pair = CrossedVlans { vlan, other };
        let unasked = |ids| vec![eno_schemas::Unasked { reason: "busy".to_owned().into(), vlans: set(ids) }];
        let found = ProbeResults { isolated: vec![pair], ..ProbeResults::default() };
        for (results, outcome) in [
            (ProbeResults { passed: set(&[10, 20]), ..found.clone() }, Some(ProbeOutcome::Isolated)),
            (
                ProbeResults { passed: set(&[10]), too_big: set(&[20]), ..found.clone() },
                Some(ProbeOutcome::Isolated),
            ),
            (ProbeResults { passed: set(&[10, 20]), ..ProbeResults::default() }, None),
            (ProbeResults { passed: set(&[10]), ..found.clone() }, None),
            (
                ProbeResults { passed: set(&[10]), lost: set(&[20]), ..found.clone() },
                Some(ProbeOutcome::Unasked),
            ),
            (
                ProbeResults { passed: set(&[20]), unasked: unasked(&[10]), ..ProbeResults::default() },
                Some(ProbeOutcome::Unasked),
            ),
            (ProbeResults { lost: set(&[20]), leaking: vec![pair], ..found }, Some(ProbeOutcome::Leaking)),
        ] {
            assert_eq!(outcome_of_pair(&results, pair), outcome, "{results:?}");
        }
    }
}
