//! Links and addresses of running pods by PodConfig, PodNetworkConfig and Bridge.

use eno_core::kinds::PrimarySpec;
use eno_core::{ConditionReason, Event, Key, Kind};
use eno_schemas::{HostNetwork, Item, LinkKind, LinkName, Parent, PathMtu, Phase, Rejection};
use serde_json::json;

use crate::edits::edit_links;
use crate::fixtures::{rejection, vid};
use crate::world::*;

const LABEL: &str = "podconfig";

/// The PodConfig `c` with a link, and the pod `a` on node1 that has it.
fn world_with_configured_pod() -> (World, Key) {
    let mut w = World::with_agents();
    let c = w.apply(pod_config("c", vec![veth("pc0", "pcbr0", "10.9.0.0/24")]));
    w.apply_pod_and_settle(pod("a", "node1", &[(LABEL, "c")]));
    (w, c)
}

#[test]
fn sample_config_gives_selected_pods_links_and_addresses() {
    let mut w = World::with_agents();
    let c = w.apply_and_settle(pod_config(
        "c",
        vec![veth("pc0", "pcbr0", "192.168.100.0/24"), veth("pc1", "pcbr1", "192.168.99.0/24")],
    ));
    assert_eq!(w.phase(&c), Phase::Ready, "no pod selected: {}", w.message(&c));
    w.apply_pod(pod("a", "node1", &[(LABEL, "c")]));
    w.apply_pod(pod("b", "node1", &[(LABEL, "c")]));
    w.apply_pod_and_settle(pod("z", "node2", &[(LABEL, "other")]));
    assert_eq!(w.phases[&c], [Phase::Pending, Phase::Ready, Phase::Pending, Phase::Ready]);
    assert_eq!(pod_addresses(&w, "node1", "a"), ["192.168.100.2/24", "192.168.99.2/24"]);
    assert_eq!(pod_addresses(&w, "node1", "b"), ["192.168.100.3/24", "192.168.99.3/24"]);
    assert!(applied_node(&w, "node2").pods.is_empty());
    let a = applied_pod(&w, "node1", "a").unwrap();
    assert_eq!(
        (a.links[0].id.as_str(), &a.links[0].name),
        ("PodConfig/c/pc0", &LinkName::WithPid("pc0".into()))
    );
    assert_eq!(
        applied_node(&w, "node1").networks["pcbr0"],
        HostNetwork::PodBridge { addresses: vec!["192.168.100.1/24".parse().unwrap()], mtu: None }
    );
    assert!(!applied_node(&w, "node2").networks.contains_key("pcbr0"));
    let entry = pod_entry(&w, &c, "a");
    assert_eq!(entry.leases[&to_name("pc0")], ["192.168.100.2/24".parse().unwrap()]);
    assert_eq!(
        (entry.links[0].name.as_str(), entry.links[0].host_name.as_deref()),
        ("pc077", Some("hpc077"))
    );
    assert_eq!((entry.links[1].bridge.as_deref(), entry.problem.as_ref()), (Some("pcbr1"), None));
    let view = &w.pod_networks[&to_name("uid-a")];
    assert_eq!((&*view.node, view.interfaces.len()), ("node1", 2));
    assert_eq!((&view.interfaces[0].owner, view.interfaces[0].kind), (&c, "veth"));
    // The address of a deleted pod is not reused at once, because neighbours may cache its hardware address.
    w.remove_pod("uid-a");
    w.apply_pod_and_settle(pod("d", "node3", &[(LABEL, "c")]));
    assert_eq!(pod_addresses(&w, "node3", "d")[0], "192.168.100.4/24");
    assert_eq!(pod_addresses(&w, "node1", "b")[0], "192.168.100.3/24");
    assert!(applied_node(&w, "node3").networks.contains_key("pcbr0"));
    w.delete_and_settle(&c);
    assert!(!w.objects.contains_key(&c), "{}", w.message(&c));
    for name in ["node1", "node3"] {
        let desired = applied_node(&w, name);
        assert!(desired.pods.is_empty() && !desired.networks.contains_key("pcbr0"));
    }
    assert!(w.pod_networks.is_empty());
}

