//! Addresses are announced: those that move are reachable at once.

use eno_driver_node::netlink::Namespace;
use eno_schemas::{HostNetwork, LinkKind, Master, PodLink, PortVlans, VlanId};

use crate::pods::common::*;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: makes network namespaces"]
async fn address_moved_to_another_pod_is_reachable_at_once() {
    let mut node = Node::new().await;
    let a = move_address(&mut node, |address| bridged("net1", address)).await;
    node.settle_links("a", vec![bridged("net6", "fd00:9::2/64")]).await;
    assert_eq!(sysctl(&a, "ipv6/conf/net6/ndisc_notify").await, "1");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: makes network namespaces"]
async fn address_moved_on_a_vlan_bridge_is_reachable_at_once() {
    if kernel_lacks(&["vlan"]).await {
        return;
    }
    let mut node = Node::new().await;
    node.add_vlan_bridge().await;
    let vlan = PortVlans::Access(VlanId::new(7).unwrap());
    move_address(&mut node, |address| port("net1", address, vlan.clone())).await;
}

/// Moves the address of a pod that ends to a new pod. A third pod, which is returned, has to reach both.
async fn move_address(node: &mut Node, link: impl Fn(&str) -> PodLink) -> Namespace {
    let a = node.run_pod("a", 101).await;
    let b = node.run_pod("b", 102).await;
    let c = node.run_pod("c", 103).await;
    node.want("a", vec![link("10.9.0.2/24")]);
    node.settle_links("b", vec![link("10.9.0.3/24")]).await;
    assert!(reaches(&a, &b, "10.9.0.3").await);
    node.desired.pods.remove("b");
    node.settle().await;
    node.settle_links("c", vec![link("10.9.0.3/24")]).await;
    // Its neighbour cache has the MAC address of the former pod, and would keep it for tens of seconds.
    assert!(reaches(&a, &c, "10.9.0.3").await);
    a
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: makes network namespaces"]
async fn address_moved_to_an_interface_that_is_up_is_reachable_at_once() {
    for (own, moving) in [("10.9.0", "10.9.0.9/24"), ("fd00:9:", "fd00:9::9/64")] {
        let mut node = Node::new().await;
        let length = moving.split_once('/').unwrap().1;
        let mut pods = Vec::new();
        for (at, uid) in ["a", "b", "c"].into_iter().enumerate() {
            pods.push(node.run_pod(uid, 101).await);
            let separator = if own.contains(':') { ":" } else { "." };
            node.want(uid, vec![bridged("net1", &format!("{own}{separator}{}/{length}", at + 1))]);
        }
        let more = |node: &mut Node, uid: &str| {
            let link = &mut node.desired.pods.get_mut(uid).unwrap().links[0];
            link.addresses.push(moving.parse().unwrap());
        };
        node.settle().await;
        more(&mut node, "b");
        node.settle().await;
        let ip = moving.parse::<ipnet::IpNet>().unwrap().addr();
        let target = std::net::SocketAddr::new(ip, 0).to_string();
        let target = target.trim_end_matches(":0");
        assert!(reaches(&pods[0], &pods[1], target).await, "{moving}");
        node.desired.pods.get_mut("b").unwrap().links[0].addresses.pop();
        node.settle().await;
        more(&mut node, "c");
        node.settle().await;
        // The neighbour cache of the first pod has the MAC address of the second, and would keep it for tens of
        // seconds.
        assert!(reaches(&pods[0], &pods[2], target).await, "{moving}");
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: makes network namespaces"]
async fn desired_arp_notify_overrides_announcements() {
    let (mut node, pod) = Node::with_pod().await;
    node.settle_links("a", vec![with_sysctl(bridged("net1", "10.9.0.2/24"), "ipv4/conf/arp_notify", "0")])
        .await;
    let link = node.first_link();
    link.addresses.push("10.9.0.3/24".parse().unwrap());
    node.settle().await;
    assert_eq!(sysctl(&pod, "ipv4/conf/net1/arp_notify").await, "0");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: makes network namespaces"]
async fn ovs_links_get_addresses_once_their_port_is_open() {
    let mut node = Node::new().await;
    let bridge = HostNetwork::Ovs { datapath: None, uplink: None, patch: None, vlans: trunk("7") };
    node.desired.networks.insert("br-ovs".to_owned(), bridge);
    let pod = node.run_pod("a", 101).await;
    let vlans = PortVlans::Access(VlanId::new(7).unwrap());
    let master = Master::Ovs { bridge: "br-ovs".to_owned(), vlans };
    let kind = LinkKind::Veth { master: Some(master) };
    let done = node
        .settle_links(
            "a",
            vec![PodLink { addresses: vec!["10.9.0.2/24".parse().unwrap()], ..link("net1", kind) }],
        )
        .await;
    let port = done.ovs_ports.keys().next().unwrap().clone();
    assert!(done.awaiting_port && named(&pod, "net1").await.up);
    assert_eq!(addresses(&snapshot(&pod).await, "net1"), [].into());
    node.pods.set_open_ports([port].into()).await;
    let done = node.settle().await;
    assert!(!done.awaiting_port && named(&pod, "net1").await.up);
    assert_eq!(addresses(&snapshot(&pod).await, "net1"), ["10.9.0.2/24".to_owned()].into());
    assert_eq!(sysctl(&pod, "ipv4/conf/net1/arp_notify").await, "1");
    // A restarted agent, which knows no open ports, leaves the addresses.
    node.restart();
    assert!(!node.settle().await.awaiting_port);
    assert_eq!(addresses(&snapshot(&pod).await, "net1"), ["10.9.0.2/24".to_owned()].into());
    // A restarted agent whose resolver does not answer yet keeps the port, with the desired VLANs.
    node.restart();
    node.runtime.set_silent(true);
    let unread = node.reconcile().await;
    assert_eq!((unread.ovs_ports, unread.rejected.len()), (done.ovs_ports.clone(), 1));
    node.runtime.set_silent(false);
    // A link that is made again waits again: its port has to be opened again, too.
    let links = std::mem::take(&mut node.desired.pods.get_mut("a").unwrap().links);
    node.settle().await;
    node.want("a", links);
    assert!(node.settle().await.awaiting_port);
    assert_eq!(addresses(&snapshot(&pod).await, "net1"), [].into());
}
