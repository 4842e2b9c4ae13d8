//! Situations as tables, and properties over random fabrics.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use eno_schemas::{Device, DeviceRole, PortMode};
use proptest::prelude::*;

use super::*;
use crate::kinds::{DevicePort, DeviceSpec, LeadsTo};

/// A fabric in which every port carries the VLAN, from a text: `leaf1.1=node1.eth1` is a port to a node,
/// `leaf1.49~spine1.1` a link, `leaf2.48=dc` a port to a PhysicalNetwork, and devices called `gw…` are routers.
fn fabric(text: &str) -> (Topology, Ports) {
    let mut devices: BTreeMap<Name, DeviceSpec> = BTreeMap::new();
    let mut add = |device: &str, port: Option<(&str, LeadsTo)>| {
        let spec = devices.entry(device.into()).or_insert_with(|| {
            let mut spec =
                DeviceSpec { driver: "netconf".into(), device: Device::new("x:830"), ports: vec![] };
            if device.starts_with("gw") {
                spec.device.role = DeviceRole::Router;
            }
            spec
        });
        spec.ports.extend(port.map(|(name, leads_to)| DevicePort {
            name: name.into(),
            mode: PortMode::Keep,
            lag: None,
            leads_to,
        }));
    };
    for item in text.split_whitespace() {
        if let Some((near, far)) = item.split_once('~') {
            let (device, port) = near.split_once('.').expect("a port");
            let (far, far_port) = far.split_once('.').expect("a port");
            let link = LeadsTo::Device { device: far.into(), port: far_port.into() };
            add(device, Some((port, link)));
            add(far, None);
        } else {
            let (near, far) = item.split_once('=').expect("a port and its end");
            let (device, port) = near.split_once('.').expect("a port");
            let lead = match far.split_once('.') {
                Some((node, nic)) => LeadsTo::Node { node: node.into(), interface: nic.into() },
                None => LeadsTo::PhysicalNetwork(far.into()),
            };
            add(device, Some((port, lead)));
        }
    }
    let topology = Topology::new(devices.iter());
    let indices = |device: &Name| (0..).take(topology.port_names(device).len()).collect();
    let ports = devices.keys().map(|device| (device.clone(), indices(device))).collect();
    (topology, ports)
}

fn port(topology: &Topology, text: &str) -> (Name, u16) {
    let (device, port) = text.split_once('.').expect("a port");
    let device: Name = device.into();
    let index = topology.port_names(&device).iter().position(|name| **name == *port).expect("it is there");
    (device, u16::try_from(index).expect("few ports"))
}

/// Gateways from a text: `10.0.0.1=leaf2.48,leaf3.48` by ports, `10.0.0.1@leaf1` on a device, `10.0.0.1` anywhere.
fn gateways(topology: &Topology, text: &str) -> Vec<Arc<Gateway>> {
    let gateway = |item: &str| {
        let mut gateway = Gateway::default();
        if let Some((label, ports)) = item.split_once('=') {
            gateway.label = label.to_owned();
            gateway.ports = ports.split(',').map(|text| port(topology, text)).collect();
        } else if let Some((label, devices)) = item.split_once('@') {
            gateway.label = label.to_owned();
            gateway.devices = devices.split(',').map(Name::from).collect();
        } else {
            gateway.label = item.to_owned();
        }
        Arc::new(gateway)
    };
    text.split_whitespace().map(gateway).collect()
}

/// Probes from a text: `node1>node2` passes, `node1!10.0.0.1` fails.
fn probes(gateways: &[Arc<Gateway>], text: &str) -> Vec<Probe> {
    let probe = |item: &str| {
        let passed = item.contains('>');
        let (from, to) = item.split_once(['>', '!']).expect("two ends");
        let gateway = gateways.iter().find(|gateway| gateway.label == to);
        let to =
            gateway.map_or_else(|| ProbeEnd::Node(to.into()), |gateway| ProbeEnd::Gateway(gateway.clone()));
        Probe { from: from.into(), to, passed }
    };
    text.split_whitespace().map(probe).collect()
}

fn messages(fabric_text: &str, gateways_text: &str, probes_text: &str) -> Vec<String> {
    let (topology, ports) = fabric(fabric_text);
    let probes = probes(&gateways(&topology, gateways_text), probes_text);
    locate(&topology, &ports, &probes).iter().map(ToString::to_string).collect()
}

