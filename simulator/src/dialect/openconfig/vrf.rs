//! VRFs and routed interfaces of OpenConfig: openconfig-if-ip, openconfig-evpn (route targets),
//! openconfig-local-routing (static routes), and the parts of openconfig-network-instance for them.

use std::collections::{BTreeMap, BTreeSet};

use ipnet::IpNet;

use super::{
    INSTANCE, INSTANCE_CONFIG, INTERFACE, INTERFACES_MODULE, L3_VLAN, NETWORK_INSTANCE, TEXT, VLAN, VLAN_ID,
    instances, interfaces, kind,
};
use crate::dialect::accessors::{child, entries, leaf, leaf_is, list, module, text};
use crate::dialect::routing::{
    DISTINGUISHER, IP_ADDRESS, IP_PREFIX, IPV4_ADDRESS, IPV6_ADDRESS, is_distinguisher,
};
use crate::dialect::view::{RouteView, RoutedView, VrfView};
use crate::model::schema::{Definition, Definitions, Identity, Module, position};
use crate::model::tree::Container;
use crate::model::value::{StringRule, Type, Value};

pub(super) static IF_IP: Module =
    module("openconfig-if-ip", "oc-ip", "http://openconfig.net/yang/interfaces/ip", "2024-05-28");
pub(super) static EVPN: Module =
    module("openconfig-evpn", "oc-evpn", "http://openconfig.net/yang/evpn", "2024-03-13");
pub(super) static LOCAL_ROUTING: Module =
    module("openconfig-local-routing", "oc-loc-rt", "http://openconfig.net/yang/local-routing", "2022-11-01");
pub(super) static POLICY_TYPES: Module = module(
    "openconfig-policy-types",
    "oc-pol-types",
    "http://openconfig.net/yang/policy-types",
    "2024-05-14",
);
pub(super) static TYPES: Module =
    module("openconfig-types", "oc-types", "http://openconfig.net/yang/openconfig-types", "2024-01-31");

static BGP: Identity = Identity { module: &POLICY_TYPES, name: "BGP" };
static STATIC: Identity = Identity { module: &POLICY_TYPES, name: "STATIC" };
static DIRECTLY_CONNECTED: Identity = Identity { module: &POLICY_TYPES, name: "DIRECTLY_CONNECTED" };
static IPV4: Identity = Identity { module: &TYPES, name: "IPV4" };
static IPV6: Identity = Identity { module: &TYPES, name: "IPV6" };

pub(super) const PROTOCOL: Type = Type::Identity(&[&BGP, &STATIC, &DIRECTLY_CONNECTED]);
const FAMILY: Type = Type::Identity(&[&IPV4, &IPV6]);

/// `bgp-ext-community-type`, as far as it names route targets.
static ROUTE_TARGET: StringRule = StringRule {
    length: (3, 34),
    matches: |text| is_distinguisher(text.strip_prefix("route-target:").unwrap_or(text)),
    expected: "a route target such as 65000:100",
};

/// Content of `interface`: its sub-interfaces.
pub(super) const SUBINTERFACES: &[Definition] =
    &[Definition::list("subinterface", &INTERFACES_MODULE, 1, SUBINTERFACE)];

pub(super) const SUBINTERFACE: &[Definition] = &[
    Definition::leaf("index", &INTERFACES_MODULE, Type::Uint(0, 4_294_967_295)),
    Definition::container("config", &INTERFACES_MODULE, SUBINTERFACE_CONFIG),
    Definition::mirror(&INTERFACES_MODULE, SUBINTERFACE_CONFIG),
    Definition::container("vlan", &VLAN, SUBINTERFACE_VLAN),
    Definition::container("ipv4", &IF_IP, IPV4_CONTENT),
    Definition::container("ipv6", &IF_IP, IPV6_CONTENT),
];

