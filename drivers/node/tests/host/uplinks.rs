//! Uplinks: VLAN-filtering bridges, bonds, VLAN subinterfaces. Most tests need interface kinds that small kernels lack.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use eno_schemas::{HostNetwork, NodeDesired, Uplink};

use crate::host::common::{Net, desired, kernel_lacks};

fn uplink(nics: &[&str], mtu: Option<u32>) -> Uplink {
    Uplink { interfaces: nics.iter().map(|nic| (*nic).to_owned()).collect(), mtu }
}

fn bridge(nics: &[&str], vlans: &str, mtu: Option<u32>) -> HostNetwork {
    HostNetwork::Bridge { uplink: Some(uplink(nics, None)), vlans: vlans.parse().unwrap(), mtu }
}

fn master(bond: &[&str], vlans: &str, mtu: Option<u32>) -> HostNetwork {
    let bond = bond.iter().map(|nic| (*nic).to_owned()).collect();
    HostNetwork::Master { bond, vlans: vlans.parse().unwrap(), mtu }
}

/// A node with three NICs (`eth1` up, `eth2` down, `eth3` up with an MTU of 4000), and the namespace of their peers.
fn node() -> (Net, Net) {
    let (node, fabric) = (Net::new(), Net::new());
    for number in 1..=3 {
        node.nic(&format!("eth{number}"), &fabric, &format!("port{number}"));
        fabric.ip(&format!("link set port{number} up mtu 9000"));
    }
    node.ip("link set eth1 up");
    node.ip("link set eth3 up mtu 4000");
    // Link-local addresses and their routes appear with a delay.
    let deadline = Instant::now() + Duration::from_secs(10);
    let has_link_local =
        |nic: &&str| node.ip(&format!("-6 route show table main dev {nic}")).contains("fe80");
    while !["eth1", "eth3"].iter().all(has_link_local) {
        assert!(Instant::now() < deadline, "no link-local addresses");
    }
    (node, fabric)
}

/// The VLANs of a bridge's port, and whether all of them are tagged.
fn vlans(node: &Net, port: &str) -> (BTreeSet<u16>, bool) {
    let text = node.run("bridge", &["vlan", "show", "dev", port]).expect("bridge");
    let mut found = BTreeSet::new();
    for word in text.split_whitespace() {
        match word.split_once('-') {
            Some((first, last)) => {
                if let (Ok(first), Ok(last)) = (first.parse(), last.parse::<u16>()) {
                    found.extend(first..=last);
                }
            }
            None => found.extend(word.parse::<u16>()),
        }
    }
    (found, !text.contains("PVID") && !text.contains("ntagged"))
}

/// Reconciles twice: nothing is refused, and the second time nothing is written.
#[track_caller]
fn reconcile_twice(node: &Net, wanted: &NodeDesired) -> eno_driver_node::host::HostApplied {
    let (applied, _) = node.reconcile(wanted);
    assert!(applied.refused.is_empty(), "{:?}", applied.refused);
    let (again, writes) = node.reconcile(wanted);
    assert_eq!(writes, 0, "written without need: {:?}", again.changed);
    assert_eq!(again.networks, applied.networks);
    applied
}

#[test]
#[ignore = "needs root: network namespaces"]
fn bridge_carries_exactly_its_vlans() {
    if kernel_lacks(&["filtering"]) {
        return;
    }
    let (node, _fabric) = node();
    let (before, main) = (node.restorable_state(), node.foreign_state());
    let wanted = desired([("brdata", bridge(&["eth1"], "10-12,20", Some(1600)))]);
    let applied = reconcile_twice(&node, &wanted);
    assert_eq!(applied.networks["brdata"].vlans.to_string(), "10-12,20");
    assert_eq!(applied.networks["brdata"].mtu, Some(1600));
    assert_eq!(vlans(&node, "eth1"), (BTreeSet::from([10, 11, 12, 20]), true));
    assert_eq!(vlans(&node, "brdata").0, BTreeSet::new());
    assert_eq!(node.foreign_state(), main);

    // Drift: one VLAN added, one deleted, one untagged.
    node.run("bridge", &["vlan", "add", "dev", "eth1", "vid", "30"]).unwrap();
    node.run("bridge", &["vlan", "del", "dev", "eth1", "vid", "11"]).unwrap();
    node.run("bridge", &["vlan", "add", "dev", "eth1", "vid", "12", "pvid", "untagged"]).unwrap();
    reconcile_twice(&node, &wanted);
    assert_eq!(vlans(&node, "eth1"), (BTreeSet::from([10, 11, 12, 20]), true));

    // Without VLANs the bridge carries none, rather than all.
    let closed = reconcile_twice(&node, &desired([("brdata", bridge(&["eth1"], "", None))]));
    assert!(closed.networks["brdata"].vlans.is_empty());
    assert_eq!(vlans(&node, "eth1").0, BTreeSet::new());
    assert!(node.ip("-d link show brdata").contains("vlan_filtering 1"));

    // Another NIC: the first one is restored.
    reconcile_twice(&node, &desired([("brdata", bridge(&["eth3"], "10", None))]));
    assert_eq!(vlans(&node, "eth3").0, BTreeSet::from([10]));
    assert!(!node.ip("link show eth1").contains("master"));
    reconcile_twice(&node, &desired([]));
    assert_eq!(node.restorable_state(), before, "something is left over");
}

