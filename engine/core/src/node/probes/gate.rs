//! Which nodes have the labels of connection points, as far as probes tell.

use eno_schemas::{ProbeResults, VerifyMode};

use crate::Name;
use crate::node::Nodes;
use crate::node::probes::findings::has_passed;
use crate::node::target::NodeTarget;

impl Nodes {
    /// Whether other nodes have their label may depend on what a node found.
    pub(super) fn label_gated(&mut self, point: &Name) {
        if let Some(placed) = self.points.get(point).filter(|placed| placed.verify.mode == VerifyMode::Gate) {
            self.label_queue.extend(placed.nodes.iter().cloned());
        }
    }

    /// The present nodes may have labels by an earlier process.
    pub(crate) fn inherit(&mut self) {
        self.targets.values_mut().for_each(|node| node.is_inherited = true);
    }

    /// True when a node may have the label of a connection point, as far as probes tell. The first one waits for an answer, and
    /// goes only when nothing answers the node while other nodes get answers.
    pub(in crate::node) fn is_let_through(&self, point: &Name, name: &Name, node: &NodeTarget) -> bool {
        let Some(placed) = self.points.get(point).filter(|placed| placed.verify.mode == VerifyMode::Gate)
        else {
            return true;
        };
        let is_asked = self.render_probes(name, node).iter().any(|probes| probes.point == **point);
        if !is_asked && !self.probes.waiting.contains_key(point) {
            return true;
        }
        let of_point = |node: &NodeTarget| {
            let results = node.counted.iter().filter(|((own, _), _)| own == point);
            results.map(|(_, results)| results.clone()).collect::<Vec<_>>()
        };
        let results = of_point(node);
        if results.iter().any(|results| has_passed(results)) {
            return true;
        }
        let has_failed = |results: &ProbeResults| {
            !results.lost.is_empty() || results.gateways.iter().any(|answer| answer.macs.is_empty())
        };
        if results.iter().any(|results| has_failed(results)) {
            let mut others = placed.nodes.iter().filter_map(|other| self.targets.get(other));
            return !others.any(|other| of_point(other).iter().any(|results| has_passed(results)));
        }
        let was = node.is_inherited
            || node.published_labels.as_ref().is_some_and(|(points, _)| points.contains(point));
        was || results.iter().any(|results| !results.unasked.is_empty())
    }
}
