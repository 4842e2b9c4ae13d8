//! Ports removed from a switch's spec are commanded without VLANs until the driver reports them empty.

use std::collections::BTreeSet;

use eno_core::Object;
use eno_schemas::{Applied, FabricPort};

use crate::edits::edit_device;
use crate::fixtures::{device_key, leaf1_with_lag, leaf1_without, ready_world, switch};
use crate::world::*;

/// The interfaces in the last command of leaf1, with their VLANs.
fn commanded(w: &World) -> Vec<(&str, String)> {
    let ports = &w.commanded_fabric("leaf1").ports;
    let interface = |port: &FabricPort| port.lag.clone().unwrap_or(port.name.clone());
    let interfaces: BTreeSet<String> = ports.iter().map(interface).collect();
    assert_eq!(interfaces.len(), ports.len(), "each interface once");
    ports.iter().map(|port| (port.lag.as_deref().unwrap_or(&port.name), port.vlans.to_string())).collect()
}

fn leaving(w: &World) -> Vec<&str> {
    w.statuses[&device_key("leaf1")].port_memory.leaving.iter().map(|name| &**name).collect()
}

fn on_e1(w: &World) -> Option<String> {
    commanded(w).into_iter().find(|(name, _)| *name == "e1").map(|(_, vlans)| vlans)
}

/// leaf1 reports its last command as applied, with these VLANs on the removed port `e1`.
fn report_e1_vlans(w: &mut World, on_e1: &str) {
    let mut applied = w.commanded_fabric("leaf1").carried_out();
    let Applied::Fabric { ports, .. } = &mut applied else { unreachable!() };
    ports.insert("e1 (leaving)".into(), on_e1.parse().unwrap());
    w.report_applied("leaf1", applied);
}

#[test]
fn removed_port_is_commanded_empty_until_reported_empty() {
    for restarts in [false, true] {
        let (mut w, ..) = ready_world();
        assert_eq!(on_e1(&w).as_deref(), Some("100"));
        w.silent.insert(switch("leaf1"));
        w.apply_or_restart(leaf1_without(&w, "e1"), restarts);
        assert_eq!((on_e1(&w).as_deref(), leaving(&w)), (Some(""), vec!["e1"]), "{restarts}");
        w.restart_and_settle();
        assert_eq!((on_e1(&w).as_deref(), leaving(&w)), (Some(""), vec!["e1"]), "{restarts}");
        // The removal was rejected, or another client added the VLAN again.
        report_e1_vlans(&mut w, "100");
        assert_eq!((on_e1(&w).as_deref(), leaving(&w)), (Some(""), vec!["e1"]), "{restarts}");
        report_e1_vlans(&mut w, "");
        assert_eq!((on_e1(&w), leaving(&w)), (None, vec![]), "{restarts}");
        report_e1_vlans(&mut w, "");
        let published = w.published;
        w.restart_and_settle();
        assert_eq!((w.published, leaving(&w)), (published, vec![]), "{restarts}");
    }
}

#[test]
fn former_lag_is_commanded_empty() {
    let (mut w, ..) = ready_world();
    w.apply_and_settle(leaf1_with_lag(&w, "po1"));
    w.silent.insert(switch("leaf1"));
    w.apply_and_settle(leaf1_with_lag(&w, "po2"));
    assert_eq!(leaving(&w), ["po1"]);
    let ports = commanded(&w);
    assert!(ports.contains(&("po1", String::new())) && ports.contains(&("po2", "100".into())), "{ports:?}");
    w.apply_and_settle(leaf1_with_lag(&w, "po1"));
    assert_eq!(leaving(&w), ["po2"]);
}

#[test]
fn removed_port_is_dropped_on_forget_and_on_address_change() {
    let (mut w, ..) = ready_world();
    w.silent.insert(switch("leaf1"));
    let object = leaf1_without(&w, "e1");
    w.apply_and_settle(object.clone());
    w.apply_and_settle(Object { forget: true, ..object.clone() });
    assert_eq!((on_e1(&w), leaving(&w)), (None, vec![]));

    let (mut w, ..) = ready_world();
    w.silent.insert(switch("leaf1"));
    w.apply_and_settle(edit_device(&object, |spec| spec.device.address = "192.0.2.1:830".into()));
    assert_eq!((on_e1(&w), leaving(&w)), (None, vec![]));
}

#[test]
fn far_end_of_a_removed_link_is_commanded_empty() {
    let (mut w, ..) = ready_world();
    w.silent.insert(switch("spine1"));
    w.apply_and_settle(leaf1_without(&w, "u1"));
    let mut ports = w.commanded_fabric("spine1").ports.iter();
    let port = ports.find(|port| port.lag.as_deref() == Some("leaf1")).expect("it is commanded");
    assert!(port.vlans.is_empty());
    assert_eq!(*w.statuses[&device_key("spine1")].port_memory.leaving, ["leaf1".into()]);
}
