//! Junos.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use eno_driver_netconf::dialect::Dialect;
use eno_driver_netconf::dialect::junos::{Junos, PLAIN, QFX};
use eno_driver_netconf::plan::{InterfaceState, Inventory, interfaces};
use eno_schemas::{Device, FabricDesired, vlan_name};
use proptest::prelude::*;

use crate::common::{self, vid};
use crate::properties::device::{Model, Node};
use crate::properties::{
    DialectUnderTest, VIDS, Vlans, any_desired, any_excluded, any_histories, any_ports, any_vlans, config,
};

const MODEL: Model = Model {
    lists: &[
        ("groups", &["name"]),
        ("vlans/vlan", &["name"]),
        ("interface", &["name"]),
        ("interface-range", &["name"]),
        ("interface-range/member", &["name"]),
        ("unit", &["name"]),
    ],
    leaf_lists: &["members", "vlan-id-list", "apply-groups"],
    choices: &[&["vlan-id", "vlan-id-list"]],
    presence: &["interface", "unit", "ethernet-switching"],
    ranges: &[("members", "-")],
};

/// An entry of a list of members.
#[derive(Clone, Debug)]
enum Member {
    Range(u16, u16),
    /// The name of the VLAN of this VID, if there is one.
    Name(u16),
    UnknownName,
    All,
}

#[derive(Clone, Debug)]
struct Port {
    mode: Option<&'static str>,
    members: Vec<Member>,
    native: Option<u16>,
    /// The native VLAN is in the family of unit 0, as in older versions.
    older: bool,
    /// A member of the LAG ae9.
    bundled: bool,
}

fn name_of(owner: u8, id: u16) -> String {
    match owner {
        0 => vlan_name("c1", vid(id)),
        1 => vlan_name("c2", vid(id)),
        2 => format!("a&<{id}"),
        _ => format!("list-{id}"),
    }
}

fn vlan(owner: u8, id: u16, active: bool) -> String {
    let inactive = if active { "" } else { " inactive=\"inactive\"" };
    let name = name_of(owner, id);
    let name = quick_xml::escape::escape(name.as_str());
    let leaf = if owner == 3 { "vlan-id-list" } else { "vlan-id" };
    let more = if id.is_multiple_of(5) {
        "<l3-interface>irb.5</l3-interface>"
    } else {
        "<description>d</description>"
    };
    format!("<vlan{inactive}><name>{name}</name>{more}<{leaf}>{id}</{leaf}></vlan>")
}

fn members(members: &[Member], vlans: &Vlans) -> String {
    let texts: BTreeSet<String> = members
        .iter()
        .filter_map(|member| match member {
            Member::Range(first, last) if first == last => Some(first.to_string()),
            Member::Range(first, last) => Some(format!("{first}-{last}")),
            Member::Name(id) => vlans.get(id).map(|(owner, _)| name_of(*owner, *id)),
            Member::UnknownName => Some("nobody".into()),
            Member::All => Some("all".into()),
        })
        .collect();
    texts.iter().fold(String::new(), |all, text| {
        all + &format!("<members>{}</members>", quick_xml::escape::escape(text.as_str()))
    })
}

fn switching(port: &Port, vlans: &Vlans) -> String {
    let mut xml = String::from("<storm-control><profile-name>s</profile-name></storm-control>");
    if let Some(mode) = port.mode {
        write!(xml, "<interface-mode>{mode}</interface-mode>").unwrap();
    }
    if let Some(native) = port.native.filter(|_| port.older) {
        write!(xml, "<native-vlan-id>{native}</native-vlan-id>").unwrap();
    }
    let members = members(&port.members, vlans);
    if !members.is_empty() {
        write!(xml, "<vlan>{members}</vlan>").unwrap();
    }
    format!("<unit><name>0</name><family><ethernet-switching>{xml}</ethernet-switching></family></unit>")
}

