use super::super::guard::tests::link;
use super::super::return_path;
use super::super::state::{ADDR_GEN_NONE, Installation, State};
use super::*;
use crate::netlink::{Address, PROTOCOL, Route, Rule, Snapshot};
use eno_schemas::{MarkMask, NodeDesired, VlanSet};

fn ovs(datapath: OvsDatapath) -> HostNetwork {
    let vlans: VlanSet = "10,20".parse().unwrap();
    HostNetwork::Ovs { datapath: Some(datapath), uplink: None, patch: None, vlans }
}

fn interface(network: &str, vlan: u16) -> HostNetwork {
    HostNetwork::Interface {
        network: network.to_owned(),
        vlan: VlanId::new(vlan).unwrap(),
        addresses: vec!["10.9.0.2/24".parse().unwrap()],
        gateways: vec!["10.9.0.1".parse().unwrap()],
        prefixes: vec!["203.0.113.0/28".parse().unwrap()],
        symmetric: false,
        mtu: Some(1400),
    }
}

/// As [`interface`], with answers to its gateway.
fn symmetric() -> HostNetwork {
    let mut wanted = interface("br0", 10);
    if let HostNetwork::Interface { symmetric, .. } = &mut wanted {
        *symmetric = true;
    }
    wanted
}

fn desired(networks: impl IntoIterator<Item = (&'static str, HostNetwork)>) -> NodeDesired {
    let networks = networks.into_iter().map(|(name, network)| (name.to_owned(), network)).collect();
    NodeDesired { cluster: "lab1".into(), networks, ..NodeDesired::default() }
}

fn ours(name: &str, link: Link) -> Link {
    Link {
        group: ownership::group("lab1"),
        alias: Some(ownership::alias("lab1", name)),
        address_generation: Some(ADDR_GEN_NONE),
        ..link
    }
}

fn planned(desired: &NodeDesired, state: &State) -> (Vec<String>, BTreeMap<ItemRef, Refusal>) {
    let plan = super::super::plan::plan(desired, state, &BTreeMap::new());
    (plan.steps.iter().map(|step| step.change.operation()).collect(), plan.refused)
}

#[track_caller]
fn refusal(desired: &NodeDesired, state: &State, name: &str) -> Refusal {
    let (steps, mut refused) = planned(desired, state);
    assert!(!steps.iter().any(|step| step.contains(name)), "{steps:?}");
    refused.remove(&ItemRef::Network(name.to_owned())).expect(name)
}

fn installation() -> Installation {
    Installation { node: "node1".to_owned(), ..Installation::default() }
}

/// The interface as it is to be, on a bridge of Open vSwitch.
fn complete() -> State {
    let port = ownership::port("eno-bgp");
    let port = Link { mtu: PORT_MTU, parent: Some(3), ..link(2, &port, Kind::Veth) };
    let mac = Some(ownership::interface_mac("lab1", "node1", "eno-bgp"));
    let own = Link { mtu: 1400, parent: Some(2), mac, ..link(3, "eno-bgp", Kind::Veth) };
    let net: IpNet = "10.9.0.2/24".parse().unwrap();
    let table = ownership::table(3);
    let route = Route {
        table,
        prefix: net.trunc(),
        gateway: None,
        index: Some(3),
        metric: 0,
        source: Some(net.addr()),
        protocol: PROTOCOL,
    };
    let rule = Rule {
        v6: false,
        priority: 20_101,
        table,
        from: None,
        to: Some("10.9.0.1/32".parse().unwrap()),
        input: Some("lo".to_owned()),
        mark: None,
        protocol: PROTOCOL,
    };
    let HostNetwork::Interface { addresses, gateways, prefixes, .. } = interface("br0", 10) else {
        unreachable!()
    };
    let program = session_filter::program(&addresses, &gateways, &prefixes).unwrap();
    let settings = Settings {
        program: IngressProgram::from(&program[..]),
        sysctls: SYSCTLS.map(|(_, value)| Some(value.to_owned())),
        leaves_checksums: false,
    };
    State {
        snapshot: Snapshot {
            links: vec![ours("eno-bgp", port), ours("eno-bgp", own)],
            addresses: vec![Address { index: 3, net, protocol: PROTOCOL, permanent: true }],
            routes: vec![route],
            rules: vec![rule],
        },
        interfaces: [(3, settings)].into(),
        installation: installation().into(),
        ..State::default()
    }
}

#[test]
fn plan_is_empty_when_interface_is_as_desired() {
    let wanted = desired([("br0", ovs(OvsDatapath::Netdev)), ("eno-bgp", interface("br0", 10))]);
    assert_eq!(planned(&wanted, &complete()), (vec![], BTreeMap::new()));
    // It goes with all of it.
    let gone = planned(&desired([("br0", ovs(OvsDatapath::Netdev))]), &complete()).0;
    let port = format!("delete interface {}", ownership::port("eno-bgp"));
    assert_eq!(
        gone,
        [&port[..], "delete interface eno-bgp", "delete the rule of priority 20101 to table 1694498819"]
    );
}

#[test]
fn interface_is_guarded_before_it_is_up() {
    let wanted = desired([("br0", ovs(OvsDatapath::Netdev)), ("eno-bgp", interface("br0", 10))]);
    let made = planned(&wanted, &State { installation: installation().into(), ..State::default() });
    assert_eq!(made, (vec!["make interface eno-bgp".to_owned()], BTreeMap::new()));
    let mut fresh = complete();
    for link in &mut fresh.snapshot.links {
        (link.up, link.address_generation, link.alias) = (false, Some(0), None);
    }
    fresh.snapshot = Snapshot { links: fresh.snapshot.links, ..Snapshot::default() };
    fresh.interfaces = [(3, Settings { leaves_checksums: true, ..Settings::default() })].into();
    fresh.interfaces.get_mut(&3).unwrap().sysctls[2] = Some("0".to_owned());
    let port = ownership::port("eno-bgp");
    let expected = [
        "make the qdisc clsact of eno-bgp",
        "set the filter of eno-bgp",
        "set the sysctl ipv4/conf/rp_filter of eno-bgp to 2",
        "have eno-bgp compute checksums",
        "add address 10.9.0.2/24 to eno-bgp",
        &format!("set the alias, MTU and IPv6 mode of {port}"),
        &format!("set {port} up"),
        "set the alias, MTU and IPv6 mode of eno-bgp",
        "set eno-bgp up",
        "add the rule of priority 20101 to table 1694498819",
        "add route 10.9.0.0/24 in table 1694498819",
    ];
    assert_eq!(planned(&wanted, &fresh).0, expected);
    // The kernel's datapath leaves checksums to NICs.
    let wanted = desired([("br0", ovs(OvsDatapath::System)), ("eno-bgp", interface("br0", 10))]);
    assert!(!planned(&wanted, &fresh).0.iter().any(|step| step.contains("checksums")));
}

#[test]
fn port_of_a_linux_bridge_is_in_its_vlan_only() {
    let vlans: VlanSet = "10,20".parse().unwrap();
    let wanted = desired([
        ("br0", HostNetwork::Bridge { uplink: None, vlans, mtu: None }),
        ("eno-bgp", interface("br0", 10)),
    ]);
    let mut state = complete();
    let kind = Kind::Bridge { vlan_filtering: true, default_pvid: 0 };
    state.snapshot.links.push(ours("br0", link(4, "br0", kind)));
    let port = ownership::port("eno-bgp");
    assert_eq!(planned(&wanted, &state).0, [format!("set the master of {port}")]);
    state.snapshot.links[0].master = Some(4);
    state.vlans.insert(2, vec![PortVlan { vid: 20, pvid: true, untagged: true }]);
    let steps = planned(&wanted, &state).0;
    assert_eq!(
        steps,
        [format!("take VLANs from bridge port {port}"), format!("add VLANs to bridge port {port}")]
    );
    state.vlans.insert(2, vec![PortVlan { vid: 10, pvid: true, untagged: true }]);
    assert_eq!(planned(&wanted, &state), (vec![], BTreeMap::new()));
}

#[test]
fn interface_of_a_master_is_a_macvlan_on_its_subinterface() {
    let master = HostNetwork::Master { bond: vec![], vlans: "10".parse().unwrap(), mtu: None };
    let wanted = desired([("eth1", master), ("eno-bgp", interface("eth1", 10))]);
    let nic = link(5, "eth1", Kind::Device);
    let original = ownership::OriginalSettings::current(&nic).altname("lab1", 5);
    let nic = Link { altnames: vec![original], ..nic };
    let mut state = State {
        snapshot: Snapshot { links: vec![nic], ..Snapshot::default() },
        installation: installation().into(),
        ..State::default()
    };
    // It waits for the subinterface.
    assert_eq!(planned(&wanted, &state).0, ["make interface eth1.10"]);
    let subinterface = Link { parent: Some(5), ..link(6, "eth1.10", Kind::Vlan { vid: 10 }) };
    state.snapshot.links.push(ours("eth1", subinterface));
    assert_eq!(planned(&wanted, &state), (vec!["make interface eno-bgp".to_owned()], BTreeMap::new()));
    let elsewhere = Link { parent: Some(5), ..link(7, "eno-bgp", Kind::Macvlan { bridge: true }) };
    state.snapshot.links.push(ours("eno-bgp", elsewhere));
    assert_eq!(planned(&wanted, &state).0, ["delete interface eno-bgp", "make interface eno-bgp"]);
}

#[test]
fn interface_without_its_network_is_refused() {
    let bridge = HostNetwork::PodBridge { addresses: vec![], mtu: None };
    let nothing = State::default();
    for (networks, words) in [
        (vec![], "br0 is no network of this node with the VLAN 10"),
        (vec![("br0", bridge)], "br0 is no network of this node"),
        (vec![("br0", interface("br1", 10)), ("br1", ovs(OvsDatapath::System))], "br0 is no network"),
    ] {
        let wanted = desired(networks.into_iter().chain([("eno-bgp", interface("br0", 10))]));
        let refusal = refusal(&wanted, &nothing, "eno-bgp");
        assert!(refusal.to_string().contains(words) && !refusal.retryable(), "{refusal}");
    }
    let other_vlan = desired([("br0", ovs(OvsDatapath::System)), ("eno-bgp", interface("br0", 30))]);
    assert!(matches!(refusal(&other_vlan, &nothing, "eno-bgp"), Refusal::NoVlan { .. }));
    // The network was refused: what there is of the interface stays.
    let master = HostNetwork::Master { bond: vec![], vlans: "10".parse().unwrap(), mtu: None };
    let refused = desired([("eth1", master), ("eno-bgp", interface("eth1", 10))]);
    let refusal = refusal(&refused, &complete(), "eno-bgp");
    assert!(refusal.to_string().contains("the node has no interface eth1") && refusal.retryable());
}

/// Changes addresses, gateways and prefixes.
type Edit<'a> = dyn Fn(&mut Vec<IpNet>, &mut Vec<IpAddr>, &mut Vec<IpNet>) + 'a;

#[test]
fn what_an_interface_must_not_take_is_refused() {
    let of = |change: &Edit<'_>| {
        let mut wanted = interface("br0", 10);
        let HostNetwork::Interface { addresses, gateways, prefixes, .. } = &mut wanted else {
            unreachable!()
        };
        change(addresses, gateways, prefixes);
        desired([("br0", ovs(OvsDatapath::System)), ("eno-bgp", wanted)])
    };
    let mut state = State::default();
    state.snapshot.links = vec![
        link(1, "eth0", Kind::Device),
        link(2, "kube-ipvs0", Kind::Dummy),
        Link { group: 0, ..link(3, "eno-mine", Kind::Veth) },
    ];
    let address =
        |index, net: &str| Address { index, net: net.parse().unwrap(), protocol: 0, permanent: true };
    state.snapshot.addresses = vec![address(1, "192.0.2.7/24"), address(2, "203.0.113.5/32")];
    let route = |prefix: &str| Route {
        table: 254,
        prefix: prefix.parse().unwrap(),
        gateway: None,
        index: Some(1),
        metric: 0,
        source: None,
        protocol: 4,
    };
    state.snapshot.routes = vec![route("0.0.0.0/0"), route("192.0.2.0/24"), route("10.244.2.0/24")];
    let reserved = vec!["10.96.0.0/12".parse().unwrap()];
    state.installation = Installation { reserved, ..installation() }.into();
    let net = |text: &str| text.parse::<IpNet>().unwrap();
    // The address of a service in IPVS mode is what packets are to reach, and what drops them is no harm.
    state.snapshot.routes.push(Route { index: None, ..route("203.0.113.0/28") });
    assert_eq!(planned(&of(&|_, _, _| {}), &state).1, BTreeMap::new());
    for (wanted, words) in [
        (of(&|own, _, _| own[0] = net("192.0.2.9/24")), "192.0.2.0/24, which the node reaches on eth0"),
        (of(&|own, _, _| own[0] = net("192.0.2.7/32")), "is that of eth0 already"),
        (of(&|own, _, _| own[0] = net("10.97.0.1/24")), "--reserved-network"),
        (of(&|_, via, _| via[0] = "10.9.1.1".parse().unwrap()), "the gateway 10.9.1.1 is in no network"),
        (of(&|_, via, _| via[0] = "10.9.0.2".parse().unwrap()), "the gateway 10.9.0.2 is in no network"),
        (of(&|_, _, to| to[0] = net("0.0.0.0/0")), "which is for"),
        (of(&|_, _, to| to[0] = net("192.0.2.0/29")), "192.0.2.7/24, which the node has on eth0"),
        (of(&|_, _, to| to[0] = net("192.0.2.128/25")), "192.0.2.0/24, which the node has on eth0"),
        (of(&|_, _, to| to[0] = net("10.244.2.128/25")), "10.244.2.0/24, which the node has on"),
        (of(&|_, _, to| to[0] = net("10.244.0.0/16")), "10.244.2.0/24, which the node has on eth0"),
        (of(&|_, _, to| to[0] = net("10.96.0.0/16")), "--reserved-network"),
        (
            of(&|_, _, to| {
                *to = (0..2000_u32).map(|n| net(&format!("203.{}.{}.0/24", n >> 8, n & 255))).collect();
            }),
            "than one filter can check",
        ),
    ] {
        let refusal = refusal(&wanted, &state, "eno-bgp");
        assert!(refusal.to_string().contains(words), "{refusal}");
    }
    for (name, words) in [
        ("eno-mine", "eno-mine (veth) already that ENO did not make"),
        ("bgp", "for BGP sessions"),
        ("eno-", "for BGP sessions"),
        ("eno-sixteen-long", "1 to 15"),
    ] {
        let wanted = desired([("br0", ovs(OvsDatapath::System)), (name, interface("br0", 10))]);
        let refusal = refusal(&wanted, &state, name);
        assert!(refusal.to_string().contains(words), "{refusal}");
    }
    // Two interfaces with one gateway: the host could reach it by one only.
    let mut second = interface("br0", 20);
    if let HostNetwork::Interface { addresses, .. } = &mut second {
        addresses[0] = net("10.9.0.3/24");
    }
    let both =
        desired([("br0", ovs(OvsDatapath::System)), ("eno-a", interface("br0", 10)), ("eno-b", second)]);
    let refusal = refusal(&both, &state, "eno-b");
    assert!(refusal.to_string().contains("10.9.0.1/32 is that of a gateway of eno-a already"), "{refusal}");
}

