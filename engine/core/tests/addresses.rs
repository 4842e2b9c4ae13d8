//! Addresses that nodes give to their pods.

use std::time::Duration;

use eno_core::{Attached, Event, Key, Kind, Labels, Pod};
use eno_schemas::Phase;

use crate::edits::{edit_attachment, edit_subnet};
use crate::world::*;

fn subnet_key() -> Key {
    Key::cluster(Kind::Subnet, &"sn".into())
}

/// Binds a pod to a node and starts it there.
fn run(w: &mut World, node: &str, pod: &str, asked: Option<&str>) {
    w.apply_pod(pod_on(pod, node, &["a"]));
    w.start_pod(node, pod, asked);
    w.settle();
}

fn end(w: &mut World, node: &str, pod: &str) {
    w.stop_pod(node, pod);
    w.remove_pod(&format!("uid-{pod}"));
    w.settle();
}

#[test]
fn node_gets_a_block_with_its_first_pod_and_gives_it_back_with_the_last() {
    let mut w = World::with_addresses("10.0.0.0/24", 2);
    assert_eq!(w.blocks(), Vec::<String>::new());
    w.apply_pod(pod_on("p", "node1", &["a"]));
    w.settle();
    assert_eq!(w.blocks(), ["node1 10.0.0.16/28"], "an eighth of 254 is 31");
    w.start_pod("node1", "p", None);
    w.settle();
    assert_eq!((w.address_of("p").as_deref(), w.longest_wait), (Some("10.0.0.16"), Duration::ZERO));
    run(&mut w, "node0", "q", None);
    assert_eq!(w.blocks().len(), 2);
    end(&mut w, "node1", "p");
    assert_eq!(w.blocks().len(), 1);
    assert_eq!(w.phase(&subnet_key()), Phase::Ready, "{}", w.message(&subnet_key()));
}

/// More pods than addresses: all addresses are in use, and each that becomes free goes to one that waits.
fn exhaust(network: &str, nodes: usize, pods: usize, addresses: usize) {
    let mut w = World::with_addresses(network, nodes);
    for n in 0..pods {
        let node = format!("node{}", n % nodes);
        w.apply_pod(pod_on(&format!("p{n}"), &node, &["a"]));
        w.start_pod(&node, &format!("p{n}"), None);
        if n % 16 == 15 {
            w.settle();
        }
    }
    w.settle();
    let waiting = pods.saturating_sub(addresses);
    assert_eq!(w.waiting().len(), waiting, "{:?}", w.blocks());
    let condition = condition(&w.statuses[&subnet_key()], "AddressesAssigned").cloned();
    assert_eq!(condition.is_some_and(|one| !one.holds), waiting > 0);
    let first = w.longest_wait;
    for n in 0..waiting {
        let running: Vec<String> =
            (0..pods).map(|n| format!("p{n}")).filter(|pod| w.address_of(pod).is_some()).collect();
        let pod = running[n * 7 % running.len()].clone();
        let node = w
            .files
            .iter()
            .find(|(_, files)| files.used.get("sn").is_some_and(|pods| pods.contains_key(&pod)))
            .unwrap()
            .0
            .to_string();
        end(&mut w, &node, &pod);
        assert_eq!(w.waiting().len(), waiting - n - 1, "the address of {pod} is free");
        // What waited before nothing was free does not count.
        w.longest_wait = first;
    }
}

#[test]
fn twenty_nodes_share_fourteen_addresses() {
    exhaust("10.0.0.0/28", 20, 40, 14);
}

