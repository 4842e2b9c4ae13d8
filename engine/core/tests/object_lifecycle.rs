//! Lifecycles of objects, from creation to deletion.

use eno_core::spec::{Invalid, LeadsTo, Plugin, Spec, SubnetSpec, SupportedCni};
use eno_core::{Event, Key, Kind, Target};
use eno_schemas::{Ipam, Item, NadVlans, Phase, Rejection, VlanId};

#[allow(clippy::wildcard_imports, reason = "the tests use most of the simulated cluster")]
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
    let mut w = World::leaf_spine();
    let s = w.apply(service("s", 100, &["dc"]));
    let a = w.apply(attachment("a", &["s"], "cp"));
    w.settle();
    assert_eq!(w.phases[&s], [Phase::Pending, Phase::Ready]);
    assert_eq!(w.phases[&a], [Phase::Pending, Phase::Ready]);
    assert_eq!(w.carrying_ports(100), ALL_PORTS);
    assert_eq!(w.nad("ns", "a").unwrap().vlans, NadVlans::Access(VlanId::new(100).unwrap()));
    assert_eq!(w.statuses[&s].connection_points, [to_name("cp")]);

    w.delete(&s);
    w.settle();
    assert_eq!((w.phase(&s), w.message(&s)), (Phase::Terminating, "in use by L2ServiceAttachment ns/a"));
    assert_eq!(w.phase(&a), Phase::Ready);
    let late = w.apply(attachment("late", &["s"], "cp"));
    w.settle();
    assert_eq!(w.phase(&late), Phase::Error);
    w.delete(&late);
    w.delete(&a);
    w.settle();
    assert_eq!(w.message(&a), "");
    assert_eq!(w.phases[&a], [Phase::Pending, Phase::Ready, Phase::Terminating, Phase::Deleted]);
    assert_eq!(w.phases[&s], [Phase::Pending, Phase::Ready, Phase::Terminating, Phase::Deleted]);
    assert!(w.carrying_ports(100).is_empty() && !w.objects.contains_key(&s) && !w.objects.contains_key(&a));
    assert!(!w.applied.contains_key(&Target::Nad("ns".into(), "a".into())));
}

#[test]
fn attachment_deletion_waits_for_pod_and_switch() {
    let mut w = World::leaf_spine();
    w.apply(service("s", 100, &["dc"]));
    let a = w.apply(attachment("a", &["s"], "cp"));
    w.settle();
    w.apply_pod(pod_using("pod", &["a"]));
    w.delete(&a);
    w.settle();
    assert_eq!(w.message(&a), "in use by pod pod");
    assert!(w.nad("ns", "a").is_some());
    w.silent.insert(Target::Fabric("leaf1".into()));
    w.remove_pod("uid-pod");
    w.settle();
    assert_eq!(w.phase(&a), Phase::Terminating);
    assert!(w.message(&a).contains("FabricDevice leaf1"), "{}", w.message(&a));
    w.silent.clear();
    w.settle();
    assert!(!w.objects.contains_key(&a));
}

#[test]
fn vlan_id_has_one_holder() {
    let mut w = World::leaf_spine();
    let young = w.apply(created(service("young", 100, &["dc"]), 200));
    w.settle();
    let old = w.apply(created(service("old", 200, &["dc"]), 100));
    w.settle();
    assert_eq!((w.phase(&young), w.phase(&old)), (Phase::Ready, Phase::Ready));
    let edited = edit_spec(&w.objects[&old], |spec| {
        let Spec::Service(spec) = spec else { unreachable!() };
        spec.vid = VlanId::new(100).unwrap();
    });
    w.apply(edited);
    w.settle();
    assert_eq!(w.phase(&old), Phase::Error);
    assert!(w.message(&old).contains("held by L2Service young"), "{}", w.message(&old));
    assert_eq!(w.carrying_ports(200), ["leaf2:gw"], "the applied VLAN stays");
    w.delete(&young);
    w.settle();
    assert_eq!(w.phase(&old), Phase::Ready);
    assert_eq!(w.carrying_ports(100), ["leaf2:gw"]);
    assert!(w.carrying_ports(200).is_empty());
}

