//! Nokia SR Linux (srlinux-yang-models 24.7). The model has no VLANs: a port has bridged subinterfaces, each with
//! an encapsulation, and a `mac-vrf` joins subinterfaces.
//!
//! The simulator treats a `mac-vrf` as a VLAN. Its id is that of its tagged subinterfaces, else the index of its
//! untagged ones, else the number in its description `VLAN n`. A real device would join subinterfaces with different
//! ids in one `mac-vrf`; the data plane keeps them apart. A subinterface of `irb1` may be in a `mac-vrf`, whose VLAN
//! it then routes, and in an `ip-vrf`.

mod bgp;
mod bgp_checks;
mod bgp_state;
mod checks;
mod console;
mod mac_table;
mod policy;
mod vrf;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::bgp_sessions::{BgpSupport, Shown};
use crate::dialect::accessors::{
    bare_ports, child, entries, leaf, leaf_is, list, module, parse_configuration, set_leaf, text, text_value,
    xml_escaped,
};
use crate::dialect::view::{PortMode, View, VlanView};
use crate::dialect::{Dialect, Hardware};
use crate::mac_table::MacTable;
use crate::model::schema::{Definition, Definitions, Identity, Module, position};
use crate::model::tree::{Container, Entries};
use crate::model::value::{StringRule, Type, Value};
use crate::netconf::error::PathStyle;

/// The SR Linux dialect.
pub static SRLINUX: Dialect = Dialect {
    name: "srlinux",
    modules: &[
        &INTERFACES,
        &VLANS,
        &LAG,
        &NETWORK_INSTANCE_MODULE,
        &vrf::BGP_VPN,
        &vrf::STATIC_ROUTES_MODULE,
        &vrf::NEXT_HOP_GROUPS_MODULE,
        &mac_table::MAC_TABLE,
        &bgp::BGP_MODULE,
        &bgp::BFD_MODULE,
        &bgp::COMMON,
        &policy::ROUTING_POLICY,
    ],
    capability_uris: &[],
    error_path_style: PathStyle::XPath,
    port_name: |n| format!("ethernet-1/{n}"),
    roots: ROOTS,
    factory,
    check: checks::check,
    operational,
    view,
    mac_table: MacTable::State(mac_table::add),
    bgp: Some(BgpSupport { instances: bgp::instances, shown: Shown::State(bgp_state::add) }),
    hand_edit_xml: console::hand_edit_xml,
};

const REVISION: &str = "2024-07-31";
static INTERFACES: Module =
    module("srl_nokia-interfaces", "srl_nokia-if", "urn:nokia.com:srlinux:chassis:interfaces", REVISION);
static VLANS: Module = module(
    "srl_nokia-interfaces-vlans",
    "srl_nokia-if-vlan",
    "urn:nokia.com:srlinux:chassis:interfaces-vlans",
    REVISION,
);
static LAG: Module = module(
    "srl_nokia-interfaces-lag",
    "srl_nokia-if-lag",
    "urn:nokia.com:srlinux:lag:interfaces-lag",
    REVISION,
);
static NETWORK_INSTANCE_MODULE: Module = module(
    "srl_nokia-network-instance",
    "srl_nokia-netinst",
    "urn:nokia.com:srlinux:net-inst:network-instance",
    REVISION,
);

static BRIDGED: Identity = Identity { module: &INTERFACES, name: "bridged" };
static ROUTED: Identity = Identity { module: &INTERFACES, name: "routed" };
static MAC_VRF: Identity = Identity { module: &NETWORK_INSTANCE_MODULE, name: "mac-vrf" };
static IP_VRF: Identity = Identity { module: &NETWORK_INSTANCE_MODULE, name: "ip-vrf" };
static DEFAULT: Identity = Identity { module: &NETWORK_INSTANCE_MODULE, name: "default" };

const SUBINTERFACE_TYPES: &[&Identity] = &[&BRIDGED, &ROUTED];

const INSTANCE_TYPES: &[&Identity] = &[&MAC_VRF, &IP_VRF, &DEFAULT];

