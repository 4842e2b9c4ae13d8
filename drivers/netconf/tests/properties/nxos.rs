//! NX-OS.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use eno_driver_netconf::dialect::nxos::NxOs;
use eno_driver_netconf::plan::Mode;
use eno_schemas::VlanSet;
use proptest::prelude::*;

use crate::properties::device::{Model, Node};
use crate::properties::{DialectUnderTest, VIDS, Vlans, any_ports, any_vlans, ids, name_of};

const MODEL: Model = Model {
    lists: &[("BD-list", &["fabEncap"]), ("PhysIf-list", &["id"]), ("AggrIf-list", &["id"])],
    leaf_lists: &[],
    choices: &[],
    presence: &["trunkVlans", "name"],
    ranges: &[],
};

#[derive(Clone, Debug)]
struct Port {
    mode: Option<Mode>,
    /// `None`: all.
    trunk: Option<BTreeSet<u16>>,
    native: Option<u16>,
    access: u16,
    routed: bool,
}

fn device(vlans: &Vlans, ports: &BTreeMap<String, Port>) -> Vec<Node> {
    let mut xml = String::from(
        "<System xmlns=\"http://cisco.com/ns/yang/cisco-nx-os-device\"><bd-items><bd-items>\
         <BD-list><fabEncap>vxlan-5000</fabEncap></BD-list>",
    );
    for (vid, (owner, active)) in vlans {
        let name = name_of(*owner, *vid).unwrap_or_default();
        let state = if *active { "active" } else { "suspend" };
        write!(
            xml,
            "<BD-list><fabEncap>vlan-{vid}</fabEncap><BdState>{state}</BdState><name>{}</name>\
             <adminSt>active</adminSt></BD-list>",
            quick_xml::escape::escape(name.as_str())
        )
        .unwrap();
    }
    xml.push_str("</bd-items></bd-items><intf-items><phys-items>");
    for (id, port) in ports {
        write!(xml, "<PhysIf-list><id>{id}</id><descr>d</descr>").unwrap();
        if port.routed {
            xml.push_str("<layer>Layer3</layer>");
        }
        let mode = if port.mode == Some(Mode::Trunk) { "trunk" } else { "access" };
        let list = match &port.trunk {
            Some(list) => ids(list),
            None => VlanSet::all(),
        };
        let access = if port.mode == Some(Mode::Access) { port.access } else { 1 };
        write!(
            xml,
            "<mode>{mode}</mode><trunkVlans>{list}</trunkVlans><accessVlan>vlan-{access}</accessVlan>\
             <nativeVlan>vlan-{}</nativeVlan></PhysIf-list>",
            port.native.unwrap_or(1)
        )
        .unwrap();
    }
    xml.push_str("</phys-items></intf-items></System>");
    Node::read(&xml)
}

fn any_port() -> impl Strategy<Value = Port> {
    let mode = prop_oneof![1 => Just(None), 1 => Just(Some(Mode::Access)), 3 => Just(Some(Mode::Trunk))];
    let trunk = prop::option::weighted(0.9, prop::collection::btree_set(VIDS, 0..12));
    (mode, trunk, prop::option::weighted(0.3, VIDS), 2_u16..24, prop::bool::weighted(0.1))
        .prop_map(|(mode, trunk, native, access, routed)| Port { mode, trunk, native, access, routed })
}

#[test]
fn apply_converges_and_preserves_foreign_config() {
    let devices = (any_vlans(0..4, 0..16), any_ports(any_port()));
    DialectUnderTest::new(&NxOs, &MODEL).check_apply(devices, |(vlans, ports)| device(vlans, ports));
}

#[test]
fn removal_restores_the_initial_config() {
    let devices = (any_vlans(1..4, 0..10), any_ports(any_port()));
    DialectUnderTest::new(&NxOs, &MODEL).check_removal(devices, |(vlans, ports)| device(vlans, ports));
}
