//! The law of a dialect: what was wanted is there after the edit, and what is not ours is as it was.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use eno_driver_netconf::dialect::Dialect;
use eno_driver_netconf::dialect::openconfig::OpenConfig;
use eno_driver_netconf::plan::{LeftOut, Mode, Seen, Unit, interfaces, ours, plan};
use eno_schemas::{
    Device, Drift, FabricDesired, FabricPort, FabricVlan, Item, PortMode, VlanId, VlanSet, vlan_name,
};
use proptest::prelude::*;
use quick_xml::events::Event;
use quick_xml::name::ResolveResult;
use quick_xml::reader::NsReader;

/// A device as a tree of XML that knows list keys, leaf-lists, merge and remove.
#[derive(Clone, Debug, Default, PartialEq)]
struct Node {
    namespace: String,
    name: String,
    text: String,
    remove: bool,
    children: Vec<Node>,
}

impl Node {
    fn read(xml: &str) -> Vec<Self> {
        let mut reader = NsReader::from_str(xml);
        reader.config_mut().expand_empty_elements = true;
        let mut stack = vec![Self::default()];
        loop {
            match reader.read_resolved_event().expect("well-formed") {
                (ResolveResult::Bound(namespace), Event::Start(tag)) => {
                    let operation = tag.try_get_attribute("nc:operation").expect("attributes");
                    stack.push(Self {
                        namespace: namespace.into_inner().to_owned(),
                        name: tag.local_name().into_inner().to_owned(),
                        remove: operation.is_some_and(|operation| &*operation.value == "remove"),
                        ..Self::default()
                    });
                }
                (_, Event::End(_)) => {
                    let node = stack.pop().expect("an element");
                    stack.last_mut().expect("a parent").children.push(node);
                }
                (_, Event::Text(text)) => stack.last_mut().expect("an element").text.push_str(&text),
                (_, Event::GeneralRef(name)) => {
                    let text = quick_xml::escape::resolve_predefined_entity(&name).expect("a known entity");
                    stack.last_mut().expect("an element").text.push_str(text);
                }
                (_, Event::Eof) => return stack.pop().expect("the root").children,
                (_, other) => panic!("{other:?}"),
            }
        }
    }

    fn key(&self) -> (&str, &str) {
        let child = |name| self.children.iter().find(|c| c.name == name).map_or("", |c| c.text.as_str());
        match self.name.as_str() {
            "vlan" => ("vlan", child("vlan-id")),
            "interface" | "network-instance" => (&self.name, child("name")),
            "trunk-vlans" => ("trunk-vlans", &self.text),
            name => (name, ""),
        }
    }

    fn apply(into: &mut Vec<Self>, edits: &[Self]) {
        for edit in edits {
            let at = into.iter().position(|own| own.key() == edit.key());
            match (at, edit.remove) {
                (Some(at), true) => drop(into.remove(at)),
                (None, true) => {}
                (Some(at), false) => {
                    into[at].text.clone_from(&edit.text);
                    Self::apply(&mut into[at].children, &edit.children);
                }
                (None, false) => {
                    let mut new = Self { children: Vec::new(), ..edit.clone() };
                    Self::apply(&mut new.children, &edit.children);
                    into.push(new);
                }
            }
        }
    }

    fn write(nodes: &[Self], out: &mut String) {
        for node in nodes {
            write!(out, "<{} xmlns=\"{}\">", node.name, node.namespace).unwrap();
            out.push_str(&quick_xml::escape::escape(node.text.as_str()));
            Self::write(&node.children, out);
            write!(out, "</{}>", node.name).unwrap();
        }
    }
}

fn parse(nodes: &[Node]) -> Seen {
    let mut xml = String::from("<rpc-reply xmlns=\"urn:ietf:params:xml:ns:netconf:base:1.0\"><data>");
    Node::write(nodes, &mut xml);
    OpenConfig.parse(&(xml + "</data></rpc-reply>")).expect("the dialect reads it")
}

fn apply(nodes: &[Node], edit: &str) -> Vec<Node> {
    let config =
        format!("<config xmlns=\"c\" xmlns:nc=\"urn:ietf:params:xml:ns:netconf:base:1.0\">{edit}</config>");
    let mut nodes = nodes.to_vec();
    Node::apply(&mut nodes, &Node::read(&config)[0].children);
    nodes
}

#[derive(Clone, Debug)]
struct Port {
    mode: Option<Mode>,
    tagged: BTreeSet<(u16, u16)>,
    native: Option<u16>,
    aggregate: bool,
}

