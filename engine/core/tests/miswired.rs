//! Cables in other ports than FabricDevices say: when switches are asked, and what follows from their answers.

use std::collections::BTreeSet;

use eno_core::kinds::LeadsTo;
use eno_core::{ConditionReason, ConditionType, Event, Key, Kind};
use eno_schemas::{NO_MAC_TABLE, Note, VlanId};

use crate::edits::edit_device;
use crate::fixtures::{device_key, switch, vid};
use crate::verification::ask;
use crate::world::*;

/// The message of the condition Miswired of a switch.
fn miswired(w: &World, name: &str) -> Option<String> {
    let conditions = &w.statuses[&device_key(name)].conditions;
    let found = conditions.iter().find(|one| one.kind == ConditionType::Miswired)?;
    assert!(found.holds && found.reason == ConditionReason::OtherPort);
    Some(found.message.clone())
}

/// What a switch was asked last.
fn asked(w: &World, name: &str) -> Option<String> {
    w.actual(&to_name(name)).and_then(|state| state.lookup.clone())
}

/// The cables of two nodes are swapped: each is in the port of the other.
fn swap(w: &mut World, [one, other]: [(&str, &str, &str); 2]) {
    for ((node, ..), (_, device, port)) in [(one, other), (other, one)] {
        w.cables.insert(node.into(), (device.into(), port.into()));
    }
}

const NODE1: (&str, &str, &str) = ("node1", "leaf1", "e1");
const NODE2: (&str, &str, &str) = ("node2", "leaf1", "e2");
const NODE3: (&str, &str, &str) = ("node3", "leaf2", "e1");

/// The service `s` with its attachment `a` at `cp`.
fn attach(w: &mut World) {
    w.apply(service("s", 100, &["dc"]));
    w.apply_and_settle(attachment("a", &["s"], "cp"));
}

/// Packets of a node are lost on this VLAN, so that its switch is asked anew. Then they pass again.
fn lose_and_heal(w: &mut World, node: &str, vlan: VlanId) {
    w.probe_with(|probing| _ = probing.lost.insert((node.into(), vlan)));
    w.probe_with(|probing| probing.lost.clear());
}

#[test]
fn right_cabling_is_no_condition_and_costs_one_question() {
    let mut w = World::with_agents();
    assert_eq!((asked(&w, "leaf1"), asked(&w, "leaf2")), (None, None), "nothing is probed");
    attach(&mut w);
    assert!(asked(&w, "leaf1").is_some() && asked(&w, "leaf2").is_some());
    assert_eq!(asked(&w, "spine1"), None, "no node is at it");
    let stations = &w.answers["leaf1"].stations;
    assert!(
        stations.iter().any(|one| one.port == "e1") && stations.iter().any(|one| one.port.starts_with('u'))
    );
    assert_eq!((miswired(&w, "leaf1"), miswired(&w, "leaf2")), (None, None));
    // More VLANs, and the same results, ask nothing.
    let before = (asked(&w, "leaf1"), asked(&w, "leaf2"));
    w.apply(service("t", 200, &[]));
    w.apply_and_settle(attachment("b", &["t"], "cp"));
    w.probe();
    assert_eq!((asked(&w, "leaf1"), asked(&w, "leaf2")), before);
    let published = w.published;
    w.probe();
    w.restart_and_settle();
    assert_eq!(w.published, published, "nothing is left to do");
}

#[test]
fn path_that_changes_asks_nothing() {
    let mut w = World::with_agents();
    attach(&mut w);
    let before = asked(&w, "leaf1");
    let gateway = edit_device(&w.objects[&device_key("leaf2")], |spec| {
        let port = eno_core::kinds::DevicePort {
            name: "gw2".into(),
            leads_to: LeadsTo::PhysicalNetwork("dc".into()),
            ..spec.ports[0].clone()
        };
        spec.ports.push(port);
    });
    w.silent.insert(switch("leaf2"));
    w.apply_and_settle(gateway);
    assert_eq!(w.probes_of("node1"), []);
    let published = w.published;
    w.restart_and_settle();
    assert_eq!((w.published, asked(&w, "leaf1")), (published, before.clone()));
    w.end_silence();
    assert_eq!(asked(&w, "leaf1"), before);
    w.restart_and_settle();
    assert_eq!(asked(&w, "leaf1"), before);
}

