//! OpenConfig (openconfig/public): openconfig-interfaces, openconfig-vlan, openconfig-network-instance.
//!
//! The schema tables hold the data nodes for switching, VRFs and BGP only. An edit of any other node fails with
//! `unknown-element`.

mod bgp;
mod bgp_checks;
mod bgp_state;
mod checks;
mod mac_table;
mod policy;
mod vrf;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use crate::bgp_sessions::{BgpSupport, Shown};
use crate::dialect::accessors::{
    active, bare_ports, child, entries, leaf, leaf_is, module, parse_configuration, text, xml_escaped,
};
use crate::dialect::view::{HandEdit, PortMode, PortView, View, VlanSet, VlanView};
use crate::dialect::{Dialect, Hardware};
use crate::mac_table::MacTable;
use crate::model::schema::{Definition, Identity, Module, position};
use crate::model::tree::{Container, Node};
use crate::model::value::{Type, Value};
use crate::netconf::error::PathStyle;
use crate::netconf::xml;

/// The OpenConfig dialect.
pub static OPENCONFIG: Dialect = Dialect {
    name: "openconfig",
    modules: &[
        &INTERFACES_MODULE,
        &ETHERNET,
        &AGGREGATE,
        &VLAN,
        &NETWORK_INSTANCE,
        &NI_TYPES,
        &IANA_IF_TYPE,
        &vrf::IF_IP,
        &vrf::EVPN,
        &vrf::LOCAL_ROUTING,
        &vrf::POLICY_TYPES,
        &vrf::TYPES,
        &policy::ROUTING_POLICY,
        &policy::BGP_POLICY,
        &bgp::BGP_TYPES,
    ],
    capability_uris: &[],
    error_path_style: PathStyle::XPath,
    port_name: |n| format!("Ethernet{n}"),
    roots: ROOTS,
    factory,
    check: checks::check,
    operational,
    view,
    mac_table: MacTable::State(mac_table::add),
    bgp: Some(BgpSupport { instances: bgp::instances, shown: Shown::State(bgp_state::add) }),
    hand_edit_xml,
};

static INTERFACES_MODULE: Module =
    module("openconfig-interfaces", "oc-if", "http://openconfig.net/yang/interfaces", "2024-12-05");
static ETHERNET: Module = module(
    "openconfig-if-ethernet",
    "oc-eth",
    "http://openconfig.net/yang/interfaces/ethernet",
    "2024-09-17",
);
static AGGREGATE: Module = module(
    "openconfig-if-aggregate",
    "oc-lag",
    "http://openconfig.net/yang/interfaces/aggregate",
    "2022-06-28",
);
static VLAN: Module = module("openconfig-vlan", "oc-vlan", "http://openconfig.net/yang/vlan", "2023-02-07");
static NETWORK_INSTANCE: Module = module(
    "openconfig-network-instance",
    "oc-netinst",
    "http://openconfig.net/yang/network-instance",
    "2025-01-23",
);
static NI_TYPES: Module = module(
    "openconfig-network-instance-types",
    "oc-ni-types",
    "http://openconfig.net/yang/network-instance-types",
    "2021-07-14",
);
static IANA_IF_TYPE: Module =
    module("iana-if-type", "ianaift", "urn:ietf:params:xml:ns:yang:iana-if-type", "2023-01-26");

static ETHERNET_CSMACD: Identity = Identity { module: &IANA_IF_TYPE, name: "ethernetCsmacd" };
static LAG: Identity = Identity { module: &IANA_IF_TYPE, name: "ieee8023adLag" };
static L3_VLAN: Identity = Identity { module: &IANA_IF_TYPE, name: "l3ipvlan" };
static LOOPBACK: Identity = Identity { module: &IANA_IF_TYPE, name: "softwareLoopback" };
static DEFAULT_INSTANCE: Identity = Identity { module: &NI_TYPES, name: "DEFAULT_INSTANCE" };
static L2VSI: Identity = Identity { module: &NI_TYPES, name: "L2VSI" };
static L3VRF: Identity = Identity { module: &NI_TYPES, name: "L3VRF" };
static L2L3: Identity = Identity { module: &NI_TYPES, name: "L2L3" };

const INTERFACE_TYPES: &[&Identity] = &[&ETHERNET_CSMACD, &LAG, &L3_VLAN, &LOOPBACK];
const INSTANCE_TYPES: &[&Identity] = &[&DEFAULT_INSTANCE, &L2VSI, &L3VRF, &L2L3];
const TEXT: Type = Type::Text { max_length: 255 };
/// The model does not limit the length of VLAN names; switches do.
const VLAN_NAME: Type = Type::Text { max_length: 32 };
const VLAN_ID: Type = Type::Uint(1, 4094);