fn device(instance: bool, vlans: &BTreeMap<u16, (u8, bool)>, ports: &BTreeMap<String, Port>) -> Vec<Node> {
    let mut xml = String::new();
    if instance {
        xml.push_str(
            "<network-instances xmlns=\"http://openconfig.net/yang/network-instance\"><network-instance>\
             <name>main</name><config><name>main</name><type>x:DEFAULT_INSTANCE</type></config><vlans>",
        );
        for (vid, (whose, active)) in vlans {
            let name = match whose {
                0 => format!("<name>{}</name>", vlan_name("c1", VlanId::new(*vid).unwrap())),
                1 => format!("<name>{}</name>", vlan_name("c2", VlanId::new(*vid).unwrap())),
                2 => "<name>a&amp;&lt;b</name>".to_owned(),
                _ => String::new(),
            };
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

fn ids(ids: &BTreeSet<u16>) -> VlanSet {
    ids.iter().map(|id| VlanId::new(*id).unwrap()).collect()
}

const VIDS: std::ops::Range<u16> = 1..24;

fn any_port() -> impl Strategy<Value = Port> {
    let mode = prop_oneof![1 => Just(None), 1 => Just(Some(Mode::Access)), 3 => Just(Some(Mode::Trunk))];
    let tagged =
        prop::collection::btree_set((VIDS, 0_u16..4).prop_map(|(first, more)| (first, first + more)), 0..6);
    (mode, tagged, prop::option::weighted(0.3, VIDS), any::<bool>())
        .prop_map(|(mode, tagged, native, aggregate)| Port { mode, tagged, native, aggregate })
}

prop_compose! {
    fn any_desired()(
        vlans in prop::collection::btree_set(VIDS, 0..16),
        ports in prop::collection::btree_map("[a-d]", (prop::collection::btree_set(VIDS, 0..12), any::<bool>()), 0..4),
    ) -> FabricDesired {
        let vlans = ids(&vlans);
        FabricDesired {
            cluster: "c1".into(),
            device: Device { address: String::new(), dialect: None, credential: None, host_key: None, drift: Drift::default(), adopt: VlanSet::EMPTY },
            vlans: vlans.iter().map(|vid| FabricVlan { vid, owners: vec![] }).collect(),
            ports: ports.into_iter().map(|(name, (wanted, trunk))| FabricPort {
                name,
                lag: None,
                mode: if trunk { PortMode::Trunk } else { PortMode::Keep },
                vlans: ids(&wanted).intersection(&vlans),
            }).collect(),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_wanted_is_there_and_the_rest_is_as_it_was(
        instance in prop::bool::weighted(0.9),
        vlans in prop::collection::btree_map(VIDS, (0_u8..4, prop::bool::weighted(0.8)), 0..16),
        ports in prop::collection::btree_map("[a-e]", any_port(), 1..5),
        desired in any_desired(),
        left_out in prop::option::of((VIDS, "[a-d]", 0_u8..3)),
    ) {
        let before_xml = device(instance, &vlans, &ports);
        let before = parse(&before_xml);
        let mut out = LeftOut::default();
        let mut skipped = None;
        if let Some((vid, port, what)) = left_out {
            let vid = VlanId::new(vid).unwrap();
            let (unit, item) = match what {
                0 => (Unit::Vlan(vid), Item::vlan(vid)),
                1 => (Unit::Port(port.clone()), Item::port(port)),
                _ => (Unit::PortVlan(port.clone(), vid), Item::port_vlan(port, vid)),
            };
            out.add(unit, "no");
            skipped = Some(item);
        }
        let planned = plan(&before, &desired, &out);
        let after_xml = apply(&before_xml, &OpenConfig.render(&before, &planned.changes));
        let after = parse(&after_xml);

        // One edit is enough, and a second finds nothing to do.
        prop_assert!(plan(&after, &desired, &out).changes.is_empty());
        let (ours_before, ours_after) = (ours(&before, "c1"), ours(&after, "c1"));
        let skips = |vid: VlanId, port: &str| skipped.as_ref().is_some_and(|item| item.covers(vid, port));
        let rejected = |vid: VlanId, port: &str| planned.rejected.iter().any(|r| r.item.covers(vid, port));
        for port in &desired.ports {
            let there = after.ports.get(&port.name);
            for vid in port.vlans.iter().filter(|vid| !rejected(*vid, &port.name)) {
                let there = there.expect("a port that does not exist is rejected");
                prop_assert!(ours_after.contains(vid), "VLAN {} is wanted", vid);
                prop_assert!(there.is_open() || there.tagged().contains(vid), "{} on {}", vid, port.name);
                prop_assert_ne!(there.native, Some(vid));
            }
            let Some(there) = there.filter(|there| there.mode == Some(Mode::Trunk)) else { continue };
            for vid in there.tagged().intersection(&ours_before).difference(&port.vlans).iter() {
                prop_assert!(skips(vid, &port.name) || there.native == Some(vid), "{} is not wanted on {}", vid, port.name);
            }
        }
        // Nobody else's VLAN is touched, and no trunk is opened.
        for (vid, vlan) in before.vlans.iter().filter(|(vid, _)| !ours_before.contains(**vid)) {
            prop_assert_eq!(after.vlans.get(vid), Some(vlan));
        }
        let listed = interfaces(&desired);
        prop_assert_eq!(before.ports.keys().collect::<Vec<_>>(), after.ports.keys().collect::<Vec<_>>());
        for (name, was) in &before.ports {
            let is = &after.ports[name];
            if !listed.contains(name.as_str()) || skipped == Some(Item::port(name)) {
                prop_assert_eq!(was, is);
                continue;
            }
            prop_assert_eq!(was.native, is.native);
            prop_assert!(was.is_open() || !is.is_open(), "{} was opened", name);
            prop_assert!(is.mode == Some(Mode::Trunk) || is.tagged.is_empty());
            let foreign = was.tagged().difference(&ours_before).difference(&ours_after);
            prop_assert!(foreign.is_subset(&is.tagged()), "{} lost {}", name, foreign.difference(&is.tagged()));
            let new = is.tagged().difference(&was.tagged());
            let closed: VlanSet = is.native.into_iter().collect();
            prop_assert!(new.is_subset(&ours_after.union(&closed)), "{} carries {} now", name, new);
        }
    }
}
