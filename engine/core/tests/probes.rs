//! Probes: which VLANs agents are commanded to probe, and what follows from what they find.

use std::collections::BTreeSet;

use eno_core::kinds::Plugin;
use eno_core::{Condition, ConditionReason, ConditionType, Event, Key, Kind, NoticeKind, Object, Target};
use eno_schemas::{CniName, NetworkProbes, Phase, VerifyBetween, VerifyMode, VlanType};

use crate::edits::{edit_attachment, edit_device, edit_point};
use crate::fixtures::{device_key, kernel_cni, switch, vid};
use crate::world::*;

fn find(w: &World, key: &Key, kind: ConditionType) -> Option<Condition> {
    w.statuses[key].conditions.iter().find(|one| one.kind == kind).cloned()
}

/// The status, the reason and the message of the condition Verified.
fn verified(w: &World, key: &Key) -> Option<(bool, ConditionReason, String)> {
    find(w, key, ConditionType::Verified).map(|one| (one.holds, one.reason, one.message))
}

fn assert_verified(w: &World, key: &Key, holds: bool, reason: ConditionReason, message: &str) {
    assert_eq!(verified(w, key), Some((holds, reason, message.to_owned())), "{key}");
}

fn unknown(w: &World, key: &Key, message: &str) {
    assert_verified(w, key, false, ConditionReason::NotProbed, message);
}

fn impossible(w: &World, key: &Key, message: &str) {
    assert_verified(w, key, false, ConditionReason::CannotProbe, message);
}

fn degraded(w: &World, key: &Key) -> Option<ConditionReason> {
    find(w, key, ConditionType::Degraded).map(|one| one.reason)
}

/// The ConnectionPoint `cp`, probed like this.
fn point(mode: VerifyMode, between: VerifyBetween) -> Object {
    edit_point(&connection_point("cp", Some("pool")), |spec| {
        (spec.verify.mode, spec.verify.between) = (mode, between);
    })
}

/// The service `s` with its attachment `a` at `cp`.
fn probed_world() -> (World, Key, Key) {
    let mut w = World::with_agents();
    let s = w.apply(service("s", 100, &["dc"]));
    let a = w.apply_and_settle(attachment("a", &["s"], "cp"));
    (w, s, a)
}

/// The same with a Subnet whose Route leads to 10.1.0.1.
fn world_with_gateway() -> (World, Key, Key) {
    let mut w = World::with_agents();
    w.apply(route("out", "10.1.0.1"));
    let subnet =
        crate::edits::edit_subnet(&subnet("sn", "10.1.0.0/24"), |spec| spec.routes = vec!["out".into()]);
    w.apply(subnet);
    let s = w.apply(with_subnets(&service("s", 100, &["dc"]), &["sn"]));
    let a = w.apply_and_settle(attachment("a", &["s"], "cp"));
    (w, s, a)
}

fn only(w: &World, node: &str) -> NetworkProbes {
    let probes = w.probes_of(node);
    assert_eq!(probes.len(), 1, "{node}: {probes:?}");
    probes[0].clone()
}

fn ring(w: &World, node: &str) -> (Option<String>, Option<String>) {
    let probes = only(w, node);
    (probes.next, probes.previous)
}

fn between(next: &str, previous: &str) -> (Option<String>, Option<String>) {
    (Some(next.into()), Some(previous.into()))
}

#[test]
fn nodes_ask_each_other_in_a_ring() {
    let (w, s, a) = probed_world();
    for key in [&s, &a] {
        assert_verified(&w, key, true, ConditionReason::Answered, "each node reaches the next one");
        assert_eq!(w.phase(key), Phase::Ready);
    }
    let probes = only(&w, "node1");
    assert_eq!((&*probes.point, &*probes.network, probes.interval), ("cp", "br-cp", 600));
    assert_eq!(probes.vlans().to_string(), "100");
    assert_eq!(
        (ring(&w, "node1"), ring(&w, "node4")),
        (between("node2", "node4"), between("node1", "node3"))
    );
    assert!(probes.gateways.is_empty());
}

