//! Transactions: a change of several switches is on all of them or on none.

use std::collections::BTreeSet;

use eno_core::Key;
use eno_core::kinds::LeadsTo;
use eno_schemas::{Phase, VlanId};

use crate::fixtures::{switch, to_device, to_node};
use crate::world::*;

const RIGHT: [&str; 3] = ["leaf2:e1", "leaf2:e2", "leaf2:gw"];

/// Applies a service on the network `dc`, and an attachment of it at the ConnectionPoint.
fn connect(w: &mut World, name: &str, vid: u16, point: &str) -> (Key, Key) {
    let s = w.apply(service(name, vid, &["dc"]));
    (s, w.apply_and_settle(attachment(name, &[name], point)))
}

/// The outcomes of all transactions, with the number of participants of each.
#[track_caller]
fn assert_transactions(w: &mut World, expected: &[(&str, usize)]) {
    let counts = w.participant_counts.iter().copied();
    assert_eq!(w.outcomes.iter().copied().zip(counts).collect::<Vec<_>>(), expected);
}

/// The service has this phase, and these numbers of ports carry the VLANs.
#[track_caller]
fn assert_carried(w: &World, service: &Key, phase: Phase, expected: &[(u16, usize)]) {
    let carried = |(vid, _): &(u16, usize)| (*vid, w.carrying_ports(*vid).len());
    assert_eq!(
        (w.phase(service), expected.iter().map(carried).collect::<Vec<_>>()),
        (phase, expected.to_vec())
    );
}

/// Lets the switches answer until this many ports carry the VLAN.
fn step_until_carried(w: &mut World, vid: u16, ports: usize) {
    while w.carrying_ports(vid).len() < ports {
        w.step();
    }
}

#[test]
fn change_of_several_switches_is_one_transaction() {
    let mut w = split_fabric();
    let (s, a) = connect(&mut w, "s", 100, "left");
    assert_eq!((w.phase(&s), w.phase(&a)), (Phase::Ready, Phase::Ready));
    assert_transactions(&mut w, &[("confirmed", 4)]);
    // A change of one switch needs no transaction.
    w.apply_and_settle(service("t", 200, &["dc"]));
    assert_eq!(w.carrying_ports(200), ["leaf2:gw"]);
    assert_eq!(w.outcomes.len(), 1);
}

#[test]
fn refused_vlan_is_on_no_switch_and_other_vlans_are_applied() {
    let mut w = split_fabric();
    w.set_refusal("spine1", 150, true);
    let mut services = Vec::new();
    for vid in 100..300 {
        services.push(w.apply(service(&format!("s{vid}"), vid, &["dc"])));
        w.apply(attachment(&format!("a{vid}"), &[&format!("s{vid}")], "left"));
    }
    w.settle();
    assert_eq!(w.outcomes, ["refused", "confirmed"]);
    for (vid, key) in (100..300).zip(&services) {
        if vid == 150 {
            assert_eq!((w.phase(key), w.carrying_ports(vid)), (Phase::Error, Vec::<String>::new()));
            assert_eq!(w.message(key), "FabricDevice spine1: VLAN 150: resource exhausted");
        } else {
            assert_eq!((w.phase(key), w.carrying_ports(vid).len()), (Phase::Ready, 11), "{vid}");
        }
    }
    // The attempt, which decides the backoff, grows with each retry; the phase does not change.
    let phases = w.phases[&services[50]].clone();
    assert_eq!(w.retries, [(services[50].clone(), 1)]);
    w.elapse_backoff_and_settle();
    assert_eq!(w.retries, [(services[50].clone(), 2)]);
    assert_eq!(w.phases[&services[50]], phases);
    w.end_refusal("spine1", 150);
    assert_eq!((w.phase(&services[50]), w.carrying_ports(150).len()), (Phase::Ready, 11));
}

#[test]
fn refused_extension_keeps_the_realised_ports() {
    let mut w = split_fabric();
    let (s, right) = connect(&mut w, "s", 100, "right");
    assert_eq!(w.carrying_ports(100), RIGHT);
    w.set_refusal("leaf1", 100, true);
    let left = w.apply_and_settle(attachment("left", &["s"], "left"));
    assert_eq!(w.carrying_ports(100), RIGHT);
    assert_eq!((w.phase(&right), w.phase(&left), w.phase(&s)), (Phase::Ready, Phase::Error, Phase::Error));
    // Ports of a deleted attachment are removed while the network is withheld.
    w.delete_and_settle(&right);
    assert_eq!(w.carrying_ports(100), ["leaf2:gw"]);
    // A spec change is a retry, and so is the deletion of the refused attachment.
    w.delete_and_settle(&left);
    assert_eq!((w.phase(&s), w.carrying_ports(100)), (Phase::Ready, vec!["leaf2:gw".to_owned()]));
}