/// The type `interface-all`: ports, LAGs, loopbacks, IRB and management.
static INTERFACE_NAME: StringRule = StringRule {
    length: (3, 20),
    matches: is_interface,
    expected: "the name of an interface such as ethernet-1/1 or lag1",
};
/// The type `restricted-name`.
static INSTANCE_NAME: StringRule = StringRule {
    length: (1, 247),
    matches: is_restricted,
    expected: "a name without control characters, slash or quotes",
};
static DESCRIPTION: StringRule =
    StringRule { length: (1, 255), matches: |_| true, expected: "a description" };
static SUBINTERFACE_NAME: StringRule =
    StringRule { length: (1, 255), matches: |_| true, expected: "the name of a subinterface" };

const ADMIN_STATE: Type = Type::Enum(&["enable", "disable"]);
const OPER_STATE: Type = Type::Enum(&["up", "down"]);

static ROOTS: &[Definition] = &[
    Definition::list("interface", &INTERFACES, 1, INTERFACE),
    Definition::list("network-instance", &NETWORK_INSTANCE_MODULE, 1, INSTANCE),
    Definition::container("routing-policy", &policy::ROUTING_POLICY, policy::POLICY),
    Definition::presence("bfd", &bgp::BFD_MODULE, bgp::BFD),
];

const INTERFACE: &[Definition] = &[
    Definition::leaf("name", &INTERFACES, Type::Restricted(&INTERFACE_NAME)),
    Definition::leaf("description", &INTERFACES, Type::Restricted(&DESCRIPTION)),
    Definition::leaf("admin-state", &INTERFACES, ADMIN_STATE),
    Definition::leaf("mtu", &INTERFACES, Type::Uint(1500, 9500)),
    Definition::state_leaf("oper-state", &INTERFACES, OPER_STATE),
    Definition::container("ethernet", &INTERFACES, ETHERNET),
    Definition::list("subinterface", &INTERFACES, 1, SUBINTERFACE),
    Definition::leaf("vlan-tagging", &VLANS, Type::Bool),
    Definition::container("lag", &LAG, LAG_CONTENT),
];

const ETHERNET: &[Definition] =
    &[Definition::leaf("aggregate-id", &INTERFACES, Type::Restricted(&INTERFACE_NAME))];

const LAG_CONTENT: &[Definition] = &[
    Definition::leaf("lag-type", &LAG, Type::Enum(&["lacp", "static"])),
    Definition::leaf("min-links", &LAG, Type::Uint(0, 64)),
];

const SUBINTERFACE: &[Definition] = &[
    Definition::leaf("index", &INTERFACES, Type::Uint(0, 9999)),
    Definition::leaf("type", &INTERFACES, Type::Identity(SUBINTERFACE_TYPES)),
    Definition::leaf("description", &INTERFACES, Type::Restricted(&DESCRIPTION)),
    Definition::leaf("admin-state", &INTERFACES, ADMIN_STATE),
    Definition::leaf("l2-mtu", &INTERFACES, Type::Uint(1500, 9500)),
    Definition::leaf("ip-mtu", &INTERFACES, Type::Uint(1280, 9486)),
    Definition::container("ipv4", &INTERFACES, vrf::IPV4),
    Definition::container("ipv6", &INTERFACES, vrf::IPV6),
    Definition::state_leaf("name", &INTERFACES, Type::Text { max_length: 25 }),
    Definition::state_leaf("oper-state", &INTERFACES, OPER_STATE),
    Definition::container("vlan", &VLANS, VLAN),
];

const VLAN: &[Definition] = &[Definition::container("encap", &VLANS, ENCAP)];

const ENCAP: &[Definition] = &[
    Definition::presence("single-tagged", &VLANS, SINGLE_TAGGED),
    Definition::presence("untagged", &VLANS, &[]),
];

const SINGLE_TAGGED: &[Definition] = &[Definition::leaf("vlan-id", &VLANS, Type::Uint(1, 4094))];