pub(super) const SUBINTERFACE_CONFIG: &[Definition] = &[
    Definition::leaf("index", &INTERFACES_MODULE, Type::Uint(0, 4_294_967_295)),
    Definition::leaf("description", &INTERFACES_MODULE, TEXT),
    Definition::leaf("enabled", &INTERFACES_MODULE, Type::Bool),
];

const SUBINTERFACE_VLAN: &[Definition] = &[Definition::container("match", &VLAN, MATCH)];

const MATCH: &[Definition] = &[Definition::container("single-tagged", &VLAN, SINGLE_TAGGED)];

const SINGLE_TAGGED: &[Definition] = &[
    Definition::container("config", &VLAN, SINGLE_TAGGED_CONFIG),
    Definition::mirror(&VLAN, SINGLE_TAGGED_CONFIG),
];

const SINGLE_TAGGED_CONFIG: &[Definition] = &[Definition::leaf("vlan-id", &VLAN, VLAN_ID)];

/// Content of `interface` of the type `l3ipvlan`.
pub(super) const ROUTED_VLAN: &[Definition] = &[
    Definition::container("config", &VLAN, ROUTED_VLAN_CONFIG),
    Definition::mirror(&VLAN, ROUTED_VLAN_CONFIG),
    Definition::container("ipv4", &IF_IP, IPV4_CONTENT),
    Definition::container("ipv6", &IF_IP, IPV6_CONTENT),
];

/// The model allows the name of a VLAN, too.
const ROUTED_VLAN_CONFIG: &[Definition] = &[Definition::leaf("vlan", &VLAN, VLAN_ID)];

pub(super) const IPV4_CONTENT: &[Definition] = &[
    Definition::container("addresses", &IF_IP, IPV4_ADDRESSES),
    Definition::container("config", &IF_IP, IPV4_CONFIG),
    Definition::mirror(&IF_IP, IPV4_CONFIG),
];

const IPV4_CONFIG: &[Definition] = &[
    Definition::leaf("enabled", &IF_IP, Type::Bool),
    Definition::leaf("mtu", &IF_IP, Type::Uint(68, 65535)),
];

const IPV4_ADDRESSES: &[Definition] = &[Definition::list("address", &IF_IP, 1, IPV4_ENTRY)];

const IPV4_ENTRY: &[Definition] = &[
    Definition::leaf("ip", &IF_IP, Type::Restricted(&IPV4_ADDRESS)),
    Definition::container("config", &IF_IP, IPV4_ENTRY_CONFIG),
    Definition::mirror(&IF_IP, IPV4_ENTRY_CONFIG),
];

const IPV4_ENTRY_CONFIG: &[Definition] = &[
    Definition::leaf("ip", &IF_IP, Type::Restricted(&IPV4_ADDRESS)),
    Definition::leaf("prefix-length", &IF_IP, Type::Uint(0, 32)),
    Definition::leaf("type", &IF_IP, Type::Enum(&["PRIMARY", "SECONDARY"])),
];

pub(super) const IPV6_CONTENT: &[Definition] = &[
    Definition::container("addresses", &IF_IP, IPV6_ADDRESSES),
    Definition::container("config", &IF_IP, IPV6_CONFIG),
    Definition::mirror(&IF_IP, IPV6_CONFIG),
];

const IPV6_CONFIG: &[Definition] = &[
    Definition::leaf("enabled", &IF_IP, Type::Bool),
    Definition::leaf("mtu", &IF_IP, Type::Uint(1280, 65535)),
];

const IPV6_ADDRESSES: &[Definition] = &[Definition::list("address", &IF_IP, 1, IPV6_ENTRY)];

const IPV6_ENTRY: &[Definition] = &[
    Definition::leaf("ip", &IF_IP, Type::Restricted(&IPV6_ADDRESS)),
    Definition::container("config", &IF_IP, IPV6_ENTRY_CONFIG),
    Definition::mirror(&IF_IP, IPV6_ENTRY_CONFIG),
];

