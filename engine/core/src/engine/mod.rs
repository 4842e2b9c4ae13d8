//! The engine's memory of the world and the loop that settles it.
//!
//! Work flows one way, each stage with a list of what it still has to look at, so that a change costs what it
//! touches: `dirty` objects are validated against what they name, which decides what of them is realised; VLAN
//! IDs that are `contested` are arbitrated; before attachments are validated, it is decided which of them exclude each
//! other ([`trunks`]); networks are planned anew onto switch ports (`replan`); at last the
//! status of what changed, or of what targets reported on, is `judge`d.

mod addresses;
mod bridges;
mod evaluate;
mod fabric_transaction;
mod gaps;
mod hosts;
mod hotplug;
mod inputs;
mod last_commanded;
mod leases;
mod opts;
mod plan;
mod pods;
mod podstate;
mod record;
mod stalled;
mod trunks;
mod users;
mod validate;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use eno_schemas::{Desired, Device, Drift, NadDesired, Report, VlanId};

use crate::fabric::DeviceTarget;
use crate::hosts::Hosts;
use crate::ids::Ids;
use crate::nad::{self, NadTarget};
use crate::podnet::PodNet;
use crate::spec::{BridgeDomainSpec, Spec};
use crate::topology::{Ports, Topology};
use crate::{Config, Effect, Event, Key, Kind, Labels, Name, Object, Status, Target};

use addresses::Leases;
pub use fabric_transaction::TransactionGroup;
use last_commanded::LastCommanded;
use record::{Network, Point, Record};
use trunks::Trunks;
use users::Users;

/// The driver that realises NetworkAttachmentDefinitions.
const NAD_DRIVER: &str = "nad";

/// The world as far as it is known, and what follows from it.
#[allow(clippy::struct_excessive_bools, reason = "what was done once since the start, and work to do")]
#[derive(Debug)]
pub struct Engine {
    config: Config,
    records: HashMap<Key, Record>,
    referrers: HashMap<Key, BTreeSet<Key>>,
    nodes: BTreeMap<Name, Labels>,
    namespaces: HashMap<Name, Labels>,
    pods: HashMap<Name, Vec<Key>>,
    users: HashMap<Key, Users>,
    drivers: BTreeSet<Name>,
    holding: BTreeSet<Name>,
    topology: Topology,
    graph_dirty: bool,
    has_fabric: bool,
    points: HashMap<Name, Point>,
    /// The ports between ends that were asked for, as long as points and topology are as they are.
    ways: RefCell<HashMap<plan::Ends, Arc<Ports>>>,
    networks: HashMap<Key, Network>,
    bridge_domains: HashMap<Name, BridgeDomainSpec>,
    ids: Ids,
    devices: BTreeMap<Name, DeviceTarget>,
    changes: u64,
    refused: BTreeSet<Key>,
    renumbered: HashMap<Key, BTreeSet<VlanId>>,
    nads: HashMap<Key, NadTarget>,
    hosts: Hosts,
    remark: BTreeSet<Name>,
    podnet: PodNet,
    bridge_users: HashMap<String, BTreeSet<Key>>,
    trunks: Trunks,
    seeds: BTreeSet<Key>,
    podwork_first: BTreeSet<(Key, Name)>,
    podwork: BTreeSet<(Key, Name)>,
    views: BTreeSet<Name>,
    leaving: BTreeSet<Key>,
    version: u64,
    seeded: bool,
    recalled: bool,
    started: bool,
    reports: Vec<(Target, Report)>,
    commanded: Vec<(Target, Desired)>,
    said: HashMap<Target, LastCommanded>,
    dirty: BTreeSet<Key>,
    reclaim: BTreeSet<Key>,
    contested: BTreeSet<VlanId>,
    replan: BTreeSet<Key>,
    judge: BTreeSet<Key>,
    publish: BTreeSet<Target>,
    effects: Vec<Effect>,
}