#[test]
fn node_that_is_not_ready_leaves_the_ring() {
    let (mut w, _, a) = probed_world();
    w.remove_node_and_settle("node4");
    w.apply_node_and_settle("node2", true, false);
    assert_eq!(
        (ring(&w, "node1"), ring(&w, "node3")),
        (between("node3", "node3"), between("node1", "node1"))
    );
    assert_eq!(w.probes_of("node2"), []);
    assert_verified(&w, &a, true, ConditionReason::Answered, "each node reaches the next one");
    // What it found does not count either.
    w.apply_node_and_settle("node2", true, true);
    w.probe_with(|probing| _ = probing.lost.insert(("node2".into(), vid(100))));
    assert_eq!(verified(&w, &a).map(|(_, reason, _)| reason), Some(ConditionReason::Lost));
    w.apply_node_and_settle("node2", true, false);
    assert_verified(&w, &a, true, ConditionReason::Answered, "each node reaches the next one");
}

#[test]
fn only_the_neighbours_of_a_node_get_a_command_when_it_leaves_the_ring() {
    let (mut w, ..) = probed_world();
    let published = w.published;
    w.apply_node_and_settle("node3", true, false);
    assert_eq!(w.published - published, 3);
}

#[test]
fn lost_packets_degrade_an_attachment_until_they_pass() {
    let (mut w, s, a) = probed_world();
    w.apply(service("t", 200, &[]));
    let b = w.apply_and_settle(attachment("b", &["t"], "cp"));
    let transitions = w.statuses[&a].transitions;
    w.probe_with(|probing| _ = probing.lost.insert(("node1".into(), vid(100))));
    let message = "one of node1 or node2: 1 probe fails, and no port or link between them is suspect";
    for key in [&s, &a] {
        assert_verified(&w, key, false, ConditionReason::Lost, message);
        assert_eq!((w.phase(key), degraded(&w, key)), (Phase::Ready, Some(ConditionReason::Lost)));
        assert_eq!(find(&w, key, ConditionType::Degraded).unwrap().message, message);
    }
    assert_eq!((degraded(&w, &b), w.statuses[&a].transitions), (None, transitions));
    assert_eq!(w.notices.iter().map(|(_, kind, _)| *kind).collect::<Vec<_>>(), [NoticeKind::PacketsLost; 2]);
    // A switch that does not answer says more.
    w.report_unreachable(&switch("leaf1"));
    w.settle();
    assert_eq!(degraded(&w, &a), Some(ConditionReason::Unreachable));
    w.run_driver_again(&switch("leaf1"));
    w.restart_and_settle();
    assert_verified(&w, &a, false, ConditionReason::Lost, message);
    w.probe_with(|probing| probing.lost.clear());
    for key in [&s, &a] {
        assert_verified(&w, key, true, ConditionReason::Answered, "each node reaches the next one");
        assert_eq!(degraded(&w, key), None);
    }
    assert_eq!(
        w.notices[2..].iter().map(|(_, kind, _)| *kind).collect::<Vec<_>>(),
        [NoticeKind::PacketsPass; 2]
    );
}

#[test]
fn message_about_lost_packets_is_bounded() {
    let (mut w, _, a) = probed_world();
    let lost = ["node1", "node2", "node3", "node4"].map(|node| (node.into(), vid(100)));
    w.probe_with(|probing| probing.lost.extend(lost));
    let (_, _, message) = verified(&w, &a).unwrap();
    assert!(message.ends_with("leaf2 e1 to node3 eth1 or 5 more: 4 probes fail"), "{message}");
}

