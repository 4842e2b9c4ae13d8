//! Probes on real nodes: packets tell whether an attachment works, and what is broken where they don't pass.

use std::collections::{BTreeMap, BTreeSet};

use eno_lab::sandbox::ProcessOverrides;
use eno_nbi_crds::{Condition, ConnectionPoint, EnoResource, L2Service, L2ServiceAttachment, Phase};
use eno_tests::{
    System, attachment, connection_point, nodes, object, poll, service, subnet, unchecked_namespace, until,
    with_own_sandbox,
};
use serde_json::json;

use crate::nodes::gateway::{routed_mac, vrf, vrf_attachment};
use crate::nodes::probe_faults;

/// Name of the namespace and of the ConnectionPoint that reports, and the beginning of other names.
pub const NAME: &str = "probes";
/// The ConnectionPoint whose attachments wait for probes, and that without probes.
const GATE: &str = "probes-gate";
const UNASKED: &str = "probes-none";
const NODES: [&str; 3] = ["node1", "node2", "node3"];
const GATEWAY: &str = "10.7.0.254";
/// An address that nobody has.
const NOBODY: &str = "10.7.0.77";

/// A network, which is the same but for its VLAN, at a ConnectionPoint. Its hosts use this gateway.
pub fn network(name: &str, vid: u16, point: &str, gateway: Option<&str>) -> String {
    let full = format!("{NAME}-{name}");
    let routes = gateway.map(|_| format!("Routes: [{full}]")).unwrap_or_default();
    let route = gateway.map(|gateway| {
        let spec = format!("Prefix: 198.51.100.0, Mask: 24, NextHop: {gateway}");
        object("Route", &format!("name: {full}"), &spec)
    });
    route.unwrap_or_default()
        + &subnet(&full, "10.7.0.0", &routes)
        + &service(&full, vid, &format!("Subnets: [{full}], PhysicalNW: [dc-gw]"))
        + &attachment(NAME, name, point, &full, "VlanType: access")
}

/// A network whose gateway is in a VRF.
fn routed_network(name: &str, vid: u16) -> String {
    let full = format!("{NAME}-{name}");
    network(name, vid, NAME, Some(GATEWAY))
        + &vrf(&full, vid)
        + &vrf_attachment(&full, &format!("{GATEWAY}/24"), "")
}

/// A condition of an object.
pub fn condition<'a, K: EnoResource>(object: &'a K, name: &str) -> Option<&'a Condition> {
    object.status()?.conditions.iter().find(|condition| condition.type_ == name)
}

/// Whether an object's condition Verified has this status, and a message with these texts.
fn is_verified(object: &impl EnoResource, status: &str, texts: &[&str]) -> bool {
    condition(object, "Verified").is_some_and(|verified| {
        verified.status == status && texts.iter().all(|text| verified.message.contains(text))
    })
}

/// Waits until the attachment and the service of a network are verified, or are not, with these texts in the messages.
pub async fn both(system: &System, name: &str, status: &str, texts: &[&str]) -> L2ServiceAttachment {
    let what = format!("Verified={status} with {texts:?}");
    let service = format!("{NAME}-{name}");
    system.until_one::<L2Service>(&service, &what, |object| is_verified(object, status, texts)).await;
    of_attachment(system, name, status, texts).await
}

/// Waits until the attachment of a network is verified, or is not.
async fn of_attachment(system: &System, name: &str, status: &str, texts: &[&str]) -> L2ServiceAttachment {
    let what = format!("Verified={status} with {texts:?}");
    system.until_one(&format!("{NAME}/{name}"), &what, |object| is_verified(object, status, texts)).await
}

/// Panics unless an attachment is ready and degraded, because its packets don't pass.
pub fn assert_degraded(object: &L2ServiceAttachment) {
    assert_eq!(object.status.as_ref().and_then(|status| status.phase), Some(Phase::Ready), "{object:?}");
    let degraded = condition(object, "Degraded").unwrap_or_else(|| panic!("{object:?}"));
    assert_eq!(degraded.status, "True", "{object:?}");
}

/// Makes a port of a switch drop frames of a VLAN, or all frames.
async fn drop_frames(system: &System, (switch, port): (&str, &str), vlan: Option<u16>) {
    system.fault(switch, json!({ "kind": "drop-frames", "port": port, "vlan": vlan })).await;
}