const INSTANCE: &[Definition] = &[
    Definition::leaf("name", &NETWORK_INSTANCE_MODULE, Type::Restricted(&INSTANCE_NAME)),
    Definition::leaf("type", &NETWORK_INSTANCE_MODULE, Type::Identity(INSTANCE_TYPES)),
    Definition::leaf("admin-state", &NETWORK_INSTANCE_MODULE, ADMIN_STATE),
    Definition::state_leaf("oper-state", &NETWORK_INSTANCE_MODULE, OPER_STATE),
    Definition::leaf("description", &NETWORK_INSTANCE_MODULE, Type::Restricted(&DESCRIPTION)),
    Definition::list("interface", &NETWORK_INSTANCE_MODULE, 1, ATTACHED),
    Definition::container("protocols", &NETWORK_INSTANCE_MODULE, vrf::PROTOCOLS),
    Definition::container("static-routes", &vrf::STATIC_ROUTES_MODULE, vrf::STATIC_ROUTES),
    Definition::container("next-hop-groups", &vrf::NEXT_HOP_GROUPS_MODULE, vrf::NEXT_HOP_GROUPS),
    mac_table::DEFINITION,
];

const ATTACHED: &[Definition] = &[
    Definition::leaf("name", &NETWORK_INSTANCE_MODULE, Type::Restricted(&SUBINTERFACE_NAME)),
    Definition::state_leaf("oper-state", &NETWORK_INSTANCE_MODULE, OPER_STATE),
];

fn is_interface(text: &str) -> bool {
    let number = |text: &str, low: u16, high: u16| {
        let plain = !text.starts_with('0') || text == "0";
        plain && text.parse().is_ok_and(|n: u16| (low..=high).contains(&n))
    };
    if let Some(rest) = text.strip_prefix("ethernet-") {
        let parts: Vec<&str> = rest.split('/').collect();
        return (2..=4).contains(&parts.len())
            && number(parts[0], 1, 99)
            && parts.last().is_some_and(|port| number(port, 1, 128));
    }
    let numbered = |prefix: &str, low, high| text.strip_prefix(prefix).is_some_and(|n| number(n, low, high));
    matches!(text, "mgmt0" | "mgmt0-standby" | "system0")
        || numbered("lag", 1, 1000)
        || numbered("lo", 0, 255)
        || numbered("irb", 0, 255)
}

fn is_restricted(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "!@#$%^&()|+=`~.,_:;?-".contains(c);
    text.starts_with(plain) && text.chars().all(|c| plain(c) || c == ' ')
}

/// The factory configuration: management, and every port enabled without subinterfaces.
fn factory(hardware: &Hardware) -> Container {
    let mut xml = String::new();
    let open = format!("<interface xmlns=\"{}\">", INTERFACES.namespace);
    // Writing to a String can't fail; hence the discarded results.
    let _ = write!(
        xml,
        "{open}<name>mgmt0</name><admin-state>enable</admin-state><subinterface><index>0</index>\
         <admin-state>enable</admin-state></subinterface></interface>"
    );
    for port in &hardware.ports {
        let _ = write!(xml, "{open}<name>{}</name><admin-state>enable</admin-state>", xml_escaped(port));
        if let Some(lag) = hardware.lag_of(port) {
            let _ = write!(xml, "<ethernet><aggregate-id>{}</aggregate-id></ethernet>", xml_escaped(lag));
        }
        xml.push_str("</interface>");
    }
    for lag in hardware.lags.keys() {
        let _ = write!(
            xml,
            "{open}<name>{}</name><admin-state>enable</admin-state><lag xmlns=\"{}\"><lag-type>lacp</lag-type></lag>\
             </interface>",
            xml_escaped(lag),
            LAG.namespace
        );
    }
    let _ = write!(
        xml,
        "<network-instance xmlns=\"{ns}\"><name>mgmt</name><type xmlns:t=\"{ns}\">t:ip-vrf</type>\
         <admin-state>enable</admin-state><interface><name>mgmt0.0</name></interface></network-instance>",
        ns = NETWORK_INSTANCE_MODULE.namespace
    );
    parse_configuration(ROOTS, &xml)
}

fn interfaces(config: &Container) -> impl Iterator<Item = (&str, &Container)> {
    entries(Some(config), ROOTS, "interface")
}

