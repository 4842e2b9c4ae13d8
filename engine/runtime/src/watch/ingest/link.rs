//! One interface of a pod, with the fields that its type requires and allows.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

use eno_core::kinds::{Invalid, PodLinkSpec};
use eno_nbi_crds::{LinkFields, LinkType, RouteFields, RuleFields};
use eno_schemas::{LinkKind, Master, Parent, PodRoute, PodRule, TunDevice, Tunnel};
use ipnet::IpNet;

use super::{interface_name, sysctl};

/// From the minimum of IPv4 (RFC 791) to the maximum of a link.
pub(super) const MTU: std::ops::RangeInclusive<u32> = 68..=65535;
/// The minimum of IPv6 (RFC 8200).
const MTU_IPV6: u32 = 1280;
/// Maximum bytes of an interface's name before the PID. Linux allows 15 bytes for `<name><PID>` and `h<name><PID>`.
const NAME: usize = 13;
/// Routing tables of the kernel: unspec and local.
const TABLES: [u32; 2] = [0, 255];

/// Checks the name of an interface before its PID.
pub(super) fn name(field: &str, name: &str) -> Result<(), Invalid> {
    if name.len() > NAME {
        let problem = format!(
            "{name:?} has {} bytes; at most {NAME} are left beside the h before it and the PID behind it",
            name.len()
        );
        return Err(Invalid::new(field, problem));
    }
    interface_name(field, name)
}

/// Converts an interface. `names`: all interfaces of its list; `field`: its place in the spec.
pub(super) fn link(
    field: &str,
    name: &str,
    source: &LinkFields,
    names: &BTreeMap<&str, LinkType>,
) -> Result<PodLinkSpec, Invalid> {
    let at = |leaf: &str| format!("{field}.{leaf}");
    let kind = source.link_type.unwrap_or_default();
    known_fields(field, kind, source)?;
    let cidrs = networks(field, source.cidr.as_deref(), &source.cidrs)?;
    let addresses = addresses(&at("addresses"), &source.addresses)?;
    if !cidrs.is_empty() && !addresses.is_empty() {
        let problem =
            "is given with a cidr; give the network that addresses are taken from, or the addresses";
        return Err(Invalid::new(at("addresses"), problem));
    }
    if let Some(mtu) = source.mtu {
        self::mtu(&at("mtu"), mtu)?;
        let ipv6 = cidrs.iter().chain(&addresses).any(|net| net.addr().is_ipv6());
        if ipv6 && mtu < MTU_IPV6 {
            return Err(Invalid::new(at("mtu"), format!("is {mtu}; IPv6 needs at least {MTU_IPV6}")));
        }
    }
    let mut sysctls = BTreeMap::new();
    for (text, value) in &source.sysctls {
        let key = sysctl::key(&at("sysctls"), text)?;
        sysctls.insert(key, sysctl::value(&at(&format!("sysctls[{text}]")), value)?);
    }
    let routes = source.routes.iter().enumerate();
    let rules = source.rules.iter().enumerate();
    Ok(PodLinkSpec {
        name: name.into(),
        kind: link_kind(field, name, kind, source, names)?,
        member_of: member_of(&at("memberOf"), name, kind, source, names)?,
        cidrs,
        addresses,
        mtu: source.mtu,
        mac: source.hardware_addr.as_deref().map(|text| mac(&at("hardwareAddr"), text)).transpose()?,
        alias: source.alias.as_deref().map(|text| alias(&at("alias"), text)).transpose()?,
        routes: routes
            .map(|(index, source)| route(&at(&format!("routes[{index}]")), source))
            .collect::<Result<_, _>>()?,
        rules: rules
            .map(|(index, source)| rule(&at(&format!("rules[{index}]")), source))
            .collect::<Result<_, _>>()?,
        sysctls,
        up: source.up.unwrap_or(true),
    })
}