/// Packets pass from node to node and to the gateway, which is named.
async fn passing_network_is_verified(system: &System) {
    system.apply(&routed_network("good", 300)).await;
    let mac = routed_mac(system, &format!("{NAME}-good"), 300).await;
    both(system, "good", "True", &[GATEWAY, &mac]).await;
}

/// A leaf shows a VLAN and does not forward it: its port is named, and once it forwards, all is well.
async fn dropped_vlan_is_found(system: &System) {
    drop_frames(system, ("leaf1", "Ethernet1"), Some(301)).await;
    system.apply(&network("dropped", 301, NAME, None)).await;
    let found = both(system, "dropped", "False", &["leaf1 Ethernet1 to node1 eth1"]).await;
    assert_degraded(&found);
    assert!(system.view("leaf1").await.ports["Ethernet1"].vlans.contains(301));
    system.clear_faults("leaf1").await;
    let healed = both(system, "dropped", "True", &[]).await;
    assert!(condition(&healed, "Degraded").is_none_or(|degraded| degraded.status == "False"), "{healed:?}");
}

/// Nobody answers for the address of a gateway.
async fn silent_gateway_is_named(system: &System) {
    system.apply(&network("silent", 302, NAME, Some(NOBODY))).await;
    assert_degraded(&both(system, "silent", "False", &[NOBODY]).await);
}

/// A host behind the fabric has the address of the gateway, too.
async fn address_that_answers_twice_is_found(system: &System) {
    let host = [
        "ovs-vsctl add-br gw -- set bridge gw datapath_type=netdev -- add-port gw eth1 \
         -- add-port gw other tag=303 -- set interface other type=internal",
        &format!("ip address add {GATEWAY}/24 dev other"),
        "ip link set other up",
    ];
    for command in host {
        system.on_machine("dc-gw", command).await;
    }
    system.apply(&routed_network("twice", 303)).await;
    let found = both(system, "twice", "False", &[GATEWAY]).await;
    let verified = condition(&found, "Verified").expect("the condition");
    assert_eq!(verified.reason, "DuplicateAddress", "{verified:?}");
    assert_degraded(&found);
    system.on_machine("dc-gw", "ip link set other down").await;
    both(system, "twice", "True", &[]).await;
}

/// An attachment becomes ready only once its packets pass. It stays so.
async fn attachment_waits_at_a_gate(system: &System) {
    drop_frames(system, ("leaf2", "Ethernet1"), Some(304)).await;
    system.apply(&network("gated", 304, GATE, None)).await;
    let waiting = of_attachment(system, "gated", "False", &["leaf2 Ethernet1 to node3 eth1"]).await;
    assert_eq!(waiting.status.as_ref().and_then(|status| status.phase), Some(Phase::Pending), "{waiting:?}");
    system.clear_faults("leaf2").await;
    system.becomes::<L2ServiceAttachment>(&format!("{NAME}/gated"), Phase::Ready).await;
    of_attachment(system, "gated", "True", &[]).await;
}

/// Nothing is asked where probes are switched off.
async fn point_without_probes_has_no_verdict(system: &System) {
    let own = network("none", 305, UNASKED, Some(NOBODY));
    let ready = system.apply_until_ready::<L2ServiceAttachment>(&own, &format!("{NAME}/none")).await;
    assert_eq!(condition(&ready, "Verified"), None);
}

/// A NIC of a node neither sends nor receives, with the carrier up.
async fn dead_nic_is_named(system: &System) {
    drop_frames(system, ("leaf1", "Ethernet2"), None).await;
    system.apply(&network("dead", 306, NAME, None)).await;
    assert_degraded(&both(system, "dead", "False", &["leaf1 Ethernet2 to node2 eth1"]).await);
    system.clear_faults("leaf1").await;
    both(system, "dead", "True", &[]).await;
}

/// Agents that don't run make no verdict False, and say nothing of the fabric. After their start they find what broke
/// meanwhile. What was ready stays ready.
async fn stopped_agents_make_no_verdict(system: &System) {
    let agent = |node: &str| format!("{node}-agent");
    for node in NODES {
        system.sandbox.stop_child(&agent(node)).await.expect("an agent to stop");
    }
    both(system, "good", "Unknown", &[]).await;
    drop_frames(system, ("leaf2", "Ethernet1"), Some(304)).await;
    // The agent of node2 has nobody whom it may ask.
    system.sandbox.start_child("node2-agent").await.expect("the agent again");
    both(system, "dropped", "Unknown", &["node3"]).await;
    for node in ["node1", "node3"] {
        system.sandbox.start_child(&agent(node)).await.expect("the agent again");
    }
    assert_degraded(&of_attachment(system, "gated", "False", &["leaf2 Ethernet1 to node3 eth1"]).await);
    both(system, "good", "True", &[]).await;
    both(system, "dropped", "True", &[]).await;
    system.clear_faults("leaf2").await;
}

