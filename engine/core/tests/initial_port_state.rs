//! The state of ports before their first VLAN of ENO. Each command repeats it, also after a crash.

use std::collections::BTreeMap;

use eno_core::{Key, Kind, Target};
use eno_schemas::{Applied, Desired, Item, Note, Outcome, Phase, PortBefore};

#[allow(clippy::wildcard_imports, reason = "the tests use most of the simulated cluster")]
use crate::world::*;

fn leaf1() -> (Key, Target) {
    (Key::cluster(Kind::FabricDevice, &"leaf1".into()), Target::Fabric("leaf1".into()))
}

fn before() -> PortBefore {
    PortBefore {
        trunk: true,
        settings: Some([("interface-mode".to_owned(), "TRUNK".to_owned())].into()),
        vlans: "100".parse().unwrap(),
    }
}

/// The initial port state in the last command of leaf1.
fn commanded(w: &World) -> BTreeMap<String, PortBefore> {
    let Desired::Fabric(fabric) = &w.commands[&leaf1().1] else { panic!("no switch") };
    fabric.ports.iter().filter_map(|port| Some((port.name.clone(), port.before.clone()?))).collect()
}

fn in_status(w: &World) -> BTreeMap<String, PortBefore> {
    let before = &w.statuses[&leaf1().0].port_memory.before;
    before.iter().map(|(name, before)| (name.to_string(), before.clone())).collect()
}

/// A ready service, for which leaf1 reported the initial state of `e1`.
fn ready_world() -> World {
    let mut w = World::leaf_spine();
    let s = w.apply(service("s", 100, &["dc"]));
    w.apply(attachment("a", &["s"], "cp"));
    w.settle();
    assert_eq!(w.phase(&s), Phase::Ready);
    report_before(&mut w, &[("e1", before())]);
    w
}

fn report_before(w: &mut World, before: &[(&str, PortBefore)]) {
    let desired = w.commands[&leaf1().1].clone();
    let Desired::Fabric(fabric) = &desired else { panic!("no switch") };
    let applied = Applied::Fabric {
        vlans: fabric.vlans.iter().map(|vlan| vlan.vid).collect(),
        ports: fabric.ports.iter().map(|port| (port.name.clone(), port.vlans.clone())).collect(),
        carried: BTreeMap::new(),
        closed: Some(fabric.ports.iter().filter(|port| port.closed).map(|port| port.name.clone()).collect()),
        before: before.iter().map(|(name, before)| ((*name).to_owned(), before.clone())).collect(),
    };
    w.report(&leaf1().1, desired.hash(), Outcome::Applied, Some(applied), Vec::new());
    w.settle();
}

fn e1_before() -> BTreeMap<String, PortBefore> {
    [("e1".to_owned(), before())].into()
}

#[test]
fn initial_state_is_in_status_and_in_the_next_command() {
    let mut w = ready_world();
    assert_eq!((in_status(&w), commanded(&w)), (e1_before(), e1_before()));
    report_before(&mut w, &[]);
    assert_eq!((in_status(&w), commanded(&w)), (BTreeMap::new(), BTreeMap::new()));
}

#[test]
fn vlan_taken_off_a_foreign_list_is_a_condition() {
    let mut w = ready_world();
    let note = Note { kind: "VlanTakenOff".into(), item: Item::port("e1"), message: "100 of e1".into() };
    w.notes.insert(leaf1().1, vec![note]);
    report_before(&mut w, &[("e1", before())]);
    let reported = condition(&w.statuses[&leaf1().0], "VlanTakenOff").expect("a condition");
    assert!(reported.holds && reported.message.contains("100 of e1"), "{reported:?}");
    w.notes.clear();
    report_before(&mut w, &[]);
    assert!(condition(&w.statuses[&leaf1().0], "VlanTakenOff").is_none());
}

#[test]
fn initial_state_is_restored_from_status() {
    let mut w = ready_world();
    w.commands.clear();
    w.applied.clear();
    w.restart();
    w.settle();
    assert_eq!((in_status(&w), commanded(&w)), (e1_before(), e1_before()));
}

/// The engine crashes before it writes the state to the status.
#[test]
fn initial_state_is_restored_from_the_last_report() {
    let mut w = ready_world();
    w.statuses.get_mut(&leaf1().0).unwrap().port_memory.before.clear();
    w.restart();
    w.settle();
    assert_eq!((in_status(&w), commanded(&w)), (e1_before(), e1_before()));
}

#[test]
fn initial_state_does_not_apply_to_another_interface_or_device() {
    for (restarts, address) in [(false, false), (true, false), (false, true), (true, true)] {
        let mut w = ready_world();
        let object = edit_spec(&w.objects[&leaf1().0], |spec| {
            let eno_core::spec::Spec::Device(spec) = spec else { panic!("no switch") };
            if address {
                spec.device.address = "192.0.2.1:830".into();
            } else {
                let port = spec.ports.iter_mut().find(|port| &*port.name == "e1");
                port.expect("a port e1").lag = Some("po1".into());
            }
        });
        if restarts {
            w.objects.insert(leaf1().0, object);
            w.restart();
        } else {
            w.apply(object);
        }
        w.settle();
        assert!(!commanded(&w).contains_key("e1"), "{restarts} {address}");
        // The state stays for the former interface, but not for another device.
        assert_eq!(commanded(&w).contains_key("e1 (leaving)"), !address, "{restarts} {address}");
        assert_eq!(in_status(&w).contains_key("e1"), !address, "{restarts} {address}");
    }
}
