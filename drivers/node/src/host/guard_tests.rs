use super::super::ownership;
use super::*;
use crate::host::state::Installation;
use crate::netlink::{Address, Route, Snapshot};

const OURS: NicUse = NicUse { group: 7, ovs: false };

pub(in crate::host) fn link(index: u32, name: &str, kind: Kind) -> Link {
    Link {
        name: name.into(),
        up: true,
        carrier: true,
        mtu: 1500,
        max_mtu: 9000,
        address_generation: Some(0),
        ..Link::new(index, kind)
    }
}

fn state(links: Vec<Link>, addresses: &[(u32, &str)], routes: &[(u32, &str)]) -> State {
    let addresses = addresses
        .iter()
        .map(|(index, net)| Address {
            index: *index,
            net: net.parse().unwrap(),
            protocol: 0,
            permanent: true,
        })
        .collect();
    let routes = routes
        .iter()
        .map(|(index, prefix)| Route {
            table: 254,
            prefix: prefix.parse().unwrap(),
            gateway: None,
            index: Some(*index),
            metric: 0,
            source: None,
            protocol: 4,
        })
        .collect();
    State { snapshot: Snapshot { links, addresses, routes, rules: Vec::new() }, ..State::default() }
}

fn eth(addresses: &[(u32, &str)], routes: &[(u32, &str)]) -> Result<(), Refusal> {
    let vlan = Link { parent: Some(1), ..link(2, "eth1.5", Kind::Vlan { vid: 5 }) };
    nic(&state(vec![link(1, "eth1", Kind::Device), vlan], addresses, routes), "eth1", OURS).map(|_| ())
}

#[test]
fn nic_with_node_addresses_or_routes_is_refused() {
    assert_eq!(eth(&[], &[]), Ok(()));
    assert_eq!(eth(&[(1, "fe80::1/64")], &[(1, "fe80::/64"), (1, "ff00::/8")]), Ok(()));
    assert!(matches!(eth(&[(1, "10.0.0.1/24")], &[]), Err(Refusal::Address { .. })));
    assert!(matches!(eth(&[(1, "2001:db8::1/64")], &[]), Err(Refusal::Address { .. })));
    assert!(matches!(eth(&[], &[(1, "0.0.0.0/0")]), Err(Refusal::Route { .. })));
    assert!(matches!(eth(&[], &[(1, "::/0")]), Err(Refusal::Route { .. })));
    // Addresses and routes of a VLAN subinterface count too, those of another NIC don't.
    assert!(matches!(eth(&[(2, "10.0.0.1/24")], &[]), Err(Refusal::Upper { .. })));
    assert!(matches!(eth(&[], &[(2, "0.0.0.0/0")]), Err(Refusal::Upper { .. })));
    assert_eq!(eth(&[(3, "10.0.0.1/24")], &[(3, "0.0.0.0/0")]), Ok(()));
}

#[test]
fn member_of_foreign_master_is_refused() {
    let member = |group, kind, ovs| {
        let master = Link { group, ..link(9, "master", kind) };
        let state = state(vec![Link { master: Some(9), ..link(1, "eth1", Kind::Device) }, master], &[], &[]);
        nic(&state, "eth1", NicUse { ovs, ..OURS }).map(|_| ())
    };
    let bridge = || Kind::Bridge { vlan_filtering: false, default_pvid: 1 };
    let ovs = || Kind::Other("openvswitch".into());
    assert_eq!(member(7, bridge(), false), Ok(()));
    assert!(matches!(member(0, bridge(), false), Err(Refusal::Member { .. })));
    assert!(matches!(member(0, bridge(), true), Err(Refusal::Member { .. })));
    assert_eq!(member(0, ovs(), true), Ok(()));
    assert!(matches!(member(0, ovs(), false), Err(Refusal::Member { .. })));
}

#[test]
fn bridge_has_no_name_of_the_node() {
    for good in ["pcbr0", "br-data", "mybridge", "ibr0", "enodata-br", "wlbridge", "ethernet-a", "bonding"] {
        assert_eq!(bridge_name(good), Ok(()), "{good}");
    }
    for bad in [
        "eth9",
        "eth",
        "enp3s0",
        "eno1",
        "enx02aabbccddee",
        "lo",
        "bond0",
        "veth12ab",
        "ib0",
        "docker0",
        "cilium_host",
        "cni0",
        "lxc1",
        "cali12ab",
        "wg0",
        "br-int",
    ] {
        let refusal = bridge_name(bad).expect_err(bad);
        assert_eq!((refusal.retryable(), refusal), (false, Refusal::NodeName { name: bad.to_owned() }));
    }
}

