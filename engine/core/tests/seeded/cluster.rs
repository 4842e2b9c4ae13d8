//! A simulated cluster with delayed deliveries: watch events, writes of the engine, and messages of NATS (`messages`).
//! Some are delivered twice, and some are skipped in favour of a later one. Engine and drivers crash in between. Time
//! passes only if nothing else happens, or by chance.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use eno_core::kinds::LeadsTo;
use eno_core::{
    Config, DEADLINE, Effect, Engine, Event, Key, Kind, Labels, Moment, Name, Object, Reconciled,
    STALLED_AFTER, Status, StreamEvent, Target,
};
use eno_schemas::{Desired, Phase, VlanId};

use super::drivers::Drivers;
use super::messages::Messages;
use super::random::Random;
use super::time;
use crate::edits::edit_vrf;
use crate::nats::Nats;
use crate::world::{
    attachment, connection_point, created, device, node_pool, object, router, service, subnet, vrf,
    vrf_attachment, with_subnets,
};

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
pub struct StoredObject {
    pub object: Object,
    pub status: Option<Status>,
    /// Its recorded transitions: the phase before and the status.
    pub outbox: Vec<(Option<Phase>, Status)>,
}

/// What the engine asked to hear of later.
enum Timer {
    Await(Key),
    Retry(Key, u32),
    Deadline {
        key: Key,
        since: Name,
    },
    /// The stored commands are read again, as long as NATS may have lost some.
    ReadSequences,
}

/// The simulated cluster.
pub struct Cluster {
    /// Decides every random choice.
    pub random: Random,
    /// The engine under test.
    engine: Engine,
    /// The term of the engine.
    pub term: u64,
    /// The time.
    pub now: Duration,
    /// When the engine began to lead.
    leading_since: Duration,
    /// The engine was told something since it reconciled last.
    pub is_unreconciled: bool,
    /// What the engine returned last; its lists are handled.
    pub last: Reconciled,
    /// The objects in the API server.
    pub objects: BTreeMap<Key, StoredObject>,
    /// Watch events in flight for each object; `None`: deleted.
    pub watch: BTreeMap<Key, VecDeque<Option<Object>>>,
    /// The uid of each object that the engine has seen.
    seen_uids: BTreeMap<Key, Name>,
    /// Writes of the engine in flight, with the uid of their object.
    writes: BTreeMap<Key, VecDeque<(Name, Write)>>,
    /// When each timer is due.
    timers: Vec<(Duration, Timer)>,
    /// The state of switches, and the NetworkAttachmentDefinitions.
    pub applied: BTreeMap<Target, Desired>,
    /// The messages that NATS stores.
    pub nats: Nats,
    /// The last message in the stream of commands when the engine started.
    pub first_late: u64,
    /// Messages in flight.
    pub messages: Messages,
    /// The drivers.
    pub drivers: Drivers,
    /// The last phase that the engine gave each object.
    pub last_phases: BTreeMap<Key, Phase>,
    /// Objects whose last phase is of a former engine.
    pub inherited: BTreeSet<Key>,
    /// The present cables.
    pub cabling: Cabling,
    /// Switches and NATS fail in this history.
    has_faults: bool,
    /// What happens is printed.
    is_traced: bool,
    /// Number of objects created; it makes uids and creation times.
    created_count: i64,
}

/// Which cables are present.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Cabling {
    /// Between `leaf1` and the spine.
    pub link: bool,
    /// From `leaf2` to the PhysicalNetwork `dc`.
    pub gateway: bool,
}

impl Cabling {
    pub const ALL: Self = Self { link: true, gateway: true };
}

const NODES: [&str; 2] = ["node1", "node2"];
const SWITCHES: [&str; 4] = ["leaf1", "leaf2", "spine", "gw"];

/// The border leaf and the router that VRFs are on.
const GATEWAYS: [&str; 2] = ["leaf2", "gw"];

fn switch(name: &str) -> Target {
    Target::Fabric(name.into())
}

