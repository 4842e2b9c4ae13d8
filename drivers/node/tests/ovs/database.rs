//! Writes to a real database, with a fake switch.

use std::collections::BTreeSet;
use std::time::Duration;

use eno_conformance::soon;
use eno_driver_node::ovs::{BridgeDesired, Item, OvsDesired, PortDesired, PortVlans};
use futures::StreamExt;

use crate::ovs::fixture::{DB, Database, FakeSwitch, access, add_foreign, bridge, desired};

/// A desired state with bridges, bonds, patches and all kinds of ports.
fn full() -> OvsDesired {
    let mut desired = desired();
    desired.bridges.insert("br1".into(), bridge(&["eth1"], &[10, 20]));
    desired.bridges.insert("br2".into(), bridge(&["eth2", "eth3"], &[30]));
    let patched = BridgeDesired { patch: Some("br1".into()), ..bridge(&[], &[10]) };
    desired.bridges.insert("br3".into(), patched);
    desired.ports.insert("pod1".into(), access("br1", 10));
    let trunk = PortVlans::Trunk(BTreeSet::from([10, 20]));
    desired.ports.insert("pod2".into(), PortDesired { vlans: trunk, ..access("br1", 1) });
    let closed = PortVlans::Trunk(BTreeSet::new());
    desired.ports.insert("pod3".into(), PortDesired { vlans: closed, ..access("br2", 1) });
    desired
}

#[tokio::test]
async fn bridges_and_ports_are_made_changed_and_removed() {
    let database = Database::start();
    let _switch = FakeSwitch::start(&database);
    let empty = database.all_rows().await;
    let ovs = database.ovs();
    let applied = ovs.reconcile(&full()).await.unwrap();
    assert_eq!(applied.rejected, []);
    assert_eq!(applied.notes, [""; 0]);
    assert_eq!(applied.bridges["br1"].vlans, BTreeSet::from([10, 20]));
    assert!(applied.bridges.values().all(|bridge| bridge.owned && !bridge.open));
    assert_eq!(applied.bridges["br3"].vlans, BTreeSet::from([10]));
    for (port, wanted) in &full().ports {
        assert_eq!(
            (&applied.ports[port].bridge, &applied.ports[port].vlans),
            (&wanted.bridge, &wanted.vlans)
        );
    }
    let get = |args: &[&str]| database.vsctl(args);
    assert_eq!(get(&["get", "port", "eth1", "trunks", "vlan_mode", "tag"]), "[10, 20]\ntrunk\n[]");
    assert_eq!(get(&["get", "port", "pod1", "trunks", "vlan_mode", "tag"]), "[]\naccess\n10");
    assert_eq!(get(&["get", "port", "pod3", "trunks"]), "[4095]");
    assert_eq!(get(&["get", "port", "enobond0", "bond_mode"]), "active-backup");
    assert_eq!(get(&["list-ports", "br3"]), "br3:br1");
    assert_eq!(get(&["get", "interface", "br1:br3", "options:peer"]), "\"br3:br1\"");
    assert_eq!(get(&["get", "bridge", "br1", "datapath_type", "external_ids"]), "netdev\n{eno-cluster=c1}");

    // A second reconcile writes nothing, also in a new process.
    let before = database.next_cfg().await;
    assert_eq!(ovs.reconcile(&full()).await.unwrap(), applied);
    assert_eq!(database.ovs().reconcile(&full()).await.unwrap(), applied);
    assert_eq!(database.next_cfg().await, before);

    // Changed in place: the rows stay.
    let row = get(&["get", "port", "pod1", "_uuid"]);
    let mut changed = full();
    changed.ports.insert("pod1".into(), access("br2", 99));
    changed.bridges.insert("br1".into(), bridge(&["eth1"], &[]));
    changed.bridges.insert("br2".into(), bridge(&["eth2"], &[30, 31]));
    let applied = ovs.reconcile(&changed).await.unwrap();
    assert_eq!(applied.rejected, []);
    assert_eq!(get(&["port-to-br", "pod1"]), "br2");
    assert_eq!(get(&["get", "port", "pod1", "_uuid"]), row);
    assert_eq!(get(&["get", "port", "eth1", "trunks"]), "[4095]");
    assert_eq!(get(&["get", "port", "eth2", "trunks", "bond_mode"]), "[30, 31]\n[]");
    assert_eq!(applied.bridges["br1"].vlans, BTreeSet::new());

    let applied = ovs.reconcile(&desired()).await.unwrap();
    assert_eq!((applied.bridges.len(), applied.ports.len(), applied.rejected.len()), (0, 0, 0));
    assert_eq!(database.all_rows().await, empty);
}

