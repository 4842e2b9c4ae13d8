//! Objects are ready only if the fabric connects their endpoints.

#![allow(clippy::many_single_char_names, reason = "a, b and s are objects of those names")]

use eno_core::kinds::{LeadsTo, Plugin};
use eno_core::{Event, Key, Kind, Object, Target};
use eno_schemas::Phase;
use serde_json::json;

use crate::edits::edit_point;
use crate::fixtures::{
    bridge_domain, device_key, kernel_cni, point_without_nics, to_device as link, to_node as node,
};
use crate::world::*;

fn nic(name: &str, interface: &str) -> LeadsTo {
    LeadsTo::Node { node: name.into(), interface: interface.into() }
}

fn network(name: &str) -> LeadsTo {
    LeadsTo::PhysicalNetwork(name.into())
}

fn physical(name: &str, unmanaged: bool) -> Object {
    object(Kind::PhysicalNetwork, name, json!({ "Unmanaged": unmanaged }))
}

/// A ConnectionPoint on the `eth1` of these nodes.
fn point_on_nodes(w: &mut World, name: &str, nodes: &[&str]) -> Key {
    w.apply(node_pool(name, "name", nodes));
    w.apply(connection_point(name, Some(name)))
}

/// Three leaves without links, and the PhysicalNetwork `dc` without a port. Each leaf has a node with a ConnectionPoint
/// of its own: `cp1` on `node1` on `leaf1`, and so on.
fn unlinked_leaves() -> World {
    let mut w = World::default();
    for n in 1..=3 {
        let name = format!("node{n}");
        w.apply_labelled_node(&name, "name", &name);
        w.apply(device(&format!("leaf{n}"), &[("e1", node(&name))]));
        point_on_nodes(&mut w, &format!("cp{n}"), &[&name]);
    }
    w.apply_and_settle(physical("dc", false));
    w
}

#[track_caller]
fn assert_pending(w: &World, keys: &[&Key], message: &str) {
    w.assert_phase(keys, Phase::Pending, message);
}

#[track_caller]
fn assert_ready(w: &World, keys: &[&Key]) {
    w.assert_phase(keys, Phase::Ready, "");
}

const NO_PORT: &str = "PhysicalNetwork dc: no switch port leads there";

#[test]
fn network_without_a_port_keeps_its_users_pending() {
    let mut w = unlinked_leaves();
    let s = w.apply(service("s", 100, &["dc"]));
    let a = w.apply(attachment("a", &["s"], "cp1"));
    let other = w.apply(service("t", 200, &[]));
    let b = w.apply_and_settle(attachment("b", &["t"], "cp1"));
    assert_pending(&w, &[&s, &a], NO_PORT);
    let fabric = condition(&w.statuses[&a], "FabricReady").unwrap();
    assert_eq!((fabric.holds, &*fabric.message), (false, NO_PORT));
    // Other services are not affected.
    assert_ready(&w, &[&other, &b]);
    assert_eq!(w.carrying_ports(100), ["leaf1:e1"], "the node port is configured");
    // The port is on the switch of the node.
    w.apply_and_settle(device("leaf1", &[("e1", node("node1")), ("gw", network("dc"))]));
    for key in [&s, &a] {
        assert_eq!(w.phases[key], [Phase::Pending, Phase::Ready], "{key}");
    }
    assert_eq!(w.carrying_ports(100), ["leaf1:e1", "leaf1:gw"]);
    // The port is removed again.
    w.apply_and_settle(device("leaf1", &[("e1", node("node1"))]));
    assert_pending(&w, &[&s, &a], NO_PORT);
}

/// A terminating service is not validated. Its attachment names the holder of the VLAN at the new port.
#[test]
fn attachment_of_a_terminating_service_reports_its_vlan_conflict() {
    let mut w = unlinked_leaves();
    w.apply(service("held", 100, &[]));
    w.apply(attachment("holder", &["held"], "cp1"));
    w.apply(device("leaf2", &[("e1", node("node2")), ("gw", network("dc"))]));
    let s = w.apply(service("s", 100, &["dc"]));
    let a = w.apply_and_settle(attachment("a", &["s"], "cp2"));
    assert_ready(&w, &[&s, &a]);
    w.delete(&s);
    w.apply_and_settle(device("leaf1", &[("e1", node("node1")), ("gw", network("dc"))]));
    assert_eq!(w.phase(&s), Phase::Terminating);
    w.assert_message_contains(&a, Phase::Error, "100 is held by L2Service held");
}

