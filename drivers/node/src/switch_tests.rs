use super::*;
use crate::host::guard::Refusal;
use crate::ovs::{AppliedBridge, Rejected};

fn node() -> NodeDesired {
    let uplink = Uplink { interfaces: vec!["eth1".into(), "eth2".into()], mtu: Some(9000) };
    let ovs =
        |uplink| HostNetwork::Ovs { datapath: None, uplink, patch: None, vlans: "10-12".parse().unwrap() };
    let networks = [("br0".to_owned(), ovs(Some(uplink))), ("br1".to_owned(), ovs(None))];
    NodeDesired { cluster: "lab1".into(), networks: networks.into(), ..NodeDesired::default() }
}

fn ports() -> BTreeMap<String, OvsPort> {
    let port = OvsPort {
        bridge: "br0".into(),
        vlans: eno_schemas::PortVlans::Access(VlanId::new(10).unwrap()),
        pod: "uid".into(),
        link: "net0".into(),
    };
    BTreeMap::from([("h1".to_owned(), port)])
}

fn applied(host: &HostApplied) -> NodeApplied {
    let links = BTreeMap::from([("net0".to_owned(), eno_schemas::AppliedLink::default())]);
    let pods = PodsApplied {
        pods: BTreeMap::from([("uid".to_owned(), links)]),
        ovs_ports: ports(),
        ..PodsApplied::default()
    };
    NodeApplied { networks: host.networks.clone(), pods, ..NodeApplied::default() }
}

fn host() -> HostApplied {
    let networks = ["br0", "br1"].map(|name| (name.to_owned(), AppliedNetwork::default()));
    HostApplied { networks: networks.into(), ..HostApplied::default() }
}

#[test]
fn desired_contains_bonds_and_ports() {
    let desired = desired_ovs(&node(), &host(), &ports());
    let uplink = desired.bridges["br0"].uplink.as_ref().unwrap();
    assert_eq!((uplink.port.as_str(), uplink.interfaces.len()), (Uplink::bond_name("br0").as_str(), 2));
    assert_eq!(desired.bridges["br0"].vlans, BTreeSet::from([10, 11, 12]));
    assert_eq!(desired.ports["h1"].vlans, PortVlans::Access(10));
    assert_eq!(desired.ports["h1"].id, "uid/net0");
    assert!(is_any_desired(&desired) && !is_any_desired(&OvsDesired::default()));
}

#[test]
fn refused_uplink_is_left_out() {
    let mut host = host();
    host.refused.insert(ItemRef::Network("br0".into()), Refusal::Missing { name: "eth1".into() });
    let desired = desired_ovs(&node(), &host, &BTreeMap::new());
    assert_eq!(desired.bridges["br0"].uplink, None);
}

#[test]
fn missing_bridges_and_ports_are_rejected() {
    let desired = desired_ovs(&node(), &host(), &ports());
    let bridge =
        |vlans: &[u16]| AppliedBridge { vlans: vlans.iter().copied().collect(), ..AppliedBridge::default() };
    let port = AppliedPort { bridge: "br0".into(), vlans: PortVlans::Access(10), mtu: None };
    let mut observed = OvsApplied {
        bridges: [("br0".to_owned(), bridge(&[10, 12])), ("br1".to_owned(), bridge(&[]))].into(),
        ports: [("h1".to_owned(), port)].into(),
        ..OvsApplied::default()
    };
    let mut complete = applied(&host());
    complete.add(&desired, observed.clone());
    assert_eq!(complete.networks["br0"].vlans.to_string(), "10,12");
    assert!(complete.rejected.is_empty() && complete.pods.pods["uid"].contains_key("net0"));

    observed.ports.clear();
    observed.rejected.push(Rejected {
        item: OvsItem::Bridge("br1".into()),
        reason: "words".into(),
        retryable: false,
    });
    let mut partial = applied(&host());
    partial.add(&desired, observed);
    assert_eq!(partial.networks.keys().collect::<Vec<_>>(), ["br0"]);
    assert!(partial.pods.pods["uid"].is_empty());
    let items: Vec<_> = partial.rejected.iter().map(|rejected| rejected.item.clone()).collect();
    assert_eq!(items, [Item::port("br1"), Item::link("uid", "net0")]);
}

#[test]
fn unreachable_ovs_rejects_only_its_bridges_and_ports() {
    let desired = desired_ovs(&node(), &host(), &ports());
    let mut applied = applied(&host());
    applied.networks.insert("pods".into(), AppliedNetwork::default());
    applied.add_failure(&desired, &OvsFailure { reason: "no answer", retryable: true, unreachable: true });
    assert_eq!(applied.networks.keys().collect::<Vec<_>>(), ["pods"]);
    assert_eq!(applied.rejected.len(), 3);
    let is_unanswered = |rejected: &Rejection| {
        rejected.retryable && rejected.unreachable && rejected.reason.contains("no answer")
    };
    assert!(applied.rejected.iter().all(is_unanswered), "{:?}", applied.rejected);
}

#[test]
fn interface_for_sessions_is_rejected_without_its_port() {
    let interface = HostNetwork::Interface {
        network: "br0".into(),
        vlan: VlanId::new(11).unwrap(),
        addresses: vec![],
        gateways: vec![],
        prefixes: vec![],
        symmetric: false,
        mtu: None,
    };
    let mut node = node();
    node.networks.insert("eno-bgp".into(), interface);
    let mut host = host();
    host.networks.insert("eno-bgp".into(), AppliedNetwork::default());
    // Open vSwitch gets no port that does not exist, or that is not ENO's.
    let port = ownership::port("eno-bgp");
    let mut link = crate::netlink::Link::new(7, crate::netlink::Kind::Veth);
    link.name.clone_from(&port);
    host.state.snapshot.links.push(link);
    assert!(desired_ovs(&node, &host, &BTreeMap::new()).ports.is_empty());
    host.state.snapshot.links[0].group = ownership::group("lab1");
    let desired = desired_ovs(&node, &host, &BTreeMap::new());
    assert_eq!(desired.ports[&port].vlans, PortVlans::Access(11));
    assert_eq!(
        (&desired.ports[&port].bridge[..], &desired.ports[&port].id[..]),
        ("br0", "interface/eno-bgp")
    );

    let vlans = PortVlans::Access(11);
    let open = AppliedPort { bridge: "br0".into(), vlans, mtu: None };
    let bridges = ["br0", "br1"].map(|name| (name.to_owned(), AppliedBridge::default()));
    let mut observed = OvsApplied { bridges: bridges.into(), ..OvsApplied::default() };
    for there in [true, false] {
        observed.ports = there.then(|| (port.clone(), open.clone())).into_iter().collect();
        let mut applied = NodeApplied { networks: host.networks.clone(), ..NodeApplied::default() };
        applied.add(&desired, observed.clone());
        assert_eq!(applied.networks.contains_key("eno-bgp"), there);
        let items: Vec<_> = applied.rejected.iter().map(|rejected| rejected.item.clone()).collect();
        assert_eq!(items, if there { vec![] } else { vec![Item::port("eno-bgp")] });
    }
    let reason = Rejected { item: OvsItem::Port(port.clone()), reason: "words".into(), retryable: true };
    observed.rejected.push(reason);
    let mut refused = NodeApplied { networks: host.networks.clone(), ..NodeApplied::default() };
    refused.add(&desired, observed);
    let [rejection] = refused.rejected.as_slice() else { panic!("{:?}", refused.rejected) };
    assert_eq!((&rejection.item, &rejection.reason[..]), (&Item::port("eno-bgp"), "words"));
    assert!(!refused.networks.contains_key("eno-bgp"));
}
