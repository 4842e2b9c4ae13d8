//! Validates an OpenConfig configuration: `when`, `leafref` and `mandatory` of the model, and the ports of the
//! hardware.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    AGGREGATION_CONTENT, ETHERNET_CONFIG, ETHERNET_CONTENT, INSTANCE, INSTANCE_CONFIG, INTERFACE,
    INTERFACE_CONFIG, L3_VLAN, ROOTS, SWITCHED_VLAN, SWITCHED_VLAN_CONFIG, VLAN_CONFIG, VLAN_ENTRY, VLANS,
    bgp_checks, instances, interfaces, kind, vrf,
};
use crate::dialect::Hardware;
use crate::dialect::accessors::{child, entries, leaf, leaf_is, list, text, text_value};
use crate::dialect::routing::duplicate_addresses;
use crate::dialect::violations::{invalid, missing_instance, missing_leaf, refused, unmet_when};
use crate::model::path::Path;
use crate::model::schema::{Definitions, position};
use crate::model::tree::Container;
use crate::model::value::Value;
use crate::netconf::error::RpcError;

/// Returns all errors of a configuration on this hardware.
pub(super) fn check(config: &Container, hardware: &Hardware) -> Vec<RpcError> {
    let mut errors = Vec::new();
    let root = Path::node(None, &ROOTS[position(ROOTS, "interfaces")]);
    let lags: BTreeSet<&str> = interfaces(config)
        .filter(|(_, i)| kind(i).is_some_and(|v| v.is("ieee8023adLag")))
        .map(|(n, _)| n)
        .collect();
    let ports: BTreeSet<&str> = hardware.ports.iter().map(String::as_str).collect();
    for (name, interface) in interfaces(config) {
        let key = [Value::Text(name.into())];
        let path = root.child_entry("interface", &key);
        check_interface(name, interface, &path, &ports, &lags, &mut errors);
    }
    let root = Path::node(None, &ROOTS[position(ROOTS, "network-instances")]);
    let mut default: Option<&str> = None;
    for (name, instance) in instances(config) {
        let key = [Value::Text(name.into())];
        let path = root.child_entry("network-instance", &key);
        check_instance(&key, instance, &path, &mut errors);
        let config = child(instance, INSTANCE, "config");
        if config.is_some_and(|config| leaf_is(config, INSTANCE_CONFIG, "type", "DEFAULT_INSTANCE")) {
            if let Some(first) = default {
                let message = format!("{first} is the default instance already; there can be only one");
                errors.push(refused(&path, message));
            }
            default = Some(name);
        }
    }
    check_members(config, &root, &mut errors);
    bgp_checks::check(config, &mut errors);
    for duplicate in duplicate_addresses(&vrf::vrfs(config)) {
        let key = [text_value(&duplicate.vrf)];
        errors.push(invalid(&root.child_entry("network-instance", &key), duplicate.message));
    }
    errors
}

/// Checks that the members of network instances exist and belong to one instance each.
fn check_members(config: &Container, root: &Path<'_>, errors: &mut Vec<RpcError>) {
    let indices = |interface| vrf::subinterfaces(interface).map(|(index, _)| index).collect();
    let known: BTreeMap<&str, BTreeSet<u64>> =
        interfaces(config).map(|(name, interface)| (name, indices(interface))).collect();
    let mut users = BTreeMap::new();
    for (name, instance) in instances(config) {
        let key = [text_value(name)];
        let path = root.child_entry("network-instance", &key);
        let list = path.child("interfaces");
        for (id, interface, index) in vrf::members(instance) {
            let key = [text_value(id)];
            let path = list.child_entry("interface", &key);
            let config = path.child("config");
            let Some(interface) = interface else {
                errors.push(missing_leaf(&config, "interface"));
                continue;
            };
            let problem = match (known.get(interface), index) {
                (None, _) => Some(("interface", format!("there is no interface {interface}"))),
                (Some(indices), Some(index)) if !indices.contains(&index) => {
                    Some(("subinterface", format!("interface {interface} has no subinterface {index}")))
                }
                _ => None,
            };
            if let Some((leaf, message)) = problem {
                errors.push(missing_instance(&config.child(leaf), message));
            }
            if let Some(first) = users.insert((interface, index), name) {
                errors.push(invalid(&path, format!("{id} belongs to network-instance {first} already")));
            }
        }
    }
}

