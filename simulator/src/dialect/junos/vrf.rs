//! Routing instances of Junos: `vrf` and `virtual-router` (junos-qfx-conf-routing-instances), and their units.

use std::collections::{BTreeMap, BTreeSet};

use ipnet::IpNet;

use super::{
    CONFIGURATION, FAMILY, INTERFACE, INTERFACES_MODULE, REVISION, ROOTS, TEXT, UNIT, VLAN, interfaces,
    vlan_ids, vlans,
};
use crate::dialect::accessors::{child, entries, leaf, list, module, text};
use crate::dialect::routing::{
    IP_ADDRESS, IP_PREFIX, IPV4_ADDRESS, IPV4_PREFIX, IPV6_PREFIX, is_distinguisher,
};
use crate::dialect::view::{RouteView, RoutedView, VrfView};
use crate::model::schema::{Definition, Module, position};
use crate::model::tree::Container;
use crate::model::value::{StringRule, Type, Value};

pub(super) static INSTANCES_MODULE: Module = module(
    "junos-qfx-conf-routing-instances",
    "jc-routing-instances",
    "http://yang.juniper.net/junos-qfx/conf/routing-instances",
    REVISION,
);

static TARGET: StringRule = StringRule {
    length: (10, 29),
    matches: |text| text.strip_prefix("target:").is_some_and(is_marked),
    expected: "a route target such as target:65000:100 or target:4200000000L:1",
};
/// The model's description has these forms of a distinguisher; the type of both is a string.
static RD: StringRule = StringRule {
    length: (3, 22),
    matches: is_marked,
    expected: "a route distinguisher such as 65000:100, 4200000000L:1 or 192.0.2.1:100",
};

/// Whether the text is a distinguisher whose number of 32 bits, and no other, is marked with `L`.
fn is_marked(text: &str) -> bool {
    let administrator = text.split(':').next().unwrap_or_default();
    let number = administrator.strip_suffix('L');
    let is_long = number.unwrap_or(administrator).parse::<u32>().is_ok_and(|n| n > 0xffff);
    number.is_some() == is_long && is_distinguisher(&plain(text))
}

/// The text without that mark.
fn plain(text: &str) -> String {
    text.replacen("L:", ":", 1)
}

/// Content of `family` of a unit.
pub(super) const INET: &[Definition] = &[
    Definition::leaf("mtu", &INTERFACES_MODULE, Type::Uint(256, 9192)),
    Definition::list("address", &INTERFACES_MODULE, 1, INET_ADDRESS),
];

const INET_ADDRESS: &[Definition] =
    &[Definition::leaf("name", &INTERFACES_MODULE, Type::Restricted(&IPV4_PREFIX))];

/// Content of `family` of a unit.
pub(super) const INET6: &[Definition] = &[
    Definition::leaf("mtu", &INTERFACES_MODULE, Type::Uint(256, 9192)),
    Definition::list("address", &INTERFACES_MODULE, 1, INET6_ADDRESS),
];

const INET6_ADDRESS: &[Definition] =
    &[Definition::leaf("name", &INTERFACES_MODULE, Type::Restricted(&IPV6_PREFIX))];

/// Content of `routing-instances`.
pub(super) const INSTANCES: &[Definition] = &[Definition::list("instance", &INSTANCES_MODULE, 1, INSTANCE)];

pub(super) const INSTANCE: &[Definition] = &[
    Definition::leaf("name", &INSTANCES_MODULE, TEXT),
    Definition::leaf(
        "instance-type",
        &INSTANCES_MODULE,
        Type::Enum(&["vrf", "virtual-router", "mac-vrf", "virtual-switch", "forwarding", "no-forwarding"]),
    ),
    Definition::container("routing-options", &INSTANCES_MODULE, ROUTING_OPTIONS),
    Definition::leaf("description", &INSTANCES_MODULE, TEXT),
    Definition::list("interface", &INSTANCES_MODULE, 1, MEMBER),
    Definition::container("route-distinguisher", &INSTANCES_MODULE, ROUTE_DISTINGUISHER),
    Definition::container("vrf-target", &INSTANCES_MODULE, VRF_TARGET),
    Definition::presence("vrf-table-label", &INSTANCES_MODULE, &[]),
    Definition::container("protocols", &INSTANCES_MODULE, super::bgp::PROTOCOLS),
];

const MEMBER: &[Definition] = &[Definition::leaf("name", &INSTANCES_MODULE, TEXT)];