#[test]
fn unmanaged_network_needs_no_port() {
    let mut w = unlinked_leaves();
    let s = w.apply(service("s", 100, &["dc"]));
    let a = w.apply_and_settle(attachment("a", &["s"], "cp1"));
    assert_pending(&w, &[&s, &a], NO_PORT);
    w.apply_and_settle(physical("dc", true));
    assert_ready(&w, &[&s, &a]);
    // A port in another fabric does not become an endpoint of an unmanaged network.
    w.apply_and_settle(device("leaf2", &[("e1", node("node2")), ("gw", network("dc"))]));
    assert_ready(&w, &[&s, &a]);
    let expected = "no way from leaf1 to leaf2: name the link in their Ports";
    w.apply_and_settle(physical("dc", false));
    assert_pending(&w, &[&a], expected);
    assert_ready(&w, &[&s]);
}

/// What the service says about ends of attachments that no link joins to its own.
fn ends_apart<'a>(w: &'a World, service: &Key) -> Option<&'a str> {
    let joined = condition(&w.statuses[service], "EndsJoined")?;
    assert!(!joined.holds && joined.reason.as_ref() == "NoPath", "{joined:?}");
    Some(&joined.message)
}

#[test]
fn unlinked_end_hinders_only_its_own_attachment() {
    let mut w = unlinked_leaves();
    w.apply(device("leaf1", &[("e1", node("node1")), ("u1", link("leaf2", "u1"))]));
    let s = w.apply(service("s", 100, &[]));
    let [a, b] = [("a", "cp1"), ("b", "cp2")].map(|(name, point)| w.apply(attachment(name, &["s"], point)));
    w.settle();
    assert_ready(&w, &[&s, &a, &b]);
    assert_eq!(ends_apart(&w, &s), None);
    let c = w.apply_and_settle(attachment("c", &["s"], "cp3"));
    let no_way = "no way from leaf3 to leaf1: name the link in their Ports";
    assert_pending(&w, &[&c], no_way);
    assert_ready(&w, &[&s, &a, &b]);
    let names_c = format!("L2ServiceAttachment ns/c: {no_way}");
    assert_eq!(ends_apart(&w, &s), Some(&*names_c));
    assert_eq!(w.carrying_ports(100).len(), 5, "every end is configured: {:?}", w.carrying_ports(100));
    // Further attachments become ready or wait by their own ends.
    let d = w.apply(attachment("d", &["s"], "cp2"));
    let e = w.apply_and_settle(attachment("e", &["s"], "cp3"));
    assert_ready(&w, &[&d]);
    assert_pending(&w, &[&e], no_way);
    assert_eq!(ends_apart(&w, &s), Some(&*format!("{names_c} (and 1 more)")));
    w.delete_and_settle(&e);
    assert_eq!(ends_apart(&w, &s), Some(&*names_c));
    for key in [&s, &a, &b, &d] {
        assert_eq!(w.phases[key], [Phase::Pending, Phase::Ready], "{key}");
    }
    // The new link counts once its port carries the VLAN.
    w.silent.insert(Target::Fabric("leaf3".into()));
    w.apply_and_settle(device("leaf3", &[("e1", node("node3")), ("u1", link("leaf2", "u2"))]));
    w.assert_message_contains(&c, Phase::Pending, "FabricDevice leaf3: VLAN 100 on port");
    assert_eq!(ends_apart(&w, &s), None);
    w.end_silence();
    assert_ready(&w, &[&s, &a, &b, &c, &d]);
    w.apply_and_settle(device("leaf3", &[("e1", node("node3"))]));
    assert_pending(&w, &[&c], no_way);
    assert_ready(&w, &[&s, &a, &b, &d]);
    // A deleted attachment is no endpoint.
    w.delete_and_settle(&c);
    assert_eq!(ends_apart(&w, &s), None);
}

/// Without a PhysicalNetwork, the oldest attachment that is realised decides which ends are the service's own.
#[test]
fn attachment_that_waits_for_a_link_takes_nothing_from_others() {
    let mut w = unlinked_leaves();
    let s = w.apply(service("s", 100, &[]));
    let a = w.apply_and_settle(created(attachment("a", &["s"], "cp1"), 200));
    let foreign = w.apply_and_settle(created(attachment("foreign", &["s"], "cp3"), 100));
    let no_way = "no way from leaf3 to leaf1: name the link in their Ports";
    let later = w.apply_and_settle(created(attachment("later", &["s"], "cp1"), 300));
    assert_ready(&w, &[&s, &a, &later]);
    assert_pending(&w, &[&foreign], no_way);
    let before = w.statuses.clone();
    w.restart_and_settle();
    assert_eq!(w.statuses, before);
    // The oldest one goes while the other waits for a switch.
    w.silent.insert(Target::Fabric("leaf1".into()));
    w.apply_and_settle(service("s", 101, &[]));
    w.delete(&a);
    w.settle();
    w.assert_message_contains(&later, Phase::Pending, "FabricDevice leaf1: VLAN 101");
    assert_pending(&w, &[&foreign], no_way);
    w.end_silence();
    assert_ready(&w, &[&s, &later]);
    assert_pending(&w, &[&foreign], no_way);
    // Without others its ends are those of the service.
    w.delete_and_settle(&later);
    assert_ready(&w, &[&s, &foreign]);
    assert_eq!(ends_apart(&w, &s), None);
}

