//! Validation of Subnets and Routes, and addresses with more than one allocator.

use eno_core::{Condition, Key, Object};
use eno_schemas::{Ipam, Phase, Pool, VlanType};

use crate::edits::{edit_attachment, edit_subnet};
use crate::world::*;

const HOT: &str = "attach.eno.k8s.io/a";

fn routed(name: &str, network: &str, route: &str) -> Object {
    edit_subnet(&subnet(name, network), |spec| spec.routes = vec![route.into()])
}

/// The Subnet `sn` with a HotPlugPool.
fn hot_plug_subnet(first: &str, last: &str) -> Object {
    edit_subnet(&subnet("sn", "10.63.0.0/24"), |spec| spec.hot_plug_pool = pool(first, last))
}

fn pool(first: &str, last: &str) -> Vec<Pool> {
    vec![Pool { start: first.parse().unwrap(), end: last.parse().unwrap() }]
}

/// A service with the Subnet `sn`, and an access attachment of the service.
fn access_attachment(w: &mut World) -> (Key, Key) {
    let s = w.apply(with_subnets(&service("s", 100, &[]), &["sn"]));
    (s, w.apply(attachment("a", &["s"], "cp")))
}

/// The pools in the NAD of the attachment `a`.
fn pools(w: &World) -> Vec<String> {
    let pools = &w.nad("ns", "a").expect("a NAD").subnets[0].pools;
    pools.iter().map(|pool| format!("{}-{}", pool.start, pool.end)).collect()
}

fn condition<'a>(w: &'a World, key: &Key, kind: &str) -> Option<&'a Condition> {
    crate::world::condition(&w.statuses[key], kind)
}

#[test]
fn unreachable_next_hop_is_an_error_of_the_subnet() {
    let mut w = World::leaf_spine();
    let out = w.apply(route("out", "10.2.0.1"));
    let sn = w.apply(routed("sn", "10.1.0.0/24", "out"));
    let other = w.apply(routed("other", "10.2.0.0/24", "out"));
    let (s, a) = access_attachment(&mut w);
    w.settle();
    w.assert_phase(
        &[&sn],
        Phase::Error,
        "spec.Routes: the NextHop of Route out can't be reached from the subnet: 10.2.0.1 is not in 10.1.0.0/24; set \
         NextHop to an address of the subnet, or take the Route out",
    );
    assert_eq!((w.phase(&s), w.phase(&a)), (Phase::Error, Phase::Error));
    assert_eq!(
        (w.phase(&out), w.phase(&other)),
        (Phase::Ready, Phase::Ready),
        "the Route is valid in another Subnet"
    );
    w.apply_and_settle(edit_subnet(&w.objects[&sn], |spec| spec.routes.clear()));
    assert_eq!([&sn, &s, &a].map(|key| w.phase(key)), [Phase::Ready; 3], "{}", w.message(&a));
}

#[test]
fn route_outside_its_subnet_keeps_the_applied_state() {
    for route_first in [true, false] {
        let mut w = World::with_agents();
        let out = w.apply(route("out", "10.1.0.1"));
        let first = edit_subnet(&routed("sn", "10.1.0.0/24", "out"), |spec| {
            spec.hot_plug_pool = pool("10.1.0.10", "10.1.0.19");
        });
        let sn = w.apply(first.clone());
        let (_, a) = access_attachment(&mut w);
        w.apply_pod_and_settle(pod("x", "node1", &[(HOT, "")]));
        assert_eq!(w.phase(&a), Phase::Ready, "{}", w.message(&a));
        let before = (w.nad("ns", "a"), applied_pod(&w, "node1", "x"));
        let moved = edit_subnet(&first, |spec| {
            spec.network = "10.9.0.0/24".parse().unwrap();
            spec.hot_plug_pool = pool("10.9.0.10", "10.9.0.19");
        });
        if route_first {
            w.apply_and_settle(route("out", "10.9.0.1"));
            w.assert_phase(
                &[&out],
                Phase::Error,
                "spec.NextHop: 10.9.0.1 is not in 10.1.0.0/24, the network of Subnet sn, which names this Route; use \
                 an address of it, or take the Route out of its Routes",
            );
        } else {
            w.apply_and_settle(moved.clone());
            assert_eq!(w.phase(&out), Phase::Ready, "{}", w.message(&out));
        }
        for restarted in [false, true] {
            if restarted {
                w.restart_and_settle();
            }
            assert_eq!((w.phase(&sn), w.phase(&a)), (Phase::Error, Phase::Error), "{}", w.message(&sn));
            assert_eq!((w.nad("ns", "a"), applied_pod(&w, "node1", "x")), before, "the applied state stays");
        }
        w.apply_and_settle(if route_first { moved } else { route("out", "10.9.0.1") });
        assert_eq!([&out, &sn, &a].map(|key| w.phase(key)), [Phase::Ready; 3], "{}", w.message(&a));
        let nad = w.nad("ns", "a").unwrap();
        assert_eq!(nad.subnets[0].routes[0].next_hop.to_string(), "10.9.0.1");
        assert_eq!(pod_addresses(&w, "node1", "x"), ["10.9.0.10/24"]);
    }
}

