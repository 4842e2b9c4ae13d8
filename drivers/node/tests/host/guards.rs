//! Interfaces that the node itself uses are left alone.

use eno_driver_node::host::plan::ItemRef;
use eno_schemas::{HostNetwork, Uplink};

use crate::host::common::{Net, desired};

fn ovs(nic: &str) -> HostNetwork {
    let uplink = Uplink { interfaces: vec![nic.to_owned()], mtu: Some(2000) };
    HostNetwork::Ovs { datapath: None, uplink: Some(uplink), patch: None, vlans: "1".parse().unwrap() }
}

#[test]
#[ignore = "needs root: network namespaces"]
fn refused_networks_change_nothing() {
    let (node, rest) = (Net::new(), Net::new());
    for name in ["eth0", "eth1", "eth2", "eth3", "cali1"] {
        node.nic(name, &rest, &format!("p-{name}"));
        node.ip(&format!("link set {name} up"));
    }
    node.ip("address add 192.0.2.1/24 dev eth0");
    node.ip("route add default via 192.0.2.254 dev eth0");
    node.ip("route add 203.0.113.0/24 dev eth1");
    // Pods of another node, and a block of addresses for pods of this one.
    node.ip("route add 10.244.2.0/24 via 192.0.2.2");
    node.ip("route add blackhole 10.244.9.0/24");
    node.ip("link add br9 type bridge");
    node.ip("link set eth2 master br9");
    let before = node.restorable_state();
    let words = [
        ("eth0", "the default route"),
        ("eth1", "the route to 203.0.113.0/24"),
        ("eth2", "a member of br9"),
        ("cali1", "the cluster's own network"),
        ("br9", "is a bridge"),
        ("eth9", "has no interface eth9"),
        ("an-overly-long-name", "15"),
        ("lo", "loopback"),
    ];
    for (nic, words) in words {
        let (applied, writes) = node.reconcile(&desired([("ovs0", ovs(nic))]));
        assert_eq!(writes, 0, "{nic} was touched");
        let reason = applied.refused[&ItemRef::Network("ovs0".into())].to_string();
        assert!(reason.contains(words) && reason.contains(nic), "{reason}");
        assert!(applied.networks.is_empty());
    }
    // Foreign interface names and addresses in use are refused.
    let pods =
        |address: &str| HostNetwork::PodBridge { addresses: vec![address.parse().unwrap()], mtu: None };
    for (name, address, words) in [
        ("br9", "10.9.0.1/24", "did not make"),
        ("pods", "192.0.2.1/32", "that of eth0"),
        ("pods", "192.0.2.77/25", "which the node reaches on eth0"),
        ("pods", "10.244.2.2/31", "within 10.244.2.0/24"),
        ("pods", "10.244.9.1/24", "within 10.244.9.0/24"),
        ("pods", "169.254.169.254/31", "link-local"),
        ("pods", "224.0.0.1/4", "multicast"),
        ("a/b", "10.9.0.1/24", "the name of an interface"),
        ("docker0", "10.9.0.1/24", "the node's own interfaces"),
        ("eth9", "10.9.0.1/24", "the node's own interfaces"),
    ] {
        let (applied, writes) = node.reconcile(&desired([(name, pods(address))]));
        assert_eq!(writes, 0, "{name}");
        let reason = applied.refused[&ItemRef::Network(name.into())].to_string();
        assert!(reason.contains(words), "{reason}");
    }
    // Other networks are realised all the same, and a NIC belongs to one network only.
    let wanted = desired([("ovs0", ovs("eth0")), ("ovs1", ovs("eth3")), ("ovs2", ovs("eth3"))]);
    let (applied, writes) = node.reconcile(&wanted);
    assert!(writes > 0);
    assert_eq!(applied.networks.keys().collect::<Vec<_>>(), ["ovs1"]);
    assert!(applied.refused[&ItemRef::Network("ovs2".into())].to_string().contains("by the network ovs1"));
    node.reconcile(&desired([]));
    assert_eq!(node.restorable_state(), before);
}

#[test]
#[ignore = "needs root: network namespaces"]
fn network_refused_later_keeps_its_nic_settings() {
    let (node, rest) = (Net::new(), Net::new());
    node.nic("eth1", &rest, "p-eth1");
    let wanted = desired([("ovs0", ovs("eth1"))]);
    node.reconcile(&wanted);
    node.ip("address add 192.0.2.1/24 dev eth1");
    let before = node.restorable_state();
    let (applied, writes) = node.reconcile(&wanted);
    assert_eq!(writes, 0);
    assert!(applied.refused[&ItemRef::Network("ovs0".into())].retryable());
    assert_eq!(node.restorable_state(), before);
    assert!(node.ip("link show eth1").contains("mtu 2000"));
}
