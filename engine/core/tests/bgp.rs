//! BGP sessions of nodes with a VRF: addresses, interfaces, sessions on devices, and what the status says.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use eno_core::kinds::Family;
use eno_core::{Event, Key, Kind, Selector, Target};
use eno_schemas::{
    ANNOUNCED_TO_ALL, Applied, Bfd, BgpError, BgpState, Desired, Failure, HostNetwork, Ipam, Item, Note,
    Outcome, Phase, Speaker, SpeakerSessions,
};

use crate::edits::{edit_attachment, edit_group, edit_subnet};
use crate::fixtures::{rejection, to_device, to_node};
use crate::world::*;
use serde_json::json;

const GATEWAY: &str = "leaf2";

/// The group `g` on the nodes of `cp`, in the VRF `v` by the service `s`, whose nodes get addresses by the Ipam eno.
fn world() -> (World, Key) {
    let mut w = World::with_agents();
    w.apply(edit_subnet(&subnet("sn", "10.1.0.0/29"), |spec| spec.ipam = Ipam::Eno));
    w.apply(with_subnets(&service("s", 100, &[]), &["sn"]));
    w.apply(vrf("v", &[GATEWAY]));
    w.apply_and_settle(vrf_attachment("va", "v", "s", GATEWAY, &["10.1.0.1/29"]));
    let g = w.apply_and_settle(bgp_session_group("g", "v", "s", "cp"));
    (w, g)
}

/// The addresses of the nodes in the status, by node.
fn workers(w: &World, g: &Key) -> Vec<(String, String)> {
    let workers = w.statuses[g].workers.iter();
    workers.map(|one| (one.node.to_string(), one.addresses[0].to_string())).collect()
}

fn neighbours(w: &World) -> Vec<String> {
    let vrfs = &w.actual(&GATEWAY.into()).unwrap().vrfs;
    vrfs.iter()
        .flat_map(|vrf| &vrf.bgp)
        .flat_map(|group| &group.neighbours)
        .map(ToString::to_string)
        .collect()
}

/// The interfaces of groups on a node.
fn interfaces(w: &World, node: &str) -> Vec<HostNetwork> {
    let networks = applied_node(w, node).networks.into_values();
    networks.filter(|network| matches!(network, HostNetwork::Interface { .. })).collect()
}

fn assert_sessions(w: &World, g: &Key, established: usize, all: usize) {
    let sessions = w.statuses[g].sessions.as_ref().unwrap();
    assert_eq!((sessions.established, sessions.all, sessions.listed.len()), (established, all, all));
}

#[test]
fn each_node_has_an_interface_and_a_session() {
    let (w, g) = world();
    w.assert_phase(&[&g], Phase::Ready, "");
    let expected = ["node1", "node2", "node3", "node4"].into_iter().zip([
        "10.1.0.2/29",
        "10.1.0.3/29",
        "10.1.0.4/29",
        "10.1.0.5/29",
    ]);
    let expected: Vec<(&str, &str)> = expected.collect();
    assert_eq!(
        workers(&w, &g),
        expected
            .iter()
            .map(|(node, address)| ((*node).to_owned(), (*address).to_owned()))
            .collect::<Vec<_>>()
    );
    assert_eq!(neighbours(&w), ["10.1.0.2", "10.1.0.3", "10.1.0.4", "10.1.0.5"]);
    let group = w.actual(&GATEWAY.into()).unwrap().vrfs[0].bgp[0].clone();
    assert_eq!((group.owner.as_str(), group.local_as, group.peer_as), ("BGPSessionGroup/g", 65000, 64512));
    for (node, address) in expected {
        let [HostNetwork::Interface { network, vlan, addresses, gateways, prefixes, .. }] =
            &interfaces(&w, node)[..]
        else {
            panic!("{:?}", interfaces(&w, node))
        };
        assert_eq!((network.as_str(), vlan.get()), ("br-cp", 100));
        assert_eq!(addresses, &[address.parse().unwrap()]);
        assert_eq!(gateways, &["10.1.0.1".parse::<IpAddr>().unwrap()]);
        assert_eq!(prefixes, &["198.51.100.0/24".parse().unwrap()]);
    }
    assert_sessions(&w, &g, 4, 4);
    w.assert_paths_agree();
    w.assert_observer_agrees();
}