#[test]
#[ignore = "needs root: network namespaces"]
fn bridge_carries_all_4094_vlans() {
    if kernel_lacks(&["filtering"]) {
        return;
    }
    let (node, _fabric) = node();
    for set in ["1-4094", "2,4,6,8,10,100-200,1000-4000"] {
        let applied = reconcile_twice(&node, &desired([("br0", bridge(&["eth1"], set, None))]));
        assert_eq!(applied.networks["br0"].vlans.to_string(), set);
    }
    let odd: eno_schemas::VlanSet =
        (1..4094).step_by(2).map(|vid| eno_schemas::VlanId::new(vid).unwrap()).collect();
    let network =
        HostNetwork::Bridge { uplink: Some(uplink(&["eth1"], None)), vlans: odd.clone(), mtu: None };
    assert_eq!(reconcile_twice(&node, &desired([("br0", network)])).networks["br0"].vlans, odd);
}

#[test]
#[ignore = "needs root: network namespaces"]
fn several_nics_form_an_active_backup_bond() {
    if kernel_lacks(&["filtering", "bond"]) {
        return;
    }
    let (node, _fabric) = node();
    let before = node.restorable_state();
    let wanted = desired([("br0", bridge(&["eth1", "eth2", "eth3"], "7", None))]);
    let bond = Uplink::bond_name("br0");
    let applied = reconcile_twice(&node, &wanted);
    assert_eq!(applied.networks["br0"].vlans.to_string(), "7");
    assert_eq!(vlans(&node, &bond), (BTreeSet::from([7]), true));
    let shown = node.ip(&format!("-d link show {bond}"));
    assert!(shown.contains("active-backup") && shown.contains("miimon 100"), "{shown}");
    assert!(shown.contains("mtu 4000"), "a member has less than it had: {shown}");
    for nic in ["eth1", "eth2", "eth3"] {
        assert!(node.ip(&format!("link show {nic}")).contains(&format!("master {bond}")));
    }
    // One NIC less, then none.
    reconcile_twice(&node, &desired([("br0", bridge(&["eth1", "eth2"], "7", None))]));
    assert!(!node.ip("link show eth3").contains("master"));
    reconcile_twice(&node, &desired([]));
    assert_eq!(node.restorable_state(), before, "something is left over");
}

#[test]
#[ignore = "needs root: network namespaces"]
fn masters_get_vlan_subinterfaces_on_nic_and_bond() {
    if kernel_lacks(&["vlan", "bond"]) {
        return;
    }
    let (node, fabric) = node();
    let before = node.restorable_state();
    let wanted = desired([
        ("bond7", master(&["eth2", "eth3"], "5", None)),
        ("eth1", master(&[], "100,200", Some(1800))),
    ]);
    let applied = reconcile_twice(&node, &wanted);
    assert_eq!(applied.networks["eth1"].vlans.to_string(), "100,200");
    assert_eq!(applied.networks["eth1"].mtu, Some(1800));
    assert_eq!(applied.networks["bond7"].vlans.to_string(), "5");
    for name in ["eth1.100", "eth1.200"] {
        assert!(node.ip(&format!("link show {name}")).contains("mtu 1800"));
    }
    // A tagged packet gets through.
    fabric.ip("link add link port1 name port1.100 type vlan id 100");
    fabric.ip("link set port1.100 up");
    fabric.ip("address add 192.0.2.2/24 dev port1.100");
    let pod = Net::new();
    node.ip("link add link eth1.100 name mv0 type macvlan mode bridge");
    node.ip(&format!("link set mv0 netns /proc/{}/fd/{}", std::process::id(), pod.0.fd()));
    pod.ip("link set mv0 up");
    pod.ip("address add 192.0.2.1/24 dev mv0");
    pod.run("ping", &["-c", "1", "-W", "10", "192.0.2.2"]).unwrap();
    drop(pod);

    let less = reconcile_twice(&node, &desired([("eth1", master(&[], "200", None))]));
    assert_eq!(less.networks["eth1"].vlans.to_string(), "200");
    assert!(!node.ip_works("link show eth1.100"));
    assert!(node.ip("link show eth1").contains("mtu 1500"), "the MTU of before is not back");
    reconcile_twice(&node, &desired([]));
    assert_eq!(node.restorable_state(), before, "something is left over");
}

