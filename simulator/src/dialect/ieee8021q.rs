//! IEEE 802.1Q bridges (ieee802-dot1q-bridge 2023-10-26 over ietf-interfaces): static VLAN registration entries
//! that map ports by number. Their key is the set of VLAN ids itself, in ranges.
//!
//! Ports are numbered by the hardware: in the order of the topology, then its link aggregations. The number is
//! state, `bridge-port/port-number`. A VLAN id is in at most one registration entry (IEEE Std 802.1Q clause
//! 8.8.2: one entry per VID).

mod checks;
mod console;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::dialect::accessors::{
    child, entries, leaf, leaf_is, list, module, parse_configuration, set_leaf, text, text_value, vlan_set,
    xml_escaped,
};
use crate::dialect::view::{PortMode, PortView, View, VlanSet, VlanView};
use crate::dialect::{Dialect, Hardware};
use crate::mac_table::MacTable;
use crate::model::schema::{Definition, Identity, Module, position};
use crate::model::tree::{Container, Node};
use crate::model::value::{Type, Value};
use crate::netconf::error::PathStyle;

/// The IEEE 802.1Q dialect.
pub static IEEE8021Q: Dialect = Dialect {
    name: "ieee8021q",
    modules: &[&IF, &IANA_IF_TYPE, &DOT1Q, &DOT1Q_TYPES, &IEEE_TYPES],
    capability_uris: &[],
    error_path_style: PathStyle::XPath,
    port_name: |n| format!("eth{n}"),
    roots: ROOTS,
    factory,
    check: checks::check,
    operational,
    view,
    mac_table: MacTable::Hidden,
    bgp: None,
    hand_edit_xml: console::hand_edit_xml,
};

static IF: Module =
    module("ietf-interfaces", "if", "urn:ietf:params:xml:ns:yang:ietf-interfaces", "2018-02-20");
static IANA_IF_TYPE: Module =
    module("iana-if-type", "ianaift", "urn:ietf:params:xml:ns:yang:iana-if-type", "2023-01-26");
static DOT1Q: Module =
    module("ieee802-dot1q-bridge", "dot1q", "urn:ieee:std:802.1Q:yang:ieee802-dot1q-bridge", "2023-10-26");
static DOT1Q_TYPES: Module = module(
    "ieee802-dot1q-types",
    "dot1q-types",
    "urn:ieee:std:802.1Q:yang:ieee802-dot1q-types",
    "2023-10-26",
);
static IEEE_TYPES: Module =
    module("ieee802-types", "ieee", "urn:ieee:std:802.1Q:yang:ieee802-types", "2023-10-22");

static ETHERNET_CSMACD: Identity = Identity { module: &IANA_IF_TYPE, name: "ethernetCsmacd" };
static LAG: Identity = Identity { module: &IANA_IF_TYPE, name: "ieee8023adLag" };
static CUSTOMER_VLAN_BRIDGE: Identity = Identity { module: &DOT1Q, name: "customer-vlan-bridge" };
static PROVIDER_BRIDGE: Identity = Identity { module: &DOT1Q, name: "provider-bridge" };
static TPMR: Identity = Identity { module: &DOT1Q, name: "two-port-mac-relay-bridge" };
static C_VLAN_COMPONENT: Identity = Identity { module: &DOT1Q, name: "c-vlan-component" };
static S_VLAN_COMPONENT: Identity = Identity { module: &DOT1Q, name: "s-vlan-component" };
static D_BRIDGE_COMPONENT: Identity = Identity { module: &DOT1Q, name: "d-bridge-component" };
static C_VLAN_BRIDGE_PORT: Identity = Identity { module: &DOT1Q, name: "c-vlan-bridge-port" };
static D_BRIDGE_PORT: Identity = Identity { module: &DOT1Q, name: "d-bridge-port" };

const INTERFACE_TYPES: &[&Identity] = &[&ETHERNET_CSMACD, &LAG];
const PORT_TYPES: &[&Identity] = &[&C_VLAN_BRIDGE_PORT, &D_BRIDGE_PORT];
const BRIDGE_TYPES: &[&Identity] = &[&CUSTOMER_VLAN_BRIDGE, &PROVIDER_BRIDGE, &TPMR];
const COMPONENT_TYPES: &[&Identity] = &[&C_VLAN_COMPONENT, &S_VLAN_COMPONENT, &D_BRIDGE_COMPONENT];
/// The name of the only bridge and of its only component.
const BRIDGE_NAME: &str = "br0";
const TEXT: Type = Type::Text { max_length: 255 };
const NAME: Type = Type::Text { max_length: 32 };
const VID: Type = Type::Uint(1, 4094);
const STATUS: Type = Type::Enum(&["up", "down"]);
const PORT_NUMBER: Type = Type::Uint(1, 4095);

