//! Validates an OpenConfig configuration: `when`, `leafref` and `mandatory` of the model, and the ports of the
//! hardware.

use std::collections::BTreeSet;

use super::{
    AGGREGATION_CONTENT, ETHERNET_CONFIG, ETHERNET_CONTENT, INSTANCE, INSTANCE_CONFIG, INTERFACE,
    INTERFACE_CONFIG, ROOTS, SWITCHED_VLAN, SWITCHED_VLAN_CONFIG, VLAN_CONFIG, VLAN_ENTRY, VLANS, instances,
    interfaces,
};
use crate::dialect::Hardware;
use crate::dialect::accessors::{child, leaf, leaf_is, list, text};
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
    errors
}

fn kind(interface: &Container) -> Option<&Value> {
    leaf(child(interface, INTERFACE, "config")?, INTERFACE_CONFIG, "type")
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
}

/// Checks that the keys of a list entry equal the leaves of the same name in `config`, to which they are leafrefs.
fn key_leafref(
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