impl Engine {
    /// An empty world.
    pub fn new(config: Config) -> Self {
        Self {
            config,
            records: HashMap::new(),
            referrers: HashMap::new(),
            nodes: BTreeMap::new(),
            namespaces: HashMap::new(),
            pods: HashMap::new(),
            users: HashMap::new(),
            drivers: BTreeSet::new(),
            holding: BTreeSet::new(),
            topology: Topology::default(),
            graph_dirty: false,
            has_fabric: false,
            points: HashMap::new(),
            ways: RefCell::default(),
            networks: HashMap::new(),
            bridge_domains: HashMap::new(),
            ids: Ids::default(),
            devices: BTreeMap::new(),
            changes: 0,
            refused: BTreeSet::new(),
            renumbered: HashMap::new(),
            nads: HashMap::new(),
            hosts: Hosts::default(),
            remark: BTreeSet::new(),
            podnet: PodNet::default(),
            bridge_users: HashMap::new(),
            trunks: Trunks::default(),
            seeds: BTreeSet::new(),
            podwork_first: BTreeSet::new(),
            podwork: BTreeSet::new(),
            views: BTreeSet::new(),
            leaving: BTreeSet::new(),
            version: 0,
            seeded: false,
            recalled: false,
            started: false,
            reports: Vec::new(),
            commanded: Vec::new(),
            said: HashMap::new(),
            dirty: BTreeSet::new(),
            reclaim: BTreeSet::new(),
            contested: BTreeSet::new(),
            replan: BTreeSet::new(),
            judge: BTreeSet::new(),
            publish: BTreeSet::new(),
            effects: Vec::new(),
        }
    }

    /// Takes in what happened. What follows from it is worked out by [`Self::settle`].
    pub fn handle(&mut self, event: Event) {
        match event {
            Event::Object(object) => self.upsert(*object),
            Event::ObjectGone(key) => self.remove(&key),
            Event::Node { name, labels, ready } => {
                self.node_is(&name, ready);
                if self.nodes.get(&name) != Some(&labels) {
                    self.nodes.insert(name, labels);
                    self.dirty_kind(Kind::ConnectionPoint);
                }
            }
            Event::NodeGone(name) => {
                self.node_gone(&name);
                if self.nodes.remove(&name).is_some() {
                    self.dirty_kind(Kind::ConnectionPoint);
                }
            }
            Event::Namespace(name, labels) => {
                if self.namespaces.get(&name) != Some(&labels) {
                    let known = self.namespaces.insert(name.clone(), labels).is_some();
                    self.trunks.touch();
                    if known {
                        self.dirty_namespace(&name);
                        self.dirty_used_from(&name);
                    }
                }
            }
            Event::NamespaceGone(name) => {
                self.namespaces.remove(&name);
                self.trunks.touch();
            }
            Event::Pod(pod) => self.pod_is(*pod),
            Event::SampleRefused(key, words) => {
                if let Some(record) = self.records.get_mut(&key) {
                    record.sample_refused = Some(words);
                    self.judge.insert(key);
                }
            }
            Event::StatusWritten(key, count) => self.recorded(&key, count),
            Event::PodGone(uid) => self.pod_gone(&uid),
            Event::Report(target, report) if self.started => self.report(&target, *report),
            Event::Report(target, report) => self.reports.push((target, *report)),
            Event::StoredCommand(target, desired) => self.commanded.push((target, *desired)),
            Event::CommandIssued(target, generation) => self.is_said(target, generation),
            Event::Drivers(alive) => self.drivers_are(alive),
            Event::DriversThatHold(drivers) => self.holding = drivers,
            Event::MissedDeadline(name) => self.is_late(&name),
            Event::ChangeRefused(name, report) => self.refused_by(&name, &report),
            Event::RetryDue(network, attempt) => self.retry(&network, attempt),
            Event::DeadlineExceeded { key, since } => self.deadline_exceeded(&key, &since),
            Event::AwaitElapsed(key) => {
                if let Some(record) = self.records.get_mut(&key) {
                    // A spec that comes before this is looked at is waited for by itself.
                    (record.waited, record.incomplete) = (true, false);
                    self.dirty.insert(key);
                }
            }
        }
    }

    /// Works out all that follows from the events since the last call. `now` is RFC 3339.
    pub fn settle(&mut self, now: &str) -> Vec<Effect> {
        self.flow();
        if !self.started {
            self.started = true;
            self.start();
            self.flow();
        }
        let now = Name::from(now);
        while let Some(key) = self.judge.pop_first() {
            self.evaluate(&key, &now);
            // What is gone makes room for others.
            self.flow();
        }
        self.tell_views();
        self.tell_nodes();
        self.effects.extend(std::mem::take(&mut self.publish).into_iter().map(Effect::Publish));
        let effects = std::mem::take(&mut self.effects);
        for effect in &effects {
            if let Effect::Forget(target) = effect {
                self.said.remove(target);
            }
        }
        effects
    }