#[tokio::test]
async fn foreign_bridges_and_ports_stay() {
    let database = Database::start();
    let _switch = FakeSwitch::start(&database);
    database.vsctl(&["add-br", "br1", "--", "set", "bridge", "br1", "other_config:theirs=1"]);
    database.vsctl(&["add-port", "br1", "eth1", "trunks=5,10", "--", "add-port", "br1", "other", "tag=7"]);
    database.vsctl(&["add-br", "br2", "--", "add-port", "br2", "eth2"]);
    database.vsctl(&["add-br", "br3", "--", "add-port", "br3", "eth3", "tag=9"]);
    database.vsctl(&["add-br", "br4", "--", "add-port", "br4", "pod1"]);
    let before = database.all_rows().await;
    let ovs = database.ovs();
    let mut wanted = desired();
    wanted.bridges.insert("br1".into(), bridge(&["eth1"], &[10, 20, 21]));
    wanted.bridges.insert("br2".into(), bridge(&["eth2"], &[10]));
    wanted.bridges.insert("br3".into(), bridge(&["eth3"], &[10]));
    wanted.bridges.insert("br4".into(), bridge(&["eth1"], &[10]));
    wanted.bridges.insert("br5".into(), bridge(&["other"], &[10]));
    wanted.ports.insert("pod1".into(), access("br1", 10));
    wanted.ports.insert("pod2".into(), access("br1", 10));
    wanted.ports.insert("pod3".into(), access("none", 10));
    let applied = ovs.reconcile(&wanted).await.unwrap();
    let get = |args: &[&str]| database.vsctl(args);
    assert_eq!(get(&["get", "port", "eth1", "trunks"]), "[5, 10, 20, 21]");
    assert_eq!(get(&["get", "port", "eth1", "external_ids"]), "{eno-vlans-c1=\"20-21\"}");
    assert_eq!(get(&["get", "port", "eth2", "trunks"]), "[]");
    assert_eq!(applied.bridges["br1"].vlans, BTreeSet::from([10, 20, 21]));
    assert!(!applied.bridges["br1"].owned && !applied.bridges["br1"].open);
    assert!(applied.bridges["br2"].open);
    assert!(applied.notes.iter().any(|note| note.contains("eth2")), "{applied:?}");
    let reasons: Vec<(&Item, &str)> =
        applied.rejected.iter().map(|rejected| (&rejected.item, rejected.reason.as_str())).collect();
    let named = |item: Item, word: &str| {
        let reason =
            reasons.iter().find(|(about, _)| **about == item).unwrap_or_else(|| panic!("{item:?}")).1;
        assert!(reason.contains(word), "{item:?}: {reason}");
    };
    named(Item::Bridge("br3".into()), "no trunk");
    named(Item::Bridge("br4".into()), "as well");
    named(Item::Bridge("br5".into()), "on bridge br1");
    named(Item::Port("pod1".into()), "somebody else");
    named(Item::Port("pod3".into()), "no bridge none");
    assert_eq!(reasons.len(), 5, "{reasons:?}");
    assert!(applied.ports.contains_key("pod2"));

    // With fewer VLANs, only those that ENO added are removed.
    wanted.bridges.insert("br1".into(), bridge(&["eth1"], &[20]));
    ovs.reconcile(&wanted).await.unwrap();
    assert_eq!(get(&["get", "port", "eth1", "trunks"]), "[5, 10, 20]");
    ovs.reconcile(&desired()).await.unwrap();
    assert_eq!(database.all_rows().await, before);
}

#[tokio::test]
async fn emptied_trunks_of_foreign_uplink_are_filled_again() {
    let database = Database::start();
    let _switch = FakeSwitch::start(&database);
    database.vsctl(&["add-br", "br1", "--", "add-port", "br1", "eth1", "trunks=5,10"]);
    let ovs = database.ovs();
    let mut wanted = desired();
    wanted.bridges.insert("br1".into(), bridge(&["eth1"], &[10, 20]));
    ovs.reconcile(&wanted).await.unwrap();
    let trunks = || database.vsctl(&["get", "port", "eth1", "trunks"]);
    assert_eq!(trunks(), "[5, 10, 20]");
    for (vlans, closed) in [(&[10, 20][..], "[10, 20]"), (&[10], "[10]")] {
        database.vsctl(&["clear", "port", "eth1", "trunks"]);
        wanted.bridges.insert("br1".into(), bridge(&["eth1"], vlans));
        let applied = ovs.reconcile(&wanted).await.unwrap();
        assert_eq!(trunks(), closed);
        assert!(!applied.bridges["br1"].open && applied.notes.is_empty(), "{applied:?}");
    }
}