#[test]
fn deleted_object_frees_its_vlan_before_its_gone_event() {
    let domain = eno_core::spec::BridgeDomainSpec {
        vlan: VlanId::new(100).unwrap(),
        connection_points: vec!["cp".into()],
    };
    let domain = object(Kind::L2BridgeDomain, "former", Spec::BridgeDomain(domain));
    for former in [service("former", 100, &["dc"]), domain] {
        let mut w = World::leaf_spine();
        let former = w.apply(former);
        w.settle();
        w.delayed_deletions = Some(Vec::new());
        w.delete(&former);
        w.settle();
        assert_eq!(w.phase(&former), Phase::Deleted);
        let next = w.apply(service("next", 100, &["dc"]));
        let user = w.apply(attachment("user", &["next"], "cp"));
        w.settle();
        for key in [&next, &user] {
            assert_eq!(w.phases[key], [Phase::Pending, Phase::Ready], "{key}: {}", w.message(key));
        }
        for gone in w.delayed_deletions.take().unwrap() {
            w.engine.handle(Event::ObjectGone(gone));
        }
        w.settle();
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
    let holder = w.apply(created(service("holder", 100, &["dc"]), 2));
    w.settle();
    assert_eq!((w.phase(&s), w.phase(&a), w.phase(&holder)), (Phase::Ready, Phase::Ready, Phase::Ready));
    w.apply_node("node3", true, true);
    w.settle();
    for restarted in [false, true] {
        assert_eq!((w.phase(&s), w.phase(&holder)), (Phase::Error, Phase::Ready), "{restarted}");
        assert!(w.message(&s).contains("held by L2Service holder in the fabric"), "{}", w.message(&s));
        assert!(w.message(&a).contains("L2Service s is in error"), "{}", w.message(&a));
        assert!(w.nad("ns", "a").is_some(), "its NAD stays");
        assert_eq!(w.carrying_ports(100), ["leaf2:gw"]);
        w.restart();
        w.settle();
    }
    let late = w.apply(attachment("late", &["holder"], "cp"));
    w.settle();
    assert_eq!(w.phase(&late), Phase::Error, "s still holds the VLAN on those bridges");
    assert!(w.message(&late).contains("held by L2Service s in bridge br-cp"), "{}", w.message(&late));
    assert_eq!(w.carrying_ports(100), ["leaf2:gw"]);
    w.delete(&holder);
    w.delete(&late);
    w.settle();
    assert_eq!((w.phase(&s), w.phase(&a)), (Phase::Ready, Phase::Ready));
    assert_eq!(w.carrying_ports(100), ["leaf2:e1"]);
}

#[test]
fn moving_service_conflicts_are_decided_on_current_holders() {
    let mut w = World::leaf_spine();
    w.apply(connection_point("cp2", Some("pool")));
    let mut bare = connection_point("bare", None);
    let Ok(Spec::ConnectionPoint(spec)) = &mut bare.spec else { unreachable!() };
    spec.interfaces.clear();
    spec.cnis.truncate(1);
    w.apply(bare);
    let moving = w.apply(created(service("moving", 100, &[]), 1));
    let first = w.apply(attachment("z", &["moving"], "cp"));
    w.settle();
    // The service leaves the fabric and changes its VLAN ID while another service requests that ID there.
    w.apply(attachment("z", &["moving"], "bare"));
    w.apply(service("moving", 101, &[]));
    let late = w.apply(attachment("a", &["moving"], "cp2"));
    let holder = w.apply(created(service("holder", 101, &["dc"]), 2));
    w.settle();
    assert_eq!((w.phase(&moving), w.phase(&first)), (Phase::Ready, Phase::Ready), "{}", w.message(&moving));
    assert_eq!((w.phase(&holder), w.phase(&late)), (Phase::Ready, Phase::Error));
    assert!(w.message(&late).contains("held by L2Service holder"), "{}", w.message(&late));
    assert!(w.nad("ns", "a").is_none());
    assert_eq!(w.carrying_ports(101), ["leaf2:gw"]);
}

#[test]
fn renamed_fabric_keeps_its_vlan_holders() {
    let mut w = World::leaf_spine();
    let young = w.apply(created(service("young", 100, &["dc"]), 200));
    w.settle();
    let old = w.apply(created(service("old", 100, &["dc"]), 100));
    w.settle();
    let link = LeadsTo::Device { device: "leaf1".into(), port: "u3".into() };
    w.apply(device("access1", &[("u1", link)]));
    w.settle();
    assert_eq!((w.phase(&young), w.phase(&old)), (Phase::Ready, Phase::Error));
    assert!(w.message(&old).contains("the fabric of FabricDevice access1"), "{}", w.message(&old));
    assert_eq!(w.carrying_ports(100), ["leaf2:gw"]);
}

#[test]
fn attachment_of_a_terminating_service_can_move() {
    let mut w = World::leaf_spine();
    w.apply(connection_point("cp2", Some("pool")));
    let s = w.apply(service("s", 100, &[]));
    let a = w.apply(attachment("a", &["s"], "cp"));
    w.settle();
    w.delete(&s);
    w.apply(attachment("a", &["s"], "cp2"));
    w.settle();
    assert_eq!((w.phase(&s), w.phase(&a)), (Phase::Terminating, Phase::Ready), "{}", w.message(&a));
    w.delete(&a);
    w.settle();
    assert!(w.carrying_ports(100).is_empty() && !w.objects.contains_key(&s));
}

#[test]
fn duplicate_vlan_id_without_ports_is_rejected() {
    let mut w = World::leaf_spine();
    let a = w.apply(created(service("a", 100, &[]), 1));
    let b = w.apply(created(service("b", 100, &[]), 2));
    w.settle();
    assert_eq!((w.phase(&a), w.phase(&b)), (Phase::Ready, Phase::Error));
    assert!(w.message(&b).contains("held by L2Service a"), "{}", w.message(&b));
}

#[test]
fn changed_vlan_id_is_published_once_per_target() {
    let mut w = World::leaf_spine();
    let s = w.apply(service("s", 100, &["dc"]));
    let a = w.apply(attachment("a", &["s"], "cp"));
    w.settle();
    let before = w.published;
    let edited = edit_spec(&w.objects[&s], |spec| {
        let Spec::Service(spec) = spec else { unreachable!() };
        spec.vid = VlanId::new(300).unwrap();
    });
    w.apply(edited);
    w.settle();
    assert!(w.carrying_ports(100).is_empty());
    assert_eq!(w.carrying_ports(300), ALL_PORTS);
    assert_eq!(w.published - before, 5, "four switches and a NAD, once each");
    assert_eq!(w.phases[&a], [Phase::Pending, Phase::Ready, Phase::Pending, Phase::Ready]);
    assert_eq!(w.nad("ns", "a").unwrap().vlans, NadVlans::Access(VlanId::new(300).unwrap()));
}

#[test]
fn rejected_vlan_fails_only_its_objects() {
    let mut w = World::leaf_spine();
    let bad = Rejection {
        item: Item::vlan(VlanId::new(105).unwrap()),
        reason: "no more VLANs".into(),
        retryable: false,
        unreachable: false,
    };
    w.rejections.insert(Target::Fabric("leaf1".into()), vec![bad]);
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
    let mut w = World::leaf_spine();
    w.apply(service("s", 100, &["dc"]));
    let a = w.apply(attachment("a", &["s"], "cp"));
    w.settle();
    let leaf1 = Target::Fabric("leaf1".into());
    w.silent.insert(leaf1.clone());
    w.report_unreachable(&leaf1);
    w.settle();
    assert_eq!(w.phase(&a), Phase::Ready);
    assert!(w.statuses[&a].conditions.iter().any(|c| c.kind.as_ref() == "Degraded" && c.holds));
    w.apply(service("s2", 101, &["dc"]));
    let b = w.apply(attachment("b", &["s2"], "cp"));
    w.settle();
    assert_eq!(w.phase(&b), Phase::Pending);
    assert!(w.message(&b).contains("leaf1") && w.message(&b).contains("refused"), "{}", w.message(&b));
    w.silent.clear();
    w.settle();
    assert_eq!(w.phase(&b), Phase::Ready);
    assert!(!w.statuses[&a].conditions.iter().any(|c| c.kind.as_ref() == "Degraded"));
}

#[test]
fn missing_reference_is_named_and_recovers() {
    let mut w = World::leaf_spine();
    let a = w.apply(attachment("a", &["s"], "cpx"));
    w.settle();
    assert_eq!(
        w.message(&a),
        "spec.ConnectionPoint: ConnectionPoint cpx does not exist; create it or correct the name"
    );
    w.apply(connection_point("cpx", Some("pool")));
    w.settle();
    assert!(w.message(&a).contains("L2Service s does not exist"), "{}", w.message(&a));
    let mut s = service("s", 100, &["dc"]);
    let Ok(Spec::Service(spec)) = &mut s.spec else { unreachable!() };
    spec.subnets = vec!["sn".into()];
    let s = w.apply(s);
    w.settle();
    assert!(w.message(&s).contains("spec.Subnets: Subnet sn does not exist"), "{}", w.message(&s));
    assert!(w.message(&a).contains("L2Service s is in error"), "{}", w.message(&a));
    let subnet = SubnetSpec {
        ipam: Ipam::Whereabouts,
        network: "10.0.0.0/24".parse().unwrap(),
        allocation_pool: vec![],
        hot_plug_pool: vec![],
        routes: vec![],
        dns: eno_schemas::Dns::default(),
    };
    w.apply(object(Kind::Subnet, "sn", Spec::Subnet(subnet.clone())));
    w.settle();
    assert_eq!((w.phase(&s), w.phase(&a)), (Phase::Ready, Phase::Ready));
    assert_eq!(w.nad("ns", "a").unwrap().subnets.len(), 1);
    w.apply(object(
        Kind::Subnet,
        "sn",
        Spec::Subnet(SubnetSpec { network: "10.0.1.0/24".parse().unwrap(), ..subnet }),
    ));
    w.settle();
    assert_eq!(w.nad("ns", "a").unwrap().subnets[0].network.to_string(), "10.0.1.0/24");
    assert_eq!(w.phases[&a].last_chunk(), Some(&[Phase::Ready, Phase::Pending, Phase::Ready]));
}

#[test]
fn ipvlan_requires_a_subnet() {
    let mut w = World::leaf_spine();
    let mut offering = connection_point("cpx", Some("pool"));
    let Ok(Spec::ConnectionPoint(spec)) = &mut offering.spec else { unreachable!() };
    let kernel = vec![eno_schemas::InterfaceType::Kernel];
    spec.cnis = vec![SupportedCni {
        interfaces: kernel,
        plugin: Plugin::Ipvlan { master: "eth1".into() },
        mtu: None,
    }];
    w.apply(offering);
    let s = w.apply(service("s", 100, &["dc"]));
    let a = w.apply(attachment("a", &["s"], "cpx"));
    w.settle();
    assert_eq!(
        w.message(&a),
        "spec.L2Services[0]: L2Service s has no Subnets; the CNI plugin ipvlan needs one: \
         add a Subnet to it or set Implementation to another plugin"
    );
    let subnet = SubnetSpec {
        ipam: Ipam::HostLocal,
        network: "10.0.0.0/24".parse().unwrap(),
        allocation_pool: vec![],
        hot_plug_pool: vec![],
        routes: vec![],
        dns: eno_schemas::Dns::default(),
    };
    w.apply(object(Kind::Subnet, "sn", Spec::Subnet(subnet)));
    let mut with_subnet = service("s", 100, &["dc"]);
    let Ok(Spec::Service(spec)) = &mut with_subnet.spec else { unreachable!() };
    spec.subnets = vec!["sn".into()];
    w.apply(with_subnet);
    w.settle();
    assert_eq!((w.phase(&s), w.phase(&a)), (Phase::Ready, Phase::Ready));
}

#[test]
fn objects_applied_together_may_arrive_in_any_order() {
    let mut w = World::leaf_spine();
    w.awaits_never_elapse = true;
    let a = w.apply(attachment("a", &["s"], "cp"));
    w.settle();
    assert_eq!(w.phases[&a], [Phase::Pending]);
    assert!(w.message(&a).contains("L2Service s does not exist"));
    w.apply(service("s", 100, &["dc"]));
    w.settle();
    assert_eq!(w.phases[&a], [Phase::Pending, Phase::Ready]);
}

#[test]
fn invalid_edit_keeps_the_realised_state() {
    let mut w = World::leaf_spine();
    w.apply(service("s", 100, &["dc"]));
    let a = w.apply(attachment("a", &["s"], "cp"));
    w.settle();
    let mut broken = w.objects[&a].clone();
    broken.spec = Err(Invalid::new("MTU", "too small"));
    w.apply(broken);
    w.settle();
    assert_eq!((w.phase(&a), w.message(&a)), (Phase::Error, "spec.MTU: too small"));
    assert_eq!(w.carrying_ports(100), ALL_PORTS);
    w.restart();
    w.settle();
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
    w.remove_node("node4");
    w.settle();
    assert_eq!(w.carrying_ports(100), ["leaf1:e1", "leaf1:e2"]);
    w.apply_node("node3", true, true);
    w.settle();
    assert!(
        w.carrying_ports(100).contains(&"leaf2:e1".to_owned())
            && w.carrying_ports(100).contains(&"spine2:leaf1".to_owned())
    );
    assert_eq!(w.phases[&a], [Phase::Pending, Phase::Ready], "a joining node does not make it pending");
    w.apply_node("node5", true, true);
    w.settle();
    assert_eq!(w.phase(&a), Phase::Error);
    assert!(w.message(&a).contains("node node5 of NodePool pool has no switch port"), "{}", w.message(&a));
}

#[test]
fn attachment_without_switch_ports_needs_only_its_nad() {
    let mut w = World::leaf_spine();
    w.apply(connection_point("bare", None));
    w.apply(service("s", 100, &[]));
    let mut only = connection_point("only", Some("empty"));
    let Ok(Spec::ConnectionPoint(spec)) = &mut only.spec else { unreachable!() };
    spec.node_pool = None;
    spec.interfaces.clear();
    spec.cnis.truncate(1);
    w.apply(only);
    let a = w.apply(attachment("a", &["s"], "only"));
    w.settle();
    assert_eq!(w.phase(&a), Phase::Ready);
    assert!(w.statuses[&a].conditions.iter().any(|c| c.kind.as_ref() == "FabricManaged" && !c.holds));
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
    w.restart();
    w.settle();
    assert_eq!(w.published, published, "no command is published");
    assert_eq!(w.statuses, statuses, "no status is written");
}

#[test]
fn restart_continues_a_deletion() {
    let mut w = World::leaf_spine();
    let s = w.apply(service("s", 100, &["dc"]));
    let a = w.apply(attachment("a", &["s"], "cp"));
    w.settle();
    let leaf1 = Target::Fabric("leaf1".into());
    w.silent.insert(leaf1.clone());
    w.delete(&a);
    w.delete(&s);
    w.settle();
    assert_eq!(w.phase(&a), Phase::Terminating);
    w.restart();
    w.settle();
    assert_eq!(w.phase(&a), Phase::Terminating, "leaf1 still carries it");
    w.silent.clear();
    w.settle();
    assert_eq!((w.phase(&a), w.message(&a)), (Phase::Deleted, ""));
    assert_eq!((w.phase(&s), w.message(&s)), (Phase::Deleted, ""));
    assert!(w.carrying_ports(100).is_empty() && !w.objects.contains_key(&a) && !w.objects.contains_key(&s));
}

#[test]
fn deleted_device_is_drained_first() {
    let mut w = World::leaf_spine();
    w.apply(service("s", 100, &["dc"]));
    let a = w.apply(attachment("a", &["s"], "cp"));
    w.settle();
    let leaf2 = Key::cluster(Kind::FabricDevice, &"leaf2".into());
    w.silent.insert(Target::Fabric("leaf2".into()));
    w.delete(&leaf2);
    w.report_unreachable(&Target::Fabric("leaf2".into()));
    w.settle();
    assert_eq!(w.phase(&leaf2), Phase::Terminating);
    assert!(w.message(&leaf2).contains("forget"), "{}", w.message(&leaf2));
    w.silent.clear();
    w.settle();
    assert!(!w.objects.contains_key(&leaf2) && !w.applied.contains_key(&Target::Fabric("leaf2".into())));
    assert_eq!(w.phase(&a), Phase::Error, "its nodes have lost their ports");
    assert_eq!(w.carrying_ports(100), ["leaf1:e1", "leaf1:e2"]);
}

#[test]
fn manual_and_generated_bridge_domains_are_realised_and_deleted() {
    let mut w = World::new(true, false);
    w.apply_leaf_spine();
    let spec = eno_core::spec::BridgeDomainSpec {
        vlan: VlanId::new(50).unwrap(),
        connection_points: vec!["cp".into()],
    };
    let d = w.apply(object(Kind::L2BridgeDomain, "d", Spec::BridgeDomain(spec.clone())));
    w.apply(service("s", 100, &[]));
    let a = w.apply(attachment("a", &["s"], "cp"));
    w.settle();
    assert_eq!(w.phase(&d), Phase::Ready);
    assert_eq!(w.carrying_ports(50).len(), 12);
    assert_eq!(w.bridge_domains[&to_name("s")].as_ref().unwrap().vlan.get(), 100);
    w.delete(&a);
    w.settle();
    assert_eq!(w.bridge_domains[&to_name("s")], None);
    w.delete(&d);
    w.settle();
    assert!(w.carrying_ports(50).is_empty() && !w.objects.contains_key(&d));
}