#[test]
fn no_pod_of_480_nodes_waits_while_an_address_is_free() {
    let mut w = World::with_addresses("10.0.0.0/24", 480);
    for n in 0..254 {
        let (node, pod) = (format!("node{n}"), format!("p{n}"));
        w.apply_pod(pod_on(&pod, &node, &["a"]));
        w.start_pod(&node, &pod, None);
        if n % 32 == 31 {
            w.settle();
        }
    }
    w.settle();
    assert!(w.waiting().is_empty(), "{:?}", w.waiting());
    assert!(w.longest_wait <= Duration::from_secs(2), "{:?}", w.longest_wait);
    for n in 254..480 {
        let (node, pod) = (format!("node{n}"), format!("p{n}"));
        w.apply_pod(pod_on(&pod, &node, &["a"]));
        w.start_pod(&node, &pod, None);
    }
    w.settle();
    assert_eq!(w.waiting().len(), 226);
    // Each address that becomes free goes to a pod that waits.
    for n in 0..20 {
        let since = w.elapsed();
        end(&mut w, &format!("node{n}"), &format!("p{n}"));
        assert_eq!(w.waiting().len(), 226 - n - 1);
        assert!(w.elapsed() <= since + Duration::from_secs(2));
    }
}

fn conditions(w: &World) -> Vec<(String, String)> {
    let status = &w.statuses[&subnet_key()];
    let own = status.conditions.iter().filter(|one| one.kind.as_ref().starts_with("Addresses"));
    own.map(|one| (format!("{}={} {}", one.kind, one.holds, one.reason.as_ref()), one.message.clone()))
        .collect()
}

#[test]
fn asked_address_is_leased_unless_somebody_has_it() {
    let mut w = World::with_addresses("10.0.0.0/28", 2);
    w.apply(route("out", "10.0.0.1"));
    w.apply_and_settle(edit_subnet(&eno_subnet("sn", "10.0.0.0/28"), |spec| {
        spec.routes = vec!["out".into()];
    }));
    run(&mut w, "node0", "p", None);
    let first = w.address_of("p").unwrap();
    // Of the free ones, and of the block of another node.
    run(&mut w, "node1", "q", Some("10.0.0.13"));
    assert_eq!(w.address_of("q").as_deref(), Some("10.0.0.13"));
    let blocks = &w.files["node0"].ranges["sn"].blocks;
    let unused =
        blocks.iter().map(|net| net.network().to_string()).find(|address| *address != first).unwrap();
    run(&mut w, "node1", "r", Some(&unused));
    assert_eq!(w.address_of("r"), Some(unused));
    let fixed = &w.statuses[&subnet_key()].fixed_addresses;
    assert!(
        fixed
            .iter()
            .any(|own| own.address.to_string() == "10.0.0.13" && &*own.pod == "q" && &*own.node == "node1")
    );
    for (pod, asked, reason) in [
        ("a", first.as_str(), "Pod ns/p on Node node0 has it"),
        ("b", "10.0.0.13", "it is that of Pod ns/q"),
        ("c", "10.0.0.1", "it is that of a next hop or gateway"),
        ("d", "10.0.0.15", "it is no address of a host in the Subnet"),
        ("e", "10.9.0.1", "it is no address of a host in the Subnet"),
    ] {
        run(&mut w, "node1", pod, Some(asked));
        assert_eq!(w.address_of(pod), None);
        let message =
            format!("Pod ns/{pod} on Node node1 asks for {asked}: {reason}; let it ask for another");
        assert_eq!(conditions(&w), [("AddressesAssigned=false Refused".to_owned(), message)]);
        w.restart_and_settle();
        assert_eq!(w.address_of("q").as_deref(), Some("10.0.0.13"));
        end(&mut w, "node1", pod);
        assert_eq!(conditions(&w), []);
    }
    end(&mut w, "node1", "q");
    assert!(
        w.statuses[&subnet_key()].fixed_addresses.iter().all(|own| own.address.to_string() != "10.0.0.13")
    );
}

