//! VRFs and VRFAttachments that are refused, and addresses that pods do not get because a device has them.

use std::collections::BTreeSet;

use eno_core::kinds::VrfAttachmentSpec;
use eno_core::{Event, Key, Kind, Labels, Object};
use eno_schemas::{Phase, Pool, VrfRoute};

use crate::edits::{edit_attachment, edit_routed, edit_subnet, edit_vrf};
use crate::fixtures::to_device;
use crate::vrfs::{Keys, add_gateway, gateway_world, routed_at};
use crate::world::*;

const HOT: &str = "attach.eno.k8s.io/a";

type Change = fn(&mut VrfAttachmentSpec);

fn addresses(spec: &mut VrfAttachmentSpec, all: &[&str]) {
    spec.interfaces[0].addresses = all.iter().map(|address| address.parse().unwrap()).collect();
}

fn route_by(prefix: &str, next_hop: &str) -> Vec<VrfRoute> {
    vec![VrfRoute { prefix: prefix.parse().unwrap(), next_hop: next_hop.parse().unwrap(), preference: None }]
}

fn pool(first: &str, last: &str) -> Vec<Pool> {
    vec![Pool { start: first.parse().unwrap(), end: last.parse().unwrap() }]
}

/// [`gateway_world`] with agents, and pods that are plugged in from a HotPlugPool.
fn world_with_pool() -> (World, Keys) {
    let mut w = World::with_agents();
    let keys = add_gateway(&mut w);
    w.apply(edit_subnet(&subnet("sn", "10.1.0.0/24"), |spec| {
        spec.hot_plug_pool = pool("10.1.0.10", "10.1.0.19");
    }));
    w.apply_and_settle(routed_at("gw"));
    w.assert_phase(&[&keys.vrf, &keys.routed, &keys.service, &keys.attachment], Phase::Ready, "");
    (w, keys)
}

/// The pools in the NAD of the attachment `a`.
fn pools(w: &World) -> Vec<String> {
    let pools = &w.nad("ns", "a").expect("a NAD").subnets[0].pools;
    pools.iter().map(|pool| format!("{}-{}", pool.start, pool.end)).collect()
}

