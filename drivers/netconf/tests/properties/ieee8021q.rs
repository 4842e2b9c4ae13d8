//! IEEE 802.1Q.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use eno_driver_netconf::dialect::ieee8021q::Ieee8021Q;
use eno_driver_netconf::plan::{InterfaceState, Inventory, Mode, interfaces};
use proptest::prelude::*;

use crate::common::vid;
use crate::properties::device::{self, Model, Node};
use crate::properties::{
    DialectUnderTest, VIDS, any_desired, any_excluded, any_histories, any_ports, config, name_of,
};

const MODEL: Model = Model {
    lists: &[
        ("bridge", &["name"]),
        ("component", &["name"]),
        ("vlan-registration-entry", &["database-id", "vids"]),
        ("port-map", &["port-ref"]),
        ("bridge-vlan/vlan", &["vid"]),
        ("interface", &["name"]),
    ],
    leaf_lists: &[],
    choices: &[],
    presence: &[],
    ranges: &[],
};

/// Bridges and components. The last component is not VLAN-aware.
const COMPONENTS: [(&str, &str); 4] = [("b1", "c"), ("b1", "s"), ("b2", "c"), ("b2", "d")];

#[derive(Clone, Debug)]
struct Port {
    /// The index in [`COMPONENTS`]; beyond its end: a port of no bridge.
    component: usize,
    pvid: Option<u16>,
    untagged_only: bool,
    /// `enable-ingress-filtering`
    filtering: Option<bool>,
}

#[derive(Clone, Debug)]
struct Entry {
    component: usize,
    vids: BTreeSet<u16>,
    /// Control and `vlan-transmitted`, by port number.
    ports: BTreeMap<u32, (u8, bool)>,
}

/// `1,3-5`
fn vids_text(vids: &[u16]) -> String {
    let mut runs: Vec<(u16, u16)> = Vec::new();
    for id in vids {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == *id => *last = *id,
            _ => runs.push((*id, *id)),
        }
    }
    let text = runs
        .iter()
        .map(|(first, last)| if first == last { first.to_string() } else { format!("{first}-{last}") });
    text.collect::<Vec<_>>().join(",")
}

fn configured(
    ports: &BTreeMap<String, Port>,
    entries: &[Entry],
    vlans: &BTreeMap<(usize, u16), u8>,
    database: u32,
) -> Vec<Node> {
    let mut xml = String::from("<bridges xmlns=\"urn:ieee:std:802.1Q:yang:ieee802-dot1q-bridge\">");
    for bridge in ["b1", "b2"] {
        write!(xml, "<bridge><name>{bridge}</name><address>00-00-00-00-00-01</address>").unwrap();
        for (at, (_, component)) in COMPONENTS.iter().enumerate().filter(|(_, (of, _))| *of == bridge) {
            let kind = if *component == "d" { "d-bridge-component" } else { "c-vlan-component" };
            write!(xml, "<component><name>{component}</name><type>x:{kind}</type><filtering-database>")
                .unwrap();
            let mut used = BTreeSet::new();
            for entry in entries.iter().filter(|entry| entry.component == at) {
                let vids: Vec<u16> = entry.vids.iter().copied().filter(|vid| used.insert(*vid)).collect();
                if vids.is_empty() {
                    continue;
                }
                write!(
                    xml,
                    "<vlan-registration-entry><database-id>{database}</database-id><vids>{}</vids><entry-type>static</entry-type>",
                    vids_text(&vids)
                )
                .unwrap();
                for (number, (control, tagged)) in &entry.ports {
                    let control = ["fixed-new-ignored", "fixed-new-propagated", "normal", "forbidden"]
                        [usize::from(*control)];
                    let transmitted = if *tagged { "tagged" } else { "untagged" };
                    write!(
                        xml,
                        "<port-map><port-ref>{number}</port-ref><static-vlan-registration-entries><registrar-admin-control>{control}\
                         </registrar-admin-control><vlan-transmitted>{transmitted}</vlan-transmitted>\
                         </static-vlan-registration-entries></port-map>"
                    )
                    .unwrap();
                }
                xml.push_str("</vlan-registration-entry>");
            }
            xml.push_str("</filtering-database><bridge-vlan>");
            for ((_, id), owner) in vlans.iter().filter(|((of, _), _)| *of == at) {
                let name = name_of(*owner, *id)
                    .map(|name| format!("<name>{}</name>", quick_xml::escape::escape(name.as_str())));
                write!(xml, "<vlan><vid>{id}</vid>{}</vlan>", name.unwrap_or_default()).unwrap();
            }
            xml.push_str("</bridge-vlan></component>");
        }
        xml.push_str("</bridge>");
    }
    xml.push_str("</bridges><interfaces xmlns=\"urn:ietf:params:xml:ns:yang:ietf-interfaces\">");
    for (name, port) in ports {
        write!(
            xml,
            "<interface><name>{name}</name><bridge-port xmlns=\"urn:ieee:std:802.1Q:yang:ieee802-dot1q-bridge\">"
        )
        .unwrap();
        if let Some((bridge, component)) = COMPONENTS.get(port.component) {
            write!(xml, "<bridge-name>{bridge}</bridge-name><component-name>{component}</component-name>")
                .unwrap();
        }
        if let Some(pvid) = port.pvid {
            write!(xml, "<pvid>{pvid}</pvid>").unwrap();
        }
        if port.untagged_only {
            xml.push_str("<acceptable-frame>admit-only-untagged-and-priority-tagged</acceptable-frame>");
        }
        if let Some(filtering) = port.filtering {
            write!(xml, "<enable-ingress-filtering>{filtering}</enable-ingress-filtering>").unwrap();
        }
        xml.push_str("</bridge-port></interface>");
    }
    xml.push_str("</interfaces>");
    Node::read(&xml)
}

