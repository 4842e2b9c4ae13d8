//! Junos on QFX switches (Juniper/yang 23.4R2, junos-qfx): VLANs with names, and ports whose unit 0 has the
//! family `ethernet-switching`.
//!
//! The commit check of the device enforces rules beyond the model: one member on an access port, at least one on a
//! trunk, a native VLAN on trunks only, unique VLAN ids, no units on members of an aggregated link, tags on tagged
//! interfaces only, defined interfaces of routing instances. It accepts members that name no VLAN. So a VLAN can be
//! deleted while a port names it; the port then doesn't carry it.

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
    bare_ports, child, entries, leaf, leaf_is, module, parse_configuration, text, vlan_set, xml_escaped,
};
use crate::dialect::view::{PortMode, View, VlanSet, VlanView};
use crate::dialect::{Dialect, Hardware};
use crate::mac_table::MacTable;
use crate::model::schema::{Definition, Module, position};
use crate::model::tree::Container;
use crate::model::value::{StringRule, Type, Value, vid_ranges};
use crate::netconf::error::PathStyle;

/// The Junos dialect.
pub static JUNOS: Dialect = Dialect {
    name: "junos",
    modules: &[&ROOT, &INTERFACES_MODULE, &VLANS_MODULE, &vrf::INSTANCES_MODULE, &policy::POLICY_MODULE],
    capability_uris: &["http://xml.juniper.net/netconf/junos/1.0", "http://xml.juniper.net/dmi/system/1.0"],
    error_path_style: PathStyle::Junos,
    port_name: |n| format!("xe-0/0/{n}"),
    roots: ROOTS,
    factory,
    check: checks::check,
    operational: |running, _| running.clone(),
    view,
    mac_table: MacTable::Operation(mac_table::OPERATION, mac_table::write),
    bgp: Some(BgpSupport {
        instances: bgp::instances,
        shown: Shown::Operations(bgp_state::OPERATIONS, bgp_state::write),
    }),
    hand_edit_xml: console::hand_edit_xml,
};

const REVISION: &str = "2023-01-01";
static ROOT: Module =
    module("junos-qfx-conf-root", "jc", "http://yang.juniper.net/junos-qfx/conf/root", REVISION);
static INTERFACES_MODULE: Module = module(
    "junos-qfx-conf-interfaces",
    "jc-interfaces",
    "http://yang.juniper.net/junos-qfx/conf/interfaces",
    REVISION,
);
static VLANS_MODULE: Module =
    module("junos-qfx-conf-vlans", "jc-vlans", "http://yang.juniper.net/junos-qfx/conf/vlans", REVISION);

const TEXT: Type = Type::Text { max_length: 255 };
static VLAN_NAME: StringRule = StringRule { length: (2, 64), matches: |_| true, expected: "a VLAN's name" };

static ROOTS: &[Definition] = &[Definition::container("configuration", &ROOT, CONFIGURATION)];

const CONFIGURATION: &[Definition] = &[
    Definition::container("interfaces", &INTERFACES_MODULE, INTERFACES),
    Definition::container("vlans", &VLANS_MODULE, VLANS),
    Definition::container("routing-instances", &vrf::INSTANCES_MODULE, vrf::INSTANCES),
    Definition::container("policy-options", &policy::POLICY_MODULE, policy::POLICY_OPTIONS),
];

const INTERFACES: &[Definition] = &[Definition::list("interface", &INTERFACES_MODULE, 1, INTERFACE)];

const INTERFACE: &[Definition] = &[
    Definition::leaf("name", &INTERFACES_MODULE, TEXT),
    Definition::leaf("description", &INTERFACES_MODULE, TEXT),
    Definition::leaf("disable", &INTERFACES_MODULE, Type::Empty),
    Definition::leaf("vlan-tagging", &INTERFACES_MODULE, Type::Empty).in_case("tagging", "single"),
    Definition::leaf("flexible-vlan-tagging", &INTERFACES_MODULE, Type::Empty).in_case("tagging", "flexible"),
    Definition::leaf("native-vlan-id", &INTERFACES_MODULE, Type::Uint(0, 4094)),
    Definition::leaf("mtu", &INTERFACES_MODULE, Type::Uint(256, 9216)),
    Definition::container("ether-options", &INTERFACES_MODULE, ETHER_OPTIONS),
    Definition::container("aggregated-ether-options", &INTERFACES_MODULE, AGGREGATED_OPTIONS),
    Definition::list("unit", &INTERFACES_MODULE, 1, UNIT),
];

