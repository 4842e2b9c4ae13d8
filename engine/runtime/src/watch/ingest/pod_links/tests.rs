//! Tables of valid and invalid interfaces, with the error messages.

#![allow(clippy::needless_pass_by_value, reason = "tables of values read better so")]

use eno_core::Kind;
use eno_core::kinds::Spec;
use eno_schemas::Master;
use serde_json::{Value, json};

use super::*;
use crate::watch::ingest::spec;
use crate::watch::ingest::tests::flow;

/// A PodConfig with these interfaces.
fn of(attachments: Value) -> Result<PodLinksSpec, Invalid> {
    whole(Kind::PodConfig, json!({ "networkAttachments": attachments }))
}

fn whole(kind: Kind, value: Value) -> Result<PodLinksSpec, Invalid> {
    match spec(kind, &value)? {
        Spec::PodLinks(spec) => Ok(spec),
        other => panic!("{other:?}"),
    }
}

/// One interface `a` with these fields.
fn one(fields: Value) -> Result<PodLinkSpec, Invalid> {
    let mut attachment = json!({ "name": "a" });
    for (key, value) in fields.as_object().unwrap() {
        attachment[key] = value.clone();
    }
    of(json!([attachment])).map(|mut spec| spec.links.remove(0))
}

fn names(spec: &PodLinksSpec) -> Vec<&str> {
    spec.links.iter().map(|link| &*link.name).collect()
}

#[test]
fn documented_samples_parse() {
    let spec = whole(
        Kind::PodConfig,
        json!({
            "sampleDeployment": { "create": true, "name": "cnf-example-a" },
            "networkAttachments": [
                { "name": "pc0", "linkType": "veth", "master": "pcbr0", "parent": "pc0", "cidr": "192.168.100.0/24" },
                { "name": "pc1", "linkType": "veth", "master": "pcbr1", "parent": "pc1", "cidr": "192.168.99.0/24" },
            ],
        }),
    )
    .unwrap();
    assert_eq!((names(&spec), spec.sample.as_deref()), (vec!["pc0", "pc1"], Some("cnf-example-a")));
    let master = Master::Bridge { bridge: "pcbr0".into(), vlans: None };
    assert_eq!(spec.links[0].kind, LinkKind::Veth { master: Some(master) });
    assert_eq!(spec.links[0].cidrs, ["192.168.100.0/24".parse().unwrap()]);
    assert!(spec.links[0].up && spec.primary.is_none());

    let not = json!({ "sampleDeployment": { "create": false, "name": "x" } });
    assert_eq!(whole(Kind::PodConfig, not).unwrap().sample, None);

    let spec = whole(
        Kind::PodNetworkConfig,
        json!({ "Name": "podnetwork-sample-a", "eth0": { "mtu": 1500 }, "additionalNetworks": [
            { "networkName": "pno", "networkDescription": "Service to service", "linkType": "veth", "master": "pnobr0",
              "cidr": "192.168.100.0/24" }] }),
    )
    .unwrap();
    assert_eq!(names(&spec), ["pno"]);
    assert_eq!(spec.primary, Some(PrimarySpec { name: "eth0".into(), mtu: 1500 }));
    assert!(whole(Kind::PodNetworkConfig, json!({ "name": "x" })).unwrap().links.is_empty());

    let bridge = spec_of_bridge(json!({ "name": "pnobr0", "cidr": "192.168.100.0/24" })).unwrap();
    assert_eq!((bridge.name.as_str(), bridge.cidrs.len(), bridge.mtu), ("pnobr0", 1, None));
}

