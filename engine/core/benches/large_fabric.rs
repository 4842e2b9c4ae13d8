//! The core's time on a fabric of 48 leaves, 16 spines and 480 nodes, with transactions of all switches. Drivers answer
//! each command once, after a delay; the time is virtual.
//!
//! `cargo bench -p eno-core --bench large_fabric`

#[path = "../tests/nats/mod.rs"]
mod nats;
#[path = "../tests/world/mod.rs"]
mod world;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use divan::{Bencher, counter::ItemsCount};
use eno_core::kinds::LeadsTo;
use eno_core::{Config, Effect, Engine, Event, Key, Kind, Labels, Moment, Name, Object, StreamEvent, Target};
use eno_schemas::{
    Applied, Decision, Desired, DeviceInfo, FabricDesired, Generation, Outcome, Report, Rollback, VlanSet,
};
use world::{attachment, connection_point, device, node_pool, service};

fn main() {
    divan::main();
}

const LEAVES: usize = 48;
const SPINES: usize = 16;
const NODES_OF_LEAF: usize = 10;
const NOW: &str = "2026-01-01T00:00:00Z";
/// The time between two calls of the engine.
const TICK: Duration = Duration::from_millis(10);
/// Services that are created, or deleted, in one tick.
const PAIRS_PER_TICK: u16 = 2;

/// A command that its driver has not answered.
struct Outstanding {
    target: Target,
    driver: Name,
    generation: Generation,
    outcome: Outcome,
    desired: std::sync::Arc<Desired>,
}

/// The engine, the objects in the API server, and drivers that do what they are told.
struct Cluster {
    engine: Engine,
    objects: BTreeMap<Key, Object>,
    now: Duration,
    /// By the time of the answer and a number: the commands.
    outstanding: BTreeMap<(Duration, u64), Outstanding>,
    commands: u64,
}

impl Cluster {
    fn new() -> Self {
        let config = Config {
            cluster: "lab".into(),
            cluster_uid: None,
            bridge_domains: false,
            verify: true,
            nodes: false,
            observes: false,
        };
        let mut engine = Engine::new(config, 1);
        engine.handle(Event::Drivers(["netconf", "nad"].map(Name::from).into()));
        engine.handle(Event::HoldCapableDrivers(BTreeSet::from(["netconf".into()])));
        let mut cluster = Self {
            engine,
            objects: BTreeMap::new(),
            now: Duration::ZERO,
            outstanding: BTreeMap::new(),
            commands: 0,
        };
        for leaf in 0..LEAVES {
            let mut ports = Vec::new();
            for node in 0..NODES_OF_LEAF {
                let name = Name::from(format!("node{leaf}-{node}"));
                let labels = Labels::from([("pool".into(), "a".into())]);
                cluster.engine.handle(Event::Node { name: name.clone(), labels, ready: true });
                ports.push((format!("e{node}"), LeadsTo::Node { node: name, interface: "eth1".into() }));
            }
            for spine in 0..SPINES {
                let (device, port) = (format!("spine{spine}").into(), format!("leaf{leaf}").into());
                ports.push((format!("u{spine}"), LeadsTo::Device { device, port }));
            }
            let ports: Vec<_> = ports.iter().map(|(name, lead)| (name.as_str(), lead.clone())).collect();
            cluster.apply(device(&format!("leaf{leaf}"), &ports));
        }
        for spine in 0..SPINES {
            cluster.apply(device(&format!("spine{spine}"), &[]));
        }
        cluster.apply(node_pool("pool", "pool", &["a"]));
        cluster.apply(connection_point("cp", Some("pool")));
        cluster.settle();
        cluster
    }

    fn apply(&mut self, mut object: Object) {
        object.uid = object.key.to_string().as_str().into();
        self.objects.insert(object.key.clone(), object.clone());
        self.engine.handle(Event::Object(Box::new(object)));
    }

    fn delete(&mut self, key: &Key) {
        let Some(object) = self.objects.get_mut(key) else { return };
        object.deleting = true;
        let object = object.clone();
        self.engine.handle(Event::Object(Box::new(object)));
    }

    fn add(&mut self, index: u16) {
        self.apply(service(&format!("s{index}"), 10 + index, &[]));
        self.apply(attachment(&format!("a{index}"), &[&format!("s{index}")], "cp"));
    }

    fn remove(&mut self, index: u16) {
        self.delete(&Key::namespaced(Kind::L2ServiceAttachment, &"ns".into(), &format!("a{index}").into()));
        self.delete(&Key::cluster(Kind::L2Service, &format!("s{index}").into()));
    }

