//! Validates a configuration: `must` and leafrefs of the model, and the checks of the device. A network instance
//! may only name existing subinterfaces of its type. No two subinterfaces of a port may accept the same frames.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    ENCAP, ETHERNET, INTERFACE, ROOTS, SUBINTERFACE, VLAN, all_subinterfaces, attached_subinterfaces,
    bgp_checks, instances, interfaces, is_mac_vrf, vrf,
};
use crate::dialect::Hardware;
use crate::dialect::accessors::{child, leaf, leaf_is, list, text, text_value};
use crate::dialect::routing::duplicate_addresses;
use crate::dialect::violations::{invalid, missing_instance, refused};
use crate::model::path::Path;
use crate::model::tree::Container;
use crate::netconf::error::RpcError;

/// Maximum subinterfaces per port.
const MAX_SUBINTERFACES: usize = 4095;

/// Returns all errors of a configuration.
pub(super) fn check(config: &Container, hardware: &Hardware) -> Vec<RpcError> {
    let mut errors = Vec::new();
    let names: BTreeSet<&str> = interfaces(config).map(|(name, _)| name).collect();
    for (name, interface) in interfaces(config) {
        let key = [text_value(name)];
        let path = Path::entry(None, &ROOTS[0], &key);
        if name.starts_with("ethernet-") && !hardware.ports.iter().any(|port| port == name) {
            errors.push(invalid(&path, format!("interface {name} does not exist on this platform")));
        }
        check_interface(name, interface, &names, &path, &mut errors);
    }
    check_instances(config, &mut errors);
    bgp_checks::check(config, &mut errors);
    errors
}

pub(super) fn must_violation(path: &Path<'_>, message: &str) -> RpcError {
    refused(path, message).app_tag("must-violation")
}

fn check_interface(
    name: &str,
    interface: &Container,
    names: &BTreeSet<&str>,
    path: &Path<'_>,
    errors: &mut Vec<RpcError>,
) {
    let tagging = leaf(interface, INTERFACE, "vlan-tagging");
    let switchable = name.starts_with("ethernet") || name.starts_with("lag");
    if tagging.is_some() && !switchable {
        let path = path.child("vlan-tagging");
        errors.push(must_violation(&path, "vlan-tagging not configurable on this interface"));
    }
    if child(interface, INTERFACE, "lag").is_some() && !name.starts_with("lag") {
        let path = path.child("lag");
        errors.push(must_violation(&path, "lag container can only be configured on LAG interfaces"));
    }
    if let Some(lag) = child(interface, INTERFACE, "ethernet").and_then(|e| text(e, ETHERNET, "aggregate-id"))
    {
        let ethernet = path.child("ethernet");
        let path = ethernet.child("aggregate-id");
        if !names.contains(lag) {
            errors.push(missing_instance(&path, format!("interface {lag} does not exist")));
        }
        for (other, set) in
            [("vlan-tagging", tagging.is_some()), ("mtu", leaf(interface, INTERFACE, "mtu").is_some())]
        {
            if set {
                errors.push(must_violation(
                    &path,
                    &format!("{other} and aggregate-id can not be configured together"),
                ));
            }
        }
        if list(Some(interface), INTERFACE, "subinterface").is_some() {
            errors.push(must_violation(&path, "subinterfaces can not be configured on LAG member ports"));
        }
    }
    let on = tagging.is_some_and(|tagging| tagging.is("true"));
    check_subinterfaces(interface, on, switchable, path, errors);
}

fn check_subinterfaces(
    interface: &Container,
    tagging: bool,
    switchable: bool,
    path: &Path<'_>,
    errors: &mut Vec<RpcError>,
) {
    let Some(entries) = list(Some(interface), INTERFACE, "subinterface") else { return };
    if entries.len() > MAX_SUBINTERFACES || (!tagging && switchable && entries.len() > 1) {
        let most = if tagging { MAX_SUBINTERFACES } else { 1 };
        let message = format!(
            "at most {most} subinterfaces are possible with vlan-tagging {}",
            if tagging { "enabled" } else { "disabled" }
        );
        errors.push(refused(path, message).app_tag("too-many-elements"));
    }
    let mut accepted_by: BTreeMap<Option<u16>, String> = BTreeMap::new();
    for (key, sub) in entries {
        let path = path.child_entry("subinterface", key);
        let bridged = leaf_is(sub, SUBINTERFACE, "type", "bridged");
        if leaf(sub, SUBINTERFACE, "type").is_some() && !switchable {
            errors.push(must_violation(&path.child("type"), "type not supported on this interface"));
        }
        if leaf(sub, SUBINTERFACE, "l2-mtu").is_some() && !bridged {
            let path = path.child("l2-mtu");
            errors.push(must_violation(&path, "l2-mtu only allowed with type bridged"));
        }
        check_addresses(sub, bridged, &path, errors);
        let Some(encap) = child(sub, SUBINTERFACE, "vlan").and_then(|v| child(v, VLAN, "encap")) else {
            continue;
        };
        let vlan = path.child("vlan");
        let at = vlan.child("encap");
        let tagged = child(encap, ENCAP, "single-tagged");
        let id = tagged.and_then(|t| leaf(t, super::SINGLE_TAGGED, "vlan-id")?.vlans().next());
        let untagged = child(encap, ENCAP, "untagged").is_some();
        if id.is_some() && !tagging {
            let tagged = at.child("single-tagged");
            let message = "vlan-id only configurable if vlan-tagging enabled on parent interface";
            errors.push(must_violation(&tagged.child("vlan-id"), message));
        }
        if untagged {
            let path = at.child("untagged");
            if tagged.is_some() {
                errors
                    .push(must_violation(&path, "untagged and single-tagged cannot be configured together"));
            }
            if !tagging {
                let message = "untagged only configurable if vlan-tagging enabled on parent interface";
                errors.push(must_violation(&path, message));
            }
            if !bridged {
                errors.push(must_violation(&path, "untagged only allowed with type bridged"));
            }
        }
        if id.is_some() || untagged {
            let index = key.first().map(ToString::to_string).unwrap_or_default();
            if let Some(first) = accepted_by.insert(id, index) {
                let what = id.map_or_else(|| "untagged".to_owned(), |id| format!("vlan-id {id}"));
                errors.push(invalid(&at, format!("{what} is used by subinterface {first} already")));
            }
        }
    }
}