#[test]
fn lease_is_persisted_before_the_address_is_commanded() {
    let mut w = World::with_agents();
    let c = w.apply_and_settle(pod_config("c", vec![veth("pc0", "pcbr0", "10.9.0.0/24")]));
    w.delayed_status_writes = Some(Vec::new());
    w.apply_pod_and_settle(pod("a", "node1", &[(LABEL, "c")]));
    assert_eq!(pod_entry(&w, &c, "a").leases[&to_name("pc0")].len(), 1);
    assert_eq!(applied_pod(&w, "node1", "a"), None);
    assert_eq!((w.phase(&c), w.message(&c)), (Phase::Pending, "Pod a: its addresses are being written down"));
    for (key, count) in w.delayed_status_writes.take().unwrap() {
        w.engine.handle(Event::StatusWritten(key, count));
    }
    w.settle();
    assert_eq!(pod_addresses(&w, "node1", "a"), ["10.9.0.2/24"]);
    assert_eq!(w.phase(&c), Phase::Ready);
}

#[test]
fn pod_that_is_not_running_does_not_block_ready() {
    let mut w = World::with_agents();
    let c = w.apply(pod_config("c", vec![veth("pc0", "pcbr0", "10.9.0.0/24")]));
    w.apply_pod(eno_core::Pod { container: None, ..pod("early", "node1", &[(LABEL, "c")]) });
    w.apply_pod_and_settle(pod("runs", "node1", &[(LABEL, "c")]));
    assert_eq!(w.phase(&c), Phase::Ready);
    assert_eq!(applied_pod(&w, "node1", "early"), None);
    assert!(pod_entry(&w, &c, "early").problem.as_ref().unwrap().contains("until its first container runs"));
    w.apply_pod_and_settle(pod("early", "node1", &[(LABEL, "c")]));
    assert_eq!(pod_addresses(&w, "node1", "early"), ["10.9.0.3/24"]);
    assert_eq!(pod_entry(&w, &c, "early").problem, None);
    // A restarted container gets another id, and the pod keeps its address.
    w.apply_pod_and_settle(eno_core::Pod {
        container: Some("containerd://new".into()),
        ..pod("early", "node1", &[(LABEL, "c")])
    });
    assert_eq!(applied_pod(&w, "node1", "early").unwrap().container, "containerd://new");
    assert_eq!(pod_addresses(&w, "node1", "early"), ["10.9.0.3/24"]);
    w.apply_pod_and_settle(eno_core::Pod { host_network: true, ..pod("host", "node1", &[(LABEL, "c")]) });
    assert_eq!(w.phase(&c), Phase::Error);
    assert!(w.message(&c).starts_with("Pod host: it has hostNetwork"), "{}", w.message(&c));
    assert_eq!(applied_pod(&w, "node1", "host"), None);
    assert_eq!(pod_addresses(&w, "node1", "runs"), ["10.9.0.2/24"]);
}

#[test]
fn removed_label_removes_the_link_and_frees_its_address() {
    let (mut w, c) = world_with_configured_pod();
    w.silent.insert(node_target("node1"));
    w.apply_pod(pod("a", "node1", &[]));
    w.apply_pod_and_settle(pod("b", "node2", &[(LABEL, "c")]));
    assert_eq!(
        pod_addresses(&w, "node2", "b"),
        ["10.9.0.3/24"],
        "the first address is free once node1 confirms it"
    );
    assert_eq!(w.phase(&c), Phase::Ready);
    assert!(pod_entry(&w, &c, "a").problem.as_ref().unwrap().contains("taken back"));
    w.end_silence();
    assert_eq!(w.statuses[&c].pods.len(), 1);
    assert!(applied_pod(&w, "node1", "a").is_none() && !w.pod_networks.contains_key(&to_name("uid-a")));
    w.apply_pod_and_settle(pod("d", "node2", &[(LABEL, "c")]));
    assert_eq!(pod_addresses(&w, "node2", "d"), ["10.9.0.4/24"]);
}

