//! The MAC table: the submodule openconfig-network-instance-l2.

use std::sync::Arc;

use super::{INSTANCE, NETWORK_INSTANCE, NETWORK_INSTANCES, ROOTS, TEXT, VLAN_ID};
use crate::dialect::accessors::{child, leaf_is, set_leaf, text_value};
use crate::mac_table::Learnt;
use crate::model::schema::{Definition, position};
use crate::model::tree::Container;
use crate::model::value::{Type, Value};

/// `fdb` of a network instance, which is state data here.
pub(super) const FDB: &[Definition] =
    &[Definition::container("mac-table", &NETWORK_INSTANCE, TABLE).state_data()];

const TABLE: &[Definition] = &[Definition::container("entries", &NETWORK_INSTANCE, ENTRIES)];

const ENTRIES: &[Definition] = &[Definition::list("entry", &NETWORK_INSTANCE, 2, ENTRY)];

const ENTRY: &[Definition] = &[
    Definition::leaf("mac-address", &NETWORK_INSTANCE, TEXT),
    Definition::leaf("vlan", &NETWORK_INSTANCE, VLAN_ID),
    Definition::container("state", &NETWORK_INSTANCE, STATE),
    Definition::container("interface", &NETWORK_INSTANCE, LEARNT_ON),
];

const STATE: &[Definition] = &[
    Definition::leaf("mac-address", &NETWORK_INSTANCE, TEXT),
    Definition::leaf("vlan", &NETWORK_INSTANCE, VLAN_ID),
    Definition::leaf("entry-type", &NETWORK_INSTANCE, Type::Enum(&["STATIC", "DYNAMIC"])),
];

const LEARNT_ON: &[Definition] = &[Definition::container("interface-ref", &NETWORK_INSTANCE, REFERENCE)];

const REFERENCE: &[Definition] = &[Definition::container("state", &NETWORK_INSTANCE, REFERENCE_STATE)];

const REFERENCE_STATE: &[Definition] = &[
    Definition::leaf("interface", &NETWORK_INSTANCE, TEXT),
    Definition::leaf("subinterface", &NETWORK_INSTANCE, Type::Uint(0, 0xffff_ffff)),
];

/// Adds the table to the default network instance.
pub(super) fn add(data: &mut Container, learnt: &[Learnt]) {
    let is_default = |instance: &Container| {
        child(instance, INSTANCE, "config")
            .is_some_and(|config| leaf_is(config, super::INSTANCE_CONFIG, "type", "DEFAULT_INSTANCE"))
    };
    data.modify_container(position(ROOTS, "network-instances"), |instances| {
        instances.modify_list(position(NETWORK_INSTANCES, "network-instance"), |instances| {
            let Some(instance) = instances.values_mut().find(|instance| is_default(instance)) else { return };
            Arc::make_mut(instance).modify_container(position(INSTANCE, "fdb"), |fdb| {
                fdb.modify_container(position(FDB, "mac-table"), |table| {
                    table.modify_container(position(TABLE, "entries"), |entries| {
                        entries.modify_list(position(ENTRIES, "entry"), |entries| {
                            for learnt in learnt {
                                let key = [text_value(&learnt.mac), Value::Uint(learnt.vlan.into())];
                                entries.insert(key.into(), Arc::new(entry(learnt)));
                            }
                        });
                    });
                });
            });
        });
    });
}

fn entry(learnt: &Learnt) -> Container {
    let (mac, vlan) = (text_value(&learnt.mac), Value::Uint(learnt.vlan.into()));
    let mut entry = Container::default();
    set_leaf(&mut entry, ENTRY, "mac-address", mac.clone());
    set_leaf(&mut entry, ENTRY, "vlan", vlan.clone());
    entry.modify_container(position(ENTRY, "state"), |state| {
        set_leaf(state, STATE, "mac-address", mac);
        set_leaf(state, STATE, "vlan", vlan);
        set_leaf(state, STATE, "entry-type", Value::Keyword("DYNAMIC"));
    });
    entry.modify_container(position(ENTRY, "interface"), |interface| {
        interface.modify_container(position(LEARNT_ON, "interface-ref"), |reference| {
            reference.modify_container(position(REFERENCE, "state"), |state| {
                set_leaf(state, REFERENCE_STATE, "interface", text_value(&learnt.port));
                set_leaf(state, REFERENCE_STATE, "subinterface", Value::Uint(0));
            });
        });
    });
    entry
}
