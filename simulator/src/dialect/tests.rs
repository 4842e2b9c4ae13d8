//! Tests of all dialects: hand edits, and the validation rules of each vendor.

use std::collections::BTreeMap;

use super::accessors::merge_xml;
use super::*;
use crate::netconf::error::Tag;

fn hardware(dialect: &Dialect) -> Hardware {
    let ports: Vec<String> = (1..=4).map(dialect.port_name).collect();
    let lag = match dialect.name {
        "openconfig" => "Port-Channel1",
        "junos" => "ae0",
        "nxos" => "po1",
        _ => "lag1",
    };
    let lags = BTreeMap::from([(lag.to_owned(), ports[2..].to_vec())]);
    Hardware { ports, lags, mac: [2, 0, 0, 1, 0, 0], strict_references: false }
}

fn by_hand(dialect: &'static Dialect, config: &Container, hardware: &Hardware, edit: &HandEdit) -> Container {
    let xml = (dialect.hand_edit_xml)(edit, config, hardware);
    let config = merge_xml(dialect.roots, config, &xml);
    assert_eq!((dialect.check)(&config, hardware), [], "{}: {xml}", dialect.name);
    config
}

fn vlans(text: &str) -> VlanSet {
    text.parse().expect("VLANs")
}

#[test]
fn factory_configuration_of_every_dialect_is_valid() {
    for dialect in Dialect::ALL {
        let hardware = hardware(dialect);
        let config = (dialect.factory)(&hardware);
        assert_eq!((dialect.check)(&config, &hardware), [], "{}", dialect.name);
        let view = (dialect.view)(&config, &hardware);
        let lag = hardware.lags.keys().next().expect("one");
        for port in &hardware.ports[2..] {
            assert_eq!(view.ports[port].lag.as_ref(), Some(lag), "{}", dialect.name);
        }
        assert!(view.ports.contains_key(lag), "{}", dialect.name);
        assert!(!view.ports.values().any(|port| port.open_trunk || port.disabled), "{}", dialect.name);
        // State data conforms to the schema.
        let mut out = String::new();
        (dialect.operational)(&config, &hardware).write_xml(dialect.roots, "", &mut out);
        assert!(out.len() > 100);
    }
}

/// The same hand edits have the same effect in every dialect.
#[test]
fn hand_edits_have_the_same_effect_in_every_dialect() {
    for dialect in Dialect::ALL {
        let name = dialect.name;
        let hardware = hardware(dialect);
        let (port, other) = (&hardware.ports[0], &hardware.ports[1]);
        let config = (dialect.factory)(&hardware);
        let trunk = |port: &str| HandEdit {
            port: Some(port.to_owned()),
            mode: Some(PortMode::Trunk),
            vlans: vlans("100-102,200"),
            native: Some(200),
            define_vlans: [100, 101, 102, 200].map(|id| (id, format!("v{id}"))).into(),
            ..HandEdit::default()
        };
        let lag = hardware.lags.keys().next().expect("one");
        let mut config = by_hand(dialect, &config, &hardware, &trunk(port));
        for port in [other, lag] {
            config = by_hand(dialect, &config, &hardware, &trunk(port));
        }
        let view = (dialect.view)(&config, &hardware);
        for port in [port, other, lag] {
            let port = &view.ports[port];
            assert_eq!(port.mode, Some(PortMode::Trunk), "{name}");
            assert_eq!(
                (port.vlans.to_string(), port.native),
                ("100-102,200".to_owned(), Some(200)),
                "{name}"
            );
        }
        assert_eq!(view.vlans[&101], VlanView { name: Some("v101".to_owned()), status: "ACTIVE".to_owned() });

        let remove = HandEdit { port: Some(port.clone()), remove_vlans: vlans("101"), ..HandEdit::default() };
        let config = by_hand(dialect, &config, &hardware, &remove);
        let view = (dialect.view)(&config, &hardware);
        assert_eq!(view.ports[port].vlans.to_string(), "100,102,200", "{name}");
        assert_eq!(view.ports[other].vlans.to_string(), "100-102,200", "{name}: another port is as it was");

        let access = HandEdit {
            port: Some(port.clone()),
            mode: Some(PortMode::Access),
            access: Some(100),
            ..HandEdit::default()
        };
        let config = by_hand(dialect, &config, &hardware, &access);
        let view = (dialect.view)(&config, &hardware);
        assert_eq!(view.ports[port].mode, Some(PortMode::Access), "{name}");
        assert_eq!(view.ports[port].access, Some(100), "{name}");
        assert_eq!(view.ports[port].vlans.to_string(), "100", "{name}");

        let undefine = HandEdit { remove_vlans: vlans("100"), ..HandEdit::default() };
        let config = by_hand(dialect, &config, &hardware, &undefine);
        let view = (dialect.view)(&config, &hardware);
        assert!(!view.vlans.contains_key(&100), "{name}");
        assert!(view.ports[port].vlans.is_empty(), "{name}: what isn't defined isn't carried");

        let clear = HandEdit { port: Some(other.clone()), clear: true, ..HandEdit::default() };
        let config = by_hand(dialect, &config, &hardware, &clear);
        assert!(!(dialect.view)(&config, &hardware).ports[other].vlans.contains(102), "{name}");
    }
}

