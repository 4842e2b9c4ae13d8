//! What another hand changes: told, and put right.

use std::time::{Duration, Instant};

use eno_driver_node::netlink::{Netlink, PortVlan, Request};
use eno_schemas::{Item, PortVlans, VlanId};
use futures::{Stream, StreamExt as _};
use rtnetlink::packet_route::link::LinkAttribute;

use crate::pods::common::*;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: makes network namespaces"]
async fn with_a_change_of_one_pod_all_are_told_of_and_what_was_heard_is_repaired() {
    let mut node = Node::new().await;
    let a = node.run_pod("a", 101).await;
    node.run_pod("b", 102).await;
    node.run_pod("c", 103).await;
    let mut wanted = bridged("net1", "10.9.0.2/24");
    wanted.sysctls = [("ipv4/conf/rp_filter".to_owned(), "2".to_owned())].into();
    node.want("a", vec![wanted]);
    let first = node.settle().await;
    node.want("b", vec![bridged("net1", "10.9.0.3/24")]);
    let both = node.reconcile().await;
    assert_eq!((both.pods.get("a"), both.rejected.as_slice()), (first.pods.get("a"), [].as_slice()));
    node.settle().await;
    // Told by the kernel, and repaired along with a change of another pod.
    inside(&a, |netlink| {
        let index = netlink.link_named("net1")?.unwrap().index;
        netlink.execute(Request::set_up("net1", index, false))
    })
    .await;
    node.want("c", vec![bridged("net1", "10.9.0.4/24")]);
    let all = node.reconcile().await;
    assert_eq!((all.pods.len(), all.notes.len()), (3, 1), "{:?}", all.notes);
    assert!(named(&a, "net1").await.up);
    // Not told by the kernel: seen when nothing else is wanted than before.
    node.settle().await;
    a.run(|| std::fs::write("/proc/sys/net/ipv4/conf/net1/rp_filter", "1").unwrap()).await.unwrap();
    assert_eq!(node.reconcile().await.notes.len(), 1);
    assert_eq!(sysctl(&a, "ipv4/conf/net1/rp_filter").await, "2");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: makes network namespaces"]
async fn after_news_of_one_pod_the_others_are_not_looked_at() {
    let mut node = Node::new().await;
    node.audit(Duration::MAX);
    let a = node.run_pod("a", 101).await;
    let b = node.run_pod("b", 102).await;
    node.run_pod("c", 103).await;
    let mut wanted = bridged("net1", "10.9.0.2/24");
    // Without IPv6 the kernel is done with it soon, and tells nothing later.
    let settings = [("ipv4/conf/rp_filter", "2"), ("ipv6/conf/disable_ipv6", "1")];
    wanted.sysctls = settings.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    node.want("a", vec![wanted]);
    node.want("b", vec![bridged("net1", "10.9.0.3/24")]);
    let first = node.settle().await;
    let mut changed = std::pin::pin!(node.pods.changed());
    no_more_news(&node, &mut changed).await;
    // The kernel does not tell of this one, so it shows who was looked at.
    a.run(|| std::fs::write("/proc/sys/net/ipv4/conf/net1/rp_filter", "1").unwrap()).await.unwrap();
    let end = applied(&first, "b", "net1").host_name.clone().unwrap();
    for hand in ["in the pod", "at the host's end"] {
        let end = end.clone();
        let down = move |netlink: &mut Netlink| {
            let name = if hand == "in the pod" { "net1" } else { &end };
            let index = netlink.link_named(name)?.unwrap().index;
            netlink.execute(Request::set_up(name, index, false))
        };
        inside(if hand == "in the pod" { &b } else { &node.host }, down).await;
        let done = node.settle().await;
        let noted: Vec<_> = done.notes.iter().map(|note| note.item.clone()).collect();
        assert_eq!(noted, [Item::pod("b")], "{hand}");
        no_more_news(&node, &mut changed).await;
        assert_eq!(sysctl(&a, "ipv4/conf/net1/rp_filter").await, "1", "{hand}");
    }
    // Nor with a pod that comes or goes, nor after what the kernel tells of these.
    node.want("c", vec![bridged("net1", "10.9.0.4/24")]);
    node.settle().await;
    node.desired.pods.remove("c");
    node.settle().await;
    no_more_news(&node, &mut changed).await;
    assert_eq!(sysctl(&a, "ipv4/conf/net1/rp_filter").await, "1");
    // Another process looks at all of them.
    node.restart();
    node.settle().await;
    assert_eq!(sysctl(&a, "ipv4/conf/net1/rp_filter").await, "2");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: makes network namespaces"]
async fn without_news_there_is_an_audit() {
    let mut node = Node::new().await;
    node.audit(Duration::from_millis(500));
    let a = node.run_pod("a", 101).await;
    let mut wanted = bridged("net1", "10.9.0.2/24");
    wanted.sysctls = [("ipv4/conf/rp_filter".to_owned(), "2".to_owned())].into();
    node.want("a", vec![wanted]);
    node.settle().await;
    let mut changed = std::pin::pin!(node.pods.changed());
    a.run(|| std::fs::write("/proc/sys/net/ipv4/conf/net1/rp_filter", "1").unwrap()).await.unwrap();
    let repaired = async {
        while sysctl(&a, "ipv4/conf/net1/rp_filter").await != "2" {
            changed.next().await;
            node.settle().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), repaired).await.expect("an audit");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: makes network namespaces"]
async fn what_a_hand_changes_is_repaired_within_a_second() {
    let mut node = Node::new().await;
    let pod = node.run_pod("a", 101).await;
    let mut wanted = bridged("net1", "10.9.0.2/24");
    wanted.mtu = Some(1400);
    node.want("a", vec![wanted]);
    let first = node.settle().await;
    let mut changed = std::pin::pin!(node.pods.changed());
    no_more_news(&node, &mut changed).await;
    let host = applied(&first, "a", "net1").host_name.clone().unwrap();
    let index = named(&pod, "net1").await.index;
    let index_of_end = node
        .on_host({
            let host = host.clone();
            move |n| n.link_named(&host)
        })
        .await
        .unwrap()
        .index;
    for hand in 0..4 {
        let at = Instant::now();
        match hand {
            0 => {
                inside(&pod, move |n| {
                    n.execute(Request::set("net1", index, "MTU", vec![LinkAttribute::Mtu(1300)]))
                })
                .await;
            }
            1 => {
                inside(&pod, move |n| {
                    let all = n.addresses()?;
                    n.execute(Request::delete_address(
                        "net1",
                        all.iter().find(|a| a.net.to_string() == "10.9.0.2/24").unwrap(),
                    ))
                })
                .await;
            }
            2 => node.on_host(move |n| n.execute(Request::set_master("end", index_of_end, 0))).await,
            _ => inside(&pod, move |n| n.execute(Request::delete_link("net1", index))).await,
        }
        tokio::time::timeout(Duration::from_secs(5), changed.next())
            .await
            .unwrap_or_else(|_| panic!("nothing heard of {hand}"));
        let heard = at.elapsed();
        let done = node.settle().await;
        let took = at.elapsed();
        assert!(
            took < Duration::from_secs(1),
            "hand {hand}: heard of after {heard:?}, put right after {took:?}"
        );
        assert_eq!(done.notes.len(), 1, "hand {hand}: {done:?}");
        let all = snapshot(&pod).await;
        assert_eq!(all.named("net1").unwrap().mtu, 1400);
        assert_eq!(addresses(&all, "net1"), ["10.9.0.2/24".to_owned()].into());
        no_more_news(&node, &mut changed).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: makes network namespaces"]
async fn vlans_that_a_hand_changes_are_told_of_and_repaired() {
    if skip(lacks(&["vlan"]).await) {
        return;
    }
    let mut node = Node::new().await;
    node.audit(Duration::MAX);
    node.filter_vlans().await;
    node.run_pod("a", 101).await;
    node.run_pod("b", 102).await;
    node.want("a", vec![port("net1", "10.7.0.1/24", PortVlans::Access(VlanId::new(10).unwrap()))]);
    node.want("b", vec![port("net1", "10.7.0.2/24", PortVlans::Trunk(trunk("10-20,40")))]);
    let done = node.settle().await;
    let mut changed = std::pin::pin!(node.pods.changed());
    no_more_news(&node, &mut changed).await;
    for uid in ["a", "b"] {
        let name = applied(&done, uid, "net1").host_name.clone().unwrap();
        let index = node.on_host(move |netlink| netlink.link_named(&name)).await.unwrap().index;
        let vlans = || node.on_host(move |netlink| netlink.port_vlans(index));
        let wanted = vlans().await;
        let [one, ..] = wanted[..] else { panic!("{uid} has no VLANs") };
        let other = PortVlan { vid: 30, ..one };
        for (hand, request) in [
            ("one more", Request::add_port_vlans(uid, index, &[PortVlan { pvid: false, ..other }])),
            ("one less", Request::delete_port_vlans(uid, index, &[one])),
            ("all gone", Request::delete_port_vlans(uid, index, &wanted)),
        ] {
            node.on_host(move |netlink| netlink.execute(request)).await;
            tokio::time::timeout(Duration::from_secs(5), changed.next())
                .await
                .unwrap_or_else(|_| panic!("{uid}: nothing heard of {hand}"));
            let done = node.settle().await;
            let noted: Vec<_> = done.notes.iter().map(|note| note.item.clone()).collect();
            assert_eq!(noted, [Item::pod(uid)], "{hand}");
            assert_eq!(vlans().await, wanted, "{uid}: {hand}");
            no_more_news(&node, &mut changed).await;
        }
    }
}

/// What the kernel tells of what was just made is no repair.
async fn no_more_news(node: &Node, changed: &mut (impl Stream<Item = ()> + Unpin)) {
    while tokio::time::timeout(Duration::from_millis(300), changed.next()).await.is_ok() {
        assert_eq!(node.settle().await.notes, []);
    }
}