fn instances(config: &Container) -> impl Iterator<Item = (&str, &Container)> {
    entries(Some(config), ROOTS, "network-instance")
}

fn is_mac_vrf(instance: &Container) -> bool {
    leaf_is(instance, INSTANCE, "type", "mac-vrf")
}

fn is_enabled(container: &Container, definitions: Definitions) -> bool {
    !leaf_is(container, definitions, "admin-state", "disable")
}

/// The frames that a subinterface accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Encap {
    /// Frames of one VLAN.
    Tagged(u16),
    /// Frames without a tag.
    Untagged,
    /// All frames: the port has no VLAN tagging.
    Plain,
}

/// The switching properties of a subinterface.
#[derive(Debug, Clone, Copy)]
struct Subinterface<'a> {
    port: &'a str,
    index: u16,
    /// `None` if it lacks the encapsulation that the port requires; it then carries no traffic.
    encap: Option<Encap>,
    bridged: bool,
    enabled: bool,
    /// Its node.
    node: &'a Container,
}

impl Subinterface<'_> {
    fn name(&self) -> String {
        format!("{}.{}", self.port, self.index)
    }

    fn is_irb(&self) -> bool {
        self.port.starts_with("irb")
    }
}

fn subinterfaces<'a>(port: &'a str, interface: &'a Container) -> impl Iterator<Item = Subinterface<'a>> {
    let tagging = leaf_is(interface, INTERFACE, "vlan-tagging", "true");
    list(Some(interface), INTERFACE, "subinterface").into_iter().flatten().map(move |(key, sub)| {
        let encap = child(sub, SUBINTERFACE, "vlan").and_then(|vlan| child(vlan, VLAN, "encap"));
        let tagged = encap
            .and_then(|encap| child(encap, ENCAP, "single-tagged"))
            .and_then(|tagged| leaf(tagged, SINGLE_TAGGED, "vlan-id")?.vlans().next());
        let untagged = encap.is_some_and(|encap| child(encap, ENCAP, "untagged").is_some());
        Subinterface {
            port,
            index: key.first().and_then(|v| u16::try_from(v.number()?).ok()).unwrap_or_default(),
            encap: match (tagged, untagged) {
                (Some(id), _) => Some(Encap::Tagged(id)),
                (None, true) => Some(Encap::Untagged),
                (None, false) => (!tagging).then_some(Encap::Plain),
            },
            bridged: leaf_is(sub, SUBINTERFACE, "type", "bridged"),
            enabled: is_enabled(sub, SUBINTERFACE),
            node: sub,
        }
    })
}

fn attached_subinterfaces(instance: &Container) -> impl Iterator<Item = &str> {
    entries(Some(instance), INSTANCE, "interface").map(|(name, _)| name)
}

fn all_subinterfaces(config: &Container) -> BTreeMap<String, Subinterface<'_>> {
    interfaces(config)
        .flat_map(|(name, interface)| subinterfaces(name, interface))
        .map(|sub| (sub.name(), sub))
        .collect()
}

/// The VLAN id of a `mac-vrf`; see the module's documentation.
fn vlan_of(instance: &Container, subs: &BTreeMap<String, Subinterface<'_>>) -> Option<u16> {
    let members: Vec<&Subinterface<'_>> =
        attached_subinterfaces(instance).filter_map(|name| subs.get(name)).collect();
    let tagged = members.iter().find_map(|sub| match sub.encap {
        Some(Encap::Tagged(id)) => Some(id),
        _ => None,
    });
    let index = members
        .iter()
        .filter(|sub| !sub.is_irb())
        .chain(members.iter().filter(|sub| sub.is_irb()))
        .map(|sub| sub.index)
        .find(|index| (1..=4094).contains(index));
    let described = || text(instance, INSTANCE, "description")?.strip_prefix("VLAN ")?.parse().ok();
    tagged.or(index).or_else(described).filter(|id| (1..=4094).contains(id))
}

