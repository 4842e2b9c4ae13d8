//! What ports were like before they carried VLANs of ours: whoever is lost, the next command says it.

use std::collections::BTreeMap;

use eno_core::{Key, Kind, Target};
use eno_schemas::{Applied, Desired, Item, Note, Outcome, Phase, PortBefore};

#[allow(clippy::wildcard_imports, reason = "the words that worlds are told in")]
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

/// What the last command of leaf1 says.
fn commanded(w: &World) -> BTreeMap<String, PortBefore> {
    let Desired::Fabric(fabric) = &w.commands[&leaf1().1] else { panic!("no switch") };
    fabric.ports.iter().filter_map(|port| Some((port.name.clone(), port.before.clone()?))).collect()
}

fn in_status(w: &World) -> BTreeMap<String, PortBefore> {
    let before = &w.statuses[&leaf1().0].port_memory.before;
    before.iter().map(|(name, before)| (name.to_string(), before.clone())).collect()
}

/// leaf1 reports this of `e1`, and that all is as it is wanted; it says it again when it is told so.
fn ready() -> World {
    let mut w = World::leaf_spine();
    let s = w.apply(service("s", 100, &["dc"]));
    w.apply(attachment("a", &["s"], "cp"));
    w.settle();
    assert_eq!(w.phase(&s), Phase::Ready);
    reports(&mut w, &[("e1", before())]);
    w
}

fn reports(w: &mut World, before: &[(&str, PortBefore)]) {
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

fn on_e1() -> BTreeMap<String, PortBefore> {
    [("e1".to_owned(), before())].into()
}

#[test]
fn it_is_in_status_and_in_the_next_command() {
    let mut w = ready();
    assert_eq!((in_status(&w), commanded(&w)), (on_e1(), on_e1()));
    reports(&mut w, &[]);
    assert_eq!((in_status(&w), commanded(&w)), (BTreeMap::new(), BTreeMap::new()));
}

#[test]
fn what_is_off_a_foreign_list_is_a_condition() {
    let mut w = ready();
    let note = Note { kind: "VlanTakenOff".into(), item: Item::port("e1"), message: "100 of e1".into() };
    w.notes.insert(leaf1().1, vec![note]);
    reports(&mut w, &[("e1", before())]);
    let said = condition(&w.statuses[&leaf1().0], "VlanTakenOff").expect("a condition");
    assert!(said.holds && said.message.contains("100 of e1"), "{said:?}");
    w.notes.clear();
    reports(&mut w, &[]);
    assert!(condition(&w.statuses[&leaf1().0], "VlanTakenOff").is_none());
}

#[test]
fn it_comes_back_from_status_when_engine_nats_and_driver_are_lost() {
    let mut w = ready();
    w.commands.clear();
    w.targets.clear();
    w.restart();
    w.settle();
    assert_eq!((in_status(&w), commanded(&w)), (on_e1(), on_e1()));
}

/// The engine was killed before it wrote it down.
#[test]
fn it_comes_back_from_the_last_report() {
    let mut w = ready();
    w.statuses.get_mut(&leaf1().0).unwrap().port_memory.before.clear();
    w.restart();
    w.settle();
    assert_eq!((in_status(&w), commanded(&w)), (on_e1(), on_e1()));
}

#[test]
fn another_interface_or_device_was_never_like_that() {
    for (restarts, address) in [(false, false), (true, false), (false, true), (true, true)] {
        let mut w = ready();
        let object = respec(&w.objects[&leaf1().0], |spec| {
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
        // The former interface is to be so again; another device was never like that.
        assert_eq!(commanded(&w).contains_key("e1 (leaving)"), !address, "{restarts} {address}");
        assert_eq!(in_status(&w).contains_key("e1"), !address, "{restarts} {address}");
    }
}