const ROUTE_DISTINGUISHER: &[Definition] =
    &[Definition::leaf("rd-type", &INSTANCES_MODULE, Type::Restricted(&RD))];

pub(super) const VRF_TARGET: &[Definition] = &[
    Definition::leaf("community", &INSTANCES_MODULE, Type::Restricted(&TARGET)),
    Definition::leaf("import", &INSTANCES_MODULE, Type::Restricted(&TARGET)),
    Definition::leaf("export", &INSTANCES_MODULE, Type::Restricted(&TARGET)),
];

pub(super) const ROUTING_OPTIONS: &[Definition] = &[
    Definition::list("rib", &INSTANCES_MODULE, 1, RIB),
    Definition::container("static", &INSTANCES_MODULE, STATIC),
    Definition::leaf("router-id", &INSTANCES_MODULE, Type::Restricted(&IPV4_ADDRESS)),
    Definition::container("autonomous-system", &INSTANCES_MODULE, AUTONOMOUS_SYSTEM),
];

const AUTONOMOUS_SYSTEM: &[Definition] =
    &[Definition::leaf("as-number", &INSTANCES_MODULE, Type::Restricted(&super::bgp::AS_NUMBER))];

pub(super) const RIB: &[Definition] = &[
    Definition::leaf("name", &INSTANCES_MODULE, TEXT),
    Definition::container("static", &INSTANCES_MODULE, STATIC),
];

pub(super) const STATIC: &[Definition] = &[Definition::list("route", &INSTANCES_MODULE, 1, ROUTE)];

const ROUTE: &[Definition] = &[
    Definition::leaf("name", &INSTANCES_MODULE, Type::Restricted(&IP_PREFIX)),
    Definition::leaf_list("next-hop", &INSTANCES_MODULE, Type::Restricted(&IP_ADDRESS)),
    Definition::container("preference", &INSTANCES_MODULE, PREFERENCE),
];

/// The grouping `rib_static_metric_type`.
const PREFERENCE: &[Definition] =
    &[Definition::leaf("metric-value", &INSTANCES_MODULE, Type::Uint(0, 4_294_967_295))];

/// The routing instances of a configuration, by name.
pub(super) fn instances(config: &Container) -> impl Iterator<Item = (&str, &Container)> {
    let instances =
        child(config, ROOTS, "configuration").and_then(|c| child(c, CONFIGURATION, "routing-instances"));
    entries(instances, INSTANCES, "instance")
}

/// The interfaces of a routing instance, as `xe-0/0/1.100`.
pub(super) fn members(instance: &Container) -> impl Iterator<Item = &str> {
    entries(Some(instance), INSTANCE, "interface").map(|(name, _)| name)
}

/// The units of a configuration by their full names, with their interfaces' names.
pub(super) fn units(config: &Container) -> BTreeMap<String, (&str, &Container)> {
    let mut units = BTreeMap::new();
    for (name, interface) in interfaces(config) {
        for (unit, content) in entries(Some(interface), INTERFACE, "unit") {
            units.insert(format!("{name}.{unit}"), (name, content));
        }
    }
    units
}

/// The VLAN of the frames that a unit accepts.
pub(super) fn tag(unit: &Container) -> Option<u16> {
    leaf(unit, UNIT, "vlan-id")?.vlans().next()
}

/// The static routes of an instance, with the name of their RIB; `None`: that of IPv4.
pub(super) fn routes(instance: &Container) -> Vec<(Option<&str>, RouteView)> {
    let Some(options) = child(instance, INSTANCE, "routing-options") else { return Vec::new() };
    let own = [(None, child(options, ROUTING_OPTIONS, "static"))];
    let ribs = entries(Some(options), ROUTING_OPTIONS, "rib");
    let mut routes = Vec::new();
    for (rib, content) in
        own.into_iter().chain(ribs.map(|(name, rib)| (Some(name), child(rib, RIB, "static"))))
    {
        for (prefix, route) in entries(content, STATIC, "route") {
            let preference = child(route, ROUTE, "preference")
                .and_then(|preference| leaf(preference, PREFERENCE, "metric-value")?.number());
            let preference = preference.and_then(|preference| u32::try_from(preference).ok());
            let hops = route.leaf_list(position(ROUTE, "next-hop")).into_iter().flatten();
            for next_hop in hops.filter_map(|hop| hop.text()?.parse().ok()) {
                if let Ok(prefix) = prefix.parse() {
                    routes.push((rib, RouteView { prefix, next_hop, preference }));
                }
            }
        }
    }
    routes
}

