//! Real packets through a real switch on the userspace datapath.

use std::collections::BTreeSet;

use eno_driver_node::ovs::{BridgeDesired, Datapath, Item, OvsDesired, OvsError, PortDesired, PortVlans};
use futures::StreamExt;

use crate::ovs::fixture::{Node, access, bridge, desired, soon};

/// Two bridges on one cable, and pods `a` and `c` on the one, `b` and `d` on the other.
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
async fn vlans_get_through_where_they_are_wanted_and_nowhere_else() {
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

    // The last VLAN goes: nothing gets through, rather than everything.
    wanted.bridges.insert("br1".into(), bridge(&["eth1"], &[]));
    let applied = ovs.reconcile(&wanted).await.unwrap();
    assert_eq!(applied.bridges["br1"].vlans, BTreeSet::new());
    assert!(!node.reaches("a", 2) && !node.reaches("c", 4));

    // A pod's port without VLANs is closed as well.
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
    // Whichever is active: eth1 is the only one that leads anywhere.
    node.ip(&["link", "set", "eth4", "down"]);
    let reached = async {
        while !node.reaches("a", 2) {
            tokio::task::yield_now().await;
        }
    };
    soon("a ping over the bond", reached).await;

    // No cable at all: by a patch, for what it carries.
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
async fn interfaces_come_and_go() {
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
    soon("word of its loss", changed.next()).await.unwrap();
    let lost = async {
        while ovs.reconcile(&wanted).await.unwrap().rejected.is_empty() {
            changed.next().await.unwrap();
        }
    };
    soon("a rejection", lost).await;

    // Another one of that name.
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
async fn a_switch_that_is_killed_and_comes_back() {
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
async fn a_switch_that_is_dead_is_no_success() {
    let mut node = Node::start();
    let wanted = two_bridges(&mut node);
    let ovs = node.database.ovs();
    let applied = ovs.reconcile(&wanted).await.unwrap();
    let written = node.database.next_cfg().await;
    let mut changed = std::pin::pin!(ovs.changed());
    node.kill();
    soon("word of its end", changed.next()).await.unwrap();
    for ovs in [&ovs, &node.database.ovs()] {
        let error = ovs.reconcile(&wanted).await.unwrap_err();
        assert!(error.to_string().contains("ovs-vswitchd does not run") && error.retryable(), "{error}");
    }
    // Where nothing is wanted of it, it may be dead.
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
async fn a_datapath_that_the_node_does_not_have_is_said() {
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
