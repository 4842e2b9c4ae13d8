//! Host networks of nodes with agents.

use std::collections::BTreeSet;

use eno_core::kinds::{Plugin, SupportedCni};
use eno_core::{Event, Key, Kind, Name, Object, Status};
use eno_schemas::{Cni, Failure, HostNetwork, Item, Outcome, OvsDatapath, Phase, Rejection, Uplink};

use crate::edits::{edit_attachment, edit_point};
use crate::fixtures::{kernel_cni, rejection, vid};
use crate::world::*;

fn host_network(w: &World, name: &str, network: &str) -> Option<HostNetwork> {
    w.applied.contains_key(&node_target(name)).then(|| applied_node(w, name).networks.remove(network))?
}

fn vlans_of(w: &World, name: &str, network: &str) -> String {
    match host_network(w, name, network) {
        Some(HostNetwork::Ovs { vlans, .. } | HostNetwork::Bridge { vlans, .. }) => vlans.to_string(),
        other => panic!("{network} has no list of VLANs: {other:?}"),
    }
}

fn condition(status: &Status, kind: &str) -> Option<(bool, String)> {
    crate::world::condition(status, kind).map(|found| (found.holds, found.message.clone()))
}

fn point_offering(name: &str, plugins: Vec<Plugin>, interfaces: &[&str]) -> Object {
    edit_point(&connection_point(name, Some("pool")), |spec| {
        spec.cnis = plugins.into_iter().map(kernel_cni).collect();
        spec.interfaces = interfaces.iter().map(|nic| (*nic).to_owned()).collect();
    })
}

fn ovs(bridge: &str) -> Plugin {
    Plugin::Ovs {
        bridge_name: bridge.into(),
        socket_file: None,
        datapath: None,
        patch: None,
        pool_name: None,
    }
}

fn cp_key() -> Key {
    Key::cluster(Kind::ConnectionPoint, &to_name("cp"))
}

fn with_mtu(object: &Object, mtu: Option<u32>) -> Object {
    edit_attachment(object, |spec| spec.mtu = mtu)
}

/// The service `s`, and its attachment `a` on the nodes.
fn world_with_attachment() -> (World, Key) {
    let mut w = World::with_agents();
    w.apply(service("s", 100, &[]));
    let a = w.apply_and_settle(attachment("a", &["s"], "cp"));
    (w, a)
}

#[test]
fn ovs_bridge_follows_its_attachments() {
    let mut w = World::with_agents();
    let cp = cp_key();
    assert_eq!(w.phases[&cp], [Phase::Pending, Phase::Ready]);
    let bridge = |vlans: &str, mtu| {
        Some(HostNetwork::Ovs {
            datapath: None,
            uplink: Some(Uplink { interfaces: vec!["eth1".into()], mtu }),
            patch: None,
            vlans: vlans.parse().unwrap(),
        })
    };
    assert_eq!(host_network(&w, "node1", "br-cp"), bridge("", None), "before any attachment");
    assert_eq!(host_network(&w, "node1", "eth1"), None, "the uplink is no master network");
    w.apply(service("s", 100, &["dc"]));
    let a = w.apply_and_settle(attachment("a", &["s"], "cp"));
    assert_eq!(w.phases[&a], [Phase::Pending, Phase::Ready]);
    assert_eq!(host_network(&w, "node4", "br-cp"), bridge("100", None));
    for kind in ["FabricReady", "NodesReady", "NADReady"] {
        assert_eq!(condition(&w.statuses[&a], kind), Some((true, String::new())));
    }
    w.apply_and_settle(with_mtu(&w.objects[&a], Some(9000)));
    assert_eq!(host_network(&w, "node4", "br-cp"), bridge("100", Some(9000)));
    assert_eq!(w.phases[&a].len(), 4, "it was pending until the uplink had the MTU");
    w.delete_and_settle(&a);
    assert!(!w.objects.contains_key(&a));
    assert_eq!(host_network(&w, "node4", "br-cp"), bridge("", None));
    w.delete_and_settle(&cp);
    assert!(!w.objects.contains_key(&cp));
    assert_eq!(host_network(&w, "node4", "br-cp"), None);
}