fn view(running: &Container, hardware: &Hardware) -> View {
    let subs = all_subinterfaces(running);
    let mut vlans = BTreeMap::new();
    let mut vlan_of_sub: BTreeMap<&str, u16> = BTreeMap::new();
    for (name, instance) in instances(running).filter(|(_, instance)| is_mac_vrf(instance)) {
        let Some(id) = vlan_of(instance, &subs) else { continue };
        let enabled = is_enabled(instance, INSTANCE);
        let status = if enabled { "ACTIVE" } else { "SUSPENDED" };
        vlans.insert(id, VlanView { name: Some(name.to_owned()), status: status.to_owned() });
        for sub in attached_subinterfaces(instance) {
            vlan_of_sub.insert(sub, id);
        }
    }
    let mut ports = bare_ports(hardware);
    for (name, interface) in interfaces(running) {
        if !ports.contains_key(name) && !name.starts_with("lag") {
            continue;
        }
        let port = ports.entry(name.to_owned()).or_default();
        port.lag = child(interface, INTERFACE, "ethernet")
            .and_then(|ethernet| text(ethernet, ETHERNET, "aggregate-id"))
            .map(str::to_owned);
        port.disabled = !is_enabled(interface, INTERFACE);
        let (mut tagged, mut carried, mut untagged) = (Vec::new(), Vec::new(), None);
        for sub in subinterfaces(name, interface).filter(|sub| sub.bridged && sub.enabled) {
            let vlan = vlan_of_sub.get(&*sub.name()).copied();
            let active = |id: u16| vlans.get(&id).is_some_and(|vlan| vlan.status == "ACTIVE");
            match sub.encap {
                Some(Encap::Tagged(id)) => {
                    tagged.push(id);
                    carried.extend(vlan.is_some_and(active).then_some(id));
                }
                Some(Encap::Untagged | Encap::Plain) => {
                    untagged = Some(vlan);
                    carried.extend(vlan.filter(|id| active(*id)));
                }
                None => {}
            }
        }
        let untagged_vlan = untagged.flatten();
        if tagged.is_empty() {
            port.mode = untagged.map(|_| PortMode::Access);
            port.access = untagged_vlan;
        } else {
            port.mode = Some(PortMode::Trunk);
            port.native = untagged_vlan;
        }
        port.configured = tagged.into_iter().chain(untagged_vlan).collect();
        port.vlans = carried.into_iter().collect();
    }
    let vrfs = vrf::vrfs(running, &vlan_of_sub);
    View { vlans, ports, vrfs, bgp: bgp::instances(running) }
}