    /// True when [`Self::settle`] has something to do.
    pub fn is_unsettled(&self) -> bool {
        !(self.dirty.is_empty()
            && self.reclaim.is_empty()
            && self.contested.is_empty()
            && !self.trunks.is_stale()
            && self.replan.is_empty()
            && self.judge.is_empty()
            && self.publish.is_empty()
            && self.effects.is_empty()
            && self.remark.is_empty()
            && self.seeds.is_empty()
            && self.podwork_first.is_empty()
            && self.podwork.is_empty()
            && self.views.is_empty()
            && !self.hosts.is_touched()
            && !self.graph_dirty)
    }

    /// The driver and the complete desired state of a target; `None`: there is no such target. It may settle
    /// something ([`Self::is_unsettled`]): a state that the target has reported before needs no new report.
    pub fn desired(&mut self, target: &Target) -> Option<(Name, Desired)> {
        match target {
            Target::Fabric(name) => {
                let undecided = self.undecided(name);
                let device = self.devices.get_mut(name)?;
                let was_known = device.is_known();
                let (desired, settled) = device.desired(&self.config, self.changes, undecided);
                self.changes += 1;
                let driver = device.driver.clone();
                if device.is_known() != was_known {
                    self.judge.insert(Key::cluster(Kind::FabricDevice, name));
                }
                self.judge_networks(settled);
                Some((driver, desired))
            }
            Target::Nad(namespace, name) => {
                let key = Key::namespaced(Kind::L2ServiceAttachment, namespace, name);
                let wanted = self.nads.get(&key)?.wanted;
                let attachment = if wanted { self.render(&key, Leases::LeftOut) } else { None };
                let nad = self.nads.get_mut(&key)?;
                if wanted && attachment.is_none() {
                    nad.was_not_said();
                    return None;
                }
                Some((NAD_DRIVER.into(), nad::desired(&key, &nad.uid, attachment)))
            }
            Target::Node(name) => {
                let (desired, settled) = self.hosts.desired(name, &self.config.cluster)?;
                if settled {
                    self.node_settled(name);
                }
                Some((hosts::NODE_DRIVER.into(), desired))
            }
        }
    }

    /// [`Desired::hash`] of what [`Self::desired`] has just given for this target.
    pub fn desired_hash(&self, target: &Target, desired: &Desired) -> String {
        let said = match target {
            Target::Fabric(name) => self.devices.get(name).and_then(DeviceTarget::said),
            Target::Nad(..) | Target::Node(_) => None,
        };
        said.map_or_else(|| desired.hash(), str::to_owned)
    }

    /// What is done about differences on a switch.
    pub fn drift_policy(&self, device: &Name) -> Drift {
        self.devices.get(device).map(|device| device.access().drift).unwrap_or_default()
    }

    /// True when a target of which `desired` was commanded is still reached in the same way, by the same driver.
    pub fn is_same_endpoint(&self, target: &Target, driver: &Name, desired: &Desired) -> bool {
        match (target, desired) {
            (Target::Fabric(name), Desired::Fabric(desired)) => {
                self.devices.get(name).is_some_and(|device| {
                    device.driver == *driver && is_same_access(device.access(), &desired.device)
                })
            }
            _ => false,
        }
    }

    /// The status of an object as last worked out.
    pub fn status(&self, key: &Key) -> Option<&Status> {
        self.records.get(key).map(|record| &record.status)
    }

    /// Runs every stage but the last until nothing is left to do.
    fn flow(&mut self) {
        loop {
            let next = self.dirty.first().map(|key| key.kind);
            if next.is_some_and(|kind| kind < Kind::ConnectionPoint) {
                self.validate_first();
            } else if self.graph_dirty {
                self.rebuild_graph();
            } else if next.is_some_and(|kind| kind < Kind::L2Service) {
                self.validate_first();
            } else if !self.seeded {
                self.seed();
            } else if let Some(key) = self.reclaim.pop_first() {
                self.reclaim(&key);
            } else if let Some(vid) = self.contested.pop_first() {
                for key in self.ids.arbitrate(vid) {
                    self.dirty_referrers(&key);
                    self.replan.insert(key.clone());
                    self.dirty.insert(key);
                }
            } else if next.is_some_and(|kind| kind < Kind::L2ServiceAttachment) {
                self.validate_first();
            } else if self.trunks.is_stale() {
                self.decide_trunks();
            } else if next.is_some() {
                self.validate_first();
            } else if let Some(key) = self.replan.pop_first() {
                self.replan(&key);
            } else if let Some(key) = self.seeds.pop_first() {
                self.seed_pods(&key);
            } else if !self.recalled {
                self.recall_pods();
            } else if let Some((key, uid)) =
                self.podwork_first.pop_first().or_else(|| self.podwork.pop_first())
            {
                self.plan_pod(&key, &uid);
            } else {
                return;
            }
        }
    }

