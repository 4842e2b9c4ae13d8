//! Subnets with Ipam eno, as users see them: their conditions, what they refuse, and their NetworkAttachmentDefinitions.

use eno_core::{ConditionReason, Key, Name, Object};
use eno_schemas::{Applied, AppliedAddresses, Desired, Ipam, Outcome, Phase, PodAddress, Pool, WaitingPod};

use crate::edits::edit_subnet;
use crate::world::*;

/// A Subnet of which ENO gives the addresses.
fn own(name: &str, network: &str) -> Object {
    edit_subnet(&subnet(name, network), |spec| spec.ipam = Ipam::Eno)
}

/// The Subnet `sn`, an L2Service `s` with it, and an access attachment `a` of the service.
fn world(sn: Object) -> (World, Key, Key) {
    let mut w = World::with_agents();
    let sn = w.apply(sn);
    w.apply(with_subnets(&service("s", 100, &[]), &["sn"]));
    let a = w.apply_and_settle(attachment("a", &["s"], "cp"));
    (w, sn, a)
}

/// The agent of a node reports that these pods of the Subnet `sn` have addresses, and that some wait. It reports nothing
/// else later.
fn report(w: &mut World, node: &str, used: &[(&str, &str)], waiting: &[&str]) {
    let target = node_target(node);
    w.silent.insert(target.clone());
    let Some(Desired::Node(desired)) = w.applied.get(&target) else { panic!("{node} has no command") };
    let mut applied = desired.carried_out(|_, link| link.carried_out("77"));
    let Applied::Node { addresses, .. } = &mut applied else { unreachable!() };
    let used: Vec<PodAddress> = used
        .iter()
        .map(|(pod, address)| PodAddress {
            address: address.parse().unwrap(),
            namespace: "ns".into(),
            pod: (*pod).into(),
        })
        .collect();
    let waiting =
        waiting.iter().map(|pod| WaitingPod { namespace: "ns".into(), pod: (*pod).into(), address: None });
    let held = used.iter().map(|used| used.address.into()).collect();
    let own = AppliedAddresses { held, waiting: waiting.collect(), used, unread: None };
    addresses.insert("sn".into(), own);
    w.report(&target, Outcome::Applied, Some(applied), Vec::new());
    w.settle();
}

fn low(w: &World, sn: &Key) -> Option<(ConditionReason, String)> {
    let found = condition(&w.statuses[sn], "AddressesLow")?;
    assert!(found.holds);
    Some((found.reason, found.message.clone()))
}

#[test]
fn few_and_no_free_addresses_are_told() {
    let (mut w, sn, _) = world(edit_subnet(&own("sn", "10.1.0.0/24"), |spec| {
        let pool = |start: &str, end: &str| Pool { start: start.parse().unwrap(), end: end.parse().unwrap() };
        spec.allocation_pool = vec![pool("10.1.0.1", "10.1.0.12"), pool("10.1.0.20", "10.1.0.27")];
    }));
    let pods: Vec<(String, String)> = (1..=12)
        .chain(20..=27)
        .enumerate()
        .map(|(index, last)| (format!("p{index}"), format!("10.1.0.{last}")))
        .collect();
    let few = "fewer than 2 of 20 addresses are left for pods; widen AllocationPool, or end pods";
    let none = "none of 20 addresses is left for pods; widen AllocationPool, or end pods";
    for (used, expected) in [
        (18, None),
        (19, Some((ConditionReason::FewLeft, few.to_owned()))),
        (20, Some((ConditionReason::NoneLeft, none.to_owned()))),
        (10, None),
    ] {
        // On two nodes.
        let all: Vec<(&str, &str)> =
            pods[..used].iter().map(|(pod, address)| (pod.as_str(), address.as_str())).collect();
        let (one, other) = all.split_at(used / 2);
        report(&mut w, "node1", one, &[]);
        report(&mut w, "node2", other, &["waits"]);
        assert_eq!(low(&w, &sn), expected, "{used} of 20");
        assert_eq!(w.phase(&sn), Phase::Ready, "it stays ready");
        let status = w.statuses[&sn].clone();
        w.restart_and_settle();
        assert_eq!(w.statuses[&sn], status, "also for the next leader");
    }
}

#[test]
fn addresses_of_gateways_and_nodes_that_are_gone_do_not_count() {
    // Of two addresses a device has one, and pods the other.
    let (mut w, sn, _) = world(own("sn", "10.1.0.0/30"));
    assert_eq!(low(&w, &sn), None);
    w.apply(route("out", "10.1.0.1"));
    w.apply_and_settle(edit_subnet(&own("sn", "10.1.0.0/30"), |spec| spec.routes = vec!["out".into()]));
    assert_eq!(low(&w, &sn), None);
    report(&mut w, "node1", &[("p", "10.1.0.2")], &[]);
    let (reason, message) = low(&w, &sn).unwrap();
    assert_eq!(reason, ConditionReason::NoneLeft);
    assert_eq!(message, "none of 1 addresses is left for pods; shorten Mask, or end pods");
    w.remove_node("node1");
    w.settle();
    assert_eq!(low(&w, &sn), None);
}

