//! Hot-plug: attachments that are plugged into running pods.

use eno_core::{Key, Object};
use eno_schemas::{
    CniName, HostNetwork, LinkKind, LinkName, Master, Parent, Phase, Pool, PortVlans, VlanType,
};

use crate::edits::{edit_attachment, edit_subnet};
use crate::fixtures::{attachment_key, vid};
use crate::world::*;

const HOT: &str = "attach.eno.k8s.io/a";

/// A Subnet with a route and a HotPlugPool from the first to the last address.
fn with_pool(pool: Option<(&str, &str)>) -> Object {
    let pool = pool.map(|(start, end)| Pool { start: start.parse().unwrap(), end: end.parse().unwrap() });
    edit_subnet(&subnet("sn", "10.1.0.0/24"), |spec| {
        spec.hot_plug_pool = pool.into_iter().collect();
        spec.routes = vec!["out".into()];
    })
}

/// Why a pod does not have what the object gives to it.
fn problem<'a>(w: &'a World, key: &Key, pod: &str) -> &'a str {
    pod_entry(w, key, pod).problem.as_deref().unwrap()
}

fn hot_plug_world(pool: Option<(&str, &str)>) -> World {
    let mut w = World::with_agents();
    w.apply(route("out", "10.1.0.1"));
    w.apply(with_pool(pool));
    for (name, vid) in [("s", 100), ("t", 200)] {
        w.apply(with_subnets(&service(name, vid, &[]), &["sn"]));
    }
    w
}

#[test]
fn labelled_attachment_is_plugged_into_a_running_pod() {
    let mut w = hot_plug_world(Some(("10.1.0.1", "10.1.0.9")));
    let a = w.apply(attachment("a", &["s"], "cp"));
    w.apply_pod(pod("x", "node1", &[(HOT, "")]));
    w.apply_pod_and_settle(pod("y", "node2", &[(HOT, "data0")]));
    assert_eq!(w.phase(&a), Phase::Ready, "{}", w.message(&a));
    let x = applied_pod(&w, "node1", "x").unwrap().links[0].clone();
    let vlans = PortVlans::Access(vid(100));
    assert_eq!(x.kind, LinkKind::Veth { master: Some(Master::Ovs { bridge: "br-cp".into(), vlans }) });
    assert_eq!(x.name, LinkName::Fixed("net0".into()));
    assert_eq!(pod_addresses(&w, "node1", "x"), ["10.1.0.2/24"], "not the gateway's");
    assert_eq!(x.routes[0].next_hop, Some("10.1.0.1".parse().unwrap()));
    assert_eq!(applied_pod(&w, "node2", "y").unwrap().links[0].name, LinkName::Fixed("data0".into()));
    assert_eq!(pod_addresses(&w, "node2", "y"), ["10.1.0.3/24"]);
    assert_eq!(w.pod_networks[&to_name("uid-x")].interfaces[0].routes, ["30.0.0.0/8 via 10.1.0.1"]);
    // A changed attachment keeps the interface.
    w.apply_and_settle(edit_attachment(&w.objects[&a], |spec| {
        (spec.services, spec.mtu) = (vec!["t".into()], Some(1450));
    }));
    let now = applied_pod(&w, "node1", "x").unwrap().links[0].clone();
    assert_eq!((&now.id, &now.name, now.mtu, &now.addresses), (&x.id, &x.name, Some(1450), &x.addresses));
    assert!(
        matches!(&now.kind, LinkKind::Veth { master: Some(Master::Ovs { vlans: PortVlans::Access(vid), .. }) } if vid.get() == 200)
    );
    // The attachment is in use until the label is removed.
    w.delete_and_settle(&a);
    assert_eq!(w.message(&a), "in use by pod x and 1 more");
    assert!(applied_pod(&w, "node1", "x").is_some());
    w.apply_pod(pod("x", "node1", &[]));
    w.remove_pod_and_settle("uid-y");
    assert!(!w.objects.contains_key(&a), "{}", w.message(&a));
    assert!(applied_pod(&w, "node1", "x").is_none());
}