fn check_interface(
    name: &str,
    interface: &Container,
    path: &Path<'_>,
    ports: &BTreeSet<&str>,
    lags: &BTreeSet<&str>,
    errors: &mut Vec<RpcError>,
) {
    let key = [Value::Text(name.into())];
    key_leafref(&key, interface, INTERFACE, INTERFACE_CONFIG, path, errors);
    mandatory(interface, INTERFACE, INTERFACE_CONFIG, "type", path, errors);
    let physical = kind(interface).is_none_or(|v| v.is("ethernetCsmacd"));
    if physical && !ports.contains(name) {
        errors.push(invalid(path, format!("this switch has no port {name}")));
    }
    for (holder, content) in [("ethernet", ETHERNET_CONTENT), ("aggregation", AGGREGATION_CONTENT)] {
        let Some(container) = child(interface, INTERFACE, holder) else { continue };
        let path = path.child(holder);
        if holder == "ethernet" {
            check_aggregate_id(container, &path, lags, errors);
        }
        let Some(switched) = child(container, content, "switched-vlan") else { continue };
        let Some(config) = child(switched, SWITCHED_VLAN, "config") else { continue };
        check_when(config, &path.child("switched-vlan").child("config"), errors);
    }
    if child(interface, INTERFACE, "routed-vlan").is_some()
        && !kind(interface).is_some_and(|kind| kind.is(L3_VLAN.name))
    {
        errors.push(unmet_when(path, "routed-vlan", "oc-if:config/oc-if:type = 'ianaift:l3ipvlan'"));
    }
    check_subinterfaces(interface, path, errors);
    if let Some(routed) = child(interface, INTERFACE, "routed-vlan") {
        check_addresses(routed, vrf::ROUTED_VLAN, &path.child("routed-vlan"), errors);
    }
}

/// No two sub-interfaces accept the same frames.
fn check_subinterfaces(interface: &Container, path: &Path<'_>, errors: &mut Vec<RpcError>) {
    let list = path.child("subinterfaces");
    let mut tags: BTreeMap<u16, u64> = BTreeMap::new();
    for (index, sub) in vrf::subinterfaces(interface) {
        let key = [Value::Uint(index)];
        let path = list.child_entry("subinterface", &key);
        key_leafref(&key, sub, vrf::SUBINTERFACE, vrf::SUBINTERFACE_CONFIG, &path, errors);
        check_addresses(sub, vrf::SUBINTERFACE, &path, errors);
        if let Some(vlan) = vrf::tag(sub)
            && let Some(first) = tags.insert(vlan, index)
        {
            errors.push(invalid(
                &path.child("vlan"),
                format!("vlan-id {vlan} is used by subinterface {first}"),
            ));
        }
    }
}

/// Each address needs its prefix length.
fn check_addresses(
    holder: &Container,
    definitions: Definitions,
    path: &Path<'_>,
    errors: &mut Vec<RpcError>,
) {
    for family in ["ipv4", "ipv6"] {
        let Some(content) = child(holder, definitions, family) else { continue };
        let path = path.child(family);
        let definitions = path.children();
        let Some(addresses) = child(content, definitions, "addresses") else { continue };
        let path = path.child("addresses");
        for (key, address) in list(Some(addresses), path.children(), "address").into_iter().flatten() {
            let path = path.child_entry("address", key);
            let config = path.child("config");
            key_leafref(key, address, path.children(), config.children(), &path, errors);
            mandatory(address, path.children(), config.children(), "prefix-length", &path, errors);
        }
    }
}

fn check_aggregate_id(
    ethernet: &Container,
    path: &Path<'_>,
    lags: &BTreeSet<&str>,
    errors: &mut Vec<RpcError>,
) {
    let id =
        child(ethernet, ETHERNET_CONTENT, "config").and_then(|c| text(c, ETHERNET_CONFIG, "aggregate-id"));
    if let Some(id) = id.filter(|id| !lags.contains(id)) {
        let message = format!("there is no link aggregation {id}");
        errors.push(missing_instance(&path.child("config").child("aggregate-id"), message));
    }
}

