//! The cost of one more pod on a node where all pods have an interface of the same PodConfig. Measured are the effects
//! of the event, the lease and the node's desired state.
//!
//! `cargo bench -p eno-core --bench pods`

#[path = "../tests/nats/mod.rs"]
mod nats;
#[path = "../tests/world/mod.rs"]
mod world;

use divan::Bencher;
use eno_core::{Event, Key, Kind, Target};
#[allow(clippy::wildcard_imports, reason = "the tests use most of the simulated cluster")]
use world::*;

fn main() {
    divan::main();
}

fn populated_world(pods: usize) -> World {
    let mut world = World::with_agents();
    world.apply(pod_config("c", vec![veth("pc0", "pcbr0", "10.0.0.0/16")]));
    for i in 0..pods {
        world.apply_pod(pod(&format!("p{i}"), "node1", &[("podconfig", "c")]));
    }
    world.settle();
    world
}

/// Adds and removes a pod.
#[divan::bench(args = [0, 200, 1_000])]
fn add_and_remove_pod(bencher: Bencher, pods: usize) {
    let mut world = populated_world(pods);
    let extra = pod("extra", "node1", &[("podconfig", "c")]);
    let key = Key::namespaced(Kind::PodConfig, &to_name("ns"), &to_name("c"));
    bencher.bench_local(|| {
        world.engine.handle(Event::Pod(Box::new(extra.clone())));
        world.reconcile();
        let leased = world.engine.status(&key).map_or(0, |status| status.leased);
        world.engine.handle(Event::StatusWritten(key.clone(), leased));
        world.reconcile();
        let desired = world.engine.desired(&Target::Node("node1".into()));
        world.engine.handle(Event::PodGone(extra.uid.clone()));
        (desired, world.reconcile().effects.len())
    });
}

/// Adds and removes a VLAN on the nodes of a ConnectionPoint.
#[divan::bench(args = [10, 100, 500])]
fn add_and_remove_vlan(bencher: Bencher, nodes: usize) {
    let mut world = World::new(false, true);
    for i in 0..nodes {
        world.apply_node(&format!("n{i}"), true, true);
    }
    world.apply_leaf_spine();
    for i in 0..1_000u16 {
        world.apply(service(&format!("s{i}"), 10 + i, &[]));
        world.apply(attachment(&format!("a{i}"), &[&format!("s{i}")], "cp"));
    }
    world.apply(service("extra", 4000, &[]));
    world.settle();
    let mut object = attachment("extra", &["extra"], "cp");
    (object.finalized, object.uid) = (true, "extra".into());
    bencher.bench_local(|| {
        world.engine.handle(Event::Object(Box::new(object.clone())));
        let effects = world.reconcile().effects.len();
        world.engine.handle(Event::ObjectGone(object.key.clone()));
        effects + world.reconcile().effects.len()
    });
}