static ROOTS: &[Definition] = &[
    Definition::container("interfaces", &INTERFACES_MODULE, INTERFACES),
    Definition::container("network-instances", &NETWORK_INSTANCE, NETWORK_INSTANCES),
    Definition::container("routing-policy", &policy::ROUTING_POLICY, policy::POLICY),
];

const INTERFACES: &[Definition] = &[Definition::list("interface", &INTERFACES_MODULE, 1, INTERFACE)];

const INTERFACE: &[Definition] = &[
    Definition::leaf("name", &INTERFACES_MODULE, TEXT),
    Definition::container("config", &INTERFACES_MODULE, INTERFACE_CONFIG),
    Definition::mirror(&INTERFACES_MODULE, INTERFACE_CONFIG),
    Definition::container("ethernet", &ETHERNET, ETHERNET_CONTENT),
    Definition::container("aggregation", &AGGREGATE, AGGREGATION_CONTENT),
    Definition::container("subinterfaces", &INTERFACES_MODULE, vrf::SUBINTERFACES),
    Definition::container("routed-vlan", &VLAN, vrf::ROUTED_VLAN),
];

const INTERFACE_CONFIG: &[Definition] = &[
    Definition::leaf("name", &INTERFACES_MODULE, TEXT),
    Definition::leaf("type", &INTERFACES_MODULE, Type::Identity(INTERFACE_TYPES)),
    Definition::leaf("mtu", &INTERFACES_MODULE, Type::Uint(0, 65535)),
    Definition::leaf("loopback-mode", &INTERFACES_MODULE, Type::Enum(&["NONE", "FACILITY", "TERMINAL"])),
    Definition::leaf("description", &INTERFACES_MODULE, TEXT),
    Definition::leaf("enabled", &INTERFACES_MODULE, Type::Bool),
    Definition::state_leaf("admin-status", &INTERFACES_MODULE, Type::Enum(&["UP", "DOWN", "TESTING"])),
    Definition::state_leaf("oper-status", &INTERFACES_MODULE, Type::Enum(&["UP", "DOWN", "UNKNOWN"])),
];

const ETHERNET_CONTENT: &[Definition] = &[
    Definition::container("config", &ETHERNET, ETHERNET_CONFIG),
    Definition::mirror(&ETHERNET, ETHERNET_CONFIG),
    Definition::container("switched-vlan", &VLAN, SWITCHED_VLAN),
];

const ETHERNET_CONFIG: &[Definition] = &[
    Definition::leaf("mac-address", &ETHERNET, Type::Mac),
    Definition::leaf("auto-negotiate", &ETHERNET, Type::Bool),
    Definition::leaf("duplex-mode", &ETHERNET, Type::Enum(&["FULL", "HALF"])),
    Definition::leaf("enable-flow-control", &ETHERNET, Type::Bool),
    Definition::leaf("aggregate-id", &AGGREGATE, TEXT),
];

const AGGREGATION_CONTENT: &[Definition] = &[
    Definition::container("config", &AGGREGATE, AGGREGATION_CONFIG),
    Definition::mirror(&AGGREGATE, AGGREGATION_CONFIG),
    Definition::container("switched-vlan", &VLAN, SWITCHED_VLAN),
];

const AGGREGATION_CONFIG: &[Definition] = &[
    Definition::leaf("lag-type", &AGGREGATE, Type::Enum(&["LACP", "STATIC"])),
    Definition::leaf("min-links", &AGGREGATE, Type::Uint(0, 65535)),
];

const SWITCHED_VLAN: &[Definition] = &[
    Definition::container("config", &VLAN, SWITCHED_VLAN_CONFIG),
    Definition::mirror(&VLAN, SWITCHED_VLAN_CONFIG),
];

const SWITCHED_VLAN_CONFIG: &[Definition] = &[
    Definition::leaf("interface-mode", &VLAN, Type::Enum(&["ACCESS", "TRUNK"])),
    Definition::leaf("native-vlan", &VLAN, VLAN_ID),
    Definition::leaf("access-vlan", &VLAN, VLAN_ID),
    Definition::leaf_list("trunk-vlans", &VLAN, Type::VlanIdOrRange),
];

const NETWORK_INSTANCES: &[Definition] =
    &[Definition::list("network-instance", &NETWORK_INSTANCE, 1, INSTANCE)];

