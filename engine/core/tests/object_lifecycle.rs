//! Lifecycles of objects, from creation to deletion.

use eno_core::kinds::{Invalid, Plugin};
use eno_core::{Key, Kind, Object, Target};
use eno_schemas::{Ipam, Item, NadVlans, Phase};

use crate::edits::{edit_point, edit_service, edit_subnet};
use crate::fixtures::{
    bridge_domain, device_key, kernel_cni, point_without_nics, ready_world, rejection, switch, to_device, vid,
};
use crate::world::*;

const ALL_PORTS: [&str; 13] = [
    "leaf1:e1",
    "leaf1:e2",
    "leaf1:u1",
    "leaf1:u2",
    "leaf2:e1",
    "leaf2:e2",
    "leaf2:gw",
    "leaf2:u1",
    "leaf2:u2",
    "spine1:leaf1",
    "spine1:leaf2",
    "spine2:leaf1",
    "spine2:leaf2",
];

#[test]
fn service_and_attachment_become_ready_and_are_deleted_in_order() {
    let (mut w, s, a) = ready_world();
    assert_eq!(w.phases[&s], [Phase::Pending, Phase::Ready]);
    assert_eq!(w.phases[&a], [Phase::Pending, Phase::Ready]);
    assert_eq!(w.carrying_ports(100), ALL_PORTS);
    assert_eq!(w.nad("ns", "a").unwrap().vlans, NadVlans::Access(vid(100)));
    assert_eq!(w.statuses[&s].connection_points, [to_name("cp")]);

    w.delete_and_settle(&s);
    assert_eq!((w.phase(&s), w.message(&s)), (Phase::Terminating, "in use by L2ServiceAttachment ns/a"));
    assert_eq!(w.phase(&a), Phase::Ready);
    let late = w.apply_and_settle(attachment("late", &["s"], "cp"));
    assert_eq!(w.phase(&late), Phase::Error);
    w.delete(&late);
    w.delete_and_settle(&a);
    assert_eq!(w.message(&a), "");
    assert_eq!(w.phases[&a], [Phase::Pending, Phase::Ready, Phase::Terminating, Phase::Deleted]);
    assert_eq!(w.phases[&s], [Phase::Pending, Phase::Ready, Phase::Terminating, Phase::Deleted]);
    assert!(w.carrying_ports(100).is_empty() && !w.objects.contains_key(&s) && !w.objects.contains_key(&a));
    assert!(!w.applied.contains_key(&Target::Nad("ns".into(), "a".into())));
}

#[test]
fn attachment_deletion_waits_for_pod_and_switch() {
    let (mut w, _, a) = ready_world();
    w.apply_pod(pod_using("pod", &["a"]));
    w.delete_and_settle(&a);
    assert_eq!(w.message(&a), "in use by pod pod");
    assert!(w.nad("ns", "a").is_some());
    w.silent.insert(switch("leaf1"));
    w.remove_pod_and_settle("uid-pod");
    w.assert_message_contains(&a, Phase::Terminating, "FabricDevice leaf1");
    w.end_silence();
    assert!(!w.objects.contains_key(&a));
}

#[test]
fn vlan_id_has_one_holder() {
    let mut w = World::leaf_spine();
    let young = w.apply_and_settle(created(service("young", 100, &["dc"]), 200));
    let old = w.apply_and_settle(created(service("old", 200, &["dc"]), 100));
    assert_eq!((w.phase(&young), w.phase(&old)), (Phase::Ready, Phase::Ready));
    w.apply_and_settle(edit_service(&w.objects[&old], |spec| spec.vid = vid(100)));
    w.assert_message_contains(&old, Phase::Error, "held by L2Service young");
    assert_eq!(w.carrying_ports(200), ["leaf2:gw"], "the applied VLAN stays");
    w.delete_and_settle(&young);
    assert_eq!(w.phase(&old), Phase::Ready);
    assert_eq!(w.carrying_ports(100), ["leaf2:gw"]);
    assert!(w.carrying_ports(200).is_empty());
}