    /// One call of the engine, and the answers that are due. Returns true when nothing is left to be done.
    fn tick(&mut self) -> bool {
        let moment = Moment { at: NOW.into(), elapsed: self.now, deadline: NOW.into() };
        let result = self.engine.reconcile(&moment);
        let is_idle = result.is_idle() && result.next.is_none() && self.outstanding.is_empty();
        for effect in result.effects {
            self.carry_out(effect);
        }
        for (target, driver) in result.removed {
            self.outstanding.retain(|_, command| command.target != target);
            self.engine.handle(Event::Stream(StreamEvent::TargetRemoved(target, driver)));
        }
        for (participant, pending) in result.commands {
            self.commands += 1;
            let generation = pending.generation;
            let stored =
                StreamEvent::Published(participant.target.clone(), generation.clone(), generation.sequence);
            self.engine.handle(Event::Stream(stored));
            let outcome = match pending.transaction.map(|transaction| transaction.decision) {
                Some(None) => Outcome::Held,
                Some(Some(Decision::Abort)) => Outcome::RolledBack { reason: "aborted".into() },
                Some(Some(Decision::Confirm)) | None => Outcome::Applied,
            };
            // Different for each command, and the same in each run.
            let delay = Duration::from_millis(100 + self.commands * 7919 % 400);
            let command = Outstanding {
                target: participant.target,
                driver: participant.driver,
                generation,
                outcome,
                desired: participant.desired,
            };
            self.outstanding.insert((self.now + delay, self.commands), command);
        }
        self.now += TICK;
        self.engine.handle(Event::Time(self.now));
        while let Some(entry) = self.outstanding.first_entry()
            && entry.key().0 <= self.now
        {
            let command = entry.remove();
            self.report(command);
        }
        is_idle
    }

    fn report(&mut self, Outstanding { target, driver, generation, outcome, desired }: Outstanding) {
        let applied = match &*desired {
            Desired::Fabric(fabric) => carried_out(fabric),
            Desired::Nad(nad) => Applied::Nad { present: nad.attachment.is_some() },
            Desired::Node(_) | Desired::Speaker(_) => return,
        };
        let device = DeviceInfo { rollback: Some(Rollback::Persistent), ..DeviceInfo::default() };
        let report = Report {
            outcome,
            applied: Some(applied),
            device: Some(device),
            ..Report::new((&*driver, target.to_string()), generation, ("i", NOW))
        };
        self.engine.handle(Event::Report(target, Box::new(report)));
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::AddFinalizer(key) => {
                let Some(object) = self.objects.get_mut(&key) else { return };
                object.finalized = true;
                let object = object.clone();
                self.engine.handle(Event::Object(Box::new(object)));
            }
            Effect::RemoveFinalizer(key) => {
                self.objects.remove(&key);
                self.engine.handle(Event::ObjectGone(key));
            }
            Effect::Transition { key, status, .. } | Effect::Status { key, status } => {
                self.engine.handle(Event::StatusWritten(key, status.leased));
            }
            Effect::Await(key) => self.engine.handle(Event::AwaitElapsed(key)),
            _ => {}
        }
    }

    fn settle(&mut self) {
        while !self.tick() {}
    }

    /// Creates services and attachments while drivers answer.
    fn fill(&mut self, size: u16) {
        for index in 0..size {
            self.add(index);
            if index % PAIRS_PER_TICK == 0 {
                self.tick();
            }
        }
        self.settle();
    }

    fn empty(&mut self, size: u16) {
        for index in 0..size {
            self.remove(index);
            if index % PAIRS_PER_TICK == 0 {
                self.tick();
            }
        }
        self.settle();
    }
}

/// What a driver reads back that did all. Its own cost is small: every VLAN is on a port.
fn carried_out(fabric: &FabricDesired) -> Applied {
    let carrying = || fabric.ports.iter().filter(|port| !port.vlans.is_empty());
    Applied::Fabric {
        vlans: carrying().fold(VlanSet::EMPTY, |all, port| all.union(&port.vlans)),
        ports: carrying().map(|port| (port.name.clone(), port.vlans.clone())).collect(),
        carried: BTreeMap::new(),
        closed: Some(carrying().map(|port| port.name.clone()).collect()),
        before: BTreeMap::new(),
        vrfs: BTreeSet::new(),
        routed: VlanSet::EMPTY,
        lookup: None,
        bgp: BTreeMap::new(),
    }
}

/// Creates services, each with an attachment on all nodes, and deletes them.
#[divan::bench(args = [100, 1_000, 4_000], sample_count = 1, sample_size = 1)]
fn create_and_delete(bencher: Bencher, size: u16) {
    bencher.counter(ItemsCount::new(size)).with_inputs(Cluster::new).bench_local_values(|mut cluster| {
        cluster.fill(size);
        cluster.empty(size);
        assert!(cluster.objects.keys().all(|key| key.kind != Kind::L2Service));
        cluster.commands
    });
}

/// One service with an attachment on all nodes, created and deleted again, while these many are there: two changes of all
/// switches.
#[divan::bench(args = [100, 1_000, 4_000], sample_count = 10, sample_size = 1)]
fn one_change(bencher: Bencher, there: u16) {
    let mut cluster = Cluster::new();
    cluster.fill(there);
    bencher.counter(ItemsCount::new(2usize)).bench_local(|| {
        cluster.add(there);
        cluster.settle();
        cluster.remove(there);
        cluster.settle();
    });
}
