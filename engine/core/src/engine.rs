//! The state of the cluster and the loop that reconciles it.
//!
//! Work flows through the parts, each with a queue, so that a change costs only what it touches:
//!
//! 1. [`crate::validate`]: an object is validated against what it names. Its last valid spec is what is realised.
//! 2. [`crate::vlan`]: the holders of a VLAN ID are decided. Then, before attachments are validated, it is decided which
//!    of them exclude each other ([`crate::validate::trunks`]).
//! 3. [`crate::fabric`]: a network is placed on switch ports.
//! 4. [`crate::pods`]: a running pod is granted its interfaces and addresses.
//! 5. [`crate::status`]: the status of an object is evaluated, after changes and after reports of targets.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use eno_schemas::{Desired, Device, Drift, NadDesired, Report, VlanId};

use crate::fabric::{Fabric, planner};
use crate::nad::Nads;
use crate::nad::addresses::LeaseHandling;
use crate::nad::target::{self as nad, NadTarget};
use crate::node::{Nodes, hosts};
use crate::pods::{Pods, grant};
use crate::schedule::Schedule;
use crate::spec::Spec;
use crate::status::Statuses;
use crate::store::Store;
use crate::store::record::Record;
use crate::validate::Validation;
use crate::vlan::Vlans;
use crate::work::Work;
use crate::{Config, Effect, Event, Key, Kind, Name, Object, Status, Target};

/// The driver that realises NetworkAttachmentDefinitions.
pub(crate) const NAD_DRIVER: &str = "nad";

/// What came before the first [`Engine::settle`].
#[derive(Debug, Default)]
pub(crate) struct Startup {
    /// The first [`Engine::settle`] is over.
    pub is_over: bool,
    /// Reports of drivers.
    pub early_reports: Vec<(Target, Report)>,
    /// Commands of the former leader, found on NATS.
    pub stored_commands: Vec<(Target, Desired)>,
}

/// The state of the cluster as far as it is known, and what follows from it. Its parts settle in this order.
#[derive(Debug)]
pub struct Engine {
    /// How this cluster is configured.
    pub(crate) config: Config,
    /// The objects, and which of them name which.
    pub(crate) store: Store,
    /// Which objects fit what they name.
    pub(crate) validate: Validation,
    /// The holders of VLAN IDs.
    pub(crate) vlan: Vlans,
    /// The switches, and the networks on them.
    pub(crate) fabric: Fabric,
    /// The NetworkAttachmentDefinitions.
    pub(crate) nad: Nads,
    /// The nodes, and the networks that are wanted on their hosts.
    pub(crate) node: Nodes,
    /// The interfaces and addresses of running pods.
    pub(crate) pods: Pods,
    /// The statuses of objects.
    pub(crate) status: Statuses,
    /// The commands of targets.
    pub(crate) schedule: Schedule,
    /// What came before the first [`Engine::settle`].
    pub(crate) startup: Startup,
    /// What the parts ask of each other, and the effects of the current [`Engine::settle`].
    pub(crate) work: Work,
}

impl Engine {
    /// An empty cluster.
    pub fn new(config: Config) -> Self {
        Self {
            config,
            store: Store::default(),
            validate: Validation::default(),
            vlan: Vlans::default(),
            fabric: Fabric::default(),
            nad: Nads::default(),
            node: Nodes::default(),
            pods: Pods::default(),
            status: Statuses::default(),
            schedule: Schedule::new(0),
            startup: Startup::default(),
            work: Work::default(),
        }
    }

