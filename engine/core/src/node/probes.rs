//! Probes: the VLANs that agents probe, and what they found.
//!
//! Attachments request the VLANs whose path is confirmed. What agents found is counted by VLAN, so that a report costs
//! only what it changes.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::ops::Bound;
use std::sync::Arc;

use eno_schemas::{
    GatewayAnswer, NetworkProbes, ProbeResults, ProbedGateway, ProbedPath, Text, VerifyBetween, VerifyMode,
    VlanId, VlanSet,
};

use crate::kinds::Verify;
use crate::node::Nodes;
use crate::node::points::PlacedPoint;
use crate::node::target::NodeTarget;
use crate::status::inputs::Inputs;
use crate::work::Work;
use crate::{Key, Name};

/// Maximum of gateways that are asked on a VLAN.
pub(crate) const MAX_GATEWAYS: usize = 8;
/// Maximum of reasons of one node why it could not ask on VLANs of a network.
const MAX_REASONS: usize = 64;

/// The results of a node, by connection point and network.
pub(super) type Results = BTreeMap<(Name, String), Arc<ProbeResults>>;

/// What is probed for an attachment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProbeRequest {
    /// The connection point.
    pub point: Name,
    /// The network's name on the host.
    pub network: String,
    /// Its services.
    pub services: BTreeSet<Key>,
    /// The VLANs. None while its path is not confirmed, or when it can't be probed.
    pub vlans: BTreeMap<VlanId, ProbedVlan>,
    /// Why it can't be probed.
    pub hindrance: Option<String>,
}

/// A VLAN that is probed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProbedVlan {
    /// The service with the VLAN.
    pub service: Key,
    /// Identifies the path.
    pub revision: u32,
    /// The gateways that are asked.
    pub gateways: BTreeSet<IpAddr>,
    /// The objects that ask for new probes, each with its nonce.
    pub asked: BTreeMap<Key, Name>,
}

/// What is requested and was found.
#[derive(Debug, Default)]
pub(super) struct Probes {
    /// What each attachment requests.
    requests: HashMap<Key, ProbeRequest>,
    /// By connection point: the attachments whose path is not confirmed.
    waiting: BTreeMap<Name, BTreeSet<Key>>,
    /// By connection point and network.
    pub(super) networks: BTreeMap<Name, BTreeMap<String, Probed>>,
    /// The nodes whose agents are alive.
    alive: BTreeSet<Name>,
    /// The objects that ask for new probes and have no answer yet.
    pub(super) verifying: BTreeSet<Key>,
}

/// The probes of one network of a connection point.
#[derive(Debug, Default)]
pub(super) struct Probed {
    /// By VLAN: what attachments request. The first one counts.
    users: BTreeMap<VlanId, BTreeMap<Key, ProbedVlan>>,
    /// By VLAN of which objects ask for new probes: the version since which they do.
    pub(super) since: BTreeMap<VlanId, u64>,
    /// By revision: the VLANs of that path.
    paths: BTreeMap<u32, VlanSet>,
    /// By gateway: the VLANs on which it is asked.
    pub(super) gateways: BTreeMap<IpAddr, VlanSet>,
    /// What was found, by VLAN.
    tallies: BTreeMap<VlanId, Tally>,
}

/// What the nodes that count found on a VLAN.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// The nodes that reached the next one.
    pub passed: u32,
    /// Those that did not.
    pub lost: u32,
    /// Those that could not ask.
    unasked: u32,
    /// By gateway and the MAC addresses that answered: the number of nodes. No MAC address: nobody answered.
    pub gateways: BTreeMap<IpAddr, BTreeMap<BTreeSet<String>, u32>>,
}

/// What a node found.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Found {
    Passed,
    Lost,
    Unasked(String),
    Answer(IpAddr, BTreeSet<String>),
}

impl Tally {
    /// True when something answered.
    fn has_answer(&self) -> bool {
        let answered =
            |answers: &BTreeMap<BTreeSet<String>, u32>| answers.keys().any(|macs| !macs.is_empty());
        self.passed > 0 || self.gateways.values().any(answered)
    }