#[test]
fn deleted_object_frees_its_vlan_before_its_gone_event() {
    for former in [service("former", 100, &["dc"]), bridge_domain("former", 100, &["cp"])] {
        let mut w = World::leaf_spine();
        let former = w.apply_and_settle(former);
        w.delayed_deletions = Some(Vec::new());
        w.delete_and_settle(&former);
        assert_eq!(w.phase(&former), Phase::Deleted);
        let next = w.apply(service("next", 100, &["dc"]));
        let user = w.apply_and_settle(attachment("user", &["next"], "cp"));
        for key in [&next, &user] {
            assert_eq!(w.phases[key], [Phase::Pending, Phase::Ready], "{key}: {}", w.message(key));
        }
        w.end_delay_of_deletions();
        assert_eq!(w.carrying_ports(100), ALL_PORTS);
    }
}

#[test]
fn pool_that_reaches_a_fabric_does_not_take_a_held_vlan() {
    let mut w = World::leaf_spine();
    for node in ["node1", "node2", "node3", "node4"] {
        w.apply_node(node, false, true);
    }
    let s = w.apply(created(service("s", 100, &[]), 1));
    let a = w.apply(attachment("a", &["s"], "cp"));
    let holder = w.apply_and_settle(created(service("holder", 100, &["dc"]), 2));
    assert_eq!((w.phase(&s), w.phase(&a), w.phase(&holder)), (Phase::Ready, Phase::Ready, Phase::Ready));
    w.apply_node_and_settle("node3", true, true);
    for restarted in [false, true] {
        assert_eq!((w.phase(&s), w.phase(&holder)), (Phase::Error, Phase::Ready), "{restarted}");
        assert!(w.message(&s).contains("held by L2Service holder in the fabric"), "{}", w.message(&s));
        assert!(w.message(&a).contains("L2Service s is in error"), "{}", w.message(&a));
        assert!(w.nad("ns", "a").is_some(), "its NAD stays");
        assert_eq!(w.carrying_ports(100), ["leaf2:gw"]);
        w.restart_and_settle();
    }
    let late = w.apply_and_settle(attachment("late", &["holder"], "cp"));
    assert_eq!(w.phase(&late), Phase::Error, "s still holds the VLAN on those bridges");
    assert!(w.message(&late).contains("held by L2Service s in bridge br-cp"), "{}", w.message(&late));
    assert_eq!(w.carrying_ports(100), ["leaf2:gw"]);
    w.delete(&holder);
    w.delete_and_settle(&late);
    assert_eq!((w.phase(&s), w.phase(&a)), (Phase::Ready, Phase::Ready));
    assert_eq!(w.carrying_ports(100), ["leaf2:e1"]);
}

#[test]
fn moving_service_conflicts_are_decided_on_current_holders() {
    let mut w = World::leaf_spine();
    w.apply(connection_point("cp2", Some("pool")));
    w.apply(point_without_nics("bare"));
    let moving = w.apply(created(service("moving", 100, &[]), 1));
    let first = w.apply_and_settle(attachment("z", &["moving"], "cp"));
    // The service leaves the fabric and changes its VLAN ID while another service requests that ID there.
    w.apply(attachment("z", &["moving"], "bare"));
    w.apply(service("moving", 101, &[]));
    let late = w.apply(attachment("a", &["moving"], "cp2"));
    let holder = w.apply_and_settle(created(service("holder", 101, &["dc"]), 2));
    assert_eq!((w.phase(&moving), w.phase(&first)), (Phase::Ready, Phase::Ready), "{}", w.message(&moving));
    assert_eq!((w.phase(&holder), w.phase(&late)), (Phase::Ready, Phase::Error));
    assert!(w.message(&late).contains("held by L2Service holder"), "{}", w.message(&late));
    assert!(w.nad("ns", "a").is_none());
    assert_eq!(w.carrying_ports(101), ["leaf2:gw"]);
}