#[track_caller]
fn assert_messages(fabric: &str, gateways: &str, rows: &[(&str, &[&str])]) {
    for (probes, expected) in rows {
        assert_eq!(messages(fabric, gateways, probes), *expected, "{probes}");
    }
}

#[test]
fn faults_at_one_leaf() {
    let fabric = "leaf1.1=node1.eth1 leaf1.2=node2.eth1 leaf1.3=node3.eth1 leaf1.48=dc-gw";
    assert_messages(
        fabric,
        "10.0.0.1=leaf1.48",
        &[
            ("node1>node2 node2>node3 node3>node1 node1>10.0.0.1", &[]),
            (
                "node1!node2 node2>node3 node3!node1 node1!10.0.0.1 node2>10.0.0.1 node3>10.0.0.1",
                &["leaf1 1 to node1 eth1: all 3 probes through it fail, all others pass"],
            ),
            (
                "node1>node2 node2>node3 node3>node1 node1!10.0.0.1 node2!10.0.0.1 node3!10.0.0.1",
                &["leaf1 48 to dc-gw: all 3 probes through it fail, all others pass"],
            ),
            (
                "node1>node2 node2>node3 node3>node1 node1!10.0.0.1",
                &["leaf1 48 to dc-gw: the only probe through it fails, all others pass"],
            ),
            ("node1!node2", &["one of leaf1 1 to node1 eth1 or leaf1 2 to node2 eth1: 1 probe fails"]),
            // Two faults: nothing alone explains them.
            (
                "node1!10.0.0.1 node2!10.0.0.1 node3>10.0.0.1",
                &[
                    "leaf1 1 to node1 eth1: the only probe through it fails",
                    "leaf1 2 to node2 eth1: the only probe through it fails",
                ],
            ),
            // All on the way is cleared by others.
            (
                "node1>node2 node2>node3 node3>node1 node1!10.0.0.1 node2>10.0.0.1",
                &["one of node1 or 10.0.0.1: 1 probe fails, and no port or link between them is suspect"],
            ),
        ],
    );
}

#[test]
fn faults_in_two_leaves_and_two_spines() {
    let fabric = "leaf1.1=node1.eth1 leaf1.2=node2.eth1 leaf2.1=node3.eth1 leaf2.2=node4.eth1 leaf2.48=dc-gw
        leaf1.49~spine1.1 leaf1.50~spine2.1 leaf2.49~spine1.2 leaf2.50~spine2.2";
    assert_messages(
        fabric,
        "10.0.0.1=leaf2.48",
        &[
            // A path that was not taken is not cleared. What is on all paths comes first.
            (
                "node1>node2 node2>node3 node3>node4 node4>node1 node1!10.0.0.1 node2!10.0.0.1",
                &[
                    "one of leaf2 48 to dc-gw, leaf1 49 to spine1 1, leaf1 50 to spine2 1 or 2 more: 2 probes fail, all others pass",
                ],
            ),
            // Nothing else is on all paths of what passes on one leaf.
            (
                "node1>node2 node2>node3 node3>node4 node4>node1 node3!10.0.0.1 node4!10.0.0.1",
                &["leaf2 48 to dc-gw: all 2 probes through it fail, all others pass"],
            ),
            (
                "node1!node2 node2>node3 node3>node4 node4!node1 node1!10.0.0.1 node2>10.0.0.1 node3>10.0.0.1",
                &["leaf1 1 to node1 eth1: all 3 probes through it fail, all others pass"],
            ),
            (
                "node1>node2 node2!node3 node3>node4 node4>node1",
                &[
                    "one of leaf1 49 to spine1 1, leaf1 50 to spine2 1, leaf2 49 to spine1 2 or 1 more: 1 probe fails, all others pass",
                ],
            ),
            // Another fault may be there besides one of them.
            (
                "node1!node3 node1!node4 node2>node4",
                &[
                    "one of leaf1 1 to node1 eth1, leaf1 49 to spine1 1, leaf1 50 to spine2 1 or 2 more, or several of these and 1 more: 2 probes fail, all others pass",
                ],
            ),
            // A link explains both, and only one of them may be at the node's port.
            (
                "node2>node4 node3>node4 node2!node3 node1!node3",
                &[
                    "one or more of leaf1 1 to node1 eth1, leaf1 49 to spine1 1, leaf1 50 to spine2 1 or 2 more: 2 probes fail, all others pass",
                ],
            ),
            // Two faults, which share suspects.
            (
                "node1!node3 node1>node4 node2!node4 node2>node3",
                &[
                    "one of leaf1 49 to spine1 1, leaf1 50 to spine2 1, leaf2 49 to spine1 2 or 1 more: 2 probes fail, all others pass",
                ],
            ),
        ],
    );
    // A link that does not carry the VLAN at both ends is on no path, nor is a switch that does not carry it.
    let (topology, mut ports) = self::fabric(fabric);
    let ring = probes(&[], "node1>node2 node2!node3 node3>node4");
    let expected = "one of leaf1 49 to spine1 1 or leaf2 49 to spine1 2: 1 probe fails, all others pass";
    ports.insert("spine2".into(), [port(&topology, "spine2.1").1].into());
    assert_eq!(locate(&topology, &ports, &ring)[0].to_string(), expected);
    ports.remove("spine2");
    assert_eq!(locate(&topology, &ports, &ring)[0].to_string(), expected);
    // A tree has no other path.
    let tree = "leaf1.1=node1.eth1 leaf1.2=node2.eth1 leaf2.1=node3.eth1 leaf2.2=node4.eth1
        leaf1.49~spine1.1 leaf2.49~spine1.2";
    let ring = "node1>node2 node2!node3 node3>node4 node4!node1 node1!node3";
    let expected = "one of leaf1 49 to spine1 1 or leaf2 49 to spine1 2: 3 probes fail, all others pass";
    assert_eq!(messages(tree, "", ring), [expected]);
}