#[test]
fn attachment_whose_own_ends_are_apart_decides_nothing() {
    let mut w = unlinked_leaves();
    point_on_nodes(&mut w, "both", &["node1", "node2"]);
    let s = w.apply(service("s", 100, &[]));
    let wide = w.apply_and_settle(created(attachment("wide", &["s"], "both"), 50));
    let a = w.apply_and_settle(attachment("a", &["s"], "cp2"));
    let no_way = "no way from leaf1 to leaf2: name the link in their Ports";
    assert_pending(&w, &[&wide], no_way);
    assert_ready(&w, &[&s, &a]);
    assert_eq!(ends_apart(&w, &s), Some(&*format!("L2ServiceAttachment ns/wide: {no_way}")));
}

#[test]
fn physical_network_decides_which_ends_are_the_service_s_own() {
    let mut w = unlinked_leaves();
    w.apply(device("leaf2", &[("e1", node("node2")), ("gw", network("dc"))]));
    let s = w.apply(service("s", 100, &["dc"]));
    let a = w.apply_and_settle(attachment("a", &["s"], "cp1"));
    let b = w.apply_and_settle(attachment("b", &["s"], "cp2"));
    assert_pending(&w, &[&a], "no way from leaf1 to leaf2: name the link in their Ports");
    assert_ready(&w, &[&s, &b]);
    // Between two PhysicalNetworks of the service there has to be a way.
    w.apply(physical("wan", false));
    w.apply(device("leaf3", &[("e1", node("node3")), ("gw", network("wan"))]));
    w.apply_and_settle(service("s", 100, &["dc", "wan"]));
    assert_pending(&w, &[&s, &b], "no way from leaf2 to leaf3: name the link in their Ports");
    assert_pending(&w, &[&a], "no way from leaf1 to leaf2: name the link in their Ports");
    assert_eq!(ends_apart(&w, &s), None);
}

#[test]
fn physical_network_connects_separate_fabrics() {
    let mut w = unlinked_leaves();
    for n in 1..=2 {
        w.apply(device(&format!("leaf{n}"), &[("e1", node(&format!("node{n}"))), ("gw", network("dc"))]));
    }
    point_on_nodes(&mut w, "both", &["node1", "node2"]);
    let s = w.apply(service("s", 100, &["dc"]));
    let a = w.apply(attachment("a", &["s"], "both"));
    // Service t has attachments in both planes and does not use the network.
    let t = w.apply(service("t", 200, &[]));
    let b = w.apply_and_settle(attachment("b", &["t"], "both"));
    assert_ready(&w, &[&s, &a]);
    assert_eq!(w.carrying_ports(100), ["leaf1:e1", "leaf1:gw", "leaf2:e1", "leaf2:gw"]);
    // The network does not connect t.
    let expected = "no way from leaf1 to leaf2: name the link in their Ports";
    assert_pending(&w, &[&b], expected);
    assert_ready(&w, &[&t]);
    assert_eq!(ends_apart(&w, &t), Some(&*format!("L2ServiceAttachment ns/b: {expected}")));
    // Each plane is a VLAN scope of its own.
    let left = w.apply(service("left", 300, &[]));
    let right = w.apply(service("right", 300, &[]));
    w.apply(attachment("l", &["left"], "cp1"));
    w.apply_and_settle(attachment("r", &["right"], "cp2"));
    assert_ready(&w, &[&left, &right]);
    assert_eq!(w.carrying_ports(300), ["leaf1:e1", "leaf2:e1"]);
}