#[test]
fn installation_without_agents_gives_no_addresses() {
    let mut w = World::new(false, false);
    w.apply_leaf_spine();
    w.apply(own("sn", "10.1.0.0/24"));
    w.apply(with_subnets(&service("s", 100, &[]), &["sn"]));
    let a = w.apply_and_settle(attachment("a", &["s"], "cp"));
    let message = "spec.L2Services[0]: Subnet sn has Ipam eno, whose addresses come from the agents of nodes, and this \
                   installation has none: give it another Ipam";
    assert_eq!(w.message(&a), message);
    w.apply_and_settle(subnet("sn", "10.1.0.0/24"));
    assert_eq!(w.phase(&a), Phase::Ready);
}

#[test]
fn other_plugins_have_no_such_condition() {
    let (mut w, sn, _) = world(subnet("sn", "10.1.0.0/30"));
    report(&mut w, "node1", &[("p", "10.1.0.1"), ("q", "10.1.0.2")], &[]);
    assert_eq!(low(&w, &sn), None);
}

#[test]
fn plugin_changes_back_when_no_pod_has_an_address() {
    let (mut w, sn, a) = world(own("sn", "10.1.0.0/24"));
    let nad = w.nad("ns", "a").expect("a NAD");
    assert_eq!((nad.subnets[0].ipam, nad.subnets[0].subnet.as_deref()), (Ipam::Eno, Some("sn")));
    assert!(nad.subnets[0].pools.is_empty() && nad.pool.is_none());
    report(&mut w, "node1", &[("p", "10.1.0.1"), ("q", "10.1.0.2")], &[]);
    report(&mut w, "node2", &[("r", "10.1.0.3")], &[]);
    w.apply_and_settle(subnet("sn", "10.1.0.0/24"));
    let problem = "spec.Ipam: whereabouts does not know that Pod ns/p and 2 more pods got an address by Ipam eno, and would \
                   give it again; set it to eno until these pods have ended";
    w.assert_phase(&[&sn], Phase::Error, problem);
    w.restart_and_settle();
    w.assert_phase(&[&sn], Phase::Error, problem);
    assert_eq!(w.nad("ns", "a"), Some(nad.clone()), "the NAD stays");
    report(&mut w, "node1", &[], &[]);
    assert_eq!(w.phase(&sn), Phase::Error, "a pod on the other node has one");
    report(&mut w, "node2", &[], &["waits"]);
    assert_eq!([&sn, &a].map(|key| w.phase(key)), [Phase::Ready; 2], "{}", w.message(&sn));
    assert_eq!(w.nad("ns", "a").expect("a NAD").subnets[0].ipam, Ipam::Whereabouts);
    // And to eno again, also under pods.
    w.apply_pod(pod_using("p", &["a"]));
    w.apply_and_settle(own("sn", "10.1.0.0/24"));
    assert_eq!(w.nad("ns", "a"), Some(nad));
}

#[test]
fn device_gets_no_address_that_a_pod_got_when_it_started() {
    let (mut w, ..) = world(own("sn", "10.1.0.0/24"));
    report(&mut w, "node1", &[("p", "10.1.0.1")], &[]);
    w.apply(vrf("vrf", &["leaf1"]));
    let routed = w.apply_and_settle(vrf_attachment("gw", "vrf", "s", "leaf1", &["10.1.0.1/24"]));
    let message = w.message(&routed);
    assert!(message.contains("Pod ns/p has 10.1.0.1; give another address"), "{message}");
    // One in the pool is left out of what pods get.
    let free = w.apply_and_settle(vrf_attachment("gw", "vrf", "s", "leaf1", &["10.1.0.9/24"]));
    assert!(!w.message(&free).contains("10.1.0.9"), "{}", w.message(&free));
}

#[test]
fn nads_of_equal_prefixes_name_their_own_subnets() {
    let mut w = World::with_agents();
    for (name, vid) in [("one", 100), ("two", 200)] {
        w.apply(own(name, "10.0.0.0/24"));
        w.apply(with_subnets(&service(name, vid, &[]), &[name]));
        // A second service with the same Subnet has the same pool.
        w.apply(with_subnets(&service(&format!("{name}-too"), vid + 1, &[]), &[name]));
        w.apply(attachment(name, &[name], "cp"));
        w.apply(attachment(&format!("{name}-too"), &[&format!("{name}-too")], "cp"));
    }
    w.settle();
    let published = w.published;
    for (nad, expected) in [("one", "one"), ("one-too", "one"), ("two", "two"), ("two-too", "two")] {
        let key = Key::namespaced(eno_core::Kind::L2ServiceAttachment, &Name::from("ns"), &nad.into());
        assert_eq!(w.statuses[&key].address_pool, None);
        assert_eq!(condition(&w.statuses[&key], "AddressesSeparate"), None);
        let content = w.nad("ns", nad).expect("a NAD");
        assert_eq!((content.pool, content.subnets[0].subnet.as_deref()), (None, Some(expected)));
    }
    w.restart_and_settle();
    assert_eq!(w.published, published);
}

#[test]
fn leases_of_running_pods_leave_the_nad_as_it_is() {
    let (mut w, sn, a) = world(own("sn", "10.1.0.0/24"));
    let published = |w: &World| w.commands.get(&eno_core::Target::Nad("ns".into(), "a".into())).cloned();
    let before = published(&w);
    for pods in 1..4 {
        w.apply_pod_and_settle(pod(&format!("x{pods}"), "node1", &[("attach.eno.k8s.io/a", "")]));
    }
    assert_eq!((published(&w), w.phase(&a), w.phase(&sn)), (before, Phase::Ready, Phase::Ready));
}