#[test]
fn trunk_is_plugged_with_its_subinterfaces() {
    let mut w = hot_plug_world(Some(("10.1.0.10", "10.1.0.19")));
    w.apply(attachment("a", &["s", "t"], "cp"));
    w.apply_pod_and_settle(pod("x", "node1", &[(HOT, "up")]));
    let links = applied_pod(&w, "node1", "x").unwrap().links;
    let names: Vec<&LinkName> = links.iter().map(|link| &link.name).collect();
    assert_eq!(
        names,
        [&LinkName::Fixed("up".into()), &LinkName::Fixed("up.100".into()), &LinkName::Fixed("up.200".into())]
    );
    assert!(
        matches!(&links[0].kind, LinkKind::Veth { master: Some(Master::Ovs { vlans: PortVlans::Trunk(vlans), .. }) } if vlans.to_string() == "100,200")
    );
    assert_eq!(links[1].kind, LinkKind::Vlan { parent: Parent::Link(links[0].id.clone()), vlan: vid(100) });
    assert!(links[0].addresses.is_empty());
    assert_eq!(links[2].addresses, ["10.1.0.11/24".parse().unwrap()]);
}

#[test]
fn pod_that_cannot_be_plugged_has_a_problem_in_status() {
    let mut w = hot_plug_world(None);
    let a = w.apply(attachment("a", &["s"], "cp"));
    w.apply_pod_and_settle(pod("x", "node1", &[(HOT, "")]));
    assert_eq!(w.phase(&a), Phase::Ready, "the attachment is ready for other pods");
    let no_pool = problem(&w, &a, "x");
    assert!(no_pool.starts_with("Subnet sn has no HotPlugPool"), "{no_pool}");
    let condition = condition(&w.statuses[&a], "PodsReady").unwrap();
    assert!(!condition.holds && condition.message.starts_with("Pod x: Subnet sn has no"));
    w.apply_and_settle(with_pool(Some(("10.1.0.9", "10.1.0.9"))));
    assert_eq!(pod_addresses(&w, "node1", "x"), ["10.1.0.9/24"]);
    w.apply_pod_and_settle(pod("y", "node2", &[(HOT, "")]));
    assert_eq!(problem(&w, &a, "y"), "the HotPlugPool of Subnet sn has no address left; widen it");
    for (name, expected) in [("eth0", "eth0 is the name of"), ("a-name-of-sixteen", "at most 15")] {
        w.apply_pod_and_settle(pod("y", "node2", &[(HOT, name)]));
        assert!(problem(&w, &a, "y").contains(expected));
    }
    w.apply_node("node9", false, true);
    w.apply_pod_and_settle(pod("far", "node9", &[(HOT, "")]));
    assert!(problem(&w, &a, "far").contains("is not one of ConnectionPoint cp"));
}

