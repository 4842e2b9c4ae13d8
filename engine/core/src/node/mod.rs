//! The networks on hosts: what connection points and their users want on each node.
//!
//! A connection point wants the same on each of its nodes, so that is stored once, with the version of its last
//! change. A change of one VLAN costs one entry here and one mark per node. The state of a node is rendered when it
//! is published.

pub mod addresses;
pub mod demands;
mod lookups;
pub mod points;
pub mod probes;
pub mod shape;
pub mod state;
pub mod target;
pub mod verification;

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use eno_schemas::{
    AppliedAddresses, Desired, HostNetwork, NodeAddresses, NodeDesired, NodePod, Report, VlanId, VlanSet,
};

use crate::status::hop::{HopState, Wait};
use crate::store::Store;
use crate::work::Work;
use crate::{Effect, Key, Name, Target};

use demands::{HostUse, Usage};
use points::PlacedPoint;
use probes::Probes;
use shape::Shape;
use target::{NodeChanges, NodeTarget, ReportChange};

/// The driver that realises nodes; the agent of one is alive as `node/<name>`.
pub(crate) const NODE_DRIVER: &str = "node";

/// All nodes, and what is wanted on their hosts.
#[derive(Debug, Default)]
pub struct Nodes {
    /// Counts the changes of anything.
    version: u64,
    /// The connection points.
    points: BTreeMap<Name, PlacedPoint>,
    /// By connection point and network: the demands on it.
    usage: HashMap<Name, BTreeMap<String, Usage>>,
    /// By name of a network or NIC: the connection points that have it.
    claims: HashMap<String, BTreeSet<Name>>,
    /// What each object wants on hosts.
    objects: HashMap<Key, HostUse>,
    /// The nodes.
    targets: BTreeMap<Name, NodeTarget>,
    /// Nodes whose desired state changed.
    changed: BTreeSet<Name>,
    /// Nodes whose labels and extended resources may have changed.
    label_queue: BTreeSet<Name>,
    /// What agents probe, and what they found.
    probes: Probes,
    /// Whose probes have a MAC address. Emptied when a connection point gets other nodes.
    mac_owners: OnceCell<lookups::Owners>,
}

impl Nodes {
    /// The version of the last change of anything.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// A node.
    pub fn node(&self, name: &str) -> Option<&NodeTarget> {
        self.targets.get(name)
    }

    /// A node that is ready, with its name.
    pub(crate) fn ready_node(&self, name: &Name) -> Option<(&Name, &NodeTarget)> {
        self.targets.get_key_value(name).filter(|(_, node)| node.ready)
    }

    /// Adds a node. Returns true when it is new.
    pub fn add_node(&mut self, name: &Name, ready: bool) -> bool {
        if self.targets.contains_key(name) {
            return false;
        }
        self.version += 1;
        let joined = self.points.iter().filter(|(_, placed)| placed.nodes.contains(name));
        let mut node = NodeTarget::default();
        node.ready = ready;
        node.points = joined.map(|(point, _)| (point.clone(), self.version)).collect();
        node.touch(self.version);
        self.targets.insert(name.clone(), node);
        self.changed.insert(name.clone());
        true
    }

    /// A node becomes ready, or ceases to be. `None`: nothing changed.
    pub fn set_ready(
        &mut self,
        store: &Store,
        name: &Name,
        ready: bool,
        work: &mut Work,
    ) -> Option<NodeChanges> {
        let node = self.targets.get_mut(name).filter(|node| node.ready != ready)?;
        node.ready = ready;
        node.reevaluate_points(store, work);
        self.recount(name, work);
        self.update_rings(name, work);
        Some(NodeChanges { all_pods: true, all_bridges: true, ..self.changes(name, work) })
    }

    /// Removes a node. Returns true when it was there.
    pub fn remove_node(&mut self, name: &Name, work: &mut Work) -> bool {
        self.uncount(name, work);
        self.update_rings(name, work);
        self.changed.remove(name);
        let Some(node) = self.targets.remove(name) else { return false };
        work.evaluate.extend(node.waiters);
        work.evaluate.extend(node.observed_addresses.keys().map(addresses::subnet));
        work.forget.push(Target::Node(name.clone()));
        true
    }

    /// Processes a report of an agent. `None`: nothing changed.
    pub fn report(
        &mut self,
        store: &Store,
        name: &Name,
        report: Report,
        work: &mut Work,
    ) -> Option<NodeChanges> {
        let rings = self.rings_of(name);
        let node = self.targets.get_mut(name)?;
        let verdicts = lookups::verdicts(&node.probes);
        addresses::reevaluate_changed(store, &node.observed_addresses, &report, work);
        let all_bridges = match node.report(report) {
            ReportChange::None => return None,
            ReportChange::Progress => false,
            ReportChange::Evaluation => {
                node.reevaluate_points(store, work);
                true
            }
        };
        let same_verdicts = verdicts == lookups::verdicts(&node.probes);
        if self.rings_of(name) != rings {
            self.update_rings(name, work);
        }
        if !same_verdicts {
            self.touch_lookups(name, work);
        }
        self.recount(name, work);
        Some(NodeChanges { all_bridges, ..self.changes(name, work) })
    }