#[test]
fn endpoints_without_a_fabric_device_stay_ready() {
    // No port leads to the nodes of the ConnectionPoint.
    let mut w = unlinked_leaves();
    w.apply(point_without_nics("bare"));
    let s = w.apply(service("s", 100, &["dc"]));
    let a = w.apply_and_settle(attachment("a", &["s"], "bare"));
    assert_ready(&w, &[&s, &a]);
    assert_eq!(condition(&w.statuses[&a], "FabricManaged").map(|managed| managed.holds), Some(false));
    let b = w.apply_and_settle(attachment("b", &["s"], "cp1"));
    assert_pending(&w, &[&s, &b], NO_PORT);
    assert_ready(&w, &[&a]);
    // Without FabricDevices the cabling is unknown.
    w.delete(&b);
    w.delete_and_settle(&a);
    assert_pending(&w, &[&s], NO_PORT);
    for n in 1..=3 {
        w.delete(&device_key(&format!("leaf{n}")));
    }
    let c = w.apply_and_settle(attachment("c", &["s"], "cp1"));
    assert_ready(&w, &[&s, &c]);
    w.apply_and_settle(device("leaf4", &[("e1", node("node1"))]));
    assert_pending(&w, &[&s, &c], NO_PORT);
}

#[test]
fn manual_bridge_domain_needs_linked_endpoints() {
    let mut w = unlinked_leaves();
    let domain = w.apply_and_settle(bridge_domain("d", 100, &["cp1", "cp3"]));
    assert_pending(&w, &[&domain], "no way from leaf1 to leaf3: name the link in their Ports");
    w.apply_and_settle(device("leaf3", &[("e1", node("node3")), ("u1", link("leaf1", "u1"))]));
    assert_ready(&w, &[&domain]);
}

#[test]
fn nic_without_a_port_is_an_error_when_another_nic_has_one() {
    let mut w = unlinked_leaves();
    let two = |name: &str, pool: Option<&str>| {
        edit_point(&connection_point(name, pool), |spec| spec.interfaces = vec!["eth1".into(), "eth2".into()])
    };
    point_on_nodes(&mut w, "both", &["node1", "node2"]);
    let key = w.apply(two("both", Some("both")));
    let everywhere = w.apply(two("everywhere", None));
    w.apply_and_settle(device("leaf1", &[("e1", node("node1")), ("e2", nic("node1", "eth2"))]));
    let expected = |more: &str| {
        format!(
            "spec.Interfaces: NIC eth2 of node node2 has no switch port{more} though another NIC of the node has one; \
             add the port to a FabricDevice or name only the others in Interfaces"
        )
    };
    w.assert_phase(&[&key], Phase::Error, &expected(""));
    w.assert_phase(&[&everywhere], Phase::Error, &expected(" (nor have 1 more)"));
    for n in 2..=3 {
        let name = format!("node{n}");
        w.apply(device(&format!("leaf{n}"), &[("e1", node(&name)), ("e2", nic(&name, "eth2"))]));
    }
    w.settle();
    assert_ready(&w, &[&key, &everywhere]);
    // Without Interfaces, the parents of plugins are the NICs.
    let offer = |master: &str| kernel_cni(Plugin::Macvlan { master: master.into() });
    let parents = w.apply_and_settle(edit_point(&connection_point("parents", Some("both")), |spec| {
        (spec.interfaces, spec.cnis) = (Vec::new(), vec![offer("eth1"), offer("eth7")]);
    }));
    w.assert_message_contains(&parents, Phase::Error, "NIC eth7 of node node1 has no switch port");
}

#[test]
fn devices_applied_one_by_one_cause_no_transient_error() {
    let mut w = unlinked_leaves();
    w.awaits_never_elapse = true;
    point_on_nodes(&mut w, "both", &["node1", "node2"]);
    let both = w.apply(edit_point(&connection_point("both", Some("both")), |spec| {
        spec.interfaces = vec!["eth2".into(), "eth3".into()];
    }));
    w.apply(service("s", 100, &[]));
    let a = w.apply(attachment("a", &["s"], "both"));
    let leaf = |n: usize, more: &[(&str, LeadsTo)]| {
        let (name, link) = (format!("node{n}"), link(if n == 1 { "leaf2" } else { "leaf1" }, "u1"));
        let ports =
            [("e1", node(&name)), ("u1", link), ("e2", nic(&name, "eth2")), ("e3", nic(&name, "eth3"))];
        device(&format!("leaf{n}"), &[&ports[..], more].concat())
    };
    w.apply_and_settle(leaf(1, &[]));
    assert_eq!((w.phase(&both), w.phase(&a)), (Phase::Pending, Phase::Pending), "{}", w.message(&both));
    assert!(
        w.message(&both).contains("node node2 of NodePool both has no switch port"),
        "{}",
        w.message(&both)
    );
    w.apply_and_settle(leaf(2, &[]));
    assert_ready(&w, &[&both, &a]);
    for key in [&both, &a] {
        assert!(!w.phases[key].contains(&Phase::Error), "{:?}", w.phases[key]);
    }
    // After the await has elapsed, a missing port is an error immediately.
    w.engine.handle(eno_core::Event::AwaitElapsed(both.clone()));
    w.apply_and_settle(device("leaf2", &[("e1", node("node2"))]));
    assert_eq!(w.phase(&both), Phase::Error);
}