/// What the speaker is to know of `g`, and of whom.
fn speaker(w: &World) -> Option<SpeakerSessions> {
    match w.applied.get(&Target::Speaker("g".into()))? {
        Desired::Speaker(speaker) => speaker.sessions.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn speaker_knows_the_gateways_and_the_nodes_with_addresses() {
    let (mut w, g) = world();
    assert_eq!(speaker(&w), None);
    let bfd = Bfd { receive_interval: 300, transmit_interval: 400, detect_multiplier: 3 };
    let group = edit_group(&bgp_session_group("g", "v", "s", "cp"), |spec| {
        (spec.speaker, spec.bfd) = (Some(Speaker::MetalLB), Some(bfd));
    });
    w.apply_and_settle(group.clone());
    w.assert_phase(&[&g], Phase::Ready, "");
    let known = speaker(&w).unwrap();
    assert_eq!((known.local_as, known.peer_as, known.hold_time), (64512, 65000, 90));
    assert_eq!(known.peers, [("eno-g-10-1-0-1".to_owned(), "10.1.0.1".parse().unwrap())].into());
    assert_eq!(known.hostnames, ["node1", "node2", "node3", "node4"].map(String::from).into());
    // A node takes what the device sends.
    assert_eq!(known.bfd.map(|bfd| (bfd.receive_interval, bfd.transmit_interval)), Some((400, 300)));
    assert_eq!(w.statuses[&g].speaker_peers, ["eno-g-10-1-0-1"]);
    w.assert_paths_agree();

    // Its label may name a node otherwise than its object.
    let labels =
        [("pool", "a"), ("kubernetes.io/hostname", "second")].map(|(key, value)| (key.into(), value.into()));
    w.nodes.insert("node2".into(), (labels.clone().into(), true));
    w.engine.handle(Event::Node { name: "node2".into(), labels: labels.into(), ready: true });
    w.remove_node("node1");
    w.settle();
    assert_eq!(speaker(&w).unwrap().hostnames, ["node3", "node4", "second"].map(String::from).into());

    // The driver refuses it, tells something of it, or is away.
    let target = Target::Speaker("g".into());
    w.report(&target, Outcome::Applied, None, vec![rejection(Item::TARGET, "the name is taken")]);
    w.settle();
    w.assert_phase(&[&g], Phase::Error, "the BGP speaker: the name is taken");
    w.report(
        &target,
        Outcome::Failed(Failure { unreachable: true, ..Failure::retryable("no MetalLB") }),
        None,
        vec![],
    );
    w.settle();
    // The message says first what is needed first.
    w.speak(GATEWAY, "10.1.0.3", BgpState::Active, None);
    w.assert_phase(&[&g], Phase::Pending, "the BGP speaker waits: no MetalLB");
    w.speak(GATEWAY, "10.1.0.3", BgpState::Established, None);
    w.notes.insert(target.clone(), vec![Note::new(ANNOUNCED_TO_ALL, Item::TARGET, "name peers")]);
    w.report(&target, Outcome::Applied, Some(Applied::Speaker { present: true }), vec![]);
    w.settle();
    w.assert_phase(&[&g], Phase::Ready, "");
    assert_eq!(
        condition(&w.statuses[&g], "AnnouncedToAll").map(|one| one.message.as_str()),
        Some("name peers")
    );
    w.notes.clear();

    // Without a speaker, or without the group, it is to know nothing. The group waits for that.
    w.apply_and_settle(edit_group(&group, |spec| spec.speaker = None));
    w.assert_phase(&[&g], Phase::Ready, "");
    assert_eq!((speaker(&w), w.statuses[&g].speaker_peers.len()), (None, 0));
    w.apply_and_settle(group);
    assert!(speaker(&w).is_some());
    w.silent.insert(target.clone());
    w.delete_and_settle(&g);
    w.assert_phase(&[&g], Phase::Terminating, "its removal from the BGP speaker is not confirmed yet");
    w.restart_and_settle();
    w.assert_phase(&[&g], Phase::Terminating, "its removal from the BGP speaker is not confirmed yet");
    w.silent.clear();
    w.settle();
    assert!(!w.objects.contains_key(&g), "{}", w.message(&g));
    assert_eq!(speaker(&w), None);

    // Another object has the name of a group.
    let v = edit_group(&bgp_session_group("v", "v", "s", "cp"), |spec| spec.speaker = Some(Speaker::MetalLB));
    let v = w.apply_and_settle(v);
    assert_eq!(w.statuses[&v].speaker_peers, ["eno-v-10-1-0-1"]);
    assert!(w.statuses[&Key::cluster(Kind::VRF, &v.name)].speaker_peers.is_empty());
}

#[test]
fn first_session_that_is_not_established_is_told_in_words() {
    let (mut w, g) = world();
    let session =
        |message: &str| format!("BGP session of Node node1 with 10.1.0.1 of FabricDevice leaf2: {message}");
    let error = |code, subcode, received| Some(BgpError { code, subcode, received });
    for (state, error, message) in [
        (BgpState::Active, None, "no connection: no speaker with peer 10.1.0.1 answers on 10.1.0.2"),
        (BgpState::OpenSent, None, "the other side has not answered its OPEN yet"),
        (
            BgpState::Idle,
            error(2, 2, false),
            "the device refuses the AS of the other side (0202): give the speaker of the node LocalASN 64512 and the peer AS \
             65000, not another for 64512",
        ),
        (
            BgpState::Idle,
            error(2, 3, false),
            "the device refuses the router ID of the other side (0203): it is 0.0.0.0 or its own; give the speaker another",
        ),
        (
            BgpState::Idle,
            error(6, 1, false),
            "the node announces more than 5 prefixes (0601); raise MaximumPrefixes, or \
             announce less",
        ),
        (
            BgpState::Active,
            error(4, 0, false),
            "the device heard nothing for the HoldTime (0400); it tries again",
        ),
        (
            BgpState::Idle,
            error(6, 2, true),
            "the node ended it with the NOTIFICATION 0602 (RFC 4271, section 4.5)",
        ),
    ] {
        w.apply_and_settle(edit_group(&bgp_session_group("g", "v", "s", "cp"), |spec| {
            spec.maximum_prefixes = Some(5);
        }));
        w.speak(GATEWAY, "10.1.0.2", state, error);
        let sessions = w.statuses[&g].sessions.clone().unwrap();
        assert_eq!((sessions.established, sessions.all), (3, 4));
        assert_eq!(sessions.listed[0].last_error.as_deref(), Some(message));
        // It was ready, and its inputs are the same.
        w.assert_phase(&[&g], Phase::Ready, "");
        let degraded = condition(&w.statuses[&g], "Degraded").unwrap();
        assert!(degraded.holds && degraded.message.contains(&session(message)), "{degraded:?}");
        w.assert_paths_agree();
        w.speak(GATEWAY, "10.1.0.2", BgpState::Established, None);
        assert!(condition(&w.statuses[&g], "Degraded").is_none_or(|one| !one.holds));
    }
    w.delete_and_settle(&g);
    // The lowest address that was never leased comes first.
    w.speak(GATEWAY, "10.1.0.6", BgpState::Active, None);
    let h = w.apply_and_settle(bgp_session_group("h", "v", "s", "cp"));
    let message = session("no connection: no speaker with peer 10.1.0.1 answers on 10.1.0.6");
    w.assert_phase(&[&h], Phase::Pending, &message);
    w.speak(GATEWAY, "10.1.0.6", BgpState::Established, None);
    w.assert_phase(&[&h], Phase::Ready, "");
}

#[test]
fn node_that_is_not_ready_is_not_waited_for() {
    let (mut w, g) = world();
    w.delete_and_settle(&g);
    w.apply_node("node1", true, false);
    w.silent.insert(node_target("node1"));
    let h = w.apply_and_settle(bgp_session_group("h", "v", "s", "cp"));
    w.assert_phase(&[&h], Phase::Ready, "");
    assert_sessions(&w, &h, 4, 4);
}

#[test]
fn address_is_free_when_the_node_has_confirmed() {
    let (mut w, g) = world();
    let before = workers(&w, &g);
    w.silent.insert(node_target("node1"));
    w.apply_node("node1", false, true);
    w.settle();
    assert_eq!(neighbours(&w), ["10.1.0.3", "10.1.0.4", "10.1.0.5"], "the device forgets it at once");
    assert_eq!(workers(&w, &g), before, "the node may still have it");
    w.silent.clear();
    w.settle();
    assert_eq!(workers(&w, &g), before[1..]);
    assert!(interfaces(&w, "node1").is_empty());
    w.apply_node("node1", true, true);
    w.settle();
    assert_eq!((workers(&w, &g).len(), neighbours(&w).len()), (4, 4));
}

#[test]
fn address_is_kept_while_the_agent_can_not_remove_the_interface() {
    let (mut w, g) = world();
    let before = workers(&w, &g);
    w.rejections.insert(node_target("node1"), vec![rejection(Item::TARGET, "eno-x can't be removed")]);
    w.apply_node("node1", false, true);
    w.settle();
    assert_eq!(workers(&w, &g), before);
    w.rejections.clear();
    w.run_driver_again(&node_target("node1"));
    w.settle();
    assert_eq!(workers(&w, &g), before[1..]);
}

#[test]
fn address_of_a_node_that_is_gone_is_kept_for_an_hour() {
    let (mut w, g) = world();
    w.remove_node("node1");
    w.settle();
    assert_eq!((neighbours(&w).len(), workers(&w, &g).len()), (3, 4));
    w.pass(Duration::from_mins(58));
    assert_eq!(workers(&w, &g).len(), 4);
    w.pass(Duration::from_mins(3));
    assert_eq!(workers(&w, &g).len(), 3);
}

#[test]
fn node_selector_narrows_the_nodes() {
    let (mut w, g) = world();
    let labels = [("pool".into(), "a".into()), ("edge".into(), "yes".into())];
    w.engine.handle(Event::Node { name: "node2".into(), labels: labels.into(), ready: true });
    w.apply_and_settle(edit_group(&bgp_session_group("g", "v", "s", "cp"), |spec| {
        let selector = serde_json::from_str::<Selector>(r#"[{"key":"edge","operator":"Exists"}]"#);
        spec.node_selector = Some(selector.unwrap());
    }));
    assert_eq!(workers(&w, &g), [("node2".to_owned(), "10.1.0.3/29".to_owned())]);
    assert_eq!(neighbours(&w), ["10.1.0.3"]);
}

#[test]
fn no_address_is_commanded_before_it_is_written() {
    let (mut w, g) = world();
    w.delete_and_settle(&g);
    w.delayed_status_writes = Some(Vec::new());
    let h = w.apply_and_settle(bgp_session_group("h", "v", "s", "cp"));
    assert!(neighbours(&w).is_empty() && interfaces(&w, "node1").is_empty());
    assert_eq!(workers(&w, &h).len(), 4);
    for (key, count) in w.delayed_status_writes.take().unwrap() {
        w.engine.handle(Event::StatusWritten(key, count));
    }
    w.settle();
    assert_eq!((neighbours(&w).len(), interfaces(&w, "node1").len()), (4, 1));
}

#[test]
fn new_engine_finds_nothing_to_do_for_sessions() {
    let (mut w, g) = world();
    w.remove_node("node1");
    w.settle();
    let (status, published, paths) = (w.statuses[&g].clone(), w.published, w.paths());
    w.restart_and_settle();
    assert_eq!((w.published, w.paths()), (published, paths));
    assert_eq!(w.statuses[&g], status);
}

#[test]
fn deleted_group_leaves_nothing() {
    for restarts in [false, true] {
        let (mut w, g) = world();
        w.silent.insert(node_target("node1"));
        w.delete_and_settle(&g);
        let message = "Node node1: the removal of its interface is not confirmed yet";
        w.assert_phase(&[&g], Phase::Terminating, message);
        if restarts {
            w.restart_and_settle();
            w.assert_phase(&[&g], Phase::Terminating, message);
        }
        w.silent.clear();
        w.settle();
        assert!(!w.objects.contains_key(&g), "{}", w.message(&g));
        assert!(neighbours(&w).is_empty() && interfaces(&w, "node1").is_empty());
        let g = w.apply_and_settle(bgp_session_group("h", "v", "s", "cp"));
        assert_eq!(workers(&w, &g).len(), 4);
        // The VRF waits for what uses it.
        let vrf = Key::cluster(Kind::VRF, &to_name("v"));
        w.delete_and_settle(&Key::cluster(Kind::VRFAttachment, &to_name("va")));
        w.delete_and_settle(&vrf);
        w.assert_phase(&[&vrf], Phase::Terminating, "in use by BGPSessionGroup h");
        w.delete_and_settle(&g);
        assert!(!w.objects.contains_key(&vrf) && !w.objects.contains_key(&g), "{}", w.message(&vrf));
    }
}

#[test]
fn devices_know_nodes_by_the_addresses_of_the_subnet() {
    let (mut w, g) = world();
    let by_prefix = edit_group(&bgp_session_group("g", "v", "s", "cp"), |spec| {
        (spec.by_prefix, spec.device_secret) = (true, Some("bgp".into()));
    });
    w.apply_and_settle(by_prefix);
    let networks = |w: &World| w.actual(&GATEWAY.into()).unwrap().vrfs[0].bgp[0].dynamic_neighbours.clone();
    let expected =
        ["10.1.0.1/32", "10.1.0.2/31", "10.1.0.4/31", "10.1.0.6/32"].map(|net| net.parse().unwrap());
    assert_eq!((neighbours(&w), networks(&w)), (Vec::new(), expected.to_vec()));
    let message =
        "no connection: no speaker with peer 10.1.0.1 answers on 10.1.0.2, or its password is another one";
    assert_eq!(w.statuses[&g].sessions.as_ref().unwrap().listed[0].last_error.as_deref(), Some(message));
    for host in 2..6 {
        w.speak(GATEWAY, &format!("10.1.0.{host}"), BgpState::Established, None);
    }
    w.assert_phase(&[&g], Phase::Ready, "");
    assert_sessions(&w, &g, 4, 4);
    // Nothing in the VRF changes when a node goes.
    let vrfs = w.actual(&GATEWAY.into()).unwrap().vrfs.clone();
    w.apply_node("node1", false, true);
    w.settle();
    assert_sessions(&w, &g, 3, 3);
    assert_eq!(w.actual(&GATEWAY.into()).unwrap().vrfs, vrfs);
    // Of a driver that knows neighbours only by address.
    let without = BTreeSet::from(["netconf".into()]);
    w.engine.handle(Event::DriversWithoutBgp(BTreeSet::new(), without));
    w.settle();
    let message =
        "spec.Neighbours: the driver netconf knows neighbours only by their addresses; name PerNode";
    w.assert_phase(&[&g], Phase::Error, message);
}

#[test]
fn refusals_name_the_field_and_the_remedy() {
    let (mut w, g) = world();
    w.apply_and_settle(edit_group(&bgp_session_group("g", "v", "s", "cp"), |spec| {
        spec.address_families = vec![Family::V4, Family::V6];
    }));
    w.assert_phase(
        &[&g],
        Phase::Error,
        "spec.AddressFamilies: no VRFAttachment leads L2Service s into VRF v with an IPv6 address; create one, or leave IPv6 out",
    );
    w.delete_and_settle(&g);
    w.apply(subnet("plain", "10.2.0.0/24"));
    w.apply(with_subnets(&service("s2", 101, &[]), &["plain"]));
    w.apply_and_settle(vrf_attachment("va2", "v", "s2", GATEWAY, &["10.2.0.1/24"]));
    let g = w.apply_and_settle(bgp_session_group("h", "v", "s2", "cp"));
    let message = "spec.L2Service: Subnet plain has no addresses for nodes; set its Ipam to eno, or give it a HotPlugPool";
    w.assert_phase(&[&g], Phase::Error, message);
    let pool = r#"[{"start":"10.2.0.10","end":"10.2.0.19"}]"#;
    w.apply_and_settle(edit_subnet(&subnet("plain", "10.2.0.0/24"), |spec| {
        spec.hot_plug_pool = serde_json::from_str(pool).unwrap();
    }));
    w.assert_phase(&[&g], Phase::Ready, "");
    assert_eq!(workers(&w, &g)[0].1, "10.2.0.10/24");
}

#[test]
fn two_hundred_workers_take_two_commands_each_and_few_of_the_device() {
    let mut w = World::with_agents();
    let mut ports = vec![("e1", to_node("node1")), ("e2", to_node("node2"))];
    ports.extend(["spine1", "spine2"].map(|spine| (spine, to_device(spine, "leaf1"))));
    let names: Vec<String> = (5..=201).map(|n| format!("node{n}")).collect();
    ports.extend(names.iter().map(|name| (name.as_str(), to_node(name))));
    w.apply(device("leaf1", &ports));
    for name in &names[..196] {
        w.apply_node(name, true, true);
    }
    w.apply(edit_subnet(&subnet("sn", "10.1.0.0/23"), |spec| spec.ipam = Ipam::Eno));
    w.apply(with_subnets(&service("s", 100, &[]), &["sn"]));
    w.apply(vrf("v", &[GATEWAY]));
    w.apply_and_settle(vrf_attachment("va", "v", "s", GATEWAY, &["10.1.0.1/23"]));
    let sent =
        |w: &World| w.applied.keys().map(|target| w.command(target).generation.sequence).max().unwrap();
    let before = sent(&w);
    let g = w.apply_and_settle(bgp_session_group("g", "v", "s", "cp"));
    w.assert_phase(&[&g], Phase::Ready, "");
    assert_eq!((workers(&w, &g).len(), neighbours(&w).len()), (200, 200));
    // One for the VLAN, and one for the addresses once they are written.
    let all = sent(&w) - before;
    assert!(all <= 2 * 200 + 8, "{all}");
    // A node that comes concerns itself and the gateway.
    let before = sent(&w);
    w.apply_node("node201", true, true);
    w.settle();
    assert_eq!(workers(&w, &g).len(), 201);
    let all = sent(&w) - before;
    assert!(all <= 6, "{all}");
}

#[test]
fn answers_are_led_to_one_gateway() {
    let (mut w, g) = world();
    let symmetric = || edit_group(&bgp_session_group("g", "v", "s", "cp"), |spec| spec.symmetric = true);
    w.apply_and_settle(symmetric());
    w.assert_phase(&[&g], Phase::Ready, "");
    for network in interfaces(&w, "node1") {
        assert!(matches!(network, HostNetwork::Interface { symmetric: true, .. }), "{network:?}");
    }
    let two = "spec.ReturnPath: answers can be led to one gateway of each family, and 10.1.0.1 and 10.1.0.6 are gateways of VRF \
               v; set it to None";
    w.apply(vrf("v", &[GATEWAY, "leaf1"]));
    let interfaces = json!([
        { "Device": GATEWAY, "Addresses": ["10.1.0.1/29"] },
        { "Device": "leaf1", "Addresses": ["10.1.0.6/29"] },
    ]);
    let spec = json!({ "VRF": "v", "L2Service": "s", "Interfaces": interfaces });
    w.apply_and_settle(object(Kind::VRFAttachment, "va", spec));
    w.assert_phase(&[&g], Phase::Error, two);
    w.apply_and_settle(bgp_session_group("g", "v", "s", "cp"));
    w.assert_phase(&[&g], Phase::Ready, "");
    w.apply_and_settle(symmetric());
    w.assert_phase(&[&g], Phase::Error, two);
    w.apply_and_settle(vrf_attachment("va", "v", "s", GATEWAY, &["10.1.0.1/29"]));
    w.assert_phase(&[&g], Phase::Ready, "");
}

#[test]
fn pods_and_nodes_share_a_service_only_with_a_password() {
    let (mut w, g) = world();
    let a = w.apply_and_settle(attachment("a", &["s"], "cp"));
    let message = "spec.L2Services[0]: BGPSessionGroup g has BGP sessions in L2Service s, and allows no pods there; name another \
                   L2Service";
    w.assert_phase(&[&a], Phase::Error, message);
    w.delete_and_settle(&g);
    w.assert_phase(&[&a], Phase::Ready, "");
    let g = w.apply_and_settle(bgp_session_group("h", "v", "s", "cp"));
    let message = "spec.L2Service: L2ServiceAttachment ns/a gives pods interfaces in L2Service s: such a pod could speak BGP in \
                   place of a node; name an L2Service without, or set AllowPods with a Password";
    w.assert_phase(&[&g], Phase::Error, message);
    w.apply_and_settle(edit_group(&bgp_session_group("h", "v", "s", "cp"), |spec| {
        (spec.allow_pods, spec.device_secret) = (true, Some("bgp".into()));
    }));
    w.assert_phase(&[&g, &a], Phase::Ready, "");
    w.apply_and_settle(edit_attachment(&attachment("a", &["s"], "cp"), |spec| spec.mtu = Some(1400)));
    w.assert_phase(&[&g, &a], Phase::Ready, "");
}

#[test]
fn groups_with_equal_gateways_on_a_node_are_refused() {
    let (mut w, g) = world();
    w.apply(edit_subnet(&subnet("sn2", "10.1.0.0/29"), |spec| spec.ipam = Ipam::Eno));
    w.apply(with_subnets(&service("s2", 101, &[]), &["sn2"]));
    w.apply(vrf("v2", &[GATEWAY]));
    w.apply(vrf_attachment("va2", "v2", "s2", GATEWAY, &["10.1.0.1/29"]));
    let second = w.apply_and_settle(created(bgp_session_group("g2", "v2", "s2", "cp"), 5));
    let message = "spec.VRF: BGPSessionGroup g has the gateway 10.1.0.1 too, and both are on node node1: a node can't tell the \
                   two apart; give one of both other addresses or other nodes";
    w.assert_phase(&[&second], Phase::Error, message);
    w.delete_and_settle(&g);
    w.assert_phase(&[&second], Phase::Ready, "");
    let owners: BTreeSet<String> = w
        .actual(&GATEWAY.into())
        .unwrap()
        .vrfs
        .iter()
        .flat_map(|vrf| vrf.bgp.iter().map(|group| format!("{} in {}", group.owner, vrf.name)))
        .collect();
    assert_eq!(owners, ["BGPSessionGroup/g2 in v2".to_owned()].into());
}