#[test]
fn duplicate_route_is_rendered_once() {
    let mut w = World::leaf_spine();
    w.apply(route("out", "10.1.0.1"));
    w.apply(route("same", "10.1.0.1"));
    w.apply(edit_subnet(&subnet("sn", "10.1.0.0/24"), |spec| {
        spec.routes = vec!["out".into(), "same".into()];
    }));
    access_attachment(&mut w);
    w.settle();
    assert_eq!(w.nad("ns", "a").unwrap().subnets[0].routes.len(), 1);
    assert_eq!(pools(&w), ["10.1.0.2-10.1.0.254"], "without the gateway's address");
}

#[test]
fn nad_pools_exclude_leased_and_hot_plug_addresses() {
    let mut w = World::with_agents();
    w.apply(hot_plug_subnet("10.63.0.1", "10.63.0.9"));
    let (_, a) = access_attachment(&mut w);
    w.apply_pod_and_settle(pod("x", "node1", &[(HOT, "")]));
    assert_eq!(pod_addresses(&w, "node1", "x"), ["10.63.0.1/24"]);
    assert_eq!(pools(&w), ["10.63.0.10-10.63.0.254"]);
    // A pod keeps its address when the pool moves, also with a new engine.
    w.apply_and_settle(hot_plug_subnet("10.63.0.20", "10.63.0.29"));
    for restarted in [false, true] {
        if restarted {
            w.published = 0;
            w.restart_and_settle();
            assert_eq!(w.published, 0);
        }
        assert_eq!(pod_addresses(&w, "node1", "x"), ["10.63.0.1/24"]);
        assert_eq!(pools(&w), ["10.63.0.2-10.63.0.19", "10.63.0.30-10.63.0.254"]);
    }
    w.apply_and_settle(edit_subnet(&hot_plug_subnet("10.63.0.20", "10.63.0.29"), |spec| {
        spec.allocation_pool = pool("10.63.0.1", "10.63.0.5");
    }));
    assert_eq!(pools(&w), ["10.63.0.2-10.63.0.5"]);
    w.apply_pod_and_settle(pod("x", "node1", &[]));
    assert_eq!(pools(&w), ["10.63.0.1-10.63.0.5"]);
    assert_eq!(w.phase(&a), Phase::Ready);
}

#[test]
fn ending_pods_keep_the_attachment_ready_after_a_pool_move() {
    let mut w = World::with_agents();
    w.apply(hot_plug_subnet("10.63.0.1", "10.63.0.9"));
    let (_, a) = access_attachment(&mut w);
    w.apply_pod_and_settle(pod("x", "node1", &[(HOT, "")]));
    w.apply_pod_and_settle(pod("y", "node1", &[(HOT, "")]));
    w.apply_and_settle(hot_plug_subnet("10.63.0.20", "10.63.0.29"));
    let before = w.phases[&a].clone();
    assert_eq!(pools(&w), ["10.63.0.3-10.63.0.19", "10.63.0.30-10.63.0.254"]);
    w.remove_pod_and_settle("uid-x");
    assert_eq!(pools(&w), ["10.63.0.1-10.63.0.1", "10.63.0.3-10.63.0.19", "10.63.0.30-10.63.0.254"]);
    assert_eq!(w.phases[&a], before, "it stays ready while the NAD changes");
    // The same holds if a new engine receives the deletion of the pod.
    w.restart_and_settle();
    w.remove_pod_and_settle("uid-y");
    assert_eq!(pools(&w), ["10.63.0.1-10.63.0.19", "10.63.0.30-10.63.0.254"]);
    assert_eq!(w.phases[&a], before);
}

