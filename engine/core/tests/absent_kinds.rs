//! An engine that begins while the API server does not know a kind.

use eno_core::{Key, Kind};
use eno_schemas::{Ipam, Phase, Pool};

use crate::edits::edit_subnet;
use crate::world::*;

/// A ready attachment `a` whose Subnet names a Route; `hot_plug`: running pods get addresses of it.
fn routed(mut w: World, hot_plug: bool) -> (World, Key, Key) {
    w.apply(route("out", "10.1.0.1"));
    let subnet = w.apply(edit_subnet(&subnet("sn", "10.1.0.0/24"), |spec| {
        spec.routes = vec!["out".into()];
        if hot_plug {
            let pool = Pool { start: "10.1.0.10".parse().unwrap(), end: "10.1.0.19".parse().unwrap() };
            spec.hot_plug_pool = vec![pool];
        }
    }));
    w.apply(with_subnets(&service("s", 100, &["dc"]), &["sn"]));
    let attachment = w.apply_and_settle(attachment("a", &["s"], "cp"));
    assert_eq!(w.phase(&attachment), Phase::Ready, "{}", w.message(&attachment));
    (w, subnet, attachment)
}

/// A new engine begins after the definition of a kind is gone, and with it all objects of the kind.
fn restart_without(w: &mut World, kind: Kind) -> Option<String> {
    w.objects.retain(|key, _| key.kind != kind);
    w.statuses.retain(|key, _| key.kind != kind);
    w.phases.retain(|key, _| key.kind != kind);
    w.restart();
    w.engine.need_of(kind).map(|need| need.to_string())
}

#[test]
fn networks_stay_and_come_without_routes() {
    let (mut w, subnet, a) = routed(World::leaf_spine(), true);
    let before = (w.nad("ns", "a"), w.carrying_ports(100), w.published);
    assert!(before.0.is_some() && !before.1.is_empty());
    assert_eq!(restart_without(&mut w, Kind::Route), None, "no node has an agent");
    w.settle();
    assert_eq!((w.nad("ns", "a"), w.carrying_ports(100), w.published), before);
    w.assert_phase(
        &[&subnet],
        Phase::Error,
        "spec.Routes: Route out does not exist; create it or correct the name",
    );
    w.apply(service("t", 200, &["dc"]));
    let b = w.apply_and_settle(attachment("b", &["t"], "cp"));
    assert_eq!(w.phase(&b), Phase::Ready, "{}", w.message(&b));
    w.apply_and_settle(route("out", "10.1.0.1"));
    assert_eq!([&subnet, &a].map(|key| w.phase(key)), [Phase::Ready; 2], "{}", w.message(&a));
    assert_eq!((w.nad("ns", "a"), w.carrying_ports(100)), (before.0, before.1));
}

#[test]
fn kind_that_realised_objects_name_is_needed() {
    let (mut w, ..) = routed(World::with_agents(), false);
    assert_eq!(restart_without(&mut w, Kind::Route), None, "no running pod has the Route");
    let (mut w, ..) = routed(World::with_agents(), true);
    let need = restart_without(&mut w, Kind::Route);
    assert_eq!(need.as_deref(), Some("Subnet/sn names Route/out"));
    let (mut w, subnet, _) = routed(World::with_agents(), false);
    w.apply_and_settle(edit_subnet(&w.objects[&subnet], |spec| spec.ipam = Ipam::Eno));
    let need = restart_without(&mut w, Kind::Route);
    assert_eq!(need.as_deref(), Some("Subnet/sn names Route/out"), "pods could get its next hop");
    for (kind, need) in [
        (Kind::Subnet, "L2Service/s names Subnet/sn"),
        (Kind::PhysicalNetwork, "FabricDevice/leaf2 names PhysicalNetwork/dc"),
    ] {
        let (mut w, ..) = routed(World::leaf_spine(), false);
        assert_eq!(restart_without(&mut w, kind).as_deref(), Some(need));
    }
    for kind in [Kind::Subnet, Kind::PhysicalNetwork] {
        let mut w = World::default();
        let named = w.apply(with_subnets(&service("s", 100, &["dc"]), &["sn"]));
        w.settle();
        assert_eq!(restart_without(&mut w, kind), None, "{named} has never had it");
    }
}

#[test]
fn kinds_that_networks_depend_on_are_needed() {
    for kind in [
        Kind::NodePool,
        Kind::FabricDevice,
        Kind::ConnectionPoint,
        Kind::L2Service,
        Kind::L2BridgeDomain,
        Kind::L2ServiceAttachment,
    ] {
        assert!(World::default().engine.need_of(kind).is_some(), "{kind}");
    }
}

#[test]
fn kinds_for_pods_are_needed_while_nodes_may_have_interfaces_of_them() {
    const KINDS: [Kind; 3] = [Kind::Bridge, Kind::PodNetworkConfig, Kind::PodConfig];
    let needs = |w: &World| KINDS.map(|kind| w.engine.need_of(kind).map(|need| need.to_string()));
    let mut w = World::leaf_spine();
    w.restart();
    assert_eq!(needs(&w), [None, None, None], "no node has an agent");

    let (mut w, ..) = routed(World::with_agents(), true);
    w.apply_pod_and_settle(pod("x", "node1", &[("attach.eno.k8s.io/a", "")]));
    assert!(applied_pod(&w, "node1", "x").is_some());
    w.restart();
    assert_eq!(needs(&w), [None, None, None], "its interface is of an attachment");
    w.apply(pod_config("pc", vec![veth("l", "br-x", "10.2.0.0/24")]));
    w.apply_pod_and_settle(pod("y", "node2", &[("podconfig", "pc")]));
    assert!(applied_pod(&w, "node2", "y").is_some());
    w.restart();
    let need = Some("pods on node node2 may have interfaces by it".to_owned());
    assert_eq!(needs(&w), [need.clone(), need.clone(), need]);
    w.nats.lose_streams();
    w.restart();
    let need = Some("NATS has no command that tells which interfaces pods have".to_owned());
    assert_eq!(needs(&w), [need.clone(), need.clone(), need]);
}