static ROOTS: &[Definition] = &[
    Definition::container("interfaces", &IF, INTERFACES),
    Definition::container("bridges", &DOT1Q, BRIDGES),
];

const INTERFACES: &[Definition] = &[Definition::list("interface", &IF, 1, INTERFACE)];

const INTERFACE: &[Definition] = &[
    Definition::leaf("name", &IF, TEXT),
    Definition::leaf("description", &IF, TEXT),
    Definition::leaf("type", &IF, Type::Identity(INTERFACE_TYPES)),
    Definition::leaf("enabled", &IF, Type::Bool),
    Definition::state_leaf("admin-status", &IF, STATUS),
    Definition::state_leaf("oper-status", &IF, STATUS),
    Definition::state_leaf("if-index", &IF, Type::Uint(1, 4095)),
    Definition::state_leaf_list("higher-layer-if", &IF, TEXT),
    Definition::state_leaf_list("lower-layer-if", &IF, TEXT),
    Definition::container("bridge-port", &DOT1Q, BRIDGE_PORT),
];

const BRIDGE_PORT: &[Definition] = &[
    Definition::leaf("bridge-name", &DOT1Q, NAME),
    Definition::leaf("component-name", &DOT1Q, TEXT),
    Definition::leaf("port-type", &DOT1Q, Type::Identity(PORT_TYPES)),
    Definition::leaf("pvid", &DOT1Q, VID),
    Definition::leaf("acceptable-frame", &DOT1Q, Type::Enum(&[ONLY_TAGGED, ONLY_UNTAGGED, ALL_FRAMES])),
    Definition::leaf("enable-ingress-filtering", &DOT1Q, Type::Bool),
    Definition::state_leaf("port-number", &DOT1Q, PORT_NUMBER),
    Definition::state_leaf("address", &DOT1Q, Type::IeeeMac),
];

const ONLY_TAGGED: &str = "admit-only-VLAN-tagged-frames";
const ONLY_UNTAGGED: &str = "admit-only-untagged-and-priority-tagged";
const ALL_FRAMES: &str = "admit-all-frames";

const BRIDGES: &[Definition] = &[Definition::list("bridge", &DOT1Q, 1, BRIDGE)];

const BRIDGE: &[Definition] = &[
    Definition::leaf("name", &DOT1Q, NAME),
    Definition::leaf("address", &DOT1Q, Type::IeeeMac),
    Definition::leaf("bridge-type", &DOT1Q, Type::Identity(BRIDGE_TYPES)),
    Definition::state_leaf("ports", &DOT1Q, Type::Uint(1, 4095)),
    Definition::state_leaf("components", &DOT1Q, Type::Uint(0, 4095)),
    Definition::list("component", &DOT1Q, 1, COMPONENT),
];

const COMPONENT: &[Definition] = &[
    Definition::leaf("name", &DOT1Q, TEXT),
    Definition::leaf("id", &DOT1Q, Type::Uint(0, 4_294_967_295)),
    Definition::leaf("type", &DOT1Q, Type::Identity(COMPONENT_TYPES)),
    Definition::leaf("address", &DOT1Q, Type::IeeeMac),
    Definition::state_leaf("ports", &DOT1Q, Type::Uint(1, 4095)),
    Definition::state_leaf_list("bridge-port", &DOT1Q, TEXT),
    Definition::container("filtering-database", &DOT1Q, FILTERING_DATABASE),
    Definition::container("bridge-vlan", &DOT1Q, BRIDGE_VLAN),
];

const FILTERING_DATABASE: &[Definition] = &[
    Definition::leaf("aging-time", &DOT1Q, Type::Uint(10, 1_000_000)),
    Definition::list("vlan-registration-entry", &DOT1Q, 2, REGISTRATION),
];