    /// The changes of a node since the last call, after a report or a confirmation at once
    /// ([`Self::record_issued`]).
    pub fn changes(&mut self, name: &Name, work: &mut Work) -> NodeChanges {
        self.reevaluate_waiters(name, work);
        work.evaluate.extend(self.probes.verifying.iter().cloned());
        self.label_queue.insert(name.clone());
        self.targets.get_mut(name).map(NodeTarget::take_changes).unwrap_or_default()
    }

    /// Records that the status of an object waits for a node.
    pub fn wait(&mut self, name: &Name, key: &Key) {
        if let Some(node) = self.targets.get_mut(name) {
            node.waiters.insert(key.clone());
        }
    }

    /// Requests the evaluation of the objects that wait for a node.
    pub fn reevaluate_waiters(&mut self, name: &Name, work: &mut Work) {
        if let Some(node) = self.targets.get_mut(name) {
            work.evaluate.append(&mut node.waiters);
        }
    }

    /// Takes what other parts request.
    pub fn take_requests(&mut self, work: &mut Work) {
        self.label_queue.extend(std::mem::take(&mut work.label));
    }

    /// True when [`Self::emit`] has nothing to do.
    pub fn is_idle(&self) -> bool {
        self.changed.is_empty() && self.label_queue.is_empty()
    }

    /// Requests commands for changed nodes, and emits their labels and extended resources.
    pub fn emit(&mut self, work: &mut Work) {
        for name in std::mem::take(&mut self.changed) {
            work.publish.insert(Target::Node(name.clone()));
            self.label_queue.insert(name);
        }
        for name in std::mem::take(&mut self.label_queue) {
            let Some(labels) = self.labels_and_resources(&name) else { continue };
            let Some(node) = self.targets.get_mut(&name) else { continue };
            if node.published_labels.as_ref() != Some(&labels) {
                node.published_labels = Some(labels.clone());
                let (points, bridges) = labels;
                work.effects.push(Effect::LabelNode { node: name, points, bridges });
            }
        }
    }

    /// Sets what a pod on a node is given; `None`: nothing.
    pub fn want_pod(&mut self, node: &Name, uid: &Name, pod: Option<Arc<NodePod>>) {
        self.change(node, |target, version| target.want_pod(uid, pod, version));
    }

    /// Sets the desired state of a pod bridge on a node; `None`: not wanted.
    pub fn want_bridge(&mut self, node: &Name, name: &str, bridge: Option<HostNetwork>) {
        self.change(node, |target, version| target.want_bridge(name, bridge, version));
    }

    /// Sets the addresses of a Subnet that a node may give to pods; `None`: the Subnet is not commanded.
    pub fn want_addresses(&mut self, node: &Name, subnet: &Name, addresses: Option<NodeAddresses>) {
        self.change(node, |target, version| target.want_addresses(subnet, addresses, version));
    }

    /// The nodes that reported on addresses of a Subnet.
    pub fn observed_addresses(&self, subnet: &Name) -> impl Iterator<Item = (&Name, &AppliedAddresses)> {
        self.targets.iter().filter_map(|(name, node)| Some((name, node.observed_addresses(subnet)?)))
    }

    /// Tracks a pod that loses something on a node, which an earlier process may have given it.
    pub fn track_removal(&mut self, node: &Name, uid: &Name) {
        if let Some(target) = self.targets.get_mut(node) {
            target.track_removal(uid);
        }
    }

    /// Applies `change` to a node with the next version, which counts if `change` returns true.
    fn change(&mut self, node: &Name, change: impl FnOnce(&mut NodeTarget, u64) -> bool) {
        let version = self.version + 1;
        if self.targets.get_mut(node).is_some_and(|target| change(target, version)) {
            self.version = version;
            self.changed.insert(node.clone());
        }
    }

    /// True when a network is, or may be, on a node where nothing wants it. With `vids`: the same of one of these
    /// VLANs on it.
    fn is_leftover(&self, node: &NodeTarget, network: &str, vids: &BTreeSet<VlanId>) -> bool {
        let mut wanted = VlanSet::EMPTY;
        let mut is_wanted = false;
        for point in node.points.keys() {
            is_wanted |= self.networks_of(point).any(|(name, _)| name == network);
            if let Some(usage) = self.usage.get(point).and_then(|usages| usages.get(network)) {
                wanted = wanted.union(&usage.set);
            }
        }
        let seen = node.observed_network(network);
        if seen.is_none() && node.unanswered(network).is_none() {
            return false;
        }
        if vids.is_empty() {
            return !is_wanted;
        }
        let may_be_there = |vid: VlanId| seen.is_none_or(|seen| seen.vlans.contains(vid));
        vids.iter().any(|vid| may_be_there(*vid) && !wanted.contains(*vid))
    }

