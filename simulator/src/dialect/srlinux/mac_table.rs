//! The MAC tables of network instances: srl_nokia-bridge-table-mac-table.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{
    Encap, INSTANCE, NETWORK_INSTANCE_MODULE, ROOTS, all_subinterfaces, attached_subinterfaces, instances,
    is_mac_vrf,
};
use crate::dialect::accessors::{module, set_leaf, text_value};
use crate::mac_table::Learnt;
use crate::model::schema::{Definition, Module, position};
use crate::model::tree::Container;
use crate::model::value::{Type, Value};

pub(super) static MAC_TABLE: Module = module(
    "srl_nokia-bridge-table-mac-table",
    "srl_nokia-bridge-table-mac-table",
    "urn:nokia.com:srlinux:l2-mac:bridge-table-mac-table",
    "2024-10-31",
);

const TEXT: Type = Type::Text { max_length: 255 };

/// `bridge-table` of a network instance.
pub(super) const BRIDGE_TABLE: &[Definition] =
    &[Definition::container("mac-table", &MAC_TABLE, TABLE).state_data()];

const TABLE: &[Definition] = &[Definition::list("mac", &MAC_TABLE, 1, ENTRY)];

const ENTRY: &[Definition] = &[
    Definition::leaf("address", &MAC_TABLE, TEXT),
    Definition::leaf("destination-type", &MAC_TABLE, Type::Enum(&["sub-interface"])),
    Definition::leaf("type", &MAC_TABLE, Type::Enum(&["learnt", "static"])),
    Definition::leaf("destination", &MAC_TABLE, TEXT),
];

/// Adds the tables. What was learnt is at the subinterface of the port for its VLAN.
pub(super) fn add(data: &mut Container, learnt: &[Learnt]) {
    let mut tables: BTreeMap<String, Vec<(String, String)>> = BTreeMap::new();
    {
        let subs = all_subinterfaces(data);
        let mut places = BTreeMap::new();
        for (instance, node) in instances(data).filter(|(_, instance)| is_mac_vrf(instance)) {
            for sub in attached_subinterfaces(node).filter_map(|name| subs.get(name)) {
                let vlan = match sub.encap {
                    Some(Encap::Tagged(id)) => id,
                    Some(Encap::Untagged | Encap::Plain) => 0,
                    None => continue,
                };
                places.insert((sub.port, vlan), (instance, sub.name()));
            }
        }
        for Learnt { mac, vlan, port } in learnt {
            let place = places.get(&(port.as_str(), *vlan)).or_else(|| places.get(&(port.as_str(), 0)));
            if let Some((instance, sub)) = place {
                tables.entry((*instance).to_owned()).or_default().push((mac.clone(), sub.clone()));
            }
        }
    }
    data.modify_list(position(ROOTS, "network-instance"), |instances| {
        for (key, instance) in instances.iter_mut() {
            let name = key.first().map(ToString::to_string).unwrap_or_default();
            let Some(entries) = tables.remove(&name) else { continue };
            Arc::make_mut(instance).modify_container(position(INSTANCE, "bridge-table"), |bridge_table| {
                bridge_table.modify_container(position(BRIDGE_TABLE, "mac-table"), |table| {
                    table.modify_list(position(TABLE, "mac"), |list| {
                        for (mac, destination) in entries {
                            list.insert([text_value(&mac)].into(), Arc::new(entry(&mac, &destination)));
                        }
                    });
                });
            });
        }
    });
}

fn entry(mac: &str, destination: &str) -> Container {
    let mut entry = Container::default();
    set_leaf(&mut entry, ENTRY, "address", text_value(mac));
    set_leaf(&mut entry, ENTRY, "destination-type", Value::Keyword("sub-interface"));
    set_leaf(&mut entry, ENTRY, "type", Value::Keyword("learnt"));
    set_leaf(&mut entry, ENTRY, "destination", text_value(destination));
    entry
}

/// `bridge-table`, whose other content is not simulated.
pub(super) const DEFINITION: Definition =
    Definition::container("bridge-table", &NETWORK_INSTANCE_MODULE, BRIDGE_TABLE).state_data();
