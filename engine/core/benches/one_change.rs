//! The cost of one change with N services, each with one access attachment, on a fabric of 4 switches. Measured are the
//! effects of an event. VLAN IDs repeat every 4,000 services, on ConnectionPoints of
//! their own, so that N can exceed them.
//!
//! `cargo bench -p eno-core`

#[path = "../tests/nats/mod.rs"]
mod nats;
#[path = "../tests/world/mod.rs"]
mod world;

use divan::{Bencher, counter::ItemsCount};
use eno_core::kinds::LeadsTo;
use eno_core::{Event, StreamEvent};
#[allow(clippy::wildcard_imports, reason = "the tests use most of the simulated cluster")]
use world::*;

fn main() {
    divan::main();
}

const SIZES: [u32; 3] = [1_000, 10_000, 100_000];

fn populated_world(size: u32) -> World {
    let mut world = World::leaf_spine();
    for i in 0..size {
        let vid = u16::try_from(i % 4000 + 10).unwrap();
        let point_name = if i < 4000 { "cp".to_owned() } else { format!("cp{}", i / 4000) };
        if i % 4000 == 0 && i > 0 {
            let mut point = connection_point(&point_name, None);
            let Ok(eno_core::kinds::Spec::ConnectionPoint(spec)) = &mut point.spec else { unreachable!() };
            spec.interfaces.clear();
            spec.cnis.truncate(1);
            world.apply(point);
        }
        world.apply(service(&format!("s{i}"), vid, &[]));
        world.apply(attachment(&format!("a{i}"), &[&format!("s{i}")], &point_name));
    }
    world.settle();
    world
}

/// Adds and removes an attachment: two changes.
#[divan::bench(args = SIZES)]
fn attach_and_detach(bencher: Bencher, size: u32) {
    let mut world = populated_world(size);
    let mut object = attachment("extra", &["s7"], "cp");
    (object.finalized, object.uid) = (true, "extra".into());
    bencher.counter(ItemsCount::new(2usize)).bench_local(|| {
        world.engine.handle(Event::Object(Box::new(object.clone())));
        let effects = world.reconcile().effects.len();
        world.engine.handle(Event::ObjectGone(object.key.clone()));
        effects + world.reconcile().effects.len()
    });
}

/// Changes the VLAN ID of a service, in turn to 4094 and 17: one change of four switches and one NAD.
#[divan::bench(args = SIZES)]
fn renumber(bencher: Bencher, size: u32) {
    let mut world = populated_world(size);
    let key = eno_core::Key::cluster(eno_core::Kind::L2Service, &"s7".into());
    let mut object = world.objects[&key].clone();
    bencher.counter(ItemsCount::new(1usize)).bench_local(|| {
        object.generation += 1;
        let Ok(eno_core::kinds::Spec::Service(spec)) = &mut object.spec else { unreachable!() };
        spec.vid = eno_schemas::VlanId::new(if spec.vid.get() == 4094 { 17 } else { 4094 }).unwrap();
        world.engine.handle(Event::Object(Box::new(object.clone())));
        world.reconcile().effects.len()
    });
}

/// Groups switches of which each has every network to change, and renders their commands. Arguments: number of switches
/// and of networks.
#[divan::bench(args = [(8, 500), (8, 4_000), (64, 500), (64, 4_000)])]
fn command_all_switches(bencher: Bencher, (switches, networks): (u16, u16)) {
    let mut world = World::default();
    world.apply(device("spine", &[]));
    for i in 1..switches {
        let (leaf, node) = (format!("leaf{i}"), format!("n{i}"));
        world.apply_node(&node, true, true);
        let up = LeadsTo::Device { device: "spine".into(), port: leaf.as_str().into() };
        let down = LeadsTo::Node { node: node.as_str().into(), interface: "eth1".into() };
        world.apply(device(&leaf, &[("e1", down), ("u1", up)]));
    }
    world.apply(connection_point("cp", None));
    world.settle();
    for i in 0..networks {
        world.apply(service(&format!("s{i}"), 10 + i, &[]));
        world.apply(attachment(&format!("a{i}"), &[&format!("s{i}")], "cp"));
    }
    world.settle();
    bencher.bench_local(|| {
        world.engine.handle(Event::Stream(StreamEvent::StreamsLost));
        world.reconcile().commands.len()
    });
}