/// Refuses fields that the type does not have, since they would have no effect.
fn known_fields(field: &str, kind: LinkType, source: &LinkFields) -> Result<(), Invalid> {
    use LinkType::{Geneve, Gre, Gretap, Ipip, Ipvlan, Macvlan, Tap, Tun, Veth, Vlan, Vrf, Vxlan};
    let only: [(&str, bool, &[LinkType]); 12] = [
        ("master", source.master.is_some(), &[Veth, Macvlan, Ipvlan]),
        ("parent", source.parent.is_some(), &[Veth, Macvlan, Ipvlan, Vlan]),
        ("vlanID", source.vlan_id.is_some(), &[Vlan]),
        ("vni", source.vni.is_some(), &[Vxlan, Geneve]),
        ("remote", source.remote.is_some(), &[Vxlan, Geneve, Gre, Gretap, Ipip]),
        ("local", source.local.is_some(), &[Vxlan, Gre, Gretap, Ipip]),
        ("port", source.port.is_some(), &[Vxlan, Geneve]),
        ("key", source.key.is_some(), &[Gre, Gretap]),
        ("ttl", source.ttl.is_some(), &[Gre, Gretap, Ipip]),
        ("table", source.table.is_some(), &[Vrf]),
        ("owner", source.owner.is_some(), &[Tun, Tap]),
        ("group", source.group.is_some(), &[Tun, Tap]),
    ];
    for (leaf, given, kinds) in only {
        if given && !kinds.contains(&kind) {
            let kinds: Vec<&str> = kinds.iter().map(|kind| kind.as_str()).collect();
            let hint =
                if leaf == "master" { "; an interface in the pod is a member by memberOf" } else { "" };
            let problem = format!(
                "is not for linkType {}, only for {}; leave it out{hint}",
                kind.as_str(),
                kinds.join(", ")
            );
            return Err(Invalid::new(format!("{field}.{leaf}"), problem));
        }
    }
    // These types have no MAC address, or share that of their parent.
    if source.hardware_addr.is_some() && matches!(kind, Ipvlan | Gre | Ipip | Tun) {
        let problem = format!(
            "is not for linkType {}, which has no MAC address of its own; leave it out",
            kind.as_str()
        );
        return Err(Invalid::new(format!("{field}.hardwareAddr"), problem));
    }
    Ok(())
}