#[test]
fn pod_of_a_stateful_set_has_its_former_address_again_while_others_have_some() {
    let mut w = World::with_addresses("10.0.0.0/29", 2);
    let sticky = edit_subnet(&eno_subnet("sn", "10.0.0.0/29"), |spec| spec.sticky = true);
    w.apply_and_settle(sticky);
    run(&mut w, "node0", "db-0", None);
    run(&mut w, "node0", "db-1", None);
    let former = w.address_of("db-1");
    assert!(former.is_some());
    end(&mut w, "node0", "db-1");
    end(&mut w, "node0", "db-0");
    w.restart_and_settle();
    run(&mut w, "node1", "db-1", None);
    assert_eq!(w.address_of("db-1"), former);
    // The others need all that is left, which is kept for db-0.
    for n in 0..5 {
        run(&mut w, "node0", &format!("p{n}"), None);
        assert!(w.address_of(&format!("p{n}")).is_some(), "p{n}: {:?}", w.blocks());
    }
    assert_eq!(w.statuses[&subnet_key()].fixed_addresses.len(), 1);
    run(&mut w, "node0", "db-0", None);
    assert_eq!(
        (w.address_of("db-0"), conditions(&w)[0].0.as_str()),
        (None, "AddressesAssigned=false NoneLeft")
    );
    end(&mut w, "node0", "p3");
    assert!(w.address_of("db-0").is_some());
}

#[test]
fn addresses_of_another_plugin_are_taken_over() {
    let mut w = World::with_addresses("10.0.0.0/28", 2);
    w.apply_and_settle(subnet("sn", "10.0.0.0/28"));
    let attached = |address: &str| Attached {
        nad: ("ns".into(), "a".into()),
        interface: Some("net1".into()),
        addresses: vec![address.parse().unwrap()],
    };
    let former =
        |pod: &str, address: &str| Pod { attached: vec![attached(address)], ..pod_on(pod, "node0", &["a"]) };
    w.apply_pod(former("old", "10.0.0.8"));
    // It may not use the attachment, so what it says keeps no address from others.
    w.apply_pod(Pod { namespace: "foreign".into(), ..former("foreign", "10.0.0.9") });
    w.apply_and_settle(eno_subnet("sn", "10.0.0.0/28"));
    for n in 0..14 {
        run(&mut w, "node1", &format!("p{n}"), None);
        assert_ne!(w.address_of(&format!("p{n}")).as_deref(), Some("10.0.0.8"));
    }
    assert_eq!(w.waiting().len(), 1);
    w.restart_and_settle();
    assert_eq!(w.waiting().len(), 1);
    w.remove_pod_and_settle("uid-old");
    assert!(w.waiting().is_empty());
    // What Multus says of a pod that the node reports is no lease of its own.
    let (blocks, address) = (w.blocks(), w.address_of("p0").unwrap());
    w.apply_pod(Pod { attached: vec![attached(&address)], ..pod_on("p0", "node1", &["a"]) });
    w.pass(Duration::from_secs(10));
    assert_eq!(w.blocks(), blocks);
}