#[tokio::test]
async fn released_foreign_uplink_is_closed_rather_than_open() {
    let database = Database::start();
    let _switch = FakeSwitch::start(&database);
    database.vsctl(&["add-br", "br1", "--", "add-port", "br1", "eth1", "trunks=5"]);
    let ovs = database.ovs();
    let mut wanted = desired();
    wanted.bridges.insert("br1".into(), bridge(&["eth1"], &[10]));
    ovs.reconcile(&wanted).await.unwrap();
    database.vsctl(&["remove", "port", "eth1", "trunks", "5"]);
    ovs.reconcile(&desired()).await.unwrap();
    assert_eq!(database.vsctl(&["get", "port", "eth1", "trunks", "external_ids"]), "[4095]\n{}");
}

#[tokio::test]
async fn unwanted_bridge_stays_while_it_has_foreign_ports() {
    let database = Database::start();
    let _switch = FakeSwitch::start(&database);
    let ovs = database.ovs();
    ovs.reconcile(&full()).await.unwrap();
    database.vsctl(&["add-port", "br1", "vethcni", "--", "set", "port", "vethcni", "external_ids:owner=x"]);
    let applied = ovs.reconcile(&desired()).await.unwrap();
    assert!(applied.notes.iter().any(|note| note.contains("vethcni")), "{applied:?}");
    assert_eq!(database.vsctl(&["list-br"]), "br1");
    assert_eq!(database.vsctl(&["list-ports", "br1"]), "vethcni");
    let mut changed = std::pin::pin!(ovs.changed());
    let gone = tokio::join!(soon("a notification", changed.next()), async {
        database.vsctl(&["del-port", "vethcni"]);
    });
    assert!(gone.0.is_some());
    ovs.reconcile(&desired()).await.unwrap();
    assert_eq!(database.vsctl(&["list-br"]), "");
}

#[tokio::test]
async fn clusters_leave_each_others_bridges_alone() {
    let database = Database::start();
    let _switch = FakeSwitch::start(&database);
    let (a, b) = (database.ovs(), database.ovs());
    a.reconcile(&full()).await.unwrap();
    let there = database.all_rows().await;
    let other = OvsDesired { cluster: "c2".into(), ..desired() };
    b.reconcile(&other).await.unwrap();
    assert_eq!(database.all_rows().await, there);
}

#[tokio::test]
async fn invalid_items_are_rejected_and_valid_ones_are_applied() {
    let database = Database::start();
    let _switch = FakeSwitch::start(&database).without("gone0");
    let mut wanted = desired();
    for name in ["", "a-name-of-16-chr", "sla/sh", "co:lon", ".."] {
        wanted.bridges.insert(name.into(), bridge(&[], &[]));
    }
    wanted.bridges.insert("br1".into(), bridge(&["gone0"], &[10]));
    wanted.bridges.insert("br2".into(), bridge(&["eth2"], &[4095]));
    wanted.bridges.insert("br3".into(), BridgeDesired { patch: Some("br3".into()), ..bridge(&[], &[]) });
    wanted.bridges.insert("br4".into(), BridgeDesired { patch: Some("none".into()), ..bridge(&[], &[]) });
    wanted.ports.insert("pod1".into(), access("br1", 0));
    wanted.ports.insert("pod2".into(), access("br1", 10));
    let applied = database.ovs().reconcile(&wanted).await.unwrap();
    let about = |item: &Item| applied.rejected.iter().filter(|rejected| rejected.item == *item).count();
    for name in wanted.bridges.keys() {
        assert!(about(&Item::Bridge(name.clone())) >= 1, "{name:?}: {applied:?}");
    }
    assert_eq!(about(&Item::Port("pod1".into())), 1);
    assert_eq!(about(&Item::Port("pod2".into())), 0);
    let missing =
        applied.rejected.iter().find(|rejected| rejected.reason.contains("No such device")).unwrap();
    assert!(missing.retryable && missing.reason.contains("gone0"), "{missing:?}");
    assert_eq!(applied.bridges["br1"].vlans, BTreeSet::new());
}