/// What leads answers back by the interface `complete` has: chains, rule and route.
fn with_return_path(mark: u32) -> State {
    let mut state = complete();
    let chains = return_path::chains("eno-bgp", 3, MarkMask::default(), mark);
    state.chains = chains.into_iter().map(|chain| (chain.name, chain.rules)).collect();
    let [rule] = &state.snapshot.rules[..] else { panic!("one rule") };
    let marked = Rule { to: None, input: None, mark: Some((mark, 0x3f)), ..rule.clone() };
    state.snapshot.rules.push(marked);
    let [route] = &state.snapshot.routes[..] else { panic!("one route") };
    let (prefix, gateway) = ("0.0.0.0/0".parse().unwrap(), Some("10.9.0.1".parse().unwrap()));
    let default = Route { prefix, gateway, source: None, ..route.clone() };
    state.snapshot.routes.push(default);
    state
}

#[test]
fn answers_are_led_back_to_the_gateway() {
    let wanted = desired([("br0", ovs(OvsDatapath::System)), ("eno-bgp", symmetric())]);
    let table = ownership::table(3);
    let (steps, refused) = planned(&wanted, &complete());
    assert_eq!(refused, BTreeMap::new());
    assert_eq!(
        steps,
        [
            &format!("add route 0.0.0.0/0 via 10.9.0.1 in table {table}"),
            "have eno-bgp mark connections",
            &format!("add the rule of priority 20101 to table {table}"),
        ]
    );
    assert_eq!(planned(&wanted, &with_return_path(1)), (vec![], BTreeMap::new()));

    // The rule is the record of the mark.
    assert_eq!(planned(&wanted, &with_return_path(9)), (vec![], BTreeMap::new()));
    let mut changed = with_return_path(9);
    changed.chains.clear();
    assert_eq!(planned(&wanted, &changed).0, ["have eno-bgp mark connections"]);

    // Without ReturnPath all of it goes.
    let plain = desired([("br0", ovs(OvsDatapath::System)), ("eno-bgp", interface("br0", 10))]);
    let (steps, _) = planned(&plain, &with_return_path(1));
    assert_eq!(
        steps,
        [
            "delete the table eno of nftables",
            &format!("delete the rule of priority 20101 to table {table}"),
            &format!("delete route 0.0.0.0/0 via 10.9.0.1 in table {table}"),
        ]
    );
    let mut other = with_return_path(1);
    other.chains.insert("eno-other-own".to_owned(), Vec::new());
    assert_eq!(planned(&wanted, &other).0, ["delete the chain eno-other-own of table eno"]);
}

