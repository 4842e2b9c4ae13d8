//! Drift of a switch with `Drift: Report`, and changes of its audit interval.

use std::num::NonZeroU32;

use eno_core::{ConditionReason, Key, Target};
use eno_schemas::{Applied, Desired, Drift, Item, Note, Outcome, Phase, VlanSet};

#[allow(clippy::wildcard_imports, reason = "the tests use most of the simulated cluster")]
use crate::world::*;

/// leaf1 reports the commanded state; `lost`: without VLANs on `e1` and with a note of the drift.
fn report_leaf1(w: &mut World, lost: bool) {
    let target = Target::Fabric("leaf1".into());
    let Desired::Fabric(fabric) = w.commands[&target].clone() else { panic!("no switch") };
    let vlans = |port: &eno_schemas::FabricPort| {
        if lost && port.name == "e1" { VlanSet::EMPTY } else { port.vlans.clone() }
    };
    let applied = Applied::Fabric {
        vlans: fabric.vlans.iter().map(|vlan| vlan.vid).collect(),
        ports: fabric.ports.iter().map(|port| (port.name.clone(), vlans(port))).collect(),
        carried: std::collections::BTreeMap::new(),
        closed: None,
        before: [].into(),
    };
    let note = Note { kind: "Drift".into(), item: Item::port("e1"), message: "VLAN 100 is gone".into() };
    w.notes.insert(target.clone(), if lost { vec![note] } else { Vec::new() });
    let hash = w.commands[&target].hash();
    w.report(&target, hash, Outcome::Applied, Some(applied), Vec::new());
    w.settle();
}

#[test]
fn reported_drift_degrades_affected_objects() {
    let mut w = World::leaf_spine();
    let leaf1 = w.objects.keys().find(|key| &*key.name == "leaf1").unwrap().clone();
    w.apply(edit_spec(&w.objects[&leaf1].clone(), |spec| {
        let eno_core::spec::Spec::Device(spec) = spec else { unreachable!() };
        spec.device.drift = Drift::Report;
    }));
    let s = w.apply(service("s", 100, &[]));
    let a = w.apply(attachment("a", &["s"], "cp"));
    w.apply(service("t", 200, &[]));
    w.settle();
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
    let mut w = World::leaf_spine();
    let leaf1 = w.objects.keys().find(|key| &*key.name == "leaf1").unwrap().clone();
    w.apply(service("s", 100, &["dc"]));
    w.apply(attachment("a", &["s"], "cp"));
    w.settle();
    let target = Target::Fabric("leaf1".into());
    let (before, statuses, published) = (w.commands.clone(), w.statuses.clone(), w.published);
    w.silent.insert(target.clone());
    w.apply(edit_spec(&w.objects[&leaf1].clone(), |spec| {
        let eno_core::spec::Spec::Device(spec) = spec else { unreachable!() };
        spec.device.audit_interval = NonZeroU32::new(30);
    }));
    w.settle();
    assert_eq!(w.published, published + 1, "only this switch is commanded");
    let Desired::Fabric(mut fabric) = w.commands[&target].clone() else { panic!("no switch") };
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
    w.silent.clear();
    w.settle();
    check(&w);
    w.restart();
    w.settle();
    assert_eq!(w.published, published + 1);
    check(&w);
}