/// The validation errors after merging `xml` into the factory configuration: tag, error-path and message.
fn refused(dialect: &'static Dialect, xml: &str) -> Vec<(Tag, String, String)> {
    let hardware = hardware(dialect);
    let config = merge_xml(dialect.roots, &(dialect.factory)(&hardware), xml);
    (dialect.check)(&config, &hardware)
        .into_iter()
        .map(|error| (error.tag, error.path.map(|path| path.text).unwrap_or_default(), error.message))
        .collect()
}

/// Checks cases: what is tried, the XML, and a text of the expected error; without it, the XML is accepted.
fn assert_refused(dialect: &'static Dialect, cases: &[(&str, String, Option<&str>)]) {
    for (what, xml, expected) in cases {
        let errors = refused(dialect, xml);
        match expected {
            None => assert_eq!(errors, [], "{what}: {xml}"),
            Some(text) => {
                assert!(errors.iter().any(|(_, _, message)| message.contains(text)), "{what}: {errors:?}");
            }
        }
    }
}

fn junos(interfaces: &str, vlans: &str) -> String {
    format!(
        "<configuration xmlns=\"http://yang.juniper.net/junos-qfx/conf/root\">\
         <interfaces xmlns=\"http://yang.juniper.net/junos-qfx/conf/interfaces\">{interfaces}</interfaces>\
         <vlans xmlns=\"http://yang.juniper.net/junos-qfx/conf/vlans\">{vlans}</vlans></configuration>"
    )
}

fn junos_port(mode: &str, members: &str, more: &str) -> String {
    format!(
        "<interface><name>xe-0/0/9</name>{more}<unit><name>0</name><family><ethernet-switching>\
         <interface-mode>{mode}</interface-mode><vlan>{members}</vlan></ethernet-switching></family></unit></interface>"
    )
}

#[test]
fn junos_commit_check_refuses_invalid_vlans_and_interfaces() {
    let member = |m: &str| format!("<members>{m}</members>");
    let native = "<native-vlan-id>1</native-vlan-id>";
    let vlan = |name: &str, id: &str| format!("<vlan><name>{name}</name><vlan-id>{id}</vlan-id></vlan>");
    let cases = [
        ("accepted", junos(&junos_port("trunk", &member("nowhere"), ""), ""), None),
        ("accepted", junos(&junos_port("trunk", &(member("all") + &member("5-9")), native), ""), None),
        ("accepted", junos("", &vlan("v5", "5")), None),
        ("a trunk without VLANs", junos(&junos_port("trunk", "", ""), ""), Some("vlan members")),
        (
            "two on an access port",
            junos(&junos_port("access", &(member("5") + &member("6")), ""), ""),
            Some("only one"),
        ),
        ("a range on an access port", junos(&junos_port("access", &member("5-6"), ""), ""), Some("only one")),
        (
            "a native VLAN of an access port",
            junos(&junos_port("access", "", native), ""),
            Some("native-vlan-id"),
        ),
        ("an id twice", junos("", &vlan("v1", "1")), Some("used by vlan default")),
        ("no id", junos("", &vlan("v1", "4095")), Some("Invalid vlan-id")),
        (
            "a unit on a link of ae0",
            junos("<interface><name>xe-0/0/3</name><unit><name>0</name></unit></interface>", ""),
            Some("logical unit"),
        ),
    ];
    assert_refused(&JUNOS, &cases);
}