#[test]
fn master_networks_follow_their_attachments() {
    let mut w = World::with_agents();
    w.apply(point_offering("m", vec![Plugin::Macvlan { master: "bond7".into() }], &["eth3", "eth2"]));
    w.apply(point_offering("v", vec![Plugin::Vlan { master: "eth4".into() }], &[]));
    w.apply(point_offering("b", vec![Plugin::Bridge { bridge_name: "br1".into() }], &["eth5"]));
    w.apply(point_offering(
        "none",
        vec![
            Plugin::HostDevice { pool_name: "x/y".into() },
            Plugin::Userspace {
                bridge_name: "br9".into(),
                engine: "ovs-dpdk".into(),
                if_type: "vhostuser".into(),
            },
        ],
        &["eth6"],
    ));
    w.apply(subnet("sn", "10.0.0.0/24"));
    w.apply(with_subnets(&service("s", 100, &[]), &["sn"]));
    w.apply_and_settle(service("t", 200, &[]));
    // No switch port leads to these NICs, and without a pool none is required.
    let keys: Vec<String> = applied_node(&w, "node2").networks.into_keys().collect();
    assert_eq!(keys, ["bond7", "br-cp", "br1", "eth4"]);
    let am = w.apply(with_mtu(&attachment("am", &["s"], "m"), Some(1600)));
    let av = w.apply(attachment("av", &["s"], "v"));
    w.apply_and_settle(attachment("ab", &["s", "t"], "b"));
    assert_eq!((w.phase(&am), w.phase(&av)), (Phase::Ready, Phase::Ready), "{}", w.message(&am));
    assert_eq!(
        host_network(&w, "node2", "bond7"),
        Some(HostNetwork::Master {
            bond: vec!["eth2".into(), "eth3".into()],
            vlans: "100".parse().unwrap(),
            mtu: Some(1600)
        })
    );
    assert_eq!(
        host_network(&w, "node2", "eth4"),
        Some(HostNetwork::Master { bond: vec![], vlans: "".parse().unwrap(), mtu: None }),
        "the vlan plugin creates its own subinterfaces"
    );
    assert_eq!(vlans_of(&w, "node2", "br1"), "100,200");
    w.delete_and_settle(&am);
    assert!(!w.objects.contains_key(&am));
    assert!(
        matches!(host_network(&w, "node2", "bond7"), Some(HostNetwork::Master { vlans, mtu: None, .. }) if vlans.is_empty())
    );
}

#[test]
fn connection_points_share_a_bridge_only_with_the_same_uplink() {
    let mut w = World::with_agents();
    w.apply(service("s", 100, &[]));
    w.apply(service("t", 200, &[]));
    let twin = w.apply(created(point_offering("twin", vec![ovs("br-cp")], &["eth1"]), 200));
    w.apply(attachment("a", &["s"], "cp"));
    w.apply_and_settle(attachment("b", &["t"], "twin"));
    assert_eq!(w.phase(&twin), Phase::Ready);
    assert_eq!(vlans_of(&w, "node1", "br-cp"), "100,200");
    let other = w.apply(created(point_offering("other", vec![ovs("br-cp")], &["eth7"]), 300));
    let nic = w.apply_and_settle(created(point_offering("nic", vec![ovs("br-nic")], &["eth1"]), 300));
    for key in [&other, &nic] {
        w.assert_message_contains(key, Phase::Error, "ConnectionPoint cp");
    }
    assert!(
        matches!(host_network(&w, "node1", "br-cp"), Some(HostNetwork::Ovs { uplink: Some(uplink), .. }) if uplink.interfaces == ["eth1"])
    );
    assert_eq!(host_network(&w, "node1", "br-nic"), None);
    w.apply_and_settle(edit_point(&w.objects[&other], |spec| spec.cnis[0].plugin = ovs("br-other")));
    assert_eq!(w.phase(&other), Phase::Ready);
}

