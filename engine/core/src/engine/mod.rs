//! The state of the world and the loop that reconciles it.
//!
//! Work flows through stages, each with a queue, so that a change costs only what it touches:
//!
//! 1. `validate_queue`: an object is validated against what it names. Its last valid spec is what is realised.
//! 2. `arbitrate_queue`: the holders of a VLAN ID are decided.
//! 3. [`trunks`]: before attachments are validated, it is decided which of them exclude each other.
//! 4. `replan_queue`: a network is planned onto switch ports.
//! 5. `evaluate_queue`: the status of an object is evaluated, after changes and after reports of targets.

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
mod plan;
mod pod_users;
mod pods;
mod podstate;
mod record;
mod stalled;
mod trunks;
mod unknown_opts;
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

use addresses::LeaseHandling;
pub use fabric_transaction::TransactionGroup;
use last_commanded::LastCommanded;
use pod_users::Users;
use record::{Network, Point, Record};
use trunks::Trunks;

/// The driver that realises NetworkAttachmentDefinitions.
const NAD_DRIVER: &str = "nad";

/// The world as far as it is known, and what follows from it.
#[allow(clippy::struct_excessive_bools, reason = "what was done once since the start, and work to do")]
#[derive(Debug)]
pub struct Engine {
    /// How this cluster is configured.
    config: Config,
    /// The custom resources.
    records: HashMap<Key, Record>,
    /// By object: the objects that name it ([`Record::indexed_references`]).
    referrers: HashMap<Key, BTreeSet<Key>>,
    /// The labels of each Node.
    nodes: BTreeMap<Name, Labels>,
    /// The labels of each namespace.
    namespaces: HashMap<Name, Labels>,
    /// By pod uid: the L2ServiceAttachments that the pod uses.
    attachments_by_pod: HashMap<Name, Vec<Key>>,
    /// The inverse of `attachments_by_pod`.
    pods_by_attachment: HashMap<Key, Users>,
    /// The drivers that are alive; an agent as `node/<name>`.
    live_drivers: BTreeSet<Name>,
    /// The drivers that can hold a change until its transaction is decided.
    holding_drivers: BTreeSet<Name>,
    /// The graph of the switches in `records`.
    topology: Topology,
    /// A FabricDevice changed: `topology` is built anew.
    topology_dirty: bool,
    /// A FabricDevice exists that is not being deleted.
    has_fabric: bool,
    /// The ConnectionPoints as the fabric sees them.
    points: HashMap<Name, Point>,
    /// The switch ports between endpoints. Cleared when `points` or `topology` change.
    path_cache: RefCell<HashMap<plan::Endpoints, Arc<Ports>>>,
    /// The state of each L2Service and hand-written L2BridgeDomain.
    networks: HashMap<Key, Network>,
    /// By L2Service: the L2BridgeDomain that the engine has written for it.
    bridge_domains: HashMap<Name, BridgeDomainSpec>,
    /// The holders of VLAN IDs.
    ids: Ids,
    /// The switches.
    devices: BTreeMap<Name, DeviceTarget>,
    /// Orders the changes of all switches; grows with each state that is handed out ([`crate::changes`]).
    change_count: u64,
    /// The networks with a [`Network::refusal`].
    refused_networks: BTreeSet<Key>,
    /// Networks that move to another VLAN: the VLANs involved, until every switch has confirmed.
    pending_vlan_changes: HashMap<Key, BTreeSet<VlanId>>,
    /// By L2ServiceAttachment: its NetworkAttachmentDefinition.
    nads: HashMap<Key, NadTarget>,
    /// The nodes, and the networks that are wanted on them.
    hosts: Hosts,
    /// The interfaces and addresses of running pods.
    podnet: PodNet,
    /// By name of a host interface: the objects that name it as a pod bridge or parent.
    bridge_users: HashMap<String, BTreeSet<Key>>,
    /// Which attachments exclude each other.
    trunks: Trunks,
    /// Objects that were given up while switches may still carry their VLANs. Evaluated after each switch report.
    removing: BTreeSet<Key>,
    /// The highest [`Record::version`].
    version: u64,
    /// VLAN claims were restored from statuses, once after the start.
    claims_restored: bool,
    /// Addresses of deleted objects were restored from agents' reports, once after the start.
    orphan_leases_restored: bool,
    /// The first [`Engine::settle`] is over.
    started: bool,
    /// Reports that came before the first [`Engine::settle`].
    early_reports: Vec<(Target, Report)>,
    /// Commands of the former leader, found on NATS at the start.
    stored_commands: Vec<(Target, Desired)>,
    /// The last command of each target.
    last_commanded: HashMap<Target, LastCommanded>,
    /// Objects to be validated.
    validate_queue: BTreeSet<Key>,
    /// Networks whose VLAN claims are to be updated.
    claim_queue: BTreeSet<Key>,
    /// VLAN IDs whose holders are to be decided.
    arbitrate_queue: BTreeSet<VlanId>,
    /// Networks to be planned onto switch ports.
    replan_queue: BTreeSet<Key>,
    /// Objects whose leases are to be restored from their status.
    restore_queue: BTreeSet<Key>,
    /// As `pod_queue`, for pods that already have something: they are planned before all others.
    pod_queue_first: BTreeSet<(Key, Name)>,
    /// Pairs of an object and a pod uid: what the one gives to the other is to be planned.
    pod_queue: BTreeSet<(Key, Name)>,
    /// Objects whose status is to be evaluated.
    evaluate_queue: BTreeSet<Key>,
    /// Pod uids whose PodNetwork may have changed.
    pod_view_queue: BTreeSet<Name>,
    /// Nodes whose labels and extended resources may have changed.
    node_label_queue: BTreeSet<Name>,
    /// Targets whose desired state changed.
    publish_queue: BTreeSet<Target>,
    /// The effects of the current [`Engine::settle`].
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
            attachments_by_pod: HashMap::new(),
            pods_by_attachment: HashMap::new(),
            live_drivers: BTreeSet::new(),
            holding_drivers: BTreeSet::new(),
            topology: Topology::default(),
            topology_dirty: false,
            has_fabric: false,
            points: HashMap::new(),
            path_cache: RefCell::default(),
            networks: HashMap::new(),
            bridge_domains: HashMap::new(),
            ids: Ids::default(),
            devices: BTreeMap::new(),
            change_count: 0,
            refused_networks: BTreeSet::new(),
            pending_vlan_changes: HashMap::new(),
            nads: HashMap::new(),
            hosts: Hosts::default(),
            podnet: PodNet::default(),
            bridge_users: HashMap::new(),
            trunks: Trunks::default(),
            removing: BTreeSet::new(),
            version: 0,
            claims_restored: false,
            orphan_leases_restored: false,
            started: false,
            early_reports: Vec::new(),
            stored_commands: Vec::new(),
            last_commanded: HashMap::new(),
            validate_queue: BTreeSet::new(),
            claim_queue: BTreeSet::new(),
            arbitrate_queue: BTreeSet::new(),
            replan_queue: BTreeSet::new(),
            restore_queue: BTreeSet::new(),
            pod_queue_first: BTreeSet::new(),
            pod_queue: BTreeSet::new(),
            evaluate_queue: BTreeSet::new(),
            pod_view_queue: BTreeSet::new(),
            node_label_queue: BTreeSet::new(),
            publish_queue: BTreeSet::new(),
            effects: Vec::new(),
        }
    }

    /// Processes an event. [`Self::settle`] works out its consequences.
    pub fn handle(&mut self, event: Event) {
        match event {
            Event::Object(object) => self.upsert(*object),
            Event::ObjectGone(key) => self.remove(&key),
            Event::Node { name, labels, ready } => {
                self.update_node(&name, ready);
                if self.nodes.get(&name) != Some(&labels) {
                    self.nodes.insert(name, labels);
                    self.revalidate_kind(Kind::ConnectionPoint);
                }
            }
            Event::NodeGone(name) => {
                self.remove_node(&name);
                if self.nodes.remove(&name).is_some() {
                    self.revalidate_kind(Kind::ConnectionPoint);
                }
            }
            Event::Namespace(name, labels) => {
                if self.namespaces.get(&name) != Some(&labels) {
                    let known = self.namespaces.insert(name.clone(), labels).is_some();
                    self.trunks.touch();
                    if known {
                        self.revalidate_namespace(&name);
                        self.revalidate_used_from(&name);
                    }
                }
            }
            Event::NamespaceGone(name) => {
                self.namespaces.remove(&name);
                self.trunks.touch();
            }
            Event::Pod(pod) => self.update_pod(*pod),
            Event::SampleRefused(key, message) => {
                if let Some(record) = self.records.get_mut(&key) {
                    record.sample_refused = Some(message);
                    self.evaluate_queue.insert(key);
                }
            }
            Event::StatusWritten(key, count) => self.leases_written(&key, count),
            Event::PodGone(uid) => self.remove_pod(&uid),
            Event::Report(target, report) if self.started => self.report(&target, *report),
            Event::Report(target, report) => self.early_reports.push((target, *report)),
            Event::StoredCommand(target, desired) => self.stored_commands.push((target, *desired)),
            Event::CommandIssued(target, generation) => self.record_command(target, generation),
            Event::Drivers(alive) => self.update_drivers(alive),
            Event::HoldCapableDrivers(drivers) => self.holding_drivers = drivers,
            Event::MissedDeadline(name) => self.mark_late(&name),
            Event::ChangeRefused(name, report) => self.withhold_rejected(&name, &report),
            Event::RetryDue(network, attempt) => self.retry(&network, attempt),
            Event::DeadlineExceeded { key, since } => self.deadline_exceeded(&key, &since),
            Event::AwaitElapsed(key) => {
                if let Some(record) = self.records.get_mut(&key) {
                    // A spec that arrives before this is validated gets a wait of its own.
                    (record.await_elapsed, record.incomplete) = (true, false);
                    self.validate_queue.insert(key);
                }
            }
        }
    }

    /// Works out all effects of the events since the last call. `now` is RFC 3339.
    pub fn settle(&mut self, now: &str) -> Vec<Effect> {
        self.run_stages();
        if !self.started {
            self.started = true;
            self.start();
            self.run_stages();
        }
        let now = Name::from(now);
        while let Some(key) = self.evaluate_queue.pop_first() {
            self.evaluate(&key, &now);
            // A deleted object frees what others wait for.
            self.run_stages();
        }
        self.emit_pod_views();
        self.emit_node_effects();
        self.effects.extend(std::mem::take(&mut self.publish_queue).into_iter().map(Effect::Publish));
        let effects = std::mem::take(&mut self.effects);
        for effect in &effects {
            if let Effect::Forget(target) = effect {
                self.last_commanded.remove(target);
            }
        }
        effects
    }

    /// True when [`Self::settle`] has something to do.
    pub fn is_unsettled(&self) -> bool {
        !(self.validate_queue.is_empty()
            && self.claim_queue.is_empty()
            && self.arbitrate_queue.is_empty()
            && !self.trunks.is_stale()
            && self.replan_queue.is_empty()
            && self.evaluate_queue.is_empty()
            && self.publish_queue.is_empty()
            && self.effects.is_empty()
            && self.node_label_queue.is_empty()
            && self.restore_queue.is_empty()
            && self.pod_queue_first.is_empty()
            && self.pod_queue.is_empty()
            && self.pod_view_queue.is_empty()
            && !self.hosts.has_changed_nodes()
            && !self.topology_dirty)
    }

    /// The driver and the complete desired state of a target. `None`: there is no such target. It may leave work for
    /// [`Self::settle`]: a state that the target has already reported gets no new report.
    pub fn desired(&mut self, target: &Target) -> Option<(Name, Desired)> {
        match target {
            Target::Fabric(name) => {
                let undecided_vlans = self.undecided_vlans(name);
                let device = self.devices.get_mut(name)?;
                let was_known = device.is_known();
                let (desired, settled) = device.desired(&self.config, self.change_count, undecided_vlans);
                self.change_count += 1;
                let driver = device.driver.clone();
                if device.is_known() != was_known {
                    self.evaluate_queue.insert(Key::cluster(Kind::FabricDevice, name));
                }
                self.reevaluate_networks(settled);
                Some((driver, desired))
            }
            Target::Nad(namespace, name) => {
                let key = Key::namespaced(Kind::L2ServiceAttachment, namespace, name);
                let wanted = self.nads.get(&key)?.wanted;
                let attachment = if wanted { self.render(&key, LeaseHandling::Exclude) } else { None };
                let nad = self.nads.get_mut(&key)?;
                if wanted && attachment.is_none() {
                    nad.mark_unpublished();
                    return None;
                }
                Some((NAD_DRIVER.into(), nad::desired(&key, &nad.uid, attachment)))
            }
            Target::Node(name) => {
                let (desired, settled) = self.hosts.desired(name, &self.config.cluster)?;
                if settled {
                    self.handle_node_confirmed(name);
                }
                Some((hosts::NODE_DRIVER.into(), desired))
            }
        }
    }

    /// [`Desired::hash`] of the state that [`Self::desired`] has just returned for this target.
    pub fn desired_hash(&self, target: &Target, desired: &Desired) -> String {
        let last_commanded = match target {
            Target::Fabric(name) => self.devices.get(name).and_then(DeviceTarget::last_commanded),
            Target::Nad(..) | Target::Node(_) => None,
        };
        last_commanded.map_or_else(|| desired.hash(), str::to_owned)
    }

    /// The drift policy of a switch.
    pub fn drift_policy(&self, device: &Name) -> Drift {
        self.devices.get(device).map(|device| device.access().drift).unwrap_or_default()
    }

    /// True when a target that was commanded `desired` still has the same endpoint and driver.
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

    /// The current status of an object.
    pub fn status(&self, key: &Key) -> Option<&Status> {
        self.records.get(key).map(|record| &record.status)
    }

    /// Runs every stage except evaluation until all queues are empty.
    fn run_stages(&mut self) {
        loop {
            let next = self.validate_queue.first().map(|key| key.kind);
            if next.is_some_and(|kind| kind < Kind::ConnectionPoint) {
                self.validate_first();
            } else if self.topology_dirty {
                self.rebuild_topology();
            } else if next.is_some_and(|kind| kind < Kind::L2Service) {
                self.validate_first();
            } else if !self.claims_restored {
                self.restore_claims();
            } else if let Some(key) = self.claim_queue.pop_first() {
                self.update_claims(&key);
            } else if let Some(vid) = self.arbitrate_queue.pop_first() {
                for key in self.ids.arbitrate(vid) {
                    self.revalidate_referrers(&key);
                    self.replan_queue.insert(key.clone());
                    self.validate_queue.insert(key);
                }
            } else if next.is_some_and(|kind| kind < Kind::L2ServiceAttachment) {
                self.validate_first();
            } else if self.trunks.is_stale() {
                self.decide_trunks();
            } else if next.is_some() {
                self.validate_first();
            } else if let Some(key) = self.replan_queue.pop_first() {
                self.replan(&key);
            } else if let Some(key) = self.restore_queue.pop_first() {
                self.restore_leases(&key);
            } else if !self.orphan_leases_restored {
                self.restore_orphan_leases();
            } else if let Some((key, uid)) =
                self.pod_queue_first.pop_first().or_else(|| self.pod_queue.pop_first())
            {
                self.plan_pod(&key, &uid);
            } else {
                return;
            }
        }
    }

    fn validate_first(&mut self) {
        if let Some(key) = self.validate_queue.pop_first() {
            self.validate(&key);
        }
    }

    /// Runs once. Restores the commands of the former leader, cleans up targets that no longer exist, and processes
    /// the reports that have come so far.
    fn start(&mut self) {
        let mut had: BTreeSet<(Key, VlanId)> = BTreeSet::new();
        let commanded: HashMap<&Target, String> =
            self.stored_commands.iter().map(|(target, desired)| (target, desired.hash())).collect();
        for (target, report) in &mut self.early_reports {
            // Another state was commanded since and may be in progress: only a new report counts.
            if commanded.get(target).is_some_and(|hash| *hash != report.generation.hash) {
                report.generation.hash.clear();
            }
        }
        for (target, desired) in std::mem::take(&mut self.stored_commands) {
            self.restore_command(target.clone(), desired.hash());
            match (&target, desired) {
                (Target::Fabric(name), _) if !self.devices.contains_key(name) => {
                    self.effects.push(Effect::Forget(target));
                }
                (Target::Fabric(name), Desired::Fabric(desired)) => {
                    let device = self.devices.get_mut(name);
                    let here = device.map(|device| device.restore_command(&desired)).unwrap_or_default();
                    for (network, _) in &here {
                        let planned = self.networks.get(network).and_then(|one| one.planned.as_ref());
                        if planned.is_none_or(|(_, ports)| !ports.contains_key(name)) {
                            self.note_device_cleanup(name, network);
                        }
                    }
                    had.extend(here);
                }
                (Target::Node(name), _) if self.hosts.node(name).is_none() => {
                    self.effects.push(Effect::Forget(target));
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
        for device in self.devices.values_mut() {
            device.begin(&self.config, self.change_count);
        }
        self.change_count += 1;
        for name in self.nodes.keys() {
            self.hosts.desired(name, &self.config.cluster);
        }
        for (target, report) in std::mem::take(&mut self.early_reports) {
            self.report(&target, report);
        }
        self.podnet.forget_idle();
        self.evaluate_queue.extend(self.records.keys().cloned());
    }

    fn report(&mut self, target: &Target, mut report: Report) {
        if self.is_outdated(target, &report.generation) {
            report.generation.hash.clear();
        }
        match target {
            Target::Fabric(name) => {
                self.retry_after_report(name, &report);
                self.assign_orphan_vlans(name, &report);
                let Some(device) = self.devices.get_mut(name) else { return };
                let known = device.is_known();
                let effects = device.report(report);
                let first = !known && device.is_known();
                if effects.port_memory_changed {
                    self.publish_queue.insert(target.clone());
                }
                self.adopt_confirmed(name, &effects);
                if effects.found_initial_state {
                    self.refresh_withheld();
                }
                self.handle_device_confirmed(name, &effects.networks, first);
                self.publish_partial();
                self.evaluate_queue.insert(Key::cluster(Kind::FabricDevice, name));
                self.reevaluate_networks(effects.networks);
                self.evaluate_queue.extend(self.removing.iter().cloned());
            }
            Target::Nad(namespace, name) => {
                let key = Key::namespaced(Kind::L2ServiceAttachment, namespace, name);
                let Some(nad) = self.nads.get_mut(&key) else { return };
                nad.report(report);
                if self.records.contains_key(&key) {
                    self.evaluate_queue.insert(key);
                } else if nad.hop() == nad::NadState::Confirmed {
                    self.nads.remove(&key);
                    self.effects.push(Effect::Forget(target.clone()));
                }
            }
            Target::Node(name) => self.handle_node_report(name, report),
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
                    // The object becomes active or stops taking new users: everything that depends on it is validated
                    // again.
                    (record.finalizer_requested, record.version) = (false, 0);
                    if !record.finalized && plan::is_user(&object.key) {
                        // Without a finalizer it held nothing: it starts from what its status says is realised.
                        record.effective = record.status.realized.clone();
                    }
                }
                self.topology_dirty |=
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
        if pods::gives_to_pods(key.kind) && self.config.nodes {
            self.renew_leases(&key);
            if record.status.pods.is_empty() {
                self.replan_pods(&key);
            } else {
                self.restore_queue.insert(key.clone());
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

    /// Queues all work that follows from a changed manifest.
    fn changed(&mut self, key: &Key) {
        self.update_references(key);
        self.update_trunk_index(key);
        self.update_usage(key);
        self.validate_queue.insert(key.clone());
        self.evaluate_queue.insert(key.clone());
        self.revalidate_routes(key);
        if matches!(key.kind, Kind::L2Service | Kind::L2BridgeDomain) {
            self.claim_queue.insert(key.clone());
        }
    }

    fn remove(&mut self, key: &Key) {
        let Some(mut record) = self.records.remove(key) else { return };
        (record.spec, record.effective) = (Err(crate::spec::Invalid::new("", "gone")), None);
        let indexed_references = std::mem::take(&mut record.indexed_references);
        self.records.insert(key.clone(), record);
        self.update_usage(key);
        self.plan_hosts(key);
        self.update_bridge_index(key);
        let record = self.records.remove(key);
        if pods::gives_to_pods(key.kind) {
            self.remove_provider(key);
            self.restore_queue.remove(key);
            self.pod_view_queue.extend(self.podnet.selected.get(key).into_iter().flatten().cloned());
        }
        for reference in indexed_references {
            self.remove_reference(&reference, key);
        }
        self.revalidate_referrers(key);
        self.update_trunk_index(key);
        self.trunks.touch();
        for work in [
            &mut self.validate_queue,
            &mut self.evaluate_queue,
            &mut self.claim_queue,
            &mut self.replan_queue,
            &mut self.removing,
        ] {
            work.remove(key);
        }
        match key.kind {
            Kind::FabricDevice => {
                self.topology_dirty = true;
                if self.devices.remove(&key.name).is_some() {
                    self.effects.push(Effect::Forget(Target::Fabric(key.name.clone())));
                }
            }
            Kind::L2Service | Kind::L2BridgeDomain => {
                self.claim_queue.insert(key.clone());
                self.replan_queue.insert(key.clone());
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
                self.path_cache.borrow_mut().clear();
            }
        }
        if key.kind == Kind::L2BridgeDomain && self.bridge_domains.remove(&key.name).is_some() {
            self.replan_queue.insert(Key::cluster(Kind::L2Service, &key.name));
        }
    }

    /// Restores the command of a NAD by a former leader. If nothing is planned for it, it stays as it is until its
    /// attachment changes or goes.
    fn restore_nad(&mut self, key: &Key, commanded: NadDesired) {
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

    /// The attachment is gone: its NAD has to go, unless it is confirmed to be gone.
    fn withdraw_nad(&mut self, key: &Key, uid: &Name) {
        let target = Target::Nad(key.namespace.clone(), key.name.clone());
        let nad = self.nads.entry(key.clone()).or_insert_with(|| NadTarget::new(uid.clone()));
        let nothing = nad::desired(key, &nad.uid, None);
        nad.want(&nothing, &nothing);
        if nad.hop() == nad::NadState::Confirmed {
            self.nads.remove(key);
            self.effects.push(Effect::Forget(target));
        } else {
            self.publish_queue.insert(target);
        }
    }

    fn update_drivers(&mut self, alive: BTreeSet<Name>) {
        let changed: BTreeSet<Name> = self.live_drivers.symmetric_difference(&alive).cloned().collect();
        self.live_drivers = alive;
        if changed.contains(NAD_DRIVER) {
            self.evaluate_queue
                .extend(self.nads.keys().filter(|key| self.records.contains_key(key)).cloned());
        }
        for name in changed.iter().filter_map(|driver| driver.strip_prefix("node/")) {
            self.reevaluate_waiters(&Name::from(name));
        }
        let mut networks = BTreeSet::new();
        for (name, device) in self.devices.iter().filter(|(_, device)| changed.contains(&device.driver)) {
            self.evaluate_queue.insert(Key::cluster(Kind::FabricDevice, name));
            networks.append(&mut device.networks());
        }
        self.reevaluate_networks(networks);
        self.publish_partial();
    }

    /// Queues the evaluation of networks and of the objects that name them.
    fn reevaluate_networks(&mut self, networks: BTreeSet<Key>) {
        for network in networks {
            self.evaluate_queue.extend(self.referrers.get(&network).into_iter().flatten().cloned());
            if self.records.contains_key(&network) {
                self.evaluate_queue.insert(network);
            }
        }
    }

    fn revalidate_kind(&mut self, kind: Kind) {
        self.validate_queue.extend(self.records.keys().filter(|key| key.kind == kind).cloned());
    }

    fn revalidate_namespace(&mut self, namespace: &Name) {
        let inside = self.records.keys().filter(|key| key.namespace == *namespace);
        self.validate_queue.extend(inside.cloned());
    }

    fn revalidate_referrers(&mut self, key: &Key) {
        self.validate_queue.extend(self.referrers.get(key).into_iter().flatten().cloned());
    }

    fn revalidate_if_deleting(&mut self, key: &Key) {
        if self.records.get(key).is_some_and(|record| record.deleting) {
            self.validate_queue.insert(key.clone());
        }
    }

    /// Updates the index of referrers with the references of an object.
    fn update_references(&mut self, key: &Key) {
        self.update_bridge_index(key);
        let Some(record) = self.records.get_mut(key) else { return };
        let now = record.references();
        if now == record.indexed_references {
            return;
        }
        let before = std::mem::replace(&mut record.indexed_references, now.clone());
        for reference in before.difference(&now) {
            self.remove_reference(reference, key);
        }
        for reference in now.difference(&before) {
            self.referrers.entry(reference.clone()).or_default().insert(key.clone());
            self.revalidate_if_deleting(reference);
        }
    }

    fn remove_reference(&mut self, reference: &Key, key: &Key) {
        if let Some(referrers) = self.referrers.get_mut(reference) {
            referrers.remove(key);
            if referrers.is_empty() {
                self.referrers.remove(reference);
            }
        }
        self.revalidate_if_deleting(reference);
        self.revalidate_invalid_route(reference);
        self.reevaluate_last_on_subnet(reference);
    }

    /// The realised spec of an object, if it is of the kind that `read` takes.
    fn effective<T>(&self, key: &Key, read: impl Fn(&Spec) -> Option<&T>) -> Option<&T> {
        read(self.records.get(key)?.effective.as_deref()?)
    }
}

/// True when two endpoints differ at most in their audit interval.
fn is_same_access(one: &Device, other: &Device) -> bool {
    *one == Device { audit_interval: one.audit_interval, ..other.clone() }
}