#[test]
fn faults_of_a_bond_over_two_leaves() {
    let fabric =
        "leaf1.1=node1.eth1 leaf2.1=node1.eth2 leaf1.2=node2.eth1 leaf2.3=node3.eth1 leaf1.49~leaf2.49";
    assert_messages(
        fabric,
        "",
        &[
            // The node itself is on all paths, each of its ports is not.
            (
                "node1!node2 node2>node3 node3!node1",
                &[
                    "one of node1, leaf1 1 to node1 eth1 or leaf2 1 to node1 eth2: 2 probes fail, all others pass",
                ],
            ),
            (
                "node1!node2 node2>node3 node3>node1",
                &["one of leaf1 1 to node1 eth1 or leaf2 1 to node1 eth2: 1 probe fails, all others pass"],
            ),
        ],
    );
    // A port that is broken for certain explains only probes that have no other way.
    let apart =
        "leaf1.1=node1.eth1 leaf2.1=node1.eth2 leaf2.2=node2.eth1 leaf1.3=node3.eth1 leaf1.5=node5.eth1
        leaf1.4=node4.eth1 leaf2.4=node4.eth2";
    let expected = [
        "leaf1 1 to node1 eth1: the only probe through it fails",
        "one of node4, leaf1 1 to node1 eth1, leaf1 4 to node4 eth1 or 1 more: 1 probe fails",
    ];
    assert_messages(apart, "", &[("node1>node2 node3>node5 node3!node1 node4!node1", &expected)]);
    // The two links of a LAG.
    let lag = "leaf1.1=node1.eth1 leaf2.1=node2.eth1 leaf3.1=node3.eth1 leaf1.49~leaf2.49 leaf1.50~leaf2.50 leaf2.51~leaf3.51";
    let expected = "one of leaf1 49 to leaf2 49 or leaf1 50 to leaf2 50: 1 probe fails, all others pass";
    assert_eq!(messages(lag, "", "node1!node2 node2>node3 node3>node1"), [expected]);
}