fn spec_of_bridge(value: Value) -> Result<BridgeSpec, Invalid> {
    match spec(Kind::Bridge, &value)? {
        Spec::Bridge(spec) => Ok(spec),
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_interface_type_parses() {
    let kind = |fields: &str| one(flow(fields)).unwrap().kind;
    let (v4, v6) = ("10.0.0.1".parse().unwrap(), "fd00::1".parse().unwrap());
    let vlan = LinkKind::Vlan { parent: Parent::Pod("eth0".into()), vlan: 100.try_into().unwrap() };
    for (fields, expected) in [
        ("", LinkKind::Veth { master: None }),
        ("linkType: macvlan, master: eth1", LinkKind::Macvlan { master: "eth1".into() }),
        ("linkType: macvlan, parent: eth1", LinkKind::Macvlan { master: "eth1".into() }),
        ("linkType: ipvlan, master: eth1", LinkKind::Ipvlan { master: "eth1".into() }),
        ("linkType: vlan, parent: eth0, vlanID: 100", vlan),
        (
            "linkType: vxlan, vni: 7, remote: 10.0.0.1, port: 4790",
            LinkKind::Vxlan { vni: 7, remote: Some(v4), local: None, port: Some(4790) },
        ),
        ("linkType: geneve, vni: 7, remote: 'fd00::1'", LinkKind::Geneve { vni: 7, remote: v6, port: None }),
        ("linkType: dummy", LinkKind::Dummy {}),
        ("linkType: vrf, table: 100", LinkKind::Vrf { table: 100 }),
        ("linkType: bridge", LinkKind::Bridge {}),
    ] {
        assert_eq!(kind(fields), expected, "{fields}");
    }
    let tunnel = kind("linkType: gretap, remote: 10.0.0.1, local: 10.0.0.2, key: 5, ttl: 64");
    let LinkKind::Gretap(tunnel) = tunnel else { panic!("{tunnel:?}") };
    assert_eq!((tunnel.local.unwrap().octets()[3], tunnel.key, tunnel.ttl), (2, Some(5), Some(64)));
    for fields in [
        "gre, remote: 10.0.0.1",
        "ipip, remote: 10.0.0.1",
        "tun, owner: 1, group: 1",
        "tap, owner: 1, group: 1",
    ] {
        kind(&format!("linkType: {fields}"));
    }
}

#[test]
fn all_common_interface_fields_parse() {
    let link = one(json!({
        "master": "br0", "cidr": "10.1.0.0/20", "cidrs": ["fd00:1::/72"], "mtu": 9000,
        "hardwareAddr": "02:00:00:00:00:AA", "alias": "to the core", "up": false,
        "routes": [{ "to": "0.0.0.0/0", "via": "10.1.0.1", "table": 100, "metric": 5, "src": "10.1.0.9" }, { "to": "fd00:2::/64" }],
        "rules": [{ "from": "10.1.0.0/20", "table": 100, "priority": 1000 }],
        "sysctls": { "net.ipv4.conf.IFNAME.rp_filter": "2", "ipv6/conf/accept_ra": "0" },
    }))
    .unwrap();
    assert_eq!(link.mac.as_deref(), Some("02:00:00:00:00:aa"));
    assert_eq!(
        link.cidrs.iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["10.1.0.0/20", "fd00:1::/72"]
    );
    assert_eq!((link.routes[0].table, link.rules[0].priority, link.up), (Some(100), 1000, false));
    let sysctls = [("ipv4/conf/rp_filter", "2"), ("ipv6/conf/accept_ra", "0")];
    assert_eq!(link.sysctls, sysctls.map(|(key, value)| (key.to_owned(), value.to_owned())).into());
    let fixed =
        one(json!({ "addresses": ["10.0.0.5/24", "10.0.0.6/24", "fd00::5/128", "10.9.9.9/32"] })).unwrap();
    assert_eq!(fixed.addresses.len(), 4);
}

#[test]
fn invalid_interface_fields_are_refused() {
    for (fields, leaf, message) in [
        ("name: ''", "name", "is not an interface name"),
        ("name: 'a/b'", "name", "is not an interface name"),
        ("name: 'a:b'", "name", "is not an interface name"),
        ("name: 'a b'", "name", "is not an interface name"),
        ("name: '..'", "name", "is not an interface name"),
        ("name: a234567890123x", "name", "has 14 bytes; at most 13"),
        ("parent: b", "parent", "a veth pair has no parent but itself"),
        ("master: 'a bridge'", "master", "is not an interface name"),
        ("vlanID: 5", "vlanID", "is not for linkType veth, only for vlan"),
        ("vni: 5", "vni", "only for vxlan, geneve"),
        ("table: 5", "table", "only for vrf"),
        ("owner: 5", "owner", "only for tun, tap"),
        ("linkType: dummy, master: br0", "master", "by memberOf"),
        ("linkType: macvlan", "master", "needs an interface of the node"),
        ("linkType: macvlan, master: eth1, parent: eth2", "parent", "name one interface"),
        ("linkType: ipvlan, master: '../eth1'", "master", "is not an interface name"),
        ("linkType: vlan, vlanID: 5", "parent", "is missing; linkType vlan needs"),
        ("linkType: vlan, parent: eth0", "vlanID", "is missing; linkType vlan needs"),
        ("linkType: vlan, parent: eth0, vlanID: 4095", "vlanID", "use one from 1 to 4094"),
        ("linkType: vlan, parent: eth0, vlanID: 0", "vlanID", "use one from 1 to 4094"),
        ("linkType: vlan, parent: a, vlanID: 5", "parent", "is the interface itself"),
        ("linkType: vlan, parent: 'e/0', vlanID: 5", "parent", "is not an interface name"),
        ("linkType: vxlan", "vni", "is missing"),
        ("linkType: vxlan, vni: 16777216", "vni", "is over 16777215"),
        ("linkType: vxlan, vni: 1, port: 0", "port", "use a UDP port"),
        ("linkType: vxlan, vni: 1, remote: here", "remote", "is not an IP address"),
        ("linkType: vxlan, vni: 1, remote: 10.0.0.1, local: 'fd00::1'", "local", "two families"),
        ("linkType: geneve, vni: 1", "remote", "is missing"),
        ("linkType: gre", "remote", "is missing"),
        ("linkType: gre, remote: 'fd00::1'", "remote", "is not an IPv4 address"),
        ("linkType: ipip, remote: 10.0.0.1, key: 1", "key", "only for gre, gretap"),
        ("linkType: ipip, remote: 10.0.0.1, hardwareAddr: '02:00:00:00:00:01'", "hardwareAddr", "no MAC"),
        ("linkType: vrf", "table", "is missing"),
        ("linkType: vrf, table: 254", "table", "is a table of the pod's own"),
        ("memberOf: b", "memberOf", "is not a bridge or vrf of this list"),
        ("memberOf: a", "memberOf", "is the interface itself"),
        (
            "cidr: 192.168.100.5/24",
            "cidr",
            "192.168.100.5/24 has bits behind its prefix; its network is 192.168.100.0/24",
        ),
        ("cidr: 192.168.100.0", "cidr", "is not a network"),
        ("cidr: 10.0.0.0/8, cidrs: [10.0.0.0/16]", "cidrs[0]", "at most one network of each family"),
        ("cidr: 10.0.0.0/8, addresses: [10.0.0.5/8]", "addresses", "is given with a cidr"),
        ("addresses: [10.0.0.0/24]", "addresses[0]", "is not the address of a host"),
        ("addresses: [10.0.0.255/24]", "addresses[0]", "is not the address of a host"),
        ("addresses: [224.0.0.1/24]", "addresses[0]", "is not the address of a host"),
        ("addresses: [10.0.0.5/24, 10.0.0.5/16]", "addresses[1]", "is there twice"),
        ("addresses: [x]", "addresses[0]", "is not an address"),
        ("mtu: 67", "mtu", "use 68 to 65535"),
        ("mtu: 65536", "mtu", "use 68 to 65535"),
        ("mtu: 1279, cidr: 'fd00::/64'", "mtu", "IPv6 needs at least 1280"),
        ("hardwareAddr: '01:00:00:00:00:01'", "hardwareAddr", "is not the MAC address of one interface"),
        ("hardwareAddr: '00:00:00:00:00:00'", "hardwareAddr", "is not the MAC address of one interface"),
        ("hardwareAddr: AgAAAAAB", "hardwareAddr", "is not the MAC address of one interface"),
        ("alias: \"a\\nb\"", "alias", "no control characters"),
        ("routes: [{to: 10.0.0.1/8}]", "routes[0].to", "its network is 10.0.0.0/8"),
        ("routes: [{to: 10.0.0.0/8, via: 'fd00::1'}]", "routes[0].via", "two families"),
        ("routes: [{to: 10.0.0.0/8, src: 'fd00::1'}]", "routes[0].src", "two families"),
        ("routes: [{to: 10.0.0.0/8, table: 255}]", "routes[0].table", "the kernel's own"),
        ("rules: [{table: 0, priority: 1}]", "rules[0].table", "the kernel's own"),
        ("rules: [{table: 5, priority: 0}]", "rules[0].priority", "use 1 to 32765"),
        ("rules: [{table: 5, priority: 1, from: 10.0.0.0/8, to: 'fd00::/8'}]", "rules[0].to", "two families"),
        ("sysctls: {'net.ipv4.ip_forward': '1'}", "sysctls", "unsafe sysctl \"net.ipv4.ip_forward\""),
        ("sysctls: {'ipv4/conf/rp_filter': 'on'}", "sysctls[ipv4/conf/rp_filter]", "whole number"),
    ] {
        let Invalid { field, problem, .. } = one(flow(fields)).expect_err(fields);
        assert_eq!(field, format!("spec.networkAttachments[0].{leaf}"), "{fields}");
        assert!(problem.contains(message), "{fields}: {problem}");
    }
    assert!(one(json!({ "linkType": "wireguard" })).unwrap_err().problem.contains("wireguard"));
}

#[test]
fn interfaces_are_ordered_after_their_dependencies() {
    let spec = of(json!([
        { "name": "v5", "linkType": "vlan", "parent": "up", "vlanID": 5, "memberOf": "br" },
        { "name": "up", "master": "pcbr0", "memberOf": "red" },
        { "name": "br", "linkType": "bridge" },
        { "name": "red", "linkType": "vrf", "table": 100 },
        { "name": "last" },
    ]))
    .unwrap();
    let order = names(&spec);
    let position = |name| order.iter().position(|one| *one == name).unwrap();
    assert!(
        position("red") < position("up")
            && position("up") < position("v5")
            && position("br") < position("v5")
    );
    assert_eq!(
        spec.links[position("v5")].kind,
        LinkKind::Vlan { parent: Parent::Link("up".into()), vlan: 5.try_into().unwrap() }
    );
    for (list, field, message) in [
        (
            "[{name: a, linkType: vlan, parent: b, vlanID: 1}, {name: b, linkType: vlan, parent: a, vlanID: 1}]",
            "networkAttachments[0]",
            "a, b need each other",
        ),
        ("[{name: a}, {name: a}]", "networkAttachments[1].name", "is there twice"),
        (
            "[{name: a, linkType: vlan, parent: t, vlanID: 1}, {name: t, linkType: tun}]",
            "networkAttachments[0].parent",
            "carries no Ethernet frames",
        ),
        (
            "[{name: t, linkType: tun, memberOf: br}, {name: br, linkType: bridge}]",
            "networkAttachments[0].memberOf",
            "can't be a port of a bridge",
        ),
        ("[{name: a, memberOf: b}, {name: b}]", "networkAttachments[0].memberOf", "is not a bridge or vrf"),
    ] {
        let refused = of(flow(list)).unwrap_err();
        assert_eq!(refused.field, format!("spec.{field}"));
        assert!(refused.problem.contains(message), "{refused}");
    }
}

#[test]
fn vlans_create_subinterfaces_and_bridge_members() {
    let config = |vlans: Value| {
        whole(
            Kind::PodConfig,
            json!({ "networkAttachments": [{ "name": "pc0", "master": "pcbr0" }], "vlans": vlans }),
        )
    };
    let spec = config(json!([
        { "parentInterfaceName": "pc0", "vlanID": 100, "bridgeName": "br" },
        { "parentInterfaceName": "eth0", "vlanID": 100, "bridgeName": "br" },
    ]))
    .unwrap();
    assert_eq!(names(&spec), ["pc0", "br", "pc0.100", "eth0.100"]);
    assert_eq!(spec.links[2].member_of.as_deref(), Some("br"));
    let of = |index: usize| match &spec.links[index].kind {
        LinkKind::Vlan { parent, .. } => parent.clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!((of(2), of(3)), (Parent::Link("pc0".into()), Parent::Pod("eth0".into())));
    for (vlan, leaf, message) in [
        ("parentInterfaceName: pc0, vlanID: 4095", ".vlanID", "use one from 1 to 4094"),
        ("parentInterfaceName: 'pc/0', vlanID: 1", ".parentInterfaceName", "is not an interface name"),
        ("parentInterfaceName: longername, vlanID: 4000", ".parentInterfaceName", "at most 13"),
        ("parentInterfaceName: pc0, vlanID: 1, bridgeName: pc0", ".bridgeName", "name a bridge"),
        ("parentInterfaceName: pc0, vlanID: 1, bridgeName: 'a b'", ".bridgeName", "is not an interface name"),
    ] {
        let refused = config(json!([flow(vlan)])).unwrap_err();
        assert_eq!(refused.field, format!("spec.vlans[0]{leaf}"));
        assert!(refused.problem.contains(message), "{refused}");
    }
    let twice =
        json!([{ "parentInterfaceName": "pc0", "vlanID": 1 }, { "parentInterfaceName": "pc0", "vlanID": 1 }]);
    assert_eq!(config(twice).unwrap_err().field, "spec.vlans[1]");
}

#[test]
fn invalid_bridges_and_network_configs_are_refused() {
    for (kind, value, field, message) in [
        (Kind::Bridge, "name: a-bridge-of-16-bs", "name", "at most 15"),
        (Kind::Bridge, "name: 'a/b'", "name", "is not an interface name"),
        (Kind::Bridge, "name: b, cidr: 10.0.0.1/24", "cidr", "its network is 10.0.0.0/24"),
        (Kind::Bridge, "name: b, cidrs: [10.0.0.0/24, 10.1.0.0/24]", "cidrs[1]", "at most one"),
        (Kind::Bridge, "name: b, mtu: 60", "mtu", "use 68 to 65535"),
        (Kind::PodNetworkConfig, "eth0: {mtu: 60}", "eth0.mtu", "use 68 to 65535"),
        (
            Kind::PodNetworkConfig,
            "additionalNetworks: [{networkName: 'a/b'}]",
            "additionalNetworks[0].networkName",
            "is not an interface name",
        ),
        (Kind::PodConfig, "sampleDeployment: {create: true}", "sampleDeployment.name", "is missing"),
    ] {
        let refused = spec(kind, &flow(value)).unwrap_err();
        assert_eq!(refused.field, format!("spec.{field}"));
        assert!(refused.problem.contains(message), "{refused}");
    }
}
