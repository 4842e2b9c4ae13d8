//! Ready objects stay ready with a new engine unless their inputs have changed.

use eno_core::spec::LeadsTo;
use eno_core::{Key, Object, Target};
use eno_schemas::Phase;

#[allow(clippy::wildcard_imports, reason = "the tests use most of the simulated cluster")]
use crate::world::*;

/// The ready services `s` and `t`, and the ready attachment `a` of `s`.
fn ready_world() -> (World, Key, Key) {
    let mut w = World::leaf_spine();
    let s = w.apply(service("s", 100, &["dc"]));
    w.apply(service("t", 200, &["dc"]));
    let a = w.apply(attachment("a", &["s"], "cp"));
    w.settle();
    assert_eq!((w.phase(&s), w.phase(&a)), (Phase::Ready, Phase::Ready));
    (w, s, a)
}

/// The engine crashes before it settles a change, and `leaf1` is silent for the next one.
fn crash_before_settling(w: &mut World, change: Object) {
    w.apply(change);
    w.restart();
    w.silent.insert(Target::Fabric("leaf1".into()));
    w.settle();
}

#[test]
fn changed_reference_is_detected_after_a_restart() {
    let (mut w, s, a) = ready_world();
    crash_before_settling(&mut w, service("s", 101, &["dc"]));
    assert_eq!((w.phase(&s), w.phase(&a)), (Phase::Pending, Phase::Pending));
    w.silent.clear();
    w.settle();
    assert_eq!(w.phases[&s], [Phase::Pending, Phase::Ready, Phase::Pending, Phase::Ready]);
    assert_eq!(w.phases[&a], w.phases[&s]);
}

#[test]
fn unrelated_change_keeps_objects_ready_after_a_restart() {
    let (mut w, s, a) = ready_world();
    w.apply_node("node5", true, true);
    let ports = [("e1", "node1"), ("e2", "node2"), ("e3", "node5")];
    let mut ports: Vec<_> = ports
        .map(|(port, node)| (port, LeadsTo::Node { node: node.into(), interface: "eth1".into() }))
        .into();
    let spines = [("u1", "spine1"), ("u2", "spine2")];
    ports
        .extend(spines.map(|(port, to)| (port, LeadsTo::Device { device: to.into(), port: "leaf1".into() })));
    crash_before_settling(&mut w, device("leaf1", &ports));
    assert!(!w.carrying_ports(100).contains(&"leaf1:e3".to_owned()));
    assert_eq!((w.phase(&s), w.phase(&a)), (Phase::Ready, Phase::Ready));
    w.silent.clear();
    w.settle();
    assert!(w.carrying_ports(100).contains(&"leaf1:e3".to_owned()));
    assert_eq!((w.phases[&s].len(), w.phases[&a].len()), (2, 2));
}

/// Statuses of an engine that did not record the inputs of ready objects.
#[test]
fn missing_ready_inputs_fall_back_to_the_generation() {
    let (mut w, s, a) = ready_world();
    w.statuses.values_mut().for_each(|status| status.ready_inputs = None);
    crash_before_settling(&mut w, service("s", 101, &["dc"]));
    assert_eq!((w.phase(&s), w.phase(&a)), (Phase::Pending, Phase::Ready));
    // The engine does not write statuses only to add the inputs.
    let (mut w, ..) = ready_world();
    w.statuses.values_mut().for_each(|status| status.ready_inputs = None);
    let before = w.statuses.clone();
    w.restart();
    w.settle();
    assert_eq!(w.statuses, before);
}

#[test]
fn ready_inputs_are_in_status_while_ready() {
    let (mut w, s, a) = ready_world();
    let ready_inputs = |w: &World, key: &Key| w.statuses[key].ready_inputs;
    let before = ready_inputs(&w, &a);
    assert!(before.is_some() && ready_inputs(&w, &s).is_some());
    w.silent.insert(Target::Fabric("leaf1".into()));
    w.apply(service("s", 101, &["dc"]));
    w.settle();
    assert_eq!((w.phase(&a), ready_inputs(&w, &a)), (Phase::Pending, None));
    w.silent.clear();
    w.settle();
    assert!(ready_inputs(&w, &a).is_some() && ready_inputs(&w, &a) != before);
    let none = w.statuses.iter().filter(|(_, status)| status.ready_inputs.is_none());
    let kinds: Vec<_> = none.map(|(key, _)| key.kind.as_str()).collect();
    assert_eq!(kinds, ["NodePool", "PhysicalNetwork"]);
}

#[test]
fn terminating_device_is_drained_after_a_restart() {
    let (mut w, ..) = ready_world();
    let leaf1 = Key::cluster(eno_core::Kind::FabricDevice, &"leaf1".into());
    w.silent.insert(Target::Fabric("leaf1".into()));
    w.delete(&leaf1);
    w.settle();
    w.restart();
    w.settle();
    assert_eq!(w.phase(&leaf1), Phase::Terminating);
    w.silent.clear();
    w.settle();
    assert_eq!(w.objects.get(&leaf1).map(|object| &object.key), None);
    assert_eq!(w.carrying_ports(100).iter().filter(|port| port.starts_with("leaf1")).count(), 0);
}