#[test]
fn each_refusal_names_the_field_and_the_remedy() {
    let cases: [(Change, &str); 16] = [
        (
            |spec| addresses(spec, &["10.9.0.1/24"]),
            "spec.Interfaces[0].Addresses[0]: 10.9.0.1 is in no Subnet of L2Service s; give an address of one",
        ),
        (
            |spec| addresses(spec, &["10.1.0.1/24", "10.1.0.2/25"]),
            "spec.Interfaces[0].Addresses[1]: 10.1.0.2/25 has not the prefix length of Subnet sn; write 10.1.0.2/24",
        ),
        (
            |spec| addresses(spec, &["10.1.0.0/24"]),
            "spec.Interfaces[0].Addresses[0]: 10.1.0.0 is the network or the broadcast address of 10.1.0.0/24; give an \
             address of a host",
        ),
        (
            |spec| addresses(spec, &["10.1.0.255/24"]),
            "spec.Interfaces[0].Addresses[0]: 10.1.0.255 is the network or the broadcast address of 10.1.0.0/24; give an \
             address of a host",
        ),
        (
            |spec| addresses(spec, &["10.1.0.12/24"]),
            "spec.Interfaces[0].Addresses[0]: 10.1.0.12 is in the HotPlugPool 10.1.0.10-10.1.0.19 of Subnet sn, of which \
             running pods get addresses; give another, or narrow the pool",
        ),
        (
            |spec| spec.static_routes = route_by("10.45.0.0/16", "10.9.0.7"),
            "spec.StaticRoutes[0].NextHop: 10.9.0.7 is in the network of no address of Interfaces; give the address of a \
             host in one, or give the device an address there",
        ),
        (
            |spec| spec.static_routes = route_by("10.45.0.0/16", "10.1.0.255"),
            "spec.StaticRoutes[0].NextHop: 10.1.0.255 is the network or the broadcast address of 10.1.0.0/24; give the \
             address of a host",
        ),
        (
            |spec| spec.static_routes = route_by("10.45.0.0/16", "10.1.0.1"),
            "spec.StaticRoutes[0].NextHop: 10.1.0.1 is the address of the device itself; give that of a host behind it",
        ),
        (
            |spec| spec.mtu = Some(1400),
            "spec.MTU: 1400 is below the 1450 of L2ServiceAttachment ns/a; raise it, or lower that one",
        ),
        (
            |spec| spec.interfaces[0].device = "leaf1".into(),
            "spec.Interfaces[0].Device: FabricDevice leaf1 is not in Devices of VRF v: name one of leaf2, gw, or add it there",
        ),
        (|spec| spec.interfaces[0].device = "none".into(), "spec.Interfaces[].Device: FabricDevice none"),
        (|spec| spec.vrf = "none".into(), "spec.VRF: VRF none"),
        (
            |spec| spec.vrf = "gold".into(),
            "spec.L2Service: Services of VRF gold do not select L2Service s; an admin can widen them or label the service",
        ),
        (
            |spec| spec.vrf = "shared".into(),
            "spec.Interfaces[0].Addresses[0]: 10.1.0.1/24 overlaps 10.1.0.129/25 of VRFAttachment vb in VRF shared; use \
             another network or VRF",
        ),
        (
            |spec| {
                spec.vrf = "routes".into();
                spec.static_routes = route_by("10.50.0.0/16", "10.1.0.7");
            },
            "spec.StaticRoutes[0].Prefix: 10.50.0.0/16 overlaps 10.50.1.0/24 of VRFAttachment vc in VRF routes; use another \
             prefix or VRF",
        ),
        (
            |spec| {
                spec.vrf = "routes".into();
                spec.static_routes = route_by("10.3.0.0/16", "10.1.0.7");
            },
            "spec.StaticRoutes[0].Prefix: 10.3.0.0/16 overlaps 10.3.0.1/24 of VRFAttachment vc in VRF routes; use another \
             prefix or VRF",
        ),
    ];
    let (mut w, keys) = world_with_pool();
    w.apply(edit_attachment(&w.objects[&keys.attachment], |spec| spec.mtu = Some(1450)));
    w.apply(edit_vrf(&vrf("gold", &["gw"]), |spec| {
        spec.services = serde_json::from_value(
            serde_json::json!([{ "key": "tier", "operator": "In", "values": ["gold"] }]),
        )
        .unwrap();
    }));
    w.apply(vrf("shared", &["leaf2", "gw"]));
    w.apply(vrf("routes", &["leaf2", "gw"]));
    w.apply(subnet("half", "10.1.0.128/25"));
    w.apply(with_subnets(&service("t", 200, &[]), &["half"]));
    w.apply(subnet("third", "10.3.0.0/24"));
    w.apply(with_subnets(&service("u", 300, &[]), &["third"]));
    w.apply(vrf_attachment("vb", "shared", "t", "leaf2", &["10.1.0.129/25"]));
    w.apply_and_settle(edit_routed(
        &vrf_attachment("vc", "routes", "u", "leaf2", &["10.3.0.1/24"]),
        |spec| {
            spec.static_routes = route_by("10.50.1.0/24", "10.3.0.7");
        },
    ));
    w.assert_phase(&[&keys.routed], Phase::Ready, "");
    let ready = w.commanded_fabric("gw").clone();
    for (index, (change, expected)) in cases.iter().enumerate() {
        w.apply_and_settle(edit_routed(&routed_at("gw"), change));
        let message = w.message(&keys.routed).to_owned();
        assert_eq!(w.phase(&keys.routed), Phase::Error, "{index}: {message}");
        assert!(message.starts_with(expected), "{index}: {message}");
        assert_eq!(*w.commanded_fabric("gw"), ready, "{index}: what is realised stays");
        w.apply_and_settle(routed_at("gw"));
        w.assert_phase(&[&keys.routed], Phase::Ready, "");
    }
    w.assert_paths_agree();
}