#[test]
fn faults_at_two_gateways() {
    let fabric = "leaf1.1=node1.eth1 leaf1.2=node2.eth1 leaf1.47=a leaf1.48=b leaf2.48=c leaf1.49~leaf2.49";
    assert_messages(
        fabric,
        "10.0.0.1=leaf1.47 10.0.0.2=leaf1.48 10.0.0.3=leaf1.48,leaf2.48 10.0.0.4=leaf1.48",
        &[
            (
                "node1>node2 node2>node1 node1!10.0.0.1 node2!10.0.0.1 node1>10.0.0.2 node2!10.0.0.2 node1!10.0.0.3",
                &[
                    "leaf1 47 to a: all 2 probes through it fail",
                    "one of 10.0.0.3, leaf2 48 to c or leaf1 49 to leaf2 49: 1 probe fails",
                    "one of node2 or 10.0.0.2: 1 probe fails, and no port or link between them is suspect",
                ],
            ),
            // Behind the port of another gateway, which answers.
            (
                "node1>10.0.0.2 node2>10.0.0.2 node1!10.0.0.4 node2!10.0.0.4",
                &["nothing answers for 10.0.0.4: 2 probes fail, and no port or link between them is suspect"],
            ),
        ],
    );
}

#[test]
fn faults_of_gateways_without_a_port() {
    let fabric =
        "leaf1.1=node1.eth1 leaf1.2=node2.eth1 leaf2.1=node3.eth1 leaf1.49~leaf2.49 leaf1.50~leaf2.50";
    assert_messages(
        fabric,
        "10.0.0.1 10.0.0.2@leaf2",
        &[
            (
                "node1>node2 node2>node3 node3>node1 node1!10.0.0.1 node2!10.0.0.1 node3!10.0.0.1",
                &["nothing answers for 10.0.0.1: all 3 probes fail, all others pass"],
            ),
            ("node1!10.0.0.1", &["one of leaf1 1 to node1 eth1 or 10.0.0.1: 1 probe fails"]),
            (
                "node1>node2 node2>node3 node3>node1 node1>10.0.0.1 node2!10.0.0.1 node3>10.0.0.1",
                &["one of leaf1 49 to leaf2 49 or leaf1 50 to leaf2 50: 1 probe fails, all others pass"],
            ),
            (
                "node1>node2 node2>node3 node3>node1 node3!10.0.0.2",
                &["nothing answers for 10.0.0.2: the only probe fails, all others pass"],
            ),
            (
                "node1>node2 node2>node3 node3>node1 node1!10.0.0.2 node3>10.0.0.2",
                &["one of leaf1 49 to leaf2 49 or leaf1 50 to leaf2 50: 1 probe fails, all others pass"],
            ),
        ],
    );
    // Nodes that no port leads to.
    assert_messages(
        "leaf1.1=node1.eth1",
        "",
        &[
            ("node1!node8", &["one of leaf1 1 to node1 eth1 or node8: 1 probe fails"]),
            ("node7!node8", &["one of node7 or node8: 1 probe fails"]),
            ("node7!node8 node1>node8", &["node7: the only probe through it fails, all others pass"]),
        ],
    );
}

#[test]
fn routers_and_networks_on_the_way() {
    // No VLAN passes through the router gw1: node1 and node2 have no path.
    let fabric = "leaf1.1=node1.eth1 leaf1.3=node3.eth1 leaf2.1=node2.eth1 gw1.1~leaf1.47 gw1.2~leaf2.47";
    assert_messages(
        fabric,
        "10.0.0.1@gw1 10.0.0.2=gw1.1 10.0.0.3=leaf1.47",
        &[
            (
                "node1!node2",
                &["one of node1 or node2: 1 probe fails, and no port or link between them is suspect"],
            ),
            (
                "node1>node3 node3!10.0.0.3",
                &["leaf1 47 to gw1 1: the only probe through it fails, all others pass"],
            ),
            (
                "node1>node3 node3!10.0.0.1",
                &["one of 10.0.0.1 or leaf1 47 to gw1 1: 1 probe fails, all others pass"],
            ),
        ],
    );
    // Two fabrics that a PhysicalNetwork joins.
    let fabric = "a.1=node1.eth1 a.2=node2.eth1 a.48=dc b.1=node3.eth1 b.2=node4.eth1 b.48=dc";
    assert_messages(
        fabric,
        "10.0.0.1=a.48,b.48",
        &[
            (
                "node1>node2 node2!node3 node3>node4 node4!node1 node3>10.0.0.1",
                &["a 48 to dc: all 2 probes through it fail, all others pass"],
            ),
            (
                "node1>node2 node2>node3 node3>node4 node1!10.0.0.1 node3!10.0.0.1",
                &["nothing answers for 10.0.0.1: all 2 probes fail, all others pass"],
            ),
        ],
    );
}