    /// Counts what a node found in or out. Returns true when a verdict may change.
    fn count(&mut self, found: &Found, more: bool) -> bool {
        let count = |number: &mut u32| {
            *number = if more { *number + 1 } else { number.saturating_sub(1) };
            *number == u32::from(more)
        };
        match found {
            // Where packets are lost, those that pass tell where not.
            Found::Passed => count(&mut self.passed) || self.lost > 0,
            Found::Lost => {
                count(&mut self.lost);
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

    fn is_empty(&self) -> bool {
        self.passed == 0 && self.lost == 0 && self.unasked == 0 && self.gateways.is_empty()
    }
}

impl Probed {
    /// What counts of the requests for a VLAN: the path with all that asks for new probes, and the gateways.
    fn wanted(&self, vid: VlanId) -> Option<(u32, BTreeSet<IpAddr>)> {
        let users = self.users.get(&vid)?;
        let first = users.values().next()?;
        let asked: BTreeMap<&Key, &Name> = users.values().flat_map(|user| &user.asked).collect();
        let revision = if asked.is_empty() { first.revision } else { renewed(first.revision, &asked) };
        Some((revision, first.gateways.clone()))
    }

    /// Replaces the request of an attachment for a VLAN, as of `version`. Returns true when what is probed changes.
    fn set(&mut self, vid: VlanId, key: &Key, vlan: Option<&ProbedVlan>, version: u64) -> bool {
        let before = self.wanted(vid);
        let users = self.users.entry(vid).or_default();
        match vlan {
            Some(vlan) => drop(users.insert(key.clone(), vlan.clone())),
            None => drop(users.remove(key)),
        }
        let is_asked = users.values().any(|user| !user.asked.is_empty());
        if users.is_empty() {
            self.users.remove(&vid);
        }
        let now = self.wanted(vid);
        if before == now {
            return false;
        }
        self.since.remove(&vid);
        if is_asked {
            self.since.insert(vid, version);
        }
        if let Some((revision, gateways)) = before {
            leave(&mut self.paths, &revision, vid);
            for gateway in gateways {
                leave(&mut self.gateways, &gateway, vid);
            }
        }
        if let Some((revision, gateways)) = now {
            self.paths.entry(revision).or_default().insert(vid);
            for gateway in gateways {
                self.gateways.entry(gateway).or_default().insert(vid);
            }
        }
        true
    }

    fn is_empty(&self) -> bool {
        self.users.is_empty() && self.tallies.is_empty()
    }
}

/// Identifies a path of which these objects ask for new probes.
fn renewed(revision: u32, asked: &BTreeMap<&Key, &Name>) -> u32 {
    let mut hash = Inputs::default();
    hash.add(&revision);
    for (key, nonce) in asked {
        hash.add(&(key.to_string(), &***nonce));
    }
    u32::try_from(hash.finish() >> 32).unwrap_or_default()
}

/// Takes a VLAN out of a set in a map.
fn leave<K: Ord>(sets: &mut BTreeMap<K, VlanSet>, key: &K, vid: VlanId) {
    if let Some(set) = sets.get_mut(key) {
        set.remove(vid);
        if set.is_empty() {
            sets.remove(key);
        }
    }
}

/// What a node found, each with its VLANs.
fn findings(results: Option<&ProbeResults>) -> BTreeMap<Found, VlanSet> {
    let mut all: BTreeMap<Found, VlanSet> = BTreeMap::new();
    let mut add = |found, vlans: &VlanSet| {
        let set = all.entry(found).or_default();
        *set = set.union(vlans);
    };
    if let Some(results) = results {
        add(Found::Passed, &results.passed);
        add(Found::Lost, &results.lost);
        for unasked in &results.unasked {
            add(Found::Unasked(unasked.reason.to_string()), &unasked.vlans);
        }
        for GatewayAnswer { address, macs, vlans } in &results.gateways {
            add(Found::Answer(*address, macs.clone()), vlans);
        }
    }
    all
}

/// The VLANs of each finding of `one` that the same finding of `other` has not.
fn surplus<'a>(
    one: &'a BTreeMap<Found, VlanSet>,
    other: &'a BTreeMap<Found, VlanSet>,
) -> impl Iterator<Item = (&'a Found, VlanSet)> {
    one.iter().map(|(found, vlans)| (found, vlans.difference(other.get(found).unwrap_or(&VlanSet::EMPTY))))
}

/// Results of at most as many gateways as a node is asked for: a compromised node may report any number, and each is
/// counted by VLAN.
pub(super) fn bounded(mut results: ProbeResults) -> ProbeResults {
    results.unasked.truncate(MAX_REASONS);
    let (mut counts, mut full) = (BTreeMap::<VlanId, usize>::new(), VlanSet::EMPTY);
    for answer in &mut results.gateways {
        answer.vlans = answer.vlans.difference(&full);
        for vid in answer.vlans.iter() {
            let count = counts.entry(vid).or_default();
            *count += 1;
            if *count == MAX_GATEWAYS {
                full.insert(vid);
            }
        }
    }
    results.gateways.retain(|answer| !answer.vlans.is_empty());
    results
}

/// Whether a gateway or the next node answered.
fn has_passed(results: &ProbeResults) -> bool {
    !results.passed.is_empty() || results.gateways.iter().any(|answer| !answer.macs.is_empty())
}

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
        for (of, vid, now) in changed.chain(gone) {
            let networks = self.probes.networks.entry(of.point.clone()).or_default();
            let probed = networks.entry(of.network.clone()).or_default();
            if probed.set(vid, key, now, version) {
                let is_asked = probed.since.get(&vid) == Some(&version);
                *points.entry(of.point.clone()).or_default() |= is_asked;
            }
            if probed.is_empty() {
                networks.remove(&of.network);
            }
            if networks.is_empty() {
                self.probes.networks.remove(&of.point);
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
        self.update_waiting(key, before.as_ref(), request);
        for (point, was) in probed {
            if self.is_probed(&point) != was {
                self.touch_lookups_of(&point, work);
            }
        }
    }

    /// True when something is probed at a connection point, or is to be once its path is confirmed.
    pub(super) fn is_probed(&self, point: &Name) -> bool {
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
    fn publish_point(&mut self, point: &Name) {
        if let Some(placed) = self.points.get(point) {
            let nodes = placed.nodes.iter().filter(|name| self.targets.contains_key(*name));
            self.changed.extend(nodes.cloned());
        }
    }

    /// What is probed for an attachment.
    pub(crate) fn probe_request(&self, key: &Key) -> Option<&ProbeRequest> {
        self.probes.requests.get(key)
    }

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
        let probes = |name: &&Name| {
            self.probes.alive.contains(*name) && self.targets.get(*name).is_some_and(NodeTarget::is_probing)
        };
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

    /// The node that another one asks at a connection point, and the one that asks it.
    pub(crate) fn neighbours(&self, point: &Name, name: &Name) -> Option<(&Name, &Name)> {
        let nodes = &self.points.get(point)?.nodes;
        let asks =
            |other: &&Name| *other != name && self.targets.get(*other).is_some_and(NodeTarget::is_probing);
        let after = (Bound::Excluded(name), Bound::Unbounded);
        let next = nodes.range::<Name, _>(after).find(asks).or_else(|| nodes.iter().find(asks))?;
        let before = nodes.range::<Name, _>(..name).rev().find(asks);
        Some((next, before.or_else(|| nodes.iter().rev().find(asks))?))
    }

    /// True when at least two nodes of a connection point probe.
    pub(crate) fn has_ring(&self, point: &Name) -> bool {
        let nodes = self.points.get(point).into_iter().flat_map(|placed| placed.nodes.iter());
        nodes.filter_map(|name| self.targets.get(name)).filter(|node| node.is_probing()).nth(1).is_some()
    }

    /// True when the agent of a node that probes at a connection point is alive.
    pub(crate) fn has_agent(&self, point: &Name) -> bool {
        let nodes = self.points.get(point).into_iter().flat_map(|placed| placed.nodes.iter());
        let mut alive = nodes.filter(|name| self.probes.alive.contains(*name));
        alive.any(|name| self.targets.get(name).is_some_and(NodeTarget::is_probing))
    }

    /// The probes of a node.
    pub(super) fn render_probes(&self, name: &Name, node: &NodeTarget) -> Vec<NetworkProbes> {
        let mut all = Vec::new();
        if !node.is_probing() {
            return all;
        }
        for point in node.points.keys() {
            let (Some(placed), Some(networks)) = (self.points.get(point), self.probes.networks.get(point))
            else {
                continue;
            };
            for (network, _) in self.networks_of(point) {
                let probed = networks.get(network);
                let probes = probed.map(|probed| self.render_network(placed, (point, network), name, probed));
                all.extend(probes.filter(|probes| {
                    !probes.paths.is_empty() && (probes.next.is_some() || !probes.gateways.is_empty())
                }));
            }
        }
        all
    }

    fn render_network(
        &self,
        placed: &PlacedPoint,
        (point, network): (&Name, &str),
        name: &Name,
        probed: &Probed,
    ) -> NetworkProbes {
        let Verify { between, interval, .. } = placed.verify;
        let neighbours = if between == VerifyBetween::Gateway { None } else { self.neighbours(point, name) };
        let paths = probed.paths.iter().map(|(revision, vlans)| ProbedPath {
            revision: format!("{revision:08x}"),
            vlans: vlans.clone(),
            mtu: None,
        });
        let gateways = probed.gateways.iter().filter(|_| between != VerifyBetween::Nodes);
        let gateways =
            gateways.map(|(address, vlans)| ProbedGateway { address: *address, vlans: vlans.clone() });
        NetworkProbes {
            point: point.to_string(),
            network: network.to_owned(),
            next: neighbours.map(|(next, _)| next.to_string()),
            previous: neighbours.map(|(_, previous)| previous.to_string()),
            paths: paths.collect(),
            gateways: gateways.collect(),
            crossed: Vec::new(),
            interval,
        }
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
    fn evaluate_probed(&self, point: &Name, work: &mut Work) {
        let networks = self.probes.networks.get(point).into_iter().flat_map(BTreeMap::values);
        for (key, vlan) in networks.flat_map(|probed| probed.users.values().flatten()) {
            work.evaluate.extend([key.clone(), vlan.service.clone()]);
        }
    }

    /// Sets how a connection point is probed.
    pub(super) fn set_verify(&mut self, point: &Name, verify: Verify, work: &mut Work) {
        let Some(placed) = self.points.get_mut(point).filter(|placed| placed.verify != verify) else {
            return;
        };
        placed.verify = verify;
        self.evaluate_probed(point, work);
        self.publish_point(point);
    }

    /// A node joins or leaves the rings of its connection points.
    pub(super) fn update_rings(&mut self, name: &Name, work: &mut Work) {
        let Some(node) = self.targets.get(name) else { return };
        let points: Vec<Name> = node.points.keys().cloned().collect();
        work.evaluate.extend(self.probes.verifying.iter().cloned());
        for point in points {
            self.evaluate_probed(&point, work);
            let neighbours =
                self.neighbours(&point, name).map(|(next, before)| [next, before].map(Name::clone));
            let neighbours: Vec<Name> = neighbours.into_iter().flatten().collect();
            work.lookup.extend(neighbours.iter().cloned());
            self.changed.extend(neighbours);
            self.changed.insert(name.clone());
        }
    }

    /// Counts what a node found: that of its last report while it is ready and its agent is alive, else nothing.
    pub(super) fn recount(&mut self, name: &Name, work: &mut Work) {
        let Some(node) = self.targets.get(name) else { return };
        let counts = node.ready && self.probes.alive.contains(name);
        let is_known = |(point, network): &(Name, String)| {
            node.points.contains_key(point) && self.shape(point, network).is_some()
        };
        let results = node.probes.iter().filter(|(key, _)| counts && is_known(key));
        let now = results.map(|(key, results)| (key.clone(), results.clone())).collect();
        self.replace_counted(name, &now, work);
    }

    /// Counts nothing of a node any more.
    pub(super) fn uncount(&mut self, name: &Name, work: &mut Work) {
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

    /// Whether other nodes have their label may depend on what a node found.
    fn label_gated(&mut self, point: &Name) {
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
    pub(super) fn is_let_through(&self, point: &Name, name: &Name, node: &NodeTarget) -> bool {
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

impl Probes {
    /// Counts what a node found in a network, and requests the evaluation of what that concerns. `is_gate`: a verdict also
    /// depends on how many nodes have found something.
    fn count(
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
    fn results_of_a_hostile_node_are_bounded() {
        let all: VlanSet = (1..=4094).filter_map(|id| VlanId::new(id).ok()).collect();
        let answer = |host: u32| GatewayAnswer {
            address: IpAddr::from(host.to_be_bytes()),
            macs: BTreeSet::new(),
            vlans: all.clone(),
        };
        let unasked =
            |number: u32| eno_schemas::Unasked { reason: number.to_string().into(), vlans: all.clone() };
        let results = bounded(ProbeResults {
            gateways: (0..20_000).map(answer).collect(),
            unasked: (0..20_000).map(unasked).collect(),
            ..ProbeResults::default()
        });
        assert_eq!((results.gateways.len(), results.unasked.len()), (MAX_GATEWAYS, MAX_REASONS));
        let few = ProbeResults { gateways: (0..8).map(answer).collect(), ..ProbeResults::default() };
        assert_eq!(bounded(few.clone()), few);
    }

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
        ] {
            assert_eq!(tally.count(&found, more), may_change, "{found:?} {more}");
        }
        assert!(tally.has_answer() && !tally.is_empty());
    }

    #[test]
    fn vlans_are_grouped_by_path_in_any_order() {
        let vid = |id| VlanId::new(id).unwrap();
        let vlan = |revision, gateways: &[[u8; 4]]| ProbedVlan {
            service: Key::cluster(crate::Kind::L2Service, &"s".into()),
            revision,
            gateways: gateways.iter().map(|one| IpAddr::from(*one)).collect(),
            asked: BTreeMap::new(),
        };
        let keys = ["a", "b"].map(|name| Key::cluster(crate::Kind::L2ServiceAttachment, &name.into()));
        let mut probed = Probed::default();
        let gateway = [10, 1, 0, 1];
        assert!(probed.set(vid(10), &keys[1], Some(&vlan(1, &[gateway])), 1));
        assert!(!probed.set(vid(10), &keys[0], Some(&vlan(1, &[gateway])), 1), "it is probed already");
        assert!(probed.set(vid(11), &keys[0], Some(&vlan(1, &[])), 1));
        let texts = |probed: &Probed| {
            let paths = probed.paths.iter().map(|(revision, vlans)| format!("{revision}: {vlans}"));
            let gateways = probed.gateways.iter().map(|(address, vlans)| format!("{address}: {vlans}"));
            paths.chain(gateways).collect::<Vec<_>>()
        };
        assert_eq!(texts(&probed), ["1: 10-11", "10.1.0.1: 10"]);
        assert!(probed.set(vid(10), &keys[0], Some(&vlan(2, &[])), 1), "the first attachment counts");
        assert_eq!(texts(&probed), ["1: 11", "2: 10"]);
        assert!(probed.set(vid(10), &keys[0], None, 1) && probed.set(vid(10), &keys[1], None, 1));
        assert!(probed.set(vid(11), &keys[0], None, 1) && probed.is_empty() && texts(&probed).is_empty());
    }
}
