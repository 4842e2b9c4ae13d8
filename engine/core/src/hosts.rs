//! The networks of the nodes' hosts: what connection points and those who use them want of which node.
//!
//! What a connection point wants is the same on each of its nodes, so it is kept once, with the version of its last
//! change: a change of one VLAN costs its entry here and a mark on each of the nodes, and the node's state is put
//! together when it is asked for.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use eno_schemas::{Desired, VlanId, VlanSet};
use serde::Serialize;

use crate::Name;
use crate::fabric::HopState;
use crate::ids::Seniority;
use crate::node::NodeTarget;
use crate::shape::{Shape, Shapes};

/// What an attachment or a bridge domain wants of a network of a connection point.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Demand {
    /// The connection point.
    pub point: Name,
    /// The network's name on the host.
    pub network: String,
    /// The VLANs; none of an attachment that uses the network without our naming VLANs.
    pub vids: BTreeSet<VlanId>,
    /// Bytes.
    pub mtu: Option<u32>,
}

/// A connection point on its nodes.
#[derive(Debug, Default)]
struct PlacedPoint {
    seniority: (i64, Name),
    nodes: Arc<BTreeSet<Name>>,
    shapes: Shapes,
    /// By network: the version since when it is as it is.
    since: BTreeMap<String, u64>,
    /// Networks that an older connection point has differently.
    blocked: BTreeSet<String>,
}

impl PlacedPoint {
    /// A NIC that is a bridge's uplink is another's master only where that is in use.
    fn is_on_demand(&self, name: &str, shape: &Shape) -> bool {
        let uplink = |other: &Shape| {
            !matches!(other, Shape::Master { .. }) && other.nics().iter().any(|nic| nic == name)
        };
        matches!(shape, Shape::Master { .. }) && self.shapes.values().any(uplink)
    }
}

/// What is wanted of one network of one connection point, by all together.
#[derive(Debug, Default)]
struct Usage {
    users: u32,
    vids: BTreeMap<VlanId, (u32, u64)>,
    set: VlanSet,
    mtus: BTreeMap<u32, u32>,
    /// The version of the last change of the MTU.
    mtu_since: u64,
}

impl Usage {
    fn mtu(&self) -> Option<u32> {
        self.mtus.last_key_value().map(|(mtu, _)| *mtu)
    }

    /// Counts a demand in or out; true when that changes what is wanted.
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

/// All nodes and what is wanted of their hosts.
#[derive(Debug, Default)]
pub struct Hosts {
    version: u64,
    points: BTreeMap<Name, PlacedPoint>,
    usage: HashMap<Name, BTreeMap<String, Usage>>,
    /// By the name of a network or NIC: the connection points that have it.
    claims: HashMap<String, BTreeSet<Name>>,
    nodes: BTreeMap<Name, NodeTarget>,
    touched: BTreeSet<Name>,
}

impl Hosts {
    /// The version of the last change of anything.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// A node.
    pub fn node(&self, name: &str) -> Option<&NodeTarget> {
        self.nodes.get(name)
    }

    /// A node, to tell it something.
    pub fn node_mut(&mut self, name: &str) -> Option<&mut NodeTarget> {
        self.nodes.get_mut(name)
    }

    /// A node is there; true when it is new or its readiness changed.
    pub fn add_node(&mut self, name: &Name, ready: bool) -> bool {
        let new = !self.nodes.contains_key(name);
        let node = self.nodes.entry(name.clone()).or_default();
        let changed = new || node.ready != ready;
        node.ready = ready;
        if new {
            self.version += 1;
            let joined = self.points.iter().filter(|(_, placed)| placed.nodes.contains(name));
            node.points = joined.map(|(point, _)| (point.clone(), self.version)).collect();
            node.touch(self.version);
            self.touched.insert(name.clone());
        }
        changed
    }

    /// A node is gone; who waited for it is returned.
    pub fn remove_node(&mut self, name: &Name) -> Option<NodeTarget> {
        self.touched.remove(name);
        self.nodes.remove(name)
    }