#[test]
fn renamed_fabric_keeps_its_vlan_holders() {
    let mut w = World::leaf_spine();
    let young = w.apply_and_settle(created(service("young", 100, &["dc"]), 200));
    let old = w.apply_and_settle(created(service("old", 100, &["dc"]), 100));
    let link = to_device("leaf1", "u3");
    w.apply_and_settle(device("access1", &[("u1", link)]));
    assert_eq!((w.phase(&young), w.phase(&old)), (Phase::Ready, Phase::Error));
    assert!(w.message(&old).contains("the fabric of FabricDevice access1"), "{}", w.message(&old));
    assert_eq!(w.carrying_ports(100), ["leaf2:gw"]);
}

#[test]
fn attachment_of_a_terminating_service_can_move() {
    let mut w = World::leaf_spine();
    w.apply(connection_point("cp2", Some("pool")));
    let s = w.apply(service("s", 100, &[]));
    let a = w.apply_and_settle(attachment("a", &["s"], "cp"));
    w.delete(&s);
    w.apply_and_settle(attachment("a", &["s"], "cp2"));
    assert_eq!((w.phase(&s), w.phase(&a)), (Phase::Terminating, Phase::Ready), "{}", w.message(&a));
    w.delete_and_settle(&a);
    assert!(w.carrying_ports(100).is_empty() && !w.objects.contains_key(&s));
}

#[test]
fn duplicate_vlan_id_without_ports_is_rejected() {
    let mut w = World::leaf_spine();
    let a = w.apply(created(service("a", 100, &[]), 1));
    let b = w.apply_and_settle(created(service("b", 100, &[]), 2));
    assert_eq!((w.phase(&a), w.phase(&b)), (Phase::Ready, Phase::Error));
    assert!(w.message(&b).contains("held by L2Service a"), "{}", w.message(&b));
}

#[test]
fn changed_vlan_id_is_published_once_per_target() {
    let (mut w, s, a) = ready_world();
    let before = w.published;
    w.apply_and_settle(edit_service(&w.objects[&s], |spec| spec.vid = vid(300)));
    assert!(w.carrying_ports(100).is_empty());
    assert_eq!(w.carrying_ports(300), ALL_PORTS);
    assert_eq!(w.published - before, 5, "four switches and a NAD, once each");
    assert_eq!(w.phases[&a], [Phase::Pending, Phase::Ready, Phase::Pending, Phase::Ready]);
    assert_eq!(w.nad("ns", "a").unwrap().vlans, NadVlans::Access(vid(300)));
}

#[test]
fn rejected_vlan_fails_only_its_objects() {
    let mut w = World::leaf_spine();
    let bad = rejection(Item::vlan(vid(105)), "no more VLANs");
    w.rejections.insert(switch("leaf1"), vec![bad]);
    for i in 100..110 {
        w.apply(service(&format!("s{i}"), i, &["dc"]));
        w.apply(attachment(&format!("a{i}"), &[&format!("s{i}")], "cp"));
    }
    w.settle();
    let in_error: Vec<String> = w
        .statuses
        .iter()
        .filter(|(_, s)| s.phase == Some(Phase::Error))
        .map(|(k, _)| k.to_string())
        .collect();
    assert_eq!(in_error, ["L2Service/s105", "L2ServiceAttachment/ns/a105"]);
    let key = Key::cluster(Kind::L2Service, &"s105".into());
    assert_eq!(w.message(&key), "FabricDevice leaf1: VLAN 105 on port e1: no more VLANs");
}

#[test]
fn unreachable_switch_degrades_but_does_not_fail() {
    let (mut w, _, a) = ready_world();
    let leaf1 = switch("leaf1");
    w.silent.insert(leaf1.clone());
    w.report_unreachable(&leaf1);
    w.settle();
    assert_eq!(w.phase(&a), Phase::Ready);
    assert!(condition(&w.statuses[&a], "Degraded").is_some_and(|degraded| degraded.holds));
    w.apply(service("s2", 101, &["dc"]));
    let b = w.apply_and_settle(attachment("b", &["s2"], "cp"));
    assert_eq!(w.phase(&b), Phase::Pending);
    assert!(w.message(&b).contains("leaf1") && w.message(&b).contains("refused"), "{}", w.message(&b));
    w.end_silence();
    assert_eq!(w.phase(&b), Phase::Ready);
    assert!(condition(&w.statuses[&a], "Degraded").is_none());
}

