//! The state of what objects want on hosts, for their statuses.

use std::collections::BTreeSet;

use crate::fabric::device::HopState;
use crate::node::demands::Demand;
use crate::node::shape::Shape;
use crate::node::target::NodeTarget;
use crate::node::{NODE_DRIVER, Nodes};
use crate::schedule::Schedule;
use crate::status::evaluation::Evaluation;
use crate::status::inputs::Inputs;
use crate::{Key, Name};

/// Reads the state of what objects want on hosts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostStates<'a> {
    /// The nodes.
    pub nodes: &'a Nodes,
    /// Which agents are alive.
    pub schedule: &'a Schedule,
}

impl HostStates<'_> {
    /// Evaluates a connection point's own networks on its nodes.
    pub(crate) fn evaluate_point(&self, key: &Key, evaluation: &mut Evaluation, inputs: &mut Inputs) {
        for (network, shape) in self.nodes.networks_of(&key.name) {
            inputs.add(&(network, shape));
        }
        for name in &*self.nodes.nodes_of(&key.name) {
            let Some(node) = self.nodes.node(name).filter(|node| node.ready) else { continue };
            for (network, shape) in self.nodes.networks_of(&key.name) {
                let hop = self.nodes.hop(node, &key.name, network, None, None);
                self.note_hop(evaluation, name, &hop, || format!("Node {name}: {} {network}", shape.noun()));
            }
        }
    }

    /// Evaluates the demands of an object on each node.
    pub(crate) fn evaluate_demands(&self, key: &Key, evaluation: &mut Evaluation, inputs: &mut Inputs) {
        for demand in self.nodes.objects.get(key).into_iter().flat_map(|object| &object.demands) {
            let shape = self.nodes.shape(&demand.point, &demand.network);
            inputs.add(&(demand, shape));
            let noun = shape.map_or("network", Shape::noun);
            for name in &*self.nodes.nodes_of(&demand.point) {
                let Some(node) = self.nodes.node(name).filter(|node| node.ready) else { continue };
                self.evaluate_demand(demand, noun, name, node, evaluation);
            }
        }
    }

    fn evaluate_demand(
        &self,
        demand: &Demand,
        noun: &str,
        name: &Name,
        node: &NodeTarget,
        evaluation: &mut Evaluation,
    ) {
        let network = &demand.network;
        let place = || format!("Node {name}: {noun} {network}");
        let hop = self.nodes.hop(node, &demand.point, network, None, None);
        self.note_hop(evaluation, name, &hop, place);
        if hop != HopState::Confirmed {
            return;
        }
        for vid in &demand.vids {
            let hop = self.nodes.hop(node, &demand.point, network, Some(*vid), None);
            self.note_hop(evaluation, name, &hop, || format!("{}: VLAN {vid}", place()));
        }
        if let Some(mtu) = demand.mtu {
            let hop = self.nodes.hop(node, &demand.point, network, None, Some(mtu));
            self.note_hop(evaluation, name, &hop, || format!("{}: MTU {mtu}", place()));
        }
    }

    /// Adds the state of one hop on a node.
    pub(crate) fn note_hop(
        &self,
        evaluation: &mut Evaluation,
        name: &Name,
        hop: &HopState<'_>,
        what: impl Fn() -> String,
    ) {
        match hop {
            HopState::Confirmed => {}
            HopState::Refused { reason, retryable } => {
                evaluation.reject(format!("{}: {reason}", what()), *retryable);
            }
            HopState::Unreachable(reason) => {
                evaluation.unreachable.get_or_insert_with(|| format!("Node {name}: {reason}"));
                evaluation.wait_for(name, || format!("{} waits: {reason}", what()));
            }
            HopState::Waiting => {
                evaluation.wait_for(name, || format!("{} {}", what(), self.waits_for(name)));
            }
        }
    }

    /// What a change waits for on a node, as the end of a sentence.
    pub(crate) fn waits_for(&self, name: &str) -> String {
        if self.schedule.live_drivers.contains(format!("{NODE_DRIVER}/{name}").as_str()) {
            "is not confirmed yet".into()
        } else {
            "waits: the agent of the node is not running".into()
        }
    }

    /// The first node where something of an object is not confirmed to be gone, and why. Nodes that are not ready
    /// don't count; `evaluation` names them.
    pub(crate) fn remains(&self, key: &Key, evaluation: &mut Evaluation) -> Option<String> {
        let mut unready = BTreeSet::new();
        for cleanup in self.nodes.objects.get(key).into_iter().flat_map(|object| &object.cleanups) {
            for name in &cleanup.nodes {
                let Some(node) = self.nodes.node(name) else { continue };
                let is_gone = node.caught_up(cleanup.version)
                    && cleanup
                        .networks
                        .iter()
                        .all(|(network, vids)| !self.nodes.is_leftover(node, network, vids));
                if is_gone {
                    continue;
                }
                if !node.ready {
                    unready.insert(name);
                    continue;
                }
                evaluation.waits_on = Some(name.clone());
                let failure = node.failure.as_ref().map(|failure| failure.reason.as_str());
                let unanswered = cleanup.networks.iter().find_map(|(network, _)| node.unanswered(network));
                return Some(match failure.or(unanswered) {
                    Some(reason) => {
                        format!("Node {name}: what it made there can't be removed yet: {reason}")
                    }
                    None => {
                        format!("Node {name}: the removal of what it made there {}", self.waits_for(name))
                    }
                });
            }
        }
        if let Some(first) = unready.first() {
            let more =
                if unready.len() > 1 { format!(" and {} more are", unready.len() - 1) } else { " is".into() };
            evaluation.final_message =
                format!("Node {first}{more} not ready: what is left there goes when it is back");
        }
        None
    }
}