const INSTANCE: &[Definition] = &[
    Definition::leaf("name", &NETWORK_INSTANCE, TEXT),
    Definition::container("config", &NETWORK_INSTANCE, INSTANCE_CONFIG),
    Definition::mirror(&NETWORK_INSTANCE, INSTANCE_CONFIG),
    Definition::container("inter-instance-policies", &NETWORK_INSTANCE, vrf::POLICIES),
    Definition::container("table-connections", &NETWORK_INSTANCE, vrf::TABLE_CONNECTIONS),
    Definition::container("interfaces", &NETWORK_INSTANCE, vrf::MEMBERS),
    Definition::container("tables", &NETWORK_INSTANCE, vrf::TABLES),
    Definition::container("vlans", &NETWORK_INSTANCE, VLANS),
    Definition::container("fdb", &NETWORK_INSTANCE, mac_table::FDB).state_data(),
    Definition::container("protocols", &NETWORK_INSTANCE, vrf::PROTOCOLS),
];

const INSTANCE_CONFIG: &[Definition] = &[
    Definition::leaf("name", &NETWORK_INSTANCE, TEXT),
    Definition::leaf("type", &NETWORK_INSTANCE, Type::Identity(INSTANCE_TYPES)),
    Definition::leaf("enabled", &NETWORK_INSTANCE, Type::Bool),
    Definition::leaf("description", &NETWORK_INSTANCE, TEXT),
    Definition::leaf("mtu", &NETWORK_INSTANCE, Type::Uint(0, 65535)),
    Definition::leaf("route-distinguisher", &NETWORK_INSTANCE, vrf::DISTINGUISHER_TYPE),
];

const VLANS: &[Definition] = &[Definition::list("vlan", &NETWORK_INSTANCE, 1, VLAN_ENTRY)];

const VLAN_ENTRY: &[Definition] = &[
    Definition::leaf("vlan-id", &NETWORK_INSTANCE, VLAN_ID),
    Definition::container("config", &NETWORK_INSTANCE, VLAN_CONFIG),
    Definition::mirror(&NETWORK_INSTANCE, VLAN_CONFIG),
];

const VLAN_CONFIG: &[Definition] = &[
    Definition::leaf("vlan-id", &NETWORK_INSTANCE, VLAN_ID),
    Definition::leaf("name", &NETWORK_INSTANCE, VLAN_NAME),
    Definition::leaf("status", &NETWORK_INSTANCE, Type::Enum(&["ACTIVE", "SUSPENDED"])),
];

/// The interfaces of a configuration by name.
fn interfaces(config: &Container) -> impl Iterator<Item = (&str, &Container)> {
    entries(child(config, ROOTS, "interfaces"), INTERFACES, "interface")
}

/// The network instances of a configuration by name.
fn instances(config: &Container) -> impl Iterator<Item = (&str, &Container)> {
    entries(child(config, ROOTS, "network-instances"), NETWORK_INSTANCES, "network-instance")
}

/// The type of an interface.
fn kind(interface: &Container) -> Option<&Value> {
    leaf(child(interface, INTERFACE, "config")?, INTERFACE_CONFIG, "type")
}

/// `switched-vlan/config` of an interface: under `ethernet`, or under `aggregation` for a LAG.
fn switched_vlan(interface: &Container) -> Option<&Container> {
    let holders = [("ethernet", ETHERNET_CONTENT), ("aggregation", AGGREGATION_CONTENT)];
    holders.into_iter().find_map(|(name, content)| {
        let switched = child(child(interface, INTERFACE, name)?, content, "switched-vlan")?;
        child(switched, SWITCHED_VLAN, "config")
    })
}

/// The factory configuration: each port as an enabled interface, and the default network instance without VLANs.
fn factory(hardware: &Hardware) -> Container {
    let mut xml = format!("<interfaces xmlns=\"{}\">", INTERFACES_MODULE.namespace);
    let mut interface = |name: &str, identity: &Identity, more: &str| {
        let (name, kind) = (xml_escaped(name), identity.name);
        // Writing to a String can't fail; hence the discarded result.
        let _ = write!(
            xml,
            "<interface><name>{name}</name><config><name>{name}</name><type xmlns:t=\"{}\">t:{kind}</type>\
             <enabled>true</enabled></config>{more}</interface>",
            identity.module.namespace
        );
    };
    for port in &hardware.ports {
        let member = hardware.lag_of(port).map(|lag| {
            format!(
                "<ethernet xmlns=\"{}\"><config><aggregate-id xmlns=\"{}\">{}</aggregate-id></config></ethernet>",
                ETHERNET.namespace,
                AGGREGATE.namespace,
                xml_escaped(lag)
            )
        });
        interface(port, &ETHERNET_CSMACD, &member.unwrap_or_default());
    }
    for lag in hardware.lags.keys() {
        let aggregation = format!(
            "<aggregation xmlns=\"{}\"><config><lag-type>LACP</lag-type></config></aggregation>",
            AGGREGATE.namespace
        );
        interface(lag, &LAG, &aggregation);
    }
    let _ = write!(
        xml,
        "</interfaces><network-instances xmlns=\"{}\"><network-instance><name>default</name><config>\
         <name>default</name><type xmlns:t=\"{}\">t:DEFAULT_INSTANCE</type></config></network-instance>\
         </network-instances>",
        NETWORK_INSTANCE.namespace, NI_TYPES.namespace
    );
    parse_configuration(ROOTS, &xml)
}