#[test]
fn refused_vlan_change_keeps_the_former_vlan() {
    let mut w = split_fabric();
    let (s, _) = connect(&mut w, "s", 100, "left");
    w.set_refusal("spine2", 200, true);
    w.apply_and_settle(service("s", 200, &["dc"]));
    assert_carried(&w, &s, Phase::Error, &[(100, 11), (200, 0)]);
    // The service still holds the former VLAN.
    let other = w.apply_and_settle(service("other", 100, &["dc"]));
    assert_eq!(w.phase(&other), Phase::Error);
    w.end_refusal("spine2", 200);
    assert_eq!((w.carrying_ports(200).len(), w.phase(&s), w.phase(&other)), (11, Phase::Ready, Phase::Ready));
    assert_eq!(w.carrying_ports(100), ["leaf2:gw"]);
}

#[test]
fn dead_spine_does_not_block_other_switches() {
    let mut w = split_fabric();
    w.kill("spine1");
    let (s, a) = connect(&mut w, "s", 100, "left");
    assert_eq!(w.outcomes, ["failed", "confirmed"]);
    assert_eq!(w.carrying_ports(100).len(), 9);
    assert_eq!(w.phase(&s), Phase::Pending);
    assert!(w.message(&a).contains("FabricDevice spine1"), "{}", w.message(&a));
    connect(&mut w, "t", 101, "left");
    assert_eq!(w.outcomes, ["failed", "confirmed", "confirmed"], "the dead switch takes no part");
    w.revive("spine1");
    w.settle();
    assert_eq!((w.phase(&s), w.phase(&a), w.carrying_ports(100).len()), (Phase::Ready, Phase::Ready, 11));
    connect(&mut w, "u", 102, "left");
    assert_eq!(w.participant_counts.last(), Some(&4));
}

#[test]
fn silent_switch_is_excluded_until_it_executes_a_command() {
    let mut w = split_fabric();
    w.silent.insert(switch("leaf1"));
    let (s, _) = connect(&mut w, "s", 100, "left");
    assert_transactions(&mut w, &[("late", 4), ("confirmed", 3)]);
    assert_eq!(w.phase(&s), Phase::Pending);
    w.silent.clear();
    w.settle();
    assert_eq!((w.phase(&s), w.carrying_ports(100).len()), (Phase::Ready, 11));
}

#[test]
fn switch_without_rollback_is_commanded_after_the_transaction() {
    let mut w = World::with_transactions();
    w.drivers.without_rollback.insert("spine2".into());
    w.settle();
    // The engine learns from the first report that the switch cannot hold changes.
    connect(&mut w, "first", 99, "cp");
    w.participant_counts.clear();
    let (s, _) = connect(&mut w, "s", 100, "cp");
    assert_eq!((w.participant_counts.clone(), w.phase(&s)), (vec![3], Phase::Ready));
    w.set_refusal("leaf1", 200, true);
    connect(&mut w, "t", 200, "cp");
    assert!(w.carrying_ports(200).is_empty());
}

#[test]
fn new_engine_completes_an_open_transaction() {
    let mut w = split_fabric();
    let s = w.apply_and_settle(service("s", 100, &["dc"]));
    w.silent.insert(switch("leaf1"));
    w.apply(attachment("a", &["s"], "left"));
    // Step until the other switches hold their changes.
    step_until_carried(&mut w, 100, 7);
    w.restart();
    w.silent.clear();
    w.settle();
    assert_eq!((w.phase(&s), w.carrying_ports(100).len()), (Phase::Ready, 11));
}

#[test]
fn new_engine_keeps_realised_ports_when_an_extension_is_refused() {
    let mut w = split_fabric();
    let (s, _) = connect(&mut w, "s", 100, "right");
    w.set_refusal("leaf1", 100, true);
    w.apply(attachment("left", &["s"], "left"));
    step_until_carried(&mut w, 100, 7);
    w.restart_and_settle();
    assert_eq!((w.carrying_ports(100), w.phase(&s)), (RIGHT.map(str::to_owned).to_vec(), Phase::Error));
    // The next engine retries, and the service stays in error meanwhile.
    let phases = w.phases[&s].clone();
    w.restart_and_settle();
    assert_eq!((w.carrying_ports(100), &w.phases[&s]), (RIGHT.map(str::to_owned).to_vec(), &phases));
    w.end_refusal("leaf1", 100);
    assert_eq!((w.carrying_ports(100).len(), w.phase(&s)), (13, Phase::Ready));
}

