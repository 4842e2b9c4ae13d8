//! Instances of the type `ip-vrf`, their static routes and their subinterfaces: srl_nokia-if-ip (which has no nodes of
//! its own), srl_nokia-bgp-vpn, srl_nokia-static-routes and srl_nokia-next-hop-groups 24.7.

use std::collections::{BTreeMap, BTreeSet};

use ipnet::IpNet;

use super::{
    ADMIN_STATE, Encap, INSTANCE, INTERFACES, REVISION, SUBINTERFACE, Subinterface, all_subinterfaces,
    attached_subinterfaces, instances, is_enabled,
};
use crate::dialect::accessors::{child, entries, leaf, leaf_is, list, module, text};
use crate::dialect::routing::{
    DISTINGUISHER, IP_ADDRESS, IP_PREFIX, IPV4_PREFIX, IPV6_PREFIX, is_distinguisher,
};
use crate::dialect::view::{RouteView, RoutedView, VrfView};
use crate::model::schema::{Definition, Module};
use crate::model::tree::Container;
use crate::model::value::{StringRule, Type};

pub(super) static BGP_VPN: Module =
    module("srl_nokia-bgp-vpn", "srl_nokia-bgp-vpn", "urn:nokia.com:srlinux:bgp:bgp-vpn", REVISION);
pub(super) static STATIC_ROUTES_MODULE: Module = module(
    "srl_nokia-static-routes",
    "srl_nokia-static-routes",
    "urn:nokia.com:srlinux:static-route:static-routes",
    REVISION,
);
pub(super) static NEXT_HOP_GROUPS_MODULE: Module = module(
    "srl_nokia-next-hop-groups",
    "srl_nokia-next-hop-groups",
    "urn:nokia.com:srlinux:static-route:next-hop-groups",
    REVISION,
);

/// `bgp-ext-community-type`, as far as it names route targets.
static ROUTE_TARGET: StringRule = StringRule {
    length: (10, 28),
    matches: |text| text.strip_prefix("target:").is_some_and(is_distinguisher),
    expected: "a route target such as target:65000:100",
};

/// The type `name` of srl_nokia-common.
pub(super) static GROUP_NAME: StringRule = StringRule {
    length: (1, 255),
    matches: |text| {
        !text.starts_with(' ')
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || b" !@#$%^&()|+=`~.,/_:;?-".contains(&b))
    },
    expected: "a name without control characters and quotes",
};

/// Content of a subinterface.
pub(super) const IPV4: &[Definition] = &[
    Definition::leaf("admin-state", &INTERFACES, ADMIN_STATE),
    Definition::list("address", &INTERFACES, 1, IPV4_ADDRESS),
];

const IPV4_ADDRESS: &[Definition] = &[
    Definition::leaf("ip-prefix", &INTERFACES, Type::Restricted(&IPV4_PREFIX)),
    Definition::leaf("primary", &INTERFACES, Type::Empty),
];

/// Content of a subinterface.
pub(super) const IPV6: &[Definition] = &[
    Definition::leaf("admin-state", &INTERFACES, ADMIN_STATE),
    Definition::list("address", &INTERFACES, 1, IPV6_ADDRESS),
];

const IPV6_ADDRESS: &[Definition] = &[
    Definition::leaf("ip-prefix", &INTERFACES, Type::Restricted(&IPV6_PREFIX)),
    Definition::leaf("type", &INTERFACES, Type::Enum(&["global-unicast", "link-local-unicast"])),
];

/// Content of a network instance.
pub(super) const PROTOCOLS: &[Definition] =
    &[Definition::container("bgp-vpn", &BGP_VPN, BGP_VPN_CONTENT), super::bgp::DEFINITION];

const BGP_VPN_CONTENT: &[Definition] = &[Definition::list("bgp-instance", &BGP_VPN, 1, BGP_INSTANCE)];

const BGP_INSTANCE: &[Definition] = &[
    Definition::leaf("id", &BGP_VPN, Type::Uint(1, 2)),
    Definition::container("route-distinguisher", &BGP_VPN, ROUTE_DISTINGUISHER),
    Definition::container("route-target", &BGP_VPN, ROUTE_TARGETS),
];

const ROUTE_DISTINGUISHER: &[Definition] =
    &[Definition::leaf("rd", &BGP_VPN, Type::Restricted(&DISTINGUISHER))];