const REGISTRATION: &[Definition] = &[
    Definition::leaf("database-id", &DOT1Q, Type::Uint(0, 4_294_967_295)),
    Definition::leaf("vids", &DOT1Q, Type::VidRanges),
    Definition::leaf("entry-type", &DOT1Q, Type::Enum(&["static", "dynamic"])),
    Definition::list("port-map", &DOT1Q, 1, PORT_MAP),
];

const PORT_MAP: &[Definition] = &[
    Definition::leaf("port-ref", &DOT1Q, PORT_NUMBER),
    Definition::container("static-vlan-registration-entries", &DOT1Q, STATIC)
        .in_case("map-type", "static-vlan-registration-entries"),
    Definition::container("dynamic-vlan-registration-entries", &DOT1Q, DYNAMIC)
        .in_case("map-type", "dynamic-vlan-registration-entries"),
];

const STATIC: &[Definition] = &[
    Definition::leaf(
        "registrar-admin-control",
        &DOT1Q,
        Type::Enum(&["fixed-new-ignored", "fixed-new-propagated", "forbidden", "normal"]),
    ),
    Definition::leaf("vlan-transmitted", &DOT1Q, Type::Enum(&["tagged", "untagged"])),
];

const DYNAMIC: &[Definition] = &[Definition::leaf("control-element", &DOT1Q, Type::Enum(&["registered"]))];

const BRIDGE_VLAN: &[Definition] = &[
    Definition::state_leaf("version", &DOT1Q, Type::Uint(0, 65535)),
    Definition::state_leaf("max-vids", &DOT1Q, Type::Uint(0, 4094)),
    Definition::list("vlan", &DOT1Q, 1, VLAN),
];

const VLAN: &[Definition] = &[
    Definition::leaf("vid", &DOT1Q, VID),
    Definition::leaf("name", &DOT1Q, NAME),
    Definition::state_leaf_list("untagged-ports", &DOT1Q, TEXT),
    Definition::state_leaf_list("egress-ports", &DOT1Q, TEXT),
];

/// The bridge ports by number, from 1: link aggregations, and ports that are no members of one.
fn port_numbers(hardware: &Hardware) -> BTreeMap<u16, &str> {
    let ports = hardware.ports.iter().map(|port| (hardware.lag_of(port).is_none(), port.as_str()));
    let lags = hardware.lags.keys().map(|lag| (true, lag.as_str()));
    (1..)
        .zip(ports.chain(lags))
        .filter(|(_, (is_bridge_port, _))| *is_bridge_port)
        .map(|(n, (_, name))| (n, name))
        .collect()
}

fn port_number(hardware: &Hardware, name: &str) -> Option<u16> {
    port_numbers(hardware).into_iter().find(|(_, port)| *port == name).map(|(number, _)| number)
}

/// The MAC address of a bridge port; that of the bridge for port 0.
fn mac_address(hardware: &Hardware, port: u16) -> String {
    let mut mac = hardware.mac;
    let last = u16::from_be_bytes([mac[4], mac[5]]).wrapping_add(port).to_be_bytes();
    (mac[4], mac[5]) = (last[0], last[1]);
    mac.map(|octet| format!("{octet:02X}")).join("-")
}