#[test]
fn messages_are_bounded() {
    let long = "x".repeat(253);
    let ports: Vec<String> = (1..99).map(|i| format!("leaf1.{i}={i}{long}.eth1")).collect();
    let lost: Vec<String> = (1..98).map(|i| format!("{i}{long}!{}{long}", i + 1)).collect();
    let messages = messages(&ports.join(" "), "", &lost.join(" "));
    assert!(matches!(&*messages, [one] if one.len() < 320), "{messages:?}");
}

/// The size of a large fabric: each node asks the next one and the gateway, and nothing reaches that.
#[test]
fn large_fabric_is_located() {
    let leaves = || 1..=48;
    let nodes = || leaves().flat_map(|leaf| (1..=10).map(move |port| (leaf, port, (leaf - 1) * 10 + port)));
    let link = |(leaf, spine)| format!("leaf{leaf}.u{spine}~spine{spine}.{leaf}");
    let links = leaves().flat_map(|leaf| (1..=16).map(move |spine| (leaf, spine))).map(link);
    let ports = nodes().map(|(leaf, port, node)| format!("leaf{leaf}.{port}=node{node}.eth1"));
    let text: Vec<String> = links.chain(ports).chain(["leaf1.48=dc-gw".to_owned()]).collect();
    let asked = nodes().map(|(.., node)| format!("node{node}>node{} node{node}!10.0.0.1", node % 480 + 1));
    let asked: Vec<String> = asked.collect();
    let found = messages(&text.join(" "), "10.0.0.1=leaf1.48", &asked.join(" "));
    let expected = "leaf1 48 to dc-gw: all 480 probes through it fail, all others pass";
    assert_eq!(found, [expected]);
}

/// A random fabric and its probes. Numbers stand for devices and ends, modulo how many there are.
#[derive(Clone, Debug)]
struct Random {
    devices: usize,
    links: Vec<(usize, usize)>,
    /// By node: its devices.
    nodes: Vec<Vec<usize>>,
    /// By gateway: how it is known, and its devices.
    gateways: Vec<(Place, Vec<usize>)>,
    /// Node, end, and what its path depends on.
    probes: Vec<(usize, usize, u64)>,
    /// What is broken, of all that may be.
    broken: Vec<usize>,
}

#[derive(Clone, Copy, Debug)]
enum Place {
    Network,
    Router,
    Device,
    Anywhere,
}

fn random(
    devices: usize,
    links: usize,
    broken: std::ops::RangeInclusive<usize>,
) -> impl Strategy<Value = Random> {
    let place = prop::sample::select(vec![Place::Network, Place::Router, Place::Device, Place::Anywhere]);
    let some = |most: usize| prop::collection::vec(0..100usize, 1..=most);
    let parts = (
        1..=devices,
        prop::collection::vec((0..100usize, 0..100usize), 0..=links),
        prop::collection::vec(some(2), 2..6),
        prop::collection::vec((place, some(3)), 0..3),
        prop::collection::vec((0..100usize, 0..100usize, any::<u64>()), 1..25),
        prop::collection::vec(0..1000usize, broken),
    );
    parts.prop_map(|(devices, links, nodes, gateways, probes, broken)| Random {
        devices,
        links,
        nodes,
        gateways,
        probes,
        broken,
    })
}

/// Two vertices, and what breaks the edge between them; `None`: nothing does.
type Edge = (String, String, Option<Fault>);

/// A fabric, and apart from the code under test what a packet may do in it.
struct Model {
    topology: Topology,
    ports: Ports,
    /// Edges that any packet may take.
    inner: Vec<Edge>,
    /// By end: its edges, the last of which lead to the end.
    ends: Vec<(ProbeEnd, Vec<Edge>)>,
    nodes: usize,
}

