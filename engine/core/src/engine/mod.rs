//! The state of the cluster and the loop that reconciles it.
//!
//! Work flows through the parts, each with a queue, so that a change costs only what it touches:
//!
//! 1. [`crate::validate`]: an object is validated against what it names. Its last valid spec is what is realised.
//! 2. [`crate::vlan`]: the holders of a VLAN ID are decided. Then, before attachments are validated, it is decided which
//!    of them exclude each other ([`crate::validate::trunks`]).
//! 3. [`crate::fabric`]: a network is placed on switch ports.
//! 4. [`crate::pods`]: a running pod is granted its interfaces and addresses.
//! 5. [`crate::evaluate`]: the status of an object is evaluated, after changes and after reports of targets.
//! 6. [`crate::schedule`]: the commands of targets that may be published now are issued.

mod absent;
mod commands;
mod lookups;
mod notices;
mod objects;
mod path;
mod reports;

use std::collections::BTreeSet;

use eno_schemas::Phase;

use reports::Startup;

use crate::bgp::{Groups, Parts, SPEAKER_DRIVER};
use crate::evaluate::{Evaluator, Statuses, stalled, write};
use crate::fabric::{Fabric, vrfs};
use crate::kinds::Spec;
use crate::nad::{NAD_DRIVER, Nads, sharing};
use crate::node::Nodes;
use crate::node::state::HostStates;
use crate::node::target::NodeChanges;
use crate::pods::state::PodStates;
use crate::pods::{Context, Pods};
use crate::schedule::Schedule;
use crate::store::{Store, Verdict};
use crate::validate::{Validation, Validator, bgp, subnets, vrf};
use crate::vlan::Vlans;
use crate::work::Work;
use crate::{Config, Effect, Event, Key, Kind, Name, Status};

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
    /// The nodes with BGP sessions.
    groups: Groups,
    /// The statuses of objects.
    status: Statuses,
    /// The commands of targets.
    schedule: Schedule,
    /// What came before the first [`Engine::reconcile`].
    startup: Startup,
    /// What the parts request of each other, and the effects of the current [`Engine::reconcile`].
    work: Work,
}

impl Engine {
    /// An empty cluster whose engine leads in `term`.
    pub fn new(config: Config, term: u64) -> Self {
        Self {
            config,
            store: Store::default(),
            validate: Validation::default(),
            vlan: Vlans::default(),
            fabric: Fabric::default(),
            nad: Nads::default(),
            node: Nodes::default(),
            pods: Pods::default(),
            groups: Groups::default(),
            status: Statuses::default(),
            schedule: Schedule::new(term),
            startup: Startup::default(),
            work: Work::default(),
        }
    }