#[test]
fn nad_without_free_addresses_is_not_created() {
    let mut w = World::with_agents();
    w.apply(hot_plug_subnet("10.63.0.0", "10.63.0.255"));
    let (_, a) = access_attachment(&mut w);
    w.apply_pod_and_settle(pod("x", "node1", &[(HOT, "")]));
    let problem = "Subnet sn has no address left for the NetworkAttachmentDefinition, which is not there; narrow its \
                   HotPlugPool or widen its AllocationPool";
    let reported = condition(&w, &a, "AddressesAssigned").unwrap();
    assert_eq!((reported.holds, reported.reason.as_ref(), &*reported.message), (false, "NoneLeft", problem));
    assert_eq!((&*w.phases[&a], w.nad("ns", "a")), (&[Phase::Pending, Phase::Ready][..], None));
    assert_eq!(pod_addresses(&w, "node1", "x"), ["10.63.0.1/24"], "running pods still get an address");
    w.restart_and_settle();
    assert_eq!((w.phase(&a), w.nad("ns", "a")), (Phase::Ready, None));
    assert_eq!(condition(&w, &a, "AddressesAssigned").unwrap().reason.as_ref(), "NoneLeft");
    w.apply_and_settle(hot_plug_subnet("10.63.0.1", "10.63.0.253"));
    assert_eq!(w.phase(&a), Phase::Ready, "{}", w.message(&a));
    assert_eq!(condition(&w, &a, "AddressesAssigned"), None);
    assert_eq!(pools(&w), ["10.63.0.254-10.63.0.254"]);
    w.remove_pod("uid-x");
    w.delete_and_settle(&a);
    assert!(!w.objects.contains_key(&a), "{}", w.message(&a));
}

#[test]
fn host_local_ipam_sets_addresses_unique_condition() {
    let mut w = World::leaf_spine();
    w.apply(edit_subnet(&subnet("sn", "10.1.0.0/24"), |spec| spec.ipam = Ipam::HostLocal));
    let (_, a) = access_attachment(&mut w);
    w.settle();
    assert_eq!(w.phase(&a), Phase::Ready, "{}", w.message(&a));
    let reported = condition(&w, &a, "AddressesUnique").unwrap();
    assert_eq!(
        (reported.holds, reported.reason.as_ref(), &*reported.message),
        (
            false,
            "PerNode",
            "Subnet sn has Ipam host-local: pods on different nodes of ConnectionPoint cp get the same addresses; use \
             whereabouts"
        )
    );
    // A single node has no duplicates.
    w.apply(node_pool("pool", "pool", &["one"]));
    let one = |w: &mut World, node: &str| {
        w.apply_labelled_node(node, "pool", "one");
        w.settle();
    };
    one(&mut w, "node1");
    assert_eq!(condition(&w, &a, "AddressesUnique"), None);
    // Another attachment on the Subnet allocates by itself.
    let b = w.apply_and_settle(attachment("b", &["s"], "cp"));
    for key in [&a, &b] {
        let reported = condition(&w, key, "AddressesUnique").unwrap();
        let others = "pods of this attachment and of others on the Subnet get the same addresses";
        assert!(
            reported.reason.as_ref() == "PerAttachment" && reported.message.contains(others),
            "{reported:?}"
        );
    }
    w.delete_and_settle(&b);
    assert_eq!(condition(&w, &a, "AddressesUnique"), None);
    one(&mut w, "node2");
    assert_eq!(condition(&w, &a, "AddressesUnique").unwrap().reason.as_ref(), "PerNode");
    w.apply_and_settle(subnet("sn", "10.1.0.0/24"));
    assert_eq!(condition(&w, &a, "AddressesUnique"), None, "whereabouts");
}