const ETHER_OPTIONS: &[Definition] = &[Definition::container("ieee-802.3ad", &INTERFACES_MODULE, MEMBERSHIP)];

const MEMBERSHIP: &[Definition] = &[Definition::leaf("bundle", &INTERFACES_MODULE, TEXT)];

const AGGREGATED_OPTIONS: &[Definition] = &[
    Definition::leaf("minimum-links", &INTERFACES_MODULE, Type::Uint(1, 64)),
    Definition::presence("lacp", &INTERFACES_MODULE, LACP),
];

const LACP: &[Definition] = &[
    Definition::leaf("active", &INTERFACES_MODULE, Type::Empty).in_case("lacp-mode", "active"),
    Definition::leaf("passive", &INTERFACES_MODULE, Type::Empty).in_case("lacp-mode", "passive"),
];

const UNIT: &[Definition] = &[
    Definition::leaf("name", &INTERFACES_MODULE, TEXT),
    Definition::leaf("description", &INTERFACES_MODULE, TEXT),
    Definition::leaf("disable", &INTERFACES_MODULE, Type::Empty),
    Definition::leaf("vlan-id", &INTERFACES_MODULE, Type::Uint(1, 4094)),
    Definition::container("family", &INTERFACES_MODULE, FAMILY),
];

const FAMILY: &[Definition] = &[
    Definition::presence("inet", &INTERFACES_MODULE, vrf::INET),
    Definition::presence("inet6", &INTERFACES_MODULE, vrf::INET6),
    Definition::presence("ethernet-switching", &INTERFACES_MODULE, ETHERNET_SWITCHING),
];

const ETHERNET_SWITCHING: &[Definition] = &[
    Definition::leaf("interface-mode", &INTERFACES_MODULE, Type::Enum(&["access", "trunk"])),
    Definition::container("vlan", &INTERFACES_MODULE, MEMBERS),
];

const MEMBERS: &[Definition] = &[Definition::leaf_list("members", &INTERFACES_MODULE, TEXT)];

const VLANS: &[Definition] = &[Definition::list("vlan", &VLANS_MODULE, 1, VLAN)];

const VLAN: &[Definition] = &[
    Definition::leaf("name", &VLANS_MODULE, Type::Restricted(&VLAN_NAME)),
    Definition::leaf("description", &VLANS_MODULE, TEXT),
    Definition::leaf("vlan-id", &VLANS_MODULE, TEXT).in_case("vlan-identifier-choice", "case_1"),
    Definition::leaf_list("vlan-id-list", &VLANS_MODULE, TEXT).in_case("vlan-identifier-choice", "case_2"),
    Definition::leaf("l3-interface", &VLANS_MODULE, TEXT),
];

/// The factory configuration: the VLAN `default`, with every port as an access port. A router has neither.
fn factory(hardware: &Hardware) -> Container {
    let mut xml = format!(
        "<configuration xmlns=\"{}\"><interfaces xmlns=\"{}\">",
        ROOT.namespace, INTERFACES_MODULE.namespace
    );
    let access_port = "<unit><name>0</name><family><ethernet-switching><vlan><members>default</members></vlan>\
        </ethernet-switching></family></unit>";
    let switching = if hardware.router { "" } else { access_port };
    // Writing to a String can't fail; hence the discarded results.
    for port in &hardware.ports {
        let _ = write!(xml, "<interface><name>{}</name>", xml_escaped(port));
        match hardware.lag_of(port) {
            None => xml.push_str(switching),
            Some(lag) => {
                let _ = write!(
                    xml,
                    "<ether-options><ieee-802.3ad><bundle>{}</bundle></ieee-802.3ad></ether-options>",
                    xml_escaped(lag)
                );
            }
        }
        xml.push_str("</interface>");
    }
    for lag in hardware.lags.keys() {
        let _ = write!(
            xml,
            "<interface><name>{}</name><aggregated-ether-options><lacp><active/></lacp></aggregated-ether-options>\
             {switching}</interface>",
            xml_escaped(lag)
        );
    }
    xml.push_str("</interfaces>");
    if !hardware.router {
        let _ = write!(
            xml,
            "<vlans xmlns=\"{}\"><vlan><name>default</name><vlan-id>1</vlan-id></vlan></vlans>",
            VLANS_MODULE.namespace
        );
    }
    xml.push_str("</configuration>");
    parse_configuration(ROOTS, &xml)
}