/// `native-vlan` and `trunk-vlans` have `when "../interface-mode = 'TRUNK'"`, `access-vlan` has `'ACCESS'`.
fn check_when(config: &Container, path: &Path<'_>, errors: &mut Vec<RpcError>) {
    let mode = leaf(config, SWITCHED_VLAN_CONFIG, "interface-mode");
    for (name, needs) in [("native-vlan", "TRUNK"), ("access-vlan", "ACCESS"), ("trunk-vlans", "TRUNK")] {
        let is_set = config.get(position(SWITCHED_VLAN_CONFIG, name)).is_some();
        if is_set && !mode.is_some_and(|mode| mode.is(needs)) {
            errors.push(unmet_when(path, name, &format!("../interface-mode = '{needs}'")));
        }
    }
}

fn check_instance(key: &[Value], instance: &Container, path: &Path<'_>, errors: &mut Vec<RpcError>) {
    key_leafref(key, instance, INSTANCE, INSTANCE_CONFIG, path, errors);
    mandatory(instance, INSTANCE, INSTANCE_CONFIG, "type", path, errors);
    let vlans = path.child("vlans");
    for (key, vlan) in list(child(instance, INSTANCE, "vlans"), VLANS, "vlan").into_iter().flatten() {
        let path = vlans.child_entry("vlan", key);
        key_leafref(key, vlan, VLAN_ENTRY, VLAN_CONFIG, &path, errors);
    }
    let lists = [
        ("table-connections", "table-connection"),
        ("interfaces", "interface"),
        ("tables", "table"),
        ("protocols", "protocol"),
    ];
    for (holder, name) in lists {
        check_entries(instance, path, holder, name, errors);
    }
    let protocols = path.child("protocols");
    let entries = list(child(instance, INSTANCE, "protocols"), vrf::PROTOCOLS, "protocol");
    for (key, protocol) in entries.into_iter().flatten() {
        let path = protocols.child_entry("protocol", key);
        check_static_routes(key, protocol, &path, errors);
    }
    check_distinguisher(instance, path, errors);
}

/// Checks the key leafrefs of a list `holder/name`.
fn check_entries(parent: &Container, path: &Path<'_>, holder: &str, name: &str, errors: &mut Vec<RpcError>) {
    let Some(container) = child(parent, path.children(), holder) else { return };
    let path = path.child(holder);
    for (key, entry) in list(Some(container), path.children(), name).into_iter().flatten() {
        let path = path.child_entry(name, key);
        let config = path.child("config");
        key_leafref(key, entry, path.children(), config.children(), &path, errors);
    }
}

/// `static-routes` has `when "config/identifier = 'STATIC'"`.
fn check_static_routes(key: &[Value], protocol: &Container, path: &Path<'_>, errors: &mut Vec<RpcError>) {
    let Some(routes) = child(protocol, vrf::PROTOCOL_ENTRY, "static-routes") else { return };
    if !key.first().is_some_and(|identifier| identifier.is("STATIC")) {
        errors.push(unmet_when(path, "static-routes", "./config/identifier = 'oc-pol-types:STATIC'"));
    }
    check_entries(protocol, path, "static-routes", "static", errors);
    let list = path.child("static-routes");
    for (prefix, route) in entries(Some(routes), vrf::STATIC_ROUTES, "static") {
        let key = [text_value(prefix)];
        let path = list.child_entry("static", &key);
        check_entries(route, &path, "next-hops", "next-hop", errors);
    }
}

/// Route targets and redistribution to BGP need a route distinguisher, which only VRFs have.
fn check_distinguisher(instance: &Container, path: &Path<'_>, errors: &mut Vec<RpcError>) {
    let Some(config) = child(instance, INSTANCE, "config") else { return };
    let is_vrf = leaf_is(config, INSTANCE_CONFIG, "type", "L3VRF");
    match leaf(config, INSTANCE_CONFIG, "route-distinguisher") {
        Some(_) if leaf_is(config, INSTANCE_CONFIG, "type", "DEFAULT_INSTANCE") => {
            let path = path.child("config");
            errors.push(refused(&path, "the default instance has no route distinguisher"));
        }
        None if is_vrf && child(instance, INSTANCE, "inter-instance-policies").is_some() => {
            let path = path.child("inter-instance-policies");
            errors.push(refused(&path, "route targets need a route-distinguisher"));
        }
        _ => {}
    }
}