#[test]
fn new_engine_restores_the_former_vlan_after_a_refusal() {
    let mut w = split_fabric();
    let (s, _) = connect(&mut w, "s", 100, "left");
    // A switch refuses to add the new VLAN, or to remove the former one.
    for refused in [200, 100] {
        w.set_refusal("spine2", refused, true);
        w.apply(service("s", 200, &["dc"]));
        step_until_carried(&mut w, 200, 7);
        w.restart_and_settle();
        assert_carried(&w, &s, Phase::Error, &[(100, 11), (200, 0)]);
        assert_eq!(w.statuses[&s].granted_id, VlanId::new(100).ok(), "the applied VLAN stays granted");
        w.set_refusal("spine2", refused, false);
        w.apply_and_settle(service("s", 100, &["dc"]));
        assert_carried(&w, &s, Phase::Ready, &[(100, 11), (200, 0)]);
    }
}

/// An earlier version wrote the VLAN that a refused network keeps as `grantedID` only, and the switch in the message.
#[test]
fn new_engine_reads_the_placement_of_a_refused_network_and_statuses_without_it() {
    let mut w = split_fabric();
    let (s, _) = connect(&mut w, "s", 100, "left");
    assert_eq!(w.statuses[&s].placement, None, "nothing differs");
    w.set_refusal("spine2", 200, true);
    w.apply_and_settle(service("s", 200, &["dc"]));
    let placement = w.statuses[&s].placement.clone().expect("it is refused");
    assert_eq!(
        (placement.desired, placement.rejected_by),
        (VlanId::new(200).ok(), Some(("spine2".into(), true)))
    );
    let confirmed = placement.confirmed.expect("it keeps the former VLAN");
    let ports: usize = confirmed.ports.values().map(BTreeSet::len).sum();
    assert_eq!((Some(confirmed.vlan), ports), (VlanId::new(100).ok(), 11));
    for earlier_version in [false, true] {
        let before = w.statuses[&s].clone();
        if earlier_version {
            w.statuses.get_mut(&s).expect("a status").placement = None;
        }
        w.restart_and_settle();
        let after = &w.statuses[&s];
        assert_eq!((after.transitions, &after.message), (before.transitions, &before.message));
        assert_eq!((after.granted_id, &after.placement), (before.granted_id, &before.placement));
        assert_eq!(w.carrying_ports(100).len(), 11, "earlier version: {earlier_version}");
    }
    w.set_refusal("spine2", 200, false);
    w.apply_and_settle(service("s", 100, &["dc"]));
    assert_eq!((w.phase(&s), &w.statuses[&s].placement), (Phase::Ready, &None));
}

#[test]
fn deleted_service_is_removed_from_all_switches_or_none() {
    let mut w = split_fabric();
    let ports = [
        ("e1", to_node("node1")),
        ("e2", to_node("node2")),
        ("gw", LeadsTo::PhysicalNetwork("dc".into())),
        ("u1", to_device("spine1", "leaf1")),
        ("u2", to_device("spine2", "leaf1")),
    ];
    w.apply_and_settle(device("leaf1", &ports));
    let s = w.apply_and_settle(service("s", 100, &["dc"]));
    assert_eq!((w.phase(&s), w.carrying_ports(100).len()), (Phase::Ready, 10));
    w.set_refusal("spine1", 100, true);
    w.delete_and_settle(&s);
    let assert_still_present = |w: &World| {
        assert_eq!((w.phase(&s), w.carrying_ports(100).len()), (Phase::Terminating, 10));
        let expected = "its VLANs can't be removed yet: FabricDevice spine1: VLAN 100: resource exhausted";
        assert_eq!(w.message(&s), expected);
    };
    assert_still_present(&w);
    w.elapse_backoff_and_settle();
    assert_still_present(&w);
    // The terminating service still holds its VLAN, also for a new engine.
    let other = w.apply_and_settle(service("other", 100, &["dc"]));
    assert_eq!(w.phase(&other), Phase::Error);
    w.restart_and_settle();
    assert_still_present(&w);
    // The deletion completes when the refusal ends.
    w.end_refusal("spine1", 100);
    assert!(!w.objects.contains_key(&s));
    assert_eq!((w.phase(&other), w.carrying_ports(100).len()), (Phase::Ready, 10));
}