impl Random {
    fn model(&self) -> Model {
        let device = |number: usize| format!("d{}", number % self.devices);
        let mut text: Vec<String> =
            (0..self.devices).map(|number| format!("d{number}.0=unused{number}.0")).collect();
        let mut used = 0;
        let mut name = |device: &str| {
            used += 1;
            format!("{device}.{used}")
        };
        // Ports have an index only once all are there. So edges have the names of their ports until then.
        let mut inner: Vec<(String, String, Option<Vec<String>>)> = Vec::new();
        for (a, b) in self.links.iter().map(|(a, b)| (device(*a), device(*b))).filter(|(a, b)| a != b) {
            let (near, far) = (name(&a), name(&b));
            text.push(format!("{near}~{far}"));
            inner.push((a, b, Some(vec![near, far])));
        }
        let mut ends = Vec::new();
        for (number, devices) in self.nodes.iter().enumerate() {
            let end = format!("node{number}");
            let mut edges = Vec::new();
            for (nic, device) in devices.iter().map(|number| device(*number)).enumerate() {
                let port = name(&device);
                text.push(format!("{port}={end}.eth{nic}"));
                edges.push((device, end.clone(), Some(vec![port])));
            }
            ends.push((end, None, edges));
        }
        for (number, (place, devices)) in self.gateways.iter().enumerate() {
            let (label, end) = (format!("10.0.0.{number}"), format!("way{number}"));
            let mut edges = Vec::new();
            let mut known = String::new();
            for (count, device) in devices.iter().map(|number| device(*number)).enumerate() {
                match place {
                    Place::Network => {
                        let port = name(&device);
                        text.push(format!("{port}=net{number}"));
                        known = format!("{known}{}{port}", if known.is_empty() { "=" } else { "," });
                        let edge = (device, end.clone(), Some(vec![port]));
                        if devices.len() > 1 { inner.push(edge) } else { edges.push(edge) }
                    }
                    Place::Router => {
                        let (near, far) = (format!("gw{number}.{count}"), name(&device));
                        text.push(format!("{near}~{far}"));
                        known = format!("@gw{number}");
                        edges.push((device, end.clone(), Some(vec![far, near])));
                    }
                    Place::Device => {
                        known = format!("{known}{}{device}", if known.is_empty() { "@" } else { "," });
                        edges.push((device, end.clone(), None));
                    }
                    Place::Anywhere => {}
                }
            }
            if matches!(place, Place::Anywhere) {
                edges.extend((0..self.devices).map(|number| (device(number), end.clone(), None)));
            }
            ends.push((end, Some(format!("{label}{known}")), edges));
        }
        let (topology, ports) = fabric(&text.join(" "));
        let fault = |names: Vec<String>| {
            let ends: BTreeSet<_> = names.iter().map(|name| port(&topology, name)).collect();
            let mut ends = ends.into_iter();
            match (ends.next(), ends.next()) {
                (Some(one), Some(other)) => Fault::Link(one, other),
                (Some(one), None) => Fault::Port(one),
                _ => unreachable!("an edge has a port"),
            }
        };
        let resolve = |(a, b, names): (String, String, Option<Vec<String>>)| (a, b, names.map(fault));
        let inner: Vec<Edge> = inner.into_iter().map(resolve).collect();
        let ends = ends.into_iter().map(|(name, gateway, edges)| {
            let (target, own) = match gateway {
                None => (ProbeEnd::Node((*name).into()), Fault::Node((*name).into())),
                Some(text) => {
                    let gateway = gateways(&topology, &text).remove(0);
                    (ProbeEnd::Gateway(gateway.clone()), Fault::Gateway(gateway.label.clone()))
                }
            };
            let is_behind_one_port = matches!(&*edges, [(.., Some(_))]);
            let mut edges: Vec<Edge> = edges.into_iter().map(resolve).collect();
            edges.push((name.clone(), format!("{name}*"), (!is_behind_one_port).then_some(own)));
            (target, edges)
        });
        let ends = ends.collect();
        Model { inner, ends, topology, ports, nodes: self.nodes.len() }
    }
}

impl Model {
    /// The edges that the packets of a probe may take, and between which vertices.
    fn edges(&self, from: usize, to: usize) -> (Vec<&Edge>, &str, &str) {
        let edges = self.inner.iter().chain(&self.ends[from].1).chain(&self.ends[to].1).collect();
        let last = |end: usize| &*self.ends[end].1.last().expect("an edge").1;
        (edges, last(from), last(to))
    }

    /// All that may break.
    fn faults(&self) -> Vec<&Fault> {
        let edges = self.inner.iter().chain(self.ends.iter().flat_map(|(_, edges)| edges));
        let faults: BTreeSet<&Fault> = edges.filter_map(|(.., fault)| fault.as_ref()).collect();
        faults.into_iter().collect()
    }

