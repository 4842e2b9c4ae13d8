//! Drift of a switch with `Drift: Report`, and changes of its audit interval.

use std::num::NonZeroU32;

use eno_core::{About, ConditionReason, Key, NoticeKind};
use eno_schemas::{Desired, Drift, Item, Note, Phase, VLAN_TAKEN_OFF, VlanSet};

use crate::edits::edit_device;
use crate::fixtures::{device_key, ready_world, switch};
use crate::world::*;

/// leaf1 reports the commanded state; `lost`: without VLANs on `e1` and with a note of the drift.
fn report_leaf1(w: &mut World, lost: bool) {
    let mut fabric = w.commanded_fabric("leaf1").clone();
    for port in fabric.ports.iter_mut().filter(|port| lost && port.name == "e1") {
        port.vlans = VlanSet::EMPTY;
    }
    let note = Note { kind: "Drift".into(), item: Item::port("e1"), message: "VLAN 100 is gone".into() };
    w.notes.insert(switch("leaf1"), if lost { vec![note] } else { Vec::new() });
    w.report_applied("leaf1", fabric.carried_out());
}

#[test]
fn reported_drift_degrades_affected_objects() {
    let mut w = World::leaf_spine();
    w.apply(edit_device(&w.objects[&device_key("leaf1")], |spec| spec.device.drift = Drift::Report));
    let s = w.apply(service("s", 100, &[]));
    let a = w.apply(attachment("a", &["s"], "cp"));
    w.apply_and_settle(service("t", 200, &[]));
    let degraded = |w: &World, key: &Key| {
        let found = condition(&w.statuses[key], "Degraded").map(|one| (one.reason, one.message.clone()));
        (w.phase(key), found)
    };
    assert_eq!(degraded(&w, &a), (Phase::Ready, None));
    report_leaf1(&mut w, true);
    let expected =
        "FabricDevice leaf1: VLAN 100 on port e1 was changed by another hand; with Drift: Report it stays so";
    for key in [&s, &a] {
        assert_eq!(
            degraded(&w, key),
            (Phase::Ready, Some((ConditionReason::Drift, expected.to_owned()))),
            "{key}"
        );
    }
    report_leaf1(&mut w, false);
    assert_eq!((degraded(&w, &s), degraded(&w, &a)), ((Phase::Ready, None), (Phase::Ready, None)));
}

#[test]
fn audit_interval_change_does_not_affect_phases() {
    let (mut w, ..) = ready_world();
    let (leaf1, target) = (device_key("leaf1"), switch("leaf1"));
    let (before, statuses, published) = (w.commands.clone(), w.statuses.clone(), w.published);
    w.silent.insert(target.clone());
    w.apply_and_settle(edit_device(&w.objects[&leaf1], |spec| {
        spec.device.audit_interval = NonZeroU32::new(30);
    }));
    assert_eq!(w.published, published + 1, "only this switch is commanded");
    let mut fabric = w.commanded_fabric("leaf1").clone();
    assert_eq!(fabric.device.audit_interval.take(), NonZeroU32::new(30));
    assert_eq!(Desired::Fabric(fabric), before[&target], "nothing else of the command changes");
    let check = |w: &World| {
        for (key, status) in statuses.iter().filter(|(key, _)| **key != leaf1) {
            assert_eq!(&w.statuses[key], status, "{key}, while the switch has not answered");
        }
        assert_eq!((w.phase(&leaf1), w.statuses[&leaf1].observed_generation), (Phase::Ready, 2));
    };
    check(&w);
    w.end_silence();
    check(&w);
    w.restart_and_settle();
    assert_eq!(w.published, published + 1);
    check(&w);
}

/// The Events since the last call.
fn announced(w: &mut World) -> Vec<(NoticeKind, String)> {
    let notices = std::mem::take(&mut w.notices);
    notices
        .into_iter()
        .map(|(about, kind, messages)| {
            assert_eq!(about, About::Object(device_key("leaf1")));
            (kind, messages)
        })
        .collect()
}

