//! Changes of a switch, VLAN ownership on ports, and drift.

use std::time::{Duration, Instant};

use eno_conformance::soon;
use eno_sbi::{Driver as _, Reconciled};
use eno_schemas::{Applied, Drift, Item, NO_MAC_TABLE, Outcome, PortMode, Rollback, VlanId};
use futures::StreamExt as _;

use crate::switch::fixture::{Switch, TARGET, applied, on, reconcile};

fn rejection(reconciled: &Reconciled, item: &Item) -> String {
    let found = reconciled.rejected.iter().find(|rejection| rejection.item == *item);
    found.unwrap_or_else(|| panic!("{item} is not rejected: {reconciled:?}")).reason.to_string()
}

fn notes<'a>(reconciled: &'a Reconciled, kind: &str) -> Vec<&'a str> {
    reconciled.notes.iter().filter(|note| note.kind == kind).map(|note| note.message.as_str()).collect()
}

#[tokio::test]
async fn report_matches_switch_state() {
    let switch = Switch::start();
    let driver = switch.driver();
    let before = ["p3", "p4", "br-fabric"].map(|port| switch.settings(port));
    let done = reconcile(&driver, &switch.desired(&[("p1", "10-12"), ("p2", "10"), ("p4", "10")])).await;
    assert_eq!(applied(&done), on(&[("p1", "10-12"), ("p2", "10"), ("p4", "10")]));
    assert!(done.rejected.is_empty(), "{done:?}");
    assert_eq!(notes(&done, "OpenTrunk").len(), 1, "{done:?}");
    let device = done.device.unwrap();
    assert_eq!(device.model.as_deref(), Some("Open vSwitch 3.1.0"));
    assert_eq!(device.rollback, Some(Rollback::None));
    let change = done.change.unwrap();
    assert_eq!((change.added, change.removed), (4, 0));
    let Some(Applied::Fabric { vlans, carried, .. }) = done.applied else { unreachable!() };
    assert_eq!(vlans.to_string(), "10-12");
    assert_eq!(carried["p1"].tagged.to_string(), "5,10-12");
    assert!(carried["p4"].open && !carried["p1"].open);
    assert_eq!(switch.trunks("p1"), [5, 10, 11, 12]);
    assert_eq!(switch.trunks("p2"), [10, 4095]);
    assert_eq!(["p3", "p4", "br-fabric"].map(|port| switch.settings(port)), before);

    let done = reconcile(&driver, &switch.desired(&[("p1", ""), ("p2", ""), ("p4", "")])).await;
    assert_eq!(applied(&done), on(&[]));
    assert_eq!(switch.trunks("p1"), [5]);
    assert_eq!(switch.trunks("p2"), [4095]);
    assert_eq!(switch.get("p1", "external_ids"), "{}");
    assert_eq!(["p3", "p4", "br-fabric"].map(|port| switch.settings(port)), before);
}

/// OVSDB has no MAC tables.
#[tokio::test]
async fn lookup_is_answered_without_stations() {
    let switch = Switch::start();
    let driver = switch.driver();
    let mut desired = switch.desired(&[("p1", "10")]);
    let unasked = reconcile(&driver, &desired).await;
    assert!(matches!(unasked.applied, Some(Applied::Fabric { lookup: None, .. })), "{unasked:?}");
    assert_eq!(notes(&unasked, NO_MAC_TABLE), [""; 0]);
    desired.lookup = Some("r1".into());
    let asked = reconcile(&driver, &desired).await;
    assert_eq!(applied(&asked), on(&[("p1", "10")]));
    assert_eq!((asked.change.is_none(), notes(&asked, "Drift").len()), (true, 0), "{asked:?}");
    let Some(Applied::Fabric { lookup: Some(lookup), .. }) = &asked.applied else { panic!("{asked:?}") };
    assert_eq!((&*lookup.revision, lookup.stations.len()), ("r1", 0));
    assert_eq!(notes(&asked, NO_MAC_TABLE), ["the driver ovs-fabric reads no MAC tables"]);
}

