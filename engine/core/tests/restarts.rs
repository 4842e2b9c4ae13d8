//! Ready objects stay ready with a new engine unless their inputs have changed.

use std::collections::BTreeMap;

use eno_core::{HopState, Key, Object, Target};
use eno_schemas::{Applied, AppliedLink, LinkKind, Outcome, Phase};

use crate::fixtures::{device_key, ready_world, switch, to_device, to_node};
use crate::world::*;

/// [`ready_world`] with another service `t`.
fn world_with_two_services() -> (World, Key, Key) {
    let (mut w, s, a) = ready_world();
    w.apply_and_settle(service("t", 200, &["dc"]));
    (w, s, a)
}

/// The engine crashes before it settles a change, and `leaf1` is silent for the next one.
fn crash_before_settling(w: &mut World, change: Object) {
    w.apply(change);
    w.restart();
    w.silent.insert(switch("leaf1"));
    w.settle();
}

#[test]
fn changed_reference_is_detected_after_a_restart() {
    let (mut w, s, a) = world_with_two_services();
    crash_before_settling(&mut w, service("s", 101, &["dc"]));
    assert_eq!((w.phase(&s), w.phase(&a)), (Phase::Pending, Phase::Pending));
    w.end_silence();
    assert_eq!(w.phases[&s], [Phase::Pending, Phase::Ready, Phase::Pending, Phase::Ready]);
    assert_eq!(w.phases[&a], w.phases[&s]);
}

#[test]
fn unrelated_change_keeps_objects_ready_after_a_restart() {
    let (mut w, s, a) = world_with_two_services();
    w.apply_node("node5", true, true);
    let ports = [
        ("e1", to_node("node1")),
        ("e2", to_node("node2")),
        ("e3", to_node("node5")),
        ("u1", to_device("spine1", "leaf1")),
        ("u2", to_device("spine2", "leaf1")),
    ];
    crash_before_settling(&mut w, device("leaf1", &ports));
    assert!(!w.carrying_ports(100).contains(&"leaf1:e3".to_owned()));
    assert_eq!((w.phase(&s), w.phase(&a)), (Phase::Ready, Phase::Ready));
    w.end_silence();
    assert!(w.carrying_ports(100).contains(&"leaf1:e3".to_owned()));
    assert_eq!((w.phases[&s].len(), w.phases[&a].len()), (2, 2));
}

/// Statuses of an engine that did not record the inputs of ready objects.
#[test]
fn missing_ready_inputs_fall_back_to_the_generation() {
    let (mut w, s, a) = world_with_two_services();
    w.statuses.values_mut().for_each(|status| status.ready_inputs = None);
    crash_before_settling(&mut w, service("s", 101, &["dc"]));
    assert_eq!((w.phase(&s), w.phase(&a)), (Phase::Pending, Phase::Ready));
    // The engine does not write statuses only to add the inputs.
    let (mut w, ..) = world_with_two_services();
    w.statuses.values_mut().for_each(|status| status.ready_inputs = None);
    let before = w.statuses.clone();
    w.restart_and_settle();
    assert_eq!(w.statuses, before);
}

#[test]
fn ready_inputs_are_in_status_while_ready() {
    let (mut w, s, a) = world_with_two_services();
    let ready_inputs = |w: &World, key: &Key| w.statuses[key].ready_inputs;
    let before = ready_inputs(&w, &a);
    assert!(before.is_some() && ready_inputs(&w, &s).is_some());
    w.silent.insert(switch("leaf1"));
    w.apply_and_settle(service("s", 101, &["dc"]));
    assert_eq!((w.phase(&a), ready_inputs(&w, &a)), (Phase::Pending, None));
    w.end_silence();
    assert!(ready_inputs(&w, &a).is_some() && ready_inputs(&w, &a) != before);
    let none = w.statuses.iter().filter(|(_, status)| status.ready_inputs.is_none());
    let kinds: Vec<_> = none.map(|(key, _)| key.kind.as_str()).collect();
    assert_eq!(kinds, ["NodePool", "PhysicalNetwork"]);
}

#[test]
fn terminating_device_is_drained_after_a_restart() {
    let (mut w, ..) = world_with_two_services();
    let leaf1 = device_key("leaf1");
    w.silent.insert(switch("leaf1"));
    w.delete_and_settle(&leaf1);
    w.restart_and_settle();
    assert_eq!(w.phase(&leaf1), Phase::Terminating);
    w.end_silence();
    assert_eq!(w.objects.get(&leaf1).map(|object| &object.key), None);
    assert_eq!(w.carrying_ports(100).iter().filter(|port| port.starts_with("leaf1")).count(), 0);
}