/// Adds state data to running: the status of interfaces, subinterfaces and network instances.
fn operational(running: &Container, hardware: &Hardware) -> Container {
    let mut data = running.clone();
    let state = |enabled: bool| Value::Keyword(if enabled { "up" } else { "down" });
    let subs = all_subinterfaces(running);
    let used: std::collections::BTreeSet<&str> =
        instances(running).flat_map(|(_, i)| attached_subinterfaces(i)).collect();
    let each = |entries: &mut Entries, work: &mut dyn FnMut(&str, &mut Container)| {
        for (key, entry) in entries.iter_mut() {
            let name = key.first().map(ToString::to_string).unwrap_or_default();
            work(&name, std::sync::Arc::make_mut(entry));
        }
    };
    data.modify_list(position(ROOTS, "interface"), |entries| {
        for port in &hardware.ports {
            let entry = entries.entry([text_value(port)].into()).or_default();
            set_leaf(std::sync::Arc::make_mut(entry), INTERFACE, "name", text_value(port));
        }
        each(entries, &mut |name, interface| {
            let up = is_enabled(interface, INTERFACE);
            set_leaf(interface, INTERFACE, "oper-state", state(up));
            interface.modify_list(position(INTERFACE, "subinterface"), |entries| {
                each(entries, &mut |index, sub| {
                    let full = format!("{name}.{index}");
                    let up = up && is_enabled(sub, SUBINTERFACE) && used.contains(&*full);
                    set_leaf(sub, SUBINTERFACE, "name", text_value(&full));
                    set_leaf(sub, SUBINTERFACE, "oper-state", state(up));
                });
            });
        });
    });
    data.modify_list(position(ROOTS, "network-instance"), |entries| {
        each(entries, &mut |_, instance| {
            let up = is_enabled(instance, INSTANCE);
            set_leaf(instance, INSTANCE, "oper-state", state(up));
            instance.modify_list(position(INSTANCE, "interface"), |entries| {
                each(entries, &mut |name, entry| {
                    let up = up && subs.get(name).is_some_and(|sub| sub.enabled && sub.encap.is_some());
                    set_leaf(entry, ATTACHED, "oper-state", state(up));
                });
            });
        });
    });
    data
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::tests::assert_refused;

    const SRL_IF: &str = "urn:nokia.com:srlinux:chassis:interfaces";
    const SRL_VLANS: &str = "urn:nokia.com:srlinux:chassis:interfaces-vlans";
    const SRL_NI: &str = "urn:nokia.com:srlinux:net-inst:network-instance";

    fn srl_port(tagging: &str, subs: &[(u16, &str)]) -> String {
        let sub = |(index, encap): &(u16, &str)| {
            format!(
                "<subinterface><index>{index}</index><type xmlns:t=\"{SRL_IF}\">t:bridged</type>\
                 <vlan xmlns=\"{SRL_VLANS}\"><encap>{encap}</encap></vlan></subinterface>"
            )
        };
        let subs = subs.iter().map(sub).collect::<Vec<_>>().concat();
        format!(
            "<interface xmlns=\"{SRL_IF}\"><name>ethernet-1/1</name>\
             <vlan-tagging xmlns=\"{SRL_VLANS}\">{tagging}</vlan-tagging>{subs}</interface>"
        )
    }

    fn mac_vrf(name: &str, sub: &str) -> String {
        format!(
            "<network-instance xmlns=\"{SRL_NI}\"><name>{name}</name><type xmlns:t=\"{SRL_NI}\">t:mac-vrf</type>\
             <interface><name>{sub}</name></interface></network-instance>"
        )
    }

    #[test]
    fn srlinux_refuses_must_and_leafref_violations() {
        let tagged = |id: u16| format!("<single-tagged><vlan-id>{id}</vlan-id></single-tagged>");
        let untagged = "<untagged/>";
        let sub = "ethernet-1/1.5";
        let cases = [
            ("accepted", srl_port("true", &[(5, &tagged(5)), (6, untagged)]) + &mac_vrf("v5", sub), None),
            ("accepted: unused", srl_port("true", &[(5, &tagged(5))]), None),
            ("no such subinterface", mac_vrf("v5", sub), Some("ethernet-1/1.5 does not exist")),
            (
                "tagged without tagging",
                srl_port("false", &[(5, &tagged(5))]),
                Some("vlan-id only configurable if"),
            ),
            (
                "untagged without tagging",
                srl_port("false", &[(5, untagged)]),
                Some("untagged only configurable if"),
            ),
            ("two without tagging", srl_port("false", &[(5, ""), (6, "")]), Some("at most 1 subinterfaces")),
            (
                "a VLAN id twice",
                srl_port("true", &[(5, &tagged(5)), (6, &tagged(5))]),
                Some("vlan-id 5 is used"),
            ),
            (
                "both",
                srl_port("true", &[(5, &(tagged(5) + untagged))]),
                Some("cannot be configured together"),
            ),
            (
                "in two network instances",
                srl_port("true", &[(5, &tagged(5))]) + &mac_vrf("a", sub) + &mac_vrf("b", sub),
                Some("is used in network-instance a"),
            ),
            (
                "routed in a mac-vrf",
                format!(
                    "<interface xmlns=\"{SRL_IF}\"><name>ethernet-1/1</name><subinterface><index>5</index></subinterface>\
                     </interface>{}",
                    mac_vrf("a", sub)
                ),
                Some("must be of type bridged"),
            ),
            (
                "no such port",
                format!("<interface xmlns=\"{SRL_IF}\"><name>ethernet-1/99</name></interface>"),
                Some("does not exist on this platform"),
            ),
            (
                "tagging on a link of lag1",
                srl_port("true", &[]).replace("ethernet-1/1", "ethernet-1/3"),
                Some("vlan-tagging and aggregate-id"),
            ),
        ];
        assert_refused(&SRLINUX, &cases);
    }
}