    /// Processes an event. [`Self::reconcile`] works out its consequences.
    pub fn handle(&mut self, event: Event) {
        match event {
            Event::Time(elapsed) => self.schedule.now = elapsed,
            Event::Object(object) => self.upsert(object),
            Event::ObjectGone(key) => self.remove(&key),
            Event::Node { name, labels, ready } => {
                if !self.config.nodes {
                } else if self.node.add_node(&name, ready) {
                    self.pods.add_node(&mut self.node, &name);
                    self.groups.touch_all();
                } else if let Some(changes) = self.node.set_ready(&self.store, &name, ready, &mut self.work) {
                    self.change_node(&name, changes);
                    self.groups.touch_all();
                }
                if self.store.set_node(&name, labels) {
                    self.groups.touch_all();
                    self.store.revalidate_kind(Kind::ConnectionPoint, &mut self.work);
                    self.store.revalidate_kind(Kind::BGPSessionGroup, &mut self.work);
                }
            }
            Event::NodeGone(name) => {
                if self.node.remove_node(&name, &mut self.work) {
                    self.with_pods(|pods, cx| pods.remove_node(cx, &name));
                }
                self.groups.touch_all();
                if self.store.remove_node(&name) {
                    self.store.revalidate_kind(Kind::ConnectionPoint, &mut self.work);
                    self.store.revalidate_kind(Kind::BGPSessionGroup, &mut self.work);
                }
            }
            Event::Namespace(name, labels) => {
                let is_known = self.store.namespace(&name).is_some();
                if self.store.set_namespace(&name, labels) {
                    self.work.trunks = true;
                    self.pods.change_namespace(&name);
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
                self.nad.set_user(&self.store, &pod, self.config.nodes, &mut self.work);
                if self.config.nodes {
                    self.pods.set_user(&pod);
                    self.pods.update(&mut self.node, *pod, !self.startup.is_over);
                }
            }
            Event::SampleRefused(key, message) => {
                self.pods.refuse_sample(&self.store, &key, message, &mut self.work);
            }
            Event::StatusWritten(key, count) if key.kind == Kind::BGPSessionGroup => {
                self.groups.leases_written(&key, count);
            }
            Event::StatusWritten(key, count) => self.pods.leases_written(&key, count),
            Event::PodGone(uid) => {
                self.nad.remove_user(&self.store, &uid, &mut self.work);
                self.pods.remove_user(&uid);
                self.with_pods(|pods, cx| pods.remove(cx, &uid));
            }
            Event::Stopped(workload, nads) => {
                self.nad.set_template(&self.store, workload, &nads, &mut self.work);
            }
            Event::Report(target, report) => self.receive(target, report),
            Event::Stream(event) => self.schedule.on_stream(event),
            Event::StoredCommands(commands) => {
                self.schedule.restore(&commands);
                self.startup.stored_commands.extend(commands);
            }
            Event::Drivers(alive) => self.update_drivers(alive),
            Event::HoldCapableDrivers(drivers) => self.schedule.holding_drivers = drivers,
            Event::DriversWithoutVrfs(drivers) => {
                self.fabric.set_drivers_without_vrfs(&self.store, drivers, &mut self.work);
            }
            Event::DriversWithoutBgp(drivers, by_network) => {
                self.fabric.set_drivers_without_bgp(&self.store, drivers, by_network, &mut self.work);
            }
            Event::DriversWithLookups(drivers) => self.fabric.set_drivers_with_lookups(drivers),
            Event::AgentsWithoutVisits(nodes) => self.node.set_without_visits(nodes, &mut self.work),
            Event::SkewedDrivers(drivers) => {
                self.fabric.skews_changed(&self.schedule.skewed_drivers, &drivers, &mut self.work);
                self.schedule.skewed_drivers = drivers;
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

    /// Works out what follows from the events since the last call. `now` is RFC 3339.
    fn settle(&mut self, now: &Name) {
        if !self.startup.is_over {
            self.node.begin_addresses(&self.startup.early_reports);
        }
        self.run_stages();
        if !self.startup.is_over {
            self.startup.is_over = true;
            self.start();
            self.run_stages();
        }
        while let Some(key) = self.status.pop() {
            self.evaluate(&key, now);
            // A deleted object frees what others wait for.
            self.run_stages();
        }
        self.distribute();
        self.update_lookups();
        self.pods.emit_views(&self.store, &self.node, &mut self.work);
        self.node.emit(&mut self.work);
        self.distribute();
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
    fn is_unsettled(&self) -> bool {
        !(self.validate.is_idle()
            && self.vlan.is_idle()
            && self.fabric.is_idle()
            && self.status.is_idle()
            && self.schedule.publish_queue.is_empty()
            && self.work.effects.is_empty()
            && self.work.forget.is_empty()
            && self.node.is_idle()
            && self.pods.is_idle()
            && self.groups.is_idle())
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
            } else if self.fabric.step_claims(&self.store, &mut self.vlan, &mut self.work) {
            } else if next.is_some_and(|kind| kind < Kind::L2ServiceAttachment) {
                self.validate_first();
            } else if self.validate.has_stale_trunks() {
                self.validate.decide_trunks(&self.store, &self.fabric);
            } else if next.is_some() {
                self.validate_first();
            } else if self.fabric.step(&self.config, &self.store, &self.vlan, &mut self.work)
                || self.with_groups(Groups::restore_next)
                || self.step_pods()
            {
            } else {
                if self.pods.take_released() {
                    self.groups.touch_all();
                }
                if !self.with_groups(Groups::step) {
                    return;
                }
            }
        }
    }

    fn step_pods(&mut self) -> bool {
        let (store, nodes, work, now) = (&self.store, &mut self.node, &mut self.work, self.schedule.now);
        self.pods.step(&mut Context { store, nodes, work, now }, &self.startup.early_reports)
    }

    /// Changes groups of BGP sessions, which read and change other parts.
    fn with_groups(&mut self, change: impl FnOnce(&mut Groups, &mut Parts<'_, '_>) -> bool) -> bool {
        let (store, nodes, work, now) = (&self.store, &mut self.node, &mut self.work, self.schedule.now);
        let cx = &mut Context { store, nodes, work, now };
        change(&mut self.groups, &mut Parts { cx, pods: &mut self.pods, fabric: &mut self.fabric })
    }

    /// Validates the next object, and requests what follows from a changed result.
    fn validate_first(&mut self) {
        let Some(key) = self.validate.pop() else { return };
        if key.kind == Kind::ConnectionPoint {
            self.fabric.plan_point(&self.store, &key, &mut self.work);
        }
        let Some(verdict) = self.validator().decide(&key) else { return };
        let (same, changed) = (verdict.same, verdict.changed);
        let former = self.store.effective(&key, Spec::vrf_attachment).filter(|_| changed).cloned();
        self.apply(&key, verdict);
        self.update_references(&key);
        if !same {
            self.validate.update_trunk_index(&self.store, &key);
        }
        self.fabric.update_usage(&self.store, &key, &mut self.work);
        let change = self.node.plan(&self.config, &self.store, &key, &mut self.work);
        self.pods.change_point(&self.store, &key, &change, &mut self.work);
        if change.changed {
            self.fabric.evaluate_stations(&mut self.work);
        }
        self.work.evaluate.insert(key.clone());
        if key.kind.facts().admits_trunks {
            self.work.trunks = true;
        }
        self.pods.object_validated(&self.store, &self.config, &key);
        self.groups.follow_object(&key);
        if key.kind == Kind::Subnet {
            self.nad.index_subnet(&self.store, &key.name);
        }
        if key.kind == Kind::L2ServiceAttachment {
            self.nad.decide_pool(&self.store, &key, &mut self.work);
            self.nad.plan(&self.store, self.pods.ipam(), &key, &mut self.work);
            if !same {
                sharing::reevaluate_subnet_neighbours(&self.store, &key, &mut self.work);
            }
            if changed {
                vrf::revalidate_mtus(&self.store, &key, &mut self.work);
                bgp::revalidate_hindered(&self.store, &key, &mut self.work);
            }
        } else if changed {
            self.follow_change(&key);
            if let Some(former) = former {
                vrfs::follow_leaving(&self.store, &former, &mut self.work);
            }
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
        vrfs::follow_change(&self.store, key, &mut self.work);
        bgp::revalidate_hindered(&self.store, key, &mut self.work);
        match key.kind {
            Kind::FabricDevice => self.fabric.touch_topology(),
            Kind::Subnet => self.nad.revalidate_shared_pools(&mut self.work),
            kind if kind.facts().has_vlan => {
                self.nad.revalidate_shared_pools(&mut self.work);
                self.work.claim.insert(key.clone());
                self.work.place.insert(key.clone());
                vrfs::evaluate_subnets(&self.store, key, &mut self.work);
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
        self.status.note_awaited(key, finding.evaluation.awaited.as_ref());
        if let Some(record) = self.store.get_mut(key) {
            record.awaited.clone_from(&finding.evaluation.awaited);
            let nonce = record.status.verification.as_ref().map(|one| one.nonce.clone());
            write::write(record, key, &finding, &facts, now, &mut self.work);
            self.node.set_verifying(key, record.is_verifying());
            if nonce != record.status.verification.as_ref().map(|one| one.nonce.clone()) {
                self.fabric.touch_lookups();
            }
        }
        if key.kind == Kind::L2ServiceAttachment {
            self.node.want_probes(key, finding.probes.as_ref(), &mut self.work);
        }
        if let Some(node) = &finding.evaluation.waits_on {
            self.node.wait(node, key);
        }
        if finding.phase == Phase::Deleted {
            // Others may ask for what it held before the API server reports that it is gone.
            if key.kind.facts().has_vlan {
                self.work.claim.insert(key.clone());
            }
            self.pods.update_bridge_index(&self.store, key, &mut self.work);
        }
    }

    /// Changes pods, which read and change other parts.
    fn with_pods(&mut self, change: impl FnOnce(&mut Pods, &mut Context<'_>)) {
        let (store, nodes, work, now) = (&self.store, &mut self.node, &mut self.work, self.schedule.now);
        change(&mut self.pods, &mut Context { store, nodes, work, now });
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
            groups: &self.groups,
            hosts,
            schedule: &self.schedule,
            validator: self.validator(),
        }
    }

    /// The pods and bridges of a node changed.
    fn change_node(&mut self, name: &Name, changes: NodeChanges) {
        self.groups.node_reported(name);
        self.with_pods(|pods, cx| pods.change_node(cx, name, changes));
    }

    fn update_drivers(&mut self, alive: BTreeSet<Name>) {
        let changed: BTreeSet<Name> =
            self.schedule.live_drivers.symmetric_difference(&alive).cloned().collect();
        self.schedule.live_drivers = alive;
        if changed.contains(NAD_DRIVER) {
            self.nad.reevaluate_all(&self.store, &mut self.work);
        }
        if changed.contains(SPEAKER_DRIVER) {
            self.groups.reevaluate_speakers(&mut self.work);
        }
        for (driver, name) in
            changed.iter().filter_map(|driver| Some((driver, driver.strip_prefix("node/")?)))
        {
            let (name, is_alive) = (Name::from(name), self.schedule.live_drivers.contains(driver));
            self.node.set_alive(&name, is_alive, &mut self.work);
            self.node.reevaluate_waiters(&name, &mut self.work);
            self.pods.follow_nodes();
        }
        self.fabric.drivers_changed(&self.store, &changed, &mut self.work);
    }
}
