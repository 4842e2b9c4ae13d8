//! The switching part of the Cisco NX-OS device model (Cisco-NX-OS-device 2019-07-18 of NX-OS 9.3): bridge domains
//! named `vlan-7`, and ports whose VLANs are one string such as `1-10,20`. Experimental: not verified on a device.
//!
//! A trunk without `trunkVlans` carries all VLANs (the default is `1-4094`). Its untagged frames belong to VLAN 1.
//! VLAN 1 can't be removed. VLANs from 3968 on are reserved for the system.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use crate::dialect::accessors::{
    active, bare_ports, child, entries, leaf_is, module, parse_configuration, set_leaf, text, text_value,
    vlan_set, xml_escaped,
};
use crate::dialect::view::{HandEdit, PortMode, PortView, View, VlanSet, VlanView};
use crate::dialect::violations::{invalid, refused};
use crate::dialect::{Dialect, Hardware};
use crate::mac_table::MacTable;
use crate::model::path::Path;
use crate::model::schema::{Definition, Module, position};
use crate::model::tree::Container;
use crate::model::value::{StringRule, Type, Value, vid_ranges};
use crate::netconf::error::{PathStyle, RpcError};
use crate::netconf::xml::NETCONF;

/// The NX-OS dialect.
pub static NXOS: Dialect = Dialect {
    name: "nxos",
    modules: &[],
    capability_uris: &[
        "http://cisco.com/ns/yang/cisco-nx-os-device?revision=2019-07-18&module=Cisco-NX-OS-device",
    ],
    error_path_style: PathStyle::XPath,
    port_name: |n| format!("eth1/{n}"),
    roots: ROOTS,
    factory,
    check,
    operational,
    view,
    mac_table: MacTable::Hidden,
    bgp: None,
    hand_edit_xml,
};

static DEVICE: Module =
    module("Cisco-NX-OS-device", "top", "http://cisco.com/ns/yang/cisco-nx-os-device", "2019-07-18");

/// The VLAN ids that are reserved for the system.
const RESERVED: std::ops::RangeInclusive<u16> = 3968..=4094;

static ENCAP: StringRule =
    StringRule { length: (6, 9), matches: |text| vlan(text).is_some(), expected: "a VLAN such as vlan-7" };
static TRUNK_VLANS: StringRule = StringRule {
    length: (0, 20_000),
    matches: |text| text.is_empty() || vid_ranges(text).is_some(),
    expected: "VLAN ids and ranges such as 1-10,20",
};
const TEXT: Type = Type::Text { max_length: 254 };
const ADMIN: Type = Type::Enum(&["up", "down"]);
const DOMAIN_STATE: Type = Type::Enum(&["active", "suspend"]);
const LAYER: Type = Type::Enum(&["Layer2", "Layer3"]);
const MODE: Type = Type::Enum(&["access", "trunk"]);

static ROOTS: &[Definition] = &[Definition::container("System", &DEVICE, SYSTEM)];

const SYSTEM: &[Definition] = &[
    Definition::container("bd-items", &DEVICE, DOMAINS),
    Definition::container("intf-items", &DEVICE, INTERFACES),
];

const DOMAINS: &[Definition] = &[Definition::container("bd-items", &DEVICE, DOMAIN_LIST)];
const DOMAIN_LIST: &[Definition] = &[Definition::list("BD-list", &DEVICE, 1, DOMAIN)];

const DOMAIN: &[Definition] = &[
    Definition::leaf("fabEncap", &DEVICE, Type::Restricted(&ENCAP)),
    Definition::leaf("BdState", &DEVICE, DOMAIN_STATE),
    Definition::leaf("name", &DEVICE, Type::Text { max_length: 128 }),
    Definition::leaf("adminSt", &DEVICE, DOMAIN_STATE),
    Definition::state_leaf("id", &DEVICE, Type::Uint(1, 4094)),
    Definition::state_leaf("operSt", &DEVICE, ADMIN),
];

const INTERFACES: &[Definition] = &[
    Definition::container("phys-items", &DEVICE, PHYSICAL),
    Definition::container("aggr-items", &DEVICE, AGGREGATED),
];

const PHYSICAL: &[Definition] = &[Definition::list("PhysIf-list", &DEVICE, 1, PORT)];
const AGGREGATED: &[Definition] = &[Definition::list("AggrIf-list", &DEVICE, 1, CHANNEL)];

/// The leaves that ports and port channels share, at the same schema positions.
const PORT: &[Definition] = &[
    Definition::leaf("id", &DEVICE, TEXT),
    Definition::leaf("descr", &DEVICE, TEXT),
    Definition::leaf("adminSt", &DEVICE, ADMIN),
    Definition::leaf("layer", &DEVICE, LAYER),
    Definition::leaf("mode", &DEVICE, MODE),
    Definition::leaf("mtu", &DEVICE, Type::Uint(576, 9216)),
    Definition::leaf("accessVlan", &DEVICE, Type::Restricted(&ENCAP)),
    Definition::leaf("nativeVlan", &DEVICE, Type::Restricted(&ENCAP)),
    Definition::leaf("trunkVlans", &DEVICE, Type::Restricted(&TRUNK_VLANS)),
];

