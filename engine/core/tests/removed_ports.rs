//! Ports removed from a switch's spec are commanded without VLANs until the driver reports them empty.

use eno_core::spec::Spec;
use eno_core::{Key, Kind, Target};
use eno_schemas::{Applied, Desired, Outcome, Phase, VlanSet};

#[allow(clippy::wildcard_imports, reason = "the tests use most of the simulated cluster")]
use crate::world::*;

fn leaf1() -> (Key, Target) {
    (Key::cluster(Kind::FabricDevice, &"leaf1".into()), Target::Fabric("leaf1".into()))
}

/// The interfaces in the last command of leaf1, with their VLANs.
fn commanded(w: &World) -> Vec<(&str, String)> {
    let Desired::Fabric(fabric) = &w.commands[&leaf1().1] else { panic!("no switch") };
    let interface = |port: &eno_schemas::FabricPort| port.lag.clone().unwrap_or(port.name.clone());
    assert!(
        fabric.ports.iter().all(|port| fabric
            .ports
            .iter()
            .filter(|p| interface(p) == interface(port))
            .count()
            == 1)
    );
    fabric
        .ports
        .iter()
        .map(|port| (port.lag.as_deref().unwrap_or(&port.name), port.vlans.to_string()))
        .collect()
}

fn leaving(w: &World) -> Vec<&str> {
    w.statuses[&leaf1().0].port_memory.leaving.iter().map(|name| &**name).collect()
}

/// A ready service on the ports `e1`, `e2`, `u1` and `u2` of leaf1.
fn ready_world() -> World {
    let mut w = World::leaf_spine();
    let s = w.apply(service("s", 100, &["dc"]));
    w.apply(attachment("a", &["s"], "cp"));
    w.settle();
    assert_eq!(w.phase(&s), Phase::Ready);
    w
}

/// leaf1 without its port `e1`.
fn without_e1(w: &World) -> eno_core::Object {
    edit_spec(&w.objects[&leaf1().0], |spec| {
        if let Spec::Device(spec) = spec {
            spec.ports.retain(|port| &*port.name != "e1");
        }
    })
}

fn on_e1(w: &World) -> Option<String> {
    commanded(w).into_iter().find(|(name, _)| *name == "e1").map(|(_, vlans)| vlans)
}

/// leaf1 reports its last command as applied, with these VLANs on the removed port `e1`.
fn report_e1_vlans(w: &mut World, on_e1: &str) {
    let desired = w.commands[&leaf1().1].clone();
    let Desired::Fabric(fabric) = &desired else { panic!("no switch") };
    let mut ports: std::collections::BTreeMap<String, VlanSet> =
        fabric.ports.iter().map(|port| (port.name.clone(), port.vlans.clone())).collect();
    ports.insert("e1 (leaving)".into(), on_e1.parse().unwrap());
    let vlans = fabric.vlans.iter().map(|vlan| vlan.vid).collect();
    let applied = Applied::Fabric { vlans, ports, carried: [].into(), closed: None, before: [].into() };
    w.report(&leaf1().1, desired.hash(), Outcome::Applied, Some(applied), Vec::new());
}

#[test]
fn removed_port_is_commanded_empty_until_reported_empty() {
    for restarts in [false, true] {
        let mut w = ready_world();
        assert_eq!(on_e1(&w).as_deref(), Some("100"));
        w.silent.insert(leaf1().1);
        let object = without_e1(&w);
        if restarts {
            // No engine runs when the spec changes.
            w.objects.insert(leaf1().0, object);
            w.restart();
        } else {
            w.apply(object);
        }
        w.settle();
        assert_eq!((on_e1(&w).as_deref(), leaving(&w)), (Some(""), vec!["e1"]), "{restarts}");
        w.restart();
        w.settle();
        assert_eq!((on_e1(&w).as_deref(), leaving(&w)), (Some(""), vec!["e1"]), "{restarts}");
        // The removal was rejected, or another client added the VLAN again.
        report_e1_vlans(&mut w, "100");
        w.settle();
        assert_eq!((on_e1(&w).as_deref(), leaving(&w)), (Some(""), vec!["e1"]), "{restarts}");
        report_e1_vlans(&mut w, "");
        w.settle();
        assert_eq!((on_e1(&w), leaving(&w)), (None, vec![]), "{restarts}");
        report_e1_vlans(&mut w, "");
        w.settle();
        let published = w.published;
        w.restart();
        w.settle();
        assert_eq!((w.published, leaving(&w)), (published, vec![]), "{restarts}");
    }
}

#[test]
fn former_lag_is_commanded_empty() {
    let mut w = ready_world();
    let lag = |w: &World, lag: Option<&str>| {
        edit_spec(&w.objects[&leaf1().0], |spec| {
            if let Spec::Device(spec) = spec {
                let port = spec.ports.iter_mut().find(|port| &*port.name == "e1");
                port.expect("a port e1").lag = lag.map(Into::into);
            }
        })
    };
    let object = lag(&w, Some("po1"));
    w.apply(object);
    w.settle();
    w.silent.insert(leaf1().1);
    let object = lag(&w, Some("po2"));
    w.apply(object);
    w.settle();
    assert_eq!(leaving(&w), ["po1"]);
    let ports = commanded(&w);
    assert!(ports.contains(&("po1", String::new())) && ports.contains(&("po2", "100".into())), "{ports:?}");
    let object = lag(&w, Some("po1"));
    w.apply(object);
    w.settle();
    assert_eq!(leaving(&w), ["po2"]);
}

#[test]
fn removed_port_is_dropped_on_forget_and_on_address_change() {
    let mut w = ready_world();
    w.silent.insert(leaf1().1);
    let object = without_e1(&w);
    w.apply(object.clone());
    w.settle();
    w.apply(eno_core::Object { forget: true, ..object.clone() });
    w.settle();
    assert_eq!((on_e1(&w), leaving(&w)), (None, vec![]));

    let mut w = ready_world();
    w.silent.insert(leaf1().1);
    let moved = edit_spec(&object, |spec| {
        if let Spec::Device(spec) = spec {
            spec.device.address = "192.0.2.1:830".into();
        }
    });
    w.apply(moved);
    w.settle();
    assert_eq!((on_e1(&w), leaving(&w)), (None, vec![]));
}

#[test]
fn far_end_of_a_removed_link_is_commanded_empty() {
    let mut w = ready_world();
    let spine = (Key::cluster(Kind::FabricDevice, &"spine1".into()), Target::Fabric("spine1".into()));
    w.silent.insert(spine.1.clone());
    let object = edit_spec(&w.objects[&leaf1().0], |spec| {
        if let Spec::Device(spec) = spec {
            spec.ports.retain(|port| &*port.name != "u1");
        }
    });
    w.apply(object);
    w.settle();
    let Desired::Fabric(fabric) = &w.commands[&spine.1] else { panic!("no switch") };
    let port =
        fabric.ports.iter().find(|port| port.lag.as_deref() == Some("leaf1")).expect("it is commanded");
    assert!(port.vlans.is_empty());
    assert_eq!(*w.statuses[&spine.0].port_memory.leaving, ["leaf1".into()]);
}