    /// Processes an event. [`Self::settle`] works out its consequences.
    pub fn handle(&mut self, event: Event) {
        match event {
            Event::Object(object) => self.upsert(*object),
            Event::ObjectGone(key) => self.remove(&key),
            Event::Node { name, labels, ready } => {
                self.update_node(&name, ready);
                if self.store.nodes.get(&name) != Some(&labels) {
                    self.store.nodes.insert(name, labels);
                    self.revalidate_kind(Kind::ConnectionPoint);
                }
            }
            Event::NodeGone(name) => {
                self.remove_node(&name);
                if self.store.nodes.remove(&name).is_some() {
                    self.revalidate_kind(Kind::ConnectionPoint);
                }
            }
            Event::Namespace(name, labels) => {
                if self.store.namespaces.get(&name) != Some(&labels) {
                    let known = self.store.namespaces.insert(name.clone(), labels).is_some();
                    self.validate.trunks.touch();
                    if known {
                        self.revalidate_namespace(&name);
                        self.revalidate_used_from(&name);
                    }
                }
            }
            Event::NamespaceGone(name) => {
                self.store.namespaces.remove(&name);
                self.validate.trunks.touch();
            }
            Event::Pod(pod) => self.update_pod(*pod),
            Event::SampleRefused(key, message) => {
                if let Some(record) = self.store.records.get_mut(&key) {
                    record.sample_refused = Some(message);
                    self.status.queue.insert(key);
                }
            }
            Event::StatusWritten(key, count) => self.leases_written(&key, count),
            Event::PodGone(uid) => self.remove_pod(&uid),
            Event::Report(target, report) if self.startup.is_over => self.report(&target, *report),
            Event::Report(target, report) => self.startup.early_reports.push((target, *report)),
            Event::StoredCommand(target, desired) => self.startup.stored_commands.push((target, *desired)),
            Event::CommandIssued(target, generation) => self.record_command(target, generation),
            Event::Drivers(alive) => self.update_drivers(alive),
            Event::HoldCapableDrivers(drivers) => self.schedule.holding_drivers = drivers,
            Event::MissedDeadline(name) => self.mark_late(&name),
            Event::ChangeRefused(name, report) => self.withhold_rejected(&name, &report),
            Event::RetryDue(network, attempt) => self.retry(&network, attempt),
            Event::DeadlineExceeded { key, since } => self.deadline_exceeded(&key, &since),
            Event::AwaitElapsed(key) => {
                if let Some(record) = self.store.records.get_mut(&key) {
                    // A spec that arrives before this is validated gets a wait of its own.
                    (record.await_elapsed, record.incomplete) = (true, false);
                    self.validate.queue.insert(key);
                }
            }
        }
        self.distribute();
    }

    /// Works out all effects of the events since the last call. `now` is RFC 3339.
    pub fn settle(&mut self, now: &str) -> Vec<Effect> {
        self.run_stages();
        if !self.startup.is_over {
            self.startup.is_over = true;
            self.start();
            self.run_stages();
        }
        let now = Name::from(now);
        while let Some(key) = self.status.queue.pop_first() {
            self.evaluate(&key, &now);
            // A deleted object frees what others wait for.
            self.run_stages();
        }
        self.distribute();
        self.emit_pod_views();
        self.emit_node_effects();
        self.work
            .effects
            .extend(std::mem::take(&mut self.schedule.publish_queue).into_iter().map(Effect::Publish));
        let effects = std::mem::take(&mut self.work.effects);
        for effect in &effects {
            if let Effect::Forget(target) = effect {
                self.schedule.last_commanded.remove(target);
            }
        }
        effects
    }

    /// Hands what parts asked of each other to their queues.
    fn distribute(&mut self) {
        let work = &mut self.work;
        self.validate.queue.append(&mut work.validate);
        if std::mem::take(&mut work.trunks) {
            self.validate.trunks.touch();
        }
        self.vlan.claim_queue.append(&mut work.claim);
        self.vlan.arbitrate_queue.append(&mut work.arbitrate);
        self.fabric.queue.append(&mut work.place);
        self.pods.queue.append(&mut work.grant);
        self.pods.view_queue.append(&mut work.view);
        self.node.label_queue.append(&mut work.label);
        self.status.queue.append(&mut work.evaluate);
        self.schedule.publish_queue.append(&mut work.publish);
    }