/// The VRFs of a configuration: the instances of the types `vrf` and `virtual-router`.
pub(super) fn vrfs(config: &Container) -> BTreeMap<String, VrfView> {
    if instances(config).next().is_none() {
        return BTreeMap::new();
    }
    let mut irb_vlans: BTreeMap<&str, u16> = BTreeMap::new();
    for (_, vlan) in vlans(config) {
        if let (Some(interface), Some(id)) = (text(vlan, VLAN, "l3-interface"), vlan_ids(vlan).iter().next())
        {
            irb_vlans.insert(interface, id);
        }
    }
    let units = units(config);
    instances(config)
        .filter(|(_, instance)| is_vrf(instance))
        .map(|(name, instance)| (name.to_owned(), vrf(config, instance, &units, &irb_vlans)))
        .collect()
}

/// Whether a routing instance is of a type that routes.
pub(super) fn is_vrf(instance: &Container) -> bool {
    leaf(instance, INSTANCE, "instance-type").is_some_and(|kind| kind.is("vrf") || kind.is("virtual-router"))
}

fn vrf(
    config: &Container,
    instance: &Container,
    units: &BTreeMap<String, (&str, &Container)>,
    irb_vlans: &BTreeMap<&str, u16>,
) -> VrfView {
    let disabled: BTreeSet<&str> = interfaces(config)
        .filter(|(_, interface)| leaf(interface, INTERFACE, "disable").is_some())
        .map(|(name, _)| name)
        .collect();
    let routed = members(instance).filter_map(|member| {
        let (interface, unit) = units.get(member)?;
        let mut view = routed(interface, unit, irb_vlans.get(member).copied());
        view.disabled |= disabled.contains(interface);
        Some((member.to_owned(), view))
    });
    let distinguisher = child(instance, INSTANCE, "route-distinguisher");
    let targets = |direction| {
        let targets = child(instance, INSTANCE, "vrf-target")?;
        let target = text(targets, VRF_TARGET, direction).or_else(|| text(targets, VRF_TARGET, "community"));
        target.map(|target| plain(target.trim_start_matches("target:")))
    };
    let export_targets = Vec::from_iter(targets("export"));
    let mut exports = BTreeSet::new();
    if !export_targets.is_empty() {
        exports.insert("static".to_owned());
        // Without it, routes of multi-access interfaces need a next hop to be exported.
        if child(instance, INSTANCE, "vrf-table-label").is_some() {
            exports.insert("connected".to_owned());
        }
    }
    let mut routes: Vec<RouteView> = routes(instance).into_iter().map(|(_, route)| route).collect();
    routes.sort_unstable();
    VrfView {
        description: text(instance, INSTANCE, "description").map(str::to_owned),
        route_distinguisher: distinguisher.and_then(|rd| text(rd, ROUTE_DISTINGUISHER, "rd-type")).map(plain),
        import_targets: Vec::from_iter(targets("import")),
        export_targets,
        exports,
        interfaces: routed.collect(),
        routes,
    }
}

/// `irb_vlan` is the VLAN whose `l3-interface` the unit is.
fn routed(interface: &str, unit: &Container, irb_vlan: Option<u16>) -> RoutedView {
    let family = child(unit, UNIT, "family");
    let (mut addresses, mut mtu) = (Vec::new(), None);
    for (name, content, entry) in [("inet", INET, INET_ADDRESS), ("inet6", INET6, INET6_ADDRESS)] {
        let Some(family) = family.and_then(|family| child(family, FAMILY, name)) else { continue };
        let own = leaf(family, content, "mtu").and_then(Value::number);
        mtu = mtu.or(own.and_then(|mtu| u16::try_from(mtu).ok()));
        let prefixes = list(Some(family), content, "address").into_iter().flatten();
        addresses.extend(prefixes.filter_map(|(_, a)| text(a, entry, "name")?.parse::<IpNet>().ok()));
    }
    addresses.sort_unstable();
    let irb = interface == "irb";
    RoutedView {
        port: (!irb).then(|| interface.to_owned()),
        vlan: if irb { irb_vlan } else { tag(unit) },
        description: text(unit, UNIT, "description").map(str::to_owned),
        addresses,
        mtu,
        disabled: leaf(unit, UNIT, "disable").is_some(),
    }
}