const CHANNEL: &[Definition] = &[
    Definition::leaf("id", &DEVICE, TEXT),
    Definition::leaf("descr", &DEVICE, TEXT),
    Definition::leaf("adminSt", &DEVICE, ADMIN),
    Definition::leaf("layer", &DEVICE, LAYER),
    Definition::leaf("mode", &DEVICE, MODE),
    Definition::leaf("mtu", &DEVICE, Type::Uint(576, 9216)),
    Definition::leaf("accessVlan", &DEVICE, Type::Restricted(&ENCAP)),
    Definition::leaf("nativeVlan", &DEVICE, Type::Restricted(&ENCAP)),
    Definition::leaf("trunkVlans", &DEVICE, Type::Restricted(&TRUNK_VLANS)),
    Definition::leaf("pcMode", &DEVICE, Type::Enum(&["on", "active", "passive"])),
    Definition::container("rsmbrIfs-items", &DEVICE, MEMBERS),
];

const MEMBERS: &[Definition] = &[Definition::list("RsMbrIfs-list", &DEVICE, 1, MEMBER)];
const MEMBER: &[Definition] =
    &[Definition::leaf("tDn", &DEVICE, TEXT), Definition::leaf("isMbrForce", &DEVICE, Type::Bool)];

/// The VLAN id in a name such as `vlan-7`.
fn vlan(text: &str) -> Option<u16> {
    match vid_ranges(text.strip_prefix("vlan-")?)?.as_slice() {
        [(low, high)] if low == high => Some(*low),
        _ => None,
    }
}

fn member_dn(port: &str) -> String {
    format!("/System/intf-items/phys-items/PhysIf-list[id='{port}']")
}

/// The factory configuration: VLAN 1, with every port as a switched access port.
fn factory(hardware: &Hardware) -> Container {
    let mut xml = format!(
        "<System xmlns=\"{}\"><bd-items><bd-items><BD-list><fabEncap>vlan-1</fabEncap></BD-list></bd-items></bd-items>\
         <intf-items><phys-items>",
        DEVICE.namespace
    );
    let common =
        "<adminSt>up</adminSt><layer>Layer2</layer><mode>access</mode><accessVlan>vlan-1</accessVlan>";
    // Writing to a String can't fail; hence the discarded results.
    for port in &hardware.ports {
        let _ = write!(xml, "<PhysIf-list><id>{}</id>{common}</PhysIf-list>", xml_escaped(port));
    }
    xml.push_str("</phys-items><aggr-items>");
    for (lag, members) in &hardware.lags {
        let _ = write!(
            xml,
            "<AggrIf-list><id>{}</id>{common}<pcMode>active</pcMode><rsmbrIfs-items>",
            xml_escaped(lag)
        );
        for member in members {
            let _ =
                write!(xml, "<RsMbrIfs-list><tDn>{}</tDn></RsMbrIfs-list>", xml_escaped(&member_dn(member)));
        }
        xml.push_str("</rsmbrIfs-items></AggrIf-list>");
    }
    xml.push_str("</aggr-items></intf-items></System>");
    parse_configuration(ROOTS, &xml)
}

fn domains(config: &Container) -> impl Iterator<Item = (&str, &Container)> {
    let items = child(config, ROOTS, "System")
        .and_then(|system| child(system, SYSTEM, "bd-items"))
        .and_then(|items| child(items, DOMAINS, "bd-items"));
    entries(items, DOMAIN_LIST, "BD-list")
}

fn interface_items(config: &Container) -> Option<&Container> {
    child(child(config, ROOTS, "System")?, SYSTEM, "intf-items")
}

fn ports(config: &Container) -> impl Iterator<Item = (&str, &Container)> {
    let items = interface_items(config).and_then(|items| child(items, INTERFACES, "phys-items"));
    entries(items, PHYSICAL, "PhysIf-list")
}

fn channels(config: &Container) -> impl Iterator<Item = (&str, &Container)> {
    let items = interface_items(config).and_then(|items| child(items, INTERFACES, "aggr-items"));
    entries(items, AGGREGATED, "AggrIf-list")
}

/// The ports of a port channel.
fn members(channel: &Container) -> impl Iterator<Item = &str> {
    let items = child(channel, CHANNEL, "rsmbrIfs-items");
    entries(items, MEMBERS, "RsMbrIfs-list").filter_map(|(dn, _)| {
        let (_, id) = dn.rsplit_once("PhysIf-list[id=").or_else(|| dn.rsplit_once("phys-["))?;
        Some(id.trim_matches(['[', ']', '\'', '"']))
    })
}