#[test]
fn freed_address_is_reused_last() {
    let mut w = World::with_agents();
    let labels = [(LABEL, "c")];
    w.apply(pod_config("c", vec![veth("pc0", "pcbr0", "10.9.0.0/29")]));
    let mut next = |name: &str, labels: &[(&str, &str)]| {
        w.apply_pod_and_settle(pod(name, "node1", labels));
        applied_pod(&w, "node1", name).map(|_| pod_addresses(&w, "node1", name)[0].clone())
    };
    for (name, address) in [("a", "10.9.0.2/29"), ("b", "10.9.0.3/29"), ("e", "10.9.0.4/29")] {
        assert_eq!(next(name, &labels).as_deref(), Some(address));
    }
    // The first pod loses its label and gets it again; then the second.
    for (name, address) in [("a", "10.9.0.5/29"), ("b", "10.9.0.6/29")] {
        assert_eq!(next(name, &[]), None);
        assert_eq!(next(name, &labels).as_deref(), Some(address));
    }
    for (name, address) in [("f", "10.9.0.2/29"), ("g", "10.9.0.3/29")] {
        assert_eq!(next(name, &labels).as_deref(), Some(address));
    }
    // A waiting pod gets the freed address.
    assert_eq!(next("h", &labels), None);
    assert_eq!(next("e", &[]), None);
    assert_eq!(next("h", &labels).as_deref(), Some("10.9.0.4/29"));
}

#[test]
fn unused_lease_keeps_its_place_in_the_allocation_order() {
    let mut w = World::with_agents();
    w.apply(pod_config("c", vec![veth("pc0", "pcbr0", "10.9.0.0/24"), veth("pc1", "pcbr1", "10.8.0.0/30")]));
    for name in ["a", "b"] {
        w.apply_pod_and_settle(pod(name, "node1", &[(LABEL, "c")]));
    }
    // The second link of b never gets an address.
    assert_eq!(applied_pod(&w, "node1", "b"), None);
    for n in 0..3 {
        let name = format!("other{n}");
        w.apply_pod_and_settle(pod(&name, "node1", &[(LABEL, "c")]));
        w.remove_pod_and_settle(&format!("uid-{name}"));
    }
    w.remove_pod_and_settle("uid-a");
    assert_eq!(pod_addresses(&w, "node1", "b"), ["10.9.0.3/24", "10.8.0.2/30"]);
}

#[test]
fn config_is_pending_until_removed_links_are_gone() {
    let mut w = World::with_agents();
    let two = pod_config("c", vec![veth("pc0", "pcbr0", "10.9.0.0/24"), veth("pc1", "pcbr1", "10.8.0.0/24")]);
    let c = w.apply(two.clone());
    w.apply_pod_and_settle(pod("a", "node1", &[(LABEL, "c")]));
    assert_eq!(w.phase(&c), Phase::Ready);
    w.silent.insert(node_target("node1"));
    w.apply_and_settle(edit_links(&two, |spec| drop(spec.links.pop())));
    w.assert_message_contains(&c, Phase::Pending, "the removal of PodConfig/c/pc1 on Node node1");
    w.end_silence();
    assert_eq!(w.phase(&c), Phase::Ready, "{}", w.message(&c));
    assert_eq!(applied_pod(&w, "node1", "a").unwrap().links.len(), 1);
}

#[test]
fn path_mtu_below_the_link_mtu_is_a_condition() {
    let mut w = World::with_agents();
    let c = w.apply(edit_links(&pod_config("c", vec![veth("pc0", "pcbr0", "10.9.0.0/24")]), |spec| {
        spec.primary = Some(PrimarySpec { name: "eth0".into(), mtu: 9000 });
    }));
    for name in ["a", "b"] {
        w.apply_pod(pod(name, "node1", &[(LABEL, "c")]));
    }
    let mut path_mtu_condition = |path: Option<(&str, PathMtu)>| {
        w.path_mtus = path.map(|(id, path)| (id.to_owned(), path)).into_iter().collect();
        w.settle();
        w.run_driver_again(&node_target("node1"));
        assert_eq!(w.phase(&c), Phase::Ready);
        let before = w.statuses[&c].conditions.clone();
        w.restart_and_settle();
        assert_eq!(w.statuses[&c].conditions, before, "a new engine keeps the conditions");
        let found = condition(&w.statuses[&c], "PathMTU");
        found.map(|found| (found.holds, found.reason, found.message.clone()))
    };
    assert_eq!(path_mtu_condition(None), None);
    let path = |interface: &str, mtu, overhead| PathMtu { interface: interface.into(), mtu, overhead };
    let expected = "Pod a on Node node1: eth0 has an MTU of 9000, but cni0 on its way has 1500 (and 1 more)";
    let found = path_mtu_condition(Some(("PodConfig/c/eth0", path("cni0", 1500, 0))));
    assert_eq!(found, Some((false, ConditionReason::TooSmall, expected.to_owned())));
    let expected = "Pod a on Node node1: link pc0 has an MTU of 1500, and 50 bytes more in its tunnel, but eth0 on its \
                 way has 1500 (and 1 more)";
    let found = path_mtu_condition(Some(("PodConfig/c/pc0", path("eth0", 1500, 50))));
    assert_eq!(found, Some((false, ConditionReason::TooSmall, expected.to_owned())));
    assert_eq!(path_mtu_condition(None), None);
}