#[test]
fn swapped_cables_of_one_switch_are_named_with_both_ports() {
    let mut w = World::with_agents();
    swap(&mut w, [NODE1, NODE2]);
    attach(&mut w);
    let message = "node1 eth1 is in e2, and Ports says e1 (e2: node2 eth1); \
                   node2 eth1 is in e1, and Ports says e2 (e1: node1 eth1)";
    assert_eq!(miswired(&w, "leaf1").as_deref(), Some(message));
    assert_eq!(miswired(&w, "leaf2"), None, "it learns them on a link");
    let published = w.published;
    w.restart_and_settle();
    assert_eq!((w.published, miswired(&w, "leaf1").as_deref()), (published, Some(message)));
    // The cables are put right: the next question tells.
    w.cables.clear();
    lose_and_heal(&mut w, "node1", vid(100));
    assert_eq!(miswired(&w, "leaf1"), None);
}

#[test]
fn new_probes_on_request_tell_of_a_cable_that_was_put_right() {
    let mut w = World::with_agents();
    swap(&mut w, [NODE1, NODE2]);
    attach(&mut w);
    w.cables.clear();
    w.probe();
    assert!(miswired(&w, "leaf1").is_some(), "nobody asked");
    let point = Key::cluster(Kind::ConnectionPoint, &to_name("cp"));
    ask(&mut w, &point, Some("n1"));
    assert_eq!(miswired(&w, "leaf1"), None);
    let published = w.published;
    w.restart_and_settle();
    assert_eq!(w.published, published);
}

#[test]
fn cables_swapped_between_switches_are_in_the_conditions_of_both() {
    let mut w = World::with_agents();
    attach(&mut w);
    swap(&mut w, [NODE1, NODE3]);
    lose_and_heal(&mut w, "node1", vid(100));
    lose_and_heal(&mut w, "node3", vid(100));
    let says = |node: &str, other: &str, there: &str| {
        format!("{node} eth1 is in e1, and FabricDevice {other} says e1 (e1: {there} eth1)")
    };
    assert_eq!(miswired(&w, "leaf1"), Some(says("node3", "leaf2", "node1")));
    assert_eq!(miswired(&w, "leaf2"), Some(says("node1", "leaf1", "node3")));
    // The FabricDevices say now what is so.
    for (leaf, node) in [("leaf1", "node3"), ("leaf2", "node1")] {
        let right = edit_device(&w.objects[&device_key(leaf)], |spec| {
            spec.ports[0].leads_to = LeadsTo::Node { node: node.into(), interface: "eth1".into() };
        });
        w.apply(right);
    }
    w.settle();
    assert_eq!((miswired(&w, "leaf1"), miswired(&w, "leaf2")), (None, None));
}

#[test]
fn node_behind_the_only_port_to_a_network_is_miswired() {
    let mut w = World::with_agents();
    w.cables.insert("node3".into(), ("leaf2".into(), "gw".into()));
    attach(&mut w);
    let message = "node3 eth1 is in gw, and Ports says e1 (gw: dc)";
    assert_eq!(miswired(&w, "leaf2").as_deref(), Some(message));
    // With a second port, packets may come back through the network.
    let second = edit_device(&w.objects[&device_key("leaf1")], |spec| {
        let port = eno_core::kinds::DevicePort {
            name: "gw".into(),
            leads_to: LeadsTo::PhysicalNetwork("dc".into()),
            ..spec.ports[0].clone()
        };
        spec.ports.push(port);
    });
    w.apply_and_settle(second);
    assert_eq!(miswired(&w, "leaf2"), None);
}

