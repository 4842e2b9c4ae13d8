//! The state of what objects want on hosts, for their statuses.

use std::collections::BTreeSet;

use eno_schemas::VlanId;

use crate::node::demands::Demand;
use crate::node::shape::Shape;
use crate::node::target::NodeTarget;
use crate::node::{NODE_DRIVER, Nodes};
use crate::schedule::Schedule;
use crate::status::evaluation::Evaluation;
use crate::status::hop::{Aspect, Hop, HopState, Part, Wait};
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

impl<'a> HostStates<'a> {
    /// Visits a connection point's own networks on its nodes.
    pub(crate) fn visit_point(&self, key: &Key, visit: &mut dyn FnMut(Hop<'a>)) {
        for name in &*self.nodes.nodes_of(&key.name) {
            let Some((name, node)) = self.nodes.ready_node(name) else { continue };
            for (network, shape) in self.nodes.networks_of(&key.name) {
                let state = self.nodes.hop(node, &key.name, network, None, None);
                let part = Part::Network { node: name, noun: shape.noun(), network, aspect: Aspect::Whole };
                visit(self.hop(name, part, state));
            }
        }
    }

    /// Visits the demands of an object on each node.
    pub(crate) fn visit_demands(&self, key: &Key, visit: &mut dyn FnMut(Hop<'a>)) {
        for demand in self.demands(key) {
            for name in &*self.nodes.nodes_of(&demand.point) {
                if let Some((name, node)) = self.nodes.ready_node(name) {
                    self.visit_demand(demand, name, node, visit);
                }
            }
        }
    }

    fn visit_demand(
        &self,
        demand: &'a Demand,
        name: &'a Name,
        node: &'a NodeTarget,
        visit: &mut dyn FnMut(Hop<'a>),
    ) {
        let Demand { point, network, .. } = demand;
        let noun = self.nodes.shape(point, network).map_or("network", Shape::noun);
        let part = |aspect| Part::Network { node: name, noun, network, aspect };
        let state = self.nodes.hop(node, point, network, None, None);
        let is_there = state.is_there();
        visit(self.hop(name, part(Aspect::Whole), state));
        if !is_there {
            return;
        }
        for vid in &demand.vids {
            let state = self.nodes.hop(node, point, network, Some(*vid), None);
            visit(self.hop(name, part(Aspect::Vlan(*vid)), state));
        }
        if let Some(mtu) = demand.mtu {
            let state = self.nodes.hop(node, point, network, None, Some(mtu));
            visit(self.hop(name, part(Aspect::Mtu(mtu)), state));
        }
    }

    /// What an attachment wants on the hosts.
    pub(crate) fn demand(&self, key: &Key) -> Option<&'a Demand> {
        self.demands(key).next()
    }

    /// True when nodes probe, and all of these have a VLAN as an object wants it.
    pub(crate) fn has_vlan(&self, Demand { point, network, mtu, .. }: &Demand, vid: VlanId) -> bool {
        let names = self.nodes.nodes_of(point);
        let mut nodes = names.iter().filter_map(|name| self.nodes.probes_at(point, name)).peekable();
        nodes.peek().is_some()
            && nodes.all(|node| {
                let is_there = |vlan, mtu| self.nodes.hop(node, point, network, vlan, mtu).is_there();
                is_there(None, None)
                    && is_there(Some(vid), None)
                    && mtu.is_none_or(|mtu| is_there(None, Some(mtu)))
            })
    }

    /// What an object wants on the hosts.
    fn demands(&self, key: &Key) -> impl Iterator<Item = &'a Demand> {
        self.nodes.objects.get(key).into_iter().flat_map(|object| &object.demands)
    }

    /// Adds what a connection point wants on its nodes to its inputs.
    pub(crate) fn add_point_inputs(&self, key: &Key, inputs: &mut Inputs) {
        for (network, shape) in self.nodes.networks_of(&key.name) {
            inputs.add(&(network, shape));
        }
    }

    /// Adds what an object wants on nodes to its inputs.
    pub(crate) fn add_demand_inputs(&self, key: &Key, inputs: &mut Inputs) {
        for demand in self.demands(key) {
            inputs.add(&(demand, self.nodes.shape(&demand.point, &demand.network)));
        }
    }

    /// A hop on a node.
    pub(crate) fn hop(&self, node: &Name, part: Part<'a>, state: HopState<'a>) -> Hop<'a> {
        Hop { part, state: state.waiting_for(|| self.wait(node)) }
    }

    /// What a change waits for on a node.
    pub(crate) fn wait(&self, node: &str) -> Wait<'a> {
        if self.schedule.live_drivers.contains(format!("{NODE_DRIVER}/{node}").as_str()) {
            Wait::Report
        } else {
            Wait::Agent
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
                        format!("Node {name}: the removal of what it made there {}", self.wait(name))
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