const IPV6_ENTRY_CONFIG: &[Definition] = &[
    Definition::leaf("ip", &IF_IP, Type::Restricted(&IPV6_ADDRESS)),
    Definition::leaf("prefix-length", &IF_IP, Type::Uint(0, 128)),
    Definition::leaf("type", &IF_IP, Type::Enum(&["GLOBAL_UNICAST", "LINK_LOCAL_UNICAST"])),
];

pub(super) const DISTINGUISHER_TYPE: Type = Type::Restricted(&DISTINGUISHER);

/// Content of `network-instance`: `inter-instance-policies`.
pub(super) const POLICIES: &[Definition] =
    &[Definition::container("import-export-policy", &NETWORK_INSTANCE, TARGETS_CONTENT)];

const TARGETS_CONTENT: &[Definition] = &[
    Definition::container("config", &NETWORK_INSTANCE, TARGETS),
    Definition::mirror(&NETWORK_INSTANCE, TARGETS),
];

const TARGETS: &[Definition] = &[
    Definition::leaf_list("export-route-target", &NETWORK_INSTANCE, Type::Restricted(&ROUTE_TARGET)),
    Definition::leaf_list("import-route-target", &NETWORK_INSTANCE, Type::Restricted(&ROUTE_TARGET)),
];

/// Content of `network-instance`: `table-connections`.
pub(super) const TABLE_CONNECTIONS: &[Definition] =
    &[Definition::list("table-connection", &NETWORK_INSTANCE, 3, TABLE_CONNECTION)];

pub(super) const TABLE_CONNECTION: &[Definition] = &[
    Definition::leaf("src-protocol", &NETWORK_INSTANCE, PROTOCOL),
    Definition::leaf("dst-protocol", &NETWORK_INSTANCE, PROTOCOL),
    Definition::leaf("address-family", &NETWORK_INSTANCE, FAMILY),
    Definition::container("config", &NETWORK_INSTANCE, TABLE_CONNECTION_CONFIG),
    Definition::mirror(&NETWORK_INSTANCE, TABLE_CONNECTION_CONFIG),
];

pub(super) const TABLE_CONNECTION_CONFIG: &[Definition] = &[
    Definition::leaf("src-protocol", &NETWORK_INSTANCE, PROTOCOL),
    Definition::leaf("address-family", &NETWORK_INSTANCE, FAMILY),
    Definition::leaf("dst-protocol", &NETWORK_INSTANCE, PROTOCOL),
    Definition::leaf("disable-metric-propagation", &NETWORK_INSTANCE, Type::Bool),
    Definition::leaf(
        "default-import-policy",
        &NETWORK_INSTANCE,
        Type::Enum(&["ACCEPT_ROUTE", "REJECT_ROUTE"]),
    ),
];

/// Content of `network-instance`: `interfaces`.
pub(super) const MEMBERS: &[Definition] = &[Definition::list("interface", &NETWORK_INSTANCE, 1, MEMBER)];

pub(super) const MEMBER: &[Definition] = &[
    Definition::leaf("id", &NETWORK_INSTANCE, TEXT),
    Definition::container("config", &NETWORK_INSTANCE, MEMBER_CONFIG),
    Definition::mirror(&NETWORK_INSTANCE, MEMBER_CONFIG),
];

pub(super) const MEMBER_CONFIG: &[Definition] = &[
    Definition::leaf("id", &NETWORK_INSTANCE, TEXT),
    Definition::leaf("interface", &NETWORK_INSTANCE, TEXT),
    Definition::leaf("subinterface", &NETWORK_INSTANCE, Type::Uint(0, 4_294_967_295)),
];

/// Content of `network-instance`: `tables`. The system makes them with their protocols; their configuration has no
/// effect.
pub(super) const TABLES: &[Definition] = &[Definition::list("table", &NETWORK_INSTANCE, 2, TABLE)];

pub(super) const TABLE: &[Definition] = &[
    Definition::leaf("protocol", &NETWORK_INSTANCE, PROTOCOL),
    Definition::leaf("address-family", &NETWORK_INSTANCE, FAMILY),
    Definition::container("config", &NETWORK_INSTANCE, TABLE_CONFIG),
    Definition::mirror(&NETWORK_INSTANCE, TABLE_CONFIG),
];

