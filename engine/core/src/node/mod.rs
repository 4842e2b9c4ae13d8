//! The networks on hosts: what connection points and their users want on each node.
//!
//! A connection point wants the same on each of its nodes, so that is stored once, with the version of its last
//! change. A change of one VLAN costs one entry here and one mark per node. The state of a node is rendered when it
//! is published.

pub mod hosts;
pub mod shape;
pub mod target;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use eno_schemas::{Desired, VlanId, VlanSet};
use serde::Serialize;

use crate::Name;
use crate::fabric::device::HopState;
use crate::node::shape::{Shape, Shapes};
use crate::node::target::NodeTarget;
use crate::vlan::Seniority;

/// The demand of an attachment or bridge domain on a network of a connection point.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Demand {
    /// The connection point.
    pub point: Name,
    /// The network's name on the host.
    pub network: String,
    /// The VLANs. Empty for an attachment that uses the network without naming VLANs.
    pub vids: BTreeSet<VlanId>,
    /// Bytes.
    pub mtu: Option<u32>,
}

/// A connection point on its nodes.
#[derive(Debug, Default)]
struct PlacedPoint {
    /// Its precedence.
    seniority: (i64, Name),
    /// Its nodes.
    nodes: Arc<BTreeSet<Name>>,
    /// The networks that it needs.
    shapes: Shapes,
    /// By network: the version of its last change.
    since: BTreeMap<String, u64>,
    /// Networks that conflict with an older connection point.
    blocked: BTreeSet<String>,
}

impl PlacedPoint {
    /// True for a master that is also a bridge's uplink: it is only wanted where it is in use.
    fn is_on_demand(&self, name: &str, shape: &Shape) -> bool {
        let uplink = |other: &Shape| {
            !matches!(other, Shape::Master { .. }) && other.nics().iter().any(|nic| nic == name)
        };
        matches!(shape, Shape::Master { .. }) && self.shapes.values().any(uplink)
    }
}

/// The sum of all demands on one network of one connection point.
#[derive(Debug, Default)]
struct Usage {
    /// The number of demands.
    users: u32,
    /// By VLAN: the number of demands, and the version since when there is one.
    vids: BTreeMap<VlanId, (u32, u64)>,
    /// The keys of `vids`.
    set: VlanSet,
    /// By MTU in bytes: the number of demands. The highest one counts.
    mtus: BTreeMap<u32, u32>,
    /// The version of the last change of the MTU.
    mtu_since: u64,
}

impl Usage {
    fn mtu(&self) -> Option<u32> {
        self.mtus.last_key_value().map(|(mtu, _)| *mtu)
    }