/// The interfaces of a node, and the interfaces and ports in its Open vSwitch.
async fn parts(system: &System, node: &str) -> BTreeSet<String> {
    let links = system.on_node(node, &["ip", "-br", "link"]).await;
    let names = |table| ["ovs-vsctl", "--bare", "--columns=name", "list", table];
    let mut rows = system.on_node(node, &names("Port")).await;
    rows += &system.on_node(node, &names("Interface")).await;
    let links = links.lines().filter_map(|line| line.split_whitespace().next());
    let links = links.map(|name| name.split('@').next().unwrap_or_default());
    links.chain(rows.split_whitespace()).map(str::to_owned).collect()
}

/// The parts of all nodes.
async fn all_parts(system: &System) -> BTreeMap<&'static str, BTreeSet<String>> {
    let mut all = BTreeMap::new();
    for node in NODES {
        all.insert(node, parts(system, node).await);
    }
    all
}

/// An engine with `--verify=false` takes all verdicts and all parts of probes away.
async fn switched_off_probes_leave_nothing(system: &System) {
    let before = all_parts(system).await;
    system.sandbox.stop_child("engine").await.expect("an engine to stop");
    let overrides =
        ProcessOverrides { arguments: vec!["--verify=false".into()], ..ProcessOverrides::default() };
    system.sandbox.add_with(eno_parts::ENGINE, "engine-2", overrides).await.expect("another engine");
    for name in ["good", "silent", "gated"] {
        let attachment = format!("{NAME}/{name}");
        let without = |object: &L2ServiceAttachment| condition(object, "Verified").is_none();
        let ready = system.until_one(&attachment, "no verdict", without).await;
        assert_eq!(ready.status.and_then(|status| status.phase), Some(Phase::Ready));
    }
    for node in NODES {
        let less = async || parts(system, node).await.len() < before[node].len();
        until(&format!("no probes on {node}"), less).await;
    }
}

#[test]
#[ignore = "needs root: real nodes"]
fn packets_tell_whether_attachments_work_and_what_is_broken() {
    with_own_sandbox(
        |options| nodes(options, NODES.len()),
        async |system| {
            let before = all_parts(system).await;
            let namespace = unchecked_namespace(NAME);
            system.apply(&namespace).await;
            let point = |name: &str, more: &str| {
                connection_point(name, "br-data", &format!("Interfaces: [eth1], {more}"))
            };
            let points = point(NAME, "Verify: {Interval: 30}")
                + &point(GATE, "Verify: {Mode: Gate, Interval: 30}")
                + &point(UNASKED, "Verify: {Mode: None}");
            system.apply_until_ready::<ConnectionPoint>(&points, NAME).await;
            tokio::join!(
                passing_network_is_verified(system),
                dropped_vlan_is_found(system),
                silent_gateway_is_named(system),
                address_that_answers_twice_is_found(system),
                attachment_waits_at_a_gate(system),
                point_without_probes_has_no_verdict(system),
                probe_faults::networks_are_verified(system),
            );
            tokio::join!(dead_nic_is_named(system), probe_faults::wrong_native_vlan_is_found(system),);
            probe_faults::swapped_cables_are_named(system).await;
            probe_faults::small_mtu_is_found(system).await;
            probe_faults::joined_vlans_are_found(system).await;
            probe_faults::vlan_taken_by_hand_is_found(system).await;
            stopped_agents_make_no_verdict(system).await;
            switched_off_probes_leave_nothing(system).await;

            let networks = [
                routed_network("good", 300),
                network("dropped", 301, NAME, None),
                network("silent", 302, NAME, Some(NOBODY)),
                routed_network("twice", 303),
                network("gated", 304, GATE, None),
                network("none", 305, UNASKED, Some(NOBODY)),
                network("dead", 306, NAME, None),
                probe_faults::networks(),
            ];
            system.delete(&networks.concat()).await;
            system.delete(&(points + &namespace)).await;
            let gone = poll(async || (all_parts(system).await == before).then_some(())).await;
            assert!(gone.is_some(), "{:?}, not {before:?}", all_parts(system).await);
        },
    );
}