pub(super) const TABLE_CONFIG: &[Definition] = &[
    Definition::leaf("protocol", &NETWORK_INSTANCE, PROTOCOL),
    Definition::leaf("address-family", &NETWORK_INSTANCE, FAMILY),
];

/// Content of `network-instance`: `protocols`.
pub(super) const PROTOCOLS: &[Definition] =
    &[Definition::list("protocol", &NETWORK_INSTANCE, 2, PROTOCOL_ENTRY)];

pub(super) const PROTOCOL_ENTRY: &[Definition] = &[
    Definition::leaf("identifier", &NETWORK_INSTANCE, PROTOCOL),
    Definition::leaf("name", &NETWORK_INSTANCE, TEXT),
    Definition::container("config", &NETWORK_INSTANCE, PROTOCOL_CONFIG),
    Definition::mirror(&NETWORK_INSTANCE, PROTOCOL_CONFIG),
    Definition::container("static-routes", &NETWORK_INSTANCE, STATIC_ROUTES),
    Definition::container("bgp", &NETWORK_INSTANCE, super::bgp::BGP),
];

pub(super) const PROTOCOL_CONFIG: &[Definition] = &[
    Definition::leaf("identifier", &NETWORK_INSTANCE, PROTOCOL),
    Definition::leaf("name", &NETWORK_INSTANCE, TEXT),
    Definition::leaf("enabled", &NETWORK_INSTANCE, Type::Bool),
];

pub(super) const STATIC_ROUTES: &[Definition] =
    &[Definition::list("static", &NETWORK_INSTANCE, 1, STATIC_ROUTE)];

pub(super) const STATIC_ROUTE: &[Definition] = &[
    Definition::leaf("prefix", &NETWORK_INSTANCE, Type::Restricted(&IP_PREFIX)),
    Definition::container("config", &NETWORK_INSTANCE, STATIC_ROUTE_CONFIG),
    Definition::mirror(&NETWORK_INSTANCE, STATIC_ROUTE_CONFIG),
    Definition::container("next-hops", &NETWORK_INSTANCE, NEXT_HOPS),
];

pub(super) const STATIC_ROUTE_CONFIG: &[Definition] = &[
    Definition::leaf("prefix", &NETWORK_INSTANCE, Type::Restricted(&IP_PREFIX)),
    Definition::leaf("description", &NETWORK_INSTANCE, TEXT),
];

pub(super) const NEXT_HOPS: &[Definition] = &[Definition::list("next-hop", &NETWORK_INSTANCE, 1, NEXT_HOP)];

pub(super) const NEXT_HOP: &[Definition] = &[
    Definition::leaf("index", &NETWORK_INSTANCE, TEXT),
    Definition::container("config", &NETWORK_INSTANCE, NEXT_HOP_CONFIG),
    Definition::mirror(&NETWORK_INSTANCE, NEXT_HOP_CONFIG),
];

pub(super) const NEXT_HOP_CONFIG: &[Definition] = &[
    Definition::leaf("index", &NETWORK_INSTANCE, TEXT),
    Definition::leaf("next-hop", &NETWORK_INSTANCE, Type::Restricted(&IP_ADDRESS)),
    Definition::leaf("metric", &NETWORK_INSTANCE, Type::Uint(0, 4_294_967_295)),
    Definition::leaf("preference", &NETWORK_INSTANCE, Type::Uint(0, 4_294_967_295)),
];

/// The sub-interfaces of an interface, by index.
pub(super) fn subinterfaces(interface: &Container) -> impl Iterator<Item = (u64, &Container)> {
    list(child(interface, INTERFACE, "subinterfaces"), SUBINTERFACES, "subinterface")
        .into_iter()
        .flatten()
        .filter_map(|(key, entry)| Some((key.first()?.number()?, &**entry)))
}

