//! Changes of several switches: on all or on none.

use eno_core::spec::LeadsTo;
use eno_core::{Event, Labels, Name};
use eno_schemas::{Phase, VlanId};

#[allow(clippy::wildcard_imports, reason = "the words that worlds are told in")]
use crate::world::*;

const RIGHT: [&str; 3] = ["leaf2:e1", "leaf2:e2", "leaf2:gw"];

#[test]
fn a_change_of_several_switches_is_one_transaction() {
    let mut w = sides();
    let s = w.apply(service("s", 100, &["dc"]));
    let a = w.apply(attachment("a", &["s"], "left"));
    w.settle();
    assert_eq!((w.phase(&s), w.phase(&a)), (Phase::Ready, Phase::Ready));
    assert_eq!((w.fab().outcomes.clone(), w.fab().participants.clone()), (vec!["confirmed"], vec![4]));
    // One switch alone needs none.
    w.apply(service("t", 200, &["dc"]));
    w.settle();
    assert_eq!(w.carriers(200), ["leaf2:gw"]);
    assert_eq!(w.fab().outcomes.len(), 1);
}

#[test]
fn what_one_switch_refuses_is_on_none_and_the_rest_goes_on() {
    let mut w = sides();
    w.refuse("spine1", 150, true);
    let mut services = Vec::new();
    for vid in 100..300 {
        services.push(w.apply(service(&format!("s{vid}"), vid, &["dc"])));
        w.apply(attachment(&format!("a{vid}"), &[&format!("s{vid}")], "left"));
    }
    w.settle();
    assert_eq!(w.fab().outcomes, ["refused", "confirmed"]);
    for (vid, key) in (100..300).zip(&services) {
        if vid == 150 {
            assert_eq!((w.phase(key), w.carriers(vid)), (Phase::Error, Vec::<String>::new()));
            assert_eq!(w.message(key), "FabricDevice spine1: VLAN 150: resource exhausted");
        } else {
            assert_eq!((w.phase(key), w.carriers(vid).len()), (Phase::Ready, 11), "{vid}");
        }
    }
    // With every further try it is waited for longer, and its phase is no other meanwhile.
    let phases = w.phases[&services[50]].clone();
    assert_eq!(w.fab().retries, [(services[50].clone(), 1)]);
    w.retry();
    w.settle();
    assert_eq!(w.fab().retries, [(services[50].clone(), 2)]);
    assert_eq!(w.phases[&services[50]], phases);
    w.refuse("spine1", 150, false);
    w.retry();
    w.settle();
    assert_eq!((w.phase(&services[50]), w.carriers(150).len()), (Phase::Ready, 11));
}

#[test]
fn what_is_realised_stays_when_more_is_refused() {
    let mut w = sides();
    let s = w.apply(service("s", 100, &["dc"]));
    let right = w.apply(attachment("right", &["s"], "right"));
    w.settle();
    assert_eq!(w.carriers(100), RIGHT);
    w.refuse("leaf1", 100, true);
    let left = w.apply(attachment("left", &["s"], "left"));
    w.settle();
    assert_eq!(w.carriers(100), RIGHT);
    assert_eq!((w.phase(&right), w.phase(&left), w.phase(&s)), (Phase::Ready, Phase::Error, Phase::Error));
    // What is given up meanwhile goes all the same.
    w.delete(&right);
    w.settle();
    assert_eq!(w.carriers(100), ["leaf2:gw"]);
    // A change of the spec is a new try, and so is giving up what was refused.
    w.delete(&left);
    w.settle();
    assert_eq!((w.phase(&s), w.carriers(100)), (Phase::Ready, vec!["leaf2:gw".to_owned()]));
}

