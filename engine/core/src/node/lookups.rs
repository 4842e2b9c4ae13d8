//! What switches are asked about probes for, and whose MAC addresses they have learnt.

use std::collections::BTreeMap;

use eno_schemas::{ProbeResults, probe_mac};

use crate::Name;
use crate::fabric::device::ProberState;
use crate::node::Nodes;
use crate::node::probes::Results;
use crate::work::Work;

/// By MAC address: the node and the connection point whose probes have it. `None`: several have.
pub(super) type Owners = BTreeMap<String, Option<(Name, Name)>>;

/// By connection point where there is a verdict: something is lost.
pub(super) fn verdicts(results: &Results) -> BTreeMap<Name, bool> {
    let mut verdicts = BTreeMap::new();
    for ((point, _), results) in results {
        let ProbeResults { passed, lost, too_big, gateways, .. } = &**results;
        if passed.is_empty() && lost.is_empty() && too_big.is_empty() && gateways.is_empty() {
            continue;
        }
        let is_silent = gateways.iter().any(|answer| answer.macs.is_empty());
        *verdicts.entry(point.clone()).or_default() |= is_silent || !lost.is_empty();
    }
    verdicts
}

impl Nodes {
    /// A node and those that ask it, at each connection point where something is to be probed. What counts is the last report
    /// of each node, also while its agent is not alive. `renewed`: [`ProberState::renewed`] at a connection point.
    pub(crate) fn probers(&self, name: &Name, renewed: &mut impl FnMut(&Name) -> u64) -> Vec<ProberState> {
        let mut states = Vec::new();
        let Some(node) = self.targets.get(name) else { return states };
        for point in node.points.keys().filter(|point| self.is_probed(point)) {
            // Nobody asks a node that does not probe itself.
            let before = self.probes_at(point, name).and_then(|_| Some(self.neighbours(point, name)?.1));
            for (prober, is_here) in [(Some(name), true), (before, false)] {
                let Some((prober, node)) = prober.and_then(|one| Some((one, self.targets.get(one)?))) else {
                    continue;
                };
                let lost = verdicts(&node.probes).get(point).copied();
                let prober = (prober.clone(), point.clone());
                states.push(ProberState { prober, is_here, lost, renewed: renewed(point) });
            }
        }
        states
    }

    /// The switches of a node, and of those that it asks, may have to be asked.
    pub(super) fn touch_lookups(&self, name: &Name, work: &mut Work) {
        let points = self.targets.get(name).into_iter().flat_map(|node| node.points.keys());
        work.lookup.extend(points.filter_map(|point| Some(self.neighbours(point, name)?.0.clone())));
        work.lookup.insert(name.clone());
    }

    /// The switches of the nodes of a connection point may have to be asked.
    pub(super) fn touch_lookups_of(&self, point: &Name, work: &mut Work) {
        work.lookup.extend(self.nodes_of(point).iter().cloned());
    }

    /// The node and the connection point whose probes have a MAC address.
    pub(crate) fn owner_of_mac(&self, cluster: &str, mac: &str) -> Option<&(Name, Name)> {
        self.mac_owners.get_or_init(|| self.find_owners(cluster)).get(mac)?.as_ref()
    }

    fn find_owners(&self, cluster: &str) -> Owners {
        let mut owners = Owners::new();
        let pairs =
            self.points.iter().flat_map(|(point, placed)| placed.nodes.iter().map(move |node| (node, point)));
        for (node, point) in pairs {
            let mac = probe_mac(cluster, node, point).map(|byte| format!("{byte:02x}")).join(":");
            let owner = Some((node.clone(), point.clone()));
            owners.entry(mac).and_modify(|owner| *owner = None).or_insert(owner);
        }
        owners
    }
}