/// The VLAN of the frames that a sub-interface accepts.
pub(super) fn tag(subinterface: &Container) -> Option<u16> {
    let matched = child(child(subinterface, SUBINTERFACE, "vlan")?, SUBINTERFACE_VLAN, "match")?;
    let config = child(child(matched, MATCH, "single-tagged")?, SINGLE_TAGGED, "config")?;
    leaf(config, SINGLE_TAGGED_CONFIG, "vlan-id")?.vlans().next()
}

/// Each network instance that is an `L3VRF`, by name.
pub(super) fn vrf_instances(config: &Container) -> impl Iterator<Item = (&str, &Container)> {
    instances(config).filter(|(_, instance)| {
        child(instance, INSTANCE, "config").is_some_and(|c| leaf_is(c, INSTANCE_CONFIG, "type", "L3VRF"))
    })
}

/// The members of a network instance: id, interface and sub-interface.
pub(super) fn members(instance: &Container) -> impl Iterator<Item = (&str, Option<&str>, Option<u64>)> {
    entries(child(instance, INSTANCE, "interfaces"), MEMBERS, "interface").map(|(id, member)| {
        let config = child(member, MEMBER, "config");
        let interface = config.and_then(|c| text(c, MEMBER_CONFIG, "interface"));
        let index = config.and_then(|c| leaf(c, MEMBER_CONFIG, "subinterface")?.number());
        (id, interface, index)
    })
}

/// The VRFs of a configuration.
pub(super) fn vrfs(config: &Container) -> BTreeMap<String, VrfView> {
    if vrf_instances(config).next().is_none() {
        return BTreeMap::new();
    }
    let by_name: BTreeMap<&str, &Container> = interfaces(config).collect();
    let view = |instance| {
        let routed = members(instance).filter_map(|(_, interface, index)| {
            let interface = interface?;
            routed_interface(interface, by_name.get(interface)?, index)
        });
        let leaf = |name| child(instance, INSTANCE, "config").and_then(|c| text(c, INSTANCE_CONFIG, name));
        VrfView {
            description: leaf("description").map(str::to_owned),
            route_distinguisher: leaf("route-distinguisher").map(str::to_owned),
            import_targets: targets(instance, "import-route-target"),
            export_targets: targets(instance, "export-route-target"),
            exports: exports(instance),
            interfaces: routed.collect(),
            routes: static_routes(instance),
        }
    };
    vrf_instances(config).map(|(name, instance)| (name.to_owned(), view(instance))).collect()
}

fn targets(instance: &Container, name: &str) -> Vec<String> {
    let config = child(instance, INSTANCE, "inter-instance-policies")
        .and_then(|policies| child(policies, POLICIES, "import-export-policy"))
        .and_then(|policy| child(policy, TARGETS_CONTENT, "config"));
    let values = config.and_then(|config| config.leaf_list(position(TARGETS, name)));
    let plain = |text: &str| text.strip_prefix("route-target:").unwrap_or(text).to_owned();
    values.into_iter().flatten().filter_map(Value::text).map(plain).collect()
}

fn exports(instance: &Container) -> BTreeSet<String> {
    let connections =
        list(child(instance, INSTANCE, "table-connections"), TABLE_CONNECTIONS, "table-connection");
    let to_bgp = connections.into_iter().flatten().filter(|(key, _)| key[1].is("BGP"));
    let source = |protocol: &Value| if protocol.is("STATIC") { "static" } else { "connected" };
    to_bgp.map(|(key, _)| source(&key[0]).to_owned()).collect()
}

