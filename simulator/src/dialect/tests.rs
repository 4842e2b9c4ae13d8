//! Tests of all dialects, and what the tests of each share.

use std::collections::BTreeMap;

use super::accessors::merge_xml;
use super::*;
use crate::netconf::error::Tag;

pub(super) fn hardware(dialect: &Dialect) -> Hardware {
    let ports: Vec<String> = (1..=4).map(dialect.port_name).collect();
    let lag = match dialect.name {
        "openconfig" => "Port-Channel1",
        "junos" => "ae0",
        "nxos" => "po1",
        _ => "lag1",
    };
    let lags = BTreeMap::from([(lag.to_owned(), ports[2..].to_vec())]);
    Hardware { ports, lags, mac: [2, 0, 0, 1, 0, 0], strict_references: false, router: false }
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
pub(super) fn refused(dialect: &'static Dialect, xml: &str) -> Vec<(Tag, String, String)> {
    let hardware = hardware(dialect);
    let config = merge_xml(dialect.roots, &(dialect.factory)(&hardware), xml);
    (dialect.check)(&config, &hardware)
        .into_iter()
        .map(|error| (error.tag, error.path.map(|path| path.text).unwrap_or_default(), error.message))
        .collect()
}

/// Checks cases: what is tried, the XML, and a text of the expected error; without it, the XML is accepted.
pub(super) fn assert_refused(dialect: &'static Dialect, cases: &[(&str, String, Option<&str>)]) {
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

/// What the tests of VRFs configure: VRF `blue` with the VLAN 100 on the first port, and VLAN 200 by an IRB interface.
struct VrfXml {
    /// The sub-interface of VLAN 100 with this index and tag, and with an IPv4 address.
    sub: fn(index: u16, vlan: u16, address: &str) -> String,
    /// The IRB interface of VLAN 200.
    irb: fn() -> String,
    /// A VRF of this name with this member.
    vrf: fn(name: &str, member: &str) -> String,
    /// Name of the sub-interface with index 100, and of the IRB interface.
    names: [&'static str; 2],
}

const OC_IF: &str = "http://openconfig.net/yang/interfaces";
const OC_IP: &str = "http://openconfig.net/yang/interfaces/ip";
const OC_VLAN: &str = "http://openconfig.net/yang/vlan";

fn oc_address(family: &str, ip: &str, length: u8) -> String {
    format!(
        "<{family} xmlns=\"{OC_IP}\"><addresses><address><ip>{ip}</ip><config><ip>{ip}</ip>\
         <prefix-length>{length}</prefix-length></config></address></addresses><config><mtu>1400</mtu></config></{family}>"
    )
}

const OPENCONFIG_VRF: VrfXml = VrfXml {
    sub: |index, vlan, address| {
        let (v4, v6) = (oc_address("ipv4", address, 24), oc_address("ipv6", "2001:db8::1", 64));
        format!(
            "<interfaces xmlns=\"{OC_IF}\"><interface><name>Ethernet1</name><subinterfaces><subinterface><index>{index}\
             </index><config><index>{index}</index><description>eno-a-100</description></config><vlan xmlns=\"{OC_VLAN}\">\
             <match><single-tagged><config><vlan-id>{vlan}</vlan-id></config></single-tagged></match></vlan>{v4}{v6}\
             </subinterface></subinterfaces></interface></interfaces>"
        )
    },
    irb: || {
        let address = oc_address("ipv4", "10.2.0.1", 24);
        format!(
            "<interfaces xmlns=\"{OC_IF}\"><interface><name>Vlan200</name><config><name>Vlan200</name><type \
             xmlns:t=\"urn:ietf:params:xml:ns:yang:iana-if-type\">t:l3ipvlan</type></config><routed-vlan \
             xmlns=\"{OC_VLAN}\"><config><vlan>200</vlan></config>{address}</routed-vlan></interface></interfaces>"
        )
    },
    vrf: |name, member| {
        let (interface, sub) = member.split_once('.').unwrap_or((member, ""));
        let sub = if sub.is_empty() { String::new() } else { format!("<subinterface>{sub}</subinterface>") };
        let connection = |source: &str, family: &str| {
            let keys = format!(
                "<src-protocol xmlns:p=\"http://openconfig.net/yang/policy-types\">p:{source}</src-protocol>\
                 <dst-protocol xmlns:p=\"http://openconfig.net/yang/policy-types\">p:BGP</dst-protocol>\
                 <address-family xmlns:t=\"http://openconfig.net/yang/openconfig-types\">t:{family}</address-family>"
            );
            format!("<table-connection>{keys}<config>{keys}</config></table-connection>")
        };
        let connections = connection("STATIC", "IPV4") + &connection("DIRECTLY_CONNECTED", "IPV6");
        let protocol = "<identifier xmlns:p=\"http://openconfig.net/yang/policy-types\">p:STATIC</identifier>\
                        <name>DEFAULT</name>";
        format!(
            "<network-instances xmlns=\"http://openconfig.net/yang/network-instance\"><network-instance>\
             <name>{name}</name><config><name>{name}</name><type \
             xmlns:t=\"http://openconfig.net/yang/network-instance-types\">t:L3VRF</type><description>eno-a {name}\
             </description><route-distinguisher>65000:100</route-distinguisher></config><inter-instance-policies>\
             <import-export-policy><config>\
             <export-route-target>65000:2</export-route-target><import-route-target>65000:1</import-route-target>\
             </config></import-export-policy></inter-instance-policies><table-connections>{connections}\
             </table-connections><interfaces><interface><id>{member}</id><config><id>{member}</id>\
             <interface>{interface}</interface>{sub}</config></interface></interfaces><protocols><protocol>{protocol}\
             <config>{protocol}</config><static-routes><static><prefix>192.0.2.0/24</prefix><config>\
             <prefix>192.0.2.0/24</prefix></config><next-hops><next-hop><index>1</index><config><index>1</index>\
             <next-hop>10.1.0.9</next-hop><preference>7</preference></config></next-hop></next-hops></static>\
             </static-routes></protocol></protocols></network-instance></network-instances>"
        )
    },
    names: ["Ethernet1.100", "Vlan200"],
};

fn junos_configuration(interfaces: &str, vlans: &str, instances: &str) -> String {
    format!(
        "<configuration xmlns=\"http://yang.juniper.net/junos-qfx/conf/root\">\
         <interfaces xmlns=\"http://yang.juniper.net/junos-qfx/conf/interfaces\">{interfaces}</interfaces>\
         <vlans xmlns=\"http://yang.juniper.net/junos-qfx/conf/vlans\">{vlans}</vlans><routing-instances \
         xmlns=\"http://yang.juniper.net/junos-qfx/conf/routing-instances\">{instances}</routing-instances>\
         </configuration>"
    )
}

const JUNOS_VRF: VrfXml = VrfXml {
    sub: |index, vlan, address| {
        let interface = format!(
            "<interface><name>xe-0/0/1</name><vlan-tagging/><unit><name>{index}</name><description>eno-a-100\
             </description><vlan-id>{vlan}</vlan-id><family><inet><mtu>1400</mtu><address><name>{address}/24</name>\
             </address></inet><inet6><address><name>2001:db8::1/64</name></address></inet6></family></unit></interface>"
        );
        junos_configuration(&interface, "", "")
    },
    irb: || {
        let irb = "<interface><name>irb</name><unit><name>200</name><family><inet><mtu>1400</mtu><address>\
                   <name>10.2.0.1/24</name></address></inet></family></unit></interface>";
        let vlan = "<vlan><name>v200</name><vlan-id>200</vlan-id><l3-interface>irb.200</l3-interface></vlan>";
        junos_configuration(irb, vlan, "")
    },
    vrf: |name, member| {
        let instance = format!(
            "<instance><name>{name}</name><instance-type>vrf</instance-type><description>eno-a {name}</description>\
             <interface><name>{member}</name></interface><route-distinguisher><rd-type>65000:100</rd-type>\
             </route-distinguisher><vrf-target><import>target:65000:1</import><export>target:65000:2</export></vrf-target>\
             <vrf-table-label/><routing-options><static><route><name>192.0.2.0/24</name><next-hop>10.1.0.9</next-hop>\
             <preference><metric-value>7</metric-value></preference></route></static></routing-options></instance>"
        );
        junos_configuration("", "", &instance)
    },
    names: ["xe-0/0/1.100", "irb.200"],
};

const SRL_IF: &str = "urn:nokia.com:srlinux:chassis:interfaces";
const SRL_NI: &str = "urn:nokia.com:srlinux:net-inst:network-instance";

const SRLINUX_VRF: VrfXml = VrfXml {
    sub: |index, vlan, address| {
        let vlans = "urn:nokia.com:srlinux:chassis:interfaces-vlans";
        format!(
            "<interface xmlns=\"{SRL_IF}\"><name>ethernet-1/1</name><vlan-tagging xmlns=\"{vlans}\">true</vlan-tagging>\
             <subinterface><index>{index}</index><type xmlns:t=\"{SRL_IF}\">t:routed</type><description>eno-a-100\
             </description><ip-mtu>1400</ip-mtu><vlan xmlns=\"{vlans}\"><encap><single-tagged><vlan-id>{vlan}</vlan-id>\
             </single-tagged></encap></vlan><ipv4><admin-state>enable</admin-state><address><ip-prefix>{address}/24\
             </ip-prefix></address></ipv4><ipv6><admin-state>enable</admin-state><address><ip-prefix>2001:db8::1/64\
             </ip-prefix></address></ipv6></subinterface></interface>"
        )
    },
    irb: || {
        format!(
            "<interface xmlns=\"{SRL_IF}\"><name>irb1</name><subinterface><index>200</index><ip-mtu>1400</ip-mtu><ipv4>\
             <admin-state>enable</admin-state><address><ip-prefix>10.2.0.1/24</ip-prefix></address></ipv4></subinterface>\
             </interface><network-instance xmlns=\"{SRL_NI}\"><name>v200</name><type xmlns:t=\"{SRL_NI}\">t:mac-vrf\
             </type><interface><name>irb1.200</name></interface></network-instance>"
        )
    },
    vrf: |name, member| {
        format!(
            "<network-instance xmlns=\"{SRL_NI}\"><name>{name}</name><type xmlns:t=\"{SRL_NI}\">t:ip-vrf</type>\
             <description>eno-a {name}</description><interface><name>{member}</name></interface><protocols><bgp-vpn \
             xmlns=\"urn:nokia.com:srlinux:bgp:bgp-vpn\"><bgp-instance><id>1</id><route-distinguisher><rd>65000:100</rd>\
             </route-distinguisher><route-target><export-rt>target:65000:2</export-rt><import-rt>target:65000:1\
             </import-rt></route-target></bgp-instance></bgp-vpn></protocols><static-routes \
             xmlns=\"urn:nokia.com:srlinux:static-route:static-routes\"><route><prefix>192.0.2.0/24</prefix>\
             <preference>7</preference><next-hop-group>g</next-hop-group></route></static-routes><next-hop-groups \
             xmlns=\"urn:nokia.com:srlinux:static-route:next-hop-groups\"><group><name>g</name><nexthop><index>1</index>\
             <ip-address>10.1.0.9</ip-address></nexthop></group></next-hop-groups></network-instance>"
        )
    },
    names: ["ethernet-1/1.100", "irb1.200"],
};

/// The dialects that have VRFs.
fn with_vrfs() -> [(&'static Dialect, VrfXml); 3] {
    [(&OPENCONFIG, OPENCONFIG_VRF), (&junos::JUNOS, JUNOS_VRF), (&srlinux::SRLINUX, SRLINUX_VRF)]
}

fn router(dialect: &'static Dialect) -> Hardware {
    Hardware { router: true, ..hardware(dialect) }
}

#[test]
fn vrf_has_the_same_view_in_every_dialect_that_has_any() {
    for (dialect, xml) in with_vrfs() {
        let hardware = router(dialect);
        let factory = (dialect.factory)(&hardware);
        assert!((dialect.view)(&factory, &hardware).vrfs.is_empty(), "{}", dialect.name);
        let parts = [
            (xml.sub)(100, 100, "10.1.0.1"),
            (xml.irb)(),
            (xml.vrf)("blue", xml.names[0]),
            (xml.vrf)("blue", xml.names[1]),
        ];
        let config = merge_xml(dialect.roots, &factory, &parts.concat());
        assert_eq!((dialect.check)(&config, &hardware), [], "{}", dialect.name);
        let mut out = String::new();
        (dialect.operational)(&config, &hardware).write_xml(dialect.roots, "", &mut out);
        assert!(out.contains("10.1.0.1"), "{}", dialect.name);
        let view = (dialect.view)(&config, &hardware);
        let addresses = |texts: &[&str]| texts.iter().map(|text| text.parse().expect("an address")).collect();
        let sub = RoutedView {
            port: Some(hardware.ports[0].clone()),
            vlan: Some(100),
            description: Some("eno-a-100".to_owned()),
            addresses: addresses(&["10.1.0.1/24", "2001:db8::1/64"]),
            mtu: Some(1400),
            disabled: false,
        };
        let irb = RoutedView {
            vlan: Some(200),
            addresses: addresses(&["10.2.0.1/24"]),
            mtu: Some(1400),
            ..RoutedView::default()
        };
        let route = RouteView {
            prefix: "192.0.2.0/24".parse().expect("a prefix"),
            next_hop: "10.1.0.9".parse().expect("an address"),
            preference: Some(7),
        };
        let blue = VrfView {
            description: Some("eno-a blue".to_owned()),
            route_distinguisher: Some("65000:100".to_owned()),
            import_targets: vec!["65000:1".to_owned()],
            export_targets: vec!["65000:2".to_owned()],
            exports: ["connected", "static"].map(str::to_owned).into(),
            interfaces: BTreeMap::from([(xml.names[0].to_owned(), sub), (xml.names[1].to_owned(), irb)]),
            routes: vec![route],
        };
        assert_eq!(view.vrfs, BTreeMap::from([("blue".to_owned(), blue)]), "{}", dialect.name);
        let ports: Vec<_> = view.ports.keys().filter(|port| !hardware.ports.contains(port)).collect();
        assert_eq!(ports, hardware.lags.keys().collect::<Vec<_>>(), "{}", dialect.name);
    }
}

#[test]
fn vrfs_are_refused_as_devices_refuse_them() {
    for (dialect, xml) in with_vrfs() {
        let hardware = router(dialect);
        let factory = (dialect.factory)(&hardware);
        let [sub, irb] = xml.names;
        let interface = (xml.sub)(100, 100, "10.1.0.1");
        let vrf = (xml.vrf)("blue", sub);
        let cases = [
            ("no such interface", vrf.clone()),
            ("no such IRB interface", (xml.vrf)("blue", irb)),
            ("a VLAN twice", format!("{interface}{}", (xml.sub)(101, 100, "10.1.1.1"))),
            ("in two VRFs", format!("{interface}{vrf}{}", (xml.vrf)("red", sub))),
            (
                "an address twice",
                format!("{interface}{vrf}{}{}", (xml.irb)(), (xml.vrf)("blue", irb))
                    .replace("10.2.0.1", "10.1.0.1"),
            ),
        ];
        for (what, text) in cases {
            let config = merge_xml(dialect.roots, &factory, &text);
            assert_ne!((dialect.check)(&config, &hardware), [], "{}: {what}", dialect.name);
        }
        let malformed =
            [("65000:100", "65000"), ("65000:2", "65000"), ("10.1.0.9", "10.1.0"), ("/24", "/33")];
        for (good, bad) in malformed {
            let text = format!("{interface}{vrf}").replace(good, bad);
            let parsed = crate::model::edit::parse(
                dialect.roots,
                &crate::netconf::xml::parse(format!("<c>{text}</c>").as_bytes()).expect("XML").root.children,
            );
            // OpenConfig writes no `/24` in addresses, but in the prefix of the route.
            assert!(parsed.is_err(), "{}: {good} -> {bad}", dialect.name);
        }
    }
}

#[test]
fn tagged_subinterface_needs_tagging_where_the_model_has_it() {
    for (dialect, remove) in [
        (&junos::JUNOS, "<vlan-tagging/>"),
        (
            &srlinux::SRLINUX,
            "<vlan-tagging xmlns=\"urn:nokia.com:srlinux:chassis:interfaces-vlans\">true</vlan-tagging>",
        ),
    ] {
        let (_, xml) =
            with_vrfs().into_iter().find(|(with, _)| with.name == dialect.name).expect("it has VRFs");
        let hardware = router(dialect);
        let text = (xml.sub)(100, 100, "10.1.0.1");
        let refused = |text: &str| {
            let config = merge_xml(dialect.roots, &(dialect.factory)(&hardware), text);
            !(dialect.check)(&config, &hardware).is_empty()
        };
        assert!(!refused(&text), "{}", dialect.name);
        assert!(refused(&text.replace(remove, "")), "{}", dialect.name);
    }
}
