//! Isolation of trunks. A trunk shows its pods every VLAN of its bridge or NIC. So an attachment with `VlanType:
//! trunk` excludes one that brings a service closed to the trunk's namespace there, unless `TrunkNamespaces` of the
//! ConnectionPoint selects that namespace. What is realised stays; among realised ones, and among new ones, the older,
//! by `creationTimestamp`, then uid.
//!
//! The decision depends only on manifests and realised specs, so that it is the same after a restart.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use eno_schemas::VlanType;

use crate::fabric::Fabric;
use crate::fabric::topology::Ports;
use crate::kinds::{AttachmentSpec, Cause, Invalid, Plugin, Spec, compat};
use crate::pods::bridges::carriers;
use crate::store::Store;
use crate::store::record::Record;
use crate::{Key, Kind, Name};

/// Which attachments are trunks, and which attachments another one excludes.
#[derive(Debug, Default)]
pub(crate) struct Trunks {
    /// Attachments that are trunks or request to be.
    all: BTreeSet<Key>,
    /// An input of the decision changed.
    stale: bool,
    /// By attachment: what another one excludes.
    excluded: HashMap<Key, Exclusion>,
}

/// The parts of an attachment that another one excludes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Exclusion {
    /// Why the requested spec is excluded.
    requested: Option<Invalid>,
    /// The realised spec is excluded and has to go.
    realised: bool,
}

/// A requested or realised spec of an attachment.
#[derive(Clone, Copy)]
struct Claim<'a> {
    key: &'a Key,
    spec: &'a AttachmentSpec,
}

impl<'a> Claim<'a> {
    fn of(key: &'a Key, spec: Option<&'a Arc<Spec>>) -> Option<Self> {
        Some(Self { key, spec: spec?.attachment()? })
    }

    fn is_trunk(self) -> bool {
        self.spec.vlan_type == VlanType::Trunk
    }
}

/// The interfaces and ports that carry the traffic of a ConnectionPoint.
struct Site<'a> {
    /// The nodes of the ConnectionPoint.
    nodes: Arc<BTreeSet<Name>>,
    /// Bridges, NICs and bonds of those nodes.
    interfaces: BTreeSet<&'a str>,
    /// The switch ports of those nodes.
    ports: Option<&'a Ports>,
}

impl Site<'_> {
    fn overlaps(&self, other: &Self) -> bool {
        let on_host = || {
            !self.interfaces.is_disjoint(&other.interfaces)
                && self.nodes.iter().any(|node| other.nodes.contains(node))
        };
        let port_of = |device: &Name, port: &u16| {
            other.ports.and_then(|ports| ports.get(device)).is_some_and(|ports| ports.contains(port))
        };
        let on_switch = || {
            let mut ports = self.ports.into_iter().flatten();
            ports.any(|(device, ports)| ports.iter().any(|port| port_of(device, port)))
        };
        on_host() || on_switch()
    }
}

impl Trunks {
    /// Requests a new decision, if there are trunks.
    pub fn touch(&mut self) {
        self.stale = !self.all.is_empty() || !self.excluded.is_empty();
    }

    pub fn is_stale(&self) -> bool {
        self.stale
    }

    /// Updates the index of trunks after an attachment was added, changed or removed.
    pub fn update_index(&mut self, store: &Store, key: &Key) {
        if key.kind != Kind::L2ServiceAttachment {
            return;
        }
        let record = store.get(key);
        let specs =
            record.into_iter().flat_map(|record| record.wanted().into_iter().chain(&record.effective));
        let mut specs = specs.filter_map(|spec| spec.attachment());
        if specs.any(|spec| spec.vlan_type == VlanType::Trunk) {
            self.all.insert(key.clone());
        } else {
            self.all.remove(key);
        }
        self.touch();
    }

    /// Decides which attachments exclude each other. Returns those whose result changed.
    pub fn decide(&mut self, store: &Store, fabric: &Fabric) -> BTreeSet<Key> {
        self.stale = false;
        let now = Decision { store, fabric, trunks: &self.all }.excluded();
        let before = std::mem::replace(&mut self.excluded, now);
        let now = &self.excluded;
        let changed = before.keys().chain(now.keys()).filter(|key| before.get(*key) != now.get(*key));
        changed.filter(|key| store.contains(key)).cloned().collect()
    }