fn check(config: &Container, hardware: &Hardware) -> Vec<RpcError> {
    let mut errors = Vec::new();
    let system = Path::node(None, &ROOTS[0]);
    let items = system.child("bd-items");
    let items = items.child("bd-items");
    let mut names: BTreeMap<&str, &str> = BTreeMap::new();
    if !domains(config).any(|(encap, _)| encap == "vlan-1") {
        errors.push(refused(&items, "Operation not permitted: default VLAN 1 can not be deleted"));
    }
    for (encap, domain) in domains(config) {
        let key = [text_value(encap)];
        let path = items.child_entry("BD-list", &key);
        if vlan(encap).is_some_and(|id| RESERVED.contains(&id)) {
            errors.push(invalid(&path, format!("{encap} is reserved for internal use")));
        }
        if let Some(name) = text(domain, DOMAIN, "name").filter(|name| !name.is_empty())
            && let Some(first) = names.insert(name, encap)
        {
            errors.push(refused(&path, format!("VLAN name {name} is used by {first} already")));
        }
    }
    let items = system.child("intf-items");
    let physical = items.child("phys-items");
    for (port, _) in ports(config).filter(|(port, _)| !hardware.ports.iter().any(|p| p == port)) {
        let key = [text_value(port)];
        let path = physical.child_entry("PhysIf-list", &key);
        errors.push(invalid(&path, format!("interface {port} does not exist")));
    }
    let aggregated = items.child("aggr-items");
    let mut taken = BTreeSet::new();
    for (name, channel) in channels(config) {
        let key = [text_value(name)];
        let path = aggregated.child_entry("AggrIf-list", &key);
        for member in members(channel) {
            let why = if !hardware.ports.iter().any(|port| port == member) {
                "does not exist"
            } else if !taken.insert(member) {
                "is a member of another port channel"
            } else {
                continue;
            };
            errors.push(refused(&path, format!("interface {member} {why}")));
        }
    }
    errors
}

fn view(running: &Container, hardware: &Hardware) -> View {
    let mut vlans = BTreeMap::new();
    for (encap, domain) in domains(running) {
        let Some(id) = vlan(encap) else { continue };
        let suspended =
            leaf_is(domain, DOMAIN, "BdState", "suspend") || leaf_is(domain, DOMAIN, "adminSt", "suspend");
        let status = if suspended { "SUSPENDED" } else { "ACTIVE" };
        let name = text(domain, DOMAIN, "name").map(str::to_owned);
        vlans.insert(id, VlanView { name, status: status.to_owned() });
    }
    let active = active(&vlans);
    let mut all = bare_ports(hardware);
    for (name, port) in ports(running).chain(channels(running)) {
        fill_port(all.entry(name.to_owned()).or_default(), port, &active);
    }
    for (name, channel) in channels(running) {
        for member in members(channel) {
            if let Some(port) = all.get_mut(member) {
                port.lag = Some(name.to_owned());
            }
        }
    }
    View { vlans, ports: all, ..View::default() }
}

/// Fills the view of a port or port channel. Both have the leaves of [`PORT`].
fn fill_port(view: &mut PortView, port: &Container, active: &VlanSet) {
    let id = |name| text(port, PORT, name).and_then(vlan).unwrap_or(1);
    view.disabled = leaf_is(port, PORT, "adminSt", "down");
    if leaf_is(port, PORT, "layer", "Layer3") {
        return;
    }
    if leaf_is(port, PORT, "mode", "trunk") {
        view.mode = Some(PortMode::Trunk);
        view.native = Some(id("nativeVlan"));
        let listed = text(port, PORT, "trunkVlans").unwrap_or("1-4094");
        view.configured = vlan_set(listed);
        view.open_trunk = view.configured.ranges() == [(1, 4094)];
    } else {
        view.mode = Some(PortMode::Access);
        view.access = Some(id("accessVlan"));
        view.configured = view.access.into_iter().collect();
    }
    view.vlans = view.configured.intersection(active);
}

/// Adds state data to running: id and status of each bridge domain.
fn operational(running: &Container, _: &Hardware) -> Container {
    let mut data = running.clone();
    data.modify_container(position(ROOTS, "System"), |system| {
        system.modify_container(position(SYSTEM, "bd-items"), |items| {
            items.modify_container(0, |items| {
                items.modify_list(0, |entries| {
                    for (key, domain) in entries.iter_mut() {
                        let id = key.first().and_then(Value::text).and_then(vlan).unwrap_or_default();
                        let up = !leaf_is(domain, DOMAIN, "BdState", "suspend");
                        let domain = std::sync::Arc::make_mut(domain);
                        set_leaf(domain, DOMAIN, "id", Value::Uint(id.into()));
                        set_leaf(domain, DOMAIN, "operSt", Value::Keyword(if up { "up" } else { "down" }));
                    }
                });
            });
        });
    });
    data
}