#[test]
fn second_attachment_on_the_device_is_refused() {
    let (mut w, keys) = gateway_world("gw");
    let second = w.apply_and_settle(vrf_attachment("vz", "v", "s", "gw", &["10.1.0.9/24"]));
    w.assert_phase(
        &[&second],
        Phase::Error,
        "spec.Interfaces[0].Device: VRFAttachment va leads L2Service s in on FabricDevice gw already; give that one all \
         addresses, or delete it",
    );
    let other = w.apply_and_settle(vrf_attachment("vy", "v", "s", "leaf2", &["10.1.0.1/24"]));
    w.assert_message_contains(
        &other,
        Phase::Error,
        "spec.Interfaces[0].Addresses[0]: 10.1.0.1/24 overlaps 10.1.0.1/24 of VRFAttachment va in VRF v",
    );
    w.apply_and_settle(vrf_attachment("vy", "v", "s", "leaf2", &["10.1.0.3/24"]));
    w.assert_phase(&[&other, &keys.routed], Phase::Ready, "");
    // What held the place is gone.
    w.delete_and_settle(&keys.routed);
    w.assert_phase(&[&second], Phase::Ready, "");
}

/// What holds the place moves to another VRF or service.
#[test]
fn place_that_another_leaves_is_taken() {
    for to_other_vrf in [true, false] {
        let (mut w, keys) = gateway_world("gw");
        w.apply(subnet("half", "10.1.0.128/25"));
        w.apply(with_subnets(&service("t", 200, &[]), &["half"]));
        w.apply(with_subnets(&service("u", 300, &[]), &["sn"]));
        w.apply(vrf("w", &["gw"]));
        let second = w.apply_and_settle(vrf_attachment("second", "v", "t", "gw", &["10.1.0.129/25"]));
        w.assert_message_contains(&second, Phase::Error, "overlaps 10.1.0.1/24 of VRFAttachment va in VRF v");
        w.apply_and_settle(edit_routed(&routed_at("gw"), |spec| {
            if to_other_vrf {
                spec.vrf = "w".into();
            } else {
                (spec.service, spec.static_routes) = ("u".into(), Vec::new());
            }
        }));
        w.assert_phase(&[&keys.routed], Phase::Ready, "");
        if to_other_vrf {
            w.assert_phase(&[&second], Phase::Ready, "");
        }
        // A former place is not taken back from the one that has it now.
        w.apply_and_settle(routed_at("gw"));
        let message = "overlaps 10.1.0.129/25 of VRFAttachment second in VRF v";
        if to_other_vrf {
            w.assert_message_contains(&keys.routed, Phase::Error, message);
            w.assert_phase(&[&second], Phase::Ready, "");
        }
        w.restart_and_settle();
        assert_eq!(w.phase(if to_other_vrf { &keys.routed } else { &second }), Phase::Error);
    }
}

/// A VRFAttachment that leads another service in frees the addresses for the pods of the former one.
#[test]
fn addresses_of_a_former_service_are_free() {
    let (mut w, keys) = world_with_pool();
    w.apply(subnet("other", "10.2.0.0/24"));
    w.apply_and_settle(with_subnets(&service("t", 200, &[]), &["other"]));
    assert_eq!(pools(&w)[0], "10.1.0.2-10.1.0.9");
    w.apply_and_settle(vrf_attachment("va", "v", "t", "gw", &["10.2.0.1/24"]));
    w.assert_phase(&[&keys.routed], Phase::Ready, "");
    assert_eq!(pools(&w)[0], "10.1.0.1-10.1.0.9");
}

#[test]
fn name_of_a_vrf_is_taken_once_on_a_device() {
    let (mut w, keys) = gateway_world("gw");
    let other = w.apply_and_settle(edit_vrf(&vrf("other", &["spine1", "gw"]), |spec| {
        spec.device_name = Some("v".into());
    }));
    w.assert_phase(
        &[&other],
        Phase::Error,
        "spec.DeviceName: v on FabricDevice gw is of VRF v; set another DeviceName or delete that one",
    );
    assert!(w.commanded_fabric("spine1").vrfs.is_empty());
    for key in [&keys.routed, &keys.vrf] {
        w.delete_and_settle(key);
    }
    w.assert_phase(&[&other], Phase::Ready, "");
    assert_eq!(w.commanded_fabric("gw").vrfs[0].owner, "VRF/other");
}