fn interfaces(config: &Container) -> impl Iterator<Item = (&str, &Container)> {
    let interfaces =
        child(config, ROOTS, "configuration").and_then(|c| child(c, CONFIGURATION, "interfaces"));
    entries(interfaces, INTERFACES, "interface")
}

fn vlans(config: &Container) -> impl Iterator<Item = (&str, &Container)> {
    let vlans = child(config, ROOTS, "configuration").and_then(|c| child(c, CONFIGURATION, "vlans"));
    entries(vlans, VLANS, "vlan")
}

/// The family `ethernet-switching` of unit 0.
fn switching(interface: &Container) -> Option<&Container> {
    let (_, unit) = entries(Some(interface), INTERFACE, "unit").find(|(name, _)| *name == "0")?;
    child(child(unit, UNIT, "family")?, FAMILY, "ethernet-switching")
}

fn members(switching: &Container) -> impl Iterator<Item = &str> {
    child(switching, ETHERNET_SWITCHING, "vlan")
        .and_then(|vlan| vlan.leaf_list(position(MEMBERS, "members")))
        .into_iter()
        .flatten()
        .filter_map(Value::text)
}

fn bundle(interface: &Container) -> Option<&str> {
    let options = child(interface, INTERFACE, "ether-options")?;
    text(child(options, ETHER_OPTIONS, "ieee-802.3ad")?, MEMBERSHIP, "bundle")
}

/// The ids of a VLAN: its `vlan-id`, those in its `vlan-id-list`, or none.
fn vlan_ids(vlan: &Container) -> VlanSet {
    let one = text(vlan, VLAN, "vlan-id").and_then(|id| id.parse().ok()).filter(|id| (1..=4094).contains(id));
    let many = vlan.leaf_list(position(VLAN, "vlan-id-list")).into_iter().flatten();
    let many = many.filter_map(|v| vid_ranges(v.text()?)).flatten();
    one.into_iter().chain(many.flat_map(|(low, high)| low..=high)).collect()
}

/// The VLAN ids that a `members` value selects: a VLAN by name, an id, a range, or `all`.
fn vlans_of_member(member: &str, vlans_by_name: &BTreeMap<&str, VlanSet>, all: &VlanSet) -> VlanSet {
    if let Some(ids) = vlans_by_name.get(member) {
        return ids.clone();
    }
    if member == "all" {
        return all.clone();
    }
    vlan_set(member)
}

fn vlans_by_name(config: &Container) -> BTreeMap<&str, VlanSet> {
    vlans(config).map(|(name, vlan)| (name, vlan_ids(vlan))).collect()
}