#[test]
fn gateways_of_routes_are_asked() {
    let (mut w, s, a) = world_with_gateway();
    let asked: Vec<String> = only(&w, "node2").gateways.iter().map(|one| one.address.to_string()).collect();
    assert_eq!(asked, ["10.1.0.1"]);
    for key in [&s, &a] {
        assert_verified(&w, key, true, ConditionReason::Answered, "10.1.0.1 answers from 02:00:00:00:00:01");
    }
    let gateway = "10.1.0.1".parse().unwrap();
    w.probe_with(|probing| _ = probing.silent.insert(gateway));
    let (_, reason, message) = verified(&w, &a).unwrap();
    assert_eq!(reason, ConditionReason::Lost);
    assert_eq!(
        message,
        "nothing answers for 10.1.0.1: leaf2 gw to dc: all 4 probes through it fail, all others pass"
    );
    for (macs, reason) in [
        (["02:00:00:00:00:01", "02:00:00:00:00:02"], ConditionReason::DuplicateAddress),
        (["02:00:00:00:00:01", "00:00:5e:00:01:07"], ConditionReason::Answered),
    ] {
        w.probe_with(|probing| {
            probing.silent.clear();
            probing.macs.insert(gateway, macs.map(str::to_owned).into());
        });
        let (_, found, message) = verified(&w, &a).unwrap();
        assert_eq!(found, reason, "{message}");
        assert!(macs.iter().all(|mac| message.contains(mac)) && message.contains("10.1.0.1"), "{message}");
    }
}

#[test]
fn gateway_in_a_vrf_is_asked_once_it_is_there() {
    let mut w = World::with_agents();
    w.apply(subnet("sn", "10.1.0.0/24"));
    w.apply(with_subnets(&service("s", 100, &[]), &["sn"]));
    w.apply(attachment("a", &["s"], "cp"));
    w.apply_and_settle(vrf("v", &["leaf2"]));
    let before = only(&w, "node1");
    assert!(before.gateways.is_empty());
    w.silent.insert(switch("leaf2"));
    let routed = w.apply_and_settle(vrf_attachment("va", "v", "s", "leaf2", &["10.1.0.1/24"]));
    assert_eq!(w.phase(&routed), Phase::Pending);
    assert_eq!(w.probes_of("node1"), [], "leaf2 changes");
    w.end_silence();
    let now = only(&w, "node1");
    assert_eq!(now.gateways.iter().map(|one| one.address.to_string()).collect::<Vec<_>>(), ["10.1.0.1"]);
    assert_ne!(now.paths[0].revision, before.paths[0].revision, "its path is another one");
    w.delete_and_settle(&routed);
    assert_eq!(only(&w, "node1"), before);
}

#[test]
fn between_chooses_who_is_asked() {
    let (mut w, _, a) = world_with_gateway();
    w.apply_and_settle(point(VerifyMode::Report, VerifyBetween::Gateway));
    let probes = only(&w, "node1");
    assert_eq!((probes.next, probes.previous, probes.gateways.len()), (None, None, 1));
    assert_verified(&w, &a, true, ConditionReason::Answered, "10.1.0.1 answers from 02:00:00:00:00:01");
    w.apply_and_settle(point(VerifyMode::Report, VerifyBetween::Nodes));
    let probes = only(&w, "node1");
    assert_eq!((probes.next.as_deref(), probes.gateways.len()), (Some("node2"), 0));
    w.apply_and_settle(point(VerifyMode::None, VerifyBetween::Nodes));
    assert_eq!((w.probes_of("node1"), verified(&w, &a)), (vec![], None));
}