#[test]
fn device_without_vrfs_is_refused() {
    let mut w = World::with_transactions();
    w.engine.handle(Event::DriversWithoutVrfs(BTreeSet::from(["netconf".into()])));
    let keys = add_gateway(&mut w);
    w.apply_and_settle(routed_at("gw"));
    w.assert_phase(
        &[&keys.vrf],
        Phase::Error,
        "spec.Devices[0].Name: the driver netconf of FabricDevice leaf2 makes no VRFs; name a device of a driver that does, \
         such as netconf",
    );
    w.assert_message_contains(&keys.routed, Phase::Error, "spec.VRF: VRF v");
    w.engine.handle(Event::DriversWithoutVrfs(BTreeSet::new()));
    w.settle();
    w.assert_phase(&[&keys.vrf, &keys.routed], Phase::Ready, "");
}

#[test]
fn labels_of_a_service_decide_whether_it_is_led_in() {
    let (mut w, keys) = gateway_world("gw");
    let selecting = edit_vrf(&w.objects[&keys.vrf], |spec| {
        spec.services = serde_json::from_value(
            serde_json::json!([{ "key": "tier", "operator": "In", "values": ["gold"] }]),
        )
        .unwrap();
    });
    w.apply_and_settle(selecting);
    w.assert_message_contains(&keys.routed, Phase::Error, "do not select L2Service s");
    let service = w.objects[&keys.service].clone();
    w.apply_and_settle(Object { labels: Labels::from([("tier".into(), "gold".into())]), ..service });
    w.assert_phase(&[&keys.routed], Phase::Ready, "");
}

#[test]
fn pods_do_not_get_the_addresses_of_devices() {
    let (mut w, keys) = world_with_pool();
    let free = ["10.1.0.2-10.1.0.9", "10.1.0.20-10.1.0.254"];
    assert_eq!(pools(&w), free);
    w.restart_and_settle();
    assert_eq!(pools(&w), free);
    w.apply_and_settle(edit_routed(&routed_at("gw"), |spec| {
        addresses(spec, &["10.1.0.1/24", "10.1.0.30/24"]);
    }));
    w.assert_phase(&[&keys.routed, &keys.attachment], Phase::Ready, "");
    assert_eq!(pools(&w), ["10.1.0.2-10.1.0.9", "10.1.0.20-10.1.0.29", "10.1.0.31-10.1.0.254"]);
    // A pool that grows over an address makes the VRFAttachment invalid, and still hands it to no pod.
    w.apply_and_settle(routed_at("gw"));
    w.apply_and_settle(edit_subnet(&w.objects[&Key::cluster(Kind::Subnet, &to_name("sn"))], |spec| {
        spec.hot_plug_pool = pool("10.1.0.1", "10.1.0.2");
    }));
    w.assert_message_contains(
        &keys.routed,
        Phase::Error,
        "10.1.0.1 is in the HotPlugPool 10.1.0.1-10.1.0.2 of Subnet sn",
    );
    w.apply_pod_and_settle(pod("x", "node1", &[(HOT, "")]));
    assert_eq!(pod_addresses(&w, "node1", "x"), ["10.1.0.2/24"]);
    w.apply_pod_and_settle(pod("y", "node2", &[(HOT, "")]));
    assert!(pod_entry(&w, &keys.attachment, "y").problem.is_some());
    // The address is free with the VRFAttachment.
    w.delete_and_settle(&keys.routed);
    assert_eq!(pod_addresses(&w, "node2", "y"), ["10.1.0.1/24"]);
    // Now the pod has it.
    w.phases.remove(&keys.routed);
    let again = w.apply_and_settle(routed_at("gw"));
    w.apply_and_settle(edit_subnet(&w.objects[&Key::cluster(Kind::Subnet, &to_name("sn"))], |spec| {
        spec.hot_plug_pool = pool("10.1.0.10", "10.1.0.19");
    }));
    w.assert_message_contains(
        &again,
        Phase::Error,
        "spec.Interfaces[0].Addresses[0]: Pod ns/y has 10.1.0.1; give another address, or delete the pod",
    );
    w.apply_pod_and_settle(pod("y", "node2", &[]));
    w.assert_phase(&[&again], Phase::Ready, "");
}