#[test]
fn younger_connection_point_gets_the_bridge_when_the_older_is_deleted() {
    let mut w = World::with_agents();
    let old = w.apply(created(point_offering("old", vec![ovs("br-x")], &["eth8"]), 50));
    let young = w.apply_and_settle(created(
        edit_point(&point_offering("young", vec![ovs("br-x")], &["eth8"]), |spec| {
            let Plugin::Ovs { datapath, .. } = &mut spec.cnis[0].plugin else { unreachable!() };
            *datapath = Some(OvsDatapath::Netdev);
        }),
        60,
    ));
    assert_eq!((w.phase(&old), w.phase(&young)), (Phase::Ready, Phase::Error));
    w.delete_and_settle(&old);
    assert!(!w.objects.contains_key(&old));
    assert_eq!(w.phase(&young), Phase::Ready, "{}", w.message(&young));
    assert!(matches!(
        host_network(&w, "node1", "br-x"),
        Some(HostNetwork::Ovs { datapath: Some(OvsDatapath::Netdev), .. })
    ));
}

#[test]
fn first_failing_hop_is_named_in_status() {
    let mut w = World::with_agents();
    let refused = rejection(Item::port("br-cp"), "eth1 carries the node's address 10.0.0.2/24");
    w.rejections.insert(node_target("node2"), vec![refused]);
    w.silent.insert(node_target("node3"));
    w.apply(service("s", 100, &[]));
    let a = w.apply_and_settle(attachment("a", &["s"], "cp"));
    let expected = "Node node2: bridge br-cp: eth1 carries the node's address 10.0.0.2/24";
    assert_eq!((w.phase(&a), w.message(&a)), (Phase::Error, expected));
    assert_eq!(condition(&w.statuses[&a], "FabricReady"), Some((true, String::new())));
    assert_eq!(condition(&w.statuses[&a], "NodesReady"), Some((false, expected.into())));
    assert_eq!(condition(&w.statuses[&a], "NADReady"), Some((true, String::new())));
    let cp = cp_key();
    assert_eq!((w.phase(&cp), w.message(&cp)), (Phase::Error, expected));
    w.reject(&node_target("node2"), &[]);
    assert_eq!((w.phase(&cp), w.phase(&a)), (Phase::Ready, Phase::Pending));
    assert_eq!(w.message(&a), "Node node3: bridge br-cp: VLAN 100 is not confirmed yet");
    w.end_silence();
    assert_eq!(w.phase(&a), Phase::Ready);
    let vlan = Rejection { retryable: true, ..rejection(Item::port_vlan("br-cp", vid(100)), "no") };
    w.reject(&node_target("node1"), &[vlan]);
    assert_eq!((w.phase(&a), w.message(&a)), (Phase::Error, "Node node1: bridge br-cp: VLAN 100: no"));
    assert_eq!(w.phase(&cp), Phase::Ready);
}