    fn validate_first(&mut self) {
        if let Some(key) = self.dirty.pop_first() {
            self.validate(&key);
        }
    }

    /// The first time: what was commanded but belongs to nothing is cleaned up, and what was reported counts for
    /// what is wanted now.
    fn start(&mut self) {
        let mut had: BTreeSet<(Key, VlanId)> = BTreeSet::new();
        let commanded: HashMap<&Target, String> =
            self.commanded.iter().map(|(target, desired)| (target, desired.hash())).collect();
        for (target, report) in &mut self.reports {
            // Something else was commanded since, and may be under way: what is wanted has to be reported anew.
            if commanded.get(target).is_some_and(|hash| *hash != report.generation.hash) {
                report.generation.hash.clear();
            }
        }
        for (target, desired) in std::mem::take(&mut self.commanded) {
            self.was_said(target.clone(), desired.hash());
            match (&target, desired) {
                (Target::Fabric(name), _) if !self.devices.contains_key(name) => {
                    self.effects.push(Effect::Forget(target));
                }
                (Target::Fabric(name), Desired::Fabric(desired)) => {
                    let device = self.devices.get_mut(name);
                    let here = device.map(|device| device.was_commanded(&desired)).unwrap_or_default();
                    for (network, _) in &here {
                        let planned = self.networks.get(network).and_then(|one| one.planned.as_ref());
                        if planned.is_none_or(|(_, ports)| !ports.contains_key(name)) {
                            self.leaves(name, network);
                        }
                    }
                    had.extend(here);
                }
                (Target::Node(name), _) if self.hosts.node(name).is_none() => {
                    self.effects.push(Effect::Forget(target));
                }
                (Target::Nad(namespace, name), Desired::Nad(desired)) => {
                    let key = Key::namespaced(Kind::L2ServiceAttachment, namespace, name);
                    self.recall_nad(&key, desired);
                }
                _ => {}
            }
        }
        self.recall_networks(had);
        self.recall_refusals();
        for device in self.devices.values_mut() {
            device.begin(&self.config, self.changes);
        }
        self.changes += 1;
        for name in self.nodes.keys() {
            self.hosts.desired(name, &self.config.cluster);
        }
        for (target, report) in std::mem::take(&mut self.reports) {
            self.report(&target, report);
        }
        self.podnet.forget_idle();
        self.judge.extend(self.records.keys().cloned());
    }

    fn report(&mut self, target: &Target, mut report: Report) {
        if self.is_outdated(target, &report.generation) {
            report.generation.hash.clear();
        }
        match target {
            Target::Fabric(name) => {
                self.weigh_report(name, &report);
                self.adopt_strays(name, &report);
                let Some(device) = self.devices.get_mut(name) else { return };
                let known = device.is_known();
                let news = device.report(report);
                let first = !known && device.is_known();
                if news.remembered {
                    self.publish.insert(target.clone());
                }
                self.accept(name, &news);
                if news.found {
                    self.stay_as_found();
                }
                self.settled(name, &news.networks, first);
                self.complete();
                self.judge.insert(Key::cluster(Kind::FabricDevice, name));
                self.judge_networks(news.networks);
                self.judge.extend(self.leaving.iter().cloned());
            }
            Target::Nad(namespace, name) => {
                let key = Key::namespaced(Kind::L2ServiceAttachment, namespace, name);
                let Some(nad) = self.nads.get_mut(&key) else { return };
                nad.report(report);
                if self.records.contains_key(&key) {
                    self.judge.insert(key);
                } else if nad.hop() == nad::NadHop::Confirmed {
                    self.nads.remove(&key);
                    self.effects.push(Effect::Forget(target.clone()));
                }
            }
            Target::Node(name) => self.node_reported(name, report),
        }
    }