fn view(running: &Container, hardware: &Hardware) -> View {
    let names = vlans_by_name(running);
    let mut defined = BTreeMap::new();
    for (name, ids) in &names {
        let several = ids.iter().nth(1).is_some();
        for id in ids.iter() {
            let name = if several { format!("{name}-vlan-{id:04}") } else { (*name).to_owned() };
            defined.insert(id, VlanView { name: Some(name), status: "ACTIVE".to_owned() });
        }
    }
    let all: VlanSet = defined.keys().copied().collect();
    let mut ports = bare_ports(hardware);
    for (name, interface) in interfaces(running) {
        // Junos accepts configuration of interfaces that don't exist.
        if !ports.contains_key(name) && !name.starts_with("ae") {
            continue;
        }
        let port = ports.entry(name.to_owned()).or_default();
        port.lag = bundle(interface).map(str::to_owned);
        port.disabled = leaf(interface, INTERFACE, "disable").is_some();
        let Some(switching) = switching(interface) else { continue };
        port.configured = members(switching)
            .flat_map(|m| vlans_of_member(m, &names, &all).iter().collect::<Vec<_>>())
            .collect();
        if leaf_is(switching, ETHERNET_SWITCHING, "interface-mode", "trunk") {
            port.mode = Some(PortMode::Trunk);
            port.native = leaf(interface, INTERFACE, "native-vlan-id").and_then(|v| v.vlans().next());
            port.open_trunk = members(switching).any(|m| m == "all" && !names.contains_key("all"));
        } else {
            port.mode = Some(PortMode::Access);
            // An access port without a member is in the VLAN named `default`.
            let nothing = members(switching).next().is_none();
            if let (true, Some(ids)) = (nothing, names.get("default")) {
                port.configured = ids.clone();
            }
            port.access = port.configured.iter().next();
        }
        port.vlans = port.configured.intersection(&all);
    }
    View { vlans: defined, ports, vrfs: vrf::vrfs(running), bgp: bgp::instances(running) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::accessors::merge_xml;
    use crate::dialect::tests::{assert_refused, hardware};

    fn junos(interfaces: &str, vlans: &str) -> String {
        format!(
            "<configuration xmlns=\"http://yang.juniper.net/junos-qfx/conf/root\">\
             <interfaces xmlns=\"http://yang.juniper.net/junos-qfx/conf/interfaces\">{interfaces}</interfaces>\
             <vlans xmlns=\"http://yang.juniper.net/junos-qfx/conf/vlans\">{vlans}</vlans></configuration>"
        )
    }

    fn junos_port(mode: &str, members: &str, more: &str) -> String {
        format!(
            "<interface><name>xe-0/0/9</name>{more}<unit><name>0</name><family><ethernet-switching>\
             <interface-mode>{mode}</interface-mode><vlan>{members}</vlan></ethernet-switching></family></unit></interface>"
        )
    }

    #[test]
    fn junos_commit_check_refuses_invalid_vlans_and_interfaces() {
        let member = |m: &str| format!("<members>{m}</members>");
        let native = "<native-vlan-id>1</native-vlan-id>";
        let vlan = |name: &str, id: &str| format!("<vlan><name>{name}</name><vlan-id>{id}</vlan-id></vlan>");
        let cases = [
            ("accepted", junos(&junos_port("trunk", &member("nowhere"), ""), ""), None),
            ("accepted", junos(&junos_port("trunk", &(member("all") + &member("5-9")), native), ""), None),
            ("accepted", junos("", &vlan("v5", "5")), None),
            ("a trunk without VLANs", junos(&junos_port("trunk", "", ""), ""), Some("vlan members")),
            (
                "two on an access port",
                junos(&junos_port("access", &(member("5") + &member("6")), ""), ""),
                Some("only one"),
            ),
            (
                "a range on an access port",
                junos(&junos_port("access", &member("5-6"), ""), ""),
                Some("only one"),
            ),
            (
                "a native VLAN of an access port",
                junos(&junos_port("access", "", native), ""),
                Some("native-vlan-id"),
            ),
            ("an id twice", junos("", &vlan("v1", "1")), Some("used by vlan default")),
            ("no id", junos("", &vlan("v1", "4095")), Some("Invalid vlan-id")),
            (
                "a unit on a link of ae0",
                junos("<interface><name>xe-0/0/3</name><unit><name>0</name></unit></interface>", ""),
                Some("logical unit"),
            ),
        ];
        assert_refused(&JUNOS, &cases);
    }

    #[test]
    fn junos_refuses_undefined_members_only_with_strict_references() {
        let strict = Hardware { strict_references: true, ..hardware(&JUNOS) };
        let xml = junos(&junos_port("trunk", "<members>nowhere</members>", ""), "");
        let config = merge_xml(JUNOS.roots, &(JUNOS.factory)(&strict), &xml);
        let errors = (JUNOS.check)(&config, &strict);
        assert_eq!(errors.len(), 1);
        let path = errors[0].path.as_ref().expect("a path");
        assert_eq!(path.junos_path(), "[edit interfaces xe-0/0/9]");
    }

    #[test]
    fn junos_choices_exclude_each_other() {
        let hardware = hardware(&JUNOS);
        let one = junos("", "<vlan><name>v5</name><vlan-id>5</vlan-id></vlan>");
        let many = junos("", "<vlan><name>v5</name><vlan-id-list>7-9</vlan-id-list></vlan>");
        let config = merge_xml(JUNOS.roots, &(JUNOS.factory)(&hardware), &one);
        let config = merge_xml(JUNOS.roots, &config, &many);
        let ids: Vec<u16> = (JUNOS.view)(&config, &hardware).vlans.into_keys().collect();
        assert_eq!(ids, [1, 7, 8, 9]);
    }
}
