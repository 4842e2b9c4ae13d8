//! Configurations in the vendor's documented form.

use std::collections::BTreeSet;

use super::*;
use crate::dialect::DIALECTS;
use crate::plan::test_states::{set, vid};
use crate::plan::{Mode, ModeChange, PortChange, RoutedId};

fn hello(uris: &[&str]) -> Hello {
    Hello::new(uris.iter().map(|uri| (*uri).to_owned()), None)
}

/// The reply of a switch without YANG-compliant configuration.
const PLAIN_REPLY: &str = r#"<rpc-reply xmlns="urn:ietf:params:xml:ns:netconf:base:1.0"
  xmlns:junos="http://xml.juniper.net/junos/18.2R1/junos" message-id="4">
<data>
<configuration xmlns="http://xml.juniper.net/xnm/1.1/xnm" junos:commit-seconds="1530000000" junos:commit-user="root">
    <groups>
        <name>uplinks</name>
        <interfaces>
            <interface>
                <name>&lt;et-*&gt;</name>
                <mtu>9216</mtu>
                <unit><name>&lt;*&gt;</name><family><ethernet-switching>
                    <interface-mode>trunk</interface-mode><vlan><members>storage</members></vlan>
                </ethernet-switching></family></unit>
            </interface>
        </interfaces>
    </groups>
    <groups inactive="inactive">
        <name>old</name>
        <vlans><vlan><name>old</name><vlan-id>999</vlan-id></vlan></vlans>
    </groups>
    <groups><name>common</name><vlans><vlan><name>voice</name><vlan-id>60</vlan-id></vlan></vlans></groups>
    <apply-groups>common</apply-groups>
    <interfaces>
        <interface-range>
            <name>servers</name>
            <member><name>xe-0/0/4[0-7]</name></member>
            <member-range><name>xe-0/0/20</name><end-range>xe-0/0/21</end-range></member-range>
            <native-vlan-id>1</native-vlan-id>
            <unit><name>0</name><family><ethernet-switching>
                <interface-mode>trunk</interface-mode><vlan><members>200-210</members></vlan>
            </ethernet-switching></family></unit>
        </interface-range>
        <interface>
            <name>xe-0/0/1</name>
            <native-vlan-id>1</native-vlan-id>
            <unit><name>0</name><family><ethernet-switching>
                <interface-mode>trunk</interface-mode>
                <vlan><members>storage</members><members>eno-c1-100</members><members>300-310</members><members>40</members>
                    <members inactive="inactive">41</members></vlan>
                <storm-control><profile-name>default</profile-name></storm-control>
            </ethernet-switching></family></unit>
        </interface>
        <interface><name>xe-0/0/2</name><unit><name>0</name><family><ethernet-switching>
            <vlan><members>storage</members></vlan></ethernet-switching></family></unit></interface>
        <interface><name>xe-0/0/3</name><unit><name>0</name><family><ethernet-switching/></family></unit></interface>
        <interface><name>xe-0/0/4</name><unit><name>0</name><family><ethernet-switching>
            <port-mode>trunk</port-mode><vlan><members>all</members></vlan></ethernet-switching></family></unit></interface>
        <interface><name>xe-0/0/5</name><gigether-options><ieee-802.3ad><bundle>ae0</bundle></ieee-802.3ad></gigether-options></interface>
        <interface><name>xe-0/0/6</name><ether-options><ieee-802.3ad><bundle>ae0</bundle></ieee-802.3ad></ether-options></interface>
        <interface><name>xe-0/0/7</name><unit><name>0</name><family><inet><address><name>192.0.2.1/31</name></address></inet></family></unit></interface>
        <interface inactive="inactive"><name>xe-0/0/8</name><unit><name>0</name><family><ethernet-switching/></family></unit></interface>
        <interface><name>xe-0/0/9</name><unit><name>0</name><family><ethernet-switching>
            <interface-mode>trunk</interface-mode><native-vlan-id>storage</native-vlan-id><vlan><members>ghost</members></vlan>
            </ethernet-switching></family></unit></interface>
        <interface><name>xe-0/0/42</name><description>rack 4</description></interface>
        <interface><name>et-0/0/48</name><apply-groups>uplinks</apply-groups><unit><name>0</name><family><ethernet-switching>
            <vlan><members>eno-c1-100</members></vlan></ethernet-switching></family></unit></interface>
        <interface><name>et-0/0/49</name><apply-groups>uplinks</apply-groups><apply-groups-except>uplinks</apply-groups-except></interface>
        <interface><name>ae0</name><aggregated-ether-options><lacp><active/></lacp></aggregated-ether-options>
            <unit><name>0</name><family><ethernet-switching><interface-mode>trunk</interface-mode>
            <vlan><members>1-4094</members></vlan></ethernet-switching></family></unit></interface>
        <interface><name>xe-0/0/10</name><unit><name>0</name><family><ethernet-switching>
            <interface-mode>trunk</interface-mode></ethernet-switching></family></unit></interface>
    </interfaces>
    <vlans>
        <vlan><name>default</name><vlan-id>1</vlan-id></vlan>
        <vlan><name>storage</name><description>S &amp; T</description><vlan-id>20</vlan-id><l3-interface>irb.20</l3-interface></vlan>
        <vlan><name>eno-c1-100</name><vlan-id>100</vlan-id></vlan>
        <vlan inactive="inactive"><name>eno-c1-101</name><vlan-id>101</vlan-id></vlan>
        <vlan><name>lab</name><vlan-id-list>500-502</vlan-id-list><vlan-id-list>510</vlan-id-list></vlan>
        <vlan><name>free</name><description>d</description><vlan-id>70</vlan-id><interface><name>xe-0/0/10.0</name></interface></vlan>
        <vlan><name>plain</name><vlan-id>71</vlan-id></vlan>
        <vlan><name>none</name><vlan-id>none</vlan-id></vlan>
    </vlans>