    /// True when [`Self::settle`] has something to do.
    pub fn is_unsettled(&self) -> bool {
        !(self.validate.queue.is_empty()
            && self.vlan.claim_queue.is_empty()
            && self.vlan.arbitrate_queue.is_empty()
            && !self.validate.trunks.is_stale()
            && self.fabric.queue.is_empty()
            && self.status.queue.is_empty()
            && self.schedule.publish_queue.is_empty()
            && self.work.effects.is_empty()
            && self.node.label_queue.is_empty()
            && self.pods.restore_queue.is_empty()
            && self.pods.queue_first.is_empty()
            && self.pods.queue.is_empty()
            && self.pods.view_queue.is_empty()
            && !self.node.has_changed_nodes()
            && !self.fabric.topology_dirty)
    }

    /// The driver and the complete desired state of a target. `None`: there is no such target.
    pub fn desired(&self, target: &Target) -> Option<(Name, Desired)> {
        match target {
            Target::Fabric(name) => {
                let device = self.fabric.devices.get(name)?;
                Some((device.driver.clone(), device.render(&self.config, &self.undecided_vlans(name))))
            }
            Target::Nad(namespace, name) => {
                let key = Key::namespaced(Kind::L2ServiceAttachment, namespace, name);
                let nad = self.nad.targets.get(&key)?;
                let attachment = if nad.wanted { self.render(&key, LeaseHandling::Exclude) } else { None };
                (attachment.is_some() || !nad.wanted)
                    .then(|| (NAD_DRIVER.into(), nad::desired(&key, &nad.uid, attachment)))
            }
            Target::Node(name) => {
                Some((hosts::NODE_DRIVER.into(), self.node.render(name, &self.config.cluster)?))
            }
        }
    }

    /// The driver and the desired state of a target that is commanded now, with the state's hash. `None`: there is no
    /// such target. It may leave work for [`Self::settle`]: a state that the target has already reported gets no new
    /// report.
    pub fn issue(&mut self, target: &Target) -> Option<(Name, Desired, String)> {
        let Some((driver, desired)) = self.desired(target) else {
            if let Target::Nad(namespace, name) = target {
                let key = Key::namespaced(Kind::L2ServiceAttachment, namespace, name);
                self.nad.targets.get_mut(&key).into_iter().for_each(NadTarget::mark_unpublished);
            }
            return None;
        };
        let hash = desired.hash();
        match target {
            Target::Fabric(name) => {
                let undecided_vlans = self.undecided_vlans(name);
                let device = self.fabric.devices.get_mut(name)?;
                let was_known = device.is_known();
                let settled = device.record_issued(&hash, self.fabric.change_count, undecided_vlans);
                self.fabric.change_count += 1;
                if device.is_known() != was_known {
                    self.status.queue.insert(Key::cluster(Kind::FabricDevice, name));
                }
                self.reevaluate_networks(settled);
            }
            Target::Node(name) => {
                if self.node.record_issued(name, &hash) {
                    self.handle_node_confirmed(name);
                }
            }
            Target::Nad(..) => {}
        }
        Some((driver, desired, hash))
    }

    /// The drift policy of a switch.
    pub fn drift_policy(&self, device: &Name) -> Drift {
        self.fabric.devices.get(device).map(|device| device.access().drift).unwrap_or_default()
    }

    /// True when a target that was commanded `desired` still has the same endpoint and driver.
    pub fn is_same_endpoint(&self, target: &Target, driver: &Name, desired: &Desired) -> bool {
        match (target, desired) {
            (Target::Fabric(name), Desired::Fabric(desired)) => {
                self.fabric.devices.get(name).is_some_and(|device| {
                    device.driver == *driver && is_same_access(device.access(), &desired.device)
                })
            }
            _ => false,
        }
    }

