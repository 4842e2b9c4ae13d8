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
//! 6. [`crate::schedule`]: the commands of targets that may be published now are issued.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use eno_schemas::{Desired, Device, Drift, Phase, Report, VlanId};

use crate::TransactionGroup;
use crate::fabric::Fabric;
use crate::nad::{NAD_DRIVER, Nads, sharing};
use crate::node::state::HostStates;
use crate::node::target::NodeChanges;
use crate::node::{NODE_DRIVER, Nodes};
use crate::pods::state::PodStates;
use crate::pods::{self, Pods};
use crate::schedule::{Moment, Participant, PendingCommand, Receipt, Reconciled, Schedule, StoredCommand};
use crate::spec::Spec;
use crate::status::evaluate::Evaluator;
use crate::status::{Statuses, stalled, write};
use crate::store::record::Record;
use crate::store::{Store, Update};
use crate::validate::{Validation, Validator, Verdict, subnets};
use crate::vlan::{Vlans, is_network};
use crate::work::Work;
use crate::{Config, Effect, Event, Key, Kind, Name, Object, Status, Target};

/// What came before the first [`Engine::settle`].
#[derive(Debug, Default)]
struct Startup {
    /// The first [`Engine::settle`] is over.
    pub is_over: bool,
    /// Reports of drivers.
    pub early_reports: Vec<(Target, Report)>,
    /// Commands of the former leader, found on NATS.
    pub stored_commands: Vec<StoredCommand>,
}

/// The state of the cluster as far as it is known, and what follows from it. Its parts settle in this order.
#[derive(Debug)]
pub struct Engine {
    /// How this cluster is configured.
    config: Config,
    /// The objects, and which of them name which.
    store: Store,
    /// Which objects fit what they name.
    validate: Validation,
    /// The holders of VLAN IDs.
    vlan: Vlans,
    /// The switches, and the networks on them.
    fabric: Fabric,
    /// The NetworkAttachmentDefinitions.
    nad: Nads,
    /// The nodes, and the networks that are wanted on their hosts.
    node: Nodes,
    /// The interfaces and addresses of running pods.
    pods: Pods,
    /// The statuses of objects.
    status: Statuses,
    /// The commands of targets.
    schedule: Schedule,
    /// What came before the first [`Engine::settle`].
    startup: Startup,
    /// What the parts request of each other, and the effects of the current [`Engine::settle`].
    work: Work,
}

impl Engine {
    /// An empty cluster. Its commands are of term 0.
    pub fn new(config: Config) -> Self {
        Self::leading(config, 0)
    }