</configuration>
<database-status-information/>
</data>
</rpc-reply>"#;

fn observed() -> ObservedConfig {
    PLAIN.parse(&PLAIN_REPLY.into(), &Inventory::new()).unwrap()
}

#[test]
fn vlans_are_identified_by_name() {
    let observed = observed();
    let vlans: Vec<_> = observed.vlans.iter().collect();
    let all = vlans.iter().map(|(vid, vlan)| {
        (vid.get(), vlan.name.as_deref().unwrap(), vlan.active, vlan.rename_blocker.is_some())
    });
    assert_eq!(
        all.collect::<Vec<_>>(),
        [
            (1, "default", true, false),
            (20, "storage", true, true),
            (60, "voice", true, true),
            (70, "free", true, true),
            (71, "plain", true, false),
            (100, "eno-c1-100", true, true),
            (101, "eno-c1-101", false, false),
            (500, "lab", true, true),
            (501, "lab", true, true),
            (502, "lab", true, true),
            (510, "lab", true, true),
        ]
    );
}

#[test]
fn effective_port_state_is_read() {
    let observed = observed();
    let trunk = Some(Mode::Trunk);
    for (name, mode, tagged, untagged, open) in [
        ("xe-0/0/1", trunk, "20,40,100,300-310", Some(1), false),
        ("xe-0/0/2", Some(Mode::Access), "", Some(20), false),
        ("xe-0/0/3", None, "", None, false),
        ("xe-0/0/4", trunk, "", None, true),
        ("xe-0/0/9", trunk, "", Some(20), false),
        ("xe-0/0/10", trunk, "70", None, false),
        ("xe-0/0/20", trunk, "200-210", Some(1), false),
        ("xe-0/0/42", trunk, "200-210", Some(1), false),
        ("et-0/0/48", trunk, "20,100", None, false),
        ("et-0/0/49", None, "", None, false),
        ("ae0", trunk, "1-4094", None, false),
    ] {
        let port = &observed.ports[name];
        let own = if mode == Some(Mode::Access) { port.access } else { port.native };
        assert_eq!(
            (port.mode, port.tagged().clone(), own.map(VlanId::get), port.open),
            (mode, set(tagged), untagged, open),
            "{name}"
        );
        assert_eq!((port.unfit.as_ref(), port.aggregate), (None, name == "ae0"), "{name}");
    }
    for (name, words) in [("xe-0/0/5", "LAG ae0"), ("xe-0/0/6", "LAG ae0"), ("xe-0/0/7", "family inet")] {
        assert!(observed.ports[name].unfit.as_ref().unwrap().contains(words), "{name}");
    }
    assert!(!observed.ports.contains_key("xe-0/0/8"), "it is deactivated");
    assert_eq!(observed.ports["et-0/0/48"].inherited, set("20"));
    assert_eq!(observed.ports["et-0/0/48"].vlans_by_name, set("20,100"));
    assert_eq!(observed.ports["xe-0/0/10"].inherited, set("70"));
}