#[test]
fn unlinked_fabrics_have_separate_transactions() {
    let mut w = split_fabric();
    for node in ["node5", "node6"] {
        w.apply_labelled_node(node, "side", "left");
    }
    w.apply(device("west1", &[("e1", to_node("node5")), ("u1", to_device("west2", "u1"))]));
    w.apply_and_settle(device(
        "west2",
        &[("e1", to_node("node6")), ("gw", LeadsTo::PhysicalNetwork("dc".into()))],
    ));
    w.set_refusal("west2", 100, true);
    let (s, _) = connect(&mut w, "s", 100, "left");
    let west = |w: &World| w.carrying_ports(100).iter().filter(|port| port.starts_with("west")).count();
    assert_transactions(&mut w, &[("confirmed", 4), ("refused", 2)]);
    assert_eq!((w.carrying_ports(100).len(), west(&w), w.phase(&s)), (11, 0, Phase::Error));
    w.end_refusal("west2", 100);
    assert_eq!((w.carrying_ports(100).len(), west(&w), w.phase(&s)), (16, 5, Phase::Ready));
}

/// A switch without a link to the others refuses the new VLAN, and then one of the others refuses to remove the former
/// one.
#[test]
fn refused_vlan_change_keeps_the_former_vlan_although_an_unlinked_switch_has_left_it() {
    for dies in [false, true] {
        let mut w = split_fabric();
        w.apply_labelled_node("node5", "side", "left");
        w.apply_and_settle(device("border", &[("e1", to_node("node5"))]));
        let (s, _) = connect(&mut w, "s", 100, "left");
        assert_carried(&w, &s, Phase::Ready, &[(100, 12)]);
        w.set_refusal("border", 200, true);
        w.set_refusal("spine2", 100, true);
        w.apply(service("s", 200, &["dc"]));
        while w.carrying_ports(100).contains(&"border:e1".into()) {
            w.step();
        }
        if dies {
            w.kill("border");
            w.report_unreachable(&switch("border"));
        }
        w.settle();
        assert_carried(&w, &s, Phase::Error, &[(100, 11), (200, 0)]);
        w.revive("border");
        w.end_refusal("spine2", 100);
        w.end_refusal("border", 200);
        assert_carried(&w, &s, Phase::Ready, &[(100, 0), (200, 12)]);
    }
}

#[test]
fn new_engine_reads_a_dead_switch_once_it_is_reachable() {
    let mut w = split_fabric();
    let s = w.apply_and_settle(service("s", 100, &["dc"]));
    w.kill("leaf1");
    w.apply(attachment("a", &["s"], "left"));
    while w.participant_counts.is_empty() {
        w.step();
    }
    w.restart();
    w.set_refusal("spine1", 100, true);
    w.settle();
    assert_eq!((w.carrying_ports(100), w.phase(&s)), (vec!["leaf2:gw".to_owned()], Phase::Error));
    w.revive("leaf1");
    w.settle();
    assert_eq!((w.carrying_ports(100), w.phase(&s)), (vec!["leaf2:gw".to_owned()], Phase::Error));
    w.end_refusal("spine1", 100);
    assert_eq!((w.carrying_ports(100).len(), w.phase(&s)), (11, Phase::Ready));
}

#[test]
fn refusal_after_the_decision_is_not_retried_forever() {
    let mut w = split_fabric();
    let (s, _) = connect(&mut w, "s", 100, "left");
    // The leaves confirm the new VLAN while both spines are silent. The next engine finds the former VLAN on the spines.
    w.silent.extend(["spine1", "spine2"].map(switch));
    w.outcomes.clear();
    w.apply(service("s", 101, &["dc"]));
    while w.outcomes != ["late", "confirmed"] {
        w.step();
    }
    w.restart();
    w.silent.clear();
    w.set_refusal("spine1", 100, true);
    w.settle();
    assert_eq!((w.phase(&s), w.carrying_ports(101).len()), (Phase::Error, 7));
    w.end_refusal("spine1", 100);
    assert_carried(&w, &s, Phase::Ready, &[(100, 0), (101, 11)]);
}

#[test]
fn slow_switch_is_excluded_until_it_is_fast_again() {
    let mut w = split_fabric();
    for name in DEVICES {
        w.drivers.change_ms.insert(name.into(), if name == "spine1" { 2500 } else { 400 });
    }
    let mut attach = |vid: u16| {
        let (s, _) = connect(&mut w, &format!("s{vid}"), vid, "left");
        assert_eq!((w.phase(&s), w.carrying_ports(vid).len()), (Phase::Ready, 11));
        let took = w.participant_counts.last().copied();
        w.drivers.change_ms.insert("spine1".into(), if vid == 101 { 300 } else { 2500 });
        took
    };
    // The first change measures spine1 as slow. Its next one, outside the transaction, is fast.
    assert_eq!([100, 101, 102, 103].map(&mut attach), [Some(4), Some(3), Some(3), Some(4)]);
}