#[test]
fn unready_nodes_are_not_waited_for() {
    let (mut w, a) = world_with_attachment();
    let writes = w.statuses[&a].clone();
    w.silent.insert(node_target("node1"));
    w.apply_node("node1", true, false);
    w.apply(service("t", 200, &[]));
    let b = w.apply_and_settle(attachment("b", &["t"], "cp"));
    assert_eq!(w.phase(&b), Phase::Ready, "{}", w.message(&b));
    assert_eq!(w.statuses[&a], writes);
    // The node is ready again, but its agent is not running.
    w.apply_node("node1", true, true);
    w.engine.handle(Event::Drivers(["netconf", "nad", "node/node2"].map(Name::from).into()));
    w.apply(service("u", 300, &[]));
    let c = w.apply_and_settle(attachment("c", &["u"], "cp"));
    assert_eq!((w.phase(&a), w.phase(&b), w.phase(&c)), (Phase::Ready, Phase::Ready, Phase::Pending));
    assert_eq!(
        w.message(&c),
        "Node node1: bridge br-cp: VLAN 300 waits: the agent of the node is not running"
    );
    // The deletion waits for node1 until its agent confirms the removal or the node is not ready.
    w.delete_and_settle(&b);
    assert_eq!(w.phase(&b), Phase::Terminating);
    assert!(w.message(&b).starts_with("Node node1: the removal"), "{}", w.message(&b));
    w.apply_node_and_settle("node1", true, false);
    assert!(!w.objects.contains_key(&b));
    assert_eq!(w.message(&b), "Node node1 is not ready: what is left there goes when it is back");
    assert_eq!(w.phase(&c), Phase::Ready);
    w.remove_node_and_settle("node1");
    assert!(!w.applied.contains_key(&node_target("node1")));
}

#[test]
fn joining_node_keeps_attachments_ready() {
    let mut w = World::with_agents();
    w.apply_node("node4", false, true);
    w.apply(service("s", 100, &[]));
    let a = w.apply_and_settle(attachment("a", &["s"], "cp"));
    assert_eq!(host_network(&w, "node4", "br-cp"), None);
    let before = w.statuses[&a].clone();
    w.silent.insert(node_target("node4"));
    w.apply_node_and_settle("node4", true, true);
    w.end_silence();
    assert!(host_network(&w, "node4", "br-cp").is_some());
    assert_eq!(w.statuses[&a], before, "no status was written");
}

#[test]
fn unreachable_agent_delays_but_does_not_fail() {
    let (mut w, a) = world_with_attachment();
    w.report_unreachable(&node_target("node2"));
    w.silent.insert(node_target("node2"));
    w.settle();
    assert_eq!(w.phase(&a), Phase::Ready);
    w.apply(service("t", 101, &[]));
    let b = w.apply_and_settle(attachment("b", &["t"], "cp"));
    assert!(w.message(&b).contains("waits: connect: refused"), "{}", w.message(&b));
    let failure = Failure { reason: "no OVSDB".into(), retryable: true, unreachable: false };
    w.report(&node_target("node2"), Outcome::Failed(failure), None, Vec::new());
    w.settle();
    assert_eq!(
        (w.phase(&b), w.phase(&a)),
        (Phase::Error, Phase::Ready),
        "the applied attachment stays ready"
    );
    w.end_silence();
    assert_eq!(w.phase(&b), Phase::Ready);
}

#[test]
fn unresponsive_open_vswitch_degrades_its_users() {
    let mut w = World::with_agents();
    w.apply(service("s", 100, &[]));
    w.apply(service("u", 102, &[]));
    let (a, gone) = (w.apply(attachment("a", &["s"], "cp")), w.apply(attachment("gone", &["u"], "cp")));
    w.settle();
    let cp = cp_key();
    let hung = rejection(Item::port("br-cp"), "Open vSwitch at unix:/db.sock is silent for 2 s");
    let hung = Rejection { retryable: true, unreachable: true, ..hung };
    w.reject(&node_target("node2"), std::slice::from_ref(&hung));
    let expected = "Node node2: Open vSwitch at unix:/db.sock is silent for 2 s";
    let check = |w: &World| {
        for key in [&a, &cp] {
            assert_eq!(w.phase(key), Phase::Ready, "{key}: {}", w.message(key));
            assert_eq!(condition(&w.statuses[key], "Degraded"), Some((true, expected.into())), "{key}");
        }
    };
    check(&w);
    // A new attachment waits, and the removal of a deleted one is unconfirmed.
    w.apply(service("t", 101, &[]));
    let b = w.apply(attachment("b", &["t"], "cp"));
    w.delete_and_settle(&gone);
    w.assert_message_contains(&b, Phase::Pending, "bridge br-cp waits: Open vSwitch at");
    w.assert_message_contains(&gone, Phase::Terminating, "can't be removed yet: Open vSwitch at");
    w.restart_and_settle();
    check(&w);
    assert_eq!((w.phase(&b), w.phase(&gone)), (Phase::Pending, Phase::Terminating), "also with a new engine");
    // A rejection of another kind is an error.
    let refused = Rejection { reason: "no such NIC".into(), unreachable: false, ..hung.clone() };
    w.reject(&node_target("node2"), &[hung, refused]);
    assert_eq!(w.message(&a), "Node node2: bridge br-cp: no such NIC");
    w.reject(&node_target("node2"), &[]);
    assert_eq!((w.phase(&a), w.phase(&b)), (Phase::Ready, Phase::Ready));
    assert!(!w.objects.contains_key(&gone), "{}", w.message(&gone));
    assert_eq!(condition(&w.statuses[&a], "Degraded"), None);
}