#[tokio::test]
async fn uplink_mtu_is_raised_and_restored() {
    let database = Database::start();
    let switch = FakeSwitch::start(&database);
    let ovs = database.ovs();
    let with = |mtu: Option<u32>| {
        let mut wanted = desired();
        let mut bridge = bridge(&["eth1"], &[10]);
        if let Some(uplink) = &mut bridge.uplink {
            uplink.mtu = mtu;
        }
        wanted.bridges.insert("br1".into(), bridge);
        wanted
    };
    let mtu = |applied: eno_driver_node::ovs::OvsApplied| applied.bridges["br1"].mtu;
    assert_eq!(mtu(ovs.reconcile(&with(Some(1400))).await.unwrap()), Some(1500));
    assert_eq!(database.vsctl(&["get", "interface", "eth1", "mtu_request"]), "[]");
    assert_eq!(mtu(ovs.reconcile(&with(Some(9000))).await.unwrap()), Some(9000));
    assert_eq!(mtu(ovs.reconcile(&with(Some(2000))).await.unwrap()), Some(2000));
    assert_eq!(mtu(ovs.reconcile(&with(None)).await.unwrap()), Some(1500));
    ovs.reconcile(&with(Some(9000))).await.unwrap();
    ovs.reconcile(&desired()).await.unwrap();
    assert_eq!(switch.mtu("eth1"), Some(1500));
    assert_eq!(database.vsctl(&["list-br"]), "");
}

#[tokio::test]
async fn drift_is_notified_and_repaired() {
    let database = Database::start();
    let _switch = FakeSwitch::start(&database);
    let ovs = database.ovs();
    let applied = ovs.reconcile(&full()).await.unwrap();
    let there = database.all_rows().await;
    for by_hand in [
        &["set", "port", "pod1", "tag=99"][..],
        &["clear", "port", "eth1", "trunks"],
        &["clear", "port", "pod2", "vlan_mode"],
        &["remove", "port", "pod1", "external_ids", "eno-id"],
        &["set", "interface", "br1:br3", "options:peer=other"],
        &["set", "bridge", "br1", "datapath_type=system"],
    ] {
        let mut changed = std::pin::pin!(ovs.changed());
        database.vsctl(by_hand);
        assert!(soon("a notification", changed.next()).await.is_some());
        assert_eq!(ovs.reconcile(&full()).await.unwrap(), applied, "{by_hand:?}");
        assert_eq!(database.all_rows().await, there, "{by_hand:?}");
    }
    for by_hand in [&["del-port", "pod1"][..], &["del-br", "br2"], &["del-port", "br3:br1"]] {
        let mut changed = std::pin::pin!(ovs.changed());
        database.vsctl(by_hand);
        assert!(soon("a notification", changed.next()).await.is_some());
        assert_eq!(ovs.reconcile(&full()).await.unwrap(), applied, "{by_hand:?}");
    }
    let changed = ovs.changed();
    drop(ovs);
    assert_eq!(soon("the end", changed.count()).await, 0);
}