#[test]
fn bridge_has_no_address_that_the_node_reaches_elsewhere() {
    let node = || {
        let gateway = Some("192.0.2.1".parse().unwrap());
        let mut node = state(
            vec![
                link(1, "eth0", Kind::Device),
                Link {
                    group: 7,
                    ..link(2, "pcbr0", Kind::Bridge { vlan_filtering: false, default_pvid: 1 })
                },
                Link {
                    group: 7,
                    ..link(3, "pcbr1", Kind::Bridge { vlan_filtering: false, default_pvid: 1 })
                },
            ],
            &[(1, "192.0.2.7/24"), (1, "203.0.113.9/32"), (3, "10.7.0.1/24")],
            &[(1, "0.0.0.0/0"), (1, "192.0.2.0/24"), (1, "10.244.2.0/24"), (1, "10.244.9.0/24")],
        );
        node.snapshot.routes[0].gateway = gateway;
        // Another node's pods; a block of addresses of this node that no pod has.
        node.snapshot.routes[2].gateway = gateway;
        node.snapshot.routes[3].index = None;
        let own = Route { table: ownership::table(3), ..node.snapshot.routes[1].clone() };
        node.snapshot.routes.push(Route { prefix: "10.7.0.0/24".parse().unwrap(), ..own });
        let reserved = vec!["10.96.0.0/12".parse().unwrap()];
        node.installation = Installation { reserved, ..Installation::default() }.into();
        node
    };
    let refused = |address: &str| own_address(&node(), Some(2), 7, address.parse().unwrap());
    for good in ["10.9.0.1/24", "192.168.7.1/24", "2001:db8::1/64", "10.7.0.2/24", "10.7.0.3/25"] {
        assert_eq!(refused(good), Ok(()), "{good}");
    }
    for (bad, retryable) in [
        ("10.244.2.2/31", true),
        ("10.244.9.9/32", true),
        ("10.0.0.1/8", false),
        ("10.96.0.1/30", false),
        ("192.0.2.200/32", true),
        ("203.0.113.1/24", true),
        ("10.7.0.1/24", true),
        ("169.254.169.254/31", false),
        ("224.0.0.1/4", false),
        ("255.255.255.255/32", false),
        ("0.0.0.1/1", false),
        ("127.0.0.53/32", false),
        ("fe80::1/64", false),
        ("ff02::1/128", false),
        ("::1/128", false),
        ("64:ff9b::a00:1/128", false),
        ("::ffff:10.0.0.1/128", false),
    ] {
        let refusal = refused(bad).expect_err(bad);
        assert_eq!(refusal.retryable(), retryable, "{refusal}");
        assert!(refusal.to_string().contains(bad.split('/').next().unwrap()), "{refusal}");
    }
    // The bridge has its address already, and the route that the kernel makes for another hand.
    let mut node = node();
    node.snapshot.addresses.push(Address {
        index: 2,
        net: "10.9.0.1/24".parse().unwrap(),
        protocol: 0,
        permanent: true,
    });
    assert_eq!(own_address(&node, Some(2), 7, "10.9.0.1/24".parse().unwrap()), Ok(()));
}

#[test]
fn invalid_interface_names_are_refused() {
    for good in ["a", "br-ext", "eth0.4094", "fifteen-letters"] {
        assert_eq!(name(good), Ok(()));
    }
    for bad in ["", ".", "..", "a b", "a/b", "a:b", "ä", "sixteen-letters!", "a\n"] {
        assert!(matches!(name(bad), Err(Refusal::Name { .. })), "{bad:?}");
    }
    let vlan = VlanId::new(4000).unwrap();
    assert_eq!(subinterface("enp130s0f1", vlan).as_deref(), Ok("enp130s0f1.4000"));
    let long = subinterface("enp130s0f1x", vlan).unwrap_err();
    assert!(long.to_string().contains("enp130s0f1x.4000 would have a name of 16"), "{long}");
    assert!(!long.retryable());
}

#[test]
fn every_refusal_message_contains_the_interface_name() {
    let name = || "eth1".to_owned();
    let net: IpNet = "10.0.0.1/24".parse().unwrap();
    for refusal in [
        Refusal::Name { name: name() },
        Refusal::Missing { name: name() },
        Refusal::Foreign { name: name(), kind: "veth".into() },
        Refusal::Kind { name: name(), kind: "bridge".into() },
        Refusal::Address { name: name(), address: net },
        Refusal::Route { name: name(), prefix: net },
        Refusal::Member { name: name(), master: "br0".into(), kind: "bridge".into() },
        Refusal::Primary { name: name() },
        Refusal::Ours { name: name() },
        Refusal::Taken { name: name(), other: "br0".into() },
        Refusal::Mtu { name: name(), requested: 9000, maximum: 1500 },
        Refusal::FilterLength { name: name() },
        Refusal::SessionInterfaceName { name: name() },
    ] {
        assert!(refusal.to_string().contains("eth1"), "{refusal}");
    }
    assert_ne!(ownership::group("a"), 0x0065_6e6f, "that of pods");
}
