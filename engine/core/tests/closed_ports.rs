//! Closed ports: trunks that a driver reported with a VLAN list. Each command repeats them, also after a crash.

use std::collections::BTreeMap;

use eno_core::spec::{LeadsTo, Spec};
use eno_core::{Key, Kind, Target};
use eno_schemas::{Applied, Desired, Outcome, Phase};

#[allow(clippy::wildcard_imports, reason = "the tests use most of the simulated cluster")]
use crate::world::*;

fn leaf1() -> (Key, Target) {
    (Key::cluster(Kind::FabricDevice, &"leaf1".into()), Target::Fabric("leaf1".into()))
}

/// The closed ports in the last command of leaf1.
fn commanded(w: &World) -> Vec<&str> {
    let Desired::Fabric(fabric) = &w.commands[&leaf1().1] else { panic!("no switch") };
    fabric.ports.iter().filter(|port| port.closed).map(|port| port.name.as_str()).collect()
}

fn in_status(w: &World) -> Vec<&str> {
    w.statuses[&leaf1().0].port_memory.closed.iter().map(|name| &**name).collect()
}

/// A ready service on the ports `e1`, `e2`, `u1` and `u2` of leaf1.
fn ready_world() -> (World, Key) {
    let mut w = World::leaf_spine();
    let s = w.apply(service("s", 100, &["dc"]));
    w.apply(attachment("a", &["s"], "cp"));
    w.settle();
    assert_eq!(w.phase(&s), Phase::Ready);
    (w, s)
}

/// leaf1 reports its last command as applied, with these closed ports.
fn report_closed(w: &mut World, outcome: Outcome, closed: &[&str]) {
    let desired = w.commands[&leaf1().1].clone();
    report_closed_for(w, &desired, outcome, closed);
}

/// [`report_closed`] for another command.
fn report_closed_for(w: &mut World, desired: &Desired, outcome: Outcome, closed: &[&str]) {
    let Desired::Fabric(fabric) = desired else { panic!("no switch") };
    let applied = Applied::Fabric {
        vlans: fabric.vlans.iter().map(|vlan| vlan.vid).collect(),
        ports: fabric.ports.iter().map(|port| (port.name.clone(), port.vlans.clone())).collect(),
        carried: BTreeMap::new(),
        closed: Some(closed.iter().map(|name| (*name).to_owned()).collect()),
        before: BTreeMap::new(),
    };
    w.report(&leaf1().1, desired.hash(), outcome, Some(applied), Vec::new());
}

const ALL: [&str; 4] = ["e1", "e2", "u1", "u2"];

#[test]
fn closed_ports_are_in_status_and_in_the_next_command() {
    let (mut w, s) = ready_world();
    assert_eq!((in_status(&w), commanded(&w)), (ALL.into(), ALL.into()));
    // The service does not wait for them.
    assert_eq!(w.phases[&s], [Phase::Pending, Phase::Ready]);
    let (published, statuses) = (w.published, w.statuses.clone());
    w.restart();
    w.settle();
    assert_eq!((w.published, &w.statuses), (published, &statuses));
}

#[test]
fn closed_ports_are_restored_from_status() {
    let (mut w, _) = ready_world();
    w.commands.clear();
    w.applied.clear();
    w.restart();
    w.silent.insert(leaf1().1);
    w.settle();
    assert_eq!((in_status(&w), commanded(&w)), (ALL.into(), ALL.into()));
}

/// The engine crashes before it writes them to the status.
#[test]
fn closed_ports_are_restored_from_the_last_report() {
    let (mut w, _) = ready_world();
    w.statuses.get_mut(&leaf1().0).unwrap().port_memory.closed.clear();
    w.restart();
    w.silent.insert(leaf1().1);
    w.settle();
    assert_eq!((in_status(&w), commanded(&w)), (ALL.into(), ALL.into()));
    let drift = condition(&w.statuses[&leaf1().0], "Drift");
    assert_eq!(drift.map(|drift| drift.holds), Some(false));
}

