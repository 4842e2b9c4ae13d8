//! The commit check of Junos.

use std::collections::BTreeMap;

use super::{
    ETHERNET_SWITCHING, FAMILY, INTERFACE, MEMBERS, UNIT, VLAN, bgp_checks, bundle, interfaces, members,
    switching, vlan_ids, vlans, vrf,
};
use crate::dialect::Hardware;
use crate::dialect::accessors::{child, entries, leaf, leaf_is, text, text_value};
use crate::dialect::routing::duplicate_addresses;
use crate::model::path::Path;
use crate::model::schema::position;
use crate::model::tree::Container;
use crate::model::value::vid_ranges;
use crate::netconf::error::{RpcError, Tag};

/// Returns all errors of a configuration.
pub(super) fn check(config: &Container, hardware: &Hardware) -> Vec<RpcError> {
    let mut errors = Vec::new();
    let root = Path::node(None, &super::ROOTS[0]);
    check_vlans(config, &root, &mut errors);
    let defined: BTreeMap<&str, _> = vlans(config).map(|(name, vlan)| (name, vlan_ids(vlan))).collect();
    let list = root.child("interfaces");
    for (name, interface) in interfaces(config) {
        let key = [text_value(name)];
        let path = list.child_entry("interface", &key);
        check_interface(interface, &path, &mut errors);
        check_units(name, interface, &path, &mut errors);
        if hardware.strict_references
            && let Some(switching) = switching(interface)
        {
            let is_defined = |member: &str| {
                defined.contains_key(member) || member == "all" || vid_ranges(member).is_some()
            };
            for member in members(switching).filter(|member| !is_defined(member)) {
                errors.push(
                    refused(&path, format!("vlan {member} is not defined")).info("bad-element", member),
                );
            }
        }
    }
    check_routing_instances(config, &root, &mut errors);
    bgp_checks::check(config, &root, &mut errors);
    errors
}

pub(super) fn refused(path: &Path<'_>, message: impl Into<String>) -> RpcError {
    RpcError::protocol(Tag::OperationFailed, message).at(path)
}

fn check_vlans(config: &Container, root: &Path<'_>, errors: &mut Vec<RpcError>) {
    let list = root.child("vlans");
    let mut users: BTreeMap<u16, &str> = BTreeMap::new();
    let mut routed: BTreeMap<&str, &str> = BTreeMap::new();
    for (name, vlan) in vlans(config) {
        let key = [text_value(name)];
        let path = list.child_entry("vlan", &key);
        let ids = vlan_ids(vlan);
        if let Some(id) = text(vlan, VLAN, "vlan-id").filter(|_| ids.is_empty())
            && !matches!(id, "none" | "all")
        {
            errors.push(refused(&path, format!("Invalid vlan-id '{id}'")).info("bad-element", "vlan-id"));
        }
        if let Some(interface) = text(vlan, VLAN, "l3-interface")
            && let Some(first) = routed.insert(interface, name)
        {
            let why = format!("l3-interface {interface} of vlan {name} is used by vlan {first} already");
            errors.push(refused(&path, why).info("bad-element", "l3-interface"));
        }
        for id in ids.iter() {
            if let Some(first) = users.insert(id, name) {
                let why = format!("vlan-id {id} of vlan {name} is used by vlan {first} already");
                errors.push(refused(&path, why).info("bad-element", "vlan-id"));
            }
        }
    }
}

fn check_interface(interface: &Container, path: &Path<'_>, errors: &mut Vec<RpcError>) {
    let mut refuse = |message: &str, bad: &'static str| {
        errors.push(refused(path, message).info("bad-element", bad));
    };
    let has_units = entries(Some(interface), INTERFACE, "unit").next().is_some();
    if bundle(interface).is_some() && has_units {
        refuse("logical unit is not allowed on a link of an aggregated interface", "unit");
    }
    let native = leaf(interface, INTERFACE, "native-vlan-id").is_some();
    let flexible = leaf(interface, INTERFACE, "flexible-vlan-tagging").is_some();
    let switching = switching(interface);
    let trunk = switching.is_some_and(|s| leaf_is(s, ETHERNET_SWITCHING, "interface-mode", "trunk"));
    if native && !trunk && !flexible {
        refuse(
            "native-vlan-id can be specified with flexible-vlan-tagging mode or with interface-mode trunk",
            "native-vlan-id",
        );
    }
    let Some(switching) = switching else { return };
    let listed = child(switching, ETHERNET_SWITCHING, "vlan")
        .and_then(|vlan| vlan.leaf_list(position(MEMBERS, "members")))
        .map_or(0, std::collections::BTreeSet::len);
    if trunk && listed == 0 {
        refuse(
            "For trunk interface, please ensure either vlan members is configured or inner-vlan-id-list is \
             configured",
            "ethernet-switching",
        );
    }
    let selects_several =
        |member: &str| member == "all" || vid_ranges(member).is_some_and(|r| r.iter().any(|(a, b)| a < b));
    if !trunk && (listed > 1 || members(switching).any(selects_several)) {
        refuse("Access interface can have only one vlan member", "members");
    }
}