/// The right of a pod's namespace counts when its address is taken over, and not as long as the pod runs.
#[test]
fn pod_of_another_namespace_keeps_its_address_of_another_plugin_without_the_right() {
    let mut w = World::with_addresses("10.0.0.0/30", 1);
    w.apply_and_settle(subnet("sn", "10.0.0.0/30"));
    w.apply(edit_attachment(&attachment("a", &["s"], "cp"), |spec| {
        spec.usable_from = serde_json::from_str(r#"[{"key":"friend","operator":"Exists"}]"#).unwrap();
    }));
    let label = |w: &mut World, labels| w.engine.handle(Event::Namespace("other".into(), labels));
    label(&mut w, Labels::from([("friend".into(), "yes".into())]));
    let attached = Attached {
        nad: ("ns".into(), "a".into()),
        interface: None,
        addresses: vec!["10.0.0.1".parse().unwrap()],
    };
    w.apply_pod(Pod {
        namespace: "other".into(),
        attached: vec![attached],
        ..pod_on("old", "node0", &["a"])
    });
    w.apply_and_settle(eno_subnet("sn", "10.0.0.0/30"));
    label(&mut w, Labels::new());
    for pod in ["p0", "p1"] {
        run(&mut w, "node0", pod, None);
    }
    assert_eq!((w.waiting().len(), w.address_of("p0").as_deref()), (1, Some("10.0.0.2")));
    w.remove_pod_and_settle("uid-old");
    assert!(w.waiting().is_empty());
}

/// After a reboot of a node, what Multus says of its pods is of their former sandboxes.
#[test]
fn pod_that_starts_again_does_not_keep_its_former_address_from_itself() {
    for asked in [[None, None], [Some("10.0.0.2"), Some("10.0.0.1")]] {
        let mut w = World::with_addresses("10.0.0.0/30", 1);
        for (pod, asked) in ["p0", "p1"].into_iter().zip(asked) {
            run(&mut w, "node0", pod, asked);
            let address = w.address_of(pod).unwrap().parse().unwrap();
            let attached =
                Attached { nad: ("ns".into(), "a".into()), interface: None, addresses: vec![address] };
            w.apply_pod(Pod { attached: vec![attached], ..pod_on(pod, "node0", &["a"]) });
        }
        w.settle();
        for pod in ["p0", "p1"] {
            w.stop_pod("node0", pod);
        }
        w.settle();
        w.pass(Duration::from_secs(6));
        for (pod, asked) in ["p0", "p1"].into_iter().zip(asked) {
            w.start_pod("node0", pod, asked);
            w.settle();
        }
        assert!(w.waiting().is_empty(), "{asked:?}: {:?} {:?}", w.waiting(), w.blocks());
    }
}

/// The annotation of a pod with an address of another plugin comes after its node has a block with it.
#[test]
fn address_of_another_plugin_that_is_seen_late_is_taken_out_of_the_block() {
    let mut w = World::with_addresses("10.0.0.0/28", 1);
    w.apply_pod(pod_on("p", "node0", &["a"]));
    w.settle();
    let block = w.files["node0"].ranges["sn"].blocks[0];
    let attached =
        Attached { nad: ("ns".into(), "a".into()), interface: None, addresses: vec![block.network()] };
    w.apply_pod(Pod { attached: vec![attached], ..pod_on("old", "node0", &["a"]) });
    let _ = w.reconcile();
    w.pass(Duration::from_secs(6));
    let own = &w.files["node0"].ranges["sn"];
    assert!(own.blocks.iter().all(|net| !net.contains(&block.network())), "{own:?}");
}

#[test]
fn node_that_is_gone_keeps_its_addresses_for_an_hour_and_while_it_has_pods() {
    let mut w = World::with_addresses("10.0.0.0/30", 2);
    run(&mut w, "node0", "p", None);
    run(&mut w, "node0", "q", None);
    w.remove_node("node0");
    run(&mut w, "node1", "r", None);
    for (minutes, waits) in [(50, true), (9, true), (2, true)] {
        w.pass(Duration::from_mins(minutes));
        assert_eq!(w.waiting().len() == 1, waits, "{:?}", w.blocks());
    }
    for pod in ["p", "q"] {
        w.stop_pod("node0", pod);
        w.remove_pod_and_settle(&format!("uid-{pod}"));
    }
    assert!(w.waiting().is_empty(), "{:?}", w.blocks());
    // It is back, and knows that it has nothing.
    w.apply_node_and_settle("node0", true, true);
    run(&mut w, "node0", "s", None);
    assert!(w.address_of("s").is_some());
}

#[test]
fn node_that_does_not_answer_is_not_waited_for() {
    let mut w = World::with_addresses("10.0.0.0/29", 3);
    for node in ["node0", "node1"] {
        run(&mut w, node, &format!("p-{node}"), None);
    }
    // All are given to the two nodes.
    for n in 0..4 {
        w.apply_pod(pod_on(&format!("q{n}"), ["node0", "node1"][n % 2], &["a"]));
        w.settle();
    }
    w.silent.insert(node_target("node0"));
    w.longest_wait = Duration::ZERO;
    run(&mut w, "node2", "r", None);
    assert!(w.address_of("r").is_some(), "{:?}", w.blocks());
    assert!(w.longest_wait <= Duration::from_secs(2), "{:?}", w.longest_wait);
}

#[test]
fn address_that_two_pods_have_is_told() {
    let mut w = World::with_addresses("10.0.0.0/28", 2);
    run(&mut w, "node0", "p", None);
    let address = w.address_of("p").unwrap();
    // Somebody copied the files of node0.
    w.apply_pod(pod_on("q", "node1", &["a"]));
    w.settle();
    let files = w.files.get_mut("node1").unwrap();
    files.used.entry("sn".into()).or_default().insert("q".into(), address.parse().unwrap());
    w.report_files(&"node1".into());
    w.settle();
    let message =
        format!("Pod ns/q on Node node1 and Pod ns/p on Node node0 have {address}; delete one of the two");
    assert_eq!(conditions(&w), [("AddressesUnique=false DuplicateAddress".to_owned(), message)]);
    end(&mut w, "node0", "p");
    assert_eq!(conditions(&w), []);
    assert!(w.blocks().iter().any(|own| own.starts_with("node1 ")), "{:?}", w.blocks());
}

#[test]
fn running_pods_and_nodes_share_the_addresses() {
    let mut w = World::with_addresses("10.0.0.0/29", 1);
    for n in 0..3 {
        run(&mut w, "node0", &format!("p{n}"), None);
    }
    let label = [("attach.eno.k8s.io/a", "")];
    for n in 0..3 {
        w.apply_pod_and_settle(pod(&format!("h{n}"), "node0", &label));
    }
    let mut all: Vec<String> =
        (0..3).map(|n| format!("{}/29", w.address_of(&format!("p{n}")).unwrap())).collect();
    all.extend((0..3).flat_map(|n| pod_addresses(&w, "node0", &format!("h{n}"))));
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 6, "{all:?}");
    // A running pod that waits gets the address of one that ends.
    w.apply_pod_and_settle(pod("h3", "node0", &label));
    assert!(applied_pod(&w, "node0", "h3").is_none());
    end(&mut w, "node0", "p0");
    assert_eq!(pod_addresses(&w, "node0", "h3").len(), 1);
}