    /// The current status of an object.
    pub fn status(&self, key: &Key) -> Option<&Status> {
        self.store.records.get(key).map(|record| &record.status)
    }

    /// Runs every stage except evaluation until all queues are empty.
    pub(crate) fn run_stages(&mut self) {
        loop {
            self.distribute();
            let next = self.validate.queue.first().map(|key| key.kind);
            if next.is_some_and(|kind| kind < Kind::ConnectionPoint) {
                self.validate_first();
            } else if self.fabric.topology_dirty {
                self.rebuild_topology();
            } else if next.is_some_and(|kind| kind < Kind::L2Service) {
                self.validate_first();
            } else if !self.vlan.restored {
                self.restore_claims();
            } else if let Some(key) = self.vlan.claim_queue.pop_first() {
                self.update_claims(&key);
            } else if let Some(vid) = self.vlan.arbitrate_queue.pop_first() {
                for key in self.vlan.ids.arbitrate(vid) {
                    self.revalidate_referrers(&key);
                    self.fabric.queue.insert(key.clone());
                    self.validate.queue.insert(key);
                }
            } else if next.is_some_and(|kind| kind < Kind::L2ServiceAttachment) {
                self.validate_first();
            } else if self.validate.trunks.is_stale() {
                self.decide_trunks();
            } else if next.is_some() {
                self.validate_first();
            } else if let Some(key) = self.fabric.queue.pop_first() {
                self.replan(&key);
            } else if let Some(key) = self.pods.restore_queue.pop_first() {
                self.restore_leases(&key);
            } else if !self.pods.orphans_restored {
                self.restore_orphan_leases();
            } else if let Some((key, uid)) =
                self.pods.queue_first.pop_first().or_else(|| self.pods.queue.pop_first())
            {
                self.plan_pod(&key, &uid);
            } else {
                return;
            }
        }
    }

    pub(crate) fn validate_first(&mut self) {
        if let Some(key) = self.validate.queue.pop_first() {
            self.validate(&key);
        }
    }

    /// Runs once. Restores the commands of the former leader, cleans up targets that no longer exist, and processes
    /// the reports that have come so far.
    pub(crate) fn start(&mut self) {
        let mut had: BTreeSet<(Key, VlanId)> = BTreeSet::new();
        let commanded: HashMap<&Target, String> =
            self.startup.stored_commands.iter().map(|(target, desired)| (target, desired.hash())).collect();
        for (target, report) in &mut self.startup.early_reports {
            // Another state was commanded since and may be in progress: only a new report counts.
            if commanded.get(target).is_some_and(|hash| *hash != report.generation.hash) {
                report.generation.hash.clear();
            }
        }
        for (target, desired) in std::mem::take(&mut self.startup.stored_commands) {
            self.restore_command(target.clone(), desired.hash());
            match (&target, desired) {
                (Target::Fabric(name), _) if !self.fabric.devices.contains_key(name) => {
                    self.work.effects.push(Effect::Forget(target));
                }
                (Target::Fabric(name), Desired::Fabric(desired)) => {
                    let device = self.fabric.devices.get_mut(name);
                    let here = device.map(|device| device.restore_command(&desired)).unwrap_or_default();
                    for (network, _) in &here {
                        let planned = self.fabric.networks.get(network).and_then(|one| one.planned.as_ref());
                        if planned.is_none_or(|(_, ports)| !ports.contains_key(name)) {
                            self.note_device_cleanup(name, network);
                        }
                    }
                    had.extend(here);
                }
                (Target::Node(name), _) if self.node.node(name).is_none() => {
                    self.work.effects.push(Effect::Forget(target));
                }
                (Target::Nad(namespace, name), Desired::Nad(desired)) => {
                    let key = Key::namespaced(Kind::L2ServiceAttachment, namespace, name);
                    self.restore_nad(&key, desired);
                }
                _ => {}
            }
        }
        self.restore_vlan_changes(had);
        self.restore_refusals();
        for device in self.fabric.devices.values_mut() {
            device.begin(&self.config, self.fabric.change_count);
        }
        self.fabric.change_count += 1;
        for name in self.store.nodes.keys() {
            if let Some(desired) = self.node.render(name, &self.config.cluster) {
                self.node.record_issued(name, &desired.hash());
            }
        }
        for (target, report) in std::mem::take(&mut self.startup.early_reports) {
            self.report(&target, report);
        }
        self.pods.forget_idle();
        self.status.queue.extend(self.store.records.keys().cloned());
    }