fn link_kind(
    field: &str,
    name: &str,
    kind: LinkType,
    source: &LinkFields,
    names: &BTreeMap<&str, LinkType>,
) -> Result<LinkKind, Invalid> {
    let at = |leaf: &str| format!("{field}.{leaf}");
    let needs = |leaf: &str, what: &str| {
        Invalid::new(at(leaf), format!("is missing; linkType {} needs {what}", kind.as_str()))
    };
    let any = |leaf: &str, text: &Option<String>| text.as_deref().map(|text| ip(&at(leaf), text)).transpose();
    let vni = || source.vni.ok_or_else(|| needs("vni", "a network identifier from 0 to 16777215"));
    let tun = || TunDevice { owner: source.owner, group: source.group };
    if source.vni.is_some_and(|vni| vni >= 1 << 24) {
        return Err(Invalid::new(at("vni"), "is over 16777215"));
    }
    if source.port == Some(0) {
        return Err(Invalid::new(at("port"), "is 0; use a UDP port from 1 to 65535"));
    }
    Ok(match kind {
        LinkType::Veth => {
            if let Some(parent) = source.parent.as_deref().filter(|parent| *parent != name) {
                let problem = format!(
                    "is {parent:?}; a veth pair has no parent but itself: leave it out or write {name:?}"
                );
                return Err(Invalid::new(at("parent"), problem));
            }
            let master = source.master.clone();
            if let Some(bridge) = &master {
                interface_name(&at("master"), bridge)?;
            }
            LinkKind::Veth { master: master.map(|bridge| Master::Bridge { bridge, vlans: None }) }
        }
        LinkType::Macvlan => LinkKind::Macvlan { master: host_interface(field, kind, source)? },
        LinkType::Ipvlan => LinkKind::Ipvlan { master: host_interface(field, kind, source)? },
        LinkType::Vlan => {
            let id = source.vlan_id.ok_or_else(|| needs("vlanID", "a VLAN ID from 1 to 4094"))?;
            let text = source.parent.as_deref();
            let text = text.ok_or_else(|| {
                needs("parent", "another interface of this list, or one of the pod such as eth0")
            })?;
            if text == name {
                return Err(Invalid::new(
                    at("parent"),
                    format!("{text:?} is the interface itself; name another one"),
                ));
            }
            LinkKind::Vlan {
                parent: parent(&at("parent"), text, names)?,
                vlan: super::vlan(&at("vlanID"), id)?,
            }
        }
        LinkType::Bridge => LinkKind::Bridge {},
        LinkType::Vxlan => {
            let (remote, local) = (any("remote", &source.remote)?, any("local", &source.local)?);
            same_family(&at("local"), local, remote)?;
            LinkKind::Vxlan { vni: vni()?, remote, local, port: source.port }
        }
        LinkType::Geneve => {
            let remote = any("remote", &source.remote)?
                .ok_or_else(|| needs("remote", "the address of its other end"))?;
            LinkKind::Geneve { vni: vni()?, remote, port: source.port }
        }
        LinkType::Gre => LinkKind::Gre(tunnel(field, kind, source)?),
        LinkType::Gretap => LinkKind::Gretap(tunnel(field, kind, source)?),
        LinkType::Ipip => LinkKind::Ipip(tunnel(field, kind, source)?),
        LinkType::Tun => LinkKind::Tun(tun()),
        LinkType::Tap => LinkKind::Tap(tun()),
        LinkType::Dummy => LinkKind::Dummy {},
        LinkType::Vrf => {
            let table = source.table.ok_or_else(|| needs("table", "a routing table of its own"))?;
            if matches!(table, 0 | 253..=255) {
                let problem = format!("{table} is a table of the pod's own; use another one");
                return Err(Invalid::new(at("table"), problem));
            }
            LinkKind::Vrf { table }
        }
    })
}

/// The parent interface of a VLAN.
pub(super) fn parent(field: &str, text: &str, names: &BTreeMap<&str, LinkType>) -> Result<Parent, Invalid> {
    match names.get(text) {
        Some(LinkType::Gre | LinkType::Ipip | LinkType::Tun) => {
            let problem = format!("{text:?} carries no Ethernet frames; name an interface that does");
            Err(Invalid::new(field, problem))
        }
        Some(_) => Ok(Parent::Link(text.to_owned())),
        None => {
            interface_name(field, text)?;
            Ok(Parent::Pod(text.to_owned()))
        }
    }
}

fn host_interface(field: &str, kind: LinkType, source: &LinkFields) -> Result<String, Invalid> {
    let (leaf, interface) = match (&source.master, &source.parent) {
        (Some(master), Some(parent)) if master != parent => {
            let problem = format!("{parent:?} is not the master {master:?}; name one interface of the node");
            return Err(Invalid::new(format!("{field}.parent"), problem));
        }
        (Some(master), _) => ("master", master),
        (None, Some(parent)) => ("parent", parent),
        (None, None) => {
            let problem = format!("is missing; linkType {} needs an interface of the node", kind.as_str());
            return Err(Invalid::new(format!("{field}.master"), problem));
        }
    };
    interface_name(&format!("{field}.{leaf}"), interface)?;
    Ok(interface.clone())
}

fn tunnel(field: &str, kind: LinkType, source: &LinkFields) -> Result<Tunnel, Invalid> {
    let end = |leaf: &str, text: &Option<String>| {
        let Some(text) = text else { return Ok(None) };
        let problem = || format!("{text:?} is not an IPv4 address, which linkType {} needs", kind.as_str());
        text.parse::<Ipv4Addr>().map(Some).map_err(|_| Invalid::new(format!("{field}.{leaf}"), problem()))
    };
    let remote = end("remote", &source.remote)?.ok_or_else(|| {
        let problem = format!("is missing; linkType {} needs the address of its other end", kind.as_str());
        Invalid::new(format!("{field}.remote"), problem)
    })?;
    Ok(Tunnel { remote, local: end("local", &source.local)?, key: source.key, ttl: source.ttl })
}