#[test]
fn message_names_three_cables_at_most() {
    let mut w = World::with_agents();
    for (node, port) in [("node1", "e2"), ("node2", "e1"), ("node3", "e1"), ("node4", "e2")] {
        w.cables.insert(node.into(), ("leaf1".into(), port.into()));
    }
    attach(&mut w);
    let message = miswired(&w, "leaf1").unwrap();
    assert_eq!(message.matches(" is in ").count(), 3);
    assert!(message.ends_with("; and 1 more"), "{message}");
}

#[test]
fn node_that_leaves_the_pool_is_not_compared_any_more() {
    let mut w = World::with_agents();
    swap(&mut w, [NODE1, NODE2]);
    attach(&mut w);
    // What the switch has learnt stays while it does not answer.
    w.silent.insert(switch("leaf1"));
    w.apply_node_and_settle("node1", false, true);
    let message = "node2 eth1 is in e1, and Ports says e2 (e1: node1 eth1)";
    assert_eq!(miswired(&w, "leaf1").as_deref(), Some(message));
    w.remove_node_and_settle("node2");
    assert_eq!(miswired(&w, "leaf1"), None);
}

#[test]
fn driver_without_lookups_is_not_asked() {
    let mut w = World::with_agents();
    w.drivers_with_lookups.clear();
    w.engine.handle(Event::DriversWithLookups(BTreeSet::new()));
    swap(&mut w, [NODE1, NODE2]);
    attach(&mut w);
    let published = w.published;
    lose_and_heal(&mut w, "node1", vid(100));
    assert_eq!((asked(&w, "leaf1"), miswired(&w, "leaf1"), w.published), (None, None, published));
    // A later version of it is.
    w.drivers_with_lookups.insert("netconf".into());
    w.engine.handle(Event::DriversWithLookups(w.drivers_with_lookups.clone()));
    w.settle();
    assert!(asked(&w, "leaf1").is_some() && miswired(&w, "leaf1").is_some());
    // While it does not run, nothing changes.
    let published = w.published;
    w.engine.handle(Event::DriversWithLookups(BTreeSet::new()));
    w.settle();
    assert_eq!(w.published, published + 2, "its processes don't answer any more");
    w.engine.handle(Event::DriversWithLookups(w.drivers_with_lookups.clone()));
    w.settle();
    let (published, before) = (w.published, asked(&w, "leaf1"));
    w.engine.handle(Event::Drivers(["nad", "node/node1", "node/node2"].map(to_name).into()));
    w.engine.handle(Event::DriversWithLookups(BTreeSet::new()));
    w.settle();
    assert_eq!((asked(&w, "leaf1"), w.published), (before, published));
}

#[test]
fn switch_that_cannot_be_asked_has_a_condition() {
    let mut w = World::with_agents();
    attach(&mut w);
    let note = Note::new(NO_MAC_TABLE, eno_schemas::Item::TARGET, "the dialect x reads no MAC tables");
    w.notes.insert(switch("leaf1"), vec![note]);
    w.run_driver_again(&switch("leaf1"));
    let conditions = &w.statuses[&device_key("leaf1")].conditions;
    let found = conditions.iter().find(|one| one.kind == ConditionType::NoMacTable).unwrap();
    assert_eq!((found.holds, &*found.message), (true, "the dialect x reads no MAC tables"));
}

#[test]
fn nothing_is_asked_once_nothing_is_probed() {
    let mut w = World::with_agents();
    swap(&mut w, [NODE1, NODE2]);
    attach(&mut w);
    for key in w
        .objects
        .keys()
        .filter(|key| ["a", "s"].contains(&&*key.name))
        .cloned()
        .collect::<Vec<_>>()
        .iter()
        .rev()
    {
        w.delete_and_settle(key);
    }
    assert_eq!((asked(&w, "leaf1"), miswired(&w, "leaf1")), (None, None));
}