#[test]
fn deletion_waits_for_ready_nodes_only() {
    let (mut w, c) = world_with_configured_pod();
    w.silent.insert(node_target("node1"));
    w.delete_and_settle(&c);
    w.assert_message_contains(&c, Phase::Terminating, "Pod a on Node node1");
    w.restart_and_settle();
    assert_eq!(w.phase(&c), Phase::Terminating, "also with a new engine");
    w.apply_node_and_settle("node1", true, false);
    assert!(!w.objects.contains_key(&c));
}

#[test]
fn exhausted_pool_fails_only_pods_without_an_address() {
    let mut w = World::with_agents();
    let c = w.apply(pod_config(
        "c",
        vec![veth("pc0", "pcbr0", "10.9.0.0/30"), veth("pc1", "pcbr1", "10.8.0.0/24")],
    ));
    w.apply_pod(pod("a", "node1", &[(LABEL, "c")]));
    w.apply_pod_and_settle(pod("b", "node1", &[(LABEL, "c")]));
    assert_eq!(w.phase(&c), Phase::Error);
    assert_eq!(w.message(&c), "Pod b: link pc0: no address of 10.9.0.0/30 is free; take a larger cidr");
    assert_eq!(applied_pod(&w, "node1", "b"), None, "the pod gets no link");
    assert!(pod_entry(&w, &c, "b").leases.is_empty());
    assert_eq!(pod_addresses(&w, "node1", "a").len(), 2);
    w.remove_pod_and_settle("uid-a");
    assert_eq!(w.phase(&c), Phase::Ready);
    assert_eq!(pod_addresses(&w, "node1", "b"), ["10.9.0.2/30", "10.8.0.3/24"]);
}

/// A status holds the leases of its pods, and the API server takes no object of more than 1.5 MiB.
#[test]
fn pod_whose_leases_have_no_room_in_the_status_gets_none() {
    const ROOM: usize = 1024 * 1024;
    let mut w = World::with_agents();
    let links = (0..64).map(|n| veth(&format!("l{n:02}"), &format!("b{n:02}"), &format!("10.{n}.0.0/16")));
    let c = w.apply(pod_config("c", links.collect()));
    let name = |n: usize| format!("{n:02}{}", "x".repeat(240));
    for n in 0..32 {
        w.apply_pod(pod(&name(n), "node1", &[(LABEL, "c")]));
    }
    w.settle();
    let stored_size = |w: &World| {
        let lease = |(pod, link, addresses): (&str, &str, &[ipnet::IpNet])| {
            let uid = format!("uid-{pod}");
            json!({ "pod": pod, "uid": uid, "link": link, "addresses": addresses }).to_string().len() + 1
        };
        let pods = w.statuses[&c].pods.iter();
        let leases = pods.flat_map(|pod| pod.leases.iter().map(|(link, own)| (&*pod.name, &**link, &**own)));
        leases.map(lease).sum::<usize>()
    };
    let without = |w: &World| {
        let lacks = w.statuses[&c].pods.iter().filter(|pod| pod.leases.is_empty());
        lacks.map(|pod| pod.name.to_string()).collect::<Vec<_>>()
    };
    let lacking = without(&w);
    assert!((ROOM * 9 / 10..=ROOM).contains(&stored_size(&w)), "{}", stored_size(&w));
    assert!((1..10).contains(&lacking.len()), "{lacking:?}");
    let expected = format!(
        "Pod {}: the status has room for 1048576 bytes of leased addresses, which {} other pods fill; \
         let this pod use another PodConfig",
        lacking[0],
        32 - lacking.len()
    );
    w.assert_phase(&[&c], Phase::Error, &expected);
    assert_eq!(applied_pod(&w, "node1", &lacking[0]), None);
    // Nobody who has addresses loses them, also with a new engine.
    w.restart_and_settle();
    assert_eq!(without(&w), lacking);
    // An end of a pod makes room.
    let first = w.statuses[&c].pods.iter().find(|pod| !pod.leases.is_empty()).unwrap().uid.clone();
    w.remove_pod_and_settle(&first);
    assert_eq!(without(&w).len(), lacking.len() - 1);
}

