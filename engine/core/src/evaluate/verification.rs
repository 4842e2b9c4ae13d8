//! New probes on request: the answer to the annotation `eno.k8s.io/verify`.

use std::collections::{BTreeMap, BTreeSet};

use eno_schemas::{CrossedVlans, ProbeOutcome, Text, VlanSet};

use crate::evaluate::Evaluator;
use crate::node::verification::NewResults;
use crate::{Key, Kind, Name, Verification, VerificationResult, VerifyRequest};

/// The order of results.
const OUTCOMES: [ProbeOutcome; 8] = [
    ProbeOutcome::Lost,
    ProbeOutcome::Leaking,
    ProbeOutcome::TooBig,
    ProbeOutcome::Silent,
    ProbeOutcome::Unasked,
    ProbeOutcome::Passed,
    ProbeOutcome::Answered,
    ProbeOutcome::Isolated,
];

impl Evaluator<'_> {
    /// Those of these objects that ask for new probes, each with its request.
    pub(super) fn asked(&self, keys: [&Key; 3]) -> BTreeMap<Key, VerifyRequest> {
        let request = |key: &Key| self.store.get(key)?.verify.clone();
        keys.into_iter().filter_map(|key| Some((key.clone(), request(key)?))).collect()
    }

    /// The answer to an object's request for new probes. It is there once all nodes have their results. Until then, and as
    /// long as the request is the same, the last one stays.
    pub(super) fn verification(&self, key: &Key) -> Option<Verification> {
        let record = self.store.get(key)?;
        let request = record.verify.as_ref()?;
        let last = record.status.verification.as_ref();
        let new = if record.is_verifying() { self.answer(key, request) } else { None };
        new.or_else(|| last.cloned())
    }

    /// What all nodes found since an object asked for new probes. `None`: some results are to come, or nothing is probed of
    /// what it asks for.
    fn answer(&self, key: &Key, request: &VerifyRequest) -> Option<Verification> {
        let attachments: Vec<&Key> = match key.kind {
            Kind::L2ServiceAttachment => vec![key],
            Kind::L2Service | Kind::ConnectionPoint => self.store.referrers(key).collect(),
            _ => return None,
        };
        let mut vlans: BTreeMap<(&Name, &str), VlanSet> = BTreeMap::new();
        let nodes = self.hosts.nodes;
        for probed in attachments.into_iter().filter_map(|one| nodes.probe_request(one)) {
            let of_object = probed.vlans.iter().filter(|(_, vlan)| match key.kind {
                Kind::L2Service => vlan.service == *key,
                _ => true,
            });
            for (vid, vlan) in of_object {
                // Without the request, what is probed is that of before.
                vlan.asked.get(key).filter(|asked| *asked == request)?;
                vlans.entry((&probed.point, &probed.network)).or_default().insert(*vid);
            }
        }
        let (mut found, mut is_crossed) = (Vec::new(), false);
        for ((point, network), vlans) in vlans {
            let crossed = nodes.crossed(key, point, network);
            is_crossed |= !crossed.is_empty();
            let results = nodes.new_results(point, network, &vlans, &crossed)?;
            found.push((Asked { vlans, crossed }, results));
        }
        if request.isolation_from.is_some() && !is_crossed {
            return None;
        }
        let mut answer = Verification { nonce: request.nonce.clone(), results: Vec::new(), left_out: 0 };
        for outcome in OUTCOMES {
            for (asked, nodes) in &found {
                for node in nodes {
                    add(&mut answer, outcome, asked, node);
                }
            }
        }
        (!answer.results.is_empty()).then_some(answer)
    }
}

/// What an object asks for in a network.
struct Asked {
    vlans: VlanSet,
    crossed: BTreeSet<CrossedVlans>,
}

/// Adds the results of a node that have this outcome.
fn add(answer: &mut Verification, outcome: ProbeOutcome, asked: &Asked, found: &NewResults<'_>) {
    let NewResults { node, next, results } = found;
    let next = next.cloned();
    let none = BTreeSet::new();
    let mut add = |set: &VlanSet, to: Option<Name>, macs: &BTreeSet<String>, reason: Option<&Text>| {
        for vlan in set.intersection(&asked.vlans).iter() {
            push(answer, || VerificationResult {
                from: (*node).clone(),
                to: to.clone(),
                vlan,
                other: None,
                outcome,
                macs: macs.clone(),
                reason: reason.cloned(),
            });
        }
    };
    match outcome {
        ProbeOutcome::Lost => add(&results.lost, next, &none, None),
        ProbeOutcome::TooBig => add(&results.too_big, next, &none, None),
        ProbeOutcome::Leaking => add_crossed(answer, outcome, asked, found, &results.leaking),
        ProbeOutcome::Isolated => add_crossed(answer, outcome, asked, found, &results.isolated),
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

/// Adds those of these pairs of VLANs that are asked for.
fn add_crossed(
    answer: &mut Verification,
    outcome: ProbeOutcome,
    asked: &Asked,
    found: &NewResults<'_>,
    pairs: &[CrossedVlans],
) {
    for pair in pairs.iter().filter(|pair| asked.crossed.contains(pair)) {
        push(answer, || VerificationResult {
            from: found.node.clone(),
            to: found.next.cloned(),
            vlan: pair.vlan,
            other: Some(pair.other),
            outcome,
            macs: BTreeSet::new(),
            reason: None,
        });
    }
}

/// Adds a result, or counts that it is left out.
fn push(answer: &mut Verification, result: impl FnOnce() -> VerificationResult) {
    if answer.results.len() < Verification::MAX_RESULTS {
        answer.results.push(result());
    } else {
        answer.left_out += 1;
    }
}