#[test]
fn pods_keep_addresses_when_their_node_registers_again() {
    for (restarted, spec_changed) in [(false, false), (true, false), (false, true), (true, true)] {
        let mut w = hot_plug_world(Some(("10.1.0.10", "10.1.0.19")));
        let a = w.apply(attachment("a", &["s"], "cp"));
        let c = w.apply(pod_config("c", vec![veth("pc0", "pcbr0", "10.9.0.0/24")]));
        let labels = [(HOT, ""), ("podconfig", "c")];
        for name in ["x", "y"] {
            w.apply_pod_and_settle(pod(name, "node1", &labels));
        }
        w.remove_pod_and_settle("uid-x");
        let before = pod_addresses(&w, "node1", "y");
        assert_eq!(before, ["10.1.0.11/24", "10.9.0.3/24"], "addresses of deleted pods are free");
        w.remove_node_and_settle("node1");
        assert!(!w.applied.contains_key(&node_target("node1")));
        if spec_changed {
            w.apply_and_settle(edit_attachment(&w.objects[&a], |spec| spec.services = vec!["t".into()]));
        }
        if restarted {
            w.restart_and_settle();
        }
        // Other pods do not get the addresses of the pod.
        for name in ["k", "l", "m"] {
            w.apply_pod_and_settle(pod(name, "node2", &labels));
        }
        let taken: Vec<String> =
            ["k", "l", "m"].iter().flat_map(|name| pod_addresses(&w, "node2", name)).collect();
        assert!(before.iter().all(|address| !taken.contains(address)), "{taken:?}");
        w.apply_node_and_settle("node1", true, true);
        assert_eq!(
            pod_addresses(&w, "node1", "y"),
            before,
            "restarted {restarted}, spec changed {spec_changed}"
        );
        assert_eq!((w.phase(&a), w.phase(&c)), (Phase::Ready, Phase::Ready), "{}", w.message(&a));
        // Leases end with the pod, also if the node is absent.
        w.remove_node("node1");
        w.remove_pod("uid-y");
        w.apply_pod_and_settle(pod("z", "node2", &labels));
        assert!(find_pod_entry(&w, &a, "y").is_none() && find_pod_entry(&w, &c, "y").is_none());
        // The freed address is reused after all others of the pool.
        let others: Vec<String> = (0..6).map(|number| format!("n{number}")).collect();
        for name in &others {
            w.apply_pod_and_settle(pod(name, "node2", &labels));
        }
        let now: Vec<String> = others.iter().flat_map(|name| pod_addresses(&w, "node2", name)).collect();
        assert!(now.contains(&before[0]), "{now:?}");
    }
}

#[test]
fn addresses_on_an_absent_node_stay_leased() {
    let mut w = hot_plug_world(Some(("10.1.0.10", "10.1.0.11")));
    let a = w.apply(attachment("a", &["s"], "cp"));
    w.apply_pod_and_settle(pod("x", "node1", &[(HOT, "")]));
    w.remove_node_and_settle("node1");
    // The lease of a removed label ends once the node confirms the removal.
    w.apply_pod_and_settle(pod("x", "node1", &[]));
    assert_eq!(problem(&w, &a, "x"), "what it was given is being taken back");
    w.restart();
    w.apply_pod_and_settle(pod("y", "node2", &[(HOT, "")]));
    assert_eq!(pod_addresses(&w, "node2", "y"), ["10.1.0.11/24"]);
    w.apply_node_and_settle("node1", true, true);
    assert!(find_pod_entry(&w, &a, "x").is_none(), "{:?}", w.statuses[&a].pods);
    w.apply_pod_and_settle(pod("z", "node2", &[(HOT, "")]));
    assert_eq!(pod_addresses(&w, "node2", "z"), ["10.1.0.10/24"]);
    // A deleted node does not block the deletion of the attachment.
    w.remove_node("node2");
    for name in ["y", "z"] {
        w.apply_pod(pod(name, "node2", &[]));
    }
    w.delete_and_settle(&a);
    assert!(!w.objects.contains_key(&a), "{}", w.message(&a));
}

#[test]
fn new_engine_keeps_a_lease_until_the_node_releases_it() {
    let mut w = hot_plug_world(Some(("10.1.0.10", "10.1.0.11")));
    let a = w.apply(attachment("a", &["s"], "cp"));
    w.apply_pod_and_settle(pod("x", "node1", &[(HOT, "")]));
    w.silent.insert(node_target("node1"));
    w.apply_pod_and_settle(pod("x", "node1", &[]));
    w.restart_and_settle();
    w.apply_pod_and_settle(pod("y", "node2", &[(HOT, "")]));
    assert_eq!(
        pod_addresses(&w, "node2", "y"),
        ["10.1.0.11/24"],
        "node1 has not confirmed that the other is free"
    );
    w.end_silence();
    assert!(find_pod_entry(&w, &a, "x").is_none(), "{:?}", w.statuses[&a].pods);
    w.apply_pod_and_settle(pod("z", "node2", &[(HOT, "")]));
    assert_eq!(pod_addresses(&w, "node2", "z"), ["10.1.0.10/24"]);
}