/// The switches with these cables.
fn switches(cabling: Cabling) -> [Object; 3] {
    let node = |name: &str| LeadsTo::Node { node: name.into(), interface: "eth1".into() };
    let spine = |port: &str| LeadsTo::Device { device: "spine".into(), port: port.into() };
    let gateway = cabling.gateway.then(|| ("gw", LeadsTo::PhysicalNetwork("dc".into())));
    let left = [Some(("e1", node("node1"))), cabling.link.then(|| ("u1", spine("leaf1")))];
    let right = [Some(("e1", node("node2"))), gateway, Some(("u1", spine("leaf2")))];
    [
        device("leaf1", &left.into_iter().flatten().collect::<Vec<_>>()),
        device("leaf2", &right.into_iter().flatten().collect::<Vec<_>>()),
        device("spine", &[]),
    ]
}

fn static_objects() -> Vec<Object> {
    let mut all: Vec<Object> = switches(Cabling::ALL).into();
    all.extend((0..3).map(|n| subnet(&format!("sn{n}"), &format!("10.0.{n}.0/24"))));
    all.extend([
        router("gw", &[("e1", LeadsTo::Device { device: "leaf2".into(), port: "r1".into() })]),
        object(Kind::PhysicalNetwork, "dc", serde_json::json!({})),
        node_pool("pool", "pool", &["a"]),
        connection_point("cp", Some("pool")),
    ]);
    all
}