    /// Fails when another attachment excludes the requested spec of `key`.
    pub fn check(&self, key: &Key) -> Result<(), Invalid> {
        let problem = self.excluded.get(key).and_then(|exclusion| exclusion.requested.clone());
        problem.map_or(Ok(()), Err)
    }

    /// True when the realised spec of `key` has to go.
    pub fn evicts(&self, key: &Key) -> bool {
        self.excluded.get(key).is_some_and(|exclusion| exclusion.realised)
    }
}

/// Claims that exclude others.
#[derive(Default)]
struct Admitted<'a> {
    trunks: Vec<Claim<'a>>,
    others: Vec<Claim<'a>>,
}

impl<'a> Admitted<'a> {
    fn add(&mut self, claim: Claim<'a>) {
        if claim.is_trunk() { self.trunks.push(claim) } else { self.others.push(claim) }
    }
}

/// The inputs of a decision.
struct Decision<'a> {
    store: &'a Store,
    fabric: &'a Fabric,
    /// Attachments that are trunks or request to be.
    trunks: &'a BTreeSet<Key>,
}

impl Decision<'_> {
    /// By attachment: what another one excludes.
    fn excluded(&self) -> HashMap<Key, Exclusion> {
        let visible = self.points_visible_to_trunks();
        let keys = self.attachments_at(visible.values().flatten());
        let records = || keys.iter().filter_map(|key| Some((*key, self.store.get(key)?)));
        let mut excluded: HashMap<Key, Exclusion> = HashMap::new();
        let mut admitted = Admitted::default();
        // What is realised comes first: only an admin's change brings realised attachments into conflict.
        for (key, record) in records() {
            let realised = record.effective.as_ref();
            let Some(claim) = Claim::of(key, realised) else { continue };
            match self.exclusion(&visible, &admitted, claim) {
                None => admitted.add(claim),
                Some(problem) => {
                    let requested = (record.wanted() == realised).then_some(problem);
                    excluded.insert(key.clone(), Exclusion { requested, realised: true });
                }
            }
        }
        for (key, record) in records() {
            let requested = record.wanted().filter(|wanted| Some(*wanted) != record.effective.as_ref());
            let claim = Claim::of(key, requested).filter(|claim| self.is_feasible(*claim));
            let Some(claim) = claim else { continue };
            match self.exclusion(&visible, &admitted, claim) {
                None => admitted.add(claim),
                problem => excluded.entry(key.clone()).or_default().requested = problem,
            }
        }
        excluded
    }

    /// Why admitted claims exclude a claim.
    fn exclusion(
        &self,
        visible: &BTreeMap<&Name, BTreeSet<&Name>>,
        admitted: &Admitted<'_>,
        claim: Claim<'_>,
    ) -> Option<Invalid> {
        let point = &claim.spec.connection_point;
        // An attachment may leave its own realised spec.
        for trunk in admitted.trunks.iter().filter(|other| other.key != claim.key) {
            let Some((index, service)) = self.exposed_service(visible, *trunk, claim) else { continue };
            let problem = format!(
                "L2Service {service} is not open to namespace {}, whose L2ServiceAttachment {} is a trunk that \
                 would show it at ConnectionPoint {point}; name another ConnectionPoint, or have an admin widen \
                 Namespaces of the L2Service or TrunkNamespaces of ConnectionPoint {}",
                trunk.key.namespace, trunk.key.name, trunk.spec.connection_point
            );
            return Some(Invalid::new(format!("L2Services[{index}]"), problem).because(Cause::NotPermitted));
        }
        if !claim.is_trunk() {
            return None;
        }
        let mut all = admitted.trunks.iter().chain(&admitted.others).filter(|other| other.key != claim.key);
        let (other, (_, service)) =
            all.find_map(|other| Some((other, self.exposed_service(visible, claim, *other)?)))?;
        let problem = format!(
            "a trunk at ConnectionPoint {point} shows L2Service {service} of ConnectionPoint {}, which is not open to \
             namespace {}; use selectivetrunk, or have an admin widen TrunkNamespaces of ConnectionPoint {point}",
            other.spec.connection_point, claim.key.namespace
        );
        Some(Invalid::new("VlanType", problem).because(Cause::NotPermitted))
    }

    /// A service of `other` that `trunk` would show although it is closed to the trunk's namespace, with its index in
    /// the list.
    fn exposed_service<'a>(
        &self,
        visible: &BTreeMap<&Name, BTreeSet<&Name>>,
        trunk: Claim<'_>,
        other: Claim<'a>,
    ) -> Option<(usize, &'a Name)> {
        let point = &trunk.spec.connection_point;
        if !visible.get(point)?.contains(&other.spec.connection_point)
            || self.permits_trunks_of(point, &trunk.key.namespace)
        {
            return None;
        }
        let mut services = other.spec.services.iter().enumerate();
        services.find(|(_, name)| {
            let service = self.store.service(name);
            service.is_some_and(|service| self.store.closed_to(name, service, &trunk.key.namespace).is_some())
        })
    }

    fn permits_trunks_of(&self, point: &Name, namespace: &Name) -> bool {
        let spec = self.store.connection_point(point);
        let selector = spec.and_then(|spec| spec.trunk_namespaces.as_ref());
        let labels = self.store.namespace(namespace);
        selector.zip(labels).is_some_and(|(selector, labels)| selector.matches(labels))
    }

    /// True when the claim could be realised, as far as its own fields and services tell. A manifest that can never
    /// be realised excludes nothing.
    fn is_feasible(&self, claim: Claim<'_>) -> bool {
        let point = self.store.connection_point(&claim.spec.connection_point);
        let has_plugin = point.is_some_and(|point| compat::choose(claim.spec, point).is_ok());
        has_plugin
            && claim.spec.services.iter().all(|name| {
                let service = self.store.service(name);
                service.is_some_and(|service| {
                    self.store.closed_to(name, service, &claim.key.namespace).is_none()
                })
            })
    }

    /// By ConnectionPoint with trunks: the ConnectionPoints whose VLANs these trunks show.
    fn points_visible_to_trunks(&self) -> BTreeMap<&Name, BTreeSet<&Name>> {
        let points = self.trunks.iter().filter_map(|key| self.store.get(key)).flat_map(|record| {
            let specs = record.wanted().into_iter().chain(&record.effective);
            specs.filter_map(|spec| spec.attachment()).map(|spec| &spec.connection_point)
        });
        let points: BTreeSet<&Name> = points.collect();
        if points.is_empty() {
            return BTreeMap::new();
        }
        let all = self.store.iter().filter(|(key, _)| key.kind == Kind::ConnectionPoint);
        let sites: BTreeMap<&Name, Site<'_>> = all
            .filter_map(|(key, record)| {
                let spec = record.effective.as_deref()?.connection_point()?;
                let plugins = spec.cnis.iter().map(|cni| &cni.plugin);
                let of_plugin = plugins.flat_map(|plugin| {
                    let patch = if let Plugin::Ovs { patch, .. } = plugin { patch.as_deref() } else { None };
                    [plugin.bridge(), plugin.master(), patch].into_iter().flatten()
                });
                let interfaces = of_plugin.chain(spec.interfaces.iter().map(String::as_str));
                let site = Site {
                    nodes: self.store.members(spec),
                    interfaces: interfaces.flat_map(carriers).collect(),
                    ports: self.fabric.point(&key.name).map(|point| &point.ports),
                };
                Some((&key.name, site))
            })
            .collect();
        let seen_from = |point: &Name| {
            let own = sites.get(point)?;
            let visible = sites.iter().filter(|(name, site)| **name == point || own.overlaps(site));
            Some(visible.map(|(name, _)| *name).collect())
        };
        points.into_iter().filter_map(|point| Some((point, seen_from(point)?))).collect()
    }

    /// The attachments at these ConnectionPoints, the oldest first.
    fn attachments_at<'a>(&self, points: impl Iterator<Item = &'a &'a Name>) -> Vec<&Key> {
        let points: BTreeSet<Key> = points.map(|name| Key::cluster(Kind::ConnectionPoint, name)).collect();
        let keys = points.iter().flat_map(|point| self.store.referrers(point));
        let keys: BTreeSet<&Key> = keys.filter(|key| key.kind == Kind::L2ServiceAttachment).collect();
        let mut keys: Vec<&Key> = keys.into_iter().collect();
        keys.sort_by_key(|key| self.store.get(key).map(Record::seniority));
        keys
    }
}