#[test]
fn junos_refuses_undefined_members_only_with_strict_references() {
    let strict = Hardware { strict_references: true, ..hardware(&JUNOS) };
    let xml = junos(&junos_port("trunk", "<members>nowhere</members>", ""), "");
    let config = merge_xml(JUNOS.roots, &(JUNOS.factory)(&strict), &xml);
    let errors = (JUNOS.check)(&config, &strict);
    assert_eq!(errors.len(), 1);
    let path = errors[0].path.as_ref().expect("a path");
    assert_eq!(path.junos_path(), "[edit interfaces xe-0/0/9]");
}

#[test]
fn junos_choices_exclude_each_other() {
    let hardware = hardware(&JUNOS);
    let one = junos("", "<vlan><name>v5</name><vlan-id>5</vlan-id></vlan>");
    let many = junos("", "<vlan><name>v5</name><vlan-id-list>7-9</vlan-id-list></vlan>");
    let config = merge_xml(JUNOS.roots, &(JUNOS.factory)(&hardware), &one);
    let config = merge_xml(JUNOS.roots, &config, &many);
    let ids: Vec<u16> = (JUNOS.view)(&config, &hardware).vlans.into_keys().collect();
    assert_eq!(ids, [1, 7, 8, 9]);
}

const SRL_IF: &str = "urn:nokia.com:srlinux:chassis:interfaces";
const SRL_VLANS: &str = "urn:nokia.com:srlinux:chassis:interfaces-vlans";
const SRL_NI: &str = "urn:nokia.com:srlinux:net-inst:network-instance";

fn srl_port(tagging: &str, subs: &[(u16, &str)]) -> String {
    let sub = |(index, encap): &(u16, &str)| {
        format!(
            "<subinterface><index>{index}</index><type xmlns:t=\"{SRL_IF}\">t:bridged</type>\
             <vlan xmlns=\"{SRL_VLANS}\"><encap>{encap}</encap></vlan></subinterface>"
        )
    };
    let subs = subs.iter().map(sub).collect::<Vec<_>>().concat();
    format!(
        "<interface xmlns=\"{SRL_IF}\"><name>ethernet-1/1</name>\
         <vlan-tagging xmlns=\"{SRL_VLANS}\">{tagging}</vlan-tagging>{subs}</interface>"
    )
}

fn mac_vrf(name: &str, sub: &str) -> String {
    format!(
        "<network-instance xmlns=\"{SRL_NI}\"><name>{name}</name><type xmlns:t=\"{SRL_NI}\">t:mac-vrf</type>\
         <interface><name>{sub}</name></interface></network-instance>"
    )
}

#[test]
fn srlinux_refuses_must_and_leafref_violations() {
    let tagged = |id: u16| format!("<single-tagged><vlan-id>{id}</vlan-id></single-tagged>");
    let untagged = "<untagged/>";
    let sub = "ethernet-1/1.5";
    let cases = [
        ("accepted", srl_port("true", &[(5, &tagged(5)), (6, untagged)]) + &mac_vrf("v5", sub), None),
        ("accepted: unused", srl_port("true", &[(5, &tagged(5))]), None),
        ("no such subinterface", mac_vrf("v5", sub), Some("ethernet-1/1.5 does not exist")),
        (
            "tagged without tagging",
            srl_port("false", &[(5, &tagged(5))]),
            Some("vlan-id only configurable if"),
        ),
        (
            "untagged without tagging",
            srl_port("false", &[(5, untagged)]),
            Some("untagged only configurable if"),
        ),
        ("two without tagging", srl_port("false", &[(5, ""), (6, "")]), Some("at most 1 subinterfaces")),
        ("a VLAN id twice", srl_port("true", &[(5, &tagged(5)), (6, &tagged(5))]), Some("vlan-id 5 is used")),
        ("both", srl_port("true", &[(5, &(tagged(5) + untagged))]), Some("cannot be configured together")),
        (
            "in two network instances",
            srl_port("true", &[(5, &tagged(5))]) + &mac_vrf("a", sub) + &mac_vrf("b", sub),
            Some("is used in network-instance a"),
        ),
        (
            "routed in a mac-vrf",
            format!(
                "<interface xmlns=\"{SRL_IF}\"><name>ethernet-1/1</name><subinterface><index>5</index></subinterface>\
                 </interface>{}",
                mac_vrf("a", sub)
            ),
            Some("must be of type bridged"),
        ),
        (
            "no such port",
            format!("<interface xmlns=\"{SRL_IF}\"><name>ethernet-1/99</name></interface>"),
            Some("does not exist on this platform"),
        ),
        (
            "tagging on a link of lag1",
            srl_port("true", &[]).replace("ethernet-1/1", "ethernet-1/3"),
            Some("vlan-tagging and aggregate-id"),
        ),
    ];
    assert_refused(&SRLINUX, &cases);
}