/// The factory configuration: one customer VLAN bridge whose ports are untagged members of VLAN 1.
fn factory(hardware: &Hardware) -> Container {
    let mut xml =
        format!("<interfaces xmlns=\"{}\" xmlns:ianaift=\"{}\">", IF.namespace, IANA_IF_TYPE.namespace);
    let ports = hardware.ports.iter().map(|port| (port, "ethernetCsmacd"));
    // Writing to a String can't fail; hence the discarded results.
    for (port, kind) in ports.chain(hardware.lags.keys().map(|lag| (lag, "ieee8023adLag"))) {
        let _ = write!(
            xml,
            "<interface><name>{}</name><type>ianaift:{kind}</type><enabled>true</enabled>",
            xml_escaped(port)
        );
        if hardware.lag_of(port).is_none() {
            let _ = write!(
                xml,
                "<bridge-port xmlns=\"{ns}\"><bridge-name>{BRIDGE_NAME}</bridge-name>\
                 <component-name>{BRIDGE_NAME}</component-name><port-type xmlns:t=\"{ns}\">t:c-vlan-bridge-port</port-type>\
                 <pvid>1</pvid></bridge-port>",
                ns = DOT1Q.namespace
            );
        }
        xml.push_str("</interface>");
    }
    let _ = write!(
        xml,
        "</interfaces><bridges xmlns=\"{ns}\" xmlns:t=\"{ns}\"><bridge><name>{BRIDGE_NAME}</name>\
         <address>{}</address><bridge-type>t:customer-vlan-bridge</bridge-type><component><name>{BRIDGE_NAME}</name>\
         <type>t:c-vlan-component</type><filtering-database><vlan-registration-entry><database-id>0</database-id>\
         <vids>1</vids><entry-type>static</entry-type>",
        mac_address(hardware, 0),
        ns = DOT1Q.namespace
    );
    for number in port_numbers(hardware).keys() {
        let _ = write!(
            xml,
            "<port-map><port-ref>{number}</port-ref><static-vlan-registration-entries>\
             <registrar-admin-control>fixed-new-ignored</registrar-admin-control>\
             <vlan-transmitted>untagged</vlan-transmitted></static-vlan-registration-entries></port-map>"
        );
    }
    xml.push_str(
        "</vlan-registration-entry></filtering-database><bridge-vlan><vlan><vid>1</vid><name>default</name></vlan>\
         </bridge-vlan></component></bridge></bridges>",
    );
    parse_configuration(ROOTS, &xml)
}

fn interfaces(config: &Container) -> impl Iterator<Item = (&str, &Container)> {
    entries(child(config, ROOTS, "interfaces"), INTERFACES, "interface")
}

fn bridges(config: &Container) -> impl Iterator<Item = (&str, &Container)> {
    entries(child(config, ROOTS, "bridges"), BRIDGES, "bridge")
}

/// The bridge component that all ports belong to.
fn component(config: &Container) -> Option<&Container> {
    let (_, bridge) = bridges(config).find(|(name, _)| *name == BRIDGE_NAME)?;
    entries(Some(bridge), BRIDGE, "component").find(|(name, _)| *name == BRIDGE_NAME).map(|(_, c)| c)
}

/// A static VLAN registration entry. Each port has a registrar-admin-control and a vlan-transmitted value.
#[derive(Debug, Clone)]
struct Registration {
    database: u64,
    vids: VlanSet,
    ports: BTreeMap<u16, (&'static str, &'static str)>,
}

fn registration_entries(component: &Container) -> Vec<Registration> {
    let database = child(component, COMPONENT, "filtering-database");
    let entries = list(database, FILTERING_DATABASE, "vlan-registration-entry").into_iter().flatten();
    entries
        .map(|(key, entry)| {
            let mut ports = BTreeMap::new();
            for (key, map) in list(Some(entry), REGISTRATION, "port-map").into_iter().flatten() {
                let number = key.first().and_then(|v| v.vlans().next());
                let fixed = child(map, PORT_MAP, "static-vlan-registration-entries");
                if let (Some(number), Some(fixed)) = (number, fixed) {
                    let word = |name, default| match leaf(fixed, STATIC, name) {
                        Some(Value::Keyword(word)) => *word,
                        _ => default,
                    };
                    let control = word("registrar-admin-control", "normal");
                    ports.insert(number, (control, word("vlan-transmitted", "tagged")));
                }
            }
            Registration {
                database: key.first().and_then(Value::number).unwrap_or_default(),
                vids: key.get(1).and_then(Value::text).map(vlan_set).unwrap_or_default(),
                ports,
            }
        })
        .collect()
}

fn view(running: &Container, hardware: &Hardware) -> View {
    let component = component(running);
    let mut vlans = BTreeMap::new();
    let table = component.and_then(|c| child(c, COMPONENT, "bridge-vlan"));
    for (key, vlan) in list(table, BRIDGE_VLAN, "vlan").into_iter().flatten() {
        for id in key.iter().flat_map(Value::vlans) {
            let name = text(vlan, VLAN, "name").map(str::to_owned);
            vlans.insert(id, VlanView { name, status: "ACTIVE".to_owned() });
        }
    }
    let defined: VlanSet = vlans.keys().copied().collect();
    let registration_entries = component.map(registration_entries).unwrap_or_default();
    let port_numbers: BTreeMap<&str, u16> =
        port_numbers(hardware).into_iter().map(|(n, name)| (name, n)).collect();
    let mut ports: BTreeMap<String, PortView> = BTreeMap::new();
    for name in hardware.ports.iter().chain(hardware.lags.keys()) {
        let mut port = PortView { lag: hardware.lag_of(name).map(str::to_owned), ..PortView::default() };
        let interface = interfaces(running).find(|(n, _)| n == name).map(|(_, interface)| interface);
        port.disabled = interface.is_some_and(|i| leaf_is(i, INTERFACE, "enabled", "false"));
        let bridge_port = interface.and_then(|i| child(i, INTERFACE, "bridge-port"));
        if let (Some(bridge_port), Some(number)) = (bridge_port, port_numbers.get(name.as_str())) {
            fill_port(&mut port, bridge_port, *number, &registration_entries, &defined);
        }
        ports.insert(name.clone(), port);
    }
    View { vlans, ports, ..View::default() }
}

