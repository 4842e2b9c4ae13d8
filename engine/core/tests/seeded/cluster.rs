//! A simulated cluster with delayed deliveries: watch events, writes of the engine, commands and reports (`messages`).
//! Some are delivered twice, and some are skipped in favour of a later one. Engine and drivers crash in between.

use std::collections::{BTreeMap, VecDeque};

use eno_core::spec::{LeadsTo, NodePoolSpec, PhysicalNetworkSpec, Spec};
use eno_core::{Config, Effect, Engine, Event, Key, Kind, Labels, Name, Object, Status, Target};
use eno_schemas::{Desired, NadVlans, Phase, VlanId};

use super::messages::Messages;
use super::mutants::Mutant;
use super::random::Random;
use crate::world::{attachment, connection_point, created, device, object, service};

/// The message of a violated invariant.
pub type Violation = String;

/// A write of the engine to an object.
enum Write {
    AddFinalizer,
    Outbox(Option<Phase>, Box<Status>),
    Status(Box<Status>),
    RemoveFinalizer,
}

/// An object in the API server.
#[derive(Clone)]
struct StoredObject {
    object: Object,
    status: Option<Status>,
    /// Its recorded transitions: the phase before and the status.
    outbox: Vec<(Option<Phase>, Status)>,
}

/// The simulated cluster.
pub struct Cluster {
    /// Decides every random choice.
    pub random: Random,
    /// The injected defect.
    pub mutant: Option<Mutant>,
    /// The engine under test.
    pub engine: Engine,
    /// The objects in the API server.
    objects: BTreeMap<Key, StoredObject>,
    /// Watch events in flight for each object; `None`: deleted.
    watch: BTreeMap<Key, VecDeque<Option<Object>>>,
    /// The last delivered state of each object, for [`Mutant::StaleSpec`].
    last_delivered: BTreeMap<Key, Object>,
    /// The uid of each object that the engine has seen.
    seen_uids: BTreeMap<Key, Name>,
    /// Writes of the engine in flight, with the uid of their object.
    writes: BTreeMap<Key, VecDeque<(Name, Write)>>,
    /// Objects with an [`Effect::Await`] that has not elapsed.
    awaits: Vec<Key>,
    /// The state that the drivers applied.
    pub applied: BTreeMap<Target, Desired>,
    /// Commands and reports.
    pub messages: Messages,
    /// The last phase that the engine gave each object.
    last_phases: BTreeMap<Key, Phase>,
    /// The present cables.
    cabling: Cabling,
    /// Number of objects created; it makes uids and creation times.
    created_count: i64,
}

pub const AT: &str = "2026-01-01T00:00:00Z";
/// Which cables are present.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Cabling {
    /// Between the switches.
    link: bool,
    /// From `leaf2` to the PhysicalNetwork `dc`.
    gateway: bool,
}

impl Cabling {
    const ALL: Self = Self { link: true, gateway: true };
}

const NODES: [&str; 2] = ["node1", "node2"];
/// The ports that carry the VLANs of every attachment.
const PORTS: [(&str, &str); 2] = [("leaf1", "e1"), ("leaf2", "e1")];

/// The switches with these cables.
fn switches(cabling: Cabling) -> [Object; 2] {
    let node = |name: &str| LeadsTo::Node { node: name.into(), interface: "eth1".into() };
    let link =
        |name: &str| cabling.link.then(|| ("u1", LeadsTo::Device { device: name.into(), port: "u1".into() }));
    let gateway = cabling.gateway.then(|| ("gw", LeadsTo::PhysicalNetwork("dc".into())));
    let left = [Some(("e1", node("node1"))), link("leaf2")];
    let right = [Some(("e1", node("node2"))), gateway, link("leaf1")];
    [
        device("leaf1", &left.into_iter().flatten().collect::<Vec<_>>()),
        device("leaf2", &right.into_iter().flatten().collect::<Vec<_>>()),
    ]
}