#[test]
fn what_agents_cannot_ask_is_unknown() {
    let (mut w, s, a) = probed_world();
    w.apply_and_settle(service("t", 200, &["dc"]));
    let plugins = [
        Plugin::Vlan { master: "eth1".into() },
        Plugin::Sriov { pool_name: "x/y".into() },
        Plugin::Macvlan { master: "eth1".into() },
    ];
    let offer = edit_point(&connection_point("other", Some("pool")), |spec| {
        spec.cnis = plugins.into_iter().map(kernel_cni).collect();
    });
    w.apply_and_settle(created(offer, 50));
    for (cni, vlan_type, name) in
        [(CniName::Sriov, VlanType::Access, "sriov"), (CniName::Macvlan, VlanType::Trunk, "macvlan")]
    {
        let other = edit_attachment(&attachment(name, &["t"], "other"), |spec| {
            (spec.implementation, spec.vlan_type) = (Some(cni), vlan_type);
        });
        let b = w.apply_and_settle(other);
        let message = format!("agents can't probe what {name} makes for {}", vlan_type.as_str());
        impossible(&w, &b, &message);
        impossible(&w, &Key::cluster(Kind::L2Service, &to_name("t")), &message);
        w.delete_and_settle(&b);
    }
    // The agents could not ask.
    let unable = ["node1", "node2", "node3", "node4"].map(|node| (to_name(node), "busy".to_owned()));
    w.probe_with(|probing| probing.unable.extend(unable));
    unknown(&w, &a, "busy");
    w.probe_with(|probing| probing.unable = [(to_name("node1"), "busy".to_owned())].into());
    assert_verified(&w, &s, true, ConditionReason::Answered, "each node reaches the next one");
    // One node, and no gateway.
    for node in ["node2", "node3", "node4"] {
        w.remove_node_and_settle(node);
    }
    assert_eq!(w.probes_of("node1"), []);
    impossible(&w, &a, "there is no other node and no gateway to ask");
}

#[test]
fn port_security_of_openstack_drops_probes() {
    let (mut w, _, a) = probed_world();
    w.apply_and_settle(edit_device(&w.objects[&device_key("leaf1")], |spec| {
        spec.device.neutron =
            Some(eno_schemas::NeutronSettings { port_security: true, ..Default::default() });
    }));
    impossible(&w, &a, "FabricDevice leaf1: port security drops what agents send");
    assert_eq!(w.probes_of("node1"), []);
}

#[test]
fn agents_without_results_leave_it_unknown() {
    let mut w = World::with_agents();
    w.probing.absent = ["node1", "node2", "node3", "node4"].map(to_name).into();
    w.apply(service("s", 100, &[]));
    let a = w.apply_and_settle(attachment("a", &["s"], "cp"));
    assert_eq!(w.phase(&a), Phase::Ready);
    unknown(&w, &a, "not probed yet");
    w.probe_with(|probing| probing.absent.clear());
    assert_verified(&w, &a, true, ConditionReason::Answered, "each node reaches the next one");
}

#[test]
fn results_of_a_stopped_agent_do_not_count() {
    let (mut w, _, a) = probed_world();
    w.probe_with(|probing| _ = probing.lost.insert(("node1".into(), vid(100))));
    assert_eq!(degraded(&w, &a), Some(ConditionReason::Lost));
    let drivers = ["netconf", "nad", "node/node2", "node/node3", "node/node4"].map(to_name);
    w.engine.handle(Event::Drivers(drivers.into()));
    w.settle();
    assert_eq!(degraded(&w, &a), None);
    w.engine.handle(Event::Drivers(["netconf", "nad"].map(to_name).into()));
    w.settle();
    unknown(&w, &a, "no agent of its nodes is alive");
}

#[test]
fn path_that_changes_is_probed_again_and_its_verdict_goes_meanwhile() {
    let (mut w, s, a) = probed_world();
    let before = only(&w, "node1");
    let phases = w.phases[&a].len();
    w.silent.insert(switch("leaf2"));
    let gateway = edit_device(&w.objects[&device_key("leaf2")], |spec| {
        let port = eno_core::kinds::DevicePort {
            name: "gw2".into(),
            leads_to: eno_core::kinds::LeadsTo::PhysicalNetwork("dc".into()),
            ..spec.ports[0].clone()
        };
        spec.ports.push(port);
    });
    w.apply_and_settle(gateway);
    assert_eq!(w.probes_of("node1"), [], "leaf2 has not confirmed the port");
    for key in [&s, &a] {
        unknown(&w, key, "its path is not confirmed");
    }
    w.restart_and_settle();
    assert_eq!((w.phase(&a), w.phases[&a].len()), (Phase::Ready, phases));
    // Until the answers come, there is no verdict on the new path.
    w.probing.absent = ["node1", "node2", "node3", "node4"].map(to_name).into();
    w.end_silence();
    unknown(&w, &a, "not probed yet");
    w.probe_with(|probing| probing.absent.clear());
    assert_ne!(only(&w, "node1").paths[0].revision, before.paths[0].revision);
    assert_verified(&w, &s, true, ConditionReason::Answered, "each node reaches the next one");
}