    pub(crate) fn report(&mut self, target: &Target, mut report: Report) {
        if self.is_outdated(target, &report.generation) {
            report.generation.hash.clear();
        }
        match target {
            Target::Fabric(name) => {
                self.retry_after_report(name, &report);
                self.assign_orphan_vlans(name, &report);
                let Some(device) = self.fabric.devices.get_mut(name) else { return };
                let known = device.is_known();
                let effects = device.report(report);
                let first = !known && device.is_known();
                if effects.port_memory_changed {
                    self.schedule.publish_queue.insert(target.clone());
                }
                self.adopt_confirmed(name, &effects);
                if effects.found_initial_state {
                    self.refresh_withheld();
                }
                self.handle_device_confirmed(name, &effects.networks, first);
                self.publish_partial();
                self.status.queue.insert(Key::cluster(Kind::FabricDevice, name));
                self.reevaluate_networks(effects.networks);
                self.status.queue.extend(self.status.removing.iter().cloned());
            }
            Target::Nad(namespace, name) => {
                let key = Key::namespaced(Kind::L2ServiceAttachment, namespace, name);
                let Some(nad) = self.nad.targets.get_mut(&key) else { return };
                nad.report(report);
                if self.store.records.contains_key(&key) {
                    self.status.queue.insert(key);
                } else if nad.hop() == nad::NadState::Confirmed {
                    self.nad.targets.remove(&key);
                    self.work.effects.push(Effect::Forget(target.clone()));
                }
            }
            Target::Node(name) => self.handle_node_report(name, report),
        }
    }

    pub(crate) fn upsert(&mut self, object: Object) {
        if let Some(record) = self.store.records.get_mut(&object.key) {
            if record.uid == object.uid {
                let same = record.generation == object.generation
                    && record.deleting == object.deleting
                    && record.finalized == object.finalized
                    && record.forget == object.forget;
                if same {
                    return;
                }
                if (record.finalized, record.deleting) != (object.finalized, object.deleting) {
                    // The object becomes active or stops taking new users: everything that depends on it is validated
                    // again.
                    (record.finalizer_requested, record.version) = (false, 0);
                    if !record.finalized && planner::is_user(&object.key) {
                        // Without a finalizer it held nothing: it starts from what its status says is realised.
                        record.effective = record.status.realized.clone();
                    }
                }
                self.fabric.topology_dirty |=
                    object.key.kind == Kind::FabricDevice && record.forget != object.forget;
                (record.deleting, record.finalized, record.forget) =
                    (object.deleting, object.finalized, object.forget);
                if record.generation != object.generation {
                    record.generation = object.generation;
                    record.await_elapsed = false;
                    record.spec = object.spec.map(Arc::new);
                    record.unknown_opts = object.unknown_opts;
                }
                self.changed(&object.key);
                return;
            }
            self.remove(&object.key);
        }
        let (key, record) = Record::new(object);
        if grant::gives_to_pods(key.kind) && self.config.nodes {
            self.renew_leases(&key);
            if record.status.pods.is_empty() {
                self.replan_pods(&key);
            } else {
                self.pods.restore_queue.insert(key.clone());
            }
        }
        if let (Kind::L2BridgeDomain, true, Ok(spec)) = (key.kind, record.generated, &record.spec)
            && let Spec::BridgeDomain(spec) = &**spec
        {
            self.fabric.bridge_domains.insert(key.name.clone(), spec.clone());
        }
        self.store.records.insert(key.clone(), record);
        self.changed(&key);
    }