    /// The state of a network of a connection point on a node, or with `vlan` of that VLAN.
    fn hop<'a>(
        &self,
        node: &'a NodeTarget,
        point: &Name,
        network: &str,
        vlan: Option<VlanId>,
        mtu: Option<u32>,
    ) -> HopState<'a> {
        let Some(placed) = self.points.get(point) else { return HopState::Waiting(Wait::Report) };
        let usage = self.usage.get(point).and_then(|usages| usages.get(network));
        let mut since = placed.since.get(network).copied().unwrap_or(self.version);
        since = since.max(node.points.get(point).copied().unwrap_or(self.version));
        if let Some(vid) = vlan {
            since =
                since.max(usage.and_then(|usage| usage.vids.get(&vid)).map_or(self.version, |(_, at)| *at));
        }
        let mtu = mtu.filter(|_| placed.shapes.get(network).is_some_and(Shape::has_mtu));
        node.network_hop(network, vlan, mtu, since)
    }

    /// The complete desired state of a node.
    pub fn render(&self, name: &Name, cluster: &str) -> Option<Desired> {
        let target = self.targets.get(name)?;
        let mut wanted: BTreeMap<&String, (&Shape, VlanSet, Option<u32>)> = BTreeMap::new();
        for point in target.points.keys() {
            let usages = self.usage.get(point);
            for (network, shape) in self.networks_of(point) {
                let entry = wanted.entry(network).or_insert((shape, VlanSet::EMPTY, None));
                if let Some(usage) = usages.and_then(|usages| usages.get(network)) {
                    entry.1 = entry.1.union(&usage.set);
                    entry.2 = entry.2.max(usage.mtu());
                }
            }
        }
        let networks = wanted
            .into_iter()
            .map(|(network, (shape, vlans, mtu))| (network.clone(), shape.render(vlans, mtu)))
            .collect();
        Some(target.render(cluster, networks, self.render_probes(name, target)))
    }

    /// Records that the present desired state of a node is issued, with its hash. Returns true when that confirms
    /// something at once: a state that the node has already reported gets no new report. `is_stored`: NATS holds this
    /// state.
    pub fn record_issued(&mut self, name: &Name, hash: &str, is_stored: bool) -> bool {
        let version = self.version;
        self.targets.get_mut(name).is_some_and(|target| target.record_issued(hash, version, is_stored))
    }

    /// Records that a former leader commanded the present desired state, with other probes, by the hash of its command.
    /// What is probed is only known after the reports on it.
    pub fn begin_with_hash(&mut self, name: &Name, cluster: &str, former: &NodeDesired, hash: &str) {
        let Some(Desired::Node(own)) = self.render(name, cluster) else { return };
        if (NodeDesired { probes: former.probes.clone(), ..own }) == *former {
            self.record_issued(name, hash, false);
        }
    }

    /// The labels and extended resources of a node: the connection points whose networks are all there and which probes
    /// let through, and the Open vSwitch bridges among these networks.
    fn labels_and_resources(&self, name: &Name) -> Option<(BTreeSet<Name>, BTreeSet<Name>)> {
        let node = self.targets.get(name).filter(|node| node.is_known())?;
        let (mut points, mut bridges) = (BTreeSet::new(), BTreeSet::new());
        for point in node.points.keys() {
            let Some(placed) = self.points.get(point) else { continue };
            let mut whole = placed.blocked.is_empty();
            for (network, shape) in self.networks_of(point) {
                if !self.hop(node, point, network, None, None).is_there() {
                    whole = false;
                } else if matches!(shape, Shape::Ovs { .. }) {
                    bridges.insert(Name::from(network.as_str()));
                }
            }
            if whole && self.is_let_through(point, name, node) {
                points.insert(point.clone());
            }
        }
        Some((points, bridges))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::Kind;
    use crate::store::fixture::{config, key, store};

    #[test]
    fn connection_point_changes_the_desired_state_of_its_nodes() {
        let point = json!({ "SupportedCnis": [{ "SupportedInterfaceTypes": ["kernel"], "Plugin": { "Name": "Ovs", "BridgeName": "br" } }] });
        let mut store = store([(Kind::ConnectionPoint, "cp", point)]);
        let (mut nodes, mut work) = (Nodes::default(), Work::default());
        let node = Name::from("node1");
        store.set_node(&node, crate::Labels::default());
        assert!(nodes.add_node(&node, true) && !nodes.add_node(&node, true));
        nodes.emit(&mut work);
        let before = nodes.render(&node, "lab").expect("a desired state");
        assert!(!nodes.record_issued(&node, &before.hash(), true), "nothing was reported yet");
        let change = nodes.plan(&config(), &store, &key(Kind::ConnectionPoint, "cp"), &mut work);
        assert!(change.changed && nodes.render(&node, "lab") != Some(before));
        work = Work::default();
        nodes.emit(&mut work);
        assert_eq!((work.publish.len(), nodes.is_idle()), (1, true));
    }
}