#[tokio::test]
async fn access_port_is_converted_only_with_permission_and_restored() {
    let switch = Switch::start();
    let driver = switch.driver();
    let before = switch.settings("p3");
    let mut desired = switch.desired(&[("p3", "10")]);
    let done = reconcile(&driver, &desired).await;
    assert_eq!(applied(&done), on(&[]));
    assert!(rejection(&done, &Item::port("p3")).contains("Mode: trunk"), "{done:?}");
    assert_eq!(switch.settings("p3"), before);

    desired.ports[0].mode = PortMode::Trunk;
    let done = reconcile(&driver, &desired).await;
    assert_eq!(applied(&done), on(&[("p3", "10")]));
    assert_eq!((switch.trunks("p3"), switch.get("p3", "vlan_mode")), (vec![10], "trunk".into()));

    let mut desired = switch.desired(&[("p3", "")]);
    desired.ports[0].mode = PortMode::Trunk;
    assert_eq!(applied(&reconcile(&driver, &desired).await), on(&[]));
    assert_eq!(switch.settings("p3"), before);
}

#[tokio::test]
async fn bond_is_found_by_its_member_interfaces() {
    let switch = Switch::start();
    switch.vsctl_and_wait("add-bond br-fabric bond0 e1 e2 -- set Port bond0 trunks=7");
    let driver = switch.driver();
    let mut desired = switch.desired(&[("e1", "10"), ("e2", "11"), ("p1", "12")]);
    desired.ports[1].lag = Some("bond0".into());
    let done = reconcile(&driver, &desired).await;
    assert_eq!(applied(&done), on(&[("e1", "10-11"), ("e2", "10-11"), ("p1", "12")]));
    assert_eq!(switch.trunks("bond0"), [7, 10, 11]);

    // A bond member without desired VLANs reports none; the VLANs of the other members are reported there.
    let mut without = switch.desired(&[("e1", "10"), ("e2 (leaving)", ""), ("p1", "12")]);
    without.ports[1].lag = Some("e2".into());
    assert_eq!(applied(&reconcile(&driver, &without).await), on(&[("e1", "10"), ("p1", "12")]));
    assert_eq!(switch.trunks("bond0"), [7, 10]);

    desired.ports[2].lag = Some("bond0".into());
    desired.ports[1].lag = Some("bond1".into());
    let done = reconcile(&driver, &desired).await;
    assert!(rejection(&done, &Item::port("p1")).contains("is a member of port p1, not of bond0"), "{done:?}");
    assert!(rejection(&done, &Item::port("e2")).contains("bond1"), "{done:?}");
}

#[tokio::test]
async fn foreign_vlans_are_refused_until_adopted() {
    let switch = Switch::start();
    let driver = switch.driver();
    let mut desired = switch.desired(&[("p1", "5-7"), ("p2", "5")]);
    let vlan = |id| VlanId::new(id).unwrap();
    let done = reconcile(&driver, &desired).await;
    assert_eq!(applied(&done), on(&[("p1", "7")]));
    assert!(rejection(&done, &Item::port_vlan("p1", vlan(5))).contains("(port p1)"), "{done:?}");
    assert!(rejection(&done, &Item::port_vlan("p2", vlan(5))).contains("(port p1)"), "{done:?}");
    assert!(rejection(&done, &Item::port_vlan("p1", vlan(6))).contains("(port p3)"), "{done:?}");

    desired.device.adopt = "5".parse().unwrap();
    let done = reconcile(&driver, &desired).await;
    assert_eq!(applied(&done), on(&[("p1", "5,7"), ("p2", "5")]));

    // VLANs of another cluster can't be adopted.
    let mut other = switch.desired(&[("p2", "7-8")]);
    other.cluster = "c2".into();
    other.device.adopt = "7".parse().unwrap();
    let done = reconcile(&switch.driver(), &other).await;
    assert_eq!(applied(&done), on(&[("p2", "8")]));
    assert!(rejection(&done, &Item::port_vlan("p2", vlan(7))).contains("cluster c1"), "{done:?}");

    // Adopted VLANs are ours, and are removed.
    let done = reconcile(&driver, &switch.desired(&[("p1", ""), ("p2", "")])).await;
    assert_eq!(applied(&done), on(&[]));
    assert_eq!((switch.trunks("p1"), switch.trunks("p2")), (vec![4095], vec![8, 4095]));
}