#[test]
fn changed_cidrs_renumber_a_link_in_place() {
    let mut w = World::with_agents();
    let c = w.apply(pod_config("c", vec![veth("pc0", "pcbr0", "10.9.0.0/30")]));
    w.apply_pod_and_settle(pod("a", "node1", &[(LABEL, "c")]));
    let before = applied_pod(&w, "node1", "a").unwrap().links[0].clone();
    w.apply_and_settle(edit_links(&w.objects[&c], |spec| {
        spec.links[0].cidrs = vec!["10.7.0.0/16".parse().unwrap(), "fd00::/64".parse().unwrap()];
    }));
    let after = applied_pod(&w, "node1", "a").unwrap().links[0].clone();
    assert_eq!(before.id, after.id);
    assert_ne!(before.revision, after.revision);
    assert_eq!(pod_addresses(&w, "node1", "a"), ["10.7.0.2/16", "fd00::2/64"]);
    assert!(
        matches!(&applied_node(&w, "node1").networks["pcbr0"], HostNetwork::PodBridge { addresses, .. } if addresses.len() == 2)
    );
    assert_eq!(w.phase(&c), Phase::Ready);
    w.apply_and_settle(edit_links(&w.objects[&c], |spec| spec.links.clear()));
    assert!(applied_pod(&w, "node1", "a").is_none_or(|pod| pod.links.is_empty()));
    assert!(!applied_node(&w, "node1").networks.contains_key("pcbr0"));
}

#[test]
fn pod_bridge_belongs_to_one_namespace() {
    let mut w = World::with_agents();
    let c = w.apply_and_settle(pod_config("c", vec![veth("pc0", "pcbr0", "10.9.0.0/24")]));
    let mut foreign = pod_config("thief", vec![veth("x", "pcbr0", "10.9.0.0/24")]);
    foreign.key.namespace = "elsewhere".into();
    foreign.created = 50;
    let thief = w.apply_and_settle(foreign);
    w.assert_message_contains(&thief, Phase::Error, "belongs to namespace ns, where PodConfig c uses it");
    let cp = w.apply_and_settle(pod_config("cp", vec![veth("x", "br-cp", "10.9.0.0/24")]));
    assert!(w.message(&cp).contains("is a network of ConnectionPoint cp"), "{}", w.message(&cp));
    w.delayed_deletions = Some(Vec::new());
    w.delete_and_settle(&c);
    assert_eq!(w.phase(&c), Phase::Deleted);
    assert_eq!(
        w.phase(&thief),
        Phase::Ready,
        "before the gone event of the former user: {}",
        w.message(&thief)
    );
    w.end_delay_of_deletions();
    assert_eq!(w.phase(&thief), Phase::Ready, "{}", w.message(&thief));
}

/// Every kind of link on a host interface, except a bridge port.
fn link_kinds_on(parent: &str) -> Vec<LinkKind> {
    vec![
        LinkKind::Macvlan { master: parent.into() },
        LinkKind::Ipvlan { master: parent.into() },
        LinkKind::Vlan { parent: Parent::Host(parent.into()), vlan: vid(300) },
    ]
}

#[test]
fn links_on_connection_point_networks_are_rejected() {
    let mut w = World::with_agents();
    let parents = [("br-cp", true), ("eth1", true), ("eth1.100", true), ("eth9", false), ("eth9.100", false)];
    let all = parents
        .into_iter()
        .flat_map(|(parent, known)| link_kinds_on(parent).into_iter().map(move |on| (on, known)));
    for (n, (on, is_of_connection_point)) in all.enumerate() {
        let c = w.apply_and_settle(pod_config(&format!("c{n}"), vec![pod_link("x", on.clone())]));
        if is_of_connection_point {
            assert_eq!(w.phase(&c), Phase::Error, "{on:?}");
            assert!(w.message(&c).contains("of ConnectionPoint cp, which only"), "{}", w.message(&c));
        } else {
            assert_eq!(w.phase(&c), Phase::Ready, "the agent validates it: {on:?}: {}", w.message(&c));
        }
    }
}

