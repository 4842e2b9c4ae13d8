//! Real packets through a real switch on the userspace datapath.

use std::collections::BTreeSet;

use eno_conformance::soon;
use eno_driver_node::ovs::{BridgeDesired, Datapath, Item, OvsDesired, OvsError, PortDesired, PortVlans};
use futures::StreamExt;

use crate::ovs::fixture::{Node, access, bridge, desired};

/// Two bridges on one cable, with pods `a` and `c` on the first and `b` and `d` on the second.
fn two_bridges(node: &mut Node) -> OvsDesired {
    node.cable("eth1", "eth2");
    for (pod, last) in [("a", 1), ("b", 2), ("c", 3), ("d", 4)] {
        node.pod(pod, last);
    }
    let mut wanted = desired();
    wanted.bridges.insert("br1".into(), bridge(&["eth1"], &[10]));
    wanted.bridges.insert("br2".into(), bridge(&["eth2"], &[10, 20]));
    for (pod, bridge, vlan) in [("a", "br1", 10), ("b", "br2", 10), ("c", "br1", 20), ("d", "br2", 20)] {
        wanted.ports.insert(pod.into(), access(bridge, vlan));
    }
    wanted
}

#[tokio::test]
#[ignore = "needs root: network namespaces and ovs-vswitchd"]
async fn packets_pass_only_on_desired_vlans() {
    let mut node = Node::start();
    let mut wanted = two_bridges(&mut node);
    let ovs = node.database.ovs();
    let applied = ovs.reconcile(&wanted).await.unwrap();
    assert_eq!(applied.rejected, []);
    assert!(node.reaches("a", 2), "the VLAN is on the cable");
    assert!(!node.reaches("c", 4), "the VLAN is not on one end of the cable");
    assert!(!node.reaches("a", 3), "other VLANs of the same bridge");

    wanted.bridges.insert("br1".into(), bridge(&["eth1"], &[10, 20]));
    ovs.reconcile(&wanted).await.unwrap();
    assert!(node.reaches("c", 4));

    // Without VLANs nothing passes, rather than everything.
    wanted.bridges.insert("br1".into(), bridge(&["eth1"], &[]));
    let applied = ovs.reconcile(&wanted).await.unwrap();
    assert_eq!(applied.bridges["br1"].vlans, BTreeSet::new());
    assert!(!node.reaches("a", 2) && !node.reaches("c", 4));

    // A pod's port without VLANs is closed, too.
    wanted.bridges.insert("br1".into(), bridge(&["eth1"], &[10]));
    ovs.reconcile(&wanted).await.unwrap();
    assert!(node.reaches("a", 2));
    let closed = PortVlans::Trunk(BTreeSet::new());
    wanted.ports.insert("a".into(), PortDesired { vlans: closed, ..access("br1", 10) });
    ovs.reconcile(&wanted).await.unwrap();
    assert!(!node.reaches("a", 2));
}

#[tokio::test]
#[ignore = "needs root: network namespaces and ovs-vswitchd"]
async fn bonds_and_patches_carry_packets() {
    let mut node = Node::start();
    let mut wanted = two_bridges(&mut node);
    node.cable("eth3", "eth4");
    wanted.bridges.insert("br1".into(), bridge(&["eth1", "eth3"], &[10]));
    wanted.bridges.insert("br2".into(), bridge(&["eth2"], &[10]));
    let ovs = node.database.ovs();
    let applied = ovs.reconcile(&wanted).await.unwrap();
    assert_eq!(applied.rejected, []);
    // Only eth1 has a working peer, whichever member is active.
    node.ip(&["link", "set", "eth4", "down"]);
    let reached = async {
        while !node.reaches("a", 2) {
            tokio::task::yield_now().await;
        }
    };
    soon("a ping over the bond", reached).await;

    // Without a cable: the patch carries its VLANs only.
    wanted.bridges.insert("br1".into(), BridgeDesired { patch: Some("br2".into()), ..bridge(&[], &[20]) });
    wanted.bridges.insert("br2".into(), bridge(&[], &[]));
    let applied = ovs.reconcile(&wanted).await.unwrap();
    assert_eq!(applied.rejected, []);
    assert_eq!(applied.bridges["br1"].vlans, BTreeSet::from([20]));
    assert!(node.reaches("c", 4));
    assert!(!node.reaches("a", 2));
}