#[test]
fn yang_compliant_replies_are_parsed_by_namespace() {
    for family in ["junos-qfx", "junos", "junos-ex"] {
        let reply = format!(
            "<nc:rpc-reply xmlns:nc=\"urn:ietf:params:xml:ns:netconf:base:1.0\"><nc:data>\
             <configuration xmlns=\"http://yang.juniper.net/{family}/conf/root\">\
             <vlans xmlns=\"http://yang.juniper.net/{family}/conf/vlans\" xmlns:jcmd=\"http://yang.juniper.net/junos/jcmd\">\
             <vlan jcmd:active=\"false\"><name>a</name><vlan-id>5</vlan-id></vlan><vlan><name>b</name><vlan-id>6</vlan-id></vlan></vlans>\
             <interfaces xmlns=\"http://yang.juniper.net/{family}/conf/interfaces\"><interface><name>et-0/0/0</name><unit><name>0</name>\
             <family><ethernet-switching><interface-mode>trunk</interface-mode><vlan><members>b</members></vlan></ethernet-switching>\
             </family></unit></interface></interfaces></configuration></nc:data></nc:rpc-reply>"
        );
        // The parser accepts any of the namespaces, whatever the hello announced.
        let observed = PLAIN.parse(&reply.into(), &Inventory::new()).unwrap();
        assert!(!observed.vlans.get(vid(5)).unwrap().active && observed.vlans.get(vid(6)).unwrap().active);
        assert_eq!(observed.ports["et-0/0/0"].tagged(), &set("6"));
    }
}

#[test]
fn entries_are_removed_in_the_form_they_were_written() {
    let mut changes = Changes::default();
    changes.delete.insert(vid(100));
    changes.create.insert(vid(101), "eno-c1-101".into());
    changes.create.insert(vid(71), "eno-c1-71".into());
    let change = PortChange { add: set("101"), remove: set("100,305"), ..PortChange::default() };
    changes.ports.insert("xe-0/0/1".into(), change);
    let access = PortChange { add: set("101"), mode: ModeChange::Trunk, ..PortChange::default() };
    changes.ports.insert("xe-0/0/2".into(), access);
    assert_eq!(
        PLAIN.render(&observed(), &changes).to_string(),
        "<configuration xmlns=\"http://xml.juniper.net/xnm/1.1/xnm\"><vlans xmlns=\"http://xml.juniper.net/xnm/1.1/xnm\">\
         <vlan nc:operation=\"delete\"><name>plain</name></vlan><vlan><name>eno-c1-71</name><vlan-id>71</vlan-id></vlan>\
         <vlan active=\"active\"><name>eno-c1-101</name><vlan-id>101</vlan-id></vlan>\
         <vlan nc:operation=\"delete\"><name>eno-c1-100</name></vlan></vlans>\
         <interfaces xmlns=\"http://xml.juniper.net/xnm/1.1/xnm\"><interface><name>xe-0/0/1</name><unit><name>0</name><family>\
         <ethernet-switching><vlan><members nc:operation=\"delete\">300-310</members>\
         <members nc:operation=\"delete\">eno-c1-100</members><members>101</members><members>300-304</members>\
         <members>306-310</members></vlan></ethernet-switching></family></unit></interface>\
         <interface><name>xe-0/0/2</name><unit><name>0</name><family><ethernet-switching>\
         <interface-mode>trunk</interface-mode><vlan><members nc:operation=\"delete\">storage</members><members>101</members>\
         </vlan></ethernet-switching></family></unit></interface></interfaces></configuration>"
    );
}