#[test]
fn pod_bridge_cannot_be_a_parent_in_another_namespace() {
    for kind in link_kinds_on("pcbr0") {
        for bridge_first in [true, false] {
            let mut w = World::with_agents();
            let mut bridged = pod_config("c", vec![veth("pc0", "pcbr0", "10.9.0.0/24")]);
            let mut other = pod_config("o", vec![pod_link("x", kind.clone())]);
            other.key.namespace = "elsewhere".into();
            bridged.created = if bridge_first { 10 } else { 50 };
            other.created = if bridge_first { 50 } else { 10 };
            let (first, second) = if bridge_first { (bridged, other) } else { (other, bridged) };
            let (first, second) = (w.apply(first), w.apply(second));
            w.settle();
            assert_eq!(w.phase(&first), Phase::Ready, "{kind:?} {bridge_first} {}", w.message(&first));
            assert_eq!(w.phase(&second), Phase::Error, "{kind:?} {bridge_first}");
            assert!(w.message(&second).contains("belongs to namespace"), "{}", w.message(&second));
            if bridge_first {
                let same = w.apply_and_settle(pod_config("s", vec![pod_link("y", kind.clone())]));
                assert_eq!(w.phase(&same), Phase::Ready, "in its own namespace: {}", w.message(&same));
            }
            w.delete_and_settle(&first);
            assert_eq!(w.phase(&second), Phase::Ready, "{kind:?} {bridge_first} {}", w.message(&second));
        }
    }
}

#[test]
fn missing_labelled_attachment_is_a_problem_in_pod_network() {
    let mut w = World::with_agents();
    w.apply_pod_and_settle(pod("a", "node1", &[(LABEL, "c"), ("attach.eno.k8s.io/oam", "")]));
    let problems = |w: &World| -> Vec<Option<String>> {
        let view = w.pod_networks.get(&to_name("uid-a"));
        view.iter().flat_map(|view| &view.interfaces).map(|interface| interface.problem.clone()).collect()
    };
    let missing = Some("there is no L2ServiceAttachment oam in namespace ns, which a label names".to_owned());
    assert_eq!(problems(&w), std::slice::from_ref(&missing));
    let c = w.apply_and_settle(pod_config("c", vec![veth("pc0", "pcbr0", "10.9.0.0/24")]));
    assert_eq!(problems(&w), [None, missing.clone()]);
    w.delete(&c);
    w.apply(service("oam", 100, &[]));
    let a = w.apply_and_settle(attachment("oam", &["oam"], "cp"));
    assert!(!problems(&w).contains(&missing), "{:?}", problems(&w));
    // A user removes its finalizer.
    w.objects.remove(&a);
    w.engine.handle(Event::ObjectGone(a));
    w.settle();
    assert_eq!(problems(&w), [missing]);
    w.apply_pod_and_settle(pod("a", "node1", &[]));
    assert_eq!(problems(&w), []);
}

#[test]
fn bridge_object_sets_addresses_and_waits_for_its_users() {
    let (mut w, c) = world_with_configured_pod();
    let b = w.apply_and_settle(bridge("b", "pcbr0", &["10.5.0.0/24"]));
    assert_eq!((w.phase(&b), w.statuses[&b].nodes.clone()), (Phase::Ready, vec![to_name("node1")]));
    assert_eq!(pod_addresses(&w, "node1", "a"), ["10.5.0.2/24"]);
    let twin = w.apply_and_settle(bridge("twin", "pcbr0", &[]));
    assert!(w.message(&twin).contains("Bridge b has the name pcbr0"), "{}", w.message(&twin));
    w.delete(&twin);
    w.delete_and_settle(&b);
    assert_eq!((w.phase(&b), w.message(&b)), (Phase::Terminating, "in use by PodConfig ns/c"));
    w.delete_and_settle(&c);
    assert!(!w.objects.contains_key(&b) && !w.objects.contains_key(&c));
}

#[test]
fn refused_sample_is_an_error_until_a_pod_is_selected() {
    let mut w = World::with_agents();
    let config = pod_config("c", vec![veth("pc0", "pcbr0", "192.168.100.0/24")]);
    let c = w.apply_and_settle(edit_links(&config, |spec| spec.sample = Some("sample".into())));
    assert_eq!(w.phase(&c), Phase::Ready);
    w.engine
        .handle(Event::SampleRefused(c.clone(), "the pods of the Deployment sample are refused: no".into()));
    w.settle();
    let expected = "spec.sampleDeployment: the pods of the Deployment sample are refused: no";
    assert_eq!((w.phase(&c), w.message(&c)), (Phase::Error, expected));
    w.apply_pod_and_settle(pod("a", "node1", &[(LABEL, "c")]));
    assert_eq!((w.phase(&c), w.message(&c)), (Phase::Ready, ""));
    w.remove_pod_and_settle("uid-a");
    assert_eq!((w.phase(&c), w.message(&c)), (Phase::Ready, ""), "the engine requests no further sample");
}

