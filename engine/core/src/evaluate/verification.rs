//! New probes on request: the answer to the annotation `eno.k8s.io/verify`.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use eno_schemas::{CrossedVlans, ProbeOutcome, ProbeResults, Text, VlanId, VlanSet};

use crate::evaluate::Evaluator;
use crate::evaluate::verified::{NOBODY, TOO_OLD};
use crate::kinds::Spec;
use crate::node::probes::ProbeRequest;
use crate::node::verification::{NewResults, failed_vlan, outcome_of_pair};
use crate::{Key, Kind, Name, Verification, VerificationResult, VerifyRequest};

/// The order of results. Those that are rarer than passed ones come before these.
const OUTCOMES: [ProbeOutcome; 8] = [
    ProbeOutcome::Lost,
    ProbeOutcome::Leaking,
    ProbeOutcome::TooBig,
    ProbeOutcome::Silent,
    ProbeOutcome::Unasked,
    ProbeOutcome::Isolated,
    ProbeOutcome::Passed,
    ProbeOutcome::Answered,
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

    /// What all nodes found since an object asked for new probes. `None`: some results are to come, a path is not confirmed, or
    /// nothing is probed of what it asks for.
    fn answer(&self, key: &Key, request: &VerifyRequest) -> Option<Verification> {
        let mut vlans: BTreeMap<(&Name, &str), VlanSet> = BTreeMap::new();
        let nodes = self.hosts.nodes;
        let mut unasked = Vec::new();
        let is_of_object = |service: &Key| key.kind != Kind::L2Service || service == key;
        for probed in self.requests_of(key)? {
            let services = probed.services.iter().filter(|service| is_of_object(service));
            if let Some(why) = &probed.hindrance {
                let specs = services.filter_map(|service| self.store.effective(service, Spec::service));
                unasked.extend(specs.map(|spec| self.nobody_asks(&probed.point, spec.vid, why)));
                continue;
            }
            for service in services {
                // Its path is not confirmed without a VLAN.
                probed.vlans.values().find(|vlan| vlan.service == *service)?;
            }
            for (vid, vlan) in probed.vlans.iter().filter(|(_, vlan)| is_of_object(&vlan.service)) {
                // Without the request, what is probed is that of before.
                vlan.asked.get(key).filter(|asked| *asked == request)?;
                vlans.entry((&probed.point, &probed.network)).or_default().insert(*vid);
            }
        }
        let (mut found, mut is_crossed) = (Vec::new(), false);
        for ((point, network), vlans) in vlans {
            let crossed = nodes.crossed(key, point, network);
            is_crossed |= !crossed.is_empty();
            let asked = nodes.asked_vlans(point, network, &vlans);
            let results = nodes.new_results(point, network, &asked, &crossed)?;
            let without = if results.is_empty() { vlans.clone() } else { vlans.difference(&asked) };
            let is_old = results.is_empty() && nodes.has_agent_without_visits(point);
            let why = if is_old { TOO_OLD } else { NOBODY };
            unasked.extend(without.iter().map(|vid| self.nobody_asks(point, vid, why)));
            found.push((Asked { vlans, crossed, gateways: nodes.gateways(point, network) }, results));
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
            if outcome == ProbeOutcome::Unasked && found.iter().any(|(_, nodes)| !nodes.is_empty()) {
                unasked.drain(..).for_each(|result| push(&mut answer, || result));
            }
        }
        (!answer.results.is_empty()).then_some(answer)
    }

    /// What is to be probed for the attachments of an object. `None`: one is not evaluated yet.
    fn requests_of(&self, key: &Key) -> Option<Vec<&ProbeRequest>> {
        let attachments: Vec<&Key> = match key.kind {
            Kind::L2ServiceAttachment => vec![key],
            Kind::L2Service | Kind::ConnectionPoint => self.store.referrers(key).collect(),
            _ => return None,
        };
        let is_probed = |user: &&Key| {
            let record = self.store.get(user).filter(|record| !record.deleting);
            let spec = record.and_then(|record| record.effective.as_deref()?.attachment());
            spec.is_some_and(|spec| {
                let is_user = match key.kind {
                    Kind::L2Service => spec.services.contains(&key.name),
                    Kind::ConnectionPoint => spec.connection_point == key.name,
                    _ => true,
                };
                is_user && self.verify(&spec.connection_point).is_some()
            })
        };
        attachments.into_iter().filter(is_probed).map(|user| self.hosts.nodes.probe_request(user)).collect()
    }

    /// The result of a VLAN on which nobody is asked, in the name of a node of the connection point.
    fn nobody_asks(&self, point: &Name, vlan: VlanId, why: &str) -> VerificationResult {
        let from = self.hosts.nodes.nodes_of(point).first().unwrap_or(point).clone();
        VerificationResult {
            from,
            to: None,
            vlan,
            other: None,
            outcome: ProbeOutcome::Unasked,
            macs: BTreeSet::new(),
            reason: Some(why.to_owned().into()),
        }
    }
}