/// leaf1 reports its last command with these notes, each of a kind and a message.
fn report_notes(w: &mut World, notes: &[(&str, &str)]) {
    let note = |(kind, message): &(&str, &str)| Note {
        kind: (*kind).into(),
        item: Item::TARGET,
        message: (*message).into(),
    };
    w.notes.insert(switch("leaf1"), notes.iter().map(note).collect());
    let fabric = w.commanded_fabric("leaf1").clone();
    w.report_applied("leaf1", fabric.carried_out());
}

#[test]
fn persisting_drift_is_announced_once() {
    let mut w = World::leaf_spine();
    w.apply_and_settle(edit_device(&w.objects[&device_key("leaf1")], |spec| {
        spec.device.drift = Drift::Report;
    }));
    let (a, b) = (("Drift", "a"), ("Drift", "b"));
    let taken_off = (VLAN_TAKEN_OFF, "c");
    let drift = |message: &str| (NoticeKind::Drift, message.to_owned());
    for (notes, expected) in [
        (&[a][..], vec![drift("a")]),
        (&[a, b], vec![drift("b")]),
        (&[a, b, ("OpenTrunk", "x")], vec![]),
        (&[], vec![]),
        // The drift was removed by a user and comes back.
        (&[a, b], vec![drift("a; b")]),
        (&[a, b, taken_off], vec![(NoticeKind::VlanTakenOff, "c".to_owned())]),
    ] {
        report_notes(&mut w, notes);
        assert_eq!(announced(&mut w), expected, "{notes:?}");
    }
    w.restart_and_settle();
    assert_eq!(announced(&mut w), [], "a new engine finds the report");
    report_notes(&mut w, &[a, b, taken_off]);
    assert_eq!(announced(&mut w), []);
}

#[test]
fn repaired_drift_is_announced_each_time() {
    let mut w = World::leaf_spine();
    let drift = [(NoticeKind::Drift, "a".to_owned())];
    w.drivers.change_ms.insert("leaf1".into(), 5);
    for _ in 0..2 {
        report_notes(&mut w, &[("Drift", "a")]);
        assert_eq!(announced(&mut w), drift);
    }
    // Drift that could not be repaired stays.
    w.drivers.change_ms.clear();
    report_notes(&mut w, &[("Drift", "a")]);
    assert_eq!(announced(&mut w), drift);
    report_notes(&mut w, &[("Drift", "a")]);
    assert_eq!(announced(&mut w), []);
}

#[test]
fn repair_of_a_node_is_about_the_object_the_pod_or_the_node() {
    let mut w = World::with_agents();
    let c = w.apply(pod_config("c", vec![veth("pc0", "pcbr0", "10.9.0.0/24")]));
    w.apply_pod_and_settle(pod("p", "node1", &[("podconfig", "c")]));
    let pod = About::Pod { namespace: "ns".into(), name: "p".into(), uid: "uid-p".into() };
    let node = || About::Node("node1".into());
    let repairs = [
        ("Repaired", Item::link("uid-p", "PodConfig/c/pc0"), Some(About::Object(c))),
        ("Repaired", Item::link("uid-p", "PodConfig/gone/pc0"), Some(pod)),
        ("Repaired", Item::port("br-data"), Some(node())),
        ("Repaired", Item::pod("another"), Some(node())),
        ("Stale", Item::port("br-data"), None),
    ];
    let note = |(kind, item, _): &(&str, Item, _)| Note {
        kind: (*kind).into(),
        item: item.clone(),
        message: "m".into(),
    };
    w.notes.insert(node_target("node1"), repairs.iter().map(note).collect());
    w.run_driver_again(&node_target("node1"));
    let expected =
        repairs.into_iter().filter_map(|(.., about)| Some((about?, NoticeKind::Repaired, "m".to_owned())));
    assert_eq!(w.notices, expected.collect::<Vec<_>>());
}
