//! What carries less than is asked of an interface is told, with its name and its MTU.

use eno_driver_node::netlink::{Namespace, Request};
use eno_schemas::{LinkKind, PathMtu, PodLink, PrimaryLink};
use rtnetlink::packet_route::link::{InfoData, InfoKind, InfoVeth, LinkAttribute, LinkInfo};

use crate::pods::common::*;

fn carries(interface: &str, mtu: u32) -> PathMtu {
    PathMtu { interface: interface.to_owned(), mtu, overhead: 0 }
}

/// As the cluster's own network does it: a bridge of the host, and a pair.
async fn primary(node: &Node, pod: &Namespace) {
    let fd = pod.fd();
    node.on_host(move |netlink| {
        netlink.execute(Request::add_link("cni0", bare("cni0", "bridge")))?;
        let bridge = netlink.link_named("cni0")?.unwrap().index;
        let mut peer = bare("eth0", "veth");
        peer.attributes = vec![LinkAttribute::IfName("eth0".to_owned()), LinkAttribute::NetNsFd(fd)];
        let mut message = bare("cni-a", "veth");
        message.attributes = vec![
            LinkAttribute::IfName("cni-a".to_owned()),
            LinkAttribute::Controller(bridge),
            LinkAttribute::LinkInfo(vec![
                LinkInfo::Kind(InfoKind::Veth),
                LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(peer))),
            ]),
        ];
        netlink.execute(Request::add_link("cni-a", message))
    })
    .await;
}

async fn set_mtu(node: &Node, name: &'static str, mtu: u32) {
    node.on_host(move |netlink| {
        let index = netlink.link_named(name)?.unwrap().index;
        netlink.execute(Request::set(name, index, "MTU", vec![LinkAttribute::Mtu(mtu)]))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: makes network namespaces"]
async fn of_the_primary_interface() {
    let mut node = Node::new().await;
    let pod = node.run_pod("a", 101).await;
    primary(&node, &pod).await;
    let link = |mtu| PrimaryLink { id: "p".into(), revision: "1".into(), name: "eth0".into(), mtu };
    node.want("a", Vec::new()).primary = Some(link(9000));
    let told = applied(&node.settle().await, "a", "p").clone();
    assert_eq!((told.mtu, told.path), (9000, Some(carries("cni0", 1500))));
    // The kernel lowers that of a bridge with its ports', unless it was set.
    for (name, mtu) in [("cni-a", 9000), ("cni0", 8000), ("cni-a", 1400)] {
        set_mtu(&node, name, mtu).await;
        let path = if (name, mtu) == ("cni-a", 9000) { None } else { Some(carries(name, mtu)) };
        assert_eq!(applied(&node.settle().await, "a", "p").path, path, "{name}: {mtu}");
    }
    node.want("a", Vec::new()).primary = Some(link(1400));
    assert_eq!(applied(&node.settle().await, "a", "p").path, None);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: makes network namespaces"]
async fn of_a_port_of_a_bridge() {
    let mut node = Node::new().await;
    node.run_pod("a", 101).await;
    set_mtu(&node, BRIDGE, 1450).await;
    node.want("a", vec![PodLink { mtu: Some(9000), ..bridged("net1", "10.9.0.2/24") }]);
    assert_eq!(applied(&node.settle().await, "a", "net1").path, Some(carries(BRIDGE, 1450)));
    // Nothing is asked.
    node.want("a", vec![bridged("net1", "10.9.0.2/24")]);
    assert_eq!(applied(&node.settle().await, "a", "net1").path, None);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: makes network namespaces"]
async fn of_what_a_link_is_made_on() {
    let mut node = Node::new().await;
    node.allow("parent0");
    let pod = node.run_pod("a", 101).await;
    node.on_host(|netlink| {
        netlink.execute(Request::add_link("parent0", bare("parent0", "veth")))?;
        let index = netlink.link_named("parent0")?.unwrap().index;
        netlink.execute(Request::set_up("parent0", index, true))
    })
    .await;
    let wanted =
        |mtu| PodLink { mtu: Some(mtu), ..link("mv0", LinkKind::Macvlan { master: "parent0".to_owned() }) };
    let refused = "an MTU of 9000 can't be: parent0, which it is made on, has an MTU of 1500";
    // Neither when it is made, nor later; and nothing of the pod changes.
    for there in [false, true] {
        if there {
            node.want("a", vec![wanted(1400)]);
            node.settle().await;
        }
        let before = still(&pod).await;
        node.want("a", vec![wanted(9000)]);
        let done = node.reconcile().await;
        let [rejection] = &done.rejected[..] else { panic!("{:?}", done.rejected) };
        assert_eq!((&rejection.reason[..], rejection.retryable), (refused, true));
        assert_eq!(still(&pod).await, before);
    }
    set_mtu(&node, "parent0", 9000).await;
    assert_eq!(applied(&node.settle().await, "a", "mv0").path, None);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: makes network namespaces"]
async fn of_what_a_tunnel_is_routed_by() {
    let mut node = Node::new().await;
    node.run_pod("a", 101).await;
    let remote = Some("10.9.0.3".parse().unwrap());
    let tunnel =
        |mtu| PodLink { mtu, ..link("vx0", LinkKind::Vxlan { vni: 5, remote, local: None, port: None }) };
    let told = Some(PathMtu { interface: "net1".to_owned(), mtu: 1500, overhead: 50 });
    for (mtu, path) in [(Some(1451), told.clone()), (Some(1450), None), (Some(1500), told), (None, None)] {
        node.want("a", vec![bridged("net1", "10.9.0.2/24"), tunnel(mtu)]);
        assert_eq!(applied(&node.settle().await, "a", "vx0").path, path, "{mtu:?}");
    }
}
