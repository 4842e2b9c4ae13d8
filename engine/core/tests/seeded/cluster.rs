//! A cluster in which everything is under way for a while: what the API server says to the engine, what the engine
//! writes, commands, reports (`messages`). Each arrives late, some twice, some never since a later one overtakes it, and
//! the engine and the drivers die in between.

use std::collections::{BTreeMap, VecDeque};

use eno_core::spec::{LeadsTo, NodePoolSpec, PhysicalNetworkSpec, Spec};
use eno_core::{Config, Effect, Engine, Event, Key, Kind, Labels, Name, Object, Status, Target};
use eno_schemas::{Desired, NadVlans, Phase, VlanId};

use super::chance::Chance;
use super::messages::Messages;
use super::mutants::Mutant;
use crate::world::{attachment, created, device, object, point, service};

/// What is wrong.
pub type Wrong = String;

/// Something that the engine writes about an object.
enum Job {
    AddFinalizer,
    Outbox(Option<Phase>, Box<Status>),
    Status(Box<Status>),
    RemoveFinalizer,
}

/// What the API server holds of an object.
#[derive(Clone)]
struct Held {
    object: Object,
    status: Option<Status>,
    /// All that was told of it.
    outbox: Vec<(Option<Phase>, Status)>,
}

pub struct Cluster {
    pub chance: Chance,
    pub mutant: Option<Mutant>,
    pub engine: Engine,
    objects: BTreeMap<Key, Held>,
    /// What the engine was not told yet of each object.
    watch: BTreeMap<Key, VecDeque<Option<Object>>>,
    /// What the engine was told last of each object; only where it may be told again.
    before: BTreeMap<Key, Object>,
    /// The object of each name that the engine has seen, by its uid.
    seen: BTreeMap<Key, Name>,
    jobs: BTreeMap<Key, VecDeque<(Name, Job)>>,
    waits: Vec<Key>,
    /// What is there.
    pub truth: BTreeMap<Target, Desired>,
    pub messages: Messages,
    said: BTreeMap<Key, Phase>,
    wires: Wires,
    born: i64,
}

pub const AT: &str = "2026-01-01T00:00:00Z";
/// The cables that are there.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Wires {
    /// Between the switches.
    link: bool,
    /// From `leaf2` to the PhysicalNetwork `dc`.
    gateway: bool,
}

impl Wires {
    const ALL: Self = Self { link: true, gateway: true };
}

const NODES: [&str; 2] = ["node1", "node2"];
/// The ports that all VLANs of attachments are on.
const PORTS: [(&str, &str); 2] = [("leaf1", "e1"), ("leaf2", "e1")];

/// The switches, with the cables that they have at present.
fn switches(wires: Wires) -> [Object; 2] {
    let node = |name: &str| LeadsTo::Node { node: name.into(), interface: "eth1".into() };
    let link =
        |name: &str| wires.link.then(|| ("u1", LeadsTo::Device { device: name.into(), port: "u1".into() }));
    let gateway = wires.gateway.then(|| ("gw", LeadsTo::PhysicalNetwork("dc".into())));
    let left = [Some(("e1", node("node1"))), link("leaf2")];
    let right = [Some(("e1", node("node2"))), gateway, link("leaf1")];
    [
        device("leaf1", &left.into_iter().flatten().collect::<Vec<_>>()),
        device("leaf2", &right.into_iter().flatten().collect::<Vec<_>>()),
    ]
}