#[test]
fn primary_interface_and_mac_have_one_owner() {
    let mut w = World::with_agents();
    let first = edit_links(&pod_config("c", vec![]), |spec| {
        spec.primary = Some(PrimarySpec { name: "eth0".into(), mtu: 1400 });
        spec.sample = Some("sample".into());
    });
    let c = w.apply(first.clone());
    let mut other = first;
    other.key.kind = Kind::PodNetworkConfig;
    w.apply_pod_and_settle(pod("a", "node1", &[(LABEL, "c")]));
    assert_eq!(w.samples, [to_name("sample")]);
    assert_eq!(applied_pod(&w, "node1", "a").unwrap().primary.unwrap().mtu, 1400);
    assert_eq!(w.phase(&c), Phase::Ready);
    let o = w.apply(other);
    w.apply_pod_and_settle(pod("a", "node1", &[(LABEL, "c"), ("podNetworkConfig", "c")]));
    assert_eq!(w.message(&o), "Pod a: its interface eth0 is changed by PodConfig c already");
    w.restart_and_settle();
    assert_eq!((w.phase(&c), w.phase(&o)), (Phase::Ready, Phase::Error), "the first owner keeps it");
    let mut hard = veth("m", "pcbr9", "10.9.0.0/24");
    hard.mac = Some("02:00:00:00:00:01".into());
    let m = w.apply(pod_config("m", vec![hard]));
    w.apply_pod(pod("x", "node1", &[(LABEL, "m")]));
    w.apply_pod(pod("y", "node1", &[(LABEL, "m")]));
    w.apply_pod_and_settle(pod("z", "node2", &[(LABEL, "m")]));
    assert_eq!(
        w.message(&m),
        "Pod y: link m: the hardware address 02:00:00:00:00:01 is taken by pod x on pcbr9"
    );
    assert!(applied_pod(&w, "node2", "z").is_some(), "bridges of different nodes are separate");
    w.remove_pod_and_settle("uid-x");
    assert_eq!(w.phase(&m), Phase::Ready, "{}", w.message(&m));
}

#[test]
fn agent_rejections_are_in_status_and_pod_network() {
    let mut w = World::with_agents();
    let c = w.apply(pod_config("c", vec![veth("pc0", "pcbr0", "10.9.0.0/24")]));
    let item = Item::link("uid-a", "PodConfig/c/pc0");
    let refused = rejection(item, "pc01234567890123 is too long");
    w.rejections.insert(node_target("node1"), vec![refused.clone()]);
    w.apply_pod(pod("a", "node1", &[(LABEL, "c")]));
    w.apply_pod_and_settle(pod("b", "node1", &[(LABEL, "c")]));
    assert_eq!(
        (w.phase(&c), w.message(&c)),
        (Phase::Error, "Pod a: link pc0 on Node node1: pc01234567890123 is too long")
    );
    assert_eq!(pod_entry(&w, &c, "b").problem, None);
    assert_eq!(
        w.pod_networks[&to_name("uid-a")].interfaces[0].problem.as_deref(),
        Some("pc01234567890123 is too long")
    );
    w.reject(&node_target("node1"), &[Rejection { retryable: true, ..refused }]);
    assert_eq!(w.phase(&c), Phase::Pending);
    assert_eq!(w.message(&c), "Pod a: link pc0 on Node node1: pc01234567890123 is too long; it is retried");
    assert_eq!(
        pod_entry(&w, &c, "a").problem.as_deref(),
        Some("link pc0 on Node node1: pc01234567890123 is too long; it is retried")
    );
    w.reject(&node_target("node1"), &[]);
    assert_eq!(w.phase(&c), Phase::Ready);
    w.reject(&node_target("node1"), &[rejection(Item::port("pcbr0"), "it is not ours")]);
    assert_eq!(w.message(&c), "Pod a: Node node1: bridge pcbr0: it is not ours");
}