/// Returns the XML of a hand edit; the default operation is merge.
fn hand_edit_xml(edit: &HandEdit, running: &Container, _: &Hardware) -> String {
    let mut out =
        format!("<System xmlns=\"{}\" xmlns:nc=\"{NETCONF}\"><bd-items><bd-items>", DEVICE.namespace);
    for (id, name) in &edit.define_vlans {
        let _ = write!(
            out,
            "<BD-list><fabEncap>vlan-{id}</fabEncap><BdState>active</BdState><name>{}</name></BD-list>",
            xml_escaped(name)
        );
    }
    if edit.port.is_none() {
        for id in edit.remove_vlans.iter() {
            let _ = write!(out, "<BD-list nc:operation=\"remove\"><fabEncap>vlan-{id}</fabEncap></BD-list>");
        }
    }
    out.push_str("</bd-items></bd-items>");
    if let Some(name) = &edit.port {
        let is_channel = channels(running).any(|(channel, _)| channel == name);
        let (items, list) =
            if is_channel { ("aggr-items", "AggrIf-list") } else { ("phys-items", "PhysIf-list") };
        let present =
            ports(running).chain(channels(running)).find(|(port, _)| port == name).map(|(_, port)| port);
        let _ = write!(out, "<intf-items><{items}><{list}><id>{}</id>", xml_escaped(name));
        write_port(edit, present, &mut out);
        let _ = write!(out, "</{list}></{items}></intf-items>");
    }
    out.push_str("</System>");
    out
}

fn write_port(edit: &HandEdit, present: Option<&Container>, out: &mut String) {
    if edit.clear {
        for leaf in ["mode", "accessVlan", "nativeVlan", "trunkVlans"] {
            let _ = write!(out, "<{leaf} nc:operation=\"remove\"/>");
        }
        return;
    }
    if let Some(mode) = edit.mode {
        let mode = if mode == PortMode::Trunk { "trunk" } else { "access" };
        let _ = write!(out, "<mode>{mode}</mode>");
    }
    for (leaf, id) in [("accessVlan", edit.access), ("nativeVlan", edit.native)] {
        if let Some(id) = id {
            let _ = write!(out, "<{leaf}>vlan-{id}</{leaf}>");
        }
    }
    if edit.vlans.is_empty() && edit.remove_vlans.is_empty() {
        return;
    }
    // The first list of a port replaces the default, which is all VLANs.
    let before: VlanSet = match present.and_then(|port| text(port, PORT, "trunkVlans")) {
        Some(listed) => vlan_set(listed),
        None if edit.vlans.is_empty() => (1..=4094).collect(),
        None => VlanSet::default(),
    };
    let after: VlanSet =
        before.iter().filter(|id| !edit.remove_vlans.contains(*id)).chain(edit.vlans.iter()).collect();
    let _ = write!(out, "<trunkVlans>{after}</trunkVlans>");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::accessors::merge_xml;
    use crate::dialect::tests::{hardware, refused};

    #[test]
    fn nxos_refuses_reserved_vlans_and_removal_of_vlan_1() {
        let system = |inner: &str| {
            format!("<System xmlns=\"http://cisco.com/ns/yang/cisco-nx-os-device\">{inner}</System>")
        };
        let domain = |encap: &str, attribute: &str| {
            system(&format!(
                "<bd-items><bd-items><BD-list{attribute}><fabEncap>{encap}</fabEncap></BD-list></bd-items></bd-items>"
            ))
        };
        let remove = " xmlns:nc=\"urn:ietf:params:xml:ns:netconf:base:1.0\" nc:operation=\"remove\"";
        assert_eq!(refused(&NXOS, &domain("vlan-3967", "")), []);
        assert!(refused(&NXOS, &domain("vlan-3968", ""))[0].2.contains("reserved"));
        assert!(refused(&NXOS, &domain("vlan-1", remove))[0].2.contains("VLAN 1 can not be deleted"));
        let port =
            "<intf-items><phys-items><PhysIf-list><id>eth1/9</id></PhysIf-list></phys-items></intf-items>";
        assert!(refused(&NXOS, &system(port))[0].2.contains("eth1/9 does not exist"));
        // A trunk without a list carries all VLANs.
        let hardware = hardware(&NXOS);
        let port = system(
            "<intf-items><phys-items><PhysIf-list><id>eth1/1</id><mode>trunk</mode></PhysIf-list></phys-items></intf-items>",
        );
        let config = merge_xml(NXOS.roots, &(NXOS.factory)(&hardware), &port);
        assert!((NXOS.view)(&config, &hardware).ports["eth1/1"].open_trunk);
    }
}