#[test]
fn marks_are_of_one_interface_each() {
    let wanted = desired([("br0", ovs(OvsDatapath::System)), ("eno-bgp", symmetric())]);
    let taken = |marks: std::ops::RangeInclusive<u32>| {
        let mut state = complete();
        let others = marks.map(|mark| Rule {
            table: ownership::table(100 + mark),
            mark: Some((mark, 0x3f)),
            ..state.snapshot.rules[0].clone()
        });
        let others: Vec<Rule> = others.collect();
        // They belong to interfaces that are not ENO's, so this plan keeps them.
        state.snapshot.links.extend((1..=63).map(|mark| link(100 + mark, &format!("x{mark}"), Kind::Dummy)));
        state.snapshot.rules.extend(others);
        state
    };
    let plan = super::super::plan::plan(&wanted, &taken(1..=2), &BTreeMap::new());
    let rule = plan.steps.iter().find_map(|step| match &step.change {
        Change::Netlink(request) if request.operation().starts_with("add the rule") => Some(&step.difference),
        _ => None,
    });
    assert_eq!(rule.map(String::as_str), Some("the rule for the mark 0x3/0x3f was missing"));
    let refusal = refusal(&wanted, &taken(1..=63), "eno-bgp");
    assert!(refusal.to_string().contains("widen agent.returnPathMask"), "{refusal}");
}

#[test]
fn data_planes_in_ebpf_lead_no_answers_back() {
    let mut state = complete();
    state.snapshot.links.push(link(9, "cilium_host", Kind::Veth));
    let wanted = desired([("br0", ovs(OvsDatapath::System)), ("eno-bgp", symmetric())]);
    let refusal = refusal(&wanted, &state, "eno-bgp");
    assert!(refusal.to_string().contains("cilium_host shows the data plane of Cilium"), "{refusal}");
    let plain = desired([("br0", ovs(OvsDatapath::System)), ("eno-bgp", interface("br0", 10))]);
    assert_eq!(planned(&plain, &state), (vec![], BTreeMap::new()));
}