/// The attachments with the condition `AddressesUnique`. A new engine must report the same.
fn attachments_sharing_addresses(w: &mut World, all: &[Key]) -> Vec<String> {
    w.settle();
    let shared = |w: &World| -> Vec<String> {
        let reported = |key: &&Key| condition(w, key, "AddressesUnique").is_some();
        let there = all.iter().filter(|key| w.objects.contains_key(*key));
        there.filter(reported).map(|key| key.name.to_string()).collect()
    };
    let before = (shared(w), all.iter().map(|key| w.statuses[key].clone()).collect::<Vec<_>>());
    w.restart_and_settle();
    let after = (shared(w), all.iter().map(|key| w.statuses[key].clone()).collect::<Vec<_>>());
    assert_eq!(before, after);
    after.0
}

#[test]
fn attachments_sharing_a_host_local_subnet_have_a_condition() {
    let mut w = World::leaf_spine();
    w.apply(node_pool("pool", "pool", &["one"]));
    for name in ["x", "y"] {
        w.apply(edit_subnet(&subnet(name, "10.1.0.0/24"), |spec| spec.ipam = Ipam::HostLocal));
    }
    let on = |w: &mut World, name: &str, vid, subnet: &str| {
        w.apply(with_subnets(&service(name, vid, &[]), &[subnet]))
    };
    on(&mut w, "s", 100, "x");
    on(&mut w, "t", 200, "y");
    let mut all: Vec<Key> = ["d", "e"].map(|name| w.apply(attachment(name, &["s"], "cp"))).to_vec();
    all.push(w.apply(attachment("b", &["t"], "cp")));
    assert_eq!(attachments_sharing_addresses(&mut w, &all), ["d", "e"]);
    // Two attachments join a single one at once.
    on(&mut w, "s", 100, "y");
    assert_eq!(attachments_sharing_addresses(&mut w, &all), ["d", "e", "b"]);
    // An attachment that sorts first does not change the messages of the others.
    all.push(w.apply(attachment("a", &["t"], "cp")));
    assert_eq!(attachments_sharing_addresses(&mut w, &all), ["d", "e", "b", "a"]);
    let a = all.pop().unwrap();
    w.delete(&a);
    assert_eq!(attachments_sharing_addresses(&mut w, &all), ["d", "e", "b"]);
    // They leave the single one again.
    on(&mut w, "s", 100, "x");
    assert_eq!(attachments_sharing_addresses(&mut w, &all), ["d", "e"]);
    // One attachment moves.
    w.apply(attachment("d", &["t"], "cp"));
    assert_eq!(attachments_sharing_addresses(&mut w, &all), ["d", "b"]);
    w.apply(attachment("d", &["s"], "cp"));
    assert_eq!(attachments_sharing_addresses(&mut w, &all), ["d", "e"]);
}

#[test]
fn subnets_of_trunks_are_assigned_by_the_pod() {
    let mut w = World::leaf_spine();
    w.apply(subnet("sn", "10.1.0.0/24"));
    access_attachment(&mut w);
    let t = w.apply_and_settle(service("t", 200, &[]));
    for vlan_type in [VlanType::SelectiveTrunk, VlanType::Trunk] {
        let b = w.apply_and_settle(edit_attachment(&attachment("b", &["s", "t"], "cp"), |spec| {
            spec.vlan_type = vlan_type;
        }));
        let reported = condition(&w, &b, "AddressesAssigned").unwrap();
        assert_eq!(
            (w.phase(&b), reported.holds, reported.reason.as_ref()),
            (Phase::Ready, false, "SetByPod")
        );
        assert!(
            reported.message.contains(vlan_type.as_str()) && reported.message.ends_with("itself: Subnets sn")
        );
    }
    let b = w.apply_and_settle(attachment("b", &["t"], "cp"));
    assert_eq!(condition(&w, &b, "AddressesAssigned"), None);
    assert_eq!(w.phase(&t), Phase::Ready);
}