impl Cluster {
    pub fn new(seed: u64) -> Result<Self, Violation> {
        let mut random = Random::new(seed);
        let mut cluster = Self {
            has_faults: random.one_in(2),
            is_traced: std::env::var_os("ENO_TRACE").is_some(),
            random,
            engine: new_engine(0),
            term: 0,
            now: Duration::ZERO,
            leading_since: Duration::ZERO,
            is_unreconciled: false,
            last: Reconciled::default(),
            objects: BTreeMap::new(),
            watch: BTreeMap::new(),
            seen_uids: BTreeMap::new(),
            writes: BTreeMap::new(),
            timers: Vec::new(),
            applied: BTreeMap::new(),
            nats: Nats::default(),
            first_late: 0,
            messages: Messages::default(),
            drivers: Drivers::default(),
            last_phases: BTreeMap::new(),
            inherited: BTreeSet::new(),
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

    /// Starts a new engine with the contents of NATS and Kubernetes. Those of Kubernetes come in random order.
    fn start_engine(&mut self) {
        self.term += 1;
        self.trace(|| format!("engine {} starts", self.term));
        (self.engine, self.leading_since) = (new_engine(self.term), self.now);
        self.drivers.engine_started(&self.nats, self.applied.keys());
        self.first_late = self.nats.last_sequence();
        let mut events = vec![
            Event::Drivers(["netconf", "nad"].map(Name::from).into()),
            Event::HoldCapableDrivers(["netconf".into()].into()),
        ];
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
            let status = recorded.or(stored.status.as_ref()).cloned();
            self.last_phases.extend(status.as_ref().and_then(|status| Some((key.clone(), status.phase?))));
            self.seen_uids.insert(key.clone(), stored.object.uid.clone());
            events.push(Event::Object(Box::new(Object { status, ..stored.object.clone() })));
        }
        self.inherited = self.last_phases.keys().cloned().collect();
        let mut stored = self.nats.events().into_iter();
        stored.next().into_iter().for_each(|commands| self.tell(commands));
        events.extend(stored);
        while !events.is_empty() {
            let at = self.random.below(events.len());
            self.tell(events.swap_remove(at));
        }
        self.watch_commands();
    }

    /// The engine crashes with its writes in flight, and a new one starts.
    pub fn crash(&mut self) -> Result<(), Violation> {
        self.watch.clear();
        self.writes.clear();
        self.timers.clear();
        self.engine_crashed();
        self.start_engine();
        self.reconcile()
    }

    /// Tells the engine what happened.
    pub fn tell(&mut self, event: Event) {
        self.trace(|| format!("event {event:?}"));
        if let Event::Report(target, report) = &event {
            self.drivers.note_delivered(target, report);
        }
        self.engine.handle(Event::Time(self.now.saturating_sub(self.leading_since)));
        self.engine.handle(event);
        self.is_unreconciled = true;
    }

    /// Prints what happens, if that is asked for.
    pub fn trace(&self, text: impl FnOnce() -> String) {
        if self.is_traced {
            println!("{:?} {:.1500}", self.now, text());
        }
    }

    /// Lets the engine work out what follows, and checks the invariants.
    fn reconcile(&mut self) -> Result<(), Violation> {
        let (at, deadline) = (time::at(self.now), time::at(self.now + DEADLINE));
        let mut reconciled = self.engine.reconcile(&Moment {
            at,
            elapsed: self.now.saturating_sub(self.leading_since),
            deadline,
        });
        self.is_unreconciled = false;
        for effect in std::mem::take(&mut reconciled.effects) {
            self.carry_out(effect);
        }
        for (target, driver) in std::mem::take(&mut reconciled.removed) {
            self.send_purge(target, driver);
        }
        for (participant, command) in std::mem::take(&mut reconciled.commands) {
            self.send_command(participant, command)?;
        }
        self.trace(|| format!("reconciled {reconciled:?}"));
        self.last = reconciled;
        self.check()
    }

    fn carry_out(&mut self, effect: Effect) {
        self.trace(|| format!("effect {effect:?}"));
        match effect {
            Effect::AddFinalizer(key) => self.queue_write(key, Write::AddFinalizer),
            Effect::RemoveFinalizer(key) => self.queue_write(key, Write::RemoveFinalizer),
            Effect::Transition { key, previous, status } => {
                self.last_phases.extend(status.phase.map(|phase| (key.clone(), phase)));
                self.inherited.remove(&key);
                self.queue_write(key.clone(), Write::Outbox(previous, status.clone()));
                self.queue_write(key, Write::Status(status));
            }
            Effect::Status { key, status } => self.queue_write(key, Write::Status(status)),
            Effect::Await(key) => self.start_timer(Duration::from_secs(1), Timer::Await(key)),
            Effect::Retry { network, attempt } => {
                self.start_timer(Duration::from_secs(5), Timer::Retry(network, attempt));
            }
            Effect::Deadline { key, since } => {
                self.start_timer(STALLED_AFTER, Timer::Deadline { key, since });
            }
            _ => {}
        }
    }

    fn start_timer(&mut self, delay: Duration, timer: Timer) {
        self.timers.push((self.now + delay, timer));
    }

    /// When something happens next if nothing is delivered.
    fn next_time(&self) -> Option<Duration> {
        let is_tried = self.drivers.refused.is_empty();
        let timers = self.timers.iter().filter(|(_, timer)| is_tried || !matches!(timer, Timer::Retry(..)));
        let timers = timers.map(|(at, _)| *at);
        let next = self.last.next.map(|next| self.leading_since + next);
        timers.chain(next).chain(self.drivers.next_deadline()).min()
    }

    /// Time passes. A refused network is not tried again while it is refused, so that the cluster becomes quiescent.
    fn pass_time(&mut self, now: Duration) {
        self.now = self.now.max(now);
        self.is_unreconciled = true;
        self.expire_held();
        let is_tried = self.drivers.refused.is_empty();
        let is_due = |(at, timer): &(Duration, Timer)| {
            *at <= self.now && (is_tried || !matches!(timer, Timer::Retry(..)))
        };
        let (due, later) = std::mem::take(&mut self.timers).into_iter().partition::<Vec<_>, _>(is_due);
        self.timers = later;
        for (_, timer) in due {
            match timer {
                Timer::Await(key) => self.tell(Event::AwaitElapsed(key)),
                Timer::Retry(network, attempt) => self.tell(Event::RetryDue(network, attempt)),
                Timer::Deadline { key, since } => self.tell(Event::DeadlineExceeded { key, since }),
                Timer::ReadSequences => {
                    let sequences = self.nats.sequences();
                    self.tell(Event::Stream(StreamEvent::StoredSequences(sequences)));
                }
            }
        }
    }

    /// The engine reads the stored commands again, until it would have noticed a loss.
    pub fn read_sequences_again(&mut self) {
        self.start_timer(Duration::from_secs(10), Timer::ReadSequences);
        self.start_timer(Duration::from_secs(50), Timer::ReadSequences);
    }

    /// An object with this uid exists.
    pub fn has_object(&self, uid: &str) -> bool {
        self.objects.values().any(|stored| *stored.object.uid == *uid)
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
        match self.random.below(if self.has_faults { 14 } else { 11 }) {
            11.. => self.fault(),
            10 => self.change_vrf(),
            7..10 => self.change_vrf_attachment(n),
            6 => {
                let cabling = Cabling { link: self.random.one_in(2), gateway: self.random.one_in(2) };
                self.set_cabling(cabling);
            }
            0 | 1 => {
                let vid = 100 + u16::try_from(n * 10 + self.random.below(2)).unwrap();
                let networks: &[&str] = if self.random.one_in(2) { &["dc"] } else { &[] };
                self.apply(with_subnets(&service(&name, vid, networks), &[&format!("sn{n}")]));
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

    /// The VRF `v` comes with one of two names on its devices, or goes.
    fn change_vrf(&mut self) {
        if self.random.one_in(3) {
            return self.delete(&Key::cluster(Kind::VRF, &"v".into()));
        }
        let name = self.random.one_in(3).then(|| "other".into());
        self.apply(edit_vrf(&vrf("v", &GATEWAYS), |spec| spec.device_name = name));
    }

    /// The service `s<n>` is led into the VRF on a device with one of two addresses, or is not any more.
    fn change_vrf_attachment(&mut self, n: usize) {
        let name = format!("r{n}");
        if self.random.one_in(3) {
            return self.delete(&Key::cluster(Kind::VRFAttachment, &name.into()));
        }
        let device = GATEWAYS[self.random.below(GATEWAYS.len())];
        let address = format!("10.0.{n}.{}/24", 1 + self.random.below(2));
        self.apply(vrf_attachment(&name, "v", &format!("s{n}"), device, &[&address]));
    }

    fn set_cabling(&mut self, cabling: Cabling) {
        self.cabling = cabling;
        for switch in switches(cabling) {
            self.apply(switch);
        }
    }

    /// A switch, a driver or NATS fails, or works again.
    fn fault(&mut self) {
        let target = switch(SWITCHES[self.random.below(SWITCHES.len())]);
        match self.random.below(10) {
            0 | 1 => {
                let vid = 100 + self.random.below(3) * 10 + self.random.below(2);
                let vid = VlanId::new(u16::try_from(vid).unwrap()).unwrap();
                let is_refused = self.random.one_in(2);
                self.set_refused(&target, vid, is_refused);
            }
            2 | 3 => {
                let is_unreachable = !self.drivers.unreachable.contains(&target);
                self.set_unreachable(&target, is_unreachable);
            }
            4 | 5 => {
                if !self.drivers.silent.remove(&target) {
                    self.drivers.were_away.insert(target.clone());
                    self.drivers.silent.insert(target);
                }
            }
            6 => self.crash_driver(&target),
            7 => self.lose_command(),
            8 => self.forge_report(),
            _ => {
                if self.random.one_in(3) {
                    self.lose_streams();
                }
            }
        }
    }

    /// All switches and drivers work again.
    fn end_faults(&mut self) {
        self.drivers.silent.clear();
        for name in SWITCHES {
            self.set_unreachable(&switch(name), false);
        }
        for (target, vid) in self.drivers.refused.clone() {
            self.set_refused(&target, vid, false);
        }
    }

    /// Delivers a random event, write or message in flight.
    pub fn deliver_any(&mut self) -> Result<(), Violation> {
        match self.random.below(12) {
            0 | 1 => self.deliver_object(),
            2 => {
                let next = self.next_time().filter(|_| self.random.one_in(2));
                self.pass_time(next.unwrap_or(self.now + Duration::from_millis(50)));
            }
            3 | 4 => {
                if let Some(key) = self.random.pick(self.writes.keys()).cloned() {
                    self.execute_write(&key)?;
                }
            }
            5 | 6 => self.deliver_command()?,
            7 => self.deliver_purge(),
            8 => self.deliver_answer(),
            9 => self.deliver_stored(),
            10 => self.run_any_driver()?,
            _ => self.deliver_report(),
        }
        if self.random.one_in(2) { self.reconcile() } else { Ok(()) }
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
        let event = if let Some(object) = state {
            if self.seen_uids.insert(key.clone(), object.uid.clone()).is_some_and(|uid| uid != object.uid) {
                self.last_phases.remove(&key);
            }
            Event::Object(Box::new(object))
        } else {
            self.last_phases.remove(&key);
            Event::ObjectGone(key)
        };
        self.tell(event);
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
                self.applied.remove(&Target::Nad(key.namespace.clone(), key.name.clone()));
                self.last_phases.remove(key);
                self.notify_watch(key);
            }
        }
        Ok(())
    }

    fn queue_write(&mut self, key: Key, write: Write) {
        let uid = self.seen_uids[&key].clone();
        self.writes.entry(key).or_default().push_back((uid, write));
    }

    /// Delivers everything in order until nothing happens any more.
    pub fn run_until_quiescent(&mut self) -> Result<(), Violation> {
        for _ in 0..2_000 {
            while let Some(key) = self.watch.keys().next().cloned() {
                for state in self.watch.remove(&key).into_iter().flatten() {
                    self.send_state(key.clone(), state);
                }
            }
            self.deliver_all_messages()?;
            self.run_drivers()?;
            if self.is_unreconciled {
                self.reconcile()?;
            }
            while let Some(key) = self.writes.keys().next().cloned() {
                self.execute_write(&key)?;
            }
            if self.watch.is_empty() && self.messages.are_quiescent() && !self.is_unreconciled {
                match self.next_time() {
                    Some(next) => self.pass_time(next),
                    None => return self.check_quiescent(),
                }
            }
        }
        Err(format!("the cluster does not become quiescent: {:?}", self.last))
    }

    /// Invariants of the quiescent cluster: the desired state is applied, a new engine finds nothing to do, and deleted
    /// objects leave nothing.
    pub fn finish(&mut self) -> Result<(), Violation> {
        self.run_until_quiescent()?;
        self.end_faults();
        self.run_until_quiescent()?;
        if self.cabling != Cabling::ALL {
            self.set_cabling(Cabling::ALL);
            self.run_until_quiescent()?;
        }
        self.check_converged()?;
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
        self.check_empty()
    }

    fn commands(&self) -> BTreeMap<Target, Desired> {
        let commands = self.nats.commands();
        commands.map(|((target, _), stored)| (target.clone(), stored.command.desired.clone())).collect()
    }

    fn recorded_transitions(&self) -> BTreeMap<Key, Vec<(Option<Phase>, String)>> {
        let transitions_of = |stored: &StoredObject| {
            stored.outbox.iter().map(|(_, status)| (status.phase, status.message.clone())).collect()
        };
        self.objects.iter().map(|(key, stored)| (key.clone(), transitions_of(stored))).collect()
    }
}

fn new_engine(term: u64) -> Engine {
    let config = Config {
        cluster: "lab".into(),
        cluster_uid: None,
        bridge_domains: false,
        verify: true,
        nodes: false,
        observes: false,
    };
    Engine::new(config, term)
}

pub fn is_user_object(key: &Key) -> bool {
    let kinds = [Kind::L2Service, Kind::L2ServiceAttachment, Kind::VRF, Kind::VRFAttachment];
    kinds.contains(&key.kind)
}
