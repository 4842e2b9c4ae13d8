//! Drift of a switch with `Drift: Report`, and changes of its audit interval.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use eno_core::{ConditionReason, Key};
use eno_schemas::{Desired, Drift, Item, Note, Phase, VlanSet};

use crate::edits::edit_device;
use crate::fixtures::{applied_fabric, device_key, ready_world, switch};
#[allow(clippy::wildcard_imports, reason = "the tests use most of the simulated cluster")]
use crate::world::*;

/// leaf1 reports the commanded state; `lost`: without VLANs on `e1` and with a note of the drift.
fn report_leaf1(w: &mut World, lost: bool) {
    let mut fabric = w.commanded_fabric("leaf1").clone();
    for port in fabric.ports.iter_mut().filter(|port| lost && port.name == "e1") {
        port.vlans = VlanSet::EMPTY;
    }
    let note = Note { kind: "Drift".into(), item: Item::port("e1"), message: "VLAN 100 is gone".into() };
    w.notes.insert(switch("leaf1"), if lost { vec![note] } else { Vec::new() });
    w.report_applied("leaf1", applied_fabric(&fabric, None, BTreeMap::new()));
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
    assert!(w.engine.is_same_endpoint(&target, &"netconf".into(), &before[&target]));
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