#[test]
fn revision_of_a_path_outlives_a_restart() {
    let (mut w, ..) = world_with_gateway();
    let (before, published) = (only(&w, "node1"), w.published);
    w.restart_and_settle();
    assert_eq!((only(&w, "node1"), w.published), (before, published));
}

#[test]
fn gate_holds_an_attachment_until_packets_pass_and_never_later() {
    let mut w = World::with_agents();
    w.apply_and_settle(point(VerifyMode::Gate, VerifyBetween::NodesAndGateway));
    w.probing.lost.insert(("node1".into(), vid(100)));
    w.probing.absent = ["node2", "node3", "node4"].map(to_name).into();
    w.apply(service("s", 100, &[]));
    let a = w.apply_and_settle(attachment("a", &["s"], "cp"));
    let message =
        "waits for the probes: one of leaf1 e1 to node1 eth1 or leaf1 e2 to node2 eth1: 1 probe fails";
    assert_eq!((w.phase(&a), w.message(&a)), (Phase::Pending, message));
    w.probe_with(|probing| _ = probing.absent.insert("node1".into()));
    assert_eq!((w.phase(&a), w.message(&a)), (Phase::Pending, "waits for the probes: not probed yet"));
    w.restart_and_settle();
    assert_eq!(w.phase(&a), Phase::Pending);
    // That packets of one node pass is not enough.
    w.probe_with(|probing| {
        probing.lost.clear();
        _ = probing.absent.remove(&to_name("node1"));
    });
    let message = "waits for the probes: some nodes have not probed yet";
    assert_eq!((w.phase(&a), w.message(&a)), (Phase::Pending, message));
    w.probe_with(|probing| *probing = Probing::default());
    assert_eq!(w.phases[&a], [Phase::Pending, Phase::Ready]);
    w.probe_with(|probing| _ = probing.lost.insert(("node1".into(), vid(100))));
    w.restart_and_settle();
    assert_eq!((w.phase(&a), degraded(&w, &a)), (Phase::Ready, Some(ConditionReason::Lost)));
}

#[test]
fn gate_lets_through_what_cannot_be_probed() {
    let mut w = World::with_agents();
    w.apply_and_settle(point(VerifyMode::Gate, VerifyBetween::Gateway));
    w.apply(service("s", 100, &[]));
    let a = w.apply_and_settle(attachment("a", &["s"], "cp"));
    assert_eq!(w.phase(&a), Phase::Ready);
    impossible(&w, &a, "there is no other node and no gateway to ask");
}

#[test]
fn gate_holds_the_label_of_a_node_whose_packets_are_lost() {
    let mut w = World::with_agents();
    w.apply_and_settle(point(VerifyMode::Gate, VerifyBetween::NodesAndGateway));
    w.apply(service("s", 100, &[]));
    w.apply_and_settle(attachment("a", &["s"], "cp"));
    let labelled = |w: &World| -> BTreeSet<String> {
        let labels = w.node_labels.iter().filter(|(_, (points, _))| points.contains("cp"));
        labels.map(|(node, _)| node.to_string()).collect()
    };
    assert_eq!(labelled(&w).len(), 4);
    let all = ["node1", "node2", "node3", "node4"].map(|node| (to_name(node), vid(100)));
    w.probe_with(|probing| probing.lost = all.clone().into());
    assert_eq!(labelled(&w).len(), 4, "no node is better than another");
    w.probe_with(|probing| probing.lost = [all[1].clone()].into());
    assert_eq!(labelled(&w), ["node1", "node3", "node4"].map(str::to_owned).into());
    w.probe_with(|probing| probing.lost.clear());
    assert_eq!(labelled(&w).len(), 4);
    // The first label waits.
    w.remove_node_and_settle("node4");
    w.probing.absent.insert("node4".into());
    w.apply_node_and_settle("node4", true, true);
    assert_eq!(labelled(&w).len(), 3);
    w.probe_with(|probing| probing.absent.clear());
    assert_eq!(labelled(&w).len(), 4);
}

