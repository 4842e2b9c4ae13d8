//! Situations as tables.

use super::*;

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