#[test]
fn parent_of_several_plugins_is_counted_once() {
    let mut w = unlinked_leaves();
    point_on_nodes(&mut w, "both", &["node1", "node2"]);
    let both = w.apply_and_settle(edit_point(&connection_point("both", Some("both")), |spec| {
        let (eth1, eth2) = (|| "eth1".to_owned(), || "eth2".to_owned());
        let plugins = [
            Plugin::Macvlan { master: eth2() },
            Plugin::Ipvlan { master: eth1() },
            Plugin::Vlan { master: eth2() },
            Plugin::Ipvlan { master: eth2() },
        ];
        (spec.interfaces, spec.cnis) = (Vec::new(), plugins.map(kernel_cni).to_vec());
    }));
    let expected = "NIC eth2 of node node1 has no switch port (nor have 1 more)";
    assert!(w.message(&both).contains(expected), "{}", w.message(&both));
}

#[test]
fn physical_network_lists_its_switch_ports() {
    let mut w = unlinked_leaves();
    let dc = Key::cluster(Kind::PhysicalNetwork, &"dc".into());
    assert!(w.statuses[&dc].switch_ports.is_empty());
    w.apply(device("leaf2", &[("e1", node("node2")), ("xe-0/0/2:1", network("dc"))]));
    w.apply_and_settle(device("leaf1", &[("e1", node("node1")), ("gw", network("dc"))]));
    assert_eq!(w.statuses[&dc].switch_ports, ["leaf1:gw", "leaf2:xe-0/0/2:1"]);
    assert_eq!(w.phases[&dc], [Phase::Pending, Phase::Ready]);
    w.delete_and_settle(&device_key("leaf1"));
    assert_eq!(w.statuses[&dc].switch_ports, ["leaf2:xe-0/0/2:1"]);
}

/// An older engine did not check reachability. Its ready objects become pending once unless their endpoints are
/// connected.
#[test]
fn ready_objects_of_an_older_engine_become_pending_only_without_a_path() {
    for has_inputs in [true, false] {
        let mut w = unlinked_leaves();
        let uplink = link("leaf2", "u1");
        w.apply(device("leaf1", &[("e1", node("node1")), ("u1", uplink)]));
        let s = w.apply(service("s", 100, &[]));
        let [a, b] =
            [("a", "cp1"), ("b", "cp2")].map(|(name, point)| w.apply(attachment(name, &["s"], point)));
        let other = w.apply(service("t", 200, &[]));
        let c = w.apply_and_settle(attachment("c", &["t"], "cp3"));
        let keys = [&s, &a, &b, &other, &c];
        assert_ready(&w, &keys);
        if !has_inputs {
            w.statuses.values_mut().for_each(|status| status.ready_inputs = None);
        }
        let before = w.statuses.clone();
        // Without the link, the recorded inputs are those of an engine without reachability checks.
        w.apply(device("leaf1", &[("e1", node("node1"))]));
        w.restart_and_settle();
        w.restart_and_settle();
        assert_eq!(w.phases[&b], [Phase::Pending, Phase::Ready, Phase::Pending]);
        assert_pending(&w, &[&b], "no way from leaf2 to leaf1: name the link in their Ports");
        assert_ready(&w, &[&s, &a]);
        for key in [&a, &other, &c] {
            assert_eq!(w.statuses[key], before[key], "{key}");
        }
    }
}

#[test]
fn skewed_clock_of_a_driver_is_a_condition_of_its_devices() {
    let mut w = World::leaf_spine();
    let leaf = device_key("leaf1");
    let skew = |w: &World| condition(&w.statuses[&leaf], "ClockSkew").map(|found| found.message.clone());
    for (driver, expected) in [("nad", None), ("netconf", Some("its clock is behind")), ("nad", None)] {
        let drivers = [(to_name(driver), to_name("its clock is behind"))];
        w.engine.handle(Event::SkewedDrivers(drivers.into()));
        w.settle();
        assert_eq!(skew(&w).as_deref(), expected);
        assert_eq!(w.phase(&leaf), Phase::Ready, "networks do not depend on the clock");
    }
}