/// The address of a removed link, which its node has not confirmed to be gone, is in no pool that the spec names.
#[test]
fn address_of_a_removed_link_counts_the_same_with_a_new_engine() {
    let labels = [("podconfig", "c")];
    let mut w = World::with_agents();
    let c = w.apply(pod_config("c", vec![veth("l0", "pb0", "10.8.0.0/30")]));
    w.apply_pod_and_settle(pod("x", "node1", &labels));
    assert_eq!(pod_addresses(&w, "node1", "x"), ["10.8.0.2/30"]);
    w.remove_node_and_settle("node1");
    w.apply_pod(pod("x", "node1", &[]));
    w.apply(pod_config("c", vec![veth("l1", "pb1", "10.8.0.0/30")]));
    w.apply_pod_and_settle(pod("y", "node2", &labels));
    let problem = pod_entry(&w, &c, "y").problem.clone().expect("a problem");
    assert!(problem.contains("10.8.0.0/30"), "{problem}");
    // A new engine does not know what is in pods of a node that is away.
    let leased = |w: &World| without_links_of(&w.statuses[&c], &["x"]).pods;
    let before = leased(&w);
    w.restart_and_settle();
    assert_eq!(leased(&w), before);
    w.apply_node_and_settle("node1", true, true);
    assert_eq!(pod_addresses(&w, "node2", "y"), ["10.8.0.2/30"], "node1 has confirmed that the link is gone");
}

/// A status of an earlier version does not say which pods have interfaces without addresses.
#[test]
fn interfaces_without_addresses_stay_when_no_status_has_them() {
    for is_recorded in [true, false] {
        let mut w = World::with_agents();
        let link = pod_link("l0", LinkKind::Veth { master: None });
        let c = w.apply(pod_config("c", vec![link]));
        w.apply(service("s", 100, &[]));
        let a = w.apply_and_settle(attachment("a", &["s"], "cp"));
        let labels = [("podconfig", "c"), ("attach.eno.k8s.io/a", "")];
        w.apply_pod_and_settle(pod("x", "node1", &labels));
        let names = |w: &World| -> Vec<_> {
            let pod = applied_pod(w, "node1", "x").unwrap();
            pod.links.into_iter().map(|link| (link.id, link.name)).collect()
        };
        let (before, published) = (names(&w), w.published);
        assert_eq!(before.len(), 2);
        let statuses = w.statuses.clone();
        for key in [&c, &a].into_iter().filter(|_| !is_recorded) {
            w.statuses.get_mut(key).unwrap().pods.clear();
        }
        w.restart_and_settle();
        assert_eq!((names(&w), w.published), (before, published), "{is_recorded}");
        assert_eq!([&w.statuses[&c], &w.statuses[&a]], [&statuses[&c], &statuses[&a]]);
    }
}

/// The switch has left the path of the objects since, so that the next engine can't know it from their specs.
#[test]
fn deletion_waits_for_a_switch_that_left_the_path_after_a_restart() {
    for is_unreachable in [false, true] {
        let (mut w, s, a) = world_with_two_services();
        let leaf1 = switch("leaf1");
        w.silent.insert(leaf1.clone());
        w.apply_and_settle(device("leaf1", &[]));
        if is_unreachable {
            w.report_unreachable(&leaf1);
        }
        w.delete(&a);
        w.delete_and_settle(&s);
        assert_eq!(w.phase(&s), Phase::Terminating);
        w.restart_and_settle();
        assert_eq!(w.phase(&s), Phase::Terminating, "leaf1 has its VLAN");
        w.end_silence();
        assert!(!w.objects.contains_key(&s), "{}", w.message(&s));
    }
}

/// A compromised node reports a name that no status takes.
#[test]
fn reported_name_of_an_interface_is_kept_only_if_it_is_valid() {
    let mut w = World::with_agents();
    w.apply(service("s", 100, &[]));
    let a = w.apply_and_settle(attachment("a", &["s"], "cp"));
    w.apply_pod_and_settle(pod("x", "node1", &[("attach.eno.k8s.io/a", "")]));
    let link = AppliedLink { name: "x".repeat(16), ..AppliedLink::default() };
    let links = [("L2ServiceAttachment/a/a".to_owned(), link)].into();
    let applied = Applied::Node {
        networks: BTreeMap::new(),
        pods: [("uid-x".to_owned(), links)].into(),
        probes: Vec::new(),
        addresses: BTreeMap::new(),
    };
    w.statuses.get_mut(&a).unwrap().pods.clear();
    w.report(&node_target("node1"), Outcome::Applied, Some(applied), Vec::new());
    w.restart_and_settle();
    assert_eq!(pod_entry(&w, &a, "x").ifname.as_deref(), Some("net0"));
}