#[tokio::test]
async fn drift_is_detected_immediately_and_repaired() {
    let switch = Switch::start();
    let driver = switch.driver();
    let mut changed = Box::pin(driver.changed());
    let desired = switch.desired(&[("p1", "10-11"), ("p2", "")]);
    applied(&reconcile(&driver, &desired).await);

    // External changes of foreign configuration are not notified.
    switch.vsctl("set Port p3 tag=9 -- set Port p4 other_config:a=b");
    let began = Instant::now();
    switch.vsctl("remove Port p1 trunks 10");
    assert_eq!(soon("notification of drift", changed.next()).await.as_deref(), Some(TARGET));
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    let done = reconcile(&driver, &desired).await;
    assert_eq!(applied(&done), on(&[("p1", "10-11")]));
    assert_eq!(
        notes(&done, "Drift"),
        ["port p1 was changed by another hand: it had lost VLANs 10"],
        "{done:?}"
    );

    // The next process detects it, too.
    switch.vsctl("remove Port p1 trunks 11");
    let done = reconcile(&switch.driver(), &desired).await;
    assert_eq!(notes(&done, "Drift").len(), 1, "{done:?}");
    assert_eq!(switch.trunks("p1"), [5, 10, 11]);

    soon("notification of drift", changed.next()).await;
    applied(&reconcile(&driver, &desired).await);
    switch.vsctl("add Port p2 trunks 11");
    soon("notification of drift", changed.next()).await;
    let done = reconcile(&driver, &desired).await;
    assert_eq!(notes(&done, "Drift"), ["port p2 was changed by another hand: it carried VLANs 11 again"]);
    assert_eq!(switch.trunks("p2"), [4095]);
}

#[tokio::test]
async fn drift_report_mode_leaves_drift_in_place() {
    let switch = Switch::start();
    let mut desired = switch.desired(&[("p1", "10-11"), ("p2", "")]);
    desired.device.drift = Drift::Report;
    let driver = switch.driver();
    applied(&reconcile(&driver, &desired).await);
    switch.vsctl("remove Port p1 trunks 10 -- add Port p2 trunks 11");
    let writes = switch.next_cfg();
    for _ in 0..2 {
        let done = reconcile(&driver, &desired).await;
        assert_eq!(applied(&done), on(&[("p1", "11"), ("p2", "11")]));
        assert_eq!(
            notes(&done, "Drift"),
            [
                "port p1 was changed by another hand: it had lost VLANs 10",
                "port p2 was changed by another hand: it carried VLANs 11 again"
            ],
            "{done:?}"
        );
    }
    // The next process knows the removed VLANs, too, and they stay removed when other VLANs become desired.
    desired.ports[0].vlans.insert(VlanId::new(12).unwrap());
    let done = reconcile(&switch.driver(), &desired).await;
    assert_eq!(applied(&done)["p1"], "11-12");
    assert_eq!(notes(&done, "Drift").len(), 1, "{done:?}");
    assert_eq!(switch.trunks("p1"), [5, 11, 12]);
    assert_eq!(switch.next_cfg(), writes + 1);

    desired.device.drift = Drift::Repair;
    assert_eq!(applied(&reconcile(&driver, &desired).await), on(&[("p1", "10-12")]));
}

/// A command that is applied in part is no drift of the one before it.
#[tokio::test]
async fn return_to_an_earlier_state_is_no_drift() {
    let switch = Switch::start();
    let with_report = |ports: &[(&str, &str)]| {
        let mut desired = switch.desired(ports);
        desired.device.drift = Drift::Report;
        desired
    };
    let first = with_report(&[("p1", "10"), ("p2", "")]);
    let driver = switch.driver();
    applied(&reconcile(&driver, &first).await);
    // VLAN 6 is foreign.
    let partly = reconcile(&driver, &with_report(&[("p1", "10-11"), ("p2", "6")])).await;
    assert_eq!((partly.rejected.len(), switch.trunks("p1")), (1, vec![5, 10, 11]));
    let back = reconcile(&driver, &first).await;
    assert!(notes(&back, "Drift").is_empty(), "{back:?}");
    assert_eq!(switch.trunks("p1"), [5, 10]);
}

#[tokio::test]
async fn externally_emptied_trunk_is_closed_again() {
    let switch = Switch::start();
    let mut desired = switch.desired(&[("p2", "10-11"), ("p4", "10")]);
    desired.device.drift = Drift::Report;
    applied(&reconcile(&switch.driver(), &desired).await);
    switch.vsctl("clear Port p2 trunks");
    let emptied =
        ["port p2 was changed by another hand: its trunks were emptied, so that it carries every VLAN"];
    let done = reconcile(&switch.driver(), &desired).await;
    assert_eq!(applied(&done), on(&[("p2", "10-11"), ("p4", "10")]));
    assert_eq!((notes(&done, "Drift"), switch.trunks("p2")), (emptied.into(), vec![]));
    // p4 never had a list.
    assert!(notes(&done, "OpenTrunk").len() == 1 && done.notes.len() == 2, "{done:?}");

    desired.device.drift = Drift::Repair;
    let done = reconcile(&switch.driver(), &desired).await;
    assert_eq!((notes(&done, "Drift"), switch.trunks("p2")), (emptied.into(), vec![10, 11]));
    assert!(switch.trunks("p4").is_empty());
    switch.vsctl("clear Port p2 trunks");
    let done = reconcile(&switch.driver(), &switch.desired(&[("p2", ""), ("p4", "10")])).await;
    assert_eq!((applied(&done), switch.trunks("p2")), (on(&[("p4", "10")]), vec![4095]));
}