    /// The faults that are on all paths of a probe: without each of them there is none.
    fn on_all(&self, from: usize, to: usize) -> BTreeSet<&Fault> {
        let (edges, start, goal) = self.edges(from, to);
        let faults: BTreeSet<&Fault> = edges.iter().filter_map(|(.., fault)| fault.as_ref()).collect();
        let is_on_all = |fault: &&Fault| {
            let left: Vec<&Edge> =
                edges.iter().copied().filter(|(.., other)| other.as_ref() != Some(*fault)).collect();
            path(&left, start, goal, 0).is_none()
        };
        faults.into_iter().filter(is_on_all).collect()
    }

    /// The faults that are on some path of a probe, by listing all paths.
    fn on_any(&self, from: usize, to: usize) -> BTreeSet<&Fault> {
        let (edges, start, goal) = self.edges(from, to);
        let (mut found, mut way) = (BTreeSet::new(), vec![]);
        list(&edges, &mut vec![start], goal, &mut way, &mut found);
        found
    }
}

/// A simple path, as `seed` has it.
fn path<'a>(edges: &[&'a Edge], start: &'a str, goal: &str, seed: u64) -> Option<Vec<&'a Fault>> {
    let (mut seen, mut way) = (BTreeSet::from([start]), vec![(start, None)]);
    let mut state = seed;
    loop {
        let (here, _) = *way.last()?;
        if here == goal {
            return Some(way.into_iter().filter_map(|(_, fault): (_, Option<&Fault>)| fault).collect());
        }
        let next = edges.iter().filter_map(|(a, b, fault)| {
            let to = if a == here {
                b
            } else if b == here {
                a
            } else {
                return None;
            };
            (!seen.contains(&**to)).then_some((&**to, fault.as_ref()))
        });
        let next: Vec<_> = next.collect();
        if next.is_empty() {
            way.pop();
            continue;
        }
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let index = usize::try_from(state >> 33).expect("31 bits") % next.len();
        seen.insert(next[index].0);
        way.push(next[index]);
    }
}

fn list<'a>(
    edges: &[&'a Edge],
    seen: &mut Vec<&'a str>,
    goal: &str,
    way: &mut Vec<Option<&'a Fault>>,
    found: &mut BTreeSet<&'a Fault>,
) {
    let here = *seen.last().expect("a vertex");
    if here == goal {
        found.extend(way.iter().flatten());
        return;
    }
    for (a, b, fault) in edges {
        let to = if a == here {
            b
        } else if b == here {
            a
        } else {
            continue;
        };
        if !seen.contains(&&**to) {
            seen.push(to);
            way.push(fault.as_ref());
            list(edges, seen, goal, way, found);
            seen.pop();
            way.pop();
        }
    }
}

/// Carries the probes out: what they ask, which end that is, and the faults on the path of each.
fn carried_out<'a>(random: &Random, model: &'a Model) -> Vec<(Probe, usize, usize, Vec<&'a Fault>)> {
    let faults = model.faults();
    let broken: BTreeSet<&Fault> = random.broken.iter().map(|number| faults[number % faults.len()]).collect();
    let carried_out = random.probes.iter().filter_map(|(from, to, seed)| {
        let (from, to) = (from % model.nodes, to % model.ends.len());
        let (edges, start, goal) = model.edges(from, to);
        let path = path(&edges, start, goal, *seed).filter(|_| from != to)?;
        let met: Vec<&Fault> = path.into_iter().filter(|fault| broken.contains(fault)).collect();
        let name = format!("node{from}");
        let probe = Probe { from: (*name).into(), to: model.ends[to].0.clone(), passed: met.is_empty() };
        Some((probe, from, to, met))
    });
    carried_out.collect()
}

/// True if an explanation has one of these faults, or the end of the probe, which stands for the way to it.
fn has(suspicion: &Suspicion, met: &[&Fault], probe: &Probe) -> bool {
    let is_placeless = |fault: &Fault| match (fault, &probe.to) {
        (Fault::Gateway(label), ProbeEnd::Gateway(gateway)) => {
            *label == gateway.label && gateway.ports.is_empty() && gateway.devices.is_empty()
        }
        _ => false,
    };
    suspicion.faults.iter().any(|fault| met.contains(&fault) || is_placeless(fault))
}