#[test]
fn pod_keeps_its_address_when_its_node_leaves_the_pool_briefly() {
    let mut w = hot_plug_world(Some(("10.1.0.10", "10.1.0.19")));
    let a = w.apply(attachment("a", &["s"], "cp"));
    for name in ["x", "y"] {
        w.apply_pod_and_settle(pod(name, "node1", &[(HOT, "")]));
    }
    w.remove_pod_and_settle("uid-x");
    w.silent.insert(node_target("node1"));
    // A node that registers again may get its labels later.
    w.apply_node_and_settle("node1", false, true);
    assert!(problem(&w, &a, "y").contains("is not one of ConnectionPoint cp"));
    w.apply_node_and_settle("node1", true, true);
    w.end_silence();
    assert_eq!(pod_addresses(&w, "node1", "y"), ["10.1.0.11/24"]);
    assert_eq!(w.statuses[&a].pods[0].leases[&to_name("a")].len(), 1);
}

#[test]
fn interface_names_of_several_attachments_are_unique_and_stable() {
    let mut w = hot_plug_world(Some(("10.1.0.10", "10.1.0.19")));
    for name in ["a", "b", "c"] {
        w.apply(attachment(name, &["s"], "cp"));
    }
    let (b, c) = ("attach.eno.k8s.io/b", "attach.eno.k8s.io/c");
    w.apply_pod_and_settle(pod("x", "node1", &[(b, ""), (c, "net0")]));
    let names = |w: &World| -> Vec<LinkName> {
        applied_pod(w, "node1", "x").unwrap().links.into_iter().map(|link| link.name).collect()
    };
    let fixed = |names: &[&str]| names.iter().map(|name| LinkName::Fixed((*name).into())).collect::<Vec<_>>();
    assert_eq!(names(&w), fixed(&["net0"]));
    let key = attachment_key("c");
    assert!(problem(&w, &key, "x").contains("taken by an interface of L2ServiceAttachment b"));
    w.apply_pod_and_settle(pod("x", "node1", &[(HOT, ""), (b, ""), (c, "data")]));
    assert_eq!(names(&w), fixed(&["net1", "net0", "data"]), "an assigned name stays");
    w.restart_and_settle();
    assert_eq!(names(&w), fixed(&["net1", "net0", "data"]));
    w.apply_pod_and_settle(pod("x", "node1", &[(HOT, ""), (c, "data")]));
    assert_eq!(names(&w), fixed(&["net1", "data"]));
}

#[test]
fn anti_spoof_is_for_running_pods_and_plugins_that_can_enforce_it() {
    let mut w = hot_plug_world(Some(("10.1.0.10", "10.1.0.19")));
    let guarded = |services: &[&str], implementation| {
        edit_attachment(&attachment("a", services, "cp"), |spec| {
            (spec.anti_spoof, spec.implementation) = (true, implementation);
        })
    };
    let a = w.apply(guarded(&["s"], None));
    w.apply_pod(pod("x", "node1", &[(HOT, "")]));
    w.apply_pod_and_settle(pod("y", "node1", &[(HOT, "")]));
    assert_eq!(w.phase(&a), Phase::Ready, "{}", w.message(&a));
    assert_eq!(w.nad("default", "a"), None);
    let link = |w: &World, pod: &str| applied_pod(w, "node1", pod).unwrap().links[0].clone();
    let (x, y) = (link(&w, "x"), link(&w, "y"));
    assert!(x.anti_spoof && y.anti_spoof && x.mac.is_some() && x.mac != y.mac);
    assert!(x.mac.as_ref().is_some_and(|mac| mac.starts_with("02:") && mac.len() == 17), "{:?}", x.mac);
    // A new leader gives the same address.
    w.restart_and_settle();
    assert_eq!(link(&w, "x"), x);
    w.apply_and_settle(guarded(&["s", "t"], None));
    let links = applied_pod(&w, "node1", "x").unwrap().links;
    assert_eq!(links.iter().map(|link| link.anti_spoof).collect::<Vec<_>>(), [true, false, false]);
    w.apply_and_settle(guarded(&["s"], Some(CniName::Macvlan)));
    assert_eq!(w.phase(&a), Phase::Error);
    assert!(
        w.message(&a).contains("AntiSpoof: macvlan of ConnectionPoint cp can't enforce it"),
        "{}",
        w.message(&a)
    );
}