/// What an object asks for in a network.
struct Asked {
    vlans: VlanSet,
    crossed: BTreeSet<CrossedVlans>,
    /// By gateway: the VLANs on which it is asked.
    gateways: BTreeMap<IpAddr, VlanSet>,
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
        ProbeOutcome::Leaking | ProbeOutcome::Isolated => add_crossed(answer, outcome, asked, found),
        ProbeOutcome::Passed => add(&results.passed, next, &none, None),
        ProbeOutcome::Unasked => {
            for unasked in &results.unasked {
                add(&unasked.vlans, next.clone(), &none, Some(&unasked.reason));
            }
            add_crossed(answer, outcome, asked, found);
        }
        ProbeOutcome::Silent | ProbeOutcome::Answered => {
            let is_silent = outcome == ProbeOutcome::Silent;
            for answer in results.gateways.iter().filter(|answer| answer.macs.is_empty() == is_silent) {
                let vlans = asked.gateways.get(&answer.address).unwrap_or(&VlanSet::EMPTY);
                let to = Some(answer.address.to_string().into());
                add(&answer.vlans.intersection(vlans), to, &answer.macs, None);
            }
        }
    }
}

/// Adds the results of a node between VLANs that have this outcome.
fn add_crossed(answer: &mut Verification, outcome: ProbeOutcome, asked: &Asked, found: &NewResults<'_>) {
    let has_outcome = |pair: &&CrossedVlans| outcome_of_pair(found.results, **pair) == Some(outcome);
    for pair in asked.crossed.iter().filter(has_outcome) {
        push(answer, || VerificationResult {
            from: found.node.clone(),
            to: found.next.cloned(),
            vlan: pair.vlan,
            other: Some(pair.other),
            outcome,
            macs: BTreeSet::new(),
            reason: reason_of_pair(found.results, *pair).filter(|_| outcome == ProbeOutcome::Unasked),
        });
    }
}

/// Why a node does not ask between VLANs.
fn reason_of_pair(results: &ProbeResults, pair: CrossedVlans) -> Option<Text> {
    failed_vlan(results, pair).map(|vid| format!("VLAN {vid} itself does not pass").into())
}

/// Adds a result, or counts that it is left out.
fn push(answer: &mut Verification, result: impl FnOnce() -> VerificationResult) {
    if answer.results.len() < Verification::MAX_RESULTS {
        answer.results.push(result());
    } else {
        answer.left_out += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use eno_schemas::GatewayAnswer;

    #[test]
    fn only_gateways_that_are_asked_are_part_of_the_answer() {
        let vlans = |ids: &[u16]| ids.iter().filter_map(|id| VlanId::new(*id).ok()).collect::<VlanSet>();
        let gateway = |host| IpAddr::from([10, 1, 0, host]);
        let answer = |host, ids| GatewayAnswer {
            address: gateway(host),
            macs: ["02:00:00:00:00:01".to_owned()].into(),
            vlans: vlans(ids),
        };
        let gateways = vec![answer(1, &[10, 20, 30]), answer(9, &[10])];
        let results = ProbeResults { gateways, ..ProbeResults::default() };
        let asked = Asked {
            vlans: vlans(&[10, 20]),
            crossed: BTreeSet::new(),
            gateways: [(gateway(1), vlans(&[10, 30]))].into(),
        };
        let mut all = Verification { nonce: "n".into(), results: Vec::new(), left_out: 0 };
        let node = Name::from("node1");
        let found = NewResults { node: &node, next: None, results: &results };
        add(&mut all, ProbeOutcome::Answered, &asked, &found);
        let found: Vec<_> = all.results.iter().map(|one| (one.to.as_deref(), one.vlan.get())).collect();
        assert_eq!(found, [(Some("10.1.0.1"), 10)]);
    }
}
