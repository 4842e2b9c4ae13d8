//! SR Linux.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use eno_driver_netconf::dialect::srlinux::SrLinux;
use eno_driver_netconf::plan::interfaces;
use proptest::prelude::*;

use crate::properties::device::{Model, Node};
use crate::properties::{DialectUnderTest, VIDS, any_desired, any_excluded, any_ports, config, name_of};

const MODEL: Model = Model {
    lists: &[
        ("interface", &["name"]),
        ("network-instance", &["name"]),
        ("subinterface", &["index"]),
        ("low-vlan-id", &["range-low-vlan-id"]),
    ],
    leaf_lists: &[],
    choices: &[],
    presence: &["untagged"],
    ranges: &[],
};

#[derive(Clone, Debug)]
enum Encap {
    Untagged,
    Vlan(u16),
    Range(u16, u16),
    Outer(u16),
    Any,
}

#[derive(Clone, Debug)]
struct Sub {
    routed: bool,
    /// The encapsulation, where the port has `vlan-tagging`.
    encap: Encap,
    /// Which network-instance it is in.
    network_instance: Assignment,
}

#[derive(Clone, Debug)]
enum Assignment {
    None,
    /// The network-instance that is named by its VID, with the owner for [`name_of`].
    Named(u8),
    /// A foreign network-instance.
    Foreign(u8),
}

#[derive(Clone, Debug)]
struct Port {
    tagging: bool,
    subs: BTreeMap<u32, Sub>,
    aggregate: bool,
}

#[derive(Clone, Debug, Default)]
struct Instance {
    routed: bool,
    interfaces: BTreeSet<String>,
}

/// Network-instances without interfaces, those with settings of their own, and disabled ones.
type Extras = (BTreeSet<u16>, BTreeSet<u8>, BTreeSet<u16>);

/// `owner`: the lowest owner for [`name_of`].
fn device(ports: &BTreeMap<String, Port>, (empty, special, down): &Extras, owner: u8) -> Vec<Node> {
    let mut instances: BTreeMap<String, Instance> = BTreeMap::new();
    for vid in empty {
        instances.insert(name_of(owner, *vid).unwrap(), Instance::default());
    }
    let mut xml = String::new();
    for (name, port) in ports {
        write!(xml, "<interface xmlns=\"urn:nokia.com:srlinux:chassis:interfaces\"><name>{name}</name>")
            .unwrap();
        if port.aggregate {
            xml.push_str("<ethernet><aggregate-id>lag1</aggregate-id></ethernet></interface>");
            continue;
        }
        if port.tagging {
            xml.push_str(
                "<vlan-tagging xmlns=\"urn:nokia.com:srlinux:chassis:interfaces-vlans\">true</vlan-tagging>",
            );
        }
        let subs = port.subs.iter().take(if port.tagging { usize::MAX } else { 1 });
        let mut used = BTreeSet::new();
        for (index, sub) in subs {
            let (vids, encap) = match sub.encap {
                _ if !port.tagging => (vec![], String::new()),
                Encap::Untagged => (vec![0], "<untagged/>".to_owned()),
                Encap::Vlan(vid) => {
                    (vec![vid], format!("<single-tagged><vlan-id>{vid}</vlan-id></single-tagged>"))
                }
                Encap::Range(first, last) => (
                    (first..=last).collect(),
                    format!(
                        "<single-tagged-range><low-vlan-id><range-low-vlan-id>{first}</range-low-vlan-id>\
                         <high-vlan-id>{last}</high-vlan-id></low-vlan-id></single-tagged-range>"
                    ),
                ),
                Encap::Outer(vid) => (
                    vec![vid],
                    format!(
                        "<double-tagged><inner-vlan-id>7</inner-vlan-id><outer-vlan-id>{vid}</outer-vlan-id></double-tagged>"
                    ),
                ),
                Encap::Any => {
                    (vec![5000], "<single-tagged><vlan-id>any</vlan-id></single-tagged>".to_owned())
                }
            };
            // The device refuses ambiguous encapsulations, and tags of routed subinterfaces except a single VID.
            let routed = sub.routed && (!port.tagging || matches!(sub.encap, Encap::Vlan(_)));
            if vids.iter().any(|vid| used.contains(vid)) {
                continue;
            }
            used.extend(vids);
            let kind = if routed { "routed" } else { "bridged" };
            write!(xml, "<subinterface><index>{index}</index><type>x:{kind}</type>").unwrap();
            if port.tagging {
                write!(
                    xml,
                    "<vlan xmlns=\"urn:nokia.com:srlinux:chassis:interfaces-vlans\"><encap>{encap}</encap></vlan>"
                )
                .unwrap();
            }
            xml.push_str("</subinterface>");
            let network_instance = match (&sub.network_instance, &sub.encap) {
                (Assignment::None, _) => continue,
                (Assignment::Named(which), Encap::Vlan(vid)) if !routed => {
                    name_of((*which % 2).max(owner), *vid).unwrap()
                }
                (Assignment::Named(which) | Assignment::Foreign(which), _) => {
                    format!("{}-{which}", if routed { "vrf" } else { "blue" })
                }
            };
            let instance = instances.entry(network_instance).or_default();
            instance.routed = routed;
            instance.interfaces.insert(format!("{name}.{index}"));
        }
        xml.push_str("</interface>");
    }
    for (name, instance) in &instances {
        let kind = if instance.routed { "ip-vrf" } else { "mac-vrf" };
        write!(
            xml,
            "<network-instance xmlns=\"urn:nokia.com:srlinux:net-inst:network-instance\"><name>{name}</name>\
             <type>x:{kind}</type><description>of {name}</description>"
        )
        .unwrap();
        if down.iter().any(|vid| name.ends_with(&format!("-{vid}"))) {
            xml.push_str("<admin-state>disable</admin-state>");
        }
        if special.iter().any(|which| *name == format!("blue-{which}")) {
            xml.push_str("<bridge-table><mac-limit xmlns=\"urn:nokia.com:srlinux:x\"><maximum-entries>5</maximum-entries></mac-limit></bridge-table>");
        }
        for interface in &instance.interfaces {
            write!(xml, "<interface><name>{interface}</name></interface>").unwrap();
        }
        xml.push_str("</network-instance>");
    }
    Node::read(&xml)
}