/// The registrations of all entries, by component, VID and port number.
fn registrations(nodes: &[Node]) -> BTreeMap<(String, u16, u32), (String, String)> {
    fn lists<'a>(node: &'a Node, name: &'a str) -> impl Iterator<Item = &'a Node> {
        node.children.iter().filter(move |child| child.name == name)
    }
    let text = |node: &Node, name: &str| node.child(name).map_or(String::new(), |child| child.text.clone());
    let mut found = BTreeMap::new();
    let bridges = nodes.iter().find(|node| node.name == "bridges").expect("bridges");
    for bridge in lists(bridges, "bridge") {
        for component in lists(bridge, "component") {
            let component_and_number = format!("{}/{}", text(bridge, "name"), text(component, "name"));
            let database = component.child("filtering-database").expect("a filtering database");
            for entry in lists(database, "vlan-registration-entry") {
                for part in text(entry, "vids").split(',') {
                    let (first, last) = part.split_once('-').unwrap_or((part, part));
                    for id in first.parse::<u16>().unwrap()..=last.parse::<u16>().unwrap() {
                        for map in lists(entry, "port-map") {
                            let registration =
                                map.child("static-vlan-registration-entries").expect("the case");
                            let registration = (
                                text(registration, "registrar-admin-control"),
                                text(registration, "vlan-transmitted"),
                            );
                            let number = text(map, "port-ref").parse().unwrap();
                            assert_eq!(
                                found.insert((component_and_number.clone(), id, number), registration),
                                None,
                                "twice"
                            );
                        }
                    }
                }
            }
        }
    }
    found
}

fn number_of(name: &str) -> u32 {
    u32::from(name.as_bytes()[0] - b'a') + 1
}

fn inventory(ports: &BTreeMap<String, Port>) -> Inventory {
    ports.keys().map(|name| (name.clone(), InterfaceState { number: Some(number_of(name)) })).collect()
}

fn any_port(filtering: impl Strategy<Value = Option<bool>>) -> impl Strategy<Value = Port> {
    let component = prop_oneof![6 => Just(0_usize), 1 => 1_usize..5];
    (component, prop::option::weighted(0.3, VIDS), prop::bool::weighted(0.1), filtering).prop_map(
        |(component, pvid, untagged_only, filtering)| Port { component, pvid, untagged_only, filtering },
    )
}

fn any_entry() -> impl Strategy<Value = Entry> {
    let ports = prop::collection::btree_map(
        prop_oneof![6 => 1_u32..6, 1 => 40_u32..42],
        (prop_oneof![5 => Just(0_u8), 1 => 0_u8..4], prop::bool::weighted(0.8)),
        0..5,
    );
    let component = prop_oneof![4 => Just(0_usize), 1 => 1_usize..3];
    (component, prop::collection::btree_set(VIDS, 1..6), ports).prop_map(|(component, vids, ports)| Entry {
        component,
        vids,
        ports,
    })
}