#[test]
#[ignore = "needs root: network namespaces"]
fn ovs_uplink_nics_are_prepared_and_restored() {
    let (node, _fabric) = node();
    let before = node.restorable_state();
    let ovs = |mtu| HostNetwork::Ovs {
        datapath: None,
        uplink: Some(uplink(&["eth2", "eth3"], mtu)),
        patch: None,
        vlans: "1-5".parse().unwrap(),
    };
    let applied = reconcile_twice(&node, &desired([("ovs0", ovs(Some(2000)))]));
    assert_eq!(applied.networks["ovs0"].mtu, Some(2000));
    assert!(node.ip("link show eth2").contains("mtu 2000"));
    assert!(node.ip("link show eth3").contains("mtu 4000"), "it has less than it had");
    reconcile_twice(&node, &desired([("ovs0", ovs(Some(1600)))]));
    assert!(node.ip("link show eth2").contains("mtu 1600"));
    reconcile_twice(&node, &desired([]));
    assert_eq!(node.restorable_state(), before, "something is left over");
}

/// The agent is killed before each change and started again. It reaches the same state, and leaves nothing behind once
/// all networks are deleted.
#[track_caller]
pub fn assert_converges_after_kills(wanted: &NodeDesired, other: &NodeDesired) {
    let (node, _fabric) = node();
    let before = node.restorable_state();
    let (reference, most) = node.reconcile(wanted);
    assert!(reference.refused.is_empty(), "{:?}", reference.refused);
    assert!(most > 0);
    node.reconcile(&desired([]));
    assert_eq!(node.restorable_state(), before);
    for life in 0..most {
        let (ended, _) = node.reconcile_until_killed(wanted, life);
        assert!(ended.is_none(), "it was to be killed at change {life}");
        let (again, _) = node.reconcile(wanted);
        assert_eq!((again.networks, again.refused), (reference.networks.clone(), reference.refused.clone()));
        // Killed on the way to another desired state, and to an empty one.
        node.reconcile_until_killed(other, life);
        node.reconcile_until_killed(&desired([]), life);
        node.reconcile(&desired([]));
        assert_eq!(node.restorable_state(), before, "killed at change {life}");
    }
}

#[test]
#[ignore = "needs root: network namespaces"]
fn pod_bridge_and_ovs_converge_after_kill_at_any_change() {
    let addresses = vec!["10.66.0.1/24".parse().unwrap(), "fd66::1/64".parse().unwrap()];
    let ovs = HostNetwork::Ovs {
        datapath: None,
        uplink: Some(uplink(&["eth2"], Some(2000))),
        patch: None,
        vlans: "1-5".parse().unwrap(),
    };
    let wanted = desired([("pods", HostNetwork::PodBridge { addresses, mtu: Some(1400) }), ("ovs0", ovs)]);
    let other = desired([
        ("pods", HostNetwork::PodBridge { addresses: vec!["10.67.0.1/16".parse().unwrap()], mtu: None }),
        ("eth2", master(&[], "", Some(3000))),
    ]);
    assert_converges_after_kills(&wanted, &other);
}

#[test]
#[ignore = "needs root: network namespaces"]
fn bonds_and_vlans_converge_after_kill_at_any_change() {
    if kernel_lacks(&["filtering", "vlan", "bond"]) {
        return;
    }
    let wanted = desired([
        ("br0", bridge(&["eth1", "eth2"], "10-20", Some(1600))),
        ("eth3", master(&[], "7,8", Some(5000))),
    ]);
    let other =
        desired([("br0", bridge(&["eth3"], "10", None)), ("bond1", master(&["eth1", "eth2"], "9", None))]);
    assert_converges_after_kills(&wanted, &other);
}