#[test]
fn shared_distinguisher_is_a_condition() {
    let (mut w, keys) = gateway_world("gw");
    let with = |object: &Object, all: &[&str]| {
        edit_vrf(object, |spec| {
            for (device, distinguisher) in spec.devices.iter_mut().zip(all) {
                device.route_distinguisher = Some((*distinguisher).into());
            }
            spec.export_targets = vec!["65000:1".into()];
        })
    };
    let note = |w: &World, key: &Key| {
        condition(&w.statuses[key], "SharedDistinguisher").map(|one| one.message.clone())
    };
    w.apply_and_settle(with(&w.objects[&keys.vrf], &["65000:1", "65000:1"]));
    assert_eq!(
        note(&w, &keys.vrf).as_deref(),
        Some(
            "65000:1 is the RouteDistinguisher on leaf2 and gw: a route reflector may hide one of two paths; give each \
             device and VRF one of its own"
        )
    );
    assert_eq!(w.phase(&keys.vrf), Phase::Ready, "it hinders nothing");
    w.apply_and_settle(with(&w.objects[&keys.vrf], &["65000:1", "65000:2"]));
    assert_eq!(note(&w, &keys.vrf), None);
    let other = w.apply_and_settle(with(&vrf("other", &["spine1"]), &["65000:2"]));
    for (key, whose) in
        [(&keys.vrf, "on gw, and VRF other has it on spine1"), (&other, "on spine1, and VRF v has it on gw")]
    {
        let note = note(&w, key).expect("a condition");
        assert!(note.starts_with(&format!("65000:2 is the RouteDistinguisher {whose}: ")), "{note}");
    }
    w.delete_and_settle(&other);
    assert_eq!(note(&w, &keys.vrf), None);
}

#[test]
fn next_hop_that_no_device_has_is_a_condition() {
    let (mut w, keys) = gateway_world("gw");
    let sn = Key::cluster(Kind::Subnet, &to_name("sn"));
    let note = |w: &World| {
        let condition = condition(&w.statuses[&sn], "NextHopAnswers");
        condition.map(|one| (one.holds, one.reason.is_unknown(), one.message.clone()))
    };
    w.apply(route("out", "10.1.0.9"));
    w.apply_and_settle(edit_subnet(&w.objects[&sn], |spec| spec.routes = vec!["out".into()]));
    let message = "NextHop 10.1.0.9 of Route out in L2Service s: no VRFAttachment of the service has it; change NextHop to an \
                   address of one, or give it to one";
    assert_eq!(note(&w), Some((false, false, message.into())));
    assert_eq!(w.phase(&sn), Phase::Ready);
    w.apply_and_settle(edit_routed(&routed_at("gw"), |spec| {
        addresses(spec, &["10.1.0.1/24", "10.1.0.9/24"]);
    }));
    assert_eq!(note(&w), None);
    w.apply_and_settle(routed_at("gw"));
    assert!(note(&w).is_some());
    w.apply_and_settle(route("out", "10.1.0.1"));
    assert_eq!(note(&w), None);
    w.apply_and_settle(route("out", "10.1.0.9"));
    assert!(note(&w).is_some());
    // Whether something behind a PhysicalNetwork answers is not known.
    w.apply_and_settle(with_subnets(&service("s", 100, &["dc"]), &["sn"]));
    assert_eq!(note(&w), None);
    w.apply_and_settle(with_subnets(&service("s", 100, &[]), &["sn"]));
    assert!(note(&w).is_some());
    w.delete_and_settle(&keys.routed);
    assert_eq!(note(&w), None, "without a VRFAttachment nothing is known");
}

#[test]
fn whether_a_link_local_next_hop_answers_is_unknown() {
    let mut w = World::with_transactions();
    w.apply(router("gw", &[("e1", to_device("leaf2", "r1"))]));
    let out = edit_spec(&route("out", "fe80::1"), |spec| {
        let eno_core::kinds::Spec::Route(spec) = spec else { unreachable!() };
        spec.prefix = "2001:db8:9::/48".parse().unwrap();
    });
    w.apply(out);
    let sn = w.apply(edit_subnet(&subnet("sn", "2001:db8::/64"), |spec| spec.routes = vec!["out".into()]));
    w.apply(with_subnets(&service("s", 100, &[]), &["sn"]));
    w.apply(vrf("v", &["gw"]));
    let va = w.apply_and_settle(vrf_attachment("va", "v", "s", "gw", &["2001:db8::1/64"]));
    w.assert_phase(&[&va, &sn], Phase::Ready, "");
    let condition = condition(&w.statuses[&sn], "NextHopAnswers").expect("a condition");
    assert!(condition.reason.is_unknown(), "{condition:?}");
}
