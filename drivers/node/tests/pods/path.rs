//! The path MTU of pods' interfaces: the bottleneck is reported with its name and MTU.

use eno_driver_node::netlink::{Namespace, Request};
use eno_schemas::{LinkKind, PathMtu, PodLink};
use rtnetlink::packet_route::link::{InfoData, InfoKind, InfoVeth, LinkAttribute, LinkInfo};

use crate::pods::common::*;

fn path_of(interface: &str, mtu: u32) -> PathMtu {
    PathMtu { interface: interface.to_owned(), mtu, overhead: 0 }
}

/// Adds a primary interface as the cluster's own network does: a bridge of the host, and a veth pair.
async fn add_primary(node: &Node, pod: &Namespace) {
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
async fn path_mtu_of_primary_interface_is_reported() {
    let (mut node, pod) = Node::with_pod().await;
    add_primary(&node, &pod).await;
    node.want("a", Vec::new()).primary = Some(primary(9000));
    let reported = applied(&node.settle().await, "a", "p").clone();
    assert_eq!((reported.mtu, reported.path), (9000, Some(path_of("cni0", 1500))));
    // The kernel lowers the MTU of a bridge with those of its ports, unless it was set.
    for (name, mtu) in [("cni-a", 9000), ("cni0", 8000), ("cni-a", 1400)] {
        set_mtu(&node, name, mtu).await;
        let path = if (name, mtu) == ("cni-a", 9000) { None } else { Some(path_of(name, mtu)) };
        assert_eq!(applied(&node.settle().await, "a", "p").path, path, "{name}: {mtu}");
    }
    node.want("a", Vec::new()).primary = Some(primary(1400));
    assert_eq!(applied(&node.settle().await, "a", "p").path, None);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: makes network namespaces"]
async fn path_mtu_of_bridge_port_is_reported() {
    let (mut node, _) = Node::with_pod().await;
    set_mtu(&node, BRIDGE, 1450).await;
    node.want("a", vec![PodLink { mtu: Some(9000), ..bridged("net1", "10.9.0.2/24") }]);
    assert_eq!(applied(&node.settle().await, "a", "net1").path, Some(path_of(BRIDGE, 1450)));
    // Without a desired MTU no path is reported.
    node.want("a", vec![bridged("net1", "10.9.0.2/24")]);
    assert_eq!(applied(&node.settle().await, "a", "net1").path, None);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: makes network namespaces"]
async fn mtu_above_lower_interface_is_refused() {
    let (mut node, pod) = Node::with_pod().await;
    node.add_parent().await;
    let wanted =
        |mtu| PodLink { mtu: Some(mtu), ..link("mv0", LinkKind::Macvlan { master: "parent0".to_owned() }) };
    let refused = "an MTU of 9000 can't be: parent0, which it is made on, has an MTU of 1500";
    // For a new link and for an existing one; and nothing of the pod changes.
    for there in [false, true] {
        if there {
            node.settle_links("a", vec![wanted(1400)]).await;
        }
        let before = stable_snapshot(&pod).await;
        node.want("a", vec![wanted(9000)]);
        let done = node.reconcile().await;
        let [rejection] = &done.rejected[..] else { panic!("{:?}", done.rejected) };
        assert_eq!((&rejection.reason[..], rejection.retryable), (refused, true));
        assert_eq!(stable_snapshot(&pod).await, before);
    }
    set_mtu(&node, "parent0", 9000).await;
    assert_eq!(applied(&node.settle().await, "a", "mv0").path, None);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: makes network namespaces"]
async fn path_mtu_of_tunnel_follows_its_route() {
    let (mut node, _) = Node::with_pod().await;
    let remote = Some("10.9.0.3".parse().unwrap());
    let tunnel =
        |mtu| PodLink { mtu, ..link("vx0", LinkKind::Vxlan { vni: 5, remote, local: None, port: None }) };
    let reported = Some(PathMtu { interface: "net1".to_owned(), mtu: 1500, overhead: 50 });
    for (mtu, path) in
        [(Some(1451), reported.clone()), (Some(1450), None), (Some(1500), reported), (None, None)]
    {
        node.want("a", vec![bridged("net1", "10.9.0.2/24"), tunnel(mtu)]);
        assert_eq!(applied(&node.settle().await, "a", "vx0").path, path, "{mtu:?}");
    }
}
