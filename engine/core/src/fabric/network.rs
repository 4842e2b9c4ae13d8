//! The networks and ConnectionPoints as the fabric sees them: which network is used where, and with which ports.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::kinds::{ConnectionPointSpec, Spec};
use crate::store::Store;
use crate::vlan::VlanScope;
use crate::work::Work;
use crate::{Key, Kind, Name};

use super::Fabric;
use super::gap::Gap;
use super::topology::{Ports, add_ports};

/// Where a network is used.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum End {
    /// At a ConnectionPoint.
    Point(Name),
    /// In a VRF of a FabricDevice.
    Device(Name),
}

impl End {
    /// The ConnectionPoint.
    pub fn point(&self) -> Option<&Name> {
        match self {
            Self::Point(name) => Some(name),
            Self::Device(_) => None,
        }
    }

    /// The FabricDevice.
    pub fn device(&self) -> Option<&Name> {
        match self {
            Self::Point(_) => None,
            Self::Device(name) => Some(name),
        }
    }
}

/// Something with a VLAN: an L2Service, or an L2BridgeDomain written by hand.
#[derive(Debug, Default)]
pub struct Network {
    /// Where it is realised, each with the number of users.
    pub ends: BTreeMap<End, u32>,
    /// Where it is requested, each with the number of users.
    pub requested: BTreeMap<End, u32>,
    /// Why its endpoints can't reach each other.
    pub gap: Option<Gap>,
    /// By router: why it is not led there, as a sentence.
    pub unled: BTreeMap<Name, String>,
}

/// The specs of an object whose demands are counted in the networks that it uses.
#[derive(Clone, Debug, Default)]
pub(super) struct Counted {
    /// The realised spec: counted in [`Network::points`].
    pub realised: Option<Arc<Spec>>,
    /// The wanted spec: counted in [`Network::requested`].
    pub requested: Option<Arc<Spec>>,
}

/// A connection point as the fabric sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Point {
    /// The switch ports of its nodes.
    pub ports: Ports,
    /// The scopes in which its VLAN IDs are unique.
    pub scopes: BTreeSet<VlanScope>,
    /// The end without a switch port, while others have one: a node of its pool, or a NIC of a node.
    pub missing: Vec<(Name, Option<String>)>,
    /// Pods can be attached on more than one node.
    pub has_several_nodes: bool,
}

impl Network {
    /// Counts one user more or less at an end. Returns true when the end appears or disappears.
    fn count(ends: &mut BTreeMap<End, u32>, end: &End, more: bool) -> bool {
        let users = ends.entry(end.clone()).or_default();
        *users = if more { *users + 1 } else { users.saturating_sub(1) };
        let (now, edge) = (*users, u32::from(more));
        if now == 0 {
            ends.remove(end);
        }
        now == edge
    }

    /// True when nothing uses it.
    fn is_unused(&self) -> bool {
        self.ends.is_empty() && self.requested.is_empty()
    }
}

impl Fabric {
    /// A network. `None`: nothing uses it and no object of that name exists.
    pub fn network(&self, key: &Key) -> Option<&Network> {
        self.networks.get(key)
    }

    /// The connection points where a network is realised.
    pub fn points_of(&self, key: &Key) -> impl Iterator<Item = &Name> {
        self.ends_of_network(key).filter_map(End::point)
    }

    /// Where a network is realised.
    pub(super) fn ends_of_network(&self, key: &Key) -> impl Iterator<Item = &End> {
        self.networks.get(key).into_iter().flat_map(|network| network.ends.keys())
    }

    /// A connection point.
    pub fn point(&self, name: &Name) -> Option<&Point> {
        self.points.get(name)
    }

    /// A connection point is gone.
    pub(super) fn remove_point(&mut self, name: &Name) {
        self.points.remove(name);
        self.path_cache.borrow_mut().clear();
    }

    /// Drops a network that nothing uses any more and whose object is gone.
    pub fn drop_if_unused(&mut self, store: &Store, key: &Key) {
        if !store.contains(key) && self.networks.get(key).is_some_and(Network::is_unused) {
            self.networks.remove(key);
        }
    }