const ROUTE_TARGETS: &[Definition] = &[
    Definition::leaf("export-rt", &BGP_VPN, Type::Restricted(&ROUTE_TARGET)),
    Definition::leaf("import-rt", &BGP_VPN, Type::Restricted(&ROUTE_TARGET)),
];

/// Content of a network instance.
pub(super) const STATIC_ROUTES: &[Definition] = &[
    Definition::leaf("admin-state", &STATIC_ROUTES_MODULE, ADMIN_STATE),
    Definition::list("route", &STATIC_ROUTES_MODULE, 1, ROUTE),
];

const ROUTE: &[Definition] = &[
    Definition::leaf("prefix", &STATIC_ROUTES_MODULE, Type::Restricted(&IP_PREFIX)),
    Definition::leaf("admin-state", &STATIC_ROUTES_MODULE, ADMIN_STATE),
    Definition::leaf("metric", &STATIC_ROUTES_MODULE, Type::Uint(0, 4_294_967_295)),
    Definition::leaf("preference", &STATIC_ROUTES_MODULE, Type::Uint(0, 255)),
    Definition::leaf("next-hop-group", &STATIC_ROUTES_MODULE, Type::Restricted(&GROUP_NAME)),
];

/// Content of a network instance.
pub(super) const NEXT_HOP_GROUPS: &[Definition] =
    &[Definition::list("group", &NEXT_HOP_GROUPS_MODULE, 1, GROUP)];

const GROUP: &[Definition] = &[
    Definition::leaf("name", &NEXT_HOP_GROUPS_MODULE, Type::Restricted(&GROUP_NAME)),
    Definition::leaf("admin-state", &NEXT_HOP_GROUPS_MODULE, ADMIN_STATE),
    Definition::list("nexthop", &NEXT_HOP_GROUPS_MODULE, 1, NEXT_HOP),
];

const NEXT_HOP: &[Definition] = &[
    Definition::leaf("index", &NEXT_HOP_GROUPS_MODULE, Type::Uint(0, 65535)),
    Definition::leaf("ip-address", &NEXT_HOP_GROUPS_MODULE, Type::Restricted(&IP_ADDRESS)),
    Definition::leaf("admin-state", &NEXT_HOP_GROUPS_MODULE, ADMIN_STATE),
    Definition::leaf("resolve", &NEXT_HOP_GROUPS_MODULE, Type::Bool),
];

/// Whether a network instance is an `ip-vrf`.
fn is_ip_vrf(instance: &Container) -> bool {
    leaf_is(instance, INSTANCE, "type", "ip-vrf")
}

/// The VRFs of a configuration, without that of the management.
pub(super) fn vrfs(running: &Container, vlan_of_sub: &BTreeMap<&str, u16>) -> BTreeMap<String, VrfView> {
    if !instances(running).any(|(name, instance)| is_vrf(name, instance)) {
        return BTreeMap::new();
    }
    let subs = all_subinterfaces(running);
    instances(running)
        .filter(|(name, instance)| is_vrf(name, instance))
        .map(|(name, instance)| (name.to_owned(), vrf(instance, &subs, vlan_of_sub)))
        .collect()
}

/// Whether a network instance is a VRF other than that of the management.
pub(super) fn is_vrf(name: &str, instance: &Container) -> bool {
    name != "mgmt" && is_ip_vrf(instance)
}

/// The subinterfaces of an instance, without the VLANs of IRB subinterfaces.
pub(super) fn routed_interfaces(running: &Container, instance: &Container) -> BTreeMap<String, RoutedView> {
    vrf(instance, &all_subinterfaces(running), &BTreeMap::new()).interfaces
}