#[test]
fn node_labels_follow_applied_networks() {
    let mut w = World::with_agents();
    let set = |names: &[&str]| names.iter().map(|name| Name::from(*name)).collect::<BTreeSet<_>>();
    assert_eq!(w.node_labels[&to_name("node1")], (set(&["cp"]), set(&["br-cp"])));
    w.silent.insert(node_target("node1"));
    w.apply_and_settle(point_offering("m", vec![Plugin::Macvlan { master: "eth2".into() }], &[]));
    assert_eq!(w.node_labels[&to_name("node1")], (set(&["cp"]), set(&["br-cp"])));
    assert_eq!(w.node_labels[&to_name("node2")], (set(&["cp", "m"]), set(&["br-cp"])));
    w.end_silence();
    assert_eq!(w.node_labels[&to_name("node1")].0, set(&["cp", "m"]));
    w.delete_and_settle(&cp_key());
    assert_eq!(w.node_labels[&to_name("node1")], (set(&["m"]), set(&[])));
}

#[test]
fn invalid_interface_names_are_rejected() {
    let mut w = World::with_agents();
    for (plugin, nics, expected) in [
        (
            ovs("a-very-long-bridge"),
            vec![],
            "spec.SupportedCnis[0].Opts.BridgeName: a-very-long-bridge has 18 bytes",
        ),
        (ovs("br/x"), vec![], "can't be the name of an interface"),
        (ovs("br0"), vec!["eth0", "averylonginterface"], "spec.Interfaces[1]"),
        (ovs("eth0"), vec!["eth0"], "can't be a bridge and its uplink"),
    ] {
        let key = w.apply_and_settle(point_offering("bad", vec![plugin], &nics));
        w.assert_message_contains(&key, Phase::Error, expected);
    }
    w.apply(point_offering("m", vec![Plugin::Macvlan { master: "enp0s31f6np".into() }], &[]));
    w.apply(service("s", 100, &[]));
    w.apply(service("t", 1000, &[]));
    let a = w.apply(attachment("a", &["s"], "m"));
    let b = w.apply_and_settle(attachment("b", &["t"], "m"));
    assert_eq!(w.phase(&a), Phase::Ready, "{}", w.message(&a));
    w.assert_message_contains(&b, Phase::Error, "enp0s31f6np.1000");
}

#[test]
fn restart_publishes_nothing_and_continues_a_deletion() {
    let mut w = World::with_agents();
    w.apply(service("s", 100, &[]));
    w.apply(service("t", 200, &[]));
    let a = w.apply(attachment("a", &["s"], "cp"));
    let b = w.apply_and_settle(attachment("b", &["t"], "cp"));
    let published = w.published;
    w.restart_and_settle();
    assert_eq!(w.published, published);
    assert!(w.node_labels.contains_key(&to_name("node1")));
    w.silent.insert(node_target("node1"));
    w.delete_and_settle(&a);
    w.restart_and_settle();
    assert_eq!((w.phase(&a), w.phase(&b)), (Phase::Terminating, Phase::Ready), "node1 still has it");
    w.end_silence();
    assert!(!w.objects.contains_key(&a));
    assert_eq!(vlans_of(&w, "node1", "br-cp"), "200");
}

