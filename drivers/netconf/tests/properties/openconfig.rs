//! OpenConfig.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use eno_driver_netconf::dialect::openconfig::OpenConfig;
use eno_driver_netconf::plan::Mode;
use proptest::prelude::*;

use crate::properties::device::{Model, Node};
use crate::properties::{DialectUnderTest, VIDS, Vlans, any_ports, any_vlans, name_of};

const MODEL: Model = Model {
    lists: &[("vlans/vlan", &["vlan-id"]), ("interface", &["name"]), ("network-instance", &["name"])],
    leaf_lists: &["trunk-vlans"],
    choices: &[],
    presence: &[],
    ranges: &[("trunk-vlans", "..")],
};

#[derive(Clone, Debug)]
struct Port {
    mode: Option<Mode>,
    tagged: BTreeSet<(u16, u16)>,
    native: Option<u16>,
    aggregate: bool,
}

fn device(instance: bool, vlans: &Vlans, ports: &BTreeMap<String, Port>) -> Vec<Node> {
    let mut xml = String::new();
    if instance {
        xml.push_str(
            "<network-instances xmlns=\"http://openconfig.net/yang/network-instance\"><network-instance>\
             <name>main</name><config><name>main</name><type>x:DEFAULT_INSTANCE</type></config><vlans>",
        );
        for (vid, (owner, active)) in vlans {
            let name = name_of(*owner, *vid).map_or(String::new(), |name| {
                format!("<name>{}</name>", quick_xml::escape::escape(name.as_str()))
            });
            let status = if *active { "ACTIVE" } else { "SUSPENDED" };
            write!(
                xml,
                "<vlan><vlan-id>{vid}</vlan-id><config><vlan-id>{vid}</vlan-id>{name}<status>{status}</status></config></vlan>"
            )
            .unwrap();
        }
        xml.push_str("</vlans></network-instance></network-instances>");
    }
    xml.push_str("<interfaces xmlns=\"http://openconfig.net/yang/interfaces\">");
    for (name, port) in ports {
        let (holder, kind) =
            if port.aggregate { ("aggregate", "ieee8023adLag") } else { ("ethernet", "ethernetCsmacd") };
        let element = if port.aggregate { "aggregation" } else { "ethernet" };
        write!(
            xml,
            "<interface><name>{name}</name><config><name>{name}</name><type>i:{kind}</type></config><{element} \
             xmlns=\"http://openconfig.net/yang/interfaces/{holder}\"><switched-vlan xmlns=\"http://openconfig.net/yang/vlan\"><config>"
        )
        .unwrap();
        match port.mode {
            Some(Mode::Trunk) => {
                xml.push_str("<interface-mode>TRUNK</interface-mode>");
                if let Some(native) = port.native {
                    write!(xml, "<native-vlan>{native}</native-vlan>").unwrap();
                }
                for (first, last) in &port.tagged {
                    let text = if first == last { first.to_string() } else { format!("{first}..{last}") };
                    write!(xml, "<trunk-vlans>{text}</trunk-vlans>").unwrap();
                }
            }
            Some(Mode::Access) => {
                let access = port.native.unwrap_or(1);
                write!(xml, "<interface-mode>ACCESS</interface-mode><access-vlan>{access}</access-vlan>")
                    .unwrap();
            }
            None => {}
        }
        write!(xml, "</config></switched-vlan></{element}></interface>").unwrap();
    }
    xml.push_str("</interfaces>");
    Node::read(&xml)
}

fn any_port() -> impl Strategy<Value = Port> {
    let mode = prop_oneof![1 => Just(None), 1 => Just(Some(Mode::Access)), 3 => Just(Some(Mode::Trunk))];
    let tagged =
        prop::collection::btree_set((VIDS, 0_u16..4).prop_map(|(first, more)| (first, first + more)), 0..6);
    (mode, tagged, prop::option::weighted(0.3, VIDS), any::<bool>())
        .prop_map(|(mode, tagged, native, aggregate)| Port { mode, tagged, native, aggregate })
}

#[test]
fn apply_converges_and_preserves_foreign_config() {
    let devices = (prop::bool::weighted(0.9), any_vlans(0..4, 0..16), any_ports(any_port()));
    DialectUnderTest::new(&OpenConfig, &MODEL)
        .check_apply(devices, |(instance, vlans, ports)| device(*instance, vlans, ports));
}

#[test]
fn removal_restores_the_initial_config() {
    let devices = (any_vlans(1..4, 0..10), any_ports(any_port()));
    DialectUnderTest::new(&OpenConfig, &MODEL)
        .check_removal(devices, |(vlans, ports)| device(true, vlans, ports));
}