fn vrf(
    instance: &Container,
    subs: &BTreeMap<String, Subinterface<'_>>,
    vlan_of_sub: &BTreeMap<&str, u16>,
) -> VrfView {
    let bgp =
        child(instance, INSTANCE, "protocols").and_then(|protocols| child(protocols, PROTOCOLS, "bgp-vpn"));
    let (mut distinguisher, mut imported, mut exported) = (None, BTreeSet::new(), BTreeSet::new());
    for entry in list(bgp, BGP_VPN_CONTENT, "bgp-instance").into_iter().flatten().map(|(_, entry)| entry) {
        let own = child(entry, BGP_INSTANCE, "route-distinguisher");
        distinguisher = distinguisher.or(own.and_then(|own| text(own, ROUTE_DISTINGUISHER, "rd")));
        let targets = child(entry, BGP_INSTANCE, "route-target");
        let target = |name| targets.and_then(|targets| text(targets, ROUTE_TARGETS, name));
        let plain = |target: &str| target.trim_start_matches("target:").to_owned();
        imported.extend(target("import-rt").map(plain));
        exported.extend(target("export-rt").map(plain));
    }
    // BGP-VPN exports what the instance has installed.
    let exports = if exported.is_empty() { &[][..] } else { &["connected", "static"] };
    let members = attached_subinterfaces(instance).filter_map(|name| {
        let sub = subs.get(name)?;
        Some((name.to_owned(), routed(sub, vlan_of_sub.get(name).copied())))
    });
    VrfView {
        description: text(instance, INSTANCE, "description").map(str::to_owned),
        route_distinguisher: distinguisher.map(str::to_owned),
        import_targets: imported.into_iter().collect(),
        export_targets: exported.into_iter().collect(),
        exports: exports.iter().map(|&source| source.to_owned()).collect(),
        interfaces: members.collect(),
        routes: routes(instance),
    }
}

/// `bridged_vlan` is the VLAN of the `mac-vrf` that an IRB subinterface is in.
fn routed(sub: &Subinterface<'_>, bridged_vlan: Option<u16>) -> RoutedView {
    let mut addresses = Vec::new();
    for (family, content, entry) in [("ipv4", IPV4, IPV4_ADDRESS), ("ipv6", IPV6, IPV6_ADDRESS)] {
        let Some(family) = child(sub.node, SUBINTERFACE, family) else { continue };
        // The default is `disable`.
        if leaf_is(family, content, "admin-state", "enable") {
            let prefixes = list(Some(family), content, "address").into_iter().flatten();
            addresses
                .extend(prefixes.filter_map(|(_, a)| text(a, entry, "ip-prefix")?.parse::<IpNet>().ok()));
        }
    }
    addresses.sort_unstable();
    let tag = match sub.encap {
        Some(Encap::Tagged(id)) => Some(id),
        _ => None,
    };
    let mtu = leaf(sub.node, SUBINTERFACE, "ip-mtu").and_then(|mtu| u16::try_from(mtu.number()?).ok());
    RoutedView {
        port: (!sub.is_irb()).then(|| sub.port.to_owned()),
        vlan: if sub.is_irb() { bridged_vlan } else { tag },
        description: text(sub.node, SUBINTERFACE, "description").map(str::to_owned),
        addresses,
        mtu,
        disabled: !sub.enabled || sub.encap.is_none(),
    }
}

/// The next-hop groups of an instance, by name.
pub(super) fn groups(instance: &Container) -> impl Iterator<Item = (&str, &Container)> {
    entries(child(instance, INSTANCE, "next-hop-groups"), NEXT_HOP_GROUPS, "group")
}

/// The static routes of an instance: the prefix, and the name of the next-hop group.
pub(super) fn route_groups(instance: &Container) -> impl Iterator<Item = (&str, &Container, Option<&str>)> {
    entries(child(instance, INSTANCE, "static-routes"), STATIC_ROUTES, "route")
        .map(|(prefix, route)| (prefix, route, text(route, ROUTE, "next-hop-group")))
}

fn routes(instance: &Container) -> Vec<RouteView> {
    let by_name: BTreeMap<&str, &Container> = groups(instance).collect();
    let mut routes = Vec::new();
    for (prefix, route, group) in route_groups(instance).filter(|(_, route, _)| is_enabled(route, ROUTE)) {
        let preference = leaf(route, ROUTE, "preference").and_then(|p| u32::try_from(p.number()?).ok());
        let group = group.and_then(|group| by_name.get(group)).filter(|group| is_enabled(group, GROUP));
        for (_, hop) in list(group.copied(), GROUP, "nexthop").into_iter().flatten() {
            let next_hop = text(hop, NEXT_HOP, "ip-address").and_then(|address| address.parse().ok());
            if let (Ok(prefix), Some(next_hop)) = (prefix.parse(), next_hop) {
                routes.push(RouteView { prefix, next_hop, preference });
            }
        }
    }
    routes.sort_unstable();
    routes
}