/// Checks that the keys of a list entry equal the leaves of the same name in `config`, to which they are leafrefs.
pub(super) fn key_leafref(
    key: &[Value],
    entry: &Container,
    definitions: Definitions,
    config_definitions: Definitions,
    path: &Path<'_>,
    errors: &mut Vec<RpcError>,
) {
    let config = child(entry, definitions, "config");
    for (key, value) in definitions.iter().zip(key) {
        let name = key.name;
        if config.and_then(|config| leaf(config, config_definitions, name)) != Some(value) {
            let message =
                format!("{name} is a leafref: ../config/{name} with the value \"{value}\" is missing");
            errors.push(missing_instance(&path.child(name), message));
        }
    }
}

fn mandatory(
    entry: &Container,
    definitions: Definitions,
    config_definitions: Definitions,
    name: &str,
    path: &Path<'_>,
    errors: &mut Vec<RpcError>,
) {
    if child(entry, definitions, "config").and_then(|c| leaf(c, config_definitions, name)).is_none() {
        errors.push(missing_leaf(&path.child("config"), name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::OPENCONFIG;
    use crate::dialect::accessors;
    use crate::netconf::error::Tag;

    fn merge_xml(config: &Container, xml: &str) -> Container {
        accessors::merge_xml(OPENCONFIG.roots, config, xml)
    }

    fn port(name: &str, switched: &str) -> String {
        format!(
            "<interfaces xmlns=\"http://openconfig.net/yang/interfaces\"><interface><name>{name}</name>\
             <config><name>{name}</name><type xmlns:t=\"urn:ietf:params:xml:ns:yang:iana-if-type\">t:ethernetCsmacd\
             </type></config><ethernet xmlns=\"http://openconfig.net/yang/interfaces/ethernet\"><switched-vlan \
             xmlns=\"http://openconfig.net/yang/vlan\"><config>{switched}</config></switched-vlan></ethernet>\
             </interface></interfaces>"
        )
    }

    #[test]
    fn switched_vlan_leaves_require_matching_interface_mode() {
        let hardware = Hardware { ports: vec!["e1".to_owned()], ..Hardware::default() };
        let factory = (OPENCONFIG.factory)(&hardware);
        for mode in ["TRUNK", "ACCESS", ""] {
            for (leaf, needs) in
                [("native-vlan", "TRUNK"), ("access-vlan", "ACCESS"), ("trunk-vlans", "TRUNK")]
            {
                let mode_leaf = if mode.is_empty() {
                    String::new()
                } else {
                    format!("<interface-mode>{mode}</interface-mode>")
                };
                let config = merge_xml(&factory, &port("e1", &format!("{mode_leaf}<{leaf}>5</{leaf}>")));
                let errors = check(&config, &hardware);
                assert_eq!(errors.is_empty(), mode == needs, "{leaf} with mode {mode:?}: {errors:?}");
                for error in errors {
                    assert_eq!(error.tag, Tag::UnknownElement);
                    assert!(error.path.is_some_and(|path| path.text.ends_with(leaf)));
                }
            }
        }
    }

    #[test]
    fn interface_without_hardware_port_is_refused() {
        let hardware = Hardware { ports: vec!["e1".to_owned()], ..Hardware::default() };
        let factory = (OPENCONFIG.factory)(&hardware);
        assert_eq!(check(&factory, &hardware), []);
        let errors =
            check(&merge_xml(&factory, &port("e9", "<interface-mode>TRUNK</interface-mode>")), &hardware);
        assert_eq!(errors.len(), 1);
        assert_eq!(errors[0].tag, Tag::InvalidValue);
        assert_eq!(
            errors[0].path.as_ref().map(|path| path.text.as_str()),
            Some("/oc-if:interfaces/oc-if:interface[oc-if:name='e9']")
        );
    }
}