#[test]
fn hello_selects_the_models() {
    const OPENCONFIG: [&str; 3] = [
        "http://openconfig.net/yang/interfaces",
        "http://openconfig.net/yang/vlan",
        "http://openconfig.net/yang/network-instance",
    ];
    let choose = |uris: &[&str]| {
        let hello = hello(uris);
        let dialect = crate::dialect::choose(DIALECTS, None, &hello)?;
        Some((dialect.name(), dialect.filter(&BTreeSet::new()).split('"').nth(1)?.to_owned()))
    };
    let xnm = Some(("junos", XNM.to_owned()));
    let qfx = Some(("junos", "http://yang.juniper.net/junos-qfx/conf/root".to_owned()));
    assert_eq!(choose(&[JUNOS, "http://xml.juniper.net/dmi/system/1.0"]), xnm);
    assert_eq!(
        choose(&[
            JUNOS,
            "http://yang.juniper.net/junos-qfx/conf/root?module=junos-qfx-conf-root&revision=2023-01-01"
        ]),
        qfx
    );
    assert_eq!(choose(&[&[JUNOS][..], &OPENCONFIG].concat()), xnm);
    assert_eq!(choose(&[]), None);
    assert_eq!(crate::dialect::choose(DIALECTS, Some("junos"), &hello(&[])).unwrap().name(), "junos");
}

#[test]
fn inventory_merges_state_and_configuration() {
    let state = "<rpc-reply xmlns=\"urn:ietf:params:xml:ns:netconf:base:1.0\">\
         <interface-information xmlns=\"http://xml.juniper.net/junos/18.2R1/junos-interface\"><physical-interface><name>\n\
         xe-0/0/0\n</name><admin-status>up</admin-status><logical-interface><name>xe-0/0/0.0</name></logical-interface>\
         </physical-interface></interface-information></rpc-reply>";
    let configured = "<rpc-reply xmlns=\"urn:ietf:params:xml:ns:netconf:base:1.0\"><data><configuration><interfaces>\
         <interface><name>xe-0/0/0</name><unit><name>0</name></unit></interface></interfaces></configuration></data></rpc-reply>";
    for reply in [state, configured] {
        let names: Vec<_> = PLAIN.parse_inventory(&reply.into()).unwrap().into_keys().collect();
        assert_eq!(names, ["xe-0/0/0"]);
    }
}

#[test]
fn locks_and_confirmation_follow_the_profile() {
    let capability = |name: &str| format!("urn:ietf:params:xml:ns:netconf:capability:{name}");
    let uris = [JUNOS.to_owned(), capability("candidate:1.0"), capability("confirmed-commit:1.0")];
    let profile = PLAIN.profile(&Hello::new(uris, None)).unwrap();
    assert_eq!(profile.locks, ["candidate"]);
    assert_eq!(profile.confirmation, crate::hello::Confirmation::Session);
}

#[test]
fn deactivated_instances_and_units_are_of_others() {
    let reply = "<rpc-reply><data><configuration><routing-instances><instance inactive=\"inactive\"><name>blue</name>\
        <instance-type>vrf</instance-type></instance><instance><name>red</name><instance-type>vrf</instance-type>\
        <route-distinguisher><rd-type>4200000000L:1</rd-type></route-distinguisher>\
        <vrf-target><community>target:65000:1</community></vrf-target></instance></routing-instances><interfaces>\
        <interface><name>xe-0/0/1</name><vlan-tagging/><unit inactive=\"inactive\"><name>5</name>\
        <description>eno-c-5</description><vlan-id>5</vlan-id></unit><unit><name>6</name>\
        <description>eno-c-6</description><vlan-id>6</vlan-id></unit></interface></interfaces></configuration></data>\
        </rpc-reply>";
    let routing = PLAIN.parse_routing(&reply.into()).unwrap();
    assert!(!routing.vrfs["blue"].is_vrf && routing.vrfs["red"].is_vrf);
    assert_eq!(routing.vrfs["red"].route_distinguisher.as_deref(), Some("4200000000:1"));
    assert_eq!(routing.vrfs["red"].import_targets, routing.vrfs["red"].export_targets);
    let description = |id| routing.interfaces[&RoutedId::on("xe-0/0/1", vid(id))].description.as_deref();
    assert_eq!((description(5), description(6)), (Some("deactivated"), Some("eno-c-6")));
}
