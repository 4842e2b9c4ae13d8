//! What is requested, and the agents that are told.

use std::collections::{BTreeMap, BTreeSet};

use eno_schemas::VlanId;

use crate::node::Nodes;
use crate::node::probes::{ProbeRequest, Probed};
use crate::work::Work;
use crate::{Key, Name};

impl Nodes {
    /// Sets what is probed for an attachment; `None`: nothing.
    pub(crate) fn want_probes(&mut self, key: &Key, request: Option<&ProbeRequest>, work: &mut Work) {
        if self.probes.requests.get(key) == request {
            return;
        }
        let named = self.probes.requests.get(key).into_iter().chain(request);
        let named: BTreeSet<Name> = named.map(|request| request.point.clone()).collect();
        let probed: Vec<(Name, bool)> =
            named.into_iter().map(|point| (point.clone(), self.is_probed(&point))).collect();
        let before = match request {
            Some(request) => self.probes.requests.insert(key.clone(), request.clone()),
            None => self.probes.requests.remove(key),
        };
        // What is in both is replaced, and what is only in the former one goes.
        let changed = request
            .into_iter()
            .flat_map(|request| request.vlans.iter().map(move |(vid, vlan)| (request, *vid, Some(vlan))));
        let stays = |former: &ProbeRequest, vid: VlanId| {
            request.is_some_and(|now| {
                (&now.point, &now.network) == (&former.point, &former.network) && now.vlans.contains_key(&vid)
            })
        };
        let gone = before.iter().flat_map(|former| {
            let gone = former.vlans.iter().filter(|(vid, _)| !stays(former, **vid));
            gone.map(move |(vid, _)| (former, *vid, None))
        });
        let (mut points, version) = (BTreeMap::<Name, bool>::new(), self.version + 1);
        let mut crossed: BTreeSet<(Name, String)> = BTreeSet::new();
        for (of, vid, now) in changed.chain(gone) {
            let networks = self.probes.networks.entry(of.point.clone()).or_default();
            let probed = networks.entry(of.network.clone()).or_default();
            if probed.set(vid, key, now, version) {
                let is_asked = probed.since.get(&vid) == Some(&version);
                *points.entry(of.point.clone()).or_default() |= is_asked;
            }
            crossed.insert((of.point.clone(), of.network.clone()));
            if probed.is_empty() {
                networks.remove(&of.network);
            }
            if networks.is_empty() {
                self.probes.networks.remove(&of.point);
            }
        }
        for (point, network) in crossed {
            let networks = self.probes.networks.get_mut(&point);
            if networks.and_then(|networks| networks.get_mut(&network)).is_some_and(Probed::cross) {
                points.insert(point, true);
            }
        }
        for (point, is_asked) in points {
            if is_asked {
                // What a node reports on an earlier command is no answer.
                self.version = version;
                self.touch_point(&point);
            }
            self.publish_point(&point);
        }
        let both = before.iter().chain(request);
        work.evaluate.extend(both.flat_map(|request| &request.services).cloned());
        work.evaluate.extend(self.probes.verifying.iter().cloned());
        self.update_waiting(key, before.as_ref(), request);
        for (point, was) in probed {
            if self.is_probed(&point) != was {
                self.touch_lookups_of(&point, work);
            }
        }
    }

    /// True when something is probed at a connection point, or is to be once its path is confirmed.
    pub(in crate::node) fn is_probed(&self, point: &Name) -> bool {
        let networks = self.probes.networks.get(point);
        let is_used =
            |networks: &BTreeMap<String, Probed>| networks.values().any(|one| !one.users.is_empty());
        self.probes.waiting.contains_key(point) || networks.is_some_and(is_used)
    }

    /// Notes whether an attachment waits for its path to be probed.
    fn update_waiting(&mut self, key: &Key, before: Option<&ProbeRequest>, now: Option<&ProbeRequest>) {
        let waits = |request: &&ProbeRequest| request.vlans.is_empty() && request.hindrance.is_none();
        let [was, is] =
            [before, now].map(|request| request.filter(waits).map(|request| request.point.clone()));
        if was == is {
            return;
        }
        if let Some(point) = was {
            let waiting = self.probes.waiting.entry(point.clone()).or_default();
            waiting.remove(key);
            if waiting.is_empty() {
                self.probes.waiting.remove(&point);
            }
            self.label_gated(&point);
        }
        if let Some(point) = is {
            self.probes.waiting.entry(point).or_default().insert(key.clone());
        }
    }

    /// Requests commands for the nodes of a connection point, without a change of its networks.
    pub(super) fn publish_point(&mut self, point: &Name) {
        if let Some(placed) = self.points.get(point) {
            let nodes = placed.nodes.iter().filter(|name| self.targets.contains_key(*name));
            self.changed.extend(nodes.cloned());
        }
    }

    /// What is probed for an attachment.
    pub(crate) fn probe_request(&self, key: &Key) -> Option<&ProbeRequest> {
        self.probes.requests.get(key)
    }
}