fn fixed() -> Vec<Object> {
    let selector = serde_json::from_str(r#"[{"key":"pool","operator":"In","values":["a"]}]"#).unwrap();
    let mut all: Vec<Object> = switches(Wires::ALL).into();
    all.extend([
        object(Kind::PhysicalNetwork, "dc", Spec::PhysicalNetwork(PhysicalNetworkSpec::default())),
        object(Kind::NodePool, "pool", Spec::NodePool(NodePoolSpec { node_selector: selector })),
        point("cp", Some("pool")),
    ]);
    all
}

impl Cluster {
    pub fn new(seed: u64, mutant: Option<Mutant>) -> Result<Self, Wrong> {
        let mut cluster = Self {
            chance: Chance::new(seed),
            mutant,
            engine: Engine::new(Config {
                cluster: "lab".into(),
                cluster_uid: None,
                bridge_domains: false,
                nodes: false,
            }),
            objects: BTreeMap::new(),
            watch: BTreeMap::new(),
            before: BTreeMap::new(),
            seen: BTreeMap::new(),
            jobs: BTreeMap::new(),
            waits: Vec::new(),
            truth: BTreeMap::new(),
            messages: Messages::default(),
            said: BTreeMap::new(),
            wires: Wires::ALL,
            born: 0,
        };
        for object in fixed() {
            cluster.apply(object);
        }
        cluster.begin();
        cluster.rest()?;
        Ok(cluster)
    }

    /// A new engine, which knows what Kubernetes and NATS hold; it was told in some order.
    fn begin(&mut self) {
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
        self.said.clear();
        self.seen.clear();
        for (key, held) in &self.objects {
            let counter = held.status.as_ref().map_or(0, |status| status.transitions);
            let told = held.outbox.last().map(|(_, status)| status);
            let told = told.filter(|told| told.transitions > counter);
            if let Some(told) = told {
                let jobs = self.jobs.entry(key.clone()).or_default();
                jobs.push_back((held.object.uid.clone(), Job::Status(Box::new(told.clone()))));
            }
            let told = told.or(held.status.as_ref());
            let mut status = told.cloned();
            if self.mutant == Some(Mutant::InputsForgotten)
                && let Some(status) = &mut status
            {
                status.ready_inputs = None;
            }
            self.said.extend(status.as_ref().and_then(|status| Some((key.clone(), status.phase?))));
            self.seen.insert(key.clone(), held.object.uid.clone());
            events.push(Event::Object(Box::new(Object { status, ..held.object.clone() })));
        }
        events.extend(self.messages.begin());
        while !events.is_empty() {
            let at = self.chance.below(events.len());
            engine.handle(events.swap_remove(at));
        }
        self.engine = engine;
    }

    /// The engine dies with all that it had not written, and another begins.
    pub fn crash(&mut self) -> Result<(), Wrong> {
        self.watch.clear();
        self.jobs.clear();
        self.waits.clear();
        self.before.clear();
        self.messages.crash();
        self.begin();
        self.settle()
    }

    fn apply(&mut self, mut object: Object) {
        let key = object.key.clone();
        if let Some(held) = self.objects.get_mut(&key) {
            if held.object.deleting {
                return;
            }
            object.generation = held.object.generation + 1;
            object.uid = held.object.uid.clone();
            object.created = held.object.created;
            object.finalized = held.object.finalized;
            held.object = object;
        } else {
            self.born += 1;
            object = created(object, self.born);
            object.uid = format!("uid{}", self.born).into();
            self.objects.insert(key.clone(), Held { object, status: None, outbox: Vec::new() });
        }
        self.show(&key);
    }

    fn delete(&mut self, key: &Key) {
        let Some(held) = self.objects.get_mut(key) else { return };
        if held.object.finalized {
            held.object.deleting = true;
        } else {
            self.objects.remove(key);
        }
        self.show(key);
    }

    fn show(&mut self, key: &Key) {
        let now = self.objects.get(key).map(|held| held.object.clone());
        self.watch.entry(key.clone()).or_default().push_back(now);
    }

    /// A user does something.
    pub fn act(&mut self) {
        let n = self.chance.below(3);
        let name = format!("s{n}");
        match self.chance.below(7) {
            6 => {
                let wires = Wires { link: self.chance.once_in(2), gateway: self.chance.once_in(2) };
                self.wire(wires);
            }
            0 | 1 => {
                let vid = 100 + u16::try_from(n * 10 + self.chance.below(2)).unwrap();
                let networks: &[&str] = if self.chance.once_in(2) { &["dc"] } else { &[] };
                self.apply(service(&name, vid, networks));
            }
            2 | 3 => {
                let other = format!("s{}", self.chance.below(3));
                let both = [name.as_str(), other.as_str()];
                let of = if name == other { &both[..1] } else { &both[..] };
                let object = attachment(&format!("a{}", self.chance.below(3)), of, "cp");
                self.apply(object);
            }
            4 => self.delete(&Key::cluster(Kind::L2Service, &name.into())),
            _ => {
                let name = format!("a{n}");
                self.delete(&Key::namespaced(Kind::L2ServiceAttachment, &"ns".into(), &name.into()));
            }
        }
    }

    fn wire(&mut self, wires: Wires) {
        self.wires = wires;
        for switch in switches(wires) {
            self.apply(switch);
        }
    }

    /// Something that is under way arrives.
    pub fn arrive(&mut self) -> Result<(), Wrong> {
        match self.chance.below(8) {
            0 | 1 => self.arrive_object(),
            2 => {
                if !self.waits.is_empty() {
                    let at = self.chance.below(self.waits.len());
                    let key = self.waits.swap_remove(at);
                    self.engine.handle(Event::AwaitElapsed(key));
                }
            }
            3 => self.publish_one(),
            4 => {
                if let Some(key) = self.chance.pick(self.jobs.keys()).cloned() {
                    self.write(&key)?;
                }
            }
            5 => self.arrive_command(),
            6 => self.work_one(),
            _ => self.arrive_report(),
        }
        if self.chance.once_in(2) { self.settle() } else { Ok(()) }
    }

    fn arrive_object(&mut self) {
        let Some(key) = self.chance.pick(self.watch.keys()).cloned() else { return };
        let states = self.watch.get_mut(&key).unwrap();
        // A new list skips what was meanwhile.
        if self.chance.once_in(4) {
            states.drain(..states.len() - 1);
        }
        let again = self.chance.once_in(6);
        let state = if again { states[0].clone() } else { states.pop_front().unwrap() };
        if states.is_empty() {
            self.watch.remove(&key);
        }
        self.tell(key, state);
    }

    fn tell(&mut self, key: Key, state: Option<Object>) {
        if self.mutant == Some(Mutant::OldSpec) {
            let before = match &state {
                Some(object) => self.before.insert(key.clone(), object.clone()),
                None => self.before.remove(&key),
            };
            let again = |before: &Object| state.as_ref().is_some_and(|now| now.uid == before.uid);
            if let Some(before) = before.filter(again)
                && self.chance.once_in(4)
            {
                self.engine.handle(Event::Object(Box::new(state.unwrap())));
                return self.engine.handle(Event::Object(Box::new(before)));
            }
        }
        self.engine.handle(if let Some(object) = state {
            if self.seen.insert(key.clone(), object.uid.clone()).is_some_and(|uid| uid != object.uid) {
                self.said.remove(&key);
            }
            Event::Object(Box::new(object))
        } else {
            self.said.remove(&key);
            Event::ObjectGone(key)
        });
    }

    /// The next thing about an object is written.
    fn write(&mut self, key: &Key) -> Result<(), Wrong> {
        let jobs = self.jobs.get_mut(key).unwrap();
        let (uid, job) = jobs.pop_front().unwrap();
        if jobs.is_empty() {
            self.jobs.remove(key);
        }
        let Some(held) = self.objects.get_mut(key).filter(|held| held.object.uid == uid) else {
            return Ok(());
        };
        match job {
            Job::AddFinalizer => {
                if !held.object.finalized {
                    held.object.finalized = true;
                    self.show(key);
                }
            }
            Job::Outbox(previous, status) => {
                let last = held.outbox.last().map(|(_, status)| status);
                let before = last.map_or((0, None), |last| (last.transitions, last.phase));
                if status.transitions <= before.0 {
                    return Err(format!("{key}: transition {} is told twice", status.transitions));
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
                held.outbox.push((previous, *status));
            }
            Job::Status(status) => {
                let told = held.outbox.last().map_or(0, |(_, status)| status.transitions);
                if status.transitions > told {
                    return Err(format!("{key}: its status is ahead of the outbox"));
                }
                held.status = Some(*status);
            }
            Job::RemoveFinalizer => {
                if !held.object.deleting {
                    return Err(format!("{key}: it loses its finalizer and is not deleted"));
                }
                let last = held.outbox.last().and_then(|(_, status)| status.phase);
                if last != Some(Phase::Deleted) {
                    return Err(format!("{key}: it goes and was last told to be {last:?}"));
                }
                self.nothing_left(key)?;
                self.objects.remove(key);
                self.said.remove(key);
                self.show(key);
            }
        }
        Ok(())
    }

    /// Works out what follows from what arrived.
    fn settle(&mut self) -> Result<(), Wrong> {
        for effect in self.engine.settle(AT) {
            match effect {
                Effect::AddFinalizer(key) => self.job(key, Job::AddFinalizer),
                Effect::RemoveFinalizer(key) => self.job(key, Job::RemoveFinalizer),
                Effect::Transition { key, previous, status } => {
                    self.said.extend(status.phase.map(|phase| (key.clone(), phase)));
                    if self.mutant == Some(Mutant::FinalizerEarly) && status.phase == Some(Phase::Terminating)
                    {
                        let mut gone = status.clone();
                        (gone.phase, gone.transitions) = (Some(Phase::Deleted), gone.transitions + 1);
                        self.job(key.clone(), Job::Outbox(previous, status));
                        self.job(key.clone(), Job::Outbox(Some(Phase::Terminating), gone));
                        self.job(key, Job::RemoveFinalizer);
                        continue;
                    }
                    let (outbox, status) = (Job::Outbox(previous, status.clone()), Job::Status(status));
                    if self.mutant == Some(Mutant::StatusFirst) {
                        self.job(key.clone(), status);
                        self.job(key, outbox);
                    } else {
                        self.job(key.clone(), outbox);
                        self.job(key, status);
                    }
                }
                Effect::Status { key, status } => self.job(key, Job::Status(status)),
                Effect::Publish(target) => self.messages.changed(target),
                Effect::Forget(target) => self.forget(&target),
                Effect::Await(key) => self.waits.push(key),
                _ => {}
            }
        }
        self.check()
    }

    fn job(&mut self, key: Key, job: Job) {
        let uid = self.seen[&key].clone();
        self.jobs.entry(key).or_default().push_back((uid, job));
    }

    /// Nothing is lost any more, until all is quiet.
    pub fn rest(&mut self) -> Result<(), Wrong> {
        for _ in 0..10_000 {
            while let Some(key) = self.watch.keys().next().cloned() {
                for state in self.watch.remove(&key).into_iter().flatten() {
                    self.tell(key.clone(), state);
                }
            }
            for key in std::mem::take(&mut self.waits) {
                self.engine.handle(Event::AwaitElapsed(key));
            }
            self.exchange();
            self.settle()?;
            while let Some(key) = self.jobs.keys().next().cloned() {
                self.write(&key)?;
            }
            let quiet = self.watch.is_empty() && self.waits.is_empty() && self.messages.are_quiet();
            if quiet && !self.engine.is_unsettled() {
                return Ok(());
            }
        }
        Err("it never comes to rest".into())
    }

    fn carried(&self, device: &str, port: &str, vid: VlanId) -> bool {
        match self.truth.get(&Target::Fabric(device.into())) {
            Some(Desired::Fabric(fabric)) => {
                fabric.ports.iter().any(|one| one.name == port && one.vlans.contains(vid))
            }
            _ => false,
        }
    }

    /// What a NAD that is there says.
    fn vlans(&self, key: &Key) -> Option<Vec<VlanId>> {
        match self.truth.get(&Target::Nad(key.namespace.clone(), key.name.clone()))? {
            Desired::Nad(nad) => match &nad.attachment.as_ref()?.vlans {
                NadVlans::Access(vid) => Some(vec![*vid]),
                NadVlans::Selective(vids) => Some(vids.iter().collect()),
                NadVlans::Trunk => Some(Vec::new()),
            },
            _ => None,
        }
    }

    /// The VLANs that an attachment asks for, if the engine has heard of all of that.
    fn asked(&self, key: &Key, of: &Object) -> Option<Vec<VlanId>> {
        let Ok(Spec::Attachment(spec)) = &of.spec else { return None };
        let mut vids = Vec::new();
        for name in &spec.services {
            let key = Key::cluster(Kind::L2Service, name);
            let service = &self.objects.get(&key).filter(|held| !held.object.deleting)?.object;
            if self.watch.contains_key(&key) || !service.finalized {
                return None;
            }
            let Ok(Spec::Service(service)) = &service.spec else { return None };
            vids.push(service.vid);
        }
        vids.sort_unstable();
        (!self.watch.contains_key(key)).then_some(vids)
    }

    /// One VLAN, one owner; what is said to be ready is there.
    fn check(&self) -> Result<(), Wrong> {
        for desired in self.messages.commanded().map(|(_, desired)| desired) {
            let Desired::Fabric(fabric) = desired else { continue };
            if let Some(vlan) = fabric.vlans.iter().find(|vlan| vlan.owners.len() != 1) {
                return Err(format!("VLAN {} is of {:?}", vlan.vid, vlan.owners));
            }
        }
        self.check_wires()?;
        for (key, held) in &self.objects {
            let ready = key.kind == Kind::L2ServiceAttachment && self.said.get(key) == Some(&Phase::Ready);
            if !ready || held.object.deleting || self.engine.is_unsettled() {
                continue;
            }
            let Some(asked) = self.asked(key, &held.object) else { continue };
            let nad = Target::Nad(key.namespace.clone(), key.name.clone());
            let fabric = PORTS.map(|(device, _)| Target::Fabric(device.into()));
            if fabric.iter().chain([&nad]).any(|target| self.messages.is_astray(target)) {
                continue;
            }
            let Some(vlans) = self.vlans(key) else { return Err(format!("{key} is ready and has no NAD")) };
            if vlans != asked {
                return Err(format!("{key} is ready on {vlans:?} and asks for {asked:?}"));
            }
            for (vid, (device, port)) in vlans.iter().flat_map(|vid| PORTS.map(|port| (*vid, port))) {
                if !self.carried(device, port, vid) {
                    return Err(format!("{key} is ready and VLAN {vid} is not on {device}:{port}"));
                }
            }
        }
        Ok(())
    }

    /// What the engine has heard of is not ready where a cable of it is missing.
    fn check_wires(&self) -> Result<(), Wrong> {
        let is_heard = |key: &Key| !self.watch.contains_key(key);
        let heard = |name: &str| is_heard(&Key::cluster(Kind::FabricDevice, &name.into()));
        if self.engine.is_unsettled() || !heard("leaf1") || !heard("leaf2") {
            return Ok(());
        }
        for (key, held) in &self.objects {
            if held.object.deleting || self.said.get(key) != Some(&Phase::Ready) || !is_heard(key) {
                continue;
            }
            let lacks = match &held.object.spec {
                Ok(Spec::Attachment(_)) => !self.wires.link,
                Ok(Spec::Service(spec)) => !self.wires.gateway && !spec.physical_networks.is_empty(),
                _ => false,
            };
            if lacks {
                return Err(format!("{key} is ready and a cable of it is missing"));
            }
        }
        Ok(())
    }

    fn nothing_left(&self, key: &Key) -> Result<(), Wrong> {
        let nad = Target::Nad(key.namespace.clone(), key.name.clone());
        let left = self.vlans(key).is_some() && !self.messages.is_astray(&nad);
        if left && key.kind == Kind::L2ServiceAttachment {
            return Err(format!("{key} goes and its NAD is there"));
        }
        let name = key.to_string();
        for (target, desired) in self.truth.iter().filter(|(target, _)| !self.messages.is_astray(target)) {
            let Desired::Fabric(fabric) = desired else { continue };
            if fabric.vlans.iter().any(|vlan| vlan.owners.contains(&name)) {
                return Err(format!("{key} goes and {target} has its VLAN"));
            }
        }
        Ok(())
    }

    /// All is quiet: what is wanted is there, another engine finds nothing to do, and when all is deleted nothing is
    /// left.
    pub fn end(&mut self) -> Result<(), Wrong> {
        self.rest()?;
        if self.wires != Wires::ALL {
            self.wire(Wires::ALL);
            self.rest()?;
        }
        for (key, held) in &self.objects {
            let phase = held.outbox.last().and_then(|(_, status)| status.phase);
            let status = held.status.as_ref();
            if status.and_then(|status| status.phase) != phase {
                return Err(format!("{key} says {status:?} and was told to be {phase:?}"));
            }
            let missing = |name: &Name| {
                let service = self.objects.get(&Key::cluster(Kind::L2Service, name));
                service.is_none_or(|held| held.object.deleting)
            };
            let whole = match &held.object.spec {
                Ok(Spec::Attachment(spec)) => !spec.services.iter().any(missing),
                _ => true,
            };
            let wanted = if held.object.deleting { Phase::Terminating } else { Phase::Ready };
            if whole && phase != Some(wanted) {
                return Err(format!("{key} ends {phase:?}: {status:?}"));
            }
        }
        let (told, commands) = (self.told(), self.commands());
        self.crash()?;
        self.rest()?;
        if let Some((key, more)) = self.told().into_iter().find(|(key, more)| told.get(key) != Some(more)) {
            return Err(format!(
                "another engine says of {key}: {:?}",
                &more[told.get(&key).map_or(0, Vec::len)..]
            ));
        }
        if let Some((target, now)) =
            self.commands().into_iter().find(|(target, now)| commands.get(target) != Some(now))
        {
            return Err(format!(
                "another engine commands {target}: {now:?} and not {:?}",
                commands.get(&target)
            ));
        }
        for key in self.objects.keys().filter(|key| of_users(key)).cloned().collect::<Vec<_>>() {
            self.delete(&key);
        }
        self.rest()?;
        if let Some(key) = self.objects.keys().find(|key| of_users(key)) {
            return Err(format!("{key} is left"));
        }
        for (target, desired) in &self.truth {
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

    fn told(&self) -> BTreeMap<Key, Vec<(Option<Phase>, String)>> {
        let of_it = |held: &Held| {
            held.outbox.iter().map(|(_, status)| (status.phase, status.message.clone())).collect()
        };
        self.objects.iter().map(|(key, held)| (key.clone(), of_it(held))).collect()
    }
}

fn of_users(key: &Key) -> bool {
    matches!(key.kind, Kind::L2Service | Kind::L2ServiceAttachment)
}