#[test]
fn gateway_takes_no_address_of_a_pod_and_is_kept_out_of_blocks() {
    let mut w = World::with_addresses("10.0.0.0/28", 1);
    run(&mut w, "node0", "p", None);
    let (block, address) = (w.files["node0"].ranges["sn"].blocks[0], w.address_of("p").unwrap());
    assert!(block.contains(&address.parse::<std::net::IpAddr>().unwrap()));
    let next_hop = block.broadcast();
    w.apply(route("out", &next_hop.to_string()));
    w.apply_and_settle(edit_subnet(&eno_subnet("sn", "10.0.0.0/28"), |spec| {
        spec.routes = vec!["out".into()];
    }));
    let own = &w.files["node0"].ranges["sn"];
    let is_out = own.excluded.contains(&next_hop) || own.blocks.iter().all(|net| !net.contains(&next_hop));
    assert!(is_out, "{own:?}");
    for n in 0..13 {
        run(&mut w, "node0", &format!("q{n}"), None);
        assert_ne!(w.address_of(&format!("q{n}")), Some(next_hop.to_string()));
    }
}

#[test]
fn deletion_of_a_subnet_waits_for_pods_with_its_addresses() {
    let mut w = World::with_addresses("10.0.0.0/28", 2);
    run(&mut w, "node0", "p", None);
    // The attachment is gone although a pod uses it.
    w.remove_pod("uid-p");
    let attachment = Key::namespaced(Kind::L2ServiceAttachment, &"ns".into(), &"a".into());
    for key in [&attachment, &Key::cluster(Kind::L2Service, &"s".into()), &subnet_key()] {
        w.delete_and_settle(key);
    }
    assert_eq!(w.phase(&subnet_key()), Phase::Terminating);
    let address = w.address_of("p").unwrap();
    assert_eq!(w.message(&subnet_key()), format!("Pod ns/p on Node node0 has its address {address}"));
    w.restart_and_settle();
    assert_eq!(w.phase(&subnet_key()), Phase::Terminating);
    w.stop_pod("node0", "p");
    w.settle();
    assert!(!w.objects.contains_key(&subnet_key()), "{}", w.message(&subnet_key()));
}