fn static_objects() -> Vec<Object> {
    let selector = serde_json::from_str(r#"[{"key":"pool","operator":"In","values":["a"]}]"#).unwrap();
    let mut all: Vec<Object> = switches(Cabling::ALL).into();
    all.extend([
        object(Kind::PhysicalNetwork, "dc", Spec::PhysicalNetwork(PhysicalNetworkSpec::default())),
        object(Kind::NodePool, "pool", Spec::NodePool(NodePoolSpec { node_selector: selector })),
        connection_point("cp", Some("pool")),
    ]);
    all
}

impl Cluster {
    pub fn new(seed: u64, mutant: Option<Mutant>) -> Result<Self, Violation> {
        let mut cluster = Self {
            random: Random::new(seed),
            mutant,
            engine: Engine::new(Config {
                cluster: "lab".into(),
                cluster_uid: None,
                bridge_domains: false,
                nodes: false,
            }),
            objects: BTreeMap::new(),
            watch: BTreeMap::new(),
            last_delivered: BTreeMap::new(),
            seen_uids: BTreeMap::new(),
            writes: BTreeMap::new(),
            awaits: Vec::new(),
            applied: BTreeMap::new(),
            messages: Messages::default(),
            last_phases: BTreeMap::new(),
            cabling: Cabling::ALL,
            created_count: 0,
        };
        for object in static_objects() {
            cluster.apply(object);
        }
        cluster.start_engine();
        cluster.run_until_quiescent()?;
        Ok(cluster)
    }

    /// Starts a new engine with the contents of Kubernetes and NATS, in random order.
    fn start_engine(&mut self) {
        let mut engine = Engine::new(Config {
            cluster: "lab".into(),
            cluster_uid: None,
            bridge_domains: false,
            nodes: false,
        });
        let mut events = vec![Event::Drivers(["netconf", "nad"].map(Name::from).into())];
        for node in NODES {
            let labels = Labels::from([("pool".into(), "a".into())]);
            events.push(Event::Node { name: node.into(), labels, ready: true });
        }
        self.last_phases.clear();
        self.seen_uids.clear();
        for (key, stored) in &self.objects {
            let counter = stored.status.as_ref().map_or(0, |status| status.transitions);
            let recorded = stored.outbox.last().map(|(_, status)| status);
            let recorded = recorded.filter(|recorded| recorded.transitions > counter);
            if let Some(recorded) = recorded {
                let writes = self.writes.entry(key.clone()).or_default();
                writes.push_back((stored.object.uid.clone(), Write::Status(Box::new(recorded.clone()))));
            }
            let recorded = recorded.or(stored.status.as_ref());
            let mut status = recorded.cloned();
            if self.mutant == Some(Mutant::InputsForgotten)
                && let Some(status) = &mut status
            {
                status.ready_inputs = None;
            }
            self.last_phases.extend(status.as_ref().and_then(|status| Some((key.clone(), status.phase?))));
            self.seen_uids.insert(key.clone(), stored.object.uid.clone());
            events.push(Event::Object(Box::new(Object { status, ..stored.object.clone() })));
        }
        events.extend(self.messages.replay());
        while !events.is_empty() {
            let at = self.random.below(events.len());
            engine.handle(events.swap_remove(at));
        }
        self.engine = engine;
    }

    /// The engine crashes with its writes in flight, and a new one starts.
    pub fn crash(&mut self) -> Result<(), Violation> {
        self.watch.clear();
        self.writes.clear();
        self.awaits.clear();
        self.last_delivered.clear();
        self.messages.crash();
        self.start_engine();
        self.settle()
    }

    fn apply(&mut self, mut object: Object) {
        let key = object.key.clone();
        if let Some(stored) = self.objects.get_mut(&key) {
            if stored.object.deleting {
                return;
            }
            object.generation = stored.object.generation + 1;
            object.uid = stored.object.uid.clone();
            object.created = stored.object.created;
            object.finalized = stored.object.finalized;
            stored.object = object;
        } else {
            self.created_count += 1;
            object = created(object, self.created_count);
            object.uid = format!("uid{}", self.created_count).into();
            self.objects.insert(key.clone(), StoredObject { object, status: None, outbox: Vec::new() });
        }
        self.notify_watch(&key);
    }

    fn delete(&mut self, key: &Key) {
        let Some(stored) = self.objects.get_mut(key) else { return };
        if stored.object.finalized {
            stored.object.deleting = true;
        } else {
            self.objects.remove(key);
        }
        self.notify_watch(key);
    }

    fn notify_watch(&mut self, key: &Key) {
        let now = self.objects.get(key).map(|stored| stored.object.clone());
        self.watch.entry(key.clone()).or_default().push_back(now);
    }

    /// A user changes, creates or deletes a random object.
    pub fn user_acts(&mut self) {
        let n = self.random.below(3);
        let name = format!("s{n}");
        match self.random.below(7) {
            6 => {
                let cabling = Cabling { link: self.random.one_in(2), gateway: self.random.one_in(2) };
                self.set_cabling(cabling);
            }
            0 | 1 => {
                let vid = 100 + u16::try_from(n * 10 + self.random.below(2)).unwrap();
                let networks: &[&str] = if self.random.one_in(2) { &["dc"] } else { &[] };
                self.apply(service(&name, vid, networks));
            }
            2 | 3 => {
                let other = format!("s{}", self.random.below(3));
                let both = [name.as_str(), other.as_str()];
                let of = if name == other { &both[..1] } else { &both[..] };
                let object = attachment(&format!("a{}", self.random.below(3)), of, "cp");
                self.apply(object);
            }
            4 => self.delete(&Key::cluster(Kind::L2Service, &name.into())),
            _ => {
                let name = format!("a{n}");
                self.delete(&Key::namespaced(Kind::L2ServiceAttachment, &"ns".into(), &name.into()));
            }
        }
    }

    fn set_cabling(&mut self, cabling: Cabling) {
        self.cabling = cabling;
        for switch in switches(cabling) {
            self.apply(switch);
        }
    }

    /// Delivers a random event, write or message in flight.
    pub fn deliver_any(&mut self) -> Result<(), Violation> {
        match self.random.below(8) {
            0 | 1 => self.deliver_object(),
            2 => {
                if !self.awaits.is_empty() {
                    let at = self.random.below(self.awaits.len());
                    let key = self.awaits.swap_remove(at);
                    self.engine.handle(Event::AwaitElapsed(key));
                }
            }
            3 => self.publish_any(),
            4 => {
                if let Some(key) = self.random.pick(self.writes.keys()).cloned() {
                    self.execute_write(&key)?;
                }
            }
            5 => self.deliver_command(),
            6 => self.run_any_driver(),
            _ => self.deliver_report(),
        }
        if self.random.one_in(2) { self.settle() } else { Ok(()) }
    }

    fn deliver_object(&mut self) {
        let Some(key) = self.random.pick(self.watch.keys()).cloned() else { return };
        let states = self.watch.get_mut(&key).unwrap();
        // A new list skips the states in between.
        if self.random.one_in(4) {
            states.drain(..states.len() - 1);
        }
        let repeated = self.random.one_in(6);
        let state = if repeated { states[0].clone() } else { states.pop_front().unwrap() };
        if states.is_empty() {
            self.watch.remove(&key);
        }
        self.send_state(key, state);
    }

    fn send_state(&mut self, key: Key, state: Option<Object>) {
        if self.mutant == Some(Mutant::StaleSpec) {
            let before = match &state {
                Some(object) => self.last_delivered.insert(key.clone(), object.clone()),
                None => self.last_delivered.remove(&key),
            };
            let is_same_object = |before: &Object| state.as_ref().is_some_and(|now| now.uid == before.uid);
            if let Some(before) = before.filter(is_same_object)
                && self.random.one_in(4)
            {
                self.engine.handle(Event::Object(Box::new(state.unwrap())));
                return self.engine.handle(Event::Object(Box::new(before)));
            }
        }
        self.engine.handle(if let Some(object) = state {
            if self.seen_uids.insert(key.clone(), object.uid.clone()).is_some_and(|uid| uid != object.uid) {
                self.last_phases.remove(&key);
            }
            Event::Object(Box::new(object))
        } else {
            self.last_phases.remove(&key);
            Event::ObjectGone(key)
        });
    }

    /// Executes the next write to an object.
    fn execute_write(&mut self, key: &Key) -> Result<(), Violation> {
        let writes = self.writes.get_mut(key).unwrap();
        let (uid, write) = writes.pop_front().unwrap();
        if writes.is_empty() {
            self.writes.remove(key);
        }
        let Some(stored) = self.objects.get_mut(key).filter(|stored| stored.object.uid == uid) else {
            return Ok(());
        };
        match write {
            Write::AddFinalizer => {
                if !stored.object.finalized {
                    stored.object.finalized = true;
                    self.notify_watch(key);
                }
            }
            Write::Outbox(previous, status) => {
                let last = stored.outbox.last().map(|(_, status)| status);
                let before = last.map_or((0, None), |last| (last.transitions, last.phase));
                if status.transitions <= before.0 {
                    return Err(format!("{key}: transition {} is recorded twice", status.transitions));
                }
                if (status.transitions, previous) != (before.0 + 1, before.1) {
                    return Err(format!(
                        "{key}: transition {} from {previous:?} follows {before:?}",
                        status.transitions
                    ));
                }
                let legal = match (previous, status.phase) {
                    (None, now) => now == Some(Phase::Pending) || now == Some(Phase::Terminating),
                    (Some(Phase::Terminating), now) => now == Some(Phase::Deleted),
                    (Some(Phase::Deleted), _) | (_, Some(Phase::Deleted)) => false,
                    (before, now) => before != now,
                };
                if !legal {
                    return Err(format!("{key}: {previous:?} became {:?}", status.phase));
                }
                stored.outbox.push((previous, *status));
            }
            Write::Status(status) => {
                let recorded = stored.outbox.last().map_or(0, |(_, status)| status.transitions);
                if status.transitions > recorded {
                    return Err(format!("{key}: its status is ahead of the outbox"));
                }
                stored.status = Some(*status);
            }
            Write::RemoveFinalizer => {
                if !stored.object.deleting {
                    return Err(format!("{key}: its finalizer is removed and it is not deleted"));
                }
                let last = stored.outbox.last().and_then(|(_, status)| status.phase);
                if last != Some(Phase::Deleted) {
                    return Err(format!(
                        "{key}: its finalizer is removed and its last recorded phase is {last:?}"
                    ));
                }
                self.check_removed(key)?;
                self.objects.remove(key);
                self.last_phases.remove(key);
                self.notify_watch(key);
            }
        }
        Ok(())
    }

    /// Lets the engine settle, queues its effects and checks the invariants.
    fn settle(&mut self) -> Result<(), Violation> {
        for effect in self.engine.settle(AT) {
            match effect {
                Effect::AddFinalizer(key) => self.queue_write(key, Write::AddFinalizer),
                Effect::RemoveFinalizer(key) => self.queue_write(key, Write::RemoveFinalizer),
                Effect::Transition { key, previous, status } => {
                    self.last_phases.extend(status.phase.map(|phase| (key.clone(), phase)));
                    if self.mutant == Some(Mutant::EarlyFinalizerRemoval)
                        && status.phase == Some(Phase::Terminating)
                    {
                        let mut gone = status.clone();
                        (gone.phase, gone.transitions) = (Some(Phase::Deleted), gone.transitions + 1);
                        self.queue_write(key.clone(), Write::Outbox(previous, status));
                        self.queue_write(key.clone(), Write::Outbox(Some(Phase::Terminating), gone));
                        self.queue_write(key, Write::RemoveFinalizer);
                        continue;
                    }
                    let (outbox, status) = (Write::Outbox(previous, status.clone()), Write::Status(status));
                    if self.mutant == Some(Mutant::StatusBeforeOutbox) {
                        self.queue_write(key.clone(), status);
                        self.queue_write(key, outbox);
                    } else {
                        self.queue_write(key.clone(), outbox);
                        self.queue_write(key, status);
                    }
                }
                Effect::Status { key, status } => self.queue_write(key, Write::Status(status)),
                Effect::Publish(target) => self.messages.mark_dirty(target),
                Effect::Forget(target) => self.forget_target(&target),
                Effect::Await(key) => self.awaits.push(key),
                _ => {}
            }
        }
        self.check()
    }

    fn queue_write(&mut self, key: Key, write: Write) {
        let uid = self.seen_uids[&key].clone();
        self.writes.entry(key).or_default().push_back((uid, write));
    }

    /// Delivers everything in order until the cluster is quiescent.
    pub fn run_until_quiescent(&mut self) -> Result<(), Violation> {
        for _ in 0..10_000 {
            while let Some(key) = self.watch.keys().next().cloned() {
                for state in self.watch.remove(&key).into_iter().flatten() {
                    self.send_state(key.clone(), state);
                }
            }
            for key in std::mem::take(&mut self.awaits) {
                self.engine.handle(Event::AwaitElapsed(key));
            }
            self.deliver_all_messages();
            self.settle()?;
            while let Some(key) = self.writes.keys().next().cloned() {
                self.execute_write(&key)?;
            }
            let quiet = self.watch.is_empty() && self.awaits.is_empty() && self.messages.are_quiescent();
            if quiet && !self.engine.is_unsettled() {
                return Ok(());
            }
        }
        Err("the cluster does not become quiescent".into())
    }

    fn carries(&self, device: &str, port: &str, vid: VlanId) -> bool {
        match self.applied.get(&Target::Fabric(device.into())) {
            Some(Desired::Fabric(fabric)) => {
                fabric.ports.iter().any(|one| one.name == port && one.vlans.contains(vid))
            }
            _ => false,
        }
    }

    /// The VLANs of an applied NAD.
    fn nad_vlans(&self, key: &Key) -> Option<Vec<VlanId>> {
        match self.applied.get(&Target::Nad(key.namespace.clone(), key.name.clone()))? {
            Desired::Nad(nad) => match &nad.attachment.as_ref()?.vlans {
                NadVlans::Access(vid) => Some(vec![*vid]),
                NadVlans::Selective(vids) => Some(vids.iter().collect()),
                NadVlans::Trunk => Some(Vec::new()),
            },
            _ => None,
        }
    }

    /// The VLANs that an attachment requests; `None`: the engine has not received all objects involved.
    fn requested_vlans(&self, key: &Key, of: &Object) -> Option<Vec<VlanId>> {
        let Ok(Spec::Attachment(spec)) = &of.spec else { return None };
        let mut vids = Vec::new();
        for name in &spec.services {
            let key = Key::cluster(Kind::L2Service, name);
            let service = &self.objects.get(&key).filter(|stored| !stored.object.deleting)?.object;
            if self.watch.contains_key(&key) || !service.finalized {
                return None;
            }
            let Ok(Spec::Service(service)) = &service.spec else { return None };
            vids.push(service.vid);
        }
        vids.sort_unstable();
        (!self.watch.contains_key(key)).then_some(vids)
    }

    /// Invariants: each VLAN has one owner, and ready attachments are applied.
    fn check(&self) -> Result<(), Violation> {
        for desired in self.messages.commanded().map(|(_, desired)| desired) {
            let Desired::Fabric(fabric) = desired else { continue };
            if let Some(vlan) = fabric.vlans.iter().find(|vlan| vlan.owners.len() != 1) {
                return Err(format!("VLAN {} is of {:?}", vlan.vid, vlan.owners));
            }
        }
        self.check_cabling()?;
        for (key, stored) in &self.objects {
            let ready =
                key.kind == Kind::L2ServiceAttachment && self.last_phases.get(key) == Some(&Phase::Ready);
            if !ready || stored.object.deleting || self.engine.is_unsettled() {
                continue;
            }
            let Some(requested) = self.requested_vlans(key, &stored.object) else { continue };
            let nad = Target::Nad(key.namespace.clone(), key.name.clone());
            let fabric = PORTS.map(|(device, _)| Target::Fabric(device.into()));
            if fabric.iter().chain([&nad]).any(|target| self.messages.has_stale_effect(target)) {
                continue;
            }
            let Some(vlans) = self.nad_vlans(key) else {
                return Err(format!("{key} is ready and has no NAD"));
            };
            if vlans != requested {
                return Err(format!("{key} is ready on {vlans:?} and requests {requested:?}"));
            }
            for (vid, (device, port)) in vlans.iter().flat_map(|vid| PORTS.map(|port| (*vid, port))) {
                if !self.carries(device, port, vid) {
                    return Err(format!("{key} is ready and VLAN {vid} is not on {device}:{port}"));
                }
            }
        }
        Ok(())
    }

    /// No object is ready if the engine knows that one of its cables is missing.
    fn check_cabling(&self) -> Result<(), Violation> {
        let is_delivered = |key: &Key| !self.watch.contains_key(key);
        let is_switch_delivered = |name: &str| is_delivered(&Key::cluster(Kind::FabricDevice, &name.into()));
        if self.engine.is_unsettled() || !is_switch_delivered("leaf1") || !is_switch_delivered("leaf2") {
            return Ok(());
        }
        for (key, stored) in &self.objects {
            if stored.object.deleting
                || self.last_phases.get(key) != Some(&Phase::Ready)
                || !is_delivered(key)
            {
                continue;
            }
            let lacks_cable = match &stored.object.spec {
                Ok(Spec::Attachment(_)) => !self.cabling.link,
                Ok(Spec::Service(spec)) => !self.cabling.gateway && !spec.physical_networks.is_empty(),
                _ => false,
            };
            if lacks_cable {
                return Err(format!("{key} is ready and a cable of it is missing"));
            }
        }
        Ok(())
    }

    fn check_removed(&self, key: &Key) -> Result<(), Violation> {
        let nad = Target::Nad(key.namespace.clone(), key.name.clone());
        let left = self.nad_vlans(key).is_some() && !self.messages.has_stale_effect(&nad);
        if left && key.kind == Kind::L2ServiceAttachment {
            return Err(format!("{key} is removed and its NAD is left"));
        }
        let name = key.to_string();
        for (target, desired) in
            self.applied.iter().filter(|(target, _)| !self.messages.has_stale_effect(target))
        {
            let Desired::Fabric(fabric) = desired else { continue };
            if fabric.vlans.iter().any(|vlan| vlan.owners.contains(&name)) {
                return Err(format!("{key} is removed and {target} has its VLAN"));
            }
        }
        Ok(())
    }

    /// Invariants of the quiescent cluster: the desired state is applied, a new engine finds nothing to do, and deleted
    /// objects leave nothing.
    pub fn finish(&mut self) -> Result<(), Violation> {
        self.run_until_quiescent()?;
        if self.cabling != Cabling::ALL {
            self.set_cabling(Cabling::ALL);
            self.run_until_quiescent()?;
        }
        for (key, stored) in &self.objects {
            let phase = stored.outbox.last().and_then(|(_, status)| status.phase);
            let status = stored.status.as_ref();
            if status.and_then(|status| status.phase) != phase {
                return Err(format!("{key} has the status {status:?} and the recorded phase {phase:?}"));
            }
            let missing = |name: &Name| {
                let service = self.objects.get(&Key::cluster(Kind::L2Service, name));
                service.is_none_or(|stored| stored.object.deleting)
            };
            let is_complete = match &stored.object.spec {
                Ok(Spec::Attachment(spec)) => !spec.services.iter().any(missing),
                _ => true,
            };
            let expected = if stored.object.deleting { Phase::Terminating } else { Phase::Ready };
            if is_complete && phase != Some(expected) {
                return Err(format!("{key} ends {phase:?}: {status:?}"));
            }
        }
        let (recorded, commands) = (self.recorded_transitions(), self.commands());
        self.crash()?;
        self.run_until_quiescent()?;
        if let Some((key, more)) =
            self.recorded_transitions().into_iter().find(|(key, more)| recorded.get(key) != Some(more))
        {
            return Err(format!(
                "a new engine records of {key}: {:?}",
                &more[recorded.get(&key).map_or(0, Vec::len)..]
            ));
        }
        if let Some((target, now)) =
            self.commands().into_iter().find(|(target, now)| commands.get(target) != Some(now))
        {
            return Err(format!(
                "a new engine commands {target}: {now:?} and not {:?}",
                commands.get(&target)
            ));
        }
        for key in self.objects.keys().filter(|key| is_user_object(key)).cloned().collect::<Vec<_>>() {
            self.delete(&key);
        }
        self.run_until_quiescent()?;
        if let Some(key) = self.objects.keys().find(|key| is_user_object(key)) {
            return Err(format!("{key} is left"));
        }
        for (target, desired) in &self.applied {
            let Desired::Fabric(fabric) = desired else { return Err(format!("{target} is left")) };
            if !fabric.vlans.is_empty() || fabric.ports.iter().any(|port| !port.vlans.is_empty()) {
                return Err(format!("{target} has VLANs left"));
            }
        }
        Ok(())
    }

    fn commands(&self) -> BTreeMap<Target, Desired> {
        self.messages.commanded().map(|(target, desired)| (target.clone(), desired.clone())).collect()
    }

    fn recorded_transitions(&self) -> BTreeMap<Key, Vec<(Option<Phase>, String)>> {
        let transitions_of = |stored: &StoredObject| {
            stored.outbox.iter().map(|(_, status)| (status.phase, status.message.clone())).collect()
        };
        self.objects.iter().map(|(key, stored)| (key.clone(), transitions_of(stored))).collect()
    }
}

fn is_user_object(key: &Key) -> bool {
    matches!(key.kind, Kind::L2Service | Kind::L2ServiceAttachment)
}