fn fill_port(
    port: &mut PortView,
    bridge_port: &Container,
    number: u16,
    registration_entries: &[Registration],
    defined: &VlanSet,
) {
    let (mut tagged, mut untagged) = (Vec::new(), Vec::new());
    for registration in registration_entries {
        match registration.ports.get(&number) {
            Some(("fixed-new-ignored" | "fixed-new-propagated", "tagged")) => {
                tagged.extend(registration.vids.iter());
            }
            Some(("fixed-new-ignored" | "fixed-new-propagated", _)) => {
                untagged.extend(registration.vids.iter());
            }
            _ => {}
        }
    }
    let pvid = leaf(bridge_port, BRIDGE_PORT, "pvid").and_then(|v| v.vlans().next()).unwrap_or(1);
    let takes_untagged = !leaf_is(bridge_port, BRIDGE_PORT, "acceptable-frame", ONLY_TAGGED);
    let untagged_vlan = Some(pvid).filter(|pvid| takes_untagged && untagged.contains(pvid));
    if tagged.is_empty() {
        port.mode = (!untagged.is_empty()).then_some(PortMode::Access);
        port.access = untagged_vlan;
    } else {
        port.mode = Some(PortMode::Trunk);
        port.native = untagged_vlan;
    }
    port.configured = tagged.into_iter().chain(untagged).collect();
    port.vlans = port.configured.intersection(defined);
}

/// Adds state data to running: port numbers and status, counters of the bridge, members of each VLAN.
fn operational(running: &Container, hardware: &Hardware) -> Container {
    let mut data = running.clone();
    let port_numbers = port_numbers(hardware);
    let port_number: BTreeMap<&str, u16> = port_numbers.iter().map(|(n, name)| (*name, *n)).collect();
    data.modify_container(position(ROOTS, "interfaces"), |interfaces| {
        interfaces.modify_list(position(INTERFACES, "interface"), |entries| {
            for name in hardware.ports.iter().chain(hardware.lags.keys()) {
                let interface =
                    std::sync::Arc::make_mut(entries.entry([text_value(name)].into()).or_default());
                set_leaf(interface, INTERFACE, "name", text_value(name));
                interface_state(interface, name, port_number.get(name.as_str()).copied(), hardware);
            }
        });
    });
    let count = |n: usize| Value::Uint(u64::try_from(n).unwrap_or(u64::MAX));
    let view = view(running, hardware);
    data.modify_container(position(ROOTS, "bridges"), |bridges| {
        bridges.modify_list(position(BRIDGES, "bridge"), |entries| {
            let Some(bridge) = entries.get_mut(&[text_value(BRIDGE_NAME)][..]) else { return };
            let bridge = std::sync::Arc::make_mut(bridge);
            set_leaf(bridge, BRIDGE, "ports", count(port_numbers.len()));
            set_leaf(bridge, BRIDGE, "components", count(1));
            bridge.modify_list(position(BRIDGE, "component"), |entries| {
                let Some(component) = entries.get_mut(&[text_value(BRIDGE_NAME)][..]) else { return };
                let component = std::sync::Arc::make_mut(component);
                set_leaf(component, COMPONENT, "ports", count(port_numbers.len()));
                let names = port_numbers.values().map(|name| text_value(name)).collect();
                component.set(position(COMPONENT, "bridge-port"), Node::LeafList(std::sync::Arc::new(names)));
                component
                    .modify_container(position(COMPONENT, "bridge-vlan"), |table| vlan_state(table, &view));
            });
        });
    });
    data
}