fn member_of(
    field: &str,
    name: &str,
    kind: LinkType,
    source: &LinkFields,
    names: &BTreeMap<&str, LinkType>,
) -> Result<Option<eno_core::Name>, Invalid> {
    let Some(of) = source.member_of.as_deref() else { return Ok(None) };
    let refuse = |problem: String| Err(Invalid::new(field, problem));
    let flat =
        matches!(kind, LinkType::Gre | LinkType::Ipip | LinkType::Tun | LinkType::Bridge | LinkType::Ipvlan);
    match names.get(of) {
        _ if of == name => {
            refuse(format!("{of:?} is the interface itself; name a bridge or vrf of this list"))
        }
        Some(_) if kind == LinkType::Vrf => refuse("a vrf can't be a member; leave it out".into()),
        Some(LinkType::Bridge) if flat => {
            refuse(format!("linkType {} can't be a port of a bridge; leave it out", kind.as_str()))
        }
        Some(LinkType::Bridge | LinkType::Vrf) => Ok(Some(of.into())),
        _ => refuse(format!("{of:?} is not a bridge or vrf of this list; add one with that name")),
    }
}

/// The networks of `cidr` and `cidrs`: without host bits, at most one per address family.
pub(super) fn networks(field: &str, one: Option<&str>, more: &[String]) -> Result<Vec<IpNet>, Invalid> {
    let at = |leaf: &str| if field.is_empty() { leaf.to_owned() } else { format!("{field}.{leaf}") };
    let one = one.map(|text| (at("cidr"), text));
    let more = more.iter().enumerate().map(|(index, text)| (at(&format!("cidrs[{index}]")), text.as_str()));
    let mut all: Vec<IpNet> = Vec::new();
    for (field, text) in one.into_iter().chain(more) {
        let net = network(&field, text)?;
        match all.iter().find(|other| other.addr().is_ipv4() == net.addr().is_ipv4()) {
            Some(other) if *other == net => {}
            Some(other) => {
                let problem =
                    format!("{net} is beside {other}; at most one network of each family is handed out of");
                return Err(Invalid::new(field, problem));
            }
            None => all.push(net),
        }
    }
    Ok(all)
}

/// A network without host bits.
fn network(field: &str, text: &str) -> Result<IpNet, Invalid> {
    let problem = || format!("{text:?} is not a network with its prefix length, such as 192.168.100.0/24");
    let net: IpNet = text.parse().map_err(|_| Invalid::new(field, problem()))?;
    if net.trunc() != net {
        let problem = format!("{text} has bits behind its prefix; its network is {}", net.trunc());
        return Err(Invalid::new(field, problem));
    }
    Ok(net)
}

/// Addresses of hosts without duplicates.
fn addresses(field: &str, texts: &[String]) -> Result<Vec<IpNet>, Invalid> {
    let mut known = BTreeSet::new();
    let mut all = Vec::new();
    for (index, text) in texts.iter().enumerate() {
        let field = format!("{field}[{index}]");
        let problem =
            || format!("{text:?} is not an address with its prefix length, such as 192.168.100.7/24");
        let net: IpNet = text.parse().map_err(|_| Invalid::new(&field, problem()))?;
        let wide = net.max_prefix_len() - net.prefix_len() > 1;
        let reserved = net.addr() == net.network() || (net.addr().is_ipv4() && net.addr() == net.broadcast());
        if (wide && reserved) || net.addr().is_multicast() || net.addr().is_unspecified() {
            return Err(Invalid::new(
                field,
                format!("{text} is not the address of a host; choose another one"),
            ));
        }
        if !known.insert(net.addr()) {
            return Err(Invalid::new(field, format!("{} is there twice; name it once", net.addr())));
        }
        all.push(net);
    }
    Ok(all)
}

