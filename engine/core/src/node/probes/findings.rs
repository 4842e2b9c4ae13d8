//! What a node found, as it is counted.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use eno_schemas::{CrossedVlans, GatewayAnswer, ProbeResults, VlanId, VlanSet};

use crate::node::probes::MAX_GATEWAYS;

/// Maximum of reasons of one node why it could not ask on VLANs of a network.
const MAX_REASONS: usize = 64;

/// What a node found.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Found {
    Passed,
    Lost,
    TooBig,
    Unasked(String),
    Answer(IpAddr, BTreeSet<String>),
}

/// What a node found, each with its VLANs.
pub(super) fn findings(results: Option<&ProbeResults>) -> BTreeMap<Found, VlanSet> {
    let mut all: BTreeMap<Found, VlanSet> = BTreeMap::new();
    let mut add = |found, vlans: &VlanSet| {
        let set = all.entry(found).or_default();
        *set = set.union(vlans);
    };
    if let Some(results) = results {
        add(Found::Passed, &results.passed);
        add(Found::Lost, &results.lost);
        add(Found::TooBig, &results.too_big);
        for unasked in &results.unasked {
            add(Found::Unasked(unasked.reason.to_string()), &unasked.vlans);
        }
        for GatewayAnswer { address, macs, vlans } in &results.gateways {
            add(Found::Answer(*address, macs.clone()), vlans);
        }
    }
    all
}

/// The VLANs of each finding of `one` that the same finding of `other` has not.
pub(super) fn surplus<'a>(
    one: &'a BTreeMap<Found, VlanSet>,
    other: &'a BTreeMap<Found, VlanSet>,
) -> impl Iterator<Item = (&'a Found, VlanSet)> {
    one.iter().map(|(found, vlans)| (found, vlans.difference(other.get(found).unwrap_or(&VlanSet::EMPTY))))
}

/// Results of at most as many gateways and pairs of VLANs as a node is asked for, and of a VLAN or a pair only the worst:
/// a compromised node may report anything, and each is counted.
pub(in crate::node) fn bounded(mut results: ProbeResults) -> ProbeResults {
    results.unasked.truncate(MAX_REASONS);
    results.too_big = results.too_big.difference(&results.lost);
    results.passed = results.passed.difference(&results.lost).difference(&results.too_big);
    let mut pairs = BTreeSet::new();
    for list in [&mut results.leaking, &mut results.isolated] {
        list.retain(|pair| pairs.len() < CrossedVlans::MAX && pairs.insert(*pair));
    }
    let (mut counts, mut full) = (BTreeMap::<VlanId, usize>::new(), VlanSet::EMPTY);
    for answer in &mut results.gateways {
        answer.vlans = answer.vlans.difference(&full);
        for vid in answer.vlans.iter() {
            let count = counts.entry(vid).or_default();
            *count += 1;
            if *count == MAX_GATEWAYS {
                full.insert(vid);
            }
        }
    }
    results.gateways.retain(|answer| !answer.vlans.is_empty());
    results
}

/// Whether a gateway or the next node answered, if only to small packets.
pub(super) fn has_passed(results: &ProbeResults) -> bool {
    !results.passed.is_empty()
        || !results.too_big.is_empty()
        || results.gateways.iter().any(|answer| !answer.macs.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_a_hostile_node_are_bounded() {
        let all: VlanSet = (1..=4094).filter_map(|id| VlanId::new(id).ok()).collect();
        let answer = |host: u32| GatewayAnswer {
            address: IpAddr::from(host.to_be_bytes()),
            macs: BTreeSet::new(),
            vlans: all.clone(),
        };
        let unasked =
            |number: u32| eno_schemas::Unasked { reason: number.to_string().into(), vlans: all.clone() };
        let results = bounded(ProbeResults {
            gateways: (0..20_000).map(answer).collect(),
            unasked: (0..20_000).map(unasked).collect(),
            ..ProbeResults::default()
        });
        assert_eq!((results.gateways.len(), results.unasked.len()), (MAX_GATEWAYS, MAX_REASONS));
        let few = ProbeResults { gateways: (0..8).map(answer).collect(), ..ProbeResults::default() };
        assert_eq!(bounded(few.clone()), few);
        let vlans = |ids: &[u16]| ids.iter().filter_map(|id| VlanId::new(*id).ok()).collect::<VlanSet>();
        let pair = |vlan, other| CrossedVlans { vlan, other };
        let pairs = || all.iter().flat_map(|vlan| all.iter().take(9).map(move |other| pair(vlan, other)));
        let first = pairs().next().unwrap();
        let results = bounded(ProbeResults {
            passed: all.clone(),
            lost: vlans(&[1, 2]),
            too_big: vlans(&[2, 3]),
            leaking: vec![first, first],
            isolated: pairs().collect(),
            ..ProbeResults::default()
        });
        assert_eq!(
            (results.passed.len(), results.lost, results.too_big),
            (4091, vlans(&[1, 2]), vlans(&[3]))
        );
        assert_eq!((&*results.leaking, results.isolated.len()), (&[first][..], CrossedVlans::MAX - 1));
        assert!(!results.isolated.contains(&first));
    }
}