#[test]
fn missing_reference_is_named_and_recovers() {
    let mut w = World::leaf_spine();
    let a = w.apply_and_settle(attachment("a", &["s"], "cpx"));
    assert_eq!(
        w.message(&a),
        "spec.ConnectionPoint: ConnectionPoint cpx does not exist; create it or correct the name"
    );
    w.apply_and_settle(connection_point("cpx", Some("pool")));
    assert!(w.message(&a).contains("L2Service s does not exist"), "{}", w.message(&a));
    let s = w.apply_and_settle(with_subnets(&service("s", 100, &["dc"]), &["sn"]));
    assert!(w.message(&s).contains("spec.Subnets: Subnet sn does not exist"), "{}", w.message(&s));
    assert!(w.message(&a).contains("L2Service s is in error"), "{}", w.message(&a));
    w.apply_and_settle(subnet("sn", "10.0.0.0/24"));
    assert_eq!((w.phase(&s), w.phase(&a)), (Phase::Ready, Phase::Ready));
    assert_eq!(w.nad("ns", "a").unwrap().subnets.len(), 1);
    w.apply_and_settle(subnet("sn", "10.0.1.0/24"));
    assert_eq!(w.nad("ns", "a").unwrap().subnets[0].network.to_string(), "10.0.1.0/24");
    assert_eq!(w.phases[&a].last_chunk(), Some(&[Phase::Ready, Phase::Pending, Phase::Ready]));
}

#[test]
fn ipvlan_requires_a_subnet() {
    let mut w = World::leaf_spine();
    let ipvlan = Plugin::Ipvlan { master: "eth1".into() };
    w.apply(edit_point(&connection_point("cpx", Some("pool")), |spec| spec.cnis = vec![kernel_cni(ipvlan)]));
    let s = w.apply(service("s", 100, &["dc"]));
    let a = w.apply_and_settle(attachment("a", &["s"], "cpx"));
    assert_eq!(
        w.message(&a),
        "spec.L2Services[0]: L2Service s has no Subnets; the CNI plugin ipvlan needs one: \
         add a Subnet to it or set Implementation to another plugin"
    );
    w.apply(edit_subnet(&subnet("sn", "10.0.0.0/24"), |spec| spec.ipam = Ipam::HostLocal));
    w.apply_and_settle(with_subnets(&service("s", 100, &["dc"]), &["sn"]));
    assert_eq!((w.phase(&s), w.phase(&a)), (Phase::Ready, Phase::Ready));
}

#[test]
fn objects_applied_together_may_arrive_in_any_order() {
    let mut w = World::leaf_spine();
    w.awaits_never_elapse = true;
    let a = w.apply_and_settle(attachment("a", &["s"], "cp"));
    assert_eq!(w.phases[&a], [Phase::Pending]);
    assert!(w.message(&a).contains("L2Service s does not exist"));
    w.apply_and_settle(service("s", 100, &["dc"]));
    assert_eq!(w.phases[&a], [Phase::Pending, Phase::Ready]);
}

#[test]
fn invalid_edit_keeps_the_realised_state() {
    let (mut w, _, a) = ready_world();
    w.apply_and_settle(Object { spec: Err(Invalid::new("MTU", "too small")), ..w.objects[&a].clone() });
    assert_eq!((w.phase(&a), w.message(&a)), (Phase::Error, "spec.MTU: too small"));
    assert_eq!(w.carrying_ports(100), ALL_PORTS);
    w.restart_and_settle();
    assert_eq!(w.phase(&a), Phase::Error);
    assert_eq!(w.carrying_ports(100), ALL_PORTS, "also with a new engine");
    assert!(w.nad("ns", "a").is_some());
}

