//! Counts what nodes found, and tells what was found.

use std::collections::{BTreeMap, BTreeSet};

use eno_schemas::{ProbeResults, Text, VerifyMode, VlanId};

use crate::Name;
use crate::node::Nodes;
use crate::node::probes::findings::{findings, has_passed};
use crate::node::probes::{Results, Tally};
use crate::work::Work;

impl Nodes {
    /// What was found on a VLAN. `None`: nothing.
    pub(crate) fn tally(&self, point: &Name, network: &str, vid: VlanId) -> Option<&Tally> {
        self.probes.networks.get(point)?.get(network)?.tallies.get(&vid)
    }

    /// The results of the nodes of a connection point that count, in the order of their names.
    pub(crate) fn results<'a>(
        &'a self,
        point: &Name,
        network: &str,
    ) -> impl Iterator<Item = (&'a Name, &'a ProbeResults)> + use<'a> {
        let key = (point.clone(), network.to_owned());
        let nodes = self.points.get(point).into_iter().flat_map(|placed| placed.nodes.iter());
        nodes.filter_map(move |name| Some((name, &**self.targets.get(name)?.counted.get(&key)?)))
    }

    /// True when each node whose agent is alive has found something on a VLAN.
    pub(crate) fn is_probed_by_all(&self, point: &Name, network: &str, vid: VlanId) -> bool {
        let nodes = self.points.get(point).into_iter().flat_map(|placed| placed.nodes.iter());
        let probes =
            |name: &&Name| self.probes.alive.contains(*name) && self.probes_at(point, name).is_some();
        let found: BTreeSet<&Name> = self
            .results(point, network)
            .filter(|(_, results)| findings(Some(results)).values().any(|vlans| vlans.contains(vid)))
            .map(|(name, _)| name)
            .collect();
        nodes.filter(probes).all(|name| found.contains(name))
    }

    /// Why nodes could not ask the next one on a VLAN: the first reason.
    pub(crate) fn unasked(&self, point: &Name, network: &str, vid: VlanId) -> Option<&Text> {
        let mut unasked = self.results(point, network).flat_map(|(_, results)| &results.unasked);
        unasked.find(|unasked| unasked.vlans.contains(vid)).map(|unasked| &unasked.reason)
    }

    /// True when the agent of a node is alive.
    pub(crate) fn is_alive(&self, name: &Name) -> bool {
        self.probes.alive.contains(name)
    }

    /// An agent appeared or disappeared: what it found counts only while it is alive.
    pub(crate) fn set_alive(&mut self, name: &Name, is_alive: bool, work: &mut Work) {
        let changed =
            if is_alive { self.probes.alive.insert(name.clone()) } else { self.probes.alive.remove(name) };
        if changed {
            self.recount(name, work);
            work.evaluate.extend(self.probes.verifying.iter().cloned());
        }
    }

    /// Requests the evaluation of what is probed at a connection point.
    pub(super) fn evaluate_probed(&self, point: &Name, work: &mut Work) {
        work.evaluate.extend(self.probes.waiting.get(point).into_iter().flatten().cloned());
        let networks = self.probes.networks.get(point).into_iter().flat_map(BTreeMap::values);
        for (key, vlan) in networks.flat_map(|probed| probed.users.values().flatten()) {
            work.evaluate.extend([key.clone(), vlan.service.clone()]);
        }
    }

    /// Counts what a node found: that of its last report while it is ready and its agent is alive, else nothing.
    pub(in crate::node) fn recount(&mut self, name: &Name, work: &mut Work) {
        let Some(node) = self.targets.get(name) else { return };
        let is_able = !self.probes.without_visits.contains(name);
        let counts = node.ready && is_able && self.probes.alive.contains(name);
        let is_known = |(point, network): &(Name, String)| {
            node.points.contains_key(point) && self.shape(point, network).is_some()
        };
        let results = node.probes.iter().filter(|(key, _)| counts && is_known(key));
        let now = results.map(|(key, results)| (key.clone(), results.clone())).collect();
        self.replace_counted(name, &now, work);
    }

    /// Counts nothing of a node any more.
    pub(in crate::node) fn uncount(&mut self, name: &Name, work: &mut Work) {
        self.replace_counted(name, &Results::new(), work);
    }

    fn replace_counted(&mut self, name: &Name, now: &Results, work: &mut Work) {
        let Some(node) = self.targets.get_mut(name) else { return };
        if node.counted == *now {
            return;
        }
        let before = std::mem::replace(&mut node.counted, now.clone());
        let mut turned = BTreeSet::new();
        let keys: BTreeSet<&(Name, String)> = before.keys().chain(now.keys()).collect();
        for key in keys {
            let [was, is] = [&before, now].map(|results| results.get(key).map(|results| &**results));
            if was == is {
                continue;
            }
            if was.is_some_and(has_passed) != is.is_some_and(has_passed) {
                turned.insert(&key.0);
            }
            let is_gate = self.points.get(&key.0).is_some_and(|one| one.verify.mode == VerifyMode::Gate);
            self.probes.count(key, &findings(was), &findings(is), is_gate, work);
        }
        for point in turned {
            self.label_gated(point);
        }
    }
}