    /// Updates how many users each network has at each connection point with the specs of an object.
    pub fn update_usage(&mut self, store: &Store, key: &Key, work: &mut Work) {
        if !key.kind.facts().needs_networks {
            return;
        }
        let Some(record) = store.get(key) else { return };
        let active = record.finalized && !record.generated;
        let requested = record.wanted().filter(|_| active).cloned();
        let realised = record.effective.clone().filter(|_| active);
        let now = Counted { realised, requested };
        let before = if now.realised.is_some() || now.requested.is_some() {
            self.counted.insert(key.clone(), now.clone())
        } else {
            self.counted.remove(key)
        };
        let before = before.unwrap_or_default();
        for (old, new, realised) in
            [(before.requested, now.requested, false), (before.realised, now.realised, true)]
        {
            if old == new {
                continue;
            }
            for (spec, more) in [(new, true), (old, false)] {
                for (network, end) in spec.as_deref().map(|spec| demands(key, spec)).unwrap_or_default() {
                    let entry = self.networks.entry(network.clone()).or_default();
                    // Which ends of a service are apart may depend on each of its attachments.
                    let ends_apart = matches!(entry.gap, Some(Gap::EndsApart { .. }));
                    let ends = if realised { &mut entry.ends } else { &mut entry.requested };
                    let is_edge = Network::count(ends, &end, more);
                    if is_edge {
                        work.claim.insert(network.clone());
                    }
                    if realised && (is_edge || ends_apart || end.device().is_some()) {
                        work.place.insert(network);
                    }
                }
            }
        }
    }

    /// Computes the switch ports and scopes of a connection point.
    pub fn plan_point(&mut self, store: &Store, key: &Key, work: &mut Work) {
        let Some(record) = store.get(key) else { return };
        let spec = record.spec.as_ref().ok().or(record.effective.as_ref());
        let Some(spec) = spec.and_then(|spec| spec.connection_point()) else { return };
        let point = self.compute_point(store, &key.name, spec);
        if self.points.get(&key.name) == Some(&point) {
            return;
        }
        self.points.insert(key.name.clone(), point);
        self.path_cache.borrow_mut().clear();
        let point = End::Point(key.name.clone());
        for (network, seen) in &self.networks {
            if seen.requested.contains_key(&point) || seen.ends.contains_key(&point) {
                work.claim.insert(network.clone());
                work.place.insert(network.clone());
                work.evaluate.extend(store.referrers(network).cloned());
            }
        }
    }

    fn compute_point(&self, store: &Store, name: &Name, spec: &ConnectionPointSpec) -> Point {
        // Several plugins may have one parent.
        let masters: BTreeSet<&str> = spec.cnis.iter().filter_map(|cni| cni.plugin.master()).collect();
        let nics: Vec<&str> = if spec.interfaces.is_empty() {
            masters.into_iter().collect()
        } else {
            spec.interfaces.iter().map(String::as_str).collect()
        };
        let has_several_nodes = store.nodes_of(spec).nth(1).is_some();
        let mut point = Point { has_several_nodes, ..Point::default() };
        // Without a pool only NICs tell which ports of a node lead here.
        let is_bound = spec.node_pool.is_some() || !nics.is_empty();
        for node in store.nodes_of(spec).filter(|_| is_bound) {
            let ports = self.topology.node_ports(node, &nics);
            if !ports.is_empty() {
                let bare = nics.iter().filter(|nic| !self.topology.has_nic(node, nic));
                point.missing.extend(bare.map(|nic| (node.clone(), Some((*nic).to_owned()))));
            } else if spec.node_pool.is_some() {
                point.missing.push((node.clone(), None));
            }
            add_ports(&mut point.ports, &ports);
        }
        if point.ports.is_empty() {
            point.missing.clear();
        }
        // The bridge is always a scope: it may have been in use before the fabric reached it.
        point.scopes = self.fabric_scopes(&point.ports);
        let pool = spec.node_pool.clone().unwrap_or_else(|| "".into());
        let bridge = spec.cnis.iter().find_map(|cni| cni.plugin.bridge()).unwrap_or(name);
        point.scopes.insert(VlanScope::Bridge(pool, bridge.into()));
        point
    }
}

/// The networks that a spec wants, each with an end.
fn demands(key: &Key, spec: &Spec) -> Vec<(Key, End)> {
    let service = |name| Key::cluster(Kind::L2Service, name);
    match spec {
        Spec::Attachment(spec) => {
            let end = || End::Point(spec.connection_point.clone());
            spec.services.iter().map(|name| (service(name), end())).collect()
        }
        Spec::BgpSessionGroup(spec) => {
            vec![(service(&spec.service), End::Point(spec.connection_point.clone()))]
        }
        Spec::BridgeDomain(spec) => {
            spec.connection_points.iter().map(|point| (key.clone(), End::Point(point.clone()))).collect()
        }
        Spec::VrfAttachment(spec) => {
            spec.devices().map(|device| (service(&spec.service), End::Device(device.clone()))).collect()
        }
        _ => Vec::new(),
    }
}