/// The units of an interface: tags on tagged interfaces only, each tag once, and one kind of families.
fn check_units(name: &str, interface: &Container, path: &Path<'_>, errors: &mut Vec<RpcError>) {
    let is_set = |name| leaf(interface, INTERFACE, name).is_some();
    let (tagged, flexible) = (is_set("vlan-tagging"), is_set("flexible-vlan-tagging"));
    let logical = name.starts_with("irb") || name.starts_with("lo");
    let mut tags: BTreeMap<u16, &str> = BTreeMap::new();
    for (unit, content) in entries(Some(interface), INTERFACE, "unit") {
        let key = [text_value(unit)];
        let path = path.child_entry("unit", &key);
        let mut refuse = |message: String, bad: &'static str| {
            errors.push(refused(&path, message).info("bad-element", bad));
        };
        let tag = vrf::tag(content);
        if tag.is_some() && !tagged && !flexible {
            refuse("VLAN-ID can only be specified on tagged ethernet interfaces".to_owned(), "vlan-id");
        }
        if tag.is_none() && tagged {
            refuse("VLAN-ID must be specified on tagged ethernet interfaces".to_owned(), "unit");
        }
        if !logical && !tagged && !flexible && unit != "0" {
            refuse("Only unit 0 is valid for this encapsulation".to_owned(), "unit");
        }
        if let Some(tag) = tag
            && let Some(first) = tags.insert(tag, unit)
        {
            refuse(format!("VLAN-ID {tag} is used by unit {first} already"), "vlan-id");
        }
        let family = child(content, UNIT, "family");
        let has = |name| family.is_some_and(|family| child(family, FAMILY, name).is_some());
        if has("ethernet-switching") && (has("inet") || has("inet6")) {
            let message = "family ethernet-switching and other families are mutually exclusive".to_owned();
            refuse(message, "family");
        }
    }
}

fn check_routing_instances(config: &Container, root: &Path<'_>, errors: &mut Vec<RpcError>) {
    if vrf::instances(config).next().is_none() {
        return;
    }
    let list = root.child("routing-instances");
    let units = vrf::units(config);
    let mut users: BTreeMap<&str, &str> = BTreeMap::new();
    for (name, instance) in vrf::instances(config) {
        let key = [text_value(name)];
        let path = list.child_entry("instance", &key);
        let mut refuse = |message: String, bad: &'static str| {
            errors.push(refused(&path, message).info("bad-element", bad));
        };
        for member in vrf::members(instance) {
            if !units.contains_key(member) {
                let message = format!(
                    "RT Instance: Interface {member} must be already defined under [edit interfaces]"
                );
                refuse(message, "interface");
            }
            if let Some(first) = users.insert(member, name) {
                let message =
                    format!("RT Instance: interface {member} is already configured under instance {first}");
                refuse(message, "interface");
            }
        }
        check_type(instance, &mut refuse);
        for (rib, route) in vrf::routes(instance) {
            let v6 = route.prefix.addr().is_ipv6();
            if v6 != route.next_hop.is_ipv6() {
                refuse(
                    format!("next hop {} is not of the family of {}", route.next_hop, route.prefix),
                    "next-hop",
                );
            }
            match rib {
                None if v6 => refuse(format!("{} is not a route of {name}.inet.0", route.prefix), "route"),
                Some(rib) if rib != format!("{name}.inet.0") && rib != format!("{name}.inet6.0") => {
                    refuse(format!("RIB {rib} is not of routing-instance {name}"), "rib");
                }
                Some(rib) if rib.ends_with(".inet6.0") != v6 => {
                    refuse(format!("{} is not a route of {rib}", route.prefix), "route");
                }
                _ => {}
            }
        }
    }
    for duplicate in duplicate_addresses(&vrf::vrfs(config)) {
        let key = [text_value(&duplicate.vrf)];
        errors.push(refused(&list.child_entry("instance", &key), duplicate.message));
    }
}

/// A `vrf` needs a distinguisher and targets; only a `vrf` may have them.
fn check_type(instance: &Container, refuse: &mut impl FnMut(String, &'static str)) {
    let kind = leaf(instance, vrf::INSTANCE, "instance-type");
    let is_set = |name| child(instance, vrf::INSTANCE, name).is_some();
    let names = ["route-distinguisher", "vrf-target"];
    if kind.is_some_and(|kind| kind.is("vrf")) {
        for name in names.into_iter().filter(|name| !is_set(name)) {
            refuse(format!("instance-type vrf: {name} must be configured"), name);
        }
    } else if kind.is_some_and(|kind| kind.is("virtual-router")) {
        for name in names.into_iter().chain(["vrf-table-label"]).filter(|name| is_set(name)) {
            refuse(format!("{name} is not valid for instance-type virtual-router"), name);
        }
    } else if kind.is_none() && vrf::members(instance).next().is_some() {
        refuse("interfaces need an instance-type".to_owned(), "interface");
    }
}