    fn upsert(&mut self, object: Object) {
        if let Some(record) = self.records.get_mut(&object.key) {
            if record.uid == object.uid {
                let same = record.generation == object.generation
                    && record.deleting == object.deleting
                    && record.finalized == object.finalized
                    && record.forget == object.forget;
                if same {
                    return;
                }
                if (record.finalized, record.deleting) != (object.finalized, object.deleting) {
                    // It counts from now on, or takes nobody new: all that depends on it looks again.
                    (record.finalizer_asked, record.version) = (false, 0);
                    if !record.finalized && plan::is_user(&object.key) {
                        // What it was found to be while it didn't count has kept nothing for it.
                        record.effective = record.status.realized.clone();
                    }
                }
                self.graph_dirty |= object.key.kind == Kind::FabricDevice && record.forget != object.forget;
                (record.deleting, record.finalized, record.forget) =
                    (object.deleting, object.finalized, object.forget);
                if record.generation != object.generation {
                    record.generation = object.generation;
                    record.waited = false;
                    record.spec = object.spec.map(Arc::new);
                    record.unknown_opts = object.unknown_opts;
                }
                self.changed(&object.key);
                return;
            }
            self.remove(&object.key);
        }
        let (key, record) = Record::new(object);
        if pods::gives(key.kind) && self.config.nodes {
            self.renew_giver(&key);
            if record.status.pods.is_empty() {
                self.replan_pods(&key);
            } else {
                self.seeds.insert(key.clone());
            }
        }
        if let (Kind::L2BridgeDomain, true, Ok(spec)) = (key.kind, record.generated, &record.spec)
            && let Spec::BridgeDomain(spec) = &**spec
        {
            self.bridge_domains.insert(key.name.clone(), spec.clone());
        }
        self.records.insert(key.clone(), record);
        self.changed(&key);
    }

    /// The manifest changed.
    fn changed(&mut self, key: &Key) {
        self.relink(key);
        self.retrunk(key);
        self.recount(key);
        self.dirty.insert(key.clone());
        self.judge.insert(key.clone());
        self.dirty_routes(key);
        if matches!(key.kind, Kind::L2Service | Kind::L2BridgeDomain) {
            self.reclaim.insert(key.clone());
        }
    }

    fn remove(&mut self, key: &Key) {
        let Some(mut record) = self.records.remove(key) else { return };
        (record.spec, record.effective) = (Err(crate::spec::Invalid::new("", "gone")), None);
        let linked = std::mem::take(&mut record.linked);
        self.records.insert(key.clone(), record);
        self.recount(key);
        self.plan_hosts(key);
        self.rebridge(key);
        let record = self.records.remove(key);
        if pods::gives(key.kind) {
            self.forget_giver(key);
            self.seeds.remove(key);
            self.views.extend(self.podnet.selected.get(key).into_iter().flatten().cloned());
        }
        for reference in linked {
            self.unlink(&reference, key);
        }
        self.dirty_referrers(key);
        self.retrunk(key);
        self.trunks.touch();
        for work in [&mut self.dirty, &mut self.judge, &mut self.reclaim, &mut self.replan, &mut self.leaving]
        {
            work.remove(key);
        }
        match key.kind {
            Kind::FabricDevice => {
                self.graph_dirty = true;
                if self.devices.remove(&key.name).is_some() {
                    self.effects.push(Effect::Forget(Target::Fabric(key.name.clone())));
                }
            }
            Kind::L2Service | Kind::L2BridgeDomain => {
                self.reclaim.insert(key.clone());
                self.replan.insert(key.clone());
            }
            Kind::L2ServiceAttachment => {
                if let Some(record) = record.filter(|_| self.nads.contains_key(key)) {
                    self.withdraw_nad(key, &record.uid);
                }
            }
            Kind::NodePool
            | Kind::PhysicalNetwork
            | Kind::Route
            | Kind::Subnet
            | Kind::Bridge
            | Kind::PodNetworkConfig
            | Kind::PodConfig => {}
            Kind::ConnectionPoint => {
                self.points.remove(&key.name);
                self.ways.borrow_mut().clear();
            }
        }
        if key.kind == Kind::L2BridgeDomain && self.bridge_domains.remove(&key.name).is_some() {
            self.replan.insert(Key::cluster(Kind::L2Service, &key.name));
        }
    }