#[test]
fn a_vlan_that_is_refused_leaves_the_former_one() {
    let mut w = sides();
    let s = w.apply(service("s", 100, &["dc"]));
    w.apply(attachment("a", &["s"], "left"));
    w.settle();
    w.refuse("spine2", 200, true);
    w.apply(service("s", 200, &["dc"]));
    w.settle();
    assert_eq!((w.carriers(100).len(), w.carriers(200).len(), w.phase(&s)), (11, 0, Phase::Error));
    // Nobody gets what it keeps.
    let other = w.apply(service("other", 100, &["dc"]));
    w.settle();
    assert_eq!(w.phase(&other), Phase::Error);
    w.refuse("spine2", 200, false);
    w.retry();
    w.settle();
    assert_eq!((w.carriers(200).len(), w.phase(&s), w.phase(&other)), (11, Phase::Ready, Phase::Ready));
    assert_eq!(w.carriers(100), ["leaf2:gw"]);
}

#[test]
fn a_dead_spine_does_not_stop_others() {
    let mut w = sides();
    w.kill("spine1");
    let s = w.apply(service("s", 100, &["dc"]));
    let a = w.apply(attachment("a", &["s"], "left"));
    w.settle();
    assert_eq!(w.fab().outcomes, ["failed", "confirmed"]);
    assert_eq!(w.carriers(100).len(), 9);
    assert_eq!(w.phase(&s), Phase::Pending);
    assert!(w.message(&a).contains("FabricDevice spine1"), "{}", w.message(&a));
    w.apply(service("t", 101, &["dc"]));
    w.apply(attachment("b", &["t"], "left"));
    w.settle();
    assert_eq!(w.fab().outcomes, ["failed", "confirmed", "confirmed"], "it is known by now");
    w.revive("spine1");
    w.settle();
    assert_eq!((w.phase(&s), w.phase(&a), w.carriers(100).len()), (Phase::Ready, Phase::Ready, 11));
    w.apply(service("u", 102, &["dc"]));
    w.apply(attachment("c", &["u"], "left"));
    w.settle();
    assert_eq!(w.fab().participants.last(), Some(&4));
}

#[test]
fn who_is_silent_takes_no_part_until_it_has_done_something() {
    let mut w = sides();
    w.fab().silent.insert("leaf1".into());
    let s = w.apply(service("s", 100, &["dc"]));
    w.apply(attachment("a", &["s"], "left"));
    w.settle();
    assert_eq!(
        (w.fab().outcomes.clone(), w.fab().participants.clone()),
        (vec!["late", "confirmed"], vec![4, 3])
    );
    assert_eq!(w.phase(&s), Phase::Pending);
    w.fab().silent.clear();
    w.settle();
    assert_eq!((w.phase(&s), w.carriers(100).len()), (Phase::Ready, 11));
}

#[test]
fn who_cannot_hold_a_change_follows() {
    let mut w = World::together();
    w.fab().plain.insert("spine2".into());
    w.settle();
    // It says so with its first report.
    w.apply(service("first", 99, &["dc"]));
    w.apply(attachment("first", &["first"], "cp"));
    w.settle();
    w.fab().participants.clear();
    let s = w.apply(service("s", 100, &["dc"]));
    w.apply(attachment("a", &["s"], "cp"));
    w.settle();
    assert_eq!((w.fab().participants.clone(), w.phase(&s)), (vec![3], Phase::Ready));
    w.refuse("leaf1", 200, true);
    w.apply(service("t", 200, &["dc"]));
    w.apply(attachment("b", &["t"], "cp"));
    w.settle();
    assert!(w.carriers(200).is_empty());
}

#[test]
fn a_new_engine_says_again_what_was_open() {
    let mut w = sides();
    let s = w.apply(service("s", 100, &["dc"]));
    w.settle();
    w.fab().silent.insert("leaf1".into());
    w.apply(attachment("a", &["s"], "left"));
    // Until the others hold their change.
    while w.carriers(100).len() < 7 {
        w.step();
    }
    w.restart_together();
    w.fab().silent.clear();
    w.settle();
    assert_eq!((w.phase(&s), w.carriers(100).len()), (Phase::Ready, 11));
}