/// Bridged subinterfaces have no addresses.
fn check_addresses(sub: &Container, bridged: bool, path: &Path<'_>, errors: &mut Vec<RpcError>) {
    if bridged && leaf(sub, SUBINTERFACE, "ip-mtu").is_some() {
        errors.push(must_violation(&path.child("ip-mtu"), "ip-mtu not allowed with type bridged"));
    }
    for family in ["ipv4", "ipv6"] {
        let Some(content) = child(sub, SUBINTERFACE, family) else { continue };
        let path = path.child(family);
        if bridged && leaf_is(content, path.children(), "admin-state", "enable") {
            let message = format!("{family} configuration not allowed on bridged subinterfaces");
            errors.push(must_violation(&path.child("admin-state"), &message));
        }
    }
}

/// Route targets are for VRFs only, and a static route names a next-hop group of its instance.
fn check_routing(instance: &Container, path: &Path<'_>, errors: &mut Vec<RpcError>) {
    // `default` is the default type.
    if leaf(instance, super::INSTANCE, "type").is_none_or(|kind| kind.is("default"))
        && child(instance, super::INSTANCE, "protocols")
            .is_some_and(|protocols| child(protocols, vrf::PROTOCOLS, "bgp-vpn").is_some())
    {
        let protocols = path.child("protocols");
        let message = "The bgp-vpn configuration is not possible on network-instance of type default.";
        errors.push(must_violation(&protocols.child("bgp-vpn"), message));
    }
    let groups: BTreeSet<&str> = vrf::groups(instance).map(|(name, _)| name).collect();
    let routes = path.child("static-routes");
    for (prefix, _, group) in vrf::route_groups(instance) {
        if let Some(group) = group.filter(|group| !groups.contains(group)) {
            let key = [text_value(prefix)];
            let route = routes.child_entry("route", &key);
            let message = format!("next-hop-group {group} does not exist");
            errors.push(missing_instance(&route.child("next-hop-group"), message));
        }
    }
}

fn check_instances(config: &Container, errors: &mut Vec<RpcError>) {
    let subs = all_subinterfaces(config);
    for duplicate in duplicate_addresses(&vrf::vrfs(config, &BTreeMap::new())) {
        let key = [text_value(&duplicate.vrf)];
        errors.push(invalid(&Path::entry(None, &ROOTS[1], &key), duplicate.message));
    }
    // An IRB subinterface is in one instance of each kind.
    let mut users: BTreeMap<(&str, bool), &str> = BTreeMap::new();
    for (name, instance) in instances(config) {
        let key = [text_value(name)];
        let path = Path::entry(None, &ROOTS[1], &key);
        let mac_vrf = is_mac_vrf(instance);
        check_routing(instance, &path, errors);
        for sub in attached_subinterfaces(instance) {
            let key = [text_value(sub)];
            let path = path.child_entry("interface", &key);
            let path = || path.child("name");
            let Some(known) = subs.get(sub) else {
                errors.push(missing_instance(&path(), format!("subinterface {sub} does not exist")));
                continue;
            };
            if known.bridged != mac_vrf && !known.is_irb() {
                let kind = if mac_vrf { "bridged" } else { "routed" };
                let message = format!("subinterface {sub} must be of type {kind} in this network-instance");
                errors.push(must_violation(&path(), &message));
            }
            if let Some(first) = users.insert((sub, known.is_irb() && mac_vrf), name) {
                errors.push(invalid(
                    &path(),
                    format!("subinterface {sub} is used in network-instance {first}"),
                ));
            }
        }
    }
}
