//! Pod bridges.

use eno_schemas::HostNetwork;

use crate::host::common::{Net, desired};

fn bridge(addresses: &[&str], mtu: Option<u32>) -> HostNetwork {
    let addresses = addresses.iter().map(|text| text.parse().unwrap()).collect();
    HostNetwork::PodBridge { addresses, mtu }
}

#[test]
#[ignore = "needs root: network namespaces"]
fn pods_reach_bridge_addresses_without_changes_to_main_table() {
    let (node, pod) = (Net::new(), Net::new());
    let (restorable_state, main) = (node.restorable_state(), node.foreign_state());
    let wanted = desired([("pods", bridge(&["10.66.0.1/24", "fd66::1/64"], Some(1400)))]);
    let (applied, writes) = node.reconcile(&wanted);
    assert!(applied.refused.is_empty(), "{:?}", applied.refused);
    assert_eq!(applied.networks["pods"].mtu, Some(1400));
    assert!(writes > 0);
    assert_eq!(node.foreign_state(), main, "the main table was changed");

    node.nic("hpod", &pod, "eth1");
    node.ip("link set hpod master pods up");
    pod.ip("link set eth1 up");
    pod.ip("address add 10.66.0.7/24 dev eth1");
    pod.ip("-6 address add fd66::7/64 dev eth1 nodad");
    pod.run("ping", &["-c", "1", "-W", "5", "10.66.0.1"]).unwrap();
    pod.run("ping", &["-c", "1", "-W", "5", "fd66::1"]).unwrap();

    let (again, writes) = node.reconcile(&wanted);
    assert_eq!(writes, 0, "{:?}", again.changed);
    assert_eq!(again.networks, applied.networks);
    node.ip("link del hpod");
    let (_, writes) = node.reconcile(&desired([]));
    assert!(writes > 0);
    assert_eq!(node.restorable_state(), restorable_state, "something is left over");
}