    /// A former process commanded a NAD. Where nothing is planned of it now, it is as it was until that changes, or goes.
    fn recall_nad(&mut self, key: &Key, commanded: NadDesired) {
        if self.nads.contains_key(key) {
            return;
        }
        let uid = Name::from(commanded.owner.uid.as_str());
        if !self.records.contains_key(key) {
            return self.withdraw_nad(key, &uid);
        }
        let mut nad = NadTarget::new(uid);
        let commanded = Desired::Nad(commanded);
        nad.want(&commanded, &commanded);
        self.nads.insert(key.clone(), nad);
        self.plan_nad(key);
    }

    /// The attachment is gone: its NAD has to follow, unless it is known to be gone already.
    fn withdraw_nad(&mut self, key: &Key, uid: &Name) {
        let target = Target::Nad(key.namespace.clone(), key.name.clone());
        let nad = self.nads.entry(key.clone()).or_insert_with(|| NadTarget::new(uid.clone()));
        let nothing = nad::desired(key, &nad.uid, None);
        nad.want(&nothing, &nothing);
        if nad.hop() == nad::NadHop::Confirmed {
            self.nads.remove(key);
            self.effects.push(Effect::Forget(target));
        } else {
            self.publish.insert(target);
        }
    }

    fn drivers_are(&mut self, alive: BTreeSet<Name>) {
        let changed: BTreeSet<Name> = self.drivers.symmetric_difference(&alive).cloned().collect();
        self.drivers = alive;
        if changed.contains(NAD_DRIVER) {
            self.judge.extend(self.nads.keys().filter(|key| self.records.contains_key(key)).cloned());
        }
        for name in changed.iter().filter_map(|driver| driver.strip_prefix("node/")) {
            self.judge_waiters(&Name::from(name));
        }
        let mut networks = BTreeSet::new();
        for (name, device) in self.devices.iter().filter(|(_, device)| changed.contains(&device.driver)) {
            self.judge.insert(Key::cluster(Kind::FabricDevice, name));
            networks.append(&mut device.networks());
        }
        self.judge_networks(networks);
        self.complete();
    }

    /// Something of these networks is to be told to those who look at them.
    fn judge_networks(&mut self, networks: BTreeSet<Key>) {
        for network in networks {
            self.judge.extend(self.referrers.get(&network).into_iter().flatten().cloned());
            if self.records.contains_key(&network) {
                self.judge.insert(network);
            }
        }
    }

    fn dirty_kind(&mut self, kind: Kind) {
        self.dirty.extend(self.records.keys().filter(|key| key.kind == kind).cloned());
    }

    fn dirty_namespace(&mut self, namespace: &Name) {
        let inside = self.records.keys().filter(|key| key.namespace == *namespace);
        self.dirty.extend(inside.cloned());
    }

    fn dirty_referrers(&mut self, key: &Key) {
        self.dirty.extend(self.referrers.get(key).into_iter().flatten().cloned());
    }

    fn dirty_if_deleting(&mut self, key: &Key) {
        if self.records.get(key).is_some_and(|record| record.deleting) {
            self.dirty.insert(key.clone());
        }
    }

    /// Brings the index of referrers up to date with what an object names.
    fn relink(&mut self, key: &Key) {
        self.rebridge(key);
        let Some(record) = self.records.get_mut(key) else { return };
        let now = record.references();
        if now == record.linked {
            return;
        }
        let before = std::mem::replace(&mut record.linked, now.clone());
        for reference in before.difference(&now) {
            self.unlink(reference, key);
        }
        for reference in now.difference(&before) {
            self.referrers.entry(reference.clone()).or_default().insert(key.clone());
            self.dirty_if_deleting(reference);
        }
    }

    fn unlink(&mut self, reference: &Key, key: &Key) {
        if let Some(referrers) = self.referrers.get_mut(reference) {
            referrers.remove(key);
            if referrers.is_empty() {
                self.referrers.remove(reference);
            }
        }
        self.dirty_if_deleting(reference);
        self.dirty_if_bad_route(reference);
        self.judge_remaining(reference);
    }

    /// The effective spec of an object, read as one kind's.
    fn effective<T>(&self, key: &Key, read: impl Fn(&Spec) -> Option<&T>) -> Option<&T> {
        read(self.records.get(key)?.effective.as_deref()?)
    }
}

/// A device is reached in the same way, however often its driver reads it.
fn is_same_access(one: &Device, other: &Device) -> bool {
    *one == Device { audit_interval: one.audit_interval, ..other.clone() }
}
