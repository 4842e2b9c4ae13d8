//! Validates an OpenConfig configuration: `when`, `leafref` and `mandatory` of the model, and the ports of the
//! hardware.

use std::collections::BTreeSet;

use crate::dialect::Hardware;
use crate::dialect::openconfig::{
    AGGREGATION_CONTENT, ETHERNET_CONFIG, ETHERNET_CONTENT, INSTANCE, INSTANCE_CONFIG, INTERFACE,
    INTERFACE_CONFIG, INTERFACES, NETWORK_INSTANCES, ROOTS, SWITCHED_VLAN, SWITCHED_VLAN_CONFIG, VLAN_CONFIG,
    VLAN_ENTRY, VLANS, instances, interfaces,
};
use crate::model::path::Path;
use crate::model::schema::{Definitions, position};
use crate::model::tree::Container;
use crate::model::value::Value;
use crate::netconf::error::{RpcError, Tag};

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
        let path = Path::entry(Some(&root), &INTERFACES[0], &key);
        check_interface(name, interface, &path, &ports, &lags, &mut errors);
    }
    let root = Path::node(None, &ROOTS[position(ROOTS, "network-instances")]);
    let mut default: Option<&str> = None;
    for (name, instance) in instances(config) {
        let key = [Value::Text(name.into())];
        let path = Path::entry(Some(&root), &NETWORK_INSTANCES[0], &key);
        check_instance(&key, instance, &path, &mut errors);
        let config = instance.container(position(INSTANCE, "config"));
        let ty = config.and_then(|c| c.leaf(position(INSTANCE_CONFIG, "type")));
        if ty.is_some_and(|v| v.is("DEFAULT_INSTANCE")) {
            if let Some(first) = default {
                errors.push(
                    RpcError::application(
                        Tag::OperationFailed,
                        format!("{first} is the default instance already; there can be only one"),
                    )
                    .at(path.identifier()),
                );
            }
            default = Some(name);
        }
    }
    errors
}

fn kind(interface: &Container) -> Option<&Value> {
    interface.container(position(INTERFACE, "config"))?.leaf(position(INTERFACE_CONFIG, "type"))
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
        errors.push(
            RpcError::application(Tag::InvalidValue, format!("this switch has no port {name}"))
                .at(path.identifier()),
        );
    }
    for (holder, content) in [("ethernet", ETHERNET_CONTENT), ("aggregation", AGGREGATION_CONTENT)] {
        let at = position(INTERFACE, holder);
        let Some(container) = interface.container(at) else { continue };
        let path = Path::node(Some(path), &INTERFACE[at]);
        if holder == "ethernet" {
            check_aggregate_id(container, &path, lags, errors);
        }
        let at = position(content, "switched-vlan");
        let Some(switched) = container.container(at) else { continue };
        let path = Path::node(Some(&path), &content[at]);
        let at = position(SWITCHED_VLAN, "config");
        let Some(config) = switched.container(at) else { continue };
        check_when(config, &Path::node(Some(&path), &SWITCHED_VLAN[at]), errors);
    }
}

fn check_aggregate_id(
    ethernet: &Container,
    path: &Path<'_>,
    lags: &BTreeSet<&str>,
    errors: &mut Vec<RpcError>,
) {
    let at = position(ETHERNET_CONTENT, "config");
    let leaf = position(ETHERNET_CONFIG, "aggregate-id");
    let id = ethernet.container(at).and_then(|c| c.leaf(leaf)).and_then(Value::text);
    if let Some(id) = id.filter(|id| !lags.contains(id)) {
        let path = Path::node(Some(path), &ETHERNET_CONTENT[at]);
        errors.push(
            RpcError::application(Tag::DataMissing, format!("there is no link aggregation {id}"))
                .app_tag("instance-required")
                .at(Path::node(Some(&path), &ETHERNET_CONFIG[leaf]).identifier()),
        );
    }
}

/// `native-vlan` and `trunk-vlans` have `when "../interface-mode = 'TRUNK'"`, `access-vlan` has `'ACCESS'`.
fn check_when(config: &Container, path: &Path<'_>, errors: &mut Vec<RpcError>) {
    let mode = config.leaf(position(SWITCHED_VLAN_CONFIG, "interface-mode"));
    for (leaf, needs) in [("native-vlan", "TRUNK"), ("access-vlan", "ACCESS"), ("trunk-vlans", "TRUNK")] {
        let at = position(SWITCHED_VLAN_CONFIG, leaf);
        if config.get(at).is_some() && !mode.is_some_and(|mode| mode.is(needs)) {
            errors.push(
                RpcError::application(
                    Tag::UnknownElement,
                    format!(
                        "the when condition \"../interface-mode = '{needs}'\" of {leaf} is not satisfied"
                    ),
                )
                .at(Path::node(Some(path), &SWITCHED_VLAN_CONFIG[at]).identifier())
                .info("bad-element", leaf),
            );
        }
    }
}

fn check_instance(key: &[Value], instance: &Container, path: &Path<'_>, errors: &mut Vec<RpcError>) {
    key_leafref(key, instance, INSTANCE, INSTANCE_CONFIG, path, errors);
    mandatory(instance, INSTANCE, INSTANCE_CONFIG, "type", path, errors);
    let at = position(INSTANCE, "vlans");
    let vlans = Path::node(Some(path), &INSTANCE[at]);
    for (key, vlan) in instance.container(at).and_then(|vlans| vlans.list(0)).into_iter().flatten() {
        let path = Path::entry(Some(&vlans), &VLANS[0], key);
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
    let config = entry.container(position(definitions, "config"));
    for (at, value) in key.iter().enumerate() {
        let leaf = &definitions[at];
        let target = config.and_then(|c| c.leaf(position(config_definitions, leaf.name)));
        if target != Some(value) {
            errors.push(
                RpcError::application(
                    Tag::DataMissing,
                    format!(
                        "{name} is a leafref: ../config/{name} with the value \"{value}\" is missing",
                        name = leaf.name
                    ),
                )
                .app_tag("instance-required")
                .at(Path::node(Some(path), leaf).identifier()),
            );
        }
    }
}

fn mandatory(
    entry: &Container,
    definitions: Definitions,
    config_definitions: Definitions,
    leaf: &str,
    path: &Path<'_>,
    errors: &mut Vec<RpcError>,
) {
    let at = position(definitions, "config");
    let leaf_at = position(config_definitions, leaf);
    if entry.container(at).and_then(|c| c.leaf(leaf_at)).is_none() {
        let config = Path::node(Some(path), &definitions[at]);
        errors.push(
            RpcError::application(Tag::DataMissing, format!("{leaf} is mandatory")).at(Path::node(
                Some(&config),
                &config_definitions[leaf_at],
            )
            .identifier()),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::OPENCONFIG;
    use crate::dialect::accessors;

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