/// The ConnectionPoint `cp` with changed options of its first CNI plugin.
fn with_options(w: &World, change: impl FnOnce(&mut SupportedCni)) -> Object {
    edit_point(&w.objects[&cp_key()], |spec| change(&mut spec.cnis[0]))
}

#[test]
fn attachment_inherits_the_connection_point_mtu() {
    let mut w = World::with_agents();
    w.apply(service("s", 100, &[]));
    let a = w.apply(attachment("a", &["s"], "cp"));
    w.apply(with_mtu(&attachment("b", &["s"], "cp"), Some(1400)));
    w.apply_pod_and_settle(pod("x", "node1", &[("attach.eno.k8s.io/a", "")]));
    let nad = |w: &World, name| w.nad("ns", name).unwrap().mtu;
    assert_eq!((nad(&w, "a"), nad(&w, "b")), (None, Some(1400)));

    w.apply_and_settle(with_options(&w, |cni| cni.mtu = Some(9000)));
    assert_eq!((nad(&w, "a"), nad(&w, "b")), (Some(9000), Some(1400)));
    assert_eq!(applied_pod(&w, "node1", "x").unwrap().links[0].mtu, Some(9000));
    let Some(HostNetwork::Ovs { uplink: Some(uplink), .. }) = host_network(&w, "node1", "br-cp") else {
        panic!()
    };
    assert_eq!(uplink.mtu, Some(9000));
    assert_eq!(w.phases[&a].len(), 4, "it was pending until the MTU was applied");
}

#[test]
fn ovs_pool_name_is_rendered_in_the_nad() {
    let mut w = World::with_agents();
    w.apply(service("s", 100, &[]));
    let a = w.apply(attachment("a", &["s"], "cp"));
    w.apply_and_settle(with_options(&w, |cni| {
        let Plugin::Ovs { pool_name, .. } = &mut cni.plugin else { unreachable!() };
        *pool_name = Some("vendor.com/nics".into());
    }));
    let Cni::Ovs { pool, .. } = w.nad("ns", "a").unwrap().cni else { panic!() };
    assert_eq!(pool.as_deref(), Some("vendor.com/nics"));
    assert_eq!(w.phase(&a), Phase::Ready);
}

#[test]
fn unknown_options_are_a_condition_without_an_error() {
    let mut w = World::with_agents();
    let cp = cp_key();
    let unknown_opts_condition = |w: &World| condition(&w.statuses[&cp], "UnknownOpts");
    assert_eq!(unknown_opts_condition(&w), None);
    let mut slip = w.objects[&cp].clone();
    slip.unknown_opts = Some("ovs has no key \"Mtu\"; did you mean MTU?".into());
    w.apply_and_settle(slip);
    assert!(
        unknown_opts_condition(&w)
            .is_some_and(|(holds, expected)| holds && expected.contains("did you mean MTU?"))
    );
    assert_eq!(w.phases[&cp], [Phase::Pending, Phase::Ready], "it stays ready");
    // The condition stays with another error.
    w.apply_and_settle(edit_point(&w.objects[&cp], |spec| spec.node_pool = Some("nowhere".into())));
    assert_eq!((w.phase(&cp), unknown_opts_condition(&w).is_some()), (Phase::Error, true));
    let mut right = edit_point(&w.objects[&cp], |spec| spec.node_pool = Some("pool".into()));
    right.unknown_opts = None;
    w.apply_and_settle(right);
    assert_eq!((w.phase(&cp), unknown_opts_condition(&w)), (Phase::Ready, None));
}