fn device(
    junos: Junos,
    vlans: &Vlans,
    ports: &BTreeMap<String, Port>,
    inherited: &BTreeMap<&str, Port>,
) -> Vec<Node> {
    let namespace = |part: &str| {
        let filter = junos.filter(&BTreeSet::new());
        let at = filter.find(&format!("<{part} xmlns=\"")).expect("it asks for all");
        filter[at..].split('"').nth(1).expect("a namespace").to_owned()
    };
    let mut xml = format!("<configuration xmlns=\"{}\">", namespace("configuration"));
    if let Some(port) = inherited.get("group") {
        write!(
            xml,
            "<groups><name>g</name><interfaces xmlns=\"{}\"><interface><name>&lt;[ab]&gt;</name>{}</interface>\
             </interfaces></groups><apply-groups>g</apply-groups>",
            namespace("interfaces"),
            switching(port, vlans)
        )
        .unwrap();
    }
    let all =
        vlans.iter().fold(String::new(), |all, (id, (owner, active))| all + &vlan(*owner, *id, *active));
    write!(xml, "<vlans xmlns=\"{}\">{all}</vlans>", namespace("vlans")).unwrap();
    write!(xml, "<interfaces xmlns=\"{}\">", namespace("interfaces")).unwrap();
    if let Some(port) = inherited.get("range") {
        write!(
            xml,
            "<interface-range><name>r</name><member><name>b</name></member><member><name>c</name></member>{}\
             </interface-range>",
            switching(port, vlans)
        )
        .unwrap();
    }
    for (name, port) in ports {
        write!(xml, "<interface><name>{name}</name><mtu>9000</mtu>").unwrap();
        if port.bundled {
            xml.push_str("<ether-options><ieee-802.3ad><bundle>ae9</bundle></ieee-802.3ad></ether-options></interface>");
            continue;
        }
        if let Some(native) = port.native.filter(|_| !port.older) {
            write!(xml, "<native-vlan-id>{native}</native-vlan-id>").unwrap();
        }
        write!(xml, "{}</interface>", switching(port, vlans)).unwrap();
    }
    xml.push_str("</interfaces></configuration>");
    Node::read(&xml)
}

fn any_member() -> impl Strategy<Value = Member> {
    prop_oneof![
        6 => (VIDS, 0_u16..4).prop_map(|(first, more)| Member::Range(first, first + more)),
        6 => VIDS.prop_map(Member::Name),
        1 => Just(Member::UnknownName),
        1 => Just(Member::All),
    ]
}

fn any_port() -> impl Strategy<Value = Port> {
    let mode = prop_oneof![1 => Just(None), 1 => Just(Some("access")), 4 => Just(Some("trunk"))];
    let members = prop::collection::vec(any_member(), 0..6);
    let native = prop::option::weighted(0.3, VIDS);
    (mode, members, native, any::<bool>(), prop::bool::weighted(0.05))
        .prop_map(|(mode, members, native, older, bundled)| Port { mode, members, native, older, bundled })
}