    /// An empty cluster whose engine leads in `term`.
    pub fn leading(config: Config, term: u64) -> Self {
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
            schedule: Schedule::new(term),
            startup: Startup::default(),
            work: Work::default(),
        }
    }

    /// Processes an event. [`Self::settle`] works out its consequences.
    pub fn handle(&mut self, event: Event) {
        match event {
            Event::Object(object) => self.upsert(object),
            Event::ObjectGone(key) => self.remove(&key),
            Event::Node { name, labels, ready } => {
                if self.config.nodes && self.node.add_node(&name, ready, &mut self.work) {
                    self.pods.add_node(&mut self.node, &name);
                }
                if self.store.set_node(&name, labels) {
                    self.store.revalidate_kind(Kind::ConnectionPoint, &mut self.work);
                }
            }
            Event::NodeGone(name) => {
                if self.node.remove_node(&name, &mut self.work) {
                    self.pods.remove_node(&self.store, &self.node, &name, &mut self.work);
                }
                if self.store.remove_node(&name) {
                    self.store.revalidate_kind(Kind::ConnectionPoint, &mut self.work);
                }
            }
            Event::Namespace(name, labels) => {
                let is_known = self.store.namespace(&name).is_some();
                if self.store.set_namespace(&name, labels) {
                    self.work.trunks = true;
                    if is_known {
                        self.store.revalidate_namespace(&name, &mut self.work);
                        self.nad.revalidate_used_from(&self.store, &name, &mut self.work);
                    }
                }
            }
            Event::NamespaceGone(name) => {
                self.store.remove_namespace(&name);
                self.work.trunks = true;
            }
            Event::Pod(pod) => {
                let uses = pods::used_attachments(&pod, self.config.nodes);
                self.set_pod_uses(&pod.uid, (&pod.namespace, &pod.name), uses);
                if self.config.nodes {
                    self.pods.update(&mut self.node, *pod, !self.startup.is_over);
                }
            }
            Event::SampleRefused(key, message) => {
                self.pods.refuse_sample(&self.store, &key, message, &mut self.work);
            }
            Event::StatusWritten(key, count) => self.pods.leases_written(&key, count),
            Event::PodGone(uid) => {
                self.set_pod_uses(&uid, (&Name::from(""), &Name::from("")), Vec::new());
                self.pods.remove(&self.store, &mut self.node, &uid, &mut self.work);
            }
            Event::Report(target, report) => self.receive(target, report),
            Event::Stream(event) => self.schedule.on_stream(event),
            Event::StoredCommands(commands) => {
                self.schedule.restore(&commands);
                self.startup.stored_commands.extend(commands);
            }
            Event::CommandIssued(target, generation) => self.schedule.record_command(target, generation),
            Event::Drivers(alive) => self.update_drivers(alive),
            Event::HoldCapableDrivers(drivers) => self.schedule.holding_drivers = drivers,
            Event::MissedDeadline(name) => self.fabric.mark_late(&name, &mut self.work),
            Event::ChangeRefused(name, report) => {
                self.fabric.withhold_rejected(&self.store, &name, &report, &mut self.work);
            }
            Event::RetryDue(network, attempt) => self.fabric.retry(&network, attempt, &mut self.work),
            Event::DeadlineExceeded { key, since } => {
                if let Some(record) = self.store.get_mut(&key) {
                    stalled::deadline_exceeded(record, &key, &since, &mut self.work);
                }
            }
            Event::AwaitElapsed(key) => {
                if let Some(record) = self.store.get_mut(&key) {
                    // A spec that arrives before this is validated gets a wait of its own.
                    (record.await_elapsed, record.incomplete) = (true, false);
                    self.work.validate.insert(key);
                }
            }
        }
        self.distribute();
    }

    /// Sets the time of the events that follow, since the beginning of the leadership.
    pub fn advance(&mut self, elapsed: Duration) {
        self.schedule.now = elapsed;
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
        while let Some(key) = self.status.pop() {
            self.evaluate(&key, &now);
            // A deleted object frees what others wait for.
            self.run_stages();
        }
        self.distribute();
        self.pods.emit_views(&self.store, &self.node, &mut self.work);
        self.node.emit(&mut self.work);
        self.distribute();
        self.work
            .effects
            .extend(std::mem::take(&mut self.schedule.publish_queue).into_iter().map(Effect::Publish));
        let effects = std::mem::take(&mut self.work.effects);
        for effect in &effects {
            if let Effect::Forget(target) = effect {
                self.schedule.forget_command(target);
            }
        }
        effects
    }

    /// Hands what parts requested of each other to their queues. They are extended, since `append` would rebuild a long queue for
    /// each request.
    fn distribute(&mut self) {
        let work = &mut self.work;
        self.validate.request(&mut work.validate);
        if std::mem::take(&mut work.trunks) {
            self.validate.touch_trunks();
        }
        self.vlan.take_requests(work);
        self.fabric.take_requests(work);
        self.pods.take_requests(work);
        self.node.take_requests(work);
        self.status.request(&mut work.evaluate);
        self.schedule.publish_queue.extend(std::mem::take(&mut work.publish));
    }

    /// True when [`Self::settle`] has something to do.
    pub fn is_unsettled(&self) -> bool {
        !(self.validate.is_idle()
            && self.vlan.is_idle()
            && self.fabric.is_idle()
            && self.status.is_idle()
            && self.schedule.publish_queue.is_empty()
            && self.work.effects.is_empty()
            && self.node.is_idle()
            && self.pods.is_idle())
    }

    /// The driver and the complete desired state of a target. `None`: there is no such target.
    pub fn desired(&self, target: &Target) -> Option<(Name, Desired)> {
        match target {
            Target::Fabric(name) => self.fabric.desired(&self.config, &self.schedule.live_drivers, name),
            Target::Nad(namespace, name) => {
                let key = Key::namespaced(Kind::L2ServiceAttachment, namespace, name);
                Some((NAD_DRIVER.into(), self.nad.desired(&self.store, self.pods.ipam(), &key)?))
            }
            Target::Node(name) => Some((NODE_DRIVER.into(), self.node.render(name, &self.config.cluster)?)),
        }
    }

    /// The driver and the desired state of a target that is commanded now, with the state's hash. `None`: there is no
    /// such target. It may leave work for [`Self::settle`]: a state that the target has already reported gets no new
    /// report.
    pub fn issue(&mut self, target: &Target) -> Option<(Name, Desired, String)> {
        let Some((driver, desired)) = self.desired(target) else {
            if let Target::Nad(namespace, name) = target {
                let key = Key::namespaced(Kind::L2ServiceAttachment, namespace, name);
                self.nad.mark_unpublished(&key);
            }
            return None;
        };
        let hash = desired.hash();
        match target {
            Target::Fabric(name) => {
                let alive = &self.schedule.live_drivers;
                if self.fabric.record_issued(&self.store, alive, name, &hash, &mut self.work) {
                    // No report follows on which deleted networks would be evaluated.
                    self.status.reevaluate_removed();
                }
            }
            Target::Node(name) => {
                if self.node.record_issued(name, &hash) {
                    let changes = self.node.changes(name, &mut self.work);
                    self.change_node(name, changes);
                }
            }
            Target::Nad(..) => {}
        }
        self.distribute();
        Some((driver, desired, hash))
    }

    /// Works out all that follows from the events since the last call: effects, and the commands that may be published
    /// now. A state that a target has already reported gets no new report, so commands may have effects in turn.
    pub fn reconcile(&mut self, now: &Moment) -> Reconciled {
        self.advance(now.elapsed);
        let mut result = Reconciled::default();
        loop {
            for effect in self.settle(&now.at) {
                match &effect {
                    Effect::Publish(target) => self.schedule.mark_dirty(target.clone(), now.elapsed),
                    Effect::Forget(target) => {
                        let driver = self.schedule.remove_target(target, now.elapsed);
                        result.removed.extend(driver.map(|driver| (target.clone(), driver)));
                    }
                    _ => {}
                }
                result.effects.push(effect);
            }
            self.issue_ready(now, &mut result);
            if !self.is_unsettled() {
                break;
            }
        }
        for (target, driver) in self.schedule.take_uncommanded() {
            if self.desired(&target).is_none() {
                self.schedule.remove_unknown(&target);
                result.removed.push((target, driver));
            }
        }
        result.republished = self.schedule.take_republished();
        (result.waiting, result.outstanding) = self.schedule.counts();
        result
    }

    /// Issues all commands that may be published now.
    fn issue_ready(&mut self, moment: &Moment, result: &mut Reconciled) {
        let now = moment.elapsed;
        if self.startup.is_over {
            let fabric = &self.fabric;
            self.schedule.release_inherited(|participant| {
                is_same_endpoint(fabric, &participant.target, &participant.driver, &participant.desired)
            });
        }
        let (mut ready, switches) = self.schedule.collect_ready(now);
        if let Some(switches) = switches {
            self.schedule.add_groups(self.transaction_groups(&switches), now, &mut ready);
        }
        result.next = ready.next;
        for target in ready.decisions {
            if let Some(command) = self.schedule.issue_decision(&target, now) {
                self.add_command(command, result);
            }
        }
        for target in ready.single {
            if let Target::Fabric(name) = &target
                && self.schedule.is_silent(&target, now)
            {
                self.handle(Event::MissedDeadline(name.clone()));
            }
            if let Some(participant) = self.issue_participant(target) {
                self.issue_single(participant, now, result);
            }
        }
        for targets in ready.joint {
            self.issue_transaction(targets, moment, result);
        }
        for ended in self.schedule.take_decided() {
            for target in &ended.late {
                if let Target::Fabric(name) = target {
                    self.handle(Event::MissedDeadline(name.clone()));
                }
            }
            result.decided.push(ended);
        }
    }

    /// [`Self::issue`] for a target with a change; without a desired state, the change is dropped.
    fn issue_participant(&mut self, target: Target) -> Option<Participant> {
        let Some((driver, desired, hash)) = self.issue(&target) else {
            self.schedule.discard_change(&target);
            return None;
        };
        Some(Participant { target, driver, desired, hash })
    }

    fn issue_single(&mut self, participant: Participant, now: Duration, result: &mut Reconciled) {
        let Participant { target, driver, hash, .. } = &participant;
        match self.schedule.issue_if_changed(target, driver, hash.clone(), now) {
            Some(command) => self.add_command((participant, command), result),
            None => result.unchanged += 1,
        }
    }

    /// Issues one transaction of all targets whose desired state changed.
    fn issue_transaction(&mut self, targets: Vec<Target>, moment: &Moment, result: &mut Reconciled) {
        let now = moment.elapsed;
        let all: Vec<Participant> =
            targets.into_iter().filter_map(|target| self.issue_participant(target)).collect();
        let (part, same): (Vec<_>, Vec<_>) = all.into_iter().partition(|participant| {
            !self.schedule.is_commanded(&participant.target, &participant.driver, &participant.hash)
        });
        for participant in same {
            self.issue_single(participant, now, result);
        }
        if part.len() < 2 {
            return part.into_iter().for_each(|participant| self.issue_single(participant, now, result));
        }
        for command in self.schedule.open_transaction(part, moment.deadline.clone(), now) {
            self.add_command(command, result);
        }
    }

    fn add_command(&mut self, command: (Participant, PendingCommand), result: &mut Reconciled) {
        let (participant, pending) = &command;
        self.handle(Event::CommandIssued(participant.target.clone(), pending.generation.clone()));
        result.commands.push(command);
    }

    /// True if a report counts: it is of the target's present driver, and no failure of a command that was replaced.
    pub fn accepts_report(&self, target: &Target, report: &Report) -> bool {
        self.schedule.accepts(target, report)
    }

    /// The highest term that a report shows of another engine, and that is not lower than this one's.
    pub fn conflicting_term(&self) -> Option<u64> {
        self.schedule.conflicting_term()
    }

    /// Groups the switches of `names`, which have unpublished changes, into those that have to change together.
    pub fn transaction_groups<'a>(&self, names: impl IntoIterator<Item = &'a Name>) -> Vec<TransactionGroup> {
        let Schedule { live_drivers, holding_drivers, .. } = &self.schedule;
        self.fabric.transaction_groups(live_drivers, holding_drivers, names)
    }

    /// True when a report rejects a change that was issued to the switch: its transaction can't be confirmed.
    pub fn rejects_planned_change(&self, target: &Target, report: &Report) -> bool {
        matches!(target, Target::Fabric(name) if self.fabric.rejects_planned_change(name, report))
    }

    /// The drift policy of a switch.
    pub fn drift_policy(&self, device: &Name) -> Drift {
        self.fabric.device(device).map(|device| device.access().drift).unwrap_or_default()
    }

    /// True when a target that was commanded `desired` still has the same endpoint and driver.
    pub fn is_same_endpoint(&self, target: &Target, driver: &Name, desired: &Desired) -> bool {
        is_same_endpoint(&self.fabric, target, driver, desired)
    }

    /// The current status of an object.
    pub fn status(&self, key: &Key) -> Option<&Status> {
        self.store.get(key).map(|record| &record.status)
    }

    /// The objects that were never seen, although `key`, or an object that `key` waits for, names them.
    pub fn missing_references(&self, key: &Key) -> BTreeSet<Key> {
        self.store.missing_references(key)
    }

    /// Runs every stage except evaluation until all queues are empty.
    fn run_stages(&mut self) {
        loop {
            self.distribute();
            let next = self.validate.next_kind();
            if next.is_some_and(|kind| kind < Kind::ConnectionPoint) {
                self.validate_first();
            } else if self.fabric.step_topology(&self.store, &mut self.work) {
            } else if next.is_some_and(|kind| kind < Kind::L2Service) {
                self.validate_first();
            } else if self.vlan.step(&self.store, &self.fabric, &mut self.work) {
            } else if next.is_some_and(|kind| kind < Kind::L2ServiceAttachment) {
                self.validate_first();
            } else if self.validate.has_stale_trunks() {
                self.validate.decide_trunks(&self.store, &self.fabric);
            } else if next.is_some() {
                self.validate_first();
            } else if self.fabric.step(&self.config, &self.store, &self.vlan, &mut self.work) {
            } else if !self.pods.step(
                &self.store,
                &mut self.node,
                &self.startup.early_reports,
                &mut self.work,
            ) {
                return;
            }
        }
    }

    /// Validates the next object, and requests what follows from a changed result.
    fn validate_first(&mut self) {
        let Some(key) = self.validate.pop() else { return };
        if key.kind == Kind::ConnectionPoint {
            self.fabric.plan_point(&self.store, &key, &mut self.work);
        }
        let Some(verdict) = self.validator().decide(&key) else { return };
        let (same, changed) = (verdict.same, verdict.changed);
        self.apply(&key, verdict);
        self.update_references(&key);
        if !same {
            self.validate.update_trunk_index(&self.store, &key);
        }
        self.fabric.update_usage(&mut self.store, &key, &mut self.work);
        let change = self.node.plan(&self.config, &self.store, &key, &mut self.work);
        self.pods.change_point(&self.store, &key, &change, &mut self.work);
        self.work.evaluate.insert(key.clone());
        if matches!(key.kind, Kind::PhysicalNetwork | Kind::ConnectionPoint | Kind::L2Service) {
            self.work.trunks = true;
        }
        self.pods.object_validated(&key);
        if key.kind == Kind::L2ServiceAttachment {
            self.nad.plan(&self.store, self.pods.ipam(), &key, &mut self.work);
            if !same {
                sharing::reevaluate_subnet_neighbours(&self.store, &key, &mut self.work);
            }
        } else if changed {
            self.follow_change(&key);
        }
    }

    /// Takes a decision about an object into its record. What it gives up has to be removed from switches and nodes.
    fn apply(&mut self, key: &Key, verdict: Verdict) {
        if verdict.starts_waiting {
            self.work.effects.push(Effect::Await(key.clone()));
        }
        let given_up = verdict.given_up;
        let devices = if given_up { self.fabric.footprint(&self.store, key) } else { BTreeSet::new() };
        let hosts = if given_up { self.node.footprint(&self.config, &self.store, key) } else { None };
        self.store.apply(key, verdict);
        self.fabric.placements.note_left(key, devices);
        if given_up && self.fabric.placements.left(key).next().is_some() {
            self.status.follow_removal(key);
        }
        self.node.record_cleanup(key, hosts);
    }

    /// Requests what follows from a changed object that is not an attachment.
    fn follow_change(&mut self, key: &Key) {
        subnets::revalidate_routes(&self.store, key, &mut self.work);
        self.store.revalidate_referrers(key, &mut self.work);
        self.pods.revalidate_bridge_sharers(key, &mut self.work);
        self.pods.make_sample(&self.store, key, &mut self.work);
        match key.kind {
            Kind::FabricDevice => self.fabric.touch_topology(),
            Kind::L2Service | Kind::L2BridgeDomain => {
                self.work.claim.insert(key.clone());
                self.work.place.insert(key.clone());
                sharing::reevaluate_subnet_neighbours(&self.store, key, &mut self.work);
            }
            _ => {}
        }
    }

    /// Evaluates the status of one object and emits what changed.
    fn evaluate(&mut self, key: &Key, now: &Name) {
        let Some(record) = self.store.get_mut(key) else { return };
        if !write::handle_finalizer(record, key, &mut self.work) {
            return;
        }
        let evaluator = self.evaluator();
        let Some(finding) = evaluator.evaluate(key) else { return };
        let facts = evaluator.facts(key);
        if let Some(record) = self.store.get_mut(key) {
            write::write(record, key, &finding, &facts, now, &mut self.work);
        }
        if let Some(node) = &finding.evaluation.waits_on {
            self.node.wait(node, key);
        }
        if finding.phase == Phase::Deleted {
            // Others may ask for what it held before the API server reports that it is gone.
            if is_network(key) {
                self.work.claim.insert(key.clone());
            }
            self.pods.update_bridge_index(&self.store, key, &mut self.work);
        }
    }

    fn validator(&self) -> Validator<'_> {
        Validator {
            config: &self.config,
            store: &self.store,
            vlan: &self.vlan,
            fabric: &self.fabric,
            nad: &self.nad,
            node: &self.node,
            pods: &self.pods,
            trunks: self.validate.trunks(),
        }
    }

    fn evaluator(&self) -> Evaluator<'_> {
        let hosts = HostStates { nodes: &self.node, schedule: &self.schedule };
        Evaluator {
            config: &self.config,
            store: &self.store,
            fabric: &self.fabric,
            nad: &self.nad,
            pods: PodStates { config: &self.config, store: &self.store, hosts, pods: &self.pods },
            hosts,
            schedule: &self.schedule,
            validator: self.validator(),
        }
    }

    /// The pods and bridges of a node changed.
    fn change_node(&mut self, name: &Name, changes: NodeChanges) {
        self.pods.change_node(&self.store, &self.node, name, changes, &mut self.work);
    }

    /// Runs once. Restores the commands of the former leader, cleans up targets that no longer exist, and processes
    /// the reports that have come so far.
    fn start(&mut self) {
        let mut had: BTreeSet<(Key, VlanId)> = BTreeSet::new();
        let stored = std::mem::take(&mut self.startup.stored_commands);
        let commands: Vec<(Target, Desired)> =
            stored.into_iter().filter_map(|stored| Some((stored.target, stored.command?.desired))).collect();
        let commanded: HashMap<&Target, String> =
            commands.iter().map(|(target, desired)| (target, desired.hash())).collect();
        for (target, report) in &mut self.startup.early_reports {
            // Another state was commanded since and may be in progress: only a new report counts.
            if commanded.get(target).is_some_and(|hash| *hash != report.generation.hash) {
                report.generation.hash.clear();
            }
        }
        for (target, desired) in commands {
            self.schedule.restore_command(target.clone(), desired.hash());
            match (&target, desired) {
                (Target::Fabric(name), Desired::Fabric(desired)) => {
                    match self.fabric.restore_command(&self.store, name, &desired) {
                        Some(here) => had.extend(here),
                        None => self.work.effects.push(Effect::Forget(target)),
                    }
                }
                (Target::Node(name), _) if self.node.node(name).is_none() => {
                    self.work.effects.push(Effect::Forget(target));
                }
                (Target::Nad(namespace, name), Desired::Nad(desired)) => {
                    let key = Key::namespaced(Kind::L2ServiceAttachment, namespace, name);
                    self.nad.restore(&self.store, self.pods.ipam(), &key, desired, &mut self.work);
                }
                _ => {}
            }
        }
        self.fabric.start(&self.config, &self.store, had);
        for (name, _) in self.store.nodes() {
            if let Some(desired) = self.node.render(name, &self.config.cluster) {
                self.node.record_issued(name, &desired.hash());
            }
        }
        for (target, report) in std::mem::take(&mut self.startup.early_reports) {
            self.report(&target, report);
        }
        self.pods.forget_idle();
        self.work.evaluate.extend(self.store.iter().map(|(key, _)| key.clone()));
    }

    /// Takes in a report of a driver.
    fn receive(&mut self, target: Target, mut report: Box<Report>) {
        let fabric = &self.fabric;
        let refuses = |report: &Report| matches!(&target, Target::Fabric(name) if fabric.rejects_planned_change(name, report));
        match (self.schedule.receive(&target, &mut report, refuses), &target) {
            (Receipt::Ignored, _) => return,
            (Receipt::Refused, Target::Fabric(name)) => {
                self.fabric.withhold_rejected(&self.store, name, &report, &mut self.work);
            }
            _ => {}
        }
        if self.startup.is_over {
            self.report(&target, *report);
        } else {
            self.startup.early_reports.push((target, *report));
        }
    }

    fn report(&mut self, target: &Target, mut report: Report) {
        if self.schedule.is_outdated(target, &report.generation) {
            report.generation.hash.clear();
        }
        match target {
            Target::Fabric(name) => {
                self.fabric.report(&self.store, &self.vlan, name, report, &mut self.work);
                self.status.reevaluate_removed();
            }
            Target::Nad(namespace, name) => {
                let key = Key::namespaced(Kind::L2ServiceAttachment, namespace, name);
                self.nad.report(&self.store, &key, report, &mut self.work);
            }
            Target::Node(name) => {
                if let Some(changes) = self.node.report(&self.store, name, report, &mut self.work) {
                    self.change_node(name, changes);
                }
            }
        }
    }

    fn upsert(&mut self, object: Box<Object>) {
        let key = object.key.clone();
        match self.store.update(object) {
            Update::Unchanged => {}
            Update::Changed { forget } => {
                if key.kind == Kind::FabricDevice && forget {
                    self.fabric.touch_topology();
                }
                self.changed(&key);
            }
            Update::Unknown(object) => {
                self.remove(&key);
                self.add(*object);
            }
        }
    }

    fn add(&mut self, object: Object) {
        let (key, record) = Record::new(object);
        if self.config.nodes {
            self.pods.add_object(&key, &record.status);
        }
        if let (Kind::L2BridgeDomain, true, Ok(spec)) = (key.kind, record.generated, &record.spec)
            && let Spec::BridgeDomain(spec) = &**spec
        {
            self.fabric.bridge_domain_seen(&key.name, spec.clone());
        }
        self.store.insert(key.clone(), record);
        self.changed(&key);
    }

    /// Requests all work that follows from a changed manifest.
    fn changed(&mut self, key: &Key) {
        self.update_references(key);
        self.validate.update_trunk_index(&self.store, key);
        self.fabric.update_usage(&mut self.store, key, &mut self.work);
        self.work.validate.insert(key.clone());
        self.work.evaluate.insert(key.clone());
        subnets::revalidate_routes(&self.store, key, &mut self.work);
        if is_network(key) {
            self.work.claim.insert(key.clone());
        }
    }

    fn remove(&mut self, key: &Key) {
        let Some(references) = self.store.clear_specs(key) else { return };
        self.fabric.update_usage(&mut self.store, key, &mut self.work);
        let record = self.store.remove(key);
        let change = self.node.remove_object(&self.config, &self.store, key, &mut self.work);
        self.pods.change_point(&self.store, key, &change, &mut self.work);
        self.pods.remove_object(&self.store, &mut self.node, key, &mut self.work);
        for reference in references {
            self.store.remove_referrer(&reference, key, &mut self.work);
            self.reference_removed(&reference);
        }
        self.store.revalidate_referrers(key, &mut self.work);
        self.validate.update_trunk_index(&self.store, key);
        self.work.trunks = true;
        self.distribute();
        self.validate.forget(key);
        self.status.forget(key);
        self.vlan.drop_work(key);
        self.fabric.drop_work(key);
        self.fabric.placements.forget_left(key);
        match key.kind {
            Kind::FabricDevice => self.fabric.remove_device(&key.name, &mut self.work),
            Kind::L2Service | Kind::L2BridgeDomain => {
                self.work.claim.insert(key.clone());
                self.work.place.insert(key.clone());
            }
            Kind::L2ServiceAttachment => {
                if let Some(record) = record.filter(|_| self.nad.get(key).is_some()) {
                    self.nad.withdraw(key, &record.uid, &mut self.work);
                }
            }
            Kind::NodePool
            | Kind::PhysicalNetwork
            | Kind::Route
            | Kind::Subnet
            | Kind::Bridge
            | Kind::PodNetworkConfig
            | Kind::PodConfig => {}
            Kind::ConnectionPoint => self.fabric.remove_point(&key.name),
        }
        if key.kind == Kind::L2BridgeDomain {
            self.fabric.bridge_domain_gone(&key.name, &mut self.work);
        }
    }

    fn update_drivers(&mut self, alive: BTreeSet<Name>) {
        let changed: BTreeSet<Name> =
            self.schedule.live_drivers.symmetric_difference(&alive).cloned().collect();
        self.schedule.live_drivers = alive;
        if changed.contains(NAD_DRIVER) {
            self.nad.reevaluate_all(&self.store, &mut self.work);
        }
        for name in changed.iter().filter_map(|driver| driver.strip_prefix("node/")) {
            self.node.reevaluate_waiters(&Name::from(name), &mut self.work);
        }
        self.fabric.drivers_changed(&self.store, &changed, &mut self.work);
    }

    /// Updates the indices of what an object names.
    fn update_references(&mut self, key: &Key) {
        self.pods.update_bridge_index(&self.store, key, &mut self.work);
        for reference in self.store.update_references(key, &mut self.work) {
            self.reference_removed(&reference);
        }
    }

    /// An object does not name another any more.
    fn reference_removed(&mut self, reference: &Key) {
        subnets::revalidate_invalid_route(&self.store, reference, &mut self.work);
        sharing::reevaluate_last_on_subnet(&self.store, reference, &mut self.work);
    }

    fn set_pod_uses(&mut self, uid: &Name, pod: (&Name, &Name), uses: Vec<Key>) {
        self.nad.set_uses(&self.store, uid, pod, uses, &mut self.work);
    }
}

/// [`Engine::is_same_endpoint`] among these switches.
fn is_same_endpoint(fabric: &Fabric, target: &Target, driver: &Name, desired: &Desired) -> bool {
    match (target, desired) {
        (Target::Fabric(name), Desired::Fabric(desired)) => fabric.device(name).is_some_and(|device| {
            device.driver == *driver && is_same_access(device.access(), &desired.device)
        }),
        _ => false,
    }
}

/// True when two endpoints differ at most in their audit interval.
fn is_same_access(one: &Device, other: &Device) -> bool {
    *one == Device { audit_interval: one.audit_interval, ..other.clone() }
}