proptest! {
    /// What is broken is named, and nothing that a probe has cleared.
    #[test]
    fn broken_edges_are_named(random in random(12, 24, 0..=2)) {
        let model = random.model();
        let done = carried_out(&random, &model);
        let probes: Vec<Probe> = done.iter().map(|(probe, ..)| probe.clone()).collect();
        let found = locate(&model.topology, &model.ports, &probes);
        let lost: Vec<_> = done.iter().filter(|(probe, ..)| !probe.passed).collect();
        prop_assert_eq!(found.is_empty(), lost.is_empty());
        for (probe, .., met) in &lost {
            prop_assert!(found.iter().any(|suspicion| has(suspicion, met, probe)), "{:?}: {:?}", probe, found);
        }
        let cleared: BTreeSet<&Fault> = done.iter().filter(|(probe, ..)| probe.passed)
            .flat_map(|(_, from, to, _)| model.on_all(*from, *to)).collect();
        for suspicion in &found {
            prop_assert!(suspicion.alone.is_subset(&suspicion.faults) && !suspicion.faults.is_empty());
            prop_assert!(suspicion.faults.iter().all(|fault| !cleared.contains(fault)), "{:?}", suspicion);
            prop_assert!(suspicion.to_string().len() < 320 && suspicion.lost > 0);
        }
        // One fault, which no path of what fails avoids.
        let broken: BTreeSet<&Fault> = lost.iter().flat_map(|(.., met)| met.iter().copied()).collect();
        let is_on_all = |fault: &Fault| lost.iter().all(|(_, from, to, _)| model.on_all(*from, *to).contains(fault));
        if random.broken.len() == 1 && broken.iter().all(|fault| is_on_all(fault)) && !lost.is_empty() {
            prop_assert_eq!(found.len(), 1, "{:?}", found);
            let (probe, .., met) = lost[0];
            prop_assert!(has(&found[0], met, probe));
            prop_assert!(found[0].alone.contains(met[0]) || !found[0].faults.contains(met[0]), "{:?}", found);
            prop_assert_eq!(found[0].lost, lost.len());
        }
    }

    /// Exactly what may explain a probe is named: what is on any of its paths, and not on all of one that passes.
    #[test]
    fn nothing_else_is_named(random in random(5, 7, 0..=3)) {
        let mut random = random;
        random.gateways.retain(|(place, _)| !matches!(place, Place::Anywhere));
        let model = random.model();
        let done = carried_out(&random, &model);
        let probes: Vec<Probe> = done.iter().map(|(probe, ..)| probe.clone()).collect();
        let found = locate(&model.topology, &model.ports, &probes);
        let cleared: BTreeSet<&Fault> = done.iter().filter(|(probe, ..)| probe.passed)
            .flat_map(|(_, from, to, _)| model.on_all(*from, *to)).collect();
        let lost = done.iter().filter(|(probe, ..)| !probe.passed);
        let candidates: Vec<BTreeSet<Fault>> = lost.map(|(_, from, to, _)| {
            model.on_any(*from, *to).difference(&cleared).map(|fault| (*fault).clone()).collect()
        }).collect();
        for suspects in &candidates {
            prop_assert!(found.iter().any(|suspicion| {
                suspects.is_subset(&suspicion.faults)
                    || suspicion.faults.len() == 1 && suspicion.faults.is_subset(suspects)
            }), "{:?}: {:?}", suspects, found);
        }
        for suspicion in &found {
            let mut explained = candidates.iter().filter(|suspects| !suspects.is_disjoint(&suspicion.faults));
            prop_assert!(explained.clone().count() >= suspicion.lost);
            prop_assert!(suspicion.faults.iter().all(|fault| explained.clone().any(|set| set.contains(fault))));
            for fault in &suspicion.alone {
                let explains = candidates.iter().filter(|set| set.contains(fault)).count();
                prop_assert!(explains >= suspicion.lost, "{:?}", suspicion);
            }
            // Nothing is left out that explains all alone.
            if let Some(first) = explained.next().cloned() {
                let all = explained.fold(first, |all, set| &all & set);
                prop_assert!(all.is_subset(&suspicion.alone), "{:?}: {:?}", all, suspicion);
            }
        }
    }
}
