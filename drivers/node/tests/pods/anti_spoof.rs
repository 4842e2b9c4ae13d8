//! Only a pod's own addresses leave it, by packets.

use std::collections::BTreeSet;

use eno_driver_node::netlink::{Namespace, Netlink};
use eno_schemas::{Item, LinkKind, Master, PodLink, PortVlans, VlanId};

use crate::pods::attacks::{ip, try_ip};
use crate::pods::common::*;

const MAC: &str = "02:00:00:00:00:0a";

fn guarded(address: &str) -> PodLink {
    let addresses = [address, &format!("fd00::{}/64", &address[7..8])].map(|net| net.parse().unwrap());
    PodLink {
        mac: Some(MAC.to_owned()),
        anti_spoof: true,
        addresses: addresses.to_vec(),
        ..bridged("net1", address)
    }
}

/// A node whose pod `a` is guarded, with its neighbours `v` and `c`.
async fn guarded_node() -> (Node, Namespace, Namespace, Namespace) {
    let mut node = Node::new().await;
    let (a, v, c) =
        (node.run_pod("a", 101).await, node.run_pod("v", 102).await, node.run_pod("c", 103).await);
    let free = |address: &str| PodLink { mac: None, anti_spoof: false, ..guarded(address) };
    node.want("a", vec![guarded("10.9.0.2/24")]);
    node.want("v", vec![free("10.9.0.3/24")]);
    node.want("c", vec![free("10.9.0.4/24")]);
    node.settle().await;
    (node, a, v, c)
}

/// The MAC address that a pod has learnt for an address.
async fn neighbour(pod: &Namespace, address: &str) -> Option<String> {
    let line = format!("neigh show {address}");
    let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
    let run = move || std::process::Command::new("ip").args(words).output().expect("ip").stdout;
    let text = String::from_utf8(pod.run(run).await.unwrap()).unwrap();
    text.split_once("lladdr ").map(|(_, rest)| rest[..17].to_owned())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: makes network namespaces"]
async fn pod_sends_from_its_own_addresses_only() {
    let (node, a, v, c) = guarded_node().await;
    let mac_of_v = named(&v, "net1").await.mac.unwrap().map(|byte| format!("{byte:02x}")).join(":");
    for (own, [of_v, of_c]) in [("10.9.0.2", ["10.9.0.3", "10.9.0.4"]), ("fd00::2", ["fd00::3", "fd00::4"])] {
        let bracketed = |ip: &str| if ip.contains(':') { format!("[{ip}]") } else { ip.to_owned() };
        assert!(reaches(&a, &c, &bracketed(of_c)).await, "{own}");
        assert!(reaches(&c, &a, &bracketed(own)).await, "{own}");
        assert!(reaches(&v, &c, &bracketed(of_c)).await, "{of_v}");
        assert_eq!(neighbour(&c, of_v).await.as_deref(), Some(&mac_of_v[..]));
        // It takes the neighbour's address, announces it and sends from it.
        for key in ["ipv4/conf/net1/arp_notify", "ipv6/conf/net1/ndisc_notify"] {
            a.run(move || std::fs::write(format!("/proc/sys/net/{key}"), "1").unwrap()).await.unwrap();
        }
        let length = if own.contains(':') { "128 nodad" } else { "32" };
        ip(&a, &format!("address add {of_v}/{length} dev net1")).await;
        ip(&a, "link set net1 address 02:00:00:00:00:0a").await;
        ip(&a, &format!("route replace {of_c} dev net1 src {of_v}")).await;
        assert!(!reaches(&a, &c, &bracketed(of_c)).await, "{of_v}");
        assert_eq!(neighbour(&c, of_v).await.as_deref(), Some(&mac_of_v[..]), "{of_v}");
        ip(&a, &format!("route del {of_c} dev net1 src {of_v}")).await;
        ip(&a, &format!("address del {of_v}/{} dev net1", &length[..length.len().min(3)].trim())).await;
        // Packets from the neighbour's address wait for an answer for some seconds.
        ip(&a, "neigh flush dev net1").await;
        assert!(reaches(&a, &c, &bracketed(of_c)).await, "{own}");
    }
    // It takes another MAC address: nothing leaves until that is its own again.
    ip(&a, &format!("link set net1 address {mac_of_v}")).await;
    assert!(!reaches(&a, &c, "10.9.0.4").await);
    node.settle().await;
    assert!(reaches(&a, &c, "10.9.0.4").await);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: makes network namespaces"]
async fn guard_follows_the_desired_state() {
    let (mut node, a, _, c) = guarded_node().await;
    let end = |done| async move { done };
    let done = node.settle().await;
    let end = end(node.host_end(&done, "a").await).await;
    let index = end.index;
    let program = move |netlink: &mut Netlink| netlink.ingress_program(index);
    let first = node.on_host(program).await;
    assert!(first.is_set());
    // Somebody takes it off: the agent sets it again.
    assert!(try_ip(&node.host, &format!("link set {} down", end.name)).await);
    node.on_host(move |netlink| {
        netlink.execute(eno_driver_node::netlink::Request::delete_ingress_program("end", index))
    })
    .await;
    let repaired = node.settle().await;
    assert_eq!(repaired.notes.len(), 1);
    assert_eq!(node.on_host(program).await, first);
    // Another address, while the interface is in use.
    node.settle_links("a", vec![guarded("10.9.0.7/24")]).await;
    let second = node.on_host(program).await;
    assert!(second.is_set() && second != first);
    assert!(reaches(&a, &c, "10.9.0.4").await);
    // It ends with the wish.
    node.settle_links("a", vec![PodLink { anti_spoof: false, ..guarded("10.9.0.7/24") }]).await;
    assert!(!node.on_host(program).await.is_set());
    assert_eq!(named(&a, "net1").await.parent, Some(index));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: makes network namespaces"]
async fn guard_that_cannot_be_held_is_refused() {
    let mut node = Node::new().await;
    node.run_pod("a", 101).await;
    let on_ovs =
        Master::Ovs { bridge: "br-ovs".to_owned(), vlans: PortVlans::Access(VlanId::new(7).unwrap()) };
    let network = eno_schemas::HostNetwork::Ovs {
        datapath: Some(eno_schemas::OvsDatapath::Netdev),
        uplink: None,
        patch: None,
        vlans: eno_schemas::VlanSet::EMPTY,
    };
    node.desired.networks.insert("br-ovs".to_owned(), network);
    node.add_parent().await;
    let of_kind = |kind| PodLink { kind, ..guarded("10.9.0.2/24") };
    for (link, words) in [
        (of_kind(LinkKind::Veth { master: Some(on_ovs) }), "datapath in user space"),
        (of_kind(LinkKind::Macvlan { master: "parent0".to_owned() }), "without passing the host"),
        (of_kind(LinkKind::Ipvlan { master: "parent0".to_owned() }), "of this kind"),
        (PodLink { mac: None, ..guarded("10.9.0.2/24") }, "needs a MAC address"),
    ] {
        let link =
            if matches!(link.kind, LinkKind::Ipvlan { .. }) { PodLink { mac: None, ..link } } else { link };
        node.want("a", vec![link]);
        let done = node.reconcile().await;
        let [refused] = &done.rejected[..] else { panic!("{:?}", done.rejected) };
        assert_eq!((&refused.item, refused.retryable), (&Item::link("a", "net1"), false));
        assert!(refused.reason.contains(words), "{}", refused.reason);
        assert_eq!(node.host_ends().await.into_iter().collect::<BTreeSet<_>>(), BTreeSet::new());
    }
}