#[tokio::test]
async fn unsupported_requests_are_rejected_with_a_reason() {
    let mut switch = Switch::start();
    // A patch port without a peer.
    switch.vsctl("add-port br-fabric broken trunks=4095 -- set Interface broken type=patch");
    let driver = switch.driver();
    let mut changed = Box::pin(driver.changed());
    let desired = switch.desired(&[("broken", "10"), ("gone", "10"), ("p1", "10"), ("tunnel", "10")]);
    switch.vsctl("add-port br-fabric tunnel tag=8 vlan_mode=dot1q-tunnel");
    let done = reconcile(&driver, &desired).await;
    assert_eq!(applied(&done), on(&[("p1", "10")]));
    assert!(rejection(&done, &Item::port("broken")).contains("could not open"), "{done:?}");
    assert!(rejection(&done, &Item::port("gone")).contains("gone"), "{done:?}");
    assert!(rejection(&done, &Item::port("tunnel")).contains("dot1q-tunnel"), "{done:?}");

    switch.vsctl("add-port br-fabric gone trunks=4095 -- del-port tunnel -- del-port broken");
    soon("notification of the port", changed.next()).await;
    assert_eq!(applied(&reconcile(&driver, &desired).await), on(&[("gone", "10"), ("p1", "10")]));

    switch.stop_daemon();
    let limits = eno_driver_ovs_fabric::device::Limits {
        apply: Duration::from_millis(300),
        ..eno_driver_ovs_fabric::device::Limits::default()
    };
    let hasty = eno_driver_ovs_fabric::driver::OvsFabricDriver::new(eno_driver_ovs_fabric::driver::Options {
        limits,
        ..Default::default()
    });
    let desired = switch.desired(&[("p1", "11")]);
    let Outcome::Failed(failure) = reconcile(&hasty, &desired).await.outcome else {
        panic!("it is not there")
    };
    assert!(failure.unreachable && failure.retryable, "{failure:?}");
    assert!(failure.reason.contains("ovs-vswitchd"), "{failure:?}");
    switch.start_daemon();
    assert_eq!(applied(&reconcile(&driver, &desired).await), on(&[("p1", "11")]));
}

#[tokio::test]
async fn thousand_vlans_on_fifty_ports_take_one_transaction() {
    let switch = Switch::start();
    let names: Vec<String> = (100..150).map(|number| format!("q{number}")).collect();
    let added: Vec<String> =
        names.iter().map(|name| format!("add-port br-fabric {name} trunks=4095")).collect();
    switch.vsctl_and_wait(&added.join(" -- "));
    let wanted: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "1000-1999")).collect();
    let (driver, writes) = (switch.driver(), switch.next_cfg());
    let done = reconcile(&driver, &switch.desired(&wanted)).await;
    assert_eq!(applied(&done), on(&wanted));
    assert_eq!(done.change.unwrap().added, 50_000);
    assert_eq!(switch.next_cfg(), writes + 1);
    let nothing: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "")).collect();
    assert_eq!(applied(&reconcile(&driver, &switch.desired(&nothing)).await), on(&[]));
    assert_eq!(switch.trunks("q100"), [4095]);
}

#[tokio::test]
async fn concurrent_clusters_never_share_a_vlan() {
    let switch = Switch::start();
    let mut one = switch.desired(&[("p1", "100-199")]);
    let mut other = switch.desired(&[("p2", "150-249")]);
    (one.cluster, other.cluster) = ("c1".into(), "c2".into());
    let (first, second) = (switch.driver(), switch.driver());
    let (one, other) = tokio::join!(reconcile(&first, &one), reconcile(&second, &other));
    let (one, other) = (applied(&one), applied(&other));
    let both = ["100-149", "150-199", "200-249"].map(|range| range.parse::<eno_schemas::VlanSet>().unwrap());
    let (one, other): (eno_schemas::VlanSet, eno_schemas::VlanSet) =
        (one["p1"].parse().unwrap(), other["p2"].parse().unwrap());
    assert!(one.intersection(&other).is_empty(), "{one} and {other}");
    assert!(both.iter().all(|range| range.is_subset(&one.union(&other))), "{one} and {other}");
}
