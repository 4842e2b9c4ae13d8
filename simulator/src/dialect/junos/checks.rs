//! The commit check of Junos.

use std::collections::BTreeMap;

use super::{
    ETHERNET_SWITCHING, INTERFACE, MEMBERS, VLAN, bundle, interfaces, members, switching, vlan_ids, vlans,
};
use crate::dialect::Hardware;
use crate::dialect::accessors::{child, entries, leaf, leaf_is, text, text_value};
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
    errors
}

fn refused(path: &Path<'_>, message: impl Into<String>) -> RpcError {
    RpcError::protocol(Tag::OperationFailed, message).at(path)
}

fn check_vlans(config: &Container, root: &Path<'_>, errors: &mut Vec<RpcError>) {
    let list = root.child("vlans");
    let mut users: BTreeMap<u16, &str> = BTreeMap::new();
    for (name, vlan) in vlans(config) {
        let key = [text_value(name)];
        let path = list.child_entry("vlan", &key);
        let ids = vlan_ids(vlan);
        if let Some(id) = text(vlan, VLAN, "vlan-id").filter(|_| ids.is_empty())
            && !matches!(id, "none" | "all")
        {
            errors.push(refused(&path, format!("Invalid vlan-id '{id}'")).info("bad-element", "vlan-id"));
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