#[test]
fn gate_waits_for_no_agent_that_does_not_probe() {
    let mut w = World::with_agents();
    w.apply_and_settle(point(VerifyMode::Gate, VerifyBetween::NodesAndGateway));
    w.probing.absent.insert("node2".into());
    w.apply(service("s", 100, &[]));
    let a = w.apply_and_settle(attachment("a", &["s"], "cp"));
    let message = "waits for the probes: some nodes have not probed yet";
    assert_eq!((w.phase(&a), w.message(&a)), (Phase::Pending, message));
    w.remove_node_and_settle("node2");
    w.apply_node_and_settle("node2", true, true);
    let has_label = |w: &World| w.node_labels.get("node2").is_some_and(|(points, _)| points.contains("cp"));
    assert!(!has_label(&w));
    w.engine.handle(Event::AgentsWithoutVisits([to_name("node2")].into()));
    w.settle();
    assert_eq!(w.phase(&a), Phase::Ready);
    assert!(has_label(&w));
    // It is not asked either.
    assert_eq!((w.probes_of("node2"), ring(&w, "node1")), (vec![], between("node3", "node4")));
    w.engine.handle(Event::AgentsWithoutVisits(BTreeSet::new()));
    w.settle();
    assert_eq!(ring(&w, "node1"), between("node2", "node4"));
    let all = ["node1", "node2", "node3", "node4"].map(to_name);
    w.engine.handle(Event::AgentsWithoutVisits(all.into()));
    w.settle();
    unknown(&w, &a, "the agents of its nodes are of a version that does not probe");
}

#[test]
fn vlan_without_a_path_stops_no_other_vlan_of_a_trunk() {
    let mut w = World::with_agents();
    for (name, id) in [("s", 100), ("t", 200), ("u", 300)] {
        w.apply(service(name, id, &["dc"]));
    }
    let trunk = |services: &[&str]| {
        edit_attachment(&attachment("a", services, "cp"), |spec| spec.vlan_type = VlanType::Trunk)
    };
    let a = w.apply_and_settle(trunk(&["s", "t"]));
    w.silent.insert(switch("leaf2"));
    w.apply_and_settle(trunk(&["s", "t", "u"]));
    assert_eq!(only(&w, "node1").vlans().to_string(), "100,200");
    assert_verified(&w, &a, true, ConditionReason::Answered, "each node reaches the next one");
    unknown(&w, &Key::cluster(Kind::L2Service, &to_name("u")), "its path is not confirmed");
    w.end_silence();
    assert_eq!(only(&w, "node1").vlans().to_string(), "100,200,300");
}

#[test]
fn node_that_joins_takes_no_vlan_out_of_the_probes() {
    let (mut w, s, a) = probed_world();
    w.remove_node_and_settle("node4");
    let before = only(&w, "node1");
    w.silent.insert(Target::Node("node4".into()));
    w.apply_node_and_settle("node4", true, true);
    assert_eq!(only(&w, "node1").paths, before.paths);
    assert_eq!(
        (ring(&w, "node1"), ring(&w, "node3")),
        (between("node2", "node3"), between("node1", "node2"))
    );
    for key in [&s, &a] {
        assert_verified(&w, key, true, ConditionReason::Answered, "each node reaches the next one");
    }
    let published = w.published;
    w.restart_and_settle();
    assert_eq!(w.published, published);
    w.end_silence();
    assert_eq!(ring(&w, "node1"), between("node2", "node4"));
}
