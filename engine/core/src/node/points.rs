//! The networks of connection points on their nodes, and the conflicts between them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::kinds::{Cause, ConnectionPointSpec, Invalid, Verify};
use crate::node::Nodes;
use crate::node::shape::{self, Shape, Shapes};
use crate::store::Store;
use crate::store::record::Seniority;
use crate::{Config, Key, Name};

/// A connection point on its nodes.
#[derive(Debug, Default)]
pub(super) struct PlacedPoint {
    /// Its precedence.
    seniority: (i64, Name),
    /// Its nodes.
    pub(super) nodes: Arc<BTreeSet<Name>>,
    /// The networks that it needs.
    pub(super) shapes: Shapes,
    /// By network: the version of its last change.
    pub(super) since: BTreeMap<String, u64>,
    /// Networks that conflict with an older connection point.
    pub(super) blocked: BTreeSet<String>,
    /// Its probes.
    pub(super) verify: Verify,
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

impl Nodes {
    /// Sets the nodes and networks of a connection point; `None` removes it. On a change it returns the other
    /// connection points with a network or NIC of the same name.
    pub(super) fn set_point(
        &mut self,
        point: &Name,
        placement: Option<(Seniority, Arc<BTreeSet<Name>>, Shapes)>,
    ) -> BTreeSet<Name> {
        let (seniority, nodes, shapes) = placement.unwrap_or_default();
        let before = self.points.get(point);
        let (old_nodes, old_shapes) =
            before.map(|placed| (placed.nodes.clone(), placed.shapes.clone())).unwrap_or_default();
        let verify = before.map(|placed| placed.verify).unwrap_or_default();
        let blocked: BTreeSet<String> = shapes
            .iter()
            .filter(|(name, shape)| self.conflicting_point(point, &seniority, &nodes, name, shape).is_some())
            .map(|(name, _)| name.clone())
            .collect();
        let unchanged = before.is_some() && old_nodes == nodes && old_shapes == shapes;
        if unchanged && before.is_some_and(|placed| placed.blocked == blocked) {
            return BTreeSet::new();
        }
        if old_nodes != nodes {
            self.mac_owners.take();
        }
        self.version += 1;
        let version = self.version;
        if old_nodes != nodes {
            self.renew_asked(point, version);
        }
        let before = self.points.get(point);
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
            self.points
                .insert(point.clone(), PlacedPoint { seniority, nodes, shapes, since, blocked, verify });
        }
        if unchanged { BTreeSet::new() } else { rivals }
    }

    /// Checks that the host networks of a connection point have valid names, and that no older one has them
    /// differently.
    pub(crate) fn check_hosts(
        &self,
        config: &Config,
        store: &Store,
        key: &Key,
        spec: &ConnectionPointSpec,
    ) -> Result<(), Invalid> {
        if !config.nodes {
            return Ok(());
        }
        let shapes = shape::shapes(spec).map_err(|invalid| invalid.because(Cause::Spec))?;
        let Some(record) = store.get(key) else { return Ok(()) };
        let members = store.members(spec);
        match self.conflict(&key.name, &record.seniority(), &members, &shapes) {
            Some(problem) => Err(Invalid::new("SupportedCnis", problem).because(Cause::NameConflict)),
            None => Ok(()),
        }
    }

    /// Why a connection point can't have its networks: an older one has them differently on a shared node.
    fn conflict(
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

    /// The connection point that has a network or NIC of that name, if there is one.
    pub(crate) fn owner_of(&self, network: &str) -> Option<&Name> {
        self.claims.get(network)?.first()
    }

    /// The names of the networks and NICs of a connection point.
    pub(super) fn names_of(&self, point: &Name) -> BTreeSet<String> {
        let placed = self.points.get(point);
        placed.map(|placed| claims(&placed.shapes).map(str::to_owned).collect()).unwrap_or_default()
    }

    /// The nodes of a connection point.
    pub(crate) fn nodes_of(&self, point: &Name) -> Arc<BTreeSet<Name>> {
        self.points.get(point).map(|placed| placed.nodes.clone()).unwrap_or_default()
    }

    /// The networks that a connection point has on its nodes: the ones that it needs and that don't conflict with an
    /// older one.
    pub(super) fn networks_of(&self, point: &Name) -> impl Iterator<Item = (&String, &Shape)> {
        let placed = self.points.get(point);
        placed.into_iter().flat_map(move |placed| {
            let usage = self.usage.get(point);
            placed.shapes.iter().filter(move |(name, shape)| {
                let used = usage.is_some_and(|usage| usage.contains_key(*name));
                !placed.blocked.contains(*name) && (used || !placed.is_on_demand(name, shape))
            })
        })
    }

    /// The NICs by which a network leads to the fabric.
    pub(crate) fn nics_of<'a>(&'a self, network: &'a str) -> impl Iterator<Item = &'a str> {
        let shape = self.owner_of(network).and_then(|point| self.shape(point, network));
        let itself = matches!(shape, Some(Shape::Master { bond }) if bond.is_empty()).then_some(network);
        itself.into_iter().chain(shape.into_iter().flat_map(Shape::nics).map(String::as_str))
    }

    /// The shape of a network of a connection point.
    pub(crate) fn shape(&self, point: &Name, network: &str) -> Option<&Shape> {
        self.points.get(point)?.shapes.get(network)
    }

    pub(super) fn touch_point(&mut self, point: &Name) {
        let Some(placed) = self.points.get(point) else { return };
        for name in &*placed.nodes {
            if let Some(node) = self.targets.get_mut(name) {
                node.touch(self.version);
                self.changed.insert(name.clone());
            }
        }
    }
}

fn claims(shapes: &Shapes) -> impl Iterator<Item = &str> {
    let names = shapes.keys().map(String::as_str);
    names.chain(shapes.values().flat_map(|shape| shape.nics().iter().map(String::as_str)))
}