    /// Counts a demand in or out. Returns true when the sum changes.
    fn count(&mut self, demand: &Demand, more: bool, version: u64) -> bool {
        let mut changed = false;
        self.users = if more { self.users + 1 } else { self.users.saturating_sub(1) };
        changed |= self.users == u32::from(more);
        for vid in &demand.vids {
            let (count, since) = self.vids.entry(*vid).or_default();
            *count = if more { *count + 1 } else { count.saturating_sub(1) };
            match (*count, more) {
                (0, _) => {
                    self.vids.remove(vid);
                    changed |= self.set.remove(*vid);
                }
                (1, true) => {
                    *since = version;
                    changed |= self.set.insert(*vid);
                }
                _ => {}
            }
        }
        let before = self.mtu();
        if let Some(mtu) = demand.mtu {
            let count = self.mtus.entry(mtu).or_default();
            *count = if more { *count + 1 } else { count.saturating_sub(1) };
            if *count == 0 {
                self.mtus.remove(&mtu);
            }
        }
        if before != self.mtu() {
            (changed, self.mtu_since) = (true, version);
        }
        changed
    }
}

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
    /// The nodes.
    targets: BTreeMap<Name, NodeTarget>,
    /// Nodes whose desired state changed, for [`Self::take_changed_nodes`].
    changed: BTreeSet<Name>,
    /// Nodes whose labels and extended resources may have changed.
    pub label_queue: BTreeSet<Name>,
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

    /// A node, mutably.
    pub fn node_mut(&mut self, name: &str) -> Option<&mut NodeTarget> {
        self.targets.get_mut(name)
    }

    /// Adds a node or updates its readiness. Returns true when it is new or its readiness changed.
    pub fn add_node(&mut self, name: &Name, ready: bool) -> bool {
        let new = !self.targets.contains_key(name);
        let node = self.targets.entry(name.clone()).or_default();
        let changed = new || node.ready != ready;
        node.ready = ready;
        if new {
            self.version += 1;
            let joined = self.points.iter().filter(|(_, placed)| placed.nodes.contains(name));
            node.points = joined.map(|(point, _)| (point.clone(), self.version)).collect();
            node.touch(self.version);
            self.changed.insert(name.clone());
        }
        changed
    }

    /// Removes a node and returns it.
    pub fn remove_node(&mut self, name: &Name) -> Option<NodeTarget> {
        self.changed.remove(name);
        self.targets.remove(name)
    }

    /// Takes the nodes whose desired state changed.
    pub fn take_changed_nodes(&mut self) -> BTreeSet<Name> {
        std::mem::take(&mut self.changed)
    }

    /// True when [`Self::take_changed_nodes`] would return any.
    pub fn has_changed_nodes(&self) -> bool {
        !self.changed.is_empty()
    }

    /// Applies `change` to a node with the next version, which counts if `change` returns true.
    pub fn change(&mut self, node: &Name, change: impl FnOnce(&mut NodeTarget, u64) -> bool) {
        let version = self.version + 1;
        if self.targets.get_mut(node).is_some_and(|target| change(target, version)) {
            self.version = version;
            self.changed.insert(node.clone());
        }
    }

    /// Sets the nodes and networks of a connection point; `None` removes it. On a change it returns the other
    /// connection points with a network or NIC of the same name.
    pub fn set_point(
        &mut self,
        point: &Name,
        placement: Option<(Seniority, Arc<BTreeSet<Name>>, Shapes)>,
    ) -> BTreeSet<Name> {
        let (seniority, nodes, shapes) = placement.unwrap_or_default();
        let before = self.points.get(point);
        let (old_nodes, old_shapes) =
            before.map(|placed| (placed.nodes.clone(), placed.shapes.clone())).unwrap_or_default();
        let blocked: BTreeSet<String> = shapes
            .iter()
            .filter(|(name, shape)| self.conflicting_point(point, &seniority, &nodes, name, shape).is_some())
            .map(|(name, _)| name.clone())
            .collect();
        let unchanged = before.is_some() && old_nodes == nodes && old_shapes == shapes;
        if unchanged && before.is_some_and(|placed| placed.blocked == blocked) {
            return BTreeSet::new();
        }
        self.version += 1;
        let version = self.version;
        let since = shapes
            .iter()
            .map(|(name, shape)| {
                let same = old_shapes.get(name) == Some(shape)
                    && before.is_some_and(|placed| placed.blocked.contains(name) == blocked.contains(name));
                let kept = before.filter(|_| same).and_then(|placed| placed.since.get(name).copied());
                (name.clone(), kept.unwrap_or(version))
            })
            .collect();
        for name in old_nodes.union(&nodes) {
            let Some(node) = self.targets.get_mut(name) else { continue };
            if !nodes.contains(name) {
                node.points.remove(point);
            } else if !node.points.contains_key(point) {
                node.points.insert(point.clone(), version);
            }
            node.touch(version);
            self.changed.insert(name.clone());
        }
        let mut rivals = BTreeSet::new();
        for claim in claims(&old_shapes) {
            if let Some(points) = self.claims.get_mut(claim) {
                points.remove(point);
                rivals.extend(points.iter().cloned());
                if points.is_empty() {
                    self.claims.remove(claim);
                }
            }
        }
        for claim in claims(&shapes) {
            let points = self.claims.entry(claim.to_owned()).or_default();
            rivals.extend(points.iter().cloned());
            points.insert(point.clone());
        }
        if shapes.is_empty() && nodes.is_empty() {
            self.points.remove(point);
        } else {
            self.points.insert(point.clone(), PlacedPoint { seniority, nodes, shapes, since, blocked });
        }
        if unchanged { BTreeSet::new() } else { rivals }
    }

    /// The older connection point that a network conflicts with, and the conflict as text.
    fn conflicting_point(
        &self,
        point: &Name,
        seniority: &Seniority,
        nodes: &BTreeSet<Name>,
        name: &str,
        shape: &Shape,
    ) -> Option<(&Name, String)> {
        let older = |claim: &str| {
            let others = self.claims.get(claim).into_iter().flatten();
            let others = others.filter_map(|other| Some((other, self.points.get(other)?)));
            let others: Vec<(&Name, &PlacedPoint)> = others
                .filter(|(other, placed)| {
                    *other != point && placed.seniority < *seniority && !placed.nodes.is_disjoint(nodes)
                })
                .collect();
            others
        };
        for (other, placed) in older(name) {
            if placed.shapes.get(name).is_some_and(|theirs| theirs != shape) {
                return Some((other, format!("{} {name} is not the same there", shape.noun())));
            }
        }
        for nic in shape.nics() {
            for (other, placed) in older(nic) {
                let theirs = placed.shapes.iter().find(|(_, shape)| shape.nics().contains(nic));
                if let Some((theirs, shape)) = theirs.filter(|(theirs, _)| *theirs != name) {
                    return Some((other, format!("{nic} leads to {} {theirs} there", shape.noun())));
                }
            }
        }
        None
    }

    /// Why a connection point can't have its networks: an older one has them differently on a shared node.
    pub fn conflict(
        &self,
        point: &Name,
        seniority: &Seniority,
        nodes: &BTreeSet<Name>,
        shapes: &Shapes,
    ) -> Option<String> {
        shapes.iter().find_map(|(name, shape)| {
            let (other, what) = self.conflicting_point(point, seniority, nodes, name, shape)?;
            Some(format!(
                "{} {name} can't be made beside ConnectionPoint {other}, which shares nodes: {what}; let both say the same or use other names",
                shape.noun()
            ))
        })
    }

    /// The connection point that has a network or NIC of that name, if there is one.
    pub fn owner_of(&self, network: &str) -> Option<&Name> {
        self.claims.get(network)?.first()
    }

    /// The names of the networks and NICs of a connection point.
    pub fn names_of(&self, point: &Name) -> BTreeSet<String> {
        let placed = self.points.get(point);
        placed.map(|placed| claims(&placed.shapes).map(str::to_owned).collect()).unwrap_or_default()
    }

    /// Replaces the demands of an object.
    pub fn update_demands(&mut self, before: &[Demand], after: &[Demand]) {
        let version = self.version + 1;
        for (demands, more) in [(after, true), (before, false)] {
            for demand in demands {
                let usages = self.usage.entry(demand.point.clone()).or_default();
                let usage = usages.entry(demand.network.clone()).or_default();
                let changed = usage.count(demand, more, version);
                if usage.users == 0 {
                    usages.remove(&demand.network);
                }
                if usages.is_empty() {
                    self.usage.remove(&demand.point);
                }
                if changed {
                    self.version = version;
                    self.touch_point(&demand.point);
                }
            }
        }
    }

    fn touch_point(&mut self, point: &Name) {
        let Some(placed) = self.points.get(point) else { return };
        for name in &*placed.nodes {
            if let Some(node) = self.targets.get_mut(name) {
                node.touch(self.version);
                self.changed.insert(name.clone());
            }
        }
    }

    /// The nodes of a connection point.
    pub fn nodes_of(&self, point: &Name) -> Arc<BTreeSet<Name>> {
        self.points.get(point).map(|placed| placed.nodes.clone()).unwrap_or_default()
    }

    /// The networks that a connection point has on its nodes: the ones that it needs and that don't conflict with an
    /// older one.
    pub fn networks_of(&self, point: &Name) -> impl Iterator<Item = (&String, &Shape)> {
        let placed = self.points.get(point);
        placed.into_iter().flat_map(move |placed| {
            let usage = self.usage.get(point);
            placed.shapes.iter().filter(move |(name, shape)| {
                let used = usage.is_some_and(|usage| usage.contains_key(*name));
                !placed.blocked.contains(*name) && (used || !placed.is_on_demand(name, shape))
            })
        })
    }

    /// The shape of a network of a connection point.
    pub fn shape(&self, point: &Name, network: &str) -> Option<&Shape> {
        self.points.get(point)?.shapes.get(network)
    }

    /// True when a network is, or may be, on a node where nothing wants it. With `vids`: the same of one of these
    /// VLANs on it.
    pub fn is_leftover(&self, node: &NodeTarget, network: &str, vids: &BTreeSet<VlanId>) -> bool {
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
    pub fn hop<'a>(
        &self,
        node: &'a NodeTarget,
        point: &Name,
        network: &str,
        vlan: Option<VlanId>,
        mtu: Option<u32>,
    ) -> HopState<'a> {
        let Some(placed) = self.points.get(point) else { return HopState::Waiting };
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
        Some(target.render(cluster, networks))
    }

    /// Records that the state of a node with this hash is issued. Returns whether it confirms something at once.
    pub fn record_issued(&mut self, name: &Name, hash: &str) -> bool {
        let version = self.version;
        self.targets.get_mut(name).is_some_and(|target| target.record_issued(hash, version))
    }

    /// The labels and extended resources of a node: the connection points whose networks are all there, and the Open
    /// vSwitch bridges among these networks.
    pub fn labels_and_resources(&self, name: &str) -> Option<(BTreeSet<Name>, BTreeSet<Name>)> {
        let node = self.targets.get(name).filter(|node| node.is_known())?;
        let (mut points, mut bridges) = (BTreeSet::new(), BTreeSet::new());
        for point in node.points.keys() {
            let Some(placed) = self.points.get(point) else { continue };
            let mut whole = placed.blocked.is_empty();
            for (network, shape) in self.networks_of(point) {
                if self.hop(node, point, network, None, None) != HopState::Confirmed {
                    whole = false;
                } else if matches!(shape, Shape::Ovs { .. }) {
                    bridges.insert(Name::from(network.as_str()));
                }
            }
            if whole {
                points.insert(point.clone());
            }
        }
        Some((points, bridges))
    }
}

fn claims(shapes: &Shapes) -> impl Iterator<Item = &str> {
    let names = shapes.keys().map(String::as_str);
    names.chain(shapes.values().flat_map(|shape| shape.nics().iter().map(String::as_str)))
}