/// The name and the view of a member: a sub-interface, or an interface that routes for a VLAN.
fn routed_interface(name: &str, interface: &Container, index: Option<u64>) -> Option<(String, RoutedView)> {
    let config = child(interface, INTERFACE, "config");
    let disabled = config.is_some_and(|c| leaf_is(c, super::INTERFACE_CONFIG, "enabled", "false"));
    if kind(interface).is_some_and(|kind| kind.is(L3_VLAN.name)) {
        let routed = child(interface, INTERFACE, "routed-vlan")?;
        let vlan = child(routed, ROUTED_VLAN, "config")
            .and_then(|config| leaf(config, ROUTED_VLAN_CONFIG, "vlan")?.vlans().next());
        let description = config.and_then(|c| text(c, super::INTERFACE_CONFIG, "description"));
        let view = RoutedView { port: None, vlan, ..addressed(routed, ROUTED_VLAN, description, disabled) };
        return Some((name.to_owned(), view));
    }
    let index = index.unwrap_or_default();
    let subinterfaces = list(child(interface, INTERFACE, "subinterfaces"), SUBINTERFACES, "subinterface")?;
    let sub = subinterfaces.get(&[Value::Uint(index)][..])?;
    let config = child(sub, SUBINTERFACE, "config");
    let disabled = disabled || config.is_some_and(|c| leaf_is(c, SUBINTERFACE_CONFIG, "enabled", "false"));
    let description = config.and_then(|c| text(c, SUBINTERFACE_CONFIG, "description"));
    let view = addressed(sub, SUBINTERFACE, description, disabled);
    Some((format!("{name}.{index}"), RoutedView { port: Some(name.to_owned()), vlan: tag(sub), ..view }))
}

/// The addresses and the MTU below a sub-interface or a routed VLAN.
fn addressed(
    holder: &Container,
    definitions: Definitions,
    description: Option<&str>,
    disabled: bool,
) -> RoutedView {
    let families = [
        ("ipv4", IPV4_CONTENT, IPV4_CONFIG, IPV4_ADDRESSES, IPV4_ENTRY, IPV4_ENTRY_CONFIG),
        ("ipv6", IPV6_CONTENT, IPV6_CONFIG, IPV6_ADDRESSES, IPV6_ENTRY, IPV6_ENTRY_CONFIG),
    ];
    let (mut addresses, mut mtu) = (Vec::new(), None);
    for (family, content, config, list_of, entry, entry_config) in families {
        let Some(family) = child(holder, definitions, family) else { continue };
        let own = child(family, content, "config").and_then(|c| leaf(c, config, "mtu")?.number());
        mtu = mtu.or(own.and_then(|mtu| u16::try_from(mtu).ok()));
        for (ip, address) in entries(child(family, content, "addresses"), list_of, "address") {
            let length = child(address, entry, "config").and_then(|c| leaf(c, entry_config, "prefix-length"));
            addresses.extend(length.and_then(|length| format!("{ip}/{length}").parse::<IpNet>().ok()));
        }
    }
    addresses.sort_unstable();
    RoutedView {
        description: description.map(str::to_owned),
        addresses,
        mtu,
        disabled,
        ..RoutedView::default()
    }
}

fn static_routes(instance: &Container) -> Vec<RouteView> {
    let mut routes = Vec::new();
    let protocols = list(child(instance, INSTANCE, "protocols"), PROTOCOLS, "protocol");
    for (_, protocol) in protocols.into_iter().flatten() {
        for (prefix, route) in
            entries(child(protocol, PROTOCOL_ENTRY, "static-routes"), STATIC_ROUTES, "static")
        {
            for (_, hop) in entries(child(route, STATIC_ROUTE, "next-hops"), NEXT_HOPS, "next-hop") {
                let config = child(hop, NEXT_HOP, "config");
                let next_hop = config.and_then(|c| text(c, NEXT_HOP_CONFIG, "next-hop")?.parse().ok());
                let preference = config.and_then(|c| leaf(c, NEXT_HOP_CONFIG, "preference")?.number());
                let preference = preference.and_then(|preference| u32::try_from(preference).ok());
                let (Ok(prefix), Some(next_hop)) = (prefix.parse(), next_hop) else { continue };
                routes.push(RouteView { prefix, next_hop, preference });
            }
        }
    }
    routes.sort_unstable();
    routes
}