/// A switch holds the removal of the VLAN from a port that left its spec, and rolls it back after the restart.
#[test]
fn deletion_waits_for_a_switch_that_held_the_removal_before_a_restart() {
    let mut w = split_fabric();
    let s = w.apply(service("s", 100, &["dc"]));
    let a = w.apply_and_settle(attachment("a", &["s"], "left"));
    w.delete_and_settle(&s);
    assert_eq!((w.phase(&s), w.carrying_ports(100).len()), (Phase::Terminating, 11), "it is in use");
    w.apply(device("leaf2", &[("u1", to_device("spine1", "leaf2")), ("u2", to_device("spine2", "leaf2"))]));
    let is_on_leaf2 = |w: &World| w.carrying_ports(100).iter().any(|port| port.starts_with("leaf2"));
    while is_on_leaf2(&w) {
        w.step();
    }
    w.silent.insert(switch("leaf2"));
    w.restart();
    w.delete_and_settle(&a);
    assert!(is_on_leaf2(&w), "it rolled the removal back");
    assert_eq!(w.phase(&s), Phase::Terminating);
    w.end_silence();
    assert_eq!((w.objects.contains_key(&s), w.carrying_ports(100)), (false, Vec::new()));
}

/// Somebody else reports the desired state of a silent switch. Leaders change before it is purged.
#[test]
fn forged_report_that_outlives_a_leader_makes_nothing_ready() {
    let (mut w, s, a) = world_with_two_services();
    let leaf1 = switch("leaf1");
    w.silent.insert(leaf1.clone());
    w.apply_and_settle(service("s", 101, &["dc"]));
    let mut forged = w.command(&leaf1);
    forged.generation.term += 1;
    let applied = w.commanded_fabric("leaf1").carried_out();
    w.report_on(&leaf1, &forged, Outcome::Applied, Some(applied), Vec::new());
    w.restart();
    w.restart_and_settle();
    assert_eq!((w.phase(&s), w.phase(&a)), (Phase::Pending, Phase::Pending));
    w.end_silence();
    assert_eq!((w.phase(&s), w.phase(&a)), (Phase::Ready, Phase::Ready));
}

/// The former engine made the hashes of commands in another way.
#[test]
fn commands_with_hashes_of_an_earlier_version_keep_their_confirmations() {
    let (mut w, s, a) = ready_world();
    w.nats.replace_hashes(|target, hash| match target {
        Target::Fabric(_) => format!("former-{}", &hash[..8]),
        Target::Nad(..) | Target::Node(_) | Target::Speaker(_) => hash.to_owned(),
    });
    w.restart();
    let switches: Vec<Target> = ["leaf1", "leaf2", "spine1", "spine2"].map(switch).into();
    w.silent.extend(switches.iter().cloned());
    w.settle();
    for key in [&s, &a] {
        let path = w.engine.path(key);
        assert!(path.iter().all(|hop| hop.state == HopState::Confirmed), "{path:?}");
        assert_eq!(w.phases[key].len(), 2, "{key}");
    }
    for target in &switches {
        let command = w.command(target);
        assert_eq!(
            command.generation.hash,
            command.desired.hash(),
            "{target} is commanded with its new hash"
        );
    }
    w.silent.clear();
    w.settle();
    w.delete(&a);
    w.delete(&s);
    w.settle();
    assert!(w.carrying_ports(100).is_empty() && !w.objects.contains_key(&s));
}

/// The former engine commanded the removal, and a switch reports on it only to the new engine.
#[test]
fn late_report_of_a_switch_ends_a_removal_of_the_former_engine() {
    let (mut w, s, a) = ready_world();
    w.silent.insert(switch("leaf1"));
    for key in [&a, &s] {
        w.delete(key);
        w.settle();
    }
    w.restart();
    w.settle();
    assert!(w.message(&a).contains("FabricDevice leaf1: the removal of its VLANs"), "{}", w.message(&a));
    w.end_silence();
    assert!(!w.objects.contains_key(&a) && !w.objects.contains_key(&s), "{:?}", w.statuses);
}
