//! Drift in pods and at host ends: notified, and repaired.

use std::time::{Duration, Instant};

use eno_driver_node::netlink::{PortVlan, Request};
use eno_schemas::{Item, PodLink, PortVlans, VlanId};
use futures::{Stream, StreamExt as _};
use rtnetlink::packet_route::link::LinkAttribute;

use crate::pods::common::*;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: makes network namespaces"]
async fn change_of_one_pod_repairs_notified_drift_of_others() {
    let (mut node, a) = Node::with_pod().await;
    node.run_pod("b", 102).await;
    node.run_pod("c", 103).await;
    let first = node
        .settle_links("a", vec![with_sysctl(bridged("net1", "10.9.0.2/24"), "ipv4/conf/rp_filter", "2")])
        .await;
    node.want("b", vec![bridged("net1", "10.9.0.3/24")]);
    let both = node.reconcile().await;
    assert_eq!((both.pods.get("a"), both.rejected.as_slice()), (first.pods.get("a"), [].as_slice()));
    node.settle().await;
    // Drift that the kernel notifies is repaired together with a change of another pod.
    set_down(&a, "net1").await;
    node.want("c", vec![bridged("net1", "10.9.0.4/24")]);
    let all = node.reconcile().await;
    assert_eq!((all.pods.len(), all.notes.len()), (3, 1), "{:?}", all.notes);
    assert!(named(&a, "net1").await.up);
    // Drift that the kernel does not notify is found by a reconcile with an unchanged desired state.
    node.settle().await;
    a.run(|| std::fs::write("/proc/sys/net/ipv4/conf/net1/rp_filter", "1").unwrap()).await.unwrap();
    assert_eq!(node.reconcile().await.notes.len(), 1);
    assert_eq!(sysctl(&a, "ipv4/conf/net1/rp_filter").await, "2");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: makes network namespaces"]
async fn notification_of_one_pod_does_not_read_the_others() {
    let mut node = Node::new().await;
    node.audit(Duration::MAX);
    let a = node.run_pod("a", 101).await;
    let b = node.run_pod("b", 102).await;
    node.run_pod("c", 103).await;
    let mut wanted = bridged("net1", "10.9.0.2/24");
    // Without IPv6 the kernel sends no delayed notifications.
    let settings = [("ipv4/conf/rp_filter", "2"), ("ipv6/conf/disable_ipv6", "1")];
    wanted.sysctls = settings.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    node.want("a", vec![wanted]);
    let first = node.settle_links("b", vec![bridged("net1", "10.9.0.3/24")]).await;
    let mut changed = std::pin::pin!(node.pods.changed());
    drain_notifications(&node, &mut changed).await;
    // The kernel does not notify this change, so it shows whether the pod was read.
    a.run(|| std::fs::write("/proc/sys/net/ipv4/conf/net1/rp_filter", "1").unwrap()).await.unwrap();
    let end = node.host_end(&first, "b").await.name;
    for drift in ["in the pod", "at the host's end"] {
        let (namespace, name) = if drift == "in the pod" { (&b, "net1") } else { (&node.host, &end[..]) };
        set_down(namespace, name).await;
        let done = node.settle().await;
        let noted: Vec<_> = done.notes.iter().map(|note| note.item.clone()).collect();
        assert_eq!(noted, [Item::pod("b")], "{drift}");
        drain_notifications(&node, &mut changed).await;
        assert_eq!(sysctl(&a, "ipv4/conf/net1/rp_filter").await, "1", "{drift}");
    }
    // Neither pods that come or go, nor the notifications of these, cause a read.
    node.settle_links("c", vec![bridged("net1", "10.9.0.4/24")]).await;
    node.desired.pods.remove("c");
    node.settle().await;
    drain_notifications(&node, &mut changed).await;
    assert_eq!(sysctl(&a, "ipv4/conf/net1/rp_filter").await, "1");
    // A restarted agent reads all pods.
    node.restart();
    node.settle().await;
    assert_eq!(sysctl(&a, "ipv4/conf/net1/rp_filter").await, "2");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: makes network namespaces"]
async fn audit_repairs_drift_without_notification() {
    let mut node = Node::new().await;
    node.audit(Duration::from_millis(500));
    let a = node.run_pod("a", 101).await;
    node.settle_links("a", vec![with_sysctl(bridged("net1", "10.9.0.2/24"), "ipv4/conf/rp_filter", "2")])
        .await;
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
async fn drift_is_repaired_within_a_second() {
    let (mut node, pod) = Node::with_pod().await;
    let wanted = PodLink { mtu: Some(1400), ..bridged("net1", "10.9.0.2/24") };
    let first = node.settle_links("a", vec![wanted]).await;
    let mut changed = std::pin::pin!(node.pods.changed());
    drain_notifications(&node, &mut changed).await;
    let index = named(&pod, "net1").await.index;
    let index_of_end = node.host_end(&first, "a").await.index;
    for drift in 0..4 {
        let begun = Instant::now();
        match drift {
            0 => {
                in_namespace(&pod, move |n| {
                    n.execute(Request::set("net1", index, "MTU", vec![LinkAttribute::Mtu(1300)]))
                })
                .await;
            }
            1 => {
                in_namespace(&pod, move |n| {
                    let all = n.addresses()?;
                    let address = all.iter().find(|a| a.net.to_string() == "10.9.0.2/24").unwrap();
                    n.execute(Request::delete_address("net1", address))
                })
                .await;
            }
            2 => node.on_host(move |n| n.execute(Request::set_master("end", index_of_end, 0))).await,
            _ => in_namespace(&pod, move |n| n.execute(Request::delete_link("net1", index))).await,
        }
        tokio::time::timeout(Duration::from_secs(5), changed.next())
            .await
            .unwrap_or_else(|_| panic!("nothing heard of {drift}"));
        let notified = begun.elapsed();
        let done = node.settle().await;
        let took = begun.elapsed();
        assert!(
            took < Duration::from_secs(1),
            "hand {drift}: heard of after {notified:?}, put right after {took:?}"
        );
        assert_eq!(done.notes.len(), 1, "hand {drift}: {done:?}");
        let all = snapshot(&pod).await;
        assert_eq!(all.named("net1").unwrap().mtu, 1400);
        assert_eq!(addresses(&all, "net1"), ["10.9.0.2/24".to_owned()].into());
        drain_notifications(&node, &mut changed).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root: makes network namespaces"]
async fn drift_of_port_vlans_is_notified_and_repaired() {
    if kernel_lacks(&["vlan"]).await {
        return;
    }
    let mut node = Node::new().await;
    node.audit(Duration::MAX);
    node.add_vlan_bridge().await;
    node.run_pod("a", 101).await;
    node.run_pod("b", 102).await;
    node.want("a", vec![port("net1", "10.7.0.1/24", PortVlans::Access(VlanId::new(10).unwrap()))]);
    let done =
        node.settle_links("b", vec![port("net1", "10.7.0.2/24", PortVlans::Trunk(trunk("10-20,40")))]).await;
    let mut changed = std::pin::pin!(node.pods.changed());
    drain_notifications(&node, &mut changed).await;
    for uid in ["a", "b"] {
        let index = node.host_end(&done, uid).await.index;
        let vlans = || node.on_host(move |netlink| netlink.port_vlans(index));
        let wanted = vlans().await;
        let [one, ..] = wanted[..] else { panic!("{uid} has no VLANs") };
        let other = PortVlan { vid: 30, ..one };
        for (drift, request) in [
            ("one more", Request::add_port_vlans(uid, index, &[PortVlan { pvid: false, ..other }])),
            ("one less", Request::delete_port_vlans(uid, index, &[one])),
            ("all gone", Request::delete_port_vlans(uid, index, &wanted)),
        ] {
            node.on_host(move |netlink| netlink.execute(request)).await;
            tokio::time::timeout(Duration::from_secs(5), changed.next())
                .await
                .unwrap_or_else(|_| panic!("{uid}: nothing heard of {drift}"));
            let done = node.settle().await;
            let noted: Vec<_> = done.notes.iter().map(|note| note.item.clone()).collect();
            assert_eq!(noted, [Item::pod(uid)], "{drift}");
            assert_eq!(vlans().await, wanted, "{uid}: {drift}");
            drain_notifications(&node, &mut changed).await;
        }
    }
}

/// Reconciles until there are no more notifications. Those of ENO's own changes must not cause repairs.
async fn drain_notifications(node: &Node, changed: &mut (impl Stream<Item = ()> + Unpin)) {
    while tokio::time::timeout(Duration::from_millis(300), changed.next()).await.is_ok() {
        assert_eq!(node.settle().await.notes, []);
    }
}