/// The tree without registration entries, which are compared by [`registrations`].
fn without_entries(nodes: &[Node]) -> Vec<Node> {
    let mut nodes = nodes.to_vec();
    strip(&mut nodes);
    device::canonical(&nodes, &MODEL)
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn apply_converges_and_preserves_foreign_config(
        ports in any_ports(any_port(Just(None))),
        entries in prop::collection::vec(any_entry(), 0..8),
        vlans in prop::collection::btree_map((prop_oneof![4 => Just(0_usize), 1 => 1_usize..3], VIDS), 0_u8..4, 0..16),
        database in 0_u32..2,
        desired in any_desired(),
        excluded in any_excluded(),
    ) {
        let inventory = inventory(&ports);
        let subject = DialectUnderTest { dialect: &Ieee8021Q, model: &MODEL, inventory: &inventory };
        let before = configured(&ports, &entries, &vlans, database);
        let done = subject.applies_in_one_edit(&before, &desired, excluded.as_ref())?;

        let before_seen = subject.parse(&before);
        let (was, is) = (registrations(&before), registrations(&done.after_xml));
        let listed = interfaces(&desired);
        let component_and_number = |name: &str| {
            let port = ports.get(name)?;
            COMPONENTS.get(port.component).map(|(bridge, component)| (format!("{bridge}/{component}"), number_of(name)))
        };
        let ours: BTreeSet<(String, u32)> = listed.iter().filter_map(|name| component_and_number(name)).collect();
        for key @ (component, _, number) in was.keys().chain(is.keys()) {
            if !ours.contains(&(component.clone(), *number)) {
                prop_assert_eq!(was.get(key), is.get(key), "{:?} was touched", key);
            }
        }
        // Each new membership of a listed port is desired, tagged and fixed.
        for port in &desired.ports {
            let Some((component, number)) = component_and_number(&port.name) else { continue };
            for ((_, id, _), registration) in is.iter().filter(|((of, _, own), _)| *of == component && *own == number) {
                if was.get(&(component.clone(), *id, number)) != Some(registration) {
                    prop_assert!(port.vlans.contains(vid(*id)));
                    prop_assert_eq!(registration, &("fixed-new-ignored".to_owned(), "tagged".to_owned()));
                }
            }
        }
        // A port that becomes a trunk drops frames of VLANs that it does not carry.
        let interfaces = done.after_xml.iter().find(|node| node.name == "interfaces").expect("interfaces");
        for interface in &interfaces.children {
            let name = interface.child("name").expect("a name").text.as_str();
            let became = subject.parse(&done.after_xml).ports[name].mode == Some(Mode::Trunk)
                && before_seen.ports[name].mode != Some(Mode::Trunk);
            let port = interface.child("bridge-port").expect("a bridge port");
            let filters = port.child("enable-ingress-filtering").is_some_and(|leaf| leaf.text == "true");
            prop_assert_eq!(became, filters, "{} became a trunk: {}", name, became);
        }
    }

    #[test]
    fn removal_restores_the_initial_config(
        ports in any_ports(any_port(prop::option::of(any::<bool>()))),
        mut entries in prop::collection::vec(any_entry(), 0..8),
        vlans in prop::collection::btree_map((prop_oneof![4 => Just(0_usize), 1 => 1_usize..3], VIDS), 1_u8..4, 0..10),
        database in 0_u32..2,
        history in any_histories(),
    ) {
        // A port that admits no tagged frames is tagged in no VLAN.
        for (name, port) in ports.iter().filter(|(_, port)| port.untagged_only) {
            for entry in entries.iter_mut().filter(|entry| entry.component == port.component) {
                entry.ports.remove(&number_of(name));
            }
        }
        let inventory = inventory(&ports);
        let subject = DialectUnderTest { dialect: &Ieee8021Q, model: &MODEL, inventory: &inventory };
        let start = configured(&ports, &entries, &vlans, database);
        let end = subject.restores_foreign_config(&start, &history)?;
        prop_assert_eq!(registrations(&start), registrations(&end));
        let (start, end) = (without_entries(&start), without_entries(&end));
        prop_assert!(start == end, "was\n{}is\n{}", device::text(&start), device::text(&end));
    }
}

fn strip(nodes: &mut Vec<Node>) {
    nodes.retain(|node| node.name != "vlan-registration-entry");
    for node in nodes {
        strip(&mut node.children);
    }
}
