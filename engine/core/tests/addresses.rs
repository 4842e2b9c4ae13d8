//! Addresses that nodes give to their pods.

use std::time::Duration;

use eno_core::{Key, Kind};
use eno_schemas::Phase;

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