#[test]
fn a_new_engine_keeps_what_is_realised_when_more_is_refused() {
    let mut w = sides();
    let s = w.apply(service("s", 100, &["dc"]));
    w.apply(attachment("right", &["s"], "right"));
    w.settle();
    w.refuse("leaf1", 100, true);
    w.apply(attachment("left", &["s"], "left"));
    while w.carriers(100).len() < 7 {
        w.step();
    }
    w.restart_together();
    w.settle();
    assert_eq!((w.carriers(100), w.phase(&s)), (RIGHT.map(str::to_owned).to_vec(), Phase::Error));
    // The next one tries again, and meanwhile it is in error as before.
    let phases = w.phases[&s].clone();
    w.restart_together();
    w.settle();
    assert_eq!((w.carriers(100), &w.phases[&s]), (RIGHT.map(str::to_owned).to_vec(), &phases));
    w.refuse("leaf1", 100, false);
    w.retry();
    w.settle();
    assert_eq!((w.carriers(100).len(), w.phase(&s)), (13, Phase::Ready));
}

#[test]
fn a_new_engine_goes_back_to_the_former_vlan() {
    let mut w = sides();
    let s = w.apply(service("s", 100, &["dc"]));
    w.apply(attachment("a", &["s"], "left"));
    w.settle();
    // The new VLAN is refused, or the former one is not given up.
    for refused in [200, 100] {
        w.refuse("spine2", refused, true);
        w.apply(service("s", 200, &["dc"]));
        while w.carriers(200).len() < 7 {
            w.step();
        }
        w.restart_together();
        w.settle();
        assert_eq!((w.carriers(100).len(), w.carriers(200).len(), w.phase(&s)), (11, 0, Phase::Error));
        assert_eq!(w.statuses[&s].granted_id, VlanId::new(100).ok(), "it is what it has");
        w.refuse("spine2", refused, false);
        w.apply(service("s", 100, &["dc"]));
        w.settle();
        assert_eq!((w.carriers(100).len(), w.carriers(200).len(), w.phase(&s)), (11, 0, Phase::Ready));
    }
}

#[test]
fn what_is_deleted_is_taken_from_all_or_from_none() {
    let mut w = sides();
    let node = |name: &str| LeadsTo::Node { node: name.into(), interface: "eth1".into() };
    let up = |spine: &str| LeadsTo::Device { device: spine.into(), port: "leaf1".into() };
    let gateway = LeadsTo::PhysicalNetwork("dc".into());
    let ports = [
        ("e1", node("node1")),
        ("e2", node("node2")),
        ("gw", gateway),
        ("u1", up("spine1")),
        ("u2", up("spine2")),
    ];
    w.apply(device("leaf1", &ports));
    w.settle();
    let s = w.apply(service("s", 100, &["dc"]));
    w.settle();
    assert_eq!((w.phase(&s), w.carriers(100).len()), (Phase::Ready, 10));
    w.refuse("spine1", 100, true);
    w.delete(&s);
    w.settle();
    let stays = |w: &World| {
        assert_eq!((w.phase(&s), w.carriers(100).len()), (Phase::Terminating, 10));
        let words = "its VLANs can't be removed yet: FabricDevice spine1: VLAN 100: resource exhausted";
        assert_eq!(w.message(&s), words);
    };
    stays(&w);
    w.retry();
    w.settle();
    stays(&w);
    // Nobody gets its VLAN, and the next engine knows no other.
    let other = w.apply(service("other", 100, &["dc"]));
    w.settle();
    assert_eq!(w.phase(&other), Phase::Error);
    w.restart_together();
    w.settle();
    stays(&w);
    // It all ends when the refusal does.
    w.refuse("spine1", 100, false);
    w.retry();
    w.settle();
    assert!(!w.objects.contains_key(&s));
    assert_eq!((w.phase(&other), w.carriers(100).len()), (Phase::Ready, 10));
}

