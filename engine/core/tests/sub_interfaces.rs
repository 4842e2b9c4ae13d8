//! Interfaces of VLANs on those that Multus made for a pod.

use eno_core::kinds::Plugin;
use eno_core::{Attached, Event, Key, Labels, Object, Pod, Uses};
use eno_schemas::{InterfaceType, LinkKind, LinkName, Parent, Phase, Pool, VlanType};

use crate::edits::{edit_attachment, edit_service, edit_subnet};
use crate::fixtures::{attachment_key, vid};
use crate::world::*;

const HOT: &str = "attach.eno.k8s.io/a";

fn trunk(services: &[&str]) -> Object {
    edit_attachment(&attachment("a", services, "cp"), |spec| {
        (spec.sub_interfaces, spec.vlan_type) = (true, VlanType::SelectiveTrunk);
        spec.usable_from = serde_json::from_str(r#"[{"key":"friend","operator":"Exists"}]"#).unwrap();
    })
}

/// A world with the services `s` and `t`, and the attachment `a` to them.
fn world() -> (World, Key) {
    let mut w = World::with_agents();
    w.apply(route("out", "10.1.0.1"));
    w.apply(edit_subnet(&subnet("sn", "10.1.0.0/24"), |spec| {
        let pool = Pool { start: "10.1.0.10".parse().unwrap(), end: "10.1.0.19".parse().unwrap() };
        (spec.hot_plug_pool, spec.routes) = (vec![pool], vec!["out".into()]);
    }));
    for (name, vid) in [("s", 100), ("t", 200), ("u", 300)] {
        w.apply(with_subnets(&service(name, vid, &[]), if name == "u" { &[] } else { &["sn"] }));
    }
    let a = w.apply_and_settle(trunk(&["s", "t"]));
    (w, a)
}

/// A running pod that has these interfaces by `ns/a`.
fn attached(namespace: &str, name: &str, interfaces: &[Option<&str>]) -> Pod {
    let own = |interface: Option<&str>| Attached {
        nad: ("ns".into(), "a".into()),
        interface: interface.map(Into::into),
        addresses: Vec::new(),
    };
    Pod {
        namespace: namespace.into(),
        uses: Uses::Named(vec![("ns".into(), "a".into())]),
        attached: interfaces.iter().copied().map(own).collect(),
        ..pod(name, "node1", &[])
    }
}

/// The names of the interfaces that a pod is given, and their addresses.
fn links(w: &World, pod: &str) -> Vec<(String, String)> {
    let links = applied_pod(w, "node1", pod).map(|pod| pod.links).unwrap_or_default();
    let text = |link: &eno_schemas::PodLink| {
        let LinkName::Fixed(name) = &link.name else { panic!("{link:?}") };
        (name.clone(), link.addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(","))
    };
    links.iter().map(text).collect()
}

fn expected(links: &[(&str, &str)]) -> Vec<(String, String)> {
    links.iter().map(|(name, address)| ((*name).to_owned(), (*address).to_owned())).collect()
}

fn label_namespace(w: &mut World, friend: bool) {
    let labels = friend.then(|| ("friend".to_owned(), "yes".to_owned()));
    w.engine.handle(Event::Namespace("other".into(), labels.into_iter().collect::<Labels>()));
    w.settle();
}

fn problem(w: &World, key: &Key, pod: &str) -> String {
    pod_entry(w, key, pod).problem.clone().unwrap_or_default()
}

#[test]
fn pod_with_the_interface_gets_one_for_each_vlan_with_addresses_and_routes() {
    let (mut w, a) = world();
    w.apply_pod_and_settle(Pod { container: None, ..attached("ns", "x", &[Some("net1")]) });
    assert_eq!(problem(&w, &a, "x"), "it waits until its first container runs");
    w.apply_pod_and_settle(attached("ns", "x", &[Some("net1")]));
    assert_eq!(w.phase(&a), Phase::Ready, "{}", w.message(&a));
    assert_eq!(links(&w, "x"), expected(&[("net1.100", "10.1.0.10/24"), ("net1.200", "10.1.0.11/24")]));
    let link = applied_pod(&w, "node1", "x").unwrap().links[0].clone();
    assert_eq!(link.kind, LinkKind::Vlan { parent: Parent::Pod("net1".into()), vlan: vid(100) });
    assert_eq!((link.mtu, link.routes[0].next_hop), (None, Some("10.1.0.1".parse().unwrap())));
    assert_eq!(pod_entry(&w, &a, "x").links.len(), 2);
    // VLANs come to the running pod and go.
    w.apply_and_settle(trunk(&["s", "t", "u"]));
    let three = [("net1.100", "10.1.0.10/24"), ("net1.200", "10.1.0.11/24"), ("net1.300", "")];
    assert_eq!(links(&w, "x"), expected(&three));
    w.apply_and_settle(trunk(&["t", "u"]));
    assert_eq!(links(&w, "x"), expected(&three[1..]));
    let moved = edit_service(&w.objects[&Key::cluster(eno_core::Kind::L2Service, &"t".into())], |spec| {
        spec.vid = vid(201);
    });
    w.apply_and_settle(moved);
    let moved = expected(&[("net1.201", "10.1.0.11/24"), ("net1.300", "")]);
    assert_eq!(links(&w, "x"), moved, "the address stays");
    // A new engine has the same.
    w.restart_and_settle();
    assert_eq!(links(&w, "x"), moved);
    // The attachment waits for the pod.
    w.delete_and_settle(&a);
    assert_eq!(w.message(&a), "in use by pod x");
    assert_eq!(links(&w, "x"), moved);
    w.remove_pod_and_settle("uid-x");
    assert!(!w.objects.contains_key(&a), "{}", w.message(&a));
}

#[test]
fn nothing_is_given_without_the_field_or_the_interface() {
    let (mut w, a) = world();
    w.apply_and_settle(edit_attachment(&trunk(&["s"]), |spec| spec.sub_interfaces = false));
    w.apply_pod_and_settle(attached("ns", "x", &[Some("net1")]));
    assert!(find_pod_entry(&w, &a, "x").is_none() && links(&w, "x").is_empty());
    w.apply_and_settle(trunk(&["s"]));
    assert_eq!(links(&w, "x"), expected(&[("net1.100", "10.1.0.10/24")]));
    // The annotation of networks does not name it any more, or never did.
    w.apply_pod_and_settle(Pod { uses: Uses::default(), ..attached("ns", "x", &[Some("net1")]) });
    assert!(find_pod_entry(&w, &a, "x").is_none() && links(&w, "x").is_empty());
    w.apply_pod_and_settle(Pod { uses: Uses::Any("why".into()), ..attached("ns", "x", &[Some("net1")]) });
    assert_eq!(links(&w, "x").len(), 1, "an unclear annotation may name it");
    w.apply_pod_and_settle(attached("ns", "x", &[]));
    assert!(find_pod_entry(&w, &a, "x").is_none() && links(&w, "x").is_empty());
    w.apply_pod_and_settle(attached("ns", "x", &[Some("net1")]));
    w.apply_and_settle(edit_attachment(&trunk(&["s"]), |spec| spec.sub_interfaces = false));
    assert!(find_pod_entry(&w, &a, "x").is_none() && links(&w, "x").is_empty());
}

#[test]
fn pod_of_another_namespace_needs_usable_from_and_is_named_with_its_own() {
    let (mut w, a) = world();
    w.apply_pod_and_settle(attached("other", "x", &[Some("net1")]));
    assert!(links(&w, "x").is_empty());
    label_namespace(&mut w, true);
    assert_eq!(links(&w, "x").len(), 2);
    assert_eq!(pod_entry(&w, &a, "other/x").links.len(), 2);
    let owner = &w.pod_networks[&to_name("uid-x")].interfaces[0].owner;
    assert_eq!((&*owner.namespace, &*owner.name), ("ns", "a"));
    w.restart();
    label_namespace(&mut w, true);
    assert_eq!(pod_entry(&w, &a, "other/x").links.len(), 2);
    // An attachment of the same name in its own namespace is another one.
    let own = Object { key: Key { namespace: "other".into(), ..a.clone() }, ..attachment("a", &["u"], "cp") };
    let own = w.apply_and_settle(own);
    w.apply_pod_and_settle(Pod {
        labels: pod("x", "node1", &[(HOT, "data")]).labels,
        ..attached("other", "x", &[Some("net1")])
    });
    assert_eq!(links(&w, "x").len(), 3);
    assert_eq!((pod_entry(&w, &own, "x").links.len(), pod_entry(&w, &a, "other/x").links.len()), (1, 2));
    label_namespace(&mut w, false);
    assert_eq!(links(&w, "x"), expected(&[("data", "")]));
    assert!(find_pod_entry(&w, &a, "other/x").is_none(), "{:?}", w.statuses[&a].pods);
}

#[test]
fn label_and_multus_give_a_pod_an_interface_each() {
    let (mut w, a) = world();
    let labelled = |label| Pod {
        labels: pod("x", "node1", &[(HOT, label)]).labels,
        ..attached("ns", "x", &[Some("net0"), Some("net2"), Some("net2")])
    };
    w.apply_pod_and_settle(labelled(""));
    let names: Vec<String> = links(&w, "x").into_iter().map(|(name, _)| name).collect();
    let multus = ["net0.100", "net0.200", "net2.100", "net2.200"];
    assert_eq!(names, [&["net1", "net1.100", "net1.200"][..], &multus].concat(), "net0 is taken");
    let before = links(&w, "x");
    w.restart_and_settle();
    assert_eq!(links(&w, "x"), before);
    w.apply_pod_and_settle(labelled("net2"));
    assert!(problem(&w, &a, "x").starts_with("net2 is the name of an interface that the pod has"));
    w.apply_pod_and_settle(attached("ns", "x", &[Some("net0"), Some("net2")]));
    assert_eq!(links(&w, "x").into_iter().map(|(name, _)| name).collect::<Vec<_>>(), multus);
}

/// A pod with an interface of VLANs that gets the label later has a name of its own for the other one.
#[test]
fn name_of_an_interface_of_a_vlan_is_no_name_for_another_one() {
    let (mut w, _) = world();
    w.apply_pod_and_settle(attached("ns", "x", &[Some("net1")]));
    w.apply_pod_and_settle(Pod {
        labels: pod("x", "node1", &[(HOT, "")]).labels,
        ..attached("ns", "x", &[Some("net1")])
    });
    assert_eq!(links(&w, "x")[0].0, "net0");
}

#[test]
fn pod_that_can_have_no_interfaces_of_vlans_is_told() {
    let (mut w, a) = world();
    for (interfaces, expected) in [
        (&[None][..], "as with DPDK"),
        (&[Some("net1"), None], "as with DPDK"),
        (&[Some("eth0")], "eth0 gets no interfaces"),
        (&[Some("lo")], "lo gets no interfaces"),
        (&[Some("interface-12")], "at most 15"),
        (&[Some("a:b")], "can't be the name"),
    ] {
        w.apply_pod_and_settle(attached("ns", "x", interfaces));
        assert!(problem(&w, &a, "x").contains(expected), "{interfaces:?}: {}", problem(&w, &a, "x"));
        assert!(links(&w, "x").is_empty());
        let shown = &w.pod_networks[&to_name("uid-x")].interfaces[0];
        assert_eq!((shown.kind, shown.problem.as_deref()), ("refused", Some(&*problem(&w, &a, "x"))));
    }
    assert_eq!(w.phase(&a), Phase::Ready, "the attachment is ready for other pods");
    w.apply_pod_and_settle(attached("ns", "x", &[Some("net1")]));
    assert_eq!((links(&w, "x").len(), problem(&w, &a, "x")), (2, String::new()));
    w.apply_pod_and_settle(Pod { host_network: true, ..attached("ns", "x", &[Some("net1")]) });
    assert!(problem(&w, &a, "x").contains("hostNetwork"));
}

#[test]
fn attachment_for_dpdk_tells_each_of_its_pods() {
    let (mut w, a) = world();
    w.apply_and_settle(crate::edits::edit_point(&connection_point("cp", Some("pool")), |spec| {
        spec.cnis[0].interfaces.push(InterfaceType::Dpdk);
        spec.cnis[0].plugin = Plugin::Sriov { pool_name: "r/n".into() };
    }));
    w.apply_and_settle(edit_attachment(&trunk(&["s"]), |spec| {
        (spec.interface, spec.vlan_type) = (InterfaceType::Dpdk, VlanType::Trunk);
    }));
    w.apply_pod_and_settle(attached("ns", "x", &[Some("net1")]));
    assert!(problem(&w, &a, "x").contains("as with DPDK"), "{}: {}", w.message(&a), problem(&w, &a, "x"));
}

/// Who may patch a pod may name any interface of it, as often as he likes.
#[test]
fn number_of_interfaces_is_bounded() {
    let mut w = World::with_agents();
    let names: Vec<String> = (1..=100).map(|n| format!("s{n}")).collect();
    for (name, vid) in names.iter().zip(1..) {
        w.apply(service(name, vid, &[]));
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    w.apply_and_settle(trunk(&names));
    let interfaces: Vec<String> = (0..41).map(|n| format!("n{n}")).collect();
    let interfaces: Vec<Option<&str>> = interfaces.iter().map(|name| Some(name.as_str())).collect();
    w.apply_pod_and_settle(attached("ns", "x", &interfaces[..40]));
    assert_eq!(links(&w, "x").len(), 4000);
    w.apply_pod_and_settle(attached("ns", "x", &interfaces));
    assert!(problem(&w, &attachment_key("a"), "x").contains("more than 4094"));
    assert!(links(&w, "x").is_empty());
}