#[tokio::test]
#[ignore = "needs root: network namespaces and ovs-vswitchd"]
async fn missing_interfaces_are_rejected_until_they_appear() {
    let mut node = Node::start();
    let wanted = {
        let mut wanted = desired();
        wanted.bridges.insert("br1".into(), bridge(&["eth1"], &[10]));
        wanted.ports.insert("a".into(), access("br1", 10));
        wanted.ports.insert("b".into(), access("br1", 10));
        wanted
    };
    let ovs = node.database.ovs();
    let applied = ovs.reconcile(&wanted).await.unwrap();
    for (item, name) in [(Item::Bridge("br1".into()), "eth1"), (Item::Port("a".into()), "interface a")] {
        let rejected = applied.rejected.iter().find(|rejected| rejected.item == item).unwrap();
        assert!(rejected.reason.contains(name) && rejected.retryable, "{rejected:?}");
    }
    let mut changed = std::pin::pin!(ovs.changed());
    node.cable("eth1", "eth2");
    node.pod("a", 1);
    node.pod("b", 2);
    let working = async {
        while !ovs.reconcile(&wanted).await.unwrap().rejected.is_empty() {
            changed.next().await.unwrap();
        }
    };
    soon("the interfaces in the switch", working).await;
    assert!(node.reaches("a", 2));
    node.ip(&["link", "del", "dev", "a"]);
    soon("a notification of its loss", changed.next()).await.unwrap();
    let lost = async {
        while ovs.reconcile(&wanted).await.unwrap().rejected.is_empty() {
            changed.next().await.unwrap();
        }
    };
    soon("a rejection", lost).await;

    // A new interface of the same name.
    node.attach_pod("a", 1);
    let working = async {
        while !ovs.reconcile(&wanted).await.unwrap().rejected.is_empty() {
            changed.next().await.unwrap();
        }
    };
    soon("the interface in the switch", working).await;
    assert!(node.reaches("a", 2));
}

#[tokio::test]
#[ignore = "needs root: network namespaces and ovs-vswitchd"]
async fn reconcile_completes_after_restart_of_vswitchd() {
    let mut node = Node::start();
    let mut wanted = two_bridges(&mut node);
    let ovs = node.database.ovs();
    ovs.reconcile(&wanted).await.unwrap();
    assert!(node.reaches("a", 2));
    node.kill();
    wanted.bridges.insert("br1".into(), bridge(&["eth1"], &[20]));
    let (applied, ()) = tokio::join!(ovs.reconcile(&wanted), async { node.resume() });
    assert_eq!(applied.unwrap().rejected, []);
    assert!(node.reaches("c", 4));
    assert!(!node.reaches("a", 2));
    assert_eq!(node.database.ovs().reconcile(&desired()).await.unwrap().bridges.len(), 0);
}

#[tokio::test]
#[ignore = "needs root: network namespaces and ovs-vswitchd"]
async fn dead_vswitchd_is_notified_and_fails_reconciles() {
    let mut node = Node::start();
    let wanted = two_bridges(&mut node);
    let ovs = node.database.ovs();
    let applied = ovs.reconcile(&wanted).await.unwrap();
    let written = node.database.next_cfg().await;
    let mut changed = std::pin::pin!(ovs.changed());
    node.kill();
    soon("a notification of its end", changed.next()).await.unwrap();
    for ovs in [&ovs, &node.database.ovs()] {
        let error = ovs.reconcile(&wanted).await.unwrap_err();
        assert!(error.to_string().contains("ovs-vswitchd does not run") && error.retryable(), "{error}");
    }
    // Without desired bridges and ports, ovs-vswitchd need not run.
    node.database.ovs().reconcile(&OvsDesired { cluster: "other".into(), ..desired() }).await.unwrap();
    node.resume();
    let back = async {
        loop {
            match ovs.reconcile(&wanted).await {
                Ok(again) if again == applied => return,
                Ok(_) | Err(OvsError::Daemon { .. }) => tokio::task::yield_now().await,
                Err(error) => panic!("{error}"),
            }
        }
    };
    soon("its return", back).await;
    assert_eq!(node.database.next_cfg().await, written);
    assert!(node.reaches("a", 2));
}

#[tokio::test]
#[ignore = "needs root: network namespaces and ovs-vswitchd"]
async fn unavailable_datapath_is_rejected() {
    let node = Node::start();
    let mut wanted = desired();
    wanted
        .bridges
        .insert("br1".into(), BridgeDesired { datapath: Some(Datapath::System), ..bridge(&[], &[]) });
    let applied = node.database.ovs().reconcile(&wanted).await.unwrap();
    let there = std::path::Path::new("/sys/module/openvswitch").exists();
    assert_eq!(applied.rejected.is_empty(), there, "{applied:?}");
    for rejected in &applied.rejected {
        assert!(rejected.reason.contains("system") && rejected.retryable, "{rejected:?}");
    }
}