#[test]
fn each_part_of_the_fabric_decides_for_itself() {
    let mut w = sides();
    let labels = Labels::from([("side".into(), "left".into())]);
    for node in ["node5", "node6"] {
        w.nodes.insert(node.into(), (labels.clone(), true));
        w.engine.handle(Event::Node { name: node.into(), labels: labels.clone(), ready: true });
    }
    let down = |node: &str| LeadsTo::Node { node: node.into(), interface: "eth1".into() };
    let up = LeadsTo::Device { device: "west2".into(), port: "u1".into() };
    w.apply(device("west1", &[("e1", down("node5")), ("u1", up)]));
    w.apply(device("west2", &[("e1", down("node6")), ("gw", LeadsTo::PhysicalNetwork("dc".into()))]));
    w.settle();
    w.refuse("west2", 100, true);
    let s = w.apply(service("s", 100, &["dc"]));
    w.apply(attachment("a", &["s"], "left"));
    w.settle();
    let west = |w: &World| w.carriers(100).iter().filter(|port| port.starts_with("west")).count();
    assert_eq!(
        (w.fab().participants.clone(), w.fab().outcomes.clone()),
        (vec![4, 2], vec!["confirmed", "refused"])
    );
    assert_eq!((w.carriers(100).len(), west(&w), w.phase(&s)), (11, 0, Phase::Error));
    w.refuse("west2", 100, false);
    w.retry();
    w.settle();
    assert_eq!((w.carriers(100).len(), west(&w), w.phase(&s)), (16, 5, Phase::Ready));
}

#[test]
fn a_new_engine_learns_from_a_dead_switch_what_it_has_once_it_is_back() {
    let mut w = sides();
    let s = w.apply(service("s", 100, &["dc"]));
    w.settle();
    w.kill("leaf1");
    w.apply(attachment("a", &["s"], "left"));
    while w.fab().participants.is_empty() {
        w.step();
    }
    w.restart_together();
    w.refuse("spine1", 100, true);
    w.settle();
    assert_eq!((w.carriers(100), w.phase(&s)), (vec!["leaf2:gw".to_owned()], Phase::Error));
    w.revive("leaf1");
    w.settle();
    assert_eq!((w.carriers(100), w.phase(&s)), (vec!["leaf2:gw".to_owned()], Phase::Error));
    w.refuse("spine1", 100, false);
    w.retry();
    w.settle();
    assert_eq!((w.carriers(100).len(), w.phase(&s)), (11, Phase::Ready));
}

#[test]
fn who_refuses_what_others_have_decided_is_not_asked_without_end() {
    let mut w = sides();
    let s = w.apply(service("s", 100, &["dc"]));
    w.apply(attachment("a", &["s"], "left"));
    w.settle();
    // The leaves confirm the new VLAN while both spines are away, which the next engine finds at the former one.
    w.fab().silent.extend(["spine1", "spine2"].map(Name::from));
    w.fab().outcomes.clear();
    w.apply(service("s", 101, &["dc"]));
    while w.fab().outcomes != ["late", "confirmed"] {
        w.step();
    }
    w.restart_together();
    w.fab().silent.clear();
    w.refuse("spine1", 100, true);
    w.settle();
    assert_eq!((w.phase(&s), w.carriers(101).len()), (Phase::Error, 7));
    w.refuse("spine1", 100, false);
    w.retry();
    w.settle();
    assert_eq!((w.phase(&s), w.carriers(100).len(), w.carriers(101).len()), (Phase::Ready, 0, 11));
}

#[test]
fn who_is_slow_follows_until_it_is_quick_again() {
    let mut w = sides();
    for name in DEVICES {
        w.fab().took.insert(name.into(), if name == "spine1" { 2500 } else { 400 });
    }
    let mut attach = |vid: u16| {
        let s = w.apply(service(&format!("s{vid}"), vid, &["dc"]));
        w.apply(attachment(&format!("a{vid}"), &[&format!("s{vid}")], "left"));
        w.settle();
        assert_eq!((w.phase(&s), w.carriers(vid).len()), (Phase::Ready, 11));
        let took = w.fab().participants.last().copied();
        w.fab().took.insert("spine1".into(), if vid == 101 { 300 } else { 2500 });
        took
    };
    // Its first change shows it; the second goes without it, and was a quick one.
    assert_eq!([100, 101, 102, 103].map(&mut attach), [Some(4), Some(3), Some(3), Some(4)]);
}