/// Adds state data to running: `state` mirrors `config`, and each port of the hardware has a status.
fn operational(running: &Container, hardware: &Hardware) -> Container {
    let mut data = running.with_state(ROOTS);
    let state = position(INTERFACE, "state");
    data.modify_container(position(ROOTS, "interfaces"), |interfaces| {
        interfaces.modify_list(0, |entries| {
            for port in &hardware.ports {
                let name = Value::Text(port.as_str().into());
                let entry = entries.entry([name.clone()].into()).or_default();
                let entry = Arc::make_mut(entry);
                entry.set(0, Node::Leaf(name.clone()));
                entry.modify_container(state, |state| {
                    state.set(0, Node::Leaf(name));
                    let enabled = state.leaf(position(INTERFACE_CONFIG, "enabled"));
                    let status = if enabled.is_some_and(|v| v.is("false")) { "DOWN" } else { "UP" };
                    for leaf in ["admin-status", "oper-status"] {
                        state.set(position(INTERFACE_CONFIG, leaf), Node::Leaf(Value::Keyword(status)));
                    }
                });
            }
        });
    });
    data
}

fn view(running: &Container, hardware: &Hardware) -> View {
    let mut vlans = BTreeMap::new();
    for (_, instance) in instances(running) {
        let list = instance.container(position(INSTANCE, "vlans")).and_then(|vlans| vlans.list(0));
        for (key, entry) in list.into_iter().flatten() {
            let config = entry.container(position(VLAN_ENTRY, "config"));
            let leaf =
                |name| config.and_then(|c| c.leaf(position(VLAN_CONFIG, name))).map(ToString::to_string);
            for id in key.iter().flat_map(Value::vlans) {
                let status = leaf("status").unwrap_or_else(|| "ACTIVE".to_owned());
                vlans.insert(id, VlanView { name: leaf("name"), status });
            }
        }
    }
    let active = active(&vlans);
    let mut ports = bare_ports(hardware);
    let switches = |interface| !kind(interface).is_some_and(|kind| kind.is(L3_VLAN.name));
    for (name, interface) in interfaces(running).filter(|(_, interface)| switches(interface)) {
        let port = ports.entry(name.to_owned()).or_default();
        let ethernet = child(interface, INTERFACE, "ethernet");
        let ethernet = ethernet.and_then(|ethernet| child(ethernet, ETHERNET_CONTENT, "config"));
        let aggregate = ethernet.and_then(|config| text(config, ETHERNET_CONFIG, "aggregate-id"));
        port.lag = aggregate.map(str::to_owned);
        let config = child(interface, INTERFACE, "config");
        port.disabled = config.is_some_and(|config| leaf_is(config, INTERFACE_CONFIG, "enabled", "false"));
        if let Some(config) = switched_vlan(interface) {
            fill_port(port, config, &active);
        }
    }
    View { vlans, ports, vrfs: vrf::vrfs(running), bgp: bgp::instances(running) }
}

fn fill_port(port: &mut PortView, config: &Container, active: &VlanSet) {
    let leaf = |name| config.leaf(position(SWITCHED_VLAN_CONFIG, name));
    let id = |name| leaf(name).and_then(|v| v.vlans().next());
    port.mode = leaf("interface-mode").and_then(|mode| match mode {
        mode if mode.is("TRUNK") => Some(PortMode::Trunk),
        mode if mode.is("ACCESS") => Some(PortMode::Access),
        _ => None,
    });
    match port.mode {
        Some(PortMode::Trunk) => {
            port.native = id("native-vlan");
            let listed = config.leaf_list(position(SWITCHED_VLAN_CONFIG, "trunk-vlans"));
            port.open_trunk = listed.is_none();
            port.configured = listed.into_iter().flatten().flat_map(Value::vlans).collect();
            // A trunk without a list carries all VLANs of the switch.
            port.vlans = if port.open_trunk { active.clone() } else { port.configured.intersection(active) };
        }
        Some(PortMode::Access) => {
            port.access = id("access-vlan");
            port.configured = port.access.into_iter().collect();
            port.vlans = port.configured.intersection(active);
        }
        None => {}
    }
}

