//! Validates a configuration: `mandatory`, `unique`, `when` and leafrefs of the model, and limits of the hardware.
//! A bridge can't map a port that it lacks or register a VLAN twice.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    BRIDGE, BRIDGE_PORT, COMPONENT, FILTERING_DATABASE, INTERFACE, REGISTRATION, ROOTS, bridges, interfaces,
    port_numbers,
};
use crate::dialect::Hardware;
use crate::dialect::accessors::{child, entries, leaf, leaf_is, list, text, text_value, vlan_set};
use crate::dialect::violations::{invalid, missing_instance, missing_leaf, refused, unmet_when};
use crate::model::path::Path;
use crate::model::schema::{Definitions, position};
use crate::model::tree::{Container, Key};
use crate::model::value::Value;
use crate::netconf::error::RpcError;

/// Returns all errors of a configuration.
pub(super) fn check(config: &Container, hardware: &Hardware) -> Vec<RpcError> {
    let mut errors = Vec::new();
    let root = Path::node(None, &ROOTS[position(ROOTS, "interfaces")]);
    for (name, interface) in interfaces(config) {
        let key = [text_value(name)];
        let path = root.child_entry("interface", &key);
        mandatory(interface, INTERFACE, "type", &path, &mut errors);
        if !hardware.ports.iter().chain(hardware.lags.keys()).any(|port| port == name) {
            errors.push(invalid(&path, format!("this bridge has no interface {name}")));
        }
        if let Some(port) = child(interface, INTERFACE, "bridge-port") {
            let path = path.child("bridge-port");
            if let Some(lag) = hardware.lag_of(name) {
                errors.push(invalid(&path, format!("{name} is a link of {lag}, which is the bridge port")));
            }
            check_port(config, port, &path, &mut errors);
        }
    }
    check_bridges(config, hardware, &mut errors);
    errors
}

fn mandatory(
    container: &Container,
    definitions: Definitions,
    name: &str,
    path: &Path<'_>,
    errors: &mut Vec<RpcError>,
) {
    if leaf(container, definitions, name).is_none() {
        errors.push(missing_leaf(path, name));
    }
}

fn check_port(config: &Container, port: &Container, path: &Path<'_>, errors: &mut Vec<RpcError>) {
    let dangling = |leaf: &str, target: &str| {
        missing_instance(&path.child(leaf), format!("{leaf} refers to {target}, which does not exist"))
    };
    let mut component = None;
    if let Some(name) = text(port, BRIDGE_PORT, "bridge-name") {
        let bridge = bridges(config).find(|(bridge, _)| *bridge == name);
        if bridge.is_none() {
            errors.push(dangling("bridge-name", name));
        }
        if let Some(name) = text(port, BRIDGE_PORT, "component-name") {
            component = bridge.and_then(|(_, b)| {
                entries(Some(b), BRIDGE, "component").find(|(c, _)| *c == name).map(|(_, c)| c)
            });
            if component.is_none() {
                errors.push(dangling("component-name", name));
            }
        }
    }
    let unaware = component.is_none_or(|c| leaf_is(c, COMPONENT, "type", "d-bridge-component"));
    for leaf_name in ["pvid", "enable-ingress-filtering"] {
        if unaware && leaf(port, BRIDGE_PORT, leaf_name).is_some() {
            errors.push(unmet_when(path, leaf_name, "component/type != 'dot1q:d-bridge-component'"));
        }
    }
}

fn check_bridges(config: &Container, hardware: &Hardware, errors: &mut Vec<RpcError>) {
    let root = Path::node(None, &ROOTS[position(ROOTS, "bridges")]);
    let mut addresses = BTreeSet::new();
    let port_numbers = port_numbers(hardware);
    for (name, bridge) in bridges(config) {
        let key = [text_value(name)];
        let path = root.child_entry("bridge", &key);
        mandatory(bridge, BRIDGE, "address", &path, errors);
        mandatory(bridge, BRIDGE, "bridge-type", &path, errors);
        if let Some(mac_address) = text(bridge, BRIDGE, "address")
            && !addresses.insert(mac_address)
        {
            let message = format!("another bridge has the address {mac_address}");
            errors.push(refused(&path, message).app_tag("data-not-unique"));
        }
        let relay = leaf_is(bridge, BRIDGE, "bridge-type", "two-port-mac-relay-bridge");
        for (name, component) in entries(Some(bridge), BRIDGE, "component") {
            let key = [text_value(name)];
            let path = path.child_entry("component", &key);
            mandatory(component, COMPONENT, "type", &path, errors);
            for holder in ["filtering-database", "bridge-vlan"] {
                if relay && child(component, COMPONENT, holder).is_some() {
                    errors.push(unmet_when(
                        &path,
                        holder,
                        "../../bridge-type != 'two-port-mac-relay-bridge'",
                    ));
                }
            }
            check_registrations(component, &port_numbers, &path, errors);
        }
    }
}

fn check_registrations(
    component: &Container,
    port_numbers: &BTreeMap<u16, &str>,
    path: &Path<'_>,
    errors: &mut Vec<RpcError>,
) {
    let Some(database) = child(component, COMPONENT, "filtering-database") else { return };
    let path = path.child("filtering-database");
    let mut registered: BTreeMap<(Option<u64>, u16), &Key> = BTreeMap::new();
    for (key, entry) in
        list(Some(database), FILTERING_DATABASE, "vlan-registration-entry").into_iter().flatten()
    {
        let path = path.child_entry("vlan-registration-entry", key);
        let fid = key.first().and_then(Value::number);
        let vids = key.get(1).and_then(Value::text).map(vlan_set).unwrap_or_default();
        let twice = vids.iter().find_map(|vid| registered.insert((fid, vid), key).map(|first| (vid, first)));
        if let Some((vid, first)) = twice {
            let first = first.get(1).map(ToString::to_string).unwrap_or_default();
            errors.push(invalid(&path, format!("VLAN {vid} is registered by the entry for {first} already")));
        }
        for (key, _) in list(Some(entry), REGISTRATION, "port-map").into_iter().flatten() {
            let number = key.first().and_then(|v| v.vlans().next()).unwrap_or_default();
            if !port_numbers.contains_key(&number) {
                let path = path.child_entry("port-map", key);
                errors.push(invalid(&path, format!("this bridge has no port number {number}")));
            }
        }
    }
}