#[tokio::test]
async fn reconcile_converges_after_being_dropped_at_any_point() {
    let database = Database::start();
    let _switch = FakeSwitch::start(&database);
    let less = {
        let mut less = full();
        less.bridges.remove("br2");
        less.ports.remove("pod3");
        less.bridges.insert("br1".into(), bridge(&["eth1"], &[20]));
        less
    };
    database.ovs().reconcile(&full()).await.unwrap();
    for polls in 0..40 {
        let ovs = database.ovs();
        let mut left = polls;
        let stop = std::future::poll_fn(|context| {
            left -= 1;
            context.waker().wake_by_ref();
            if left < 0 { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
        });
        tokio::select! {
            biased;
            done = ovs.reconcile(&less) => drop(done),
            () = stop => {}
        }
        drop(ovs);
        let applied = database.ovs().reconcile(&full()).await.unwrap();
        assert_eq!(applied.rejected, [], "after {polls}");
        assert_eq!(applied.bridges.len(), 3);
    }
    database.ovs().reconcile(&less).await.unwrap();
    database.ovs().reconcile(&desired()).await.unwrap();
    assert_eq!(database.all_rows().await, []);
}

#[tokio::test]
async fn ports_added_concurrently_by_others_stay() {
    let database = Database::start();
    let _switch = FakeSwitch::start(&database);
    database.vsctl(&["add-br", "theirs"]);
    let ovs = database.ovs();
    let mut wanted = full();
    wanted.bridges.insert("theirs".into(), bridge(&["eth9"], &[10]));
    ovs.reconcile(&wanted).await.unwrap();
    let client = database.client();
    let others = async {
        for number in 0..60 {
            let name = format!("other{number}");
            for bridge in ["br1", "theirs"] {
                client.transact(DB, &add_foreign(bridge, &format!("{name}{bridge}"))).await.unwrap();
            }
        }
    };
    let us = async {
        for number in 0..30u16 {
            let mut flapping = wanted.clone();
            flapping.bridges.insert("theirs".into(), bridge(&["eth9"], &[number + 1]));
            if number % 2 == 0 {
                flapping.ports.clear();
                flapping.bridges.remove("br1");
                flapping.bridges.remove("br3");
            }
            // A reconcile may lose every race, but only with a retryable error.
            if let Err(error) = ovs.reconcile(&flapping).await {
                assert!(error.retryable(), "{error}");
            }
        }
    };
    // The first foreign port keeps the bridge.
    client.transact(DB, &add_foreign("br1", "first")).await.unwrap();
    tokio::join!(others, us);
    assert_eq!(database.vsctl(&["list-ports", "br1"]).matches("other").count(), 60);
    assert_eq!(database.vsctl(&["list-ports", "theirs"]).matches("other").count(), 60);
}

#[tokio::test]
async fn restart_of_database_is_survived() {
    let mut database = Database::start();
    let _switch = FakeSwitch::start(&database);
    let ovs = database.ovs();
    let applied = ovs.reconcile(&full()).await.unwrap();
    database.kill();
    let error = soon("a failure", ovs.reconcile(&full())).await.unwrap_err();
    assert!(error.retryable());
    assert!(error.to_string().contains(&database.path("db.sock").display().to_string()), "{error}");
    let mut changed = std::pin::pin!(ovs.changed());
    database.resume();
    assert!(soon("a notification of its return", changed.next()).await.is_some());
    // Columns that only the switch writes are restored with a delay.
    let same = async {
        while ovs.reconcile(&full()).await.unwrap() != applied {
            changed.next().await.unwrap();
        }
    };
    soon("the same", same).await;
}

#[tokio::test]
async fn stale_ovs_cni_ports_are_noted_and_kept() {
    let database = Database::start();
    let _switch = FakeSwitch::start(&database).without("vethgone");
    let ovs = database.ovs();
    ovs.reconcile(&full()).await.unwrap();
    let owner = "external_ids:owner=ovs-cni.network.kubevirt.io";
    let mut changed = std::pin::pin!(ovs.changed());
    database.vsctl(&["add-port", "br1", "vethgone", "--", "set", "port", "vethgone", owner]);
    assert!(soon("a notification", changed.next()).await.is_some());
    let note = async {
        loop {
            let applied = ovs.reconcile(&full()).await.unwrap();
            if let Some(note) = applied.notes.into_iter().find(|note| note.contains("No such device")) {
                return note;
            }
            changed.next().await.unwrap();
        }
    };
    assert!(soon("a note", note).await.contains("vethgone"));
    assert!(database.vsctl(&["list-ports", "br1"]).contains("vethgone"));
}

#[tokio::test]
async fn missing_vswitchd_is_a_retryable_error() {
    let database = Database::start();
    let ovs = database.ovs();
    let error =
        tokio::time::timeout(Duration::from_secs(30), ovs.reconcile(&full())).await.unwrap().unwrap_err();
    assert!(error.retryable() && error.to_string().contains("ovs-vswitchd"), "{error}");
    let _switch = FakeSwitch::start(&database);
    assert_eq!(ovs.reconcile(&full()).await.unwrap().rejected, []);
}

#[tokio::test]
async fn hanging_database_is_reported_as_unreachable() {
    let database = Database::start();
    let _switch = FakeSwitch::start(&database);
    let ovs = database.ovs();
    let applied = ovs.reconcile(&full()).await.unwrap();
    database.freeze(true);
    for ovs in [&ovs, &database.ovs()] {
        let error = ovs.reconcile(&full()).await.unwrap_err();
        assert!(error.unreachable() && error.retryable(), "{error}");
    }
    database.freeze(false);
    let back = async {
        while ovs.reconcile(&full()).await.is_err() {
            tokio::task::yield_now().await;
        }
        ovs.reconcile(&full()).await
    };
    assert_eq!(soon("its return", back).await.unwrap(), applied);
}