/// Returns the XML of a hand edit; the default operation is merge.
fn hand_edit_xml(edit: &HandEdit, running: &Container, _: &Hardware) -> String {
    let mut out = String::new();
    // Writing to a String can't fail; hence the discarded results.
    let removed = |set: &VlanSet| set.iter().collect::<Vec<_>>();
    if !edit.define_vlans.is_empty() || (edit.port.is_none() && !edit.remove_vlans.is_empty()) {
        let _ = write!(
            out,
            "<network-instances xmlns=\"{ns}\"><network-instance><name>default</name><config><name>default</name>\
             <type xmlns:t=\"{types}\">t:DEFAULT_INSTANCE</type></config><vlans>",
            ns = NETWORK_INSTANCE.namespace,
            types = NI_TYPES.namespace
        );
        for (id, name) in &edit.define_vlans {
            let _ = write!(out, "<vlan><vlan-id>{id}</vlan-id><config><vlan-id>{id}</vlan-id><name>");
            xml::push_text(&mut out, name);
            out.push_str("</name><status>ACTIVE</status></config></vlan>");
        }
        if edit.port.is_none() {
            for id in removed(&edit.remove_vlans) {
                let _ = write!(
                    out,
                    "<vlan xmlns:nc=\"{}\" nc:operation=\"remove\"><vlan-id>{id}</vlan-id></vlan>",
                    xml::NETCONF
                );
            }
        }
        out.push_str("</vlans></network-instance></network-instances>");
    }
    let Some(port) = &edit.port else { return out };
    let is_lag = interfaces(running).any(|(name, interface)| {
        name == port && interface.container(position(INTERFACE, "aggregation")).is_some()
    });
    let (holder, holder_namespace) =
        if is_lag { ("aggregation", AGGREGATE.namespace) } else { ("ethernet", ETHERNET.namespace) };
    let _ = write!(
        out,
        "<interfaces xmlns=\"{}\" xmlns:nc=\"{}\"><interface><name>",
        INTERFACES_MODULE.namespace,
        xml::NETCONF
    );
    xml::push_text(&mut out, port);
    let _ = write!(
        out,
        "</name><{holder} xmlns=\"{holder_namespace}\"><switched-vlan xmlns=\"{}\"",
        VLAN.namespace
    );
    if edit.clear {
        out.push_str(" nc:operation=\"remove\"/>");
    } else {
        out.push_str("><config>");
        if let Some(mode) = edit.mode {
            let (mode, others) = match mode {
                PortMode::Trunk => ("TRUNK", &["access-vlan"][..]),
                PortMode::Access => ("ACCESS", &["native-vlan"][..]),
            };
            let _ = write!(out, "<interface-mode>{mode}</interface-mode>");
            for other in others {
                let _ = write!(out, "<{other} nc:operation=\"remove\"/>");
            }
        }
        for (leaf, id) in [("native-vlan", edit.native), ("access-vlan", edit.access)] {
            if let Some(id) = id {
                let _ = write!(out, "<{leaf}>{id}</{leaf}>");
            }
        }
        let listed = interfaces(running)
            .find(|(name, _)| name == port)
            .and_then(|(_, interface)| switched_vlan(interface))
            .and_then(|config| config.leaf_list(position(SWITCHED_VLAN_CONFIG, "trunk-vlans")));
        let mut added: VlanSet = edit.vlans.clone();
        for value in listed.into_iter().flatten() {
            let becomes_access = edit.mode == Some(PortMode::Access);
            if becomes_access || value.vlans().any(|id| edit.remove_vlans.contains(id)) {
                let _ = write!(out, "<trunk-vlans nc:operation=\"remove\">{value}</trunk-vlans>");
                // Keep the other ids of a range.
                let stays = |id: &u16| !becomes_access && !edit.remove_vlans.contains(*id);
                let rest = value.vlans().filter(stays);
                added = added.iter().chain(rest).collect();
            }
        }
        for (low, high) in added.ranges() {
            let _ = if low == high {
                write!(out, "<trunk-vlans>{low}</trunk-vlans>")
            } else {
                write!(out, "<trunk-vlans>{low}..{high}</trunk-vlans>")
            };
        }
        out.push_str("</config></switched-vlan>");
    }
    let _ = write!(out, "</{holder}></interface></interfaces>");
    out
}