#[test]
fn held_report_does_not_change_closed_ports() {
    let (mut w, _) = ready_world();
    report_closed(&mut w, Outcome::Held, &["e1"]);
    w.settle();
    assert_eq!((in_status(&w), commanded(&w)), (ALL.into(), ALL.into()));
    w.silent.insert(leaf1().1);
    report_closed(&mut w, Outcome::RolledBack { reason: "r".into() }, &["e1"]);
    w.settle();
    assert_eq!((in_status(&w), commanded(&w)), (vec!["e1"], vec!["e1"]));
}

#[test]
fn closed_ports_end_with_their_last_vlan() {
    let (mut w, _) = ready_world();
    w.delete(&Key::namespaced(Kind::L2ServiceAttachment, &"ns".into(), &"a".into()));
    w.settle();
    assert_eq!((in_status(&w), commanded(&w)), (vec![], vec![]));
}

#[test]
fn closed_ports_end_when_the_port_is_removed() {
    let (mut w, _) = ready_world();
    w.silent.insert(leaf1().1);
    let ports = [("e2", LeadsTo::Node { node: "node2".into(), interface: "eth1".into() })];
    w.apply(device("leaf1", &ports));
    w.settle();
    assert_eq!((in_status(&w), commanded(&w)), (vec!["e2"], vec!["e2"]));
    w.apply(device("leaf1", &[&ports[..], &[("e1", LeadsTo::PhysicalNetwork("dc".into()))]].concat()));
    w.settle();
    assert_eq!((in_status(&w), commanded(&w)), (vec!["e2"], vec!["e2"]));
}

#[test]
fn changed_address_clears_closed_ports() {
    for restarts in [false, true] {
        let (mut w, _) = ready_world();
        w.silent.insert(leaf1().1);
        let mut moved = w.objects[&leaf1().0].clone();
        if let Ok(Spec::Device(spec)) = &mut moved.spec {
            spec.device.address = "192.0.2.1:830".into();
        }
        w.apply(moved);
        if restarts {
            w.commands.clear();
            w.applied.clear();
            w.restart();
        }
        w.settle();
        assert_eq!((in_status(&w), commanded(&w)), (vec![], vec![]), "{restarts}");
    }
}

/// leaf1 at another address.
fn moved(w: &World) -> eno_core::Object {
    edit_spec(&w.objects[&leaf1().0], |spec| {
        if let Spec::Device(spec) = spec {
            spec.device.address = "192.0.2.1:830".into();
        }
    })
}

/// leaf1 with `e1` in a LAG.
fn in_lag(w: &World) -> eno_core::Object {
    edit_spec(&w.objects[&leaf1().0], |spec| {
        if let Spec::Device(spec) = spec {
            let port = spec.ports.iter_mut().find(|port| &*port.name == "e1");
            port.expect("a port e1").lag = Some("po1".into());
        }
    })
}

#[test]
fn last_report_of_another_device_is_ignored_after_a_restart() {
    let (mut w, _) = ready_world();
    w.silent.insert(leaf1().1);
    // No engine runs when the address changes. The last command and the last report are still stored.
    let object = moved(&w);
    w.objects.insert(leaf1().0, object);
    w.restart();
    w.settle();
    assert_eq!((in_status(&w), commanded(&w)), (vec![], vec![]));
}

#[test]
fn late_report_of_another_device_is_ignored() {
    let (mut w, _) = ready_world();
    w.silent.insert(leaf1().1);
    let desired = w.commands[&leaf1().1].clone();
    w.apply(moved(&w));
    w.settle();
    report_closed_for(&mut w, &desired, Outcome::Applied, &ALL);
    w.settle();
    assert_eq!((in_status(&w), commanded(&w)), (vec![], vec![]));
    // A report of the new device counts.
    report_closed(&mut w, Outcome::Applied, &["e2"]);
    w.settle();
    assert_eq!((in_status(&w), commanded(&w)), (vec!["e2"], vec!["e2"]));
}

#[test]
fn port_that_joins_a_lag_is_not_closed() {
    for restarts in [false, true] {
        let (mut w, _) = ready_world();
        w.silent.insert(leaf1().1);
        let object = in_lag(&w);
        if restarts {
            w.objects.insert(leaf1().0, object);
            w.restart();
        } else {
            w.apply(object);
        }
        w.settle();
        let rest = &ALL[1..];
        assert_eq!((in_status(&w), commanded(&w)), (rest.into(), rest.into()), "{restarts}");
    }
}
