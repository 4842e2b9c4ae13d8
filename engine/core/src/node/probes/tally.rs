//! What the nodes found on a VLAN, counted.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use eno_schemas::VlanSet;

use crate::Name;
use crate::node::probes::Probes;
use crate::node::probes::findings::{Found, surplus};
use crate::work::Work;

/// What the nodes that count found on a VLAN.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// The nodes that reached the next one.
    pub passed: u32,
    /// Those that did not.
    pub lost: u32,
    /// Those that reached it with small packets only.
    pub too_big: u32,
    /// Those that could not ask.
    unasked: u32,
    /// By gateway and the MAC addresses that answered: the number of nodes. No MAC address: nobody answered.
    pub gateways: BTreeMap<IpAddr, BTreeMap<BTreeSet<String>, u32>>,
}

impl Tally {
    /// True when something answered.
    fn has_answer(&self) -> bool {
        let answered =
            |answers: &BTreeMap<BTreeSet<String>, u32>| answers.keys().any(|macs| !macs.is_empty());
        self.passed > 0 || self.too_big > 0 || self.gateways.values().any(answered)
    }

    /// Counts what a node found in or out. Returns true when a verdict may change.
    fn count(&mut self, found: &Found, more: bool) -> bool {
        let count = |number: &mut u32| {
            *number = if more { *number + 1 } else { number.saturating_sub(1) };
            *number == u32::from(more)
        };
        match found {
            // Where packets are lost, those that pass tell where not.
            Found::Passed => count(&mut self.passed) || self.lost > 0 || self.too_big > 0,
            Found::Lost => {
                count(&mut self.lost);
                true
            }
            Found::TooBig => {
                count(&mut self.too_big);
                true
            }
            Found::Unasked(_) => {
                count(&mut self.unasked);
                !self.has_answer()
            }
            Found::Answer(address, macs) => {
                let answers = self.gateways.entry(*address).or_default();
                let number = answers.entry(macs.clone()).or_default();
                let is_edge = count(number);
                if *number == 0 {
                    answers.remove(macs);
                }
                if answers.is_empty() {
                    self.gateways.remove(address);
                }
                is_edge || macs.is_empty()
            }
        }
    }

    /// True when no node found anything.
    fn is_empty(&self) -> bool {
        let counts = [self.passed, self.lost, self.too_big, self.unasked];
        counts.iter().all(|count| *count == 0) && self.gateways.is_empty()
    }
}

impl Probes {
    /// Counts what a node found in a network, and requests the evaluation of what that concerns. `is_gate`: a verdict also
    /// depends on how many nodes have found something.
    pub(super) fn count(
        &mut self,
        (point, network): &(Name, String),
        before: &BTreeMap<Found, VlanSet>,
        now: &BTreeMap<Found, VlanSet>,
        is_gate: bool,
        work: &mut Work,
    ) {
        let networks = self.networks.entry(point.clone()).or_default();
        let probed = networks.entry(network.clone()).or_default();
        let mut touched = VlanSet::EMPTY;
        // What a node found newly comes first, so that nothing is unknown in between.
        let more = surplus(now, before).map(|(found, vlans)| (found, vlans, true));
        for (found, vlans, more) in
            more.chain(surplus(before, now).map(|(found, vlans)| (found, vlans, false)))
        {
            for vid in vlans.iter() {
                let tally = probed.tallies.entry(vid).or_default();
                if tally.count(found, more) || is_gate {
                    touched.insert(vid);
                }
                if tally.is_empty() {
                    probed.tallies.remove(&vid);
                }
            }
        }
        for (key, vlan) in touched.iter().filter_map(|vid| probed.users.get(&vid)).flatten() {
            work.evaluate.extend([key.clone(), vlan.service.clone()]);
        }
        if probed.is_empty() {
            networks.remove(network);
        }
        if networks.is_empty() {
            self.networks.remove(point);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_may_change_a_verdict_is_evaluated() {
        let busy = || Found::Unasked("busy".to_owned());
        let answer = |mac: &str| {
            Found::Answer(
                IpAddr::from([10, 1, 0, 1]),
                (!mac.is_empty()).then(|| mac.to_owned()).into_iter().collect(),
            )
        };
        let mut tally = Tally::default();
        for (found, more, may_change) in [
            (busy(), true, true),
            (Found::Passed, true, true),
            (Found::Passed, true, false),
            (busy(), true, false),
            (answer("a"), true, true),
            (answer("a"), true, false),
            (answer("b"), true, true),
            (answer(""), true, true),
            (answer(""), true, true),
            (answer(""), false, true),
            (answer(""), false, true),
            (answer("b"), false, true),
            (answer("a"), false, false),
            (Found::Lost, true, true),
            (Found::Passed, true, true),
            (Found::Lost, false, true),
            (Found::Passed, false, false),
            (Found::TooBig, true, true),
            (Found::Passed, true, true),
            (Found::TooBig, true, true),
            (busy(), true, false),
            (Found::Passed, false, true),
        ] {
            assert_eq!(tally.count(&found, more), may_change, "{found:?} {more}");
        }
        assert!(tally.has_answer() && !tally.is_empty());
    }
}