    /// The nodes whose state changed since the last call.
    pub fn take_changed_nodes(&mut self) -> BTreeSet<Name> {
        std::mem::take(&mut self.touched)
    }

    /// True when [`Self::take_changed_nodes`] has something.
    pub fn has_changed_nodes(&self) -> bool {
        !self.touched.is_empty()
    }

    /// Counts a change on a node; `change` is given the version and says whether there is one.
    pub fn change(&mut self, node: &Name, change: impl FnOnce(&mut NodeTarget, u64) -> bool) {
        let version = self.version + 1;
        if self.nodes.get_mut(node).is_some_and(|target| change(target, version)) {
            self.version = version;
            self.touched.insert(node.clone());
        }
    }

    /// Says where a connection point is and what it needs there; `None`: nowhere any more. Returns the other ones
    /// that have a network or a NIC of that name, when it is a change.
    pub fn place(
        &mut self,
        point: &Name,
        place: Option<(Seniority, Arc<BTreeSet<Name>>, Shapes)>,
    ) -> BTreeSet<Name> {
        let (seniority, nodes, shapes) = place.unwrap_or_default();
        let before = self.points.get(point);
        let (old_nodes, old_shapes) =
            before.map(|placed| (placed.nodes.clone(), placed.shapes.clone())).unwrap_or_default();
        let blocked: BTreeSet<String> = shapes
            .iter()
            .filter(|(name, shape)| self.conflicting_point(point, &seniority, &nodes, name, shape).is_some())
            .map(|(name, _)| name.clone())
            .collect();
        let same_place = before.is_some() && old_nodes == nodes && old_shapes == shapes;
        if same_place && before.is_some_and(|placed| placed.blocked == blocked) {
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
            let Some(node) = self.nodes.get_mut(name) else { continue };
            if !nodes.contains(name) {
                node.points.remove(point);
            } else if !node.points.contains_key(point) {
                node.points.insert(point.clone(), version);
            }
            node.touch(version);
            self.touched.insert(name.clone());
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
        if same_place { BTreeSet::new() } else { rivals }
    }

    /// The older connection point that stands in the way of a network, and what of.
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

    /// Why a connection point can't have what it needs, if an older one has it differently on a node of both.
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

    /// Changes what somebody wants of connection points.
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
            if let Some(node) = self.nodes.get_mut(name) {
                node.touch(self.version);
                self.touched.insert(name.clone());
            }
        }
    }

    /// The nodes of a connection point.
    pub fn nodes_of(&self, point: &Name) -> Arc<BTreeSet<Name>> {
        self.points.get(point).map(|placed| placed.nodes.clone()).unwrap_or_default()
    }

    /// The networks that a connection point has on its nodes: those that it needs and nobody else has differently.
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

    /// What a network of a connection point is.
    pub fn shape(&self, point: &Name, network: &str) -> Option<&Shape> {
        self.points.get(point)?.shapes.get(network)
    }

    /// True when a network, or with `vids` one of those VLANs on it, is on a node, or may be, and nobody there wants it.
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

    /// How far a network of a connection point is on a node, and with `vlan` that VLAN there.
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

    /// The complete desired state of a node, and whether something is settled by it.
    pub fn desired(&mut self, name: &Name, cluster: &str) -> Option<(Desired, bool)> {
        let mut wanted: BTreeMap<&String, (&Shape, VlanSet, Option<u32>)> = BTreeMap::new();
        for point in self.nodes.get(name)?.points.keys() {
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
        let version = self.version;
        Some(self.nodes.get_mut(name)?.desired(cluster, networks, version))
    }

    /// What may be said on a node's object: the connection points whose networks are there, and the Open vSwitch
    /// bridges among those.
    pub fn labels_and_resources(&self, name: &str) -> Option<(BTreeSet<Name>, BTreeSet<Name>)> {
        let node = self.nodes.get(name).filter(|node| node.is_known())?;
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