fn any_port() -> impl Strategy<Value = Port> {
    let encap = prop_oneof![
        1 => Just(Encap::Untagged),
        12 => VIDS.prop_map(Encap::Vlan),
        1 => (VIDS, 1_u16..4).prop_map(|(first, more)| Encap::Range(first, first + more)),
        1 => VIDS.prop_map(Encap::Outer),
        1 => Just(Encap::Any),
    ];
    let network_instance = prop_oneof![
        1 => Just(Assignment::None),
        4 => (0_u8..2).prop_map(Assignment::Named),
        2 => (0_u8..4).prop_map(Assignment::Foreign),
    ];
    let sub = (prop::bool::weighted(0.2), encap, network_instance)
        .prop_map(|(routed, encap, network_instance)| Sub { routed, encap, network_instance });
    let index = prop_oneof![3 => 0_u32..24, 1 => 4090_u32..4100];
    (prop::bool::weighted(0.8), prop::collection::btree_map(index, sub, 0..8), prop::bool::weighted(0.1))
        .prop_map(|(tagging, subs, aggregate)| Port { tagging, subs, aggregate })
}

fn any_extras() -> impl Strategy<Value = Extras> {
    (
        prop::collection::btree_set(VIDS, 0..6),
        prop::collection::btree_set(0_u8..4, 0..2),
        prop::collection::btree_set(VIDS, 0..4),
    )
}

fn named<'a>(nodes: &'a [Node], list: &'a str) -> impl Iterator<Item = (&'a str, &'a Node)> {
    let of_list = nodes.iter().filter(move |node| node.name == list);
    of_list.filter_map(|node| Some((node.child("name")?.text.as_str(), node)))
}

/// `<interface>.<index>` of each subinterface.
fn subinterfaces(nodes: &[Node]) -> BTreeSet<String> {
    let index = |sub: &Node| sub.child("index").map(|index| index.text.clone());
    named(nodes, "interface")
        .flat_map(|(name, port)| {
            let subs = port.children.iter().filter(|child| child.name == "subinterface");
            subs.filter_map(index).map(move |index| format!("{name}.{index}"))
        })
        .collect()
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn apply_converges_and_preserves_foreign_config(
        ports in any_ports(any_port()),
        extras in any_extras(),
        desired in any_desired(),
        excluded in any_excluded(),
    ) {
        let subject = DialectUnderTest::new(&SrLinux, &MODEL);
        let before = device(&ports, &extras, 0);
        let done = subject.applies_in_one_edit(&before, &desired, excluded.as_ref())?;

        let current = subinterfaces(&done.after_xml);
        let mut assigned = BTreeSet::new();
        for (name, instance) in named(&done.after_xml, "network-instance") {
            for (interface, _) in named(&instance.children, "interface") {
                prop_assert!(current.contains(interface), "{} of {} dangles", interface, name);
                prop_assert!(assigned.insert(interface.to_owned()), "{} is in {} too", interface, name);
            }
        }
        for (name, port) in named(&done.after_xml, "interface") {
            let tagging = port.child("vlan-tagging").is_some();
            for sub in port.children.iter().filter(|child| child.name == "subinterface") {
                let encap = sub.child("vlan").is_some_and(|vlan| !vlan.children.is_empty());
                prop_assert_eq!(encap, tagging, "{} has a subinterface that does not fit vlan-tagging", name);
            }
        }
        // Unlisted ports, and network-instances that are neither ours nor adopted, are unchanged.
        let listed = interfaces(&desired);
        for (name, port) in named(&before, "interface").filter(|(name, _)| !listed.contains(name)) {
            prop_assert!(done.after_xml.contains(port), "{} was touched", name);
        }
        let before_seen = subject.parse(&before);
        for (name, instance) in named(&before, "network-instance").filter(|(name, _)| !name.starts_with("eno-c1-")) {
            let adopted = before_seen.vlans.iter().any(|(vid, vlan)| {
                vlan.name.as_deref() == Some(name) && desired.device.adopt.contains(vid)
            });
            prop_assert!(adopted || done.after_xml.contains(instance), "{} was touched", name);
        }
    }
}

#[test]
fn removal_restores_the_initial_config() {
    let devices = (any_ports(any_port()), any_extras());
    DialectUnderTest::new(&SrLinux, &MODEL)
        .check_removal(devices, |(ports, extras)| device(ports, extras, 1));
}