#[test]
fn joining_and_leaving_nodes_change_ports() {
    let mut w = World::leaf_spine();
    w.apply(service("s", 100, &[]));
    let a = w.apply(attachment("a", &["s"], "cp"));
    w.apply_node("node3", false, true);
    w.remove_node_and_settle("node4");
    assert_eq!(w.carrying_ports(100), ["leaf1:e1", "leaf1:e2"]);
    w.apply_node_and_settle("node3", true, true);
    assert!(
        w.carrying_ports(100).contains(&"leaf2:e1".to_owned())
            && w.carrying_ports(100).contains(&"spine2:leaf1".to_owned())
    );
    assert_eq!(w.phases[&a], [Phase::Pending, Phase::Ready], "a joining node does not make it pending");
    w.apply_node_and_settle("node5", true, true);
    w.assert_message_contains(&a, Phase::Error, "node node5 of NodePool pool has no switch port");
}

#[test]
fn attachment_without_switch_ports_needs_only_its_nad() {
    let mut w = World::leaf_spine();
    w.apply(connection_point("bare", None));
    w.apply(service("s", 100, &[]));
    w.apply(point_without_nics("only"));
    let a = w.apply_and_settle(attachment("a", &["s"], "only"));
    assert_eq!(w.phase(&a), Phase::Ready);
    assert!(condition(&w.statuses[&a], "FabricManaged").is_some_and(|managed| !managed.holds));
}

#[test]
fn restart_publishes_and_writes_nothing() {
    let mut w = World::leaf_spine();
    for i in 100..110 {
        w.apply(created(service(&format!("s{i}"), i, &["dc"]), i64::from(i)));
        w.apply(attachment(&format!("a{i}"), &[&format!("s{i}")], "cp"));
    }
    w.settle();
    let (statuses, published) = (w.statuses.clone(), w.published);
    w.restart_and_settle();
    assert_eq!(w.published, published, "no command is published");
    assert_eq!(w.statuses, statuses, "no status is written");
}

#[test]
fn restart_continues_a_deletion() {
    let (mut w, s, a) = ready_world();
    let leaf1 = switch("leaf1");
    w.silent.insert(leaf1.clone());
    w.delete(&a);
    w.delete_and_settle(&s);
    assert_eq!(w.phase(&a), Phase::Terminating);
    w.restart_and_settle();
    assert_eq!(w.phase(&a), Phase::Terminating, "leaf1 still carries it");
    w.end_silence();
    assert_eq!((w.phase(&a), w.message(&a)), (Phase::Deleted, ""));
    assert_eq!((w.phase(&s), w.message(&s)), (Phase::Deleted, ""));
    assert!(w.carrying_ports(100).is_empty() && !w.objects.contains_key(&a) && !w.objects.contains_key(&s));
}

#[test]
fn deleted_device_is_drained_first() {
    let (mut w, _, a) = ready_world();
    let leaf2 = device_key("leaf2");
    w.silent.insert(switch("leaf2"));
    w.delete(&leaf2);
    w.report_unreachable(&switch("leaf2"));
    w.settle();
    w.assert_message_contains(&leaf2, Phase::Terminating, "forget");
    w.end_silence();
    assert!(!w.objects.contains_key(&leaf2) && !w.applied.contains_key(&switch("leaf2")));
    assert_eq!(w.phase(&a), Phase::Error, "its nodes have lost their ports");
    assert_eq!(w.carrying_ports(100), ["leaf1:e1", "leaf1:e2"]);
}

#[test]
fn manual_and_generated_bridge_domains_are_realised_and_deleted() {
    let mut w = World::new(true, false);
    w.apply_leaf_spine();
    let d = w.apply(bridge_domain("d", 50, &["cp"]));
    w.apply(service("s", 100, &[]));
    let a = w.apply_and_settle(attachment("a", &["s"], "cp"));
    assert_eq!(w.phase(&d), Phase::Ready);
    assert_eq!(w.carrying_ports(50).len(), 12);
    assert_eq!(w.bridge_domains[&to_name("s")].as_ref().unwrap().vlan.get(), 100);
    w.delete_and_settle(&a);
    assert_eq!(w.bridge_domains[&to_name("s")], None);
    w.delete_and_settle(&d);
    assert!(w.carrying_ports(50).is_empty() && !w.objects.contains_key(&d));
}