    /// Queues all work that follows from a changed manifest.
    pub(crate) fn changed(&mut self, key: &Key) {
        self.update_references(key);
        self.update_trunk_index(key);
        self.update_usage(key);
        self.validate.queue.insert(key.clone());
        self.status.queue.insert(key.clone());
        self.revalidate_routes(key);
        if matches!(key.kind, Kind::L2Service | Kind::L2BridgeDomain) {
            self.vlan.claim_queue.insert(key.clone());
        }
    }

    pub(crate) fn remove(&mut self, key: &Key) {
        let Some(mut record) = self.store.records.remove(key) else { return };
        (record.spec, record.effective) = (Err(crate::spec::Invalid::new("", "gone")), None);
        let indexed_references = std::mem::take(&mut record.indexed_references);
        self.store.records.insert(key.clone(), record);
        self.update_usage(key);
        self.plan_hosts(key);
        self.update_bridge_index(key);
        let record = self.store.records.remove(key);
        if grant::gives_to_pods(key.kind) {
            self.remove_provider(key);
            self.pods.restore_queue.remove(key);
            self.pods.view_queue.extend(self.pods.selected.get(key).into_iter().flatten().cloned());
        }
        for reference in indexed_references {
            self.remove_reference(&reference, key);
        }
        self.revalidate_referrers(key);
        self.update_trunk_index(key);
        self.validate.trunks.touch();
        self.distribute();
        for work in [
            &mut self.validate.queue,
            &mut self.status.queue,
            &mut self.vlan.claim_queue,
            &mut self.fabric.queue,
            &mut self.status.removing,
        ] {
            work.remove(key);
        }
        match key.kind {
            Kind::FabricDevice => {
                self.fabric.topology_dirty = true;
                if self.fabric.devices.remove(&key.name).is_some() {
                    self.work.effects.push(Effect::Forget(Target::Fabric(key.name.clone())));
                }
            }
            Kind::L2Service | Kind::L2BridgeDomain => {
                self.vlan.claim_queue.insert(key.clone());
                self.fabric.queue.insert(key.clone());
            }
            Kind::L2ServiceAttachment => {
                if let Some(record) = record.filter(|_| self.nad.targets.contains_key(key)) {
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
                self.fabric.points.remove(&key.name);
                self.fabric.path_cache.borrow_mut().clear();
            }
        }
        if key.kind == Kind::L2BridgeDomain && self.fabric.bridge_domains.remove(&key.name).is_some() {
            self.fabric.queue.insert(Key::cluster(Kind::L2Service, &key.name));
        }
    }

    /// Restores the command of a NAD by a former leader. If nothing is planned for it, it stays as it is until its
    /// attachment changes or goes.
    pub(crate) fn restore_nad(&mut self, key: &Key, commanded: NadDesired) {
        if self.nad.targets.contains_key(key) {
            return;
        }
        let uid = Name::from(commanded.owner.uid.as_str());
        if !self.store.records.contains_key(key) {
            return self.withdraw_nad(key, &uid);
        }
        let mut nad = NadTarget::new(uid);
        let commanded = Desired::Nad(commanded);
        nad.want(&commanded, &commanded);
        self.nad.targets.insert(key.clone(), nad);
        self.plan_nad(key);
    }

    /// The attachment is gone: its NAD has to go, unless it is confirmed to be gone.
    pub(crate) fn withdraw_nad(&mut self, key: &Key, uid: &Name) {
        let target = Target::Nad(key.namespace.clone(), key.name.clone());
        let nad = self.nad.targets.entry(key.clone()).or_insert_with(|| NadTarget::new(uid.clone()));
        let nothing = nad::desired(key, &nad.uid, None);
        nad.want(&nothing, &nothing);
        if nad.hop() == nad::NadState::Confirmed {
            self.nad.targets.remove(key);
            self.work.effects.push(Effect::Forget(target));
        } else {
            self.schedule.publish_queue.insert(target);
        }
    }

    pub(crate) fn update_drivers(&mut self, alive: BTreeSet<Name>) {
        let changed: BTreeSet<Name> =
            self.schedule.live_drivers.symmetric_difference(&alive).cloned().collect();
        self.schedule.live_drivers = alive;
        if changed.contains(NAD_DRIVER) {
            self.status
                .queue
                .extend(self.nad.targets.keys().filter(|key| self.store.records.contains_key(key)).cloned());
        }
        for name in changed.iter().filter_map(|driver| driver.strip_prefix("node/")) {
            self.reevaluate_waiters(&Name::from(name));
        }
        let mut networks = BTreeSet::new();
        for (name, device) in
            self.fabric.devices.iter().filter(|(_, device)| changed.contains(&device.driver))
        {
            self.status.queue.insert(Key::cluster(Kind::FabricDevice, name));
            networks.append(&mut device.networks());
        }
        self.reevaluate_networks(networks);
        self.publish_partial();
    }

    /// Queues the evaluation of networks and of the objects that name them.
    pub(crate) fn reevaluate_networks(&mut self, networks: BTreeSet<Key>) {
        for network in networks {
            self.status.queue.extend(self.store.referrers.get(&network).into_iter().flatten().cloned());
            if self.store.records.contains_key(&network) {
                self.status.queue.insert(network);
            }
        }
    }

    pub(crate) fn revalidate_kind(&mut self, kind: Kind) {
        self.validate.queue.extend(self.store.records.keys().filter(|key| key.kind == kind).cloned());
    }

    pub(crate) fn revalidate_namespace(&mut self, namespace: &Name) {
        let inside = self.store.records.keys().filter(|key| key.namespace == *namespace);
        self.validate.queue.extend(inside.cloned());
    }

    pub(crate) fn revalidate_referrers(&mut self, key: &Key) {
        self.validate.queue.extend(self.store.referrers.get(key).into_iter().flatten().cloned());
    }

    pub(crate) fn revalidate_if_deleting(&mut self, key: &Key) {
        if self.store.records.get(key).is_some_and(|record| record.deleting) {
            self.validate.queue.insert(key.clone());
        }
    }

    /// Updates the index of referrers with the references of an object.
    pub(crate) fn update_references(&mut self, key: &Key) {
        self.update_bridge_index(key);
        let Some(record) = self.store.records.get_mut(key) else { return };
        let now = record.references();
        if now == record.indexed_references {
            return;
        }
        let before = std::mem::replace(&mut record.indexed_references, now.clone());
        for reference in before.difference(&now) {
            self.remove_reference(reference, key);
        }
        for reference in now.difference(&before) {
            self.store.referrers.entry(reference.clone()).or_default().insert(key.clone());
            self.revalidate_if_deleting(reference);
        }
    }

    pub(crate) fn remove_reference(&mut self, reference: &Key, key: &Key) {
        if let Some(referrers) = self.store.referrers.get_mut(reference) {
            referrers.remove(key);
            if referrers.is_empty() {
                self.store.referrers.remove(reference);
            }
        }
        self.revalidate_if_deleting(reference);
        self.revalidate_invalid_route(reference);
        self.reevaluate_last_on_subnet(reference);
    }

    /// The realised spec of an object, if it is of the kind that `read` takes.
    pub(crate) fn effective<T>(&self, key: &Key, read: impl Fn(&Spec) -> Option<&T>) -> Option<&T> {
        read(self.store.records.get(key)?.effective.as_deref()?)
    }
}

/// True when two endpoints differ at most in their audit interval.
fn is_same_access(one: &Device, other: &Device) -> bool {
    *one == Device { audit_interval: one.audit_interval, ..other.clone() }
}
