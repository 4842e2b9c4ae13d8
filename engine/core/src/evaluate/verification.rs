//! New probes on request: the answer to the annotation `eno.k8s.io/verify`.

use std::collections::{BTreeMap, BTreeSet};

use eno_schemas::{ProbeOutcome, Text, VlanSet};

use crate::evaluate::Evaluator;
use crate::node::verification::NewResults;
use crate::{Key, Kind, Name, Verification, VerificationResult};

/// The order of results.
const OUTCOMES: [ProbeOutcome; 5] = [
    ProbeOutcome::Lost,
    ProbeOutcome::Silent,
    ProbeOutcome::Unasked,
    ProbeOutcome::Passed,
    ProbeOutcome::Answered,
];

impl Evaluator<'_> {
    /// Those of these objects that ask for new probes, each with its nonce.
    pub(super) fn asked(&self, keys: [&Key; 3]) -> BTreeMap<Key, Name> {
        let nonce = |key: &Key| self.store.get(key)?.verify.clone();
        keys.into_iter().filter_map(|key| Some((key.clone(), nonce(key)?))).collect()
    }

    /// The answer to an object's request for new probes. It is there once all nodes have their results. Until then, and as
    /// long as the request is the same, the last one stays.
    pub(super) fn verification(&self, key: &Key) -> Option<Verification> {
        let record = self.store.get(key)?;
        let nonce = record.verify.as_ref()?;
        let last = record.status.verification.as_ref();
        let new = if record.is_verifying() { self.answer(key, nonce) } else { None };
        new.or_else(|| last.cloned())
    }

    /// What all nodes found since an object asked for new probes. `None`: some results are to come, or nothing is probed.
    fn answer(&self, key: &Key, nonce: &Name) -> Option<Verification> {
        let attachments: Vec<&Key> = match key.kind {
            Kind::L2ServiceAttachment => vec![key],
            Kind::L2Service | Kind::ConnectionPoint => self.store.referrers(key).collect(),
            _ => return None,
        };
        let mut vlans: BTreeMap<(&Name, &str), VlanSet> = BTreeMap::new();
        for request in attachments.into_iter().filter_map(|one| self.hosts.nodes.probe_request(one)) {
            let of_object = request.vlans.iter().filter(|(_, vlan)| match key.kind {
                Kind::L2Service => vlan.service == *key,
                _ => true,
            });
            for (vid, vlan) in of_object {
                // Without the nonce, the request is one of before.
                vlan.asked.get(key).filter(|asked| *asked == nonce)?;
                vlans.entry((&request.point, &request.network)).or_default().insert(*vid);
            }
        }
        let mut found: Vec<(VlanSet, Vec<NewResults<'_>>)> = Vec::new();
        for ((point, network), vlans) in vlans {
            let results = self.hosts.nodes.new_results(point, network, &vlans)?;
            found.push((vlans, results));
        }
        let mut answer = Verification { nonce: nonce.clone(), results: Vec::new(), left_out: 0 };
        for outcome in OUTCOMES {
            for (vlans, nodes) in &found {
                for node in nodes {
                    add(&mut answer, outcome, vlans, node);
                }
            }
        }
        (!answer.results.is_empty()).then_some(answer)
    }
}

/// Adds the results of a node that have this outcome.
fn add(answer: &mut Verification, outcome: ProbeOutcome, vlans: &VlanSet, found: &NewResults<'_>) {
    let NewResults { node, next, results } = found;
    let next = next.cloned();
    let none = BTreeSet::new();
    let mut add = |set: &VlanSet, to: Option<Name>, macs: &BTreeSet<String>, reason: Option<&Text>| {
        let set = set.intersection(vlans);
        let room = Verification::MAX_RESULTS.saturating_sub(answer.results.len());
        answer.left_out += set.len().saturating_sub(room);
        answer.results.extend(set.iter().take(room).map(|vlan| VerificationResult {
            from: (*node).clone(),
            to: to.clone(),
            vlan,
            outcome,
            macs: macs.clone(),
            reason: reason.cloned(),
        }));
    };
    match outcome {
        ProbeOutcome::Lost => add(&results.lost, next, &none, None),
        ProbeOutcome::TooBig => add(&results.too_big, next, &none, None),
        ProbeOutcome::Leaking | ProbeOutcome::Isolated => {}
        ProbeOutcome::Passed => add(&results.passed, next, &none, None),
        ProbeOutcome::Unasked => {
            for unasked in &results.unasked {
                add(&unasked.vlans, next.clone(), &none, Some(&unasked.reason));
            }
        }
        ProbeOutcome::Silent | ProbeOutcome::Answered => {
            let is_silent = outcome == ProbeOutcome::Silent;
            for answer in results.gateways.iter().filter(|answer| answer.macs.is_empty() == is_silent) {
                add(&answer.vlans, Some(answer.address.to_string().into()), &answer.macs, None);
            }
        }
    }
}