/// The configuration without the parts that an edit may change.
fn others(nodes: &[Node], listed: &BTreeSet<&str>) -> Vec<Node> {
    let mut nodes = nodes.to_vec();
    for part in nodes.iter_mut().flat_map(|root| &mut root.children) {
        if part.name == "vlans" {
            let ours = |vlan: &Node| vlan.child("name").is_some_and(|name| name.text.starts_with("eno-c1-"));
            // Other VLANs may be adopted.
            part.children.retain(|vlan| !ours(vlan) && vlan.child("l3-interface").is_some());
        }
        if part.name != "interfaces" {
            continue;
        }
        // A port that only an interface range configures gets an entry of its own.
        part.children.retain(|port| port.name != "interface" || port.child("mtu").is_some());
        let of_listed = part.children.iter_mut().filter(|port| {
            port.name == "interface"
                && port.child("name").is_some_and(|name| listed.contains(name.text.as_str()))
        });
        for family in of_listed
            .flat_map(|port| &mut port.children)
            .filter(|unit| unit.name == "unit")
            .flat_map(|unit| &mut unit.children)
        {
            for switching in &mut family.children {
                switching.children.retain(|leaf| !matches!(leaf.name.as_str(), "interface-mode" | "vlan"));
            }
        }
    }
    nodes
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn apply_converges_and_preserves_foreign_config(
        junos in prop_oneof![Just(PLAIN), Just(QFX)],
        vlans in any_vlans(0..4, 0..16),
        ports in any_ports(any_port()),
        inherited in prop::collection::btree_map(prop_oneof![Just("group"), Just("range")], any_port(), 0..2),
        mut desired in any_desired(),
        excluded in any_excluded(),
    ) {
        // A VLAN that an access port names can be adopted once that port is a trunk, which is another edit.
        for member in ports.values().filter(|port| port.mode != Some("trunk")).flat_map(|port| &port.members) {
            if let Member::Name(id) = member {
                desired.device.adopt.remove(vid(*id));
            }
        }
        let subject = DialectUnderTest::new(&junos, &MODEL);
        let before = device(junos, &vlans, &ports, &inherited);
        let done = subject.applies_in_one_edit(&before, &desired, excluded.as_ref())?;
        let listed = interfaces(&desired);
        prop_assert_eq!(others(&before, &listed), others(&done.after_xml, &listed));
        // No port refers to a VLAN that does not exist.
        for (name, port) in &done.after.ports {
            prop_assert!(port.vlans_by_name.iter().all(|vid| done.after.vlans.contains(vid)), "{} names what is gone", name);
        }
        let dangling = |nodes: &[Node]| format!("{nodes:?}").matches("nobody").count();
        prop_assert!(dangling(&done.after_xml) <= dangling(&before));
    }

    #[test]
    fn removal_restores_the_initial_config(
        junos in prop_oneof![Just(PLAIN), Just(QFX)],
        vlans in any_vlans(1..4, 0..10),
        mut ports in any_ports(any_port()),
        mut inherited in prop::collection::btree_map(prop_oneof![Just("group"), Just("range")], any_port(), 0..2),
        history in any_histories(),
    ) {
        // The device refuses a trunk without members.
        for port in ports.values_mut().chain(inherited.values_mut()) {
            if port.mode == Some("trunk") && members(&port.members, &vlans).is_empty() {
                port.members.push(Member::Range(30, 30));
            }
        }
        // Ports `a` and `b` inherit from the group once they are configured, so they are not in hardware alone.
        let inventory: Inventory = ["d", "e"].map(|name| (name.to_owned(), InterfaceState::default())).into();
        let subject = DialectUnderTest { dialect: &junos, model: &MODEL, inventory: &inventory };
        subject.leaves_no_residue(&device(junos, &vlans, &ports, &inherited), &history)?;
    }
}

/// A port named `a` is on none of the networks that come and go.
#[track_caller]
fn check_foreign_port(port: Port, group: Option<Port>, networks: &[u16]) {
    let states = networks.iter().map(|id| vec![*id]).chain([vec![]]);
    let history: Vec<FabricDesired> = states
        .map(|ids| {
            let ids: Vec<String> = ids.iter().map(u16::to_string).collect();
            common::desired(Device::new(""), &ids.join(","), &[("a", "")])
        })
        .collect();
    let (vlans, inherited) = (Vlans::new(), group.map(|group| ("group", group)).into_iter().collect());
    let start = device(PLAIN, &vlans, &[("a".to_owned(), port)].into(), &inherited);
    DialectUnderTest::new(&PLAIN, &MODEL).leaves_no_residue(&start, &history).unwrap();
}

fn port(mode: Option<&'static str>, vids: &[u16], native: Option<u16>) -> Port {
    let members = vids.iter().map(|id| Member::Range(*id, *id)).collect();
    Port { mode, members, native, older: false, bundled: false }
}

/// VLAN 11 becomes ours, so the native VLAN is alone on the list. Then the native VLAN becomes ours.
#[test]
fn native_vlan_on_the_list_in_place_of_others_is_not_restored() {
    check_foreign_port(port(Some("trunk"), &[11], Some(5)), None, &[11, 5]);
}

/// The trunk loses its only member, and with it its mode. It inherits another mode from the group.
#[test]
fn trunk_that_inherits_access_without_its_own_mode_is_restored() {
    check_foreign_port(port(Some("trunk"), &[11], None), Some(port(Some("access"), &[], None)), &[11]);
}

/// The group has the VLAN, too, so the list is not empty without the port's own member.
#[test]
fn member_that_the_group_has_too_is_restored_alone() {
    for mode in ["trunk", "access"] {
        let group = || Some(port(Some(mode), &[5], None));
        check_foreign_port(port(Some("trunk"), &[5], None), group(), &[5]);
        check_foreign_port(port(Some("trunk"), &[5], Some(1)), group(), &[5]);
    }
}