#[test]
fn restart_keeps_every_lease() {
    let mut w = World::with_agents();
    let c = w.apply(pod_config("c", vec![veth("pc0", "pcbr0", "10.9.0.0/24")]));
    for i in 0..20 {
        w.apply_pod(pod(&format!("p{i}"), &format!("node{}", i % 4 + 1), &[(LABEL, "c")]));
    }
    w.settle();
    for i in [3, 7, 11] {
        w.remove_pod(&format!("uid-p{i}"));
    }
    w.apply_pod_and_settle(pod("late", "node1", &[(LABEL, "c")]));
    let (statuses, published) = (w.statuses.clone(), w.published);
    w.restart_and_settle();
    assert_eq!(w.published, published);
    assert_eq!(w.statuses[&c].pods, statuses[&c].pods);
    // A new engine applies changes from the time without an engine.
    w.pods.remove(&to_name("uid-late"));
    w.pods.get_mut(&to_name("uid-p0")).unwrap().labels.clear();
    w.restart_and_settle();
    assert_eq!(w.statuses[&c].pods.len(), 16);
    assert!(applied_pod(&w, "node1", "p0").is_none() && applied_pod(&w, "node1", "late").is_none());
    assert_eq!(w.phase(&c), Phase::Ready);
}

#[test]
fn lease_that_no_pool_of_the_object_has_is_not_restored() {
    // An address that the status has is given to nobody while it may be in a pod.
    for (address, given) in
        [("10.8.0.7/24", "10.9.0.2/24"), ("10.9.0.2/25", "10.9.0.3/24"), ("10.9.1.2/24", "10.9.0.2/24")]
    {
        let (mut w, c) = world_with_configured_pod();
        let entry = &mut w.statuses.get_mut(&c).unwrap().pods[0];
        entry.leases.insert(to_name("pc0"), vec![address.parse().unwrap()]);
        entry.leases.insert(to_name("other"), vec!["10.9.0.9/24".parse().unwrap()]);
        w.restart_and_settle();
        assert_eq!(pod_addresses(&w, "node1", "a"), [given], "{address}");
        let leases = &pod_entry(&w, &c, "a").leases;
        assert_eq!(*leases, [(to_name("pc0"), vec![given.parse().unwrap()])].into(), "{address}");
    }
}

#[test]
fn lease_being_released_survives_restarts() {
    let (mut w, c) = world_with_configured_pod();
    w.silent.insert(node_target("node1"));
    w.apply(edit_links(&w.objects[&c], |spec| spec.links.clear()));
    let d = w.apply(pod_config("d", vec![veth("x", "pcbr0", "10.9.0.0/24")]));
    // The first engine reads command and status, the second only the status.
    for name in ["p", "q"] {
        w.restart();
        w.apply_pod_and_settle(pod(name, "node2", &[(LABEL, "d")]));
        assert_eq!(pod_entry(&w, &c, "a").leases[&to_name("pc0")], ["10.9.0.2/24".parse().unwrap()]);
    }
    assert_eq!(pod_addresses(&w, "node2", "q"), ["10.9.0.4/24"]);
    w.end_silence();
    assert!(pod_entry(&w, &c, "a").leases.is_empty());
    w.apply_pod_and_settle(pod("r", "node2", &[(LABEL, "d")]));
    assert_eq!(pod_addresses(&w, "node2", "r"), ["10.9.0.2/24"]);
    assert_eq!((w.phase(&c), w.phase(&d)), (Phase::Ready, Phase::Ready));
}

#[test]
fn addresses_on_an_unready_node_stay_leased() {
    let (mut w, c) = world_with_configured_pod();
    w.silent.insert(node_target("node1"));
    w.apply_node("node1", true, false);
    w.delete_and_settle(&c);
    assert!(!w.objects.contains_key(&c));
    w.restart();
    let d = w.apply(pod_config("d", vec![veth("x", "pcbr0", "10.9.0.0/24")]));
    w.apply_pod_and_settle(pod("b", "node2", &[(LABEL, "d")]));
    assert_eq!(pod_addresses(&w, "node2", "b"), ["10.9.0.3/24"]);
    w.silent.clear();
    w.apply_node_and_settle("node1", true, true);
    w.apply_pod_and_settle(pod("e", "node2", &[(LABEL, "d")]));
    assert_eq!(pod_addresses(&w, "node2", "e"), ["10.9.0.2/24"]);
    assert_eq!(w.phase(&d), Phase::Ready, "{}", w.message(&d));
}