#[test]
fn macvlan_uses_the_vlan_subinterface_as_master() {
    let mut w = hot_plug_world(Some(("10.1.0.10", "10.1.0.19")));
    let a = w.apply(edit_attachment(&attachment("a", &["s"], "cp"), |spec| {
        spec.implementation = Some(CniName::Macvlan);
    }));
    w.apply_pod_and_settle(pod("x", "node1", &[(HOT, "")]));
    assert_eq!(
        applied_pod(&w, "node1", "x").unwrap().links[0].kind,
        LinkKind::Macvlan { master: "eth1.100".into() }
    );
    assert!(
        matches!(&applied_node(&w, "node1").networks["eth1"], HostNetwork::Master { vlans, .. } if vlans.to_string() == "100")
    );
    w.apply_and_settle(edit_attachment(&w.objects[&a], |spec| spec.vlan_type = VlanType::Trunk));
    let links = applied_pod(&w, "node1", "x").unwrap().links;
    assert_eq!(links[0].kind, LinkKind::Macvlan { master: "eth1".into() });
    assert_eq!(links.len(), 2);
}

/// The node, which is away, can't confirm that the pod has lost the interface with the name.
#[test]
fn interface_keeps_its_name_with_a_new_engine_while_the_node_is_away() {
    const OTHER: &str = "attach.eno.k8s.io/b";
    let mut w = hot_plug_world(Some(("10.1.0.10", "10.1.0.11")));
    for name in ["a", "b"] {
        w.apply(attachment(name, &["s"], "cp"));
    }
    w.apply_pod_and_settle(pod("x", "node1", &[(OTHER, "data")]));
    w.apply_pod_and_settle(pod("x", "node1", &[(HOT, ""), (OTHER, "data")]));
    w.remove_node_and_settle("node1");
    w.apply_pod_and_settle(pod("x", "node1", &[(HOT, "data"), (OTHER, "data")]));
    let a = attachment_key("a");
    let problem = "the name data is taken by an interface of L2ServiceAttachment b";
    for restarted in [false, true] {
        if restarted {
            w.restart_and_settle();
        }
        assert_eq!(pod_entry(&w, &a, "x").problem.as_deref(), Some(problem), "restarted {restarted}");
    }
}

/// The read-back interfaces of pods are not in a status that the next engine reads.
#[test]
fn interface_without_a_chosen_name_keeps_its_name_with_a_new_engine() {
    const OTHER: &str = "attach.eno.k8s.io/b";
    let mut w = World::with_agents();
    w.apply(service("s", 100, &[]));
    for name in ["a", "b"] {
        w.apply(attachment(name, &["s"], "cp"));
    }
    w.apply_pod_and_settle(pod("x", "node1", &[(OTHER, "")]));
    w.apply_pod_and_settle(pod("x", "node1", &[(OTHER, ""), (HOT, "")]));
    let names = |w: &World| {
        let pod = applied_pod(w, "node1", "x").unwrap();
        pod.links.iter().map(|link| (link.id.clone(), link.name.clone())).collect::<Vec<_>>()
    };
    let before = names(&w);
    assert_eq!(before.len(), 2);
    assert!(
        before.contains(&("L2ServiceAttachment/b/b".into(), LinkName::Fixed("net0".into()))),
        "{before:?}"
    );
    for status in w.statuses.values_mut() {
        status.pods.iter_mut().for_each(|pod| pod.links.clear());
    }
    w.restart_and_settle();
    assert_eq!(names(&w), before);
}