fn ip(field: &str, text: &str) -> Result<IpAddr, Invalid> {
    text.parse().map_err(|_| Invalid::new(field, format!("{text:?} is not an IP address")))
}

fn same_family(field: &str, one: Option<IpAddr>, other: Option<IpAddr>) -> Result<(), Invalid> {
    match (one, other) {
        (Some(one), Some(other)) if one.is_ipv4() != other.is_ipv4() => {
            Err(Invalid::new(field, format!("{one} and {other} are of two families; use one")))
        }
        _ => Ok(()),
    }
}

/// Checks that a link can have this MTU.
pub(super) fn mtu(field: &str, mtu: u32) -> Result<(), Invalid> {
    if MTU.contains(&mtu) {
        return Ok(());
    }
    Err(Invalid::new(field, format!("is {mtu}; use {} to {} bytes", MTU.start(), MTU.end())))
}

/// The unicast MAC address of an interface, in lower case with colons.
fn mac(field: &str, text: &str) -> Result<String, Invalid> {
    let bytes: Vec<u8> = text
        .split([':', '-'])
        .filter(|digits| digits.len() == 2)
        .filter_map(|digits| u8::from_str_radix(digits, 16).ok())
        .collect();
    let whole = text.len() == 17 && bytes.len() == 6;
    match bytes.first() {
        Some(first) if whole && first & 1 == 0 && bytes.iter().any(|byte| *byte != 0) => {
            Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":"))
        }
        _ => {
            let problem =
                format!("{text:?} is not the MAC address of one interface, such as 02:00:00:00:00:01");
            Err(Invalid::new(field, problem))
        }
    }
}

/// `ifalias`: IFALIASZ is 256 bytes, including the terminating zero.
fn alias(field: &str, text: &str) -> Result<String, Invalid> {
    if text.is_empty() || text.len() > 255 || text.chars().any(char::is_control) {
        return Err(Invalid::new(field, "must have 1 to 255 bytes and no control characters"));
    }
    Ok(text.to_owned())
}

fn table(field: &str, table: u32) -> Result<u32, Invalid> {
    if TABLES.contains(&table) {
        return Err(Invalid::new(field, format!("{table} is a table of the kernel's own; use another one")));
    }
    Ok(table)
}

fn route(field: &str, source: &RouteFields) -> Result<PodRoute, Invalid> {
    let at = |leaf: &str| format!("{field}.{leaf}");
    let prefix = network(&at("to"), &source.to)?;
    let next_hop = source.via.as_deref().map(|text| ip(&at("via"), text)).transpose()?;
    let src = source.src.as_deref().map(|text| ip(&at("src"), text)).transpose()?;
    same_family(&at("via"), next_hop, Some(prefix.addr()))?;
    same_family(&at("src"), src, Some(prefix.addr()))?;
    let table = source.table.map(|table| self::table(&at("table"), table)).transpose()?;
    Ok(PodRoute { prefix, next_hop, table, metric: source.metric, source: src })
}

fn rule(field: &str, source: &RuleFields) -> Result<PodRule, Invalid> {
    let at = |leaf: &str| format!("{field}.{leaf}");
    if !(1..=32765).contains(&source.priority) {
        return Err(Invalid::new(at("priority"), format!("is {}; use 1 to 32765", source.priority)));
    }
    let net =
        |leaf: &str, text: &Option<String>| text.as_deref().map(|text| network(&at(leaf), text)).transpose();
    let (from, to) = (net("from", &source.from)?, net("to", &source.to)?);
    same_family(&at("to"), to.map(|net| net.addr()), from.map(|net| net.addr()))?;
    Ok(PodRule { table: table(&at("table"), source.table)?, priority: source.priority, from, to })
}
