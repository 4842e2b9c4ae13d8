//! The state of ports before their first VLAN of ENO. Each command repeats it, also after a crash.

use std::collections::BTreeMap;

use eno_schemas::{Item, Note, PortBefore};

use crate::fixtures::{applied_fabric, device_key, leaf1_with_lag, moved_leaf1, ready_world, switch};
use crate::world::*;

fn before() -> PortBefore {
    PortBefore {
        trunk: true,
        settings: Some([("interface-mode".to_owned(), "TRUNK".to_owned())].into()),
        vlans: "100".parse().unwrap(),
    }
}

/// The initial port state in the last command of leaf1.
fn commanded(w: &World) -> BTreeMap<String, PortBefore> {
    before_by_port(&w.commanded_fabric("leaf1").ports)
}

fn in_status(w: &World) -> BTreeMap<String, PortBefore> {
    let before = &w.statuses[&device_key("leaf1")].port_memory.before;
    before.iter().map(|(name, before)| (name.to_string(), before.clone())).collect()
}

/// [`ready_world`], for which leaf1 reported the initial state of `e1`.
fn world_with_initial_state() -> World {
    let (mut w, ..) = ready_world();
    report_before(&mut w, &[("e1", before())]);
    w
}

fn report_before(w: &mut World, before: &[(&str, PortBefore)]) {
    let fabric = w.commanded_fabric("leaf1");
    let closed = fabric.ports.iter().filter(|port| port.closed).map(|port| port.name.clone()).collect();
    let before = before.iter().map(|(name, before)| ((*name).to_owned(), before.clone())).collect();
    let applied = applied_fabric(fabric, closed, before);
    w.report_applied("leaf1", applied);
}

fn e1_before() -> BTreeMap<String, PortBefore> {
    [("e1".to_owned(), before())].into()
}

#[test]
fn initial_state_is_in_status_and_in_the_next_command() {
    let mut w = world_with_initial_state();
    assert_eq!((in_status(&w), commanded(&w)), (e1_before(), e1_before()));
    report_before(&mut w, &[]);
    assert_eq!((in_status(&w), commanded(&w)), (BTreeMap::new(), BTreeMap::new()));
}

#[test]
fn vlan_taken_off_a_foreign_list_is_a_condition() {
    let mut w = world_with_initial_state();
    let note = Note { kind: "VlanTakenOff".into(), item: Item::port("e1"), message: "100 of e1".into() };
    w.notes.insert(switch("leaf1"), vec![note]);
    report_before(&mut w, &[("e1", before())]);
    let reported = condition(&w.statuses[&device_key("leaf1")], "VlanTakenOff").expect("a condition");
    assert!(reported.holds && reported.message.contains("100 of e1"), "{reported:?}");
    w.notes.clear();
    report_before(&mut w, &[]);
    assert!(condition(&w.statuses[&device_key("leaf1")], "VlanTakenOff").is_none());
}

#[test]
fn initial_state_is_restored_from_status() {
    let mut w = world_with_initial_state();
    w.nats.lose_streams();
    w.applied.clear();
    w.restart_and_settle();
    assert_eq!((in_status(&w), commanded(&w)), (e1_before(), e1_before()));
}

/// The engine crashes before it writes the state to the status.
#[test]
fn initial_state_is_restored_from_the_last_report() {
    let mut w = world_with_initial_state();
    w.statuses.get_mut(&device_key("leaf1")).unwrap().port_memory.before.clear();
    w.restart_and_settle();
    assert_eq!((in_status(&w), commanded(&w)), (e1_before(), e1_before()));
}

#[test]
fn initial_state_does_not_apply_to_another_interface_or_device() {
    for (restarts, address) in [(false, false), (true, false), (false, true), (true, true)] {
        let mut w = world_with_initial_state();
        let object = if address { moved_leaf1(&w) } else { leaf1_with_lag(&w, "po1") };
        w.apply_or_restart(object, restarts);
        assert!(!commanded(&w).contains_key("e1"), "{restarts} {address}");
        // The state stays for the former interface, but not for another device.
        assert_eq!(commanded(&w).contains_key("e1 (leaving)"), !address, "{restarts} {address}");
        assert_eq!(in_status(&w).contains_key("e1"), !address, "{restarts} {address}");
    }
}