fn interface_state(interface: &mut Container, name: &str, number: Option<u16>, hardware: &Hardware) {
    let status = if leaf_is(interface, INTERFACE, "enabled", "false") { "down" } else { "up" };
    for leaf in ["admin-status", "oper-status"] {
        set_leaf(interface, INTERFACE, leaf, Value::Keyword(status));
    }
    let layers = |interface: &mut Container, leaf, names: Vec<&str>| {
        let names = names.into_iter().map(text_value).collect();
        interface.set(position(INTERFACE, leaf), Node::LeafList(std::sync::Arc::new(names)));
    };
    layers(interface, "higher-layer-if", hardware.lag_of(name).into_iter().collect());
    let members = hardware.lags.get(name).into_iter().flatten().map(String::as_str).collect();
    layers(interface, "lower-layer-if", members);
    if let Some(number) = number {
        set_leaf(interface, INTERFACE, "if-index", Value::Uint(number.into()));
        interface.modify_container(position(INTERFACE, "bridge-port"), |port| {
            set_leaf(port, BRIDGE_PORT, "port-number", Value::Uint(number.into()));
            set_leaf(port, BRIDGE_PORT, "address", text_value(&mac_address(hardware, number)));
        });
    }
}

fn vlan_state(table: &mut Container, view: &View) {
    set_leaf(table, BRIDGE_VLAN, "version", Value::Uint(2));
    set_leaf(table, BRIDGE_VLAN, "max-vids", Value::Uint(4094));
    let mut egress: BTreeMap<u16, Vec<(&str, bool)>> = BTreeMap::new();
    for (name, port) in &view.ports {
        for id in port.vlans.iter() {
            let untagged = port.mode == Some(PortMode::Access) || port.native == Some(id);
            egress.entry(id).or_default().push((name, untagged));
        }
    }
    table.modify_list(position(BRIDGE_VLAN, "vlan"), |entries| {
        for (key, vlan) in entries.iter_mut() {
            let Some(ports) = key.first().and_then(|v| egress.get(&v.vlans().next()?)) else { continue };
            let vlan = std::sync::Arc::make_mut(vlan);
            for (leaf, only_untagged) in [("untagged-ports", true), ("egress-ports", false)] {
                let names = ports
                    .iter()
                    .filter(|(_, untagged)| *untagged || !only_untagged)
                    .map(|(n, _)| text_value(n));
                vlan.set(position(VLAN, leaf), Node::LeafList(std::sync::Arc::new(names.collect())));
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::tests::assert_refused;

    #[test]
    fn ieee8021q_refuses_duplicate_registrations_and_dangling_leafrefs() {
        let registration = |vids: &str, port: u16| {
            format!(
                "<bridges xmlns=\"urn:ieee:std:802.1Q:yang:ieee802-dot1q-bridge\"><bridge><name>br0</name><component>\
                 <name>br0</name><filtering-database><vlan-registration-entry><database-id>0</database-id>\
                 <vids>{vids}</vids><entry-type>static</entry-type><port-map><port-ref>{port}</port-ref>\
                 <static-vlan-registration-entries><registrar-admin-control>fixed-new-ignored</registrar-admin-control>\
                 <vlan-transmitted>tagged</vlan-transmitted></static-vlan-registration-entries></port-map>\
                 </vlan-registration-entry></filtering-database></component></bridge></bridges>"
            )
        };
        let port = |inner: &str| {
            format!(
                "<interfaces xmlns=\"urn:ietf:params:xml:ns:yang:ietf-interfaces\"><interface><name>eth1</name>\
                 <bridge-port xmlns=\"urn:ieee:std:802.1Q:yang:ieee802-dot1q-bridge\">{inner}</bridge-port></interface>\
                 </interfaces>"
            )
        };
        let cases = [
            ("accepted", registration("5,10-20", 1), None),
            ("a VLAN registered twice", registration("1-5", 1), Some("VLAN 1 is registered")),
            ("no such port number", registration("5", 77), Some("no port number 77")),
            ("a link's number", registration("5", 3), Some("no port number 3")),
            ("no such bridge", port("<bridge-name>br1</bridge-name>"), Some("refers to br1")),
            ("no such component", port("<component-name>x</component-name>"), Some("refers to x")),
        ];
        assert_refused(&IEEE8021Q, &cases);
    }
}