#[test]
fn ieee8021q_refuses_duplicate_registrations_and_dangling_leafrefs() {
    let registration = |vids: &str, port: u16| {
        format!(
            "<bridges xmlns=\"urn:ieee:std:802.1Q:yang:ieee802-dot1q-bridge\"><bridge><name>br0</name><component>\
             <name>br0</name><filtering-database><vlan-registration-entry><database-id>0</database-id>\
             <vids>{vids}</vids><entry-type>static</entry-type><port-map><port-ref>{port}</port-ref>\
             <static-vlan-registration-entries><registrar-admin-control>fixed-new-ignored</registrar-admin-control>\
             <vlan-transmitted>tagged</vlan-transmitted></static-vlan-registration-entries></port-map>\
             </vlan-registration-entry></filtering-database></component></bridge></bridges>"
        )
    };
    let port = |inner: &str| {
        format!(
            "<interfaces xmlns=\"urn:ietf:params:xml:ns:yang:ietf-interfaces\"><interface><name>eth1</name>\
             <bridge-port xmlns=\"urn:ieee:std:802.1Q:yang:ieee802-dot1q-bridge\">{inner}</bridge-port></interface>\
             </interfaces>"
        )
    };
    let cases = [
        ("accepted", registration("5,10-20", 1), None),
        ("a VLAN registered twice", registration("1-5", 1), Some("VLAN 1 is registered")),
        ("no such port number", registration("5", 77), Some("no port number 77")),
        ("a link's number", registration("5", 3), Some("no port number 3")),
        ("no such bridge", port("<bridge-name>br1</bridge-name>"), Some("refers to br1")),
        ("no such component", port("<component-name>x</component-name>"), Some("refers to x")),
    ];
    assert_refused(&IEEE8021Q, &cases);
}

#[test]
fn nxos_refuses_reserved_vlans_and_removal_of_vlan_1() {
    let system = |inner: &str| {
        format!("<System xmlns=\"http://cisco.com/ns/yang/cisco-nx-os-device\">{inner}</System>")
    };
    let domain = |encap: &str, attribute: &str| {
        system(&format!(
            "<bd-items><bd-items><BD-list{attribute}><fabEncap>{encap}</fabEncap></BD-list></bd-items></bd-items>"
        ))
    };
    let remove = " xmlns:nc=\"urn:ietf:params:xml:ns:netconf:base:1.0\" nc:operation=\"remove\"";
    assert_eq!(refused(&NXOS, &domain("vlan-3967", "")), []);
    assert!(refused(&NXOS, &domain("vlan-3968", ""))[0].2.contains("reserved"));
    assert!(refused(&NXOS, &domain("vlan-1", remove))[0].2.contains("VLAN 1 can not be deleted"));
    let port = "<intf-items><phys-items><PhysIf-list><id>eth1/9</id></PhysIf-list></phys-items></intf-items>";
    assert!(refused(&NXOS, &system(port))[0].2.contains("eth1/9 does not exist"));
    // A trunk without a list carries all VLANs.
    let hardware = hardware(&NXOS);
    let port = system(
        "<intf-items><phys-items><PhysIf-list><id>eth1/1</id><mode>trunk</mode></PhysIf-list></phys-items></intf-items>",
    );
    let config = merge_xml(NXOS.roots, &(NXOS.factory)(&hardware), &port);
    assert!((NXOS.view)(&config, &hardware).ports["eth1/1"].open_trunk);
}
