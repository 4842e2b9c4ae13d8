//! Detection and repair of drift.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::time::Duration;

use eno_driver_netconf::driver::{NetconfDriver, Options};
use eno_sbi::{Driver as _, Reconciled, Work};
use eno_schemas::{Applied, Command, Decision, Desired, Device, Drift, FabricDesired, Item, Report, VlanSet};
use eno_simulator::{Boot, Fault, RejectEdit};
use futures::StreamExt as _;

use crate::common::{
    Bench, Part, applied_vlans, defined, failed, items, on_switch, options, removed, rolled_back, trunk, vid,
    with_new_port_memory, with_port_memory, work,
};

fn drift(reconciled: &Reconciled) -> Vec<&str> {
    let notes = reconciled.notes.iter().filter(|note| note.kind == "Drift");
    notes.map(|note| note.message.as_str()).collect()
}

fn remove(bench: &Bench, vlans: &str) {
    bench.edit("leaf1", &removed(Some("Ethernet1"), vlans));
}

#[tokio::test]
async fn device_without_notifications_is_audited_periodically() {
    let bench = Bench::with_capabilities(|capabilities| capabilities.notifications = false).await;
    let audit_interval = Duration::from_millis(200);
    let driver = NetconfDriver::new(Options { audit_interval, ..options(bench.credentials.path()) });
    let desired = bench.desired("leaf1", "100,102", &["Ethernet1"]);
    applied_vlans(&driver.reconcile(work("leaf1", desired.clone())).await);
    remove(&bench, "100");
    let mut changed = Box::pin(driver.changed());
    assert_eq!(changed.next().await.as_deref(), Some("leaf1"));
    let repaired = driver.reconcile(work("leaf1", desired)).await;
    assert_eq!(drift(&repaired), ["VLAN 100 on Ethernet1 missing"]);
    assert_eq!(on_switch(bench.switch("leaf1"), "Ethernet1").1, "100,102");
    // The audit repeats.
    assert_eq!(changed.next().await.as_deref(), Some("leaf1"));
    driver.forget("leaf1").await;
}

#[tokio::test]
async fn audit_interval_change_causes_no_edit() {
    let bench = Bench::start(|topology| {
        for switch in &mut topology.switches {
            switch.capabilities.notifications = switch.name == "leaf2";
        }
    })
    .await;
    let audit_info = |reconciled: &Reconciled| {
        let device = reconciled.device.as_ref().expect("what it says of itself");
        (device.audit_interval, device.change_notifications)
    };
    let mut changed = Box::pin(bench.driver.changed());
    let other = bench.desired("leaf2", "100", &["Ethernet1"]);
    assert_eq!(audit_info(&bench.settle("leaf2", &other).await), (Some(3600), Some(true)));
    let mut desired = bench.desired("leaf1", "100,102", &["Ethernet1"]);
    assert_eq!(audit_info(&bench.settle("leaf1", &desired).await), (Some(3600), Some(false)));
    // The command that changes the interval finds drift too.
    remove(&bench, "102");
    desired.device.audit_interval = NonZeroU32::new(1);
    let repaired = bench.reconcile("leaf1", desired.clone()).await;
    assert_eq!(
        (audit_info(&repaired), drift(&repaired)),
        ((Some(1), Some(false)), vec!["VLAN 102 on Ethernet1 missing"])
    );
    let quiet = bench.reconcile("leaf1", desired.clone()).await;
    desired.device.audit_interval = None;
    let longer = bench.reconcile("leaf1", desired.clone()).await;
    desired.device.audit_interval = NonZeroU32::new(1);
    let again = bench.reconcile("leaf1", desired.clone()).await;
    assert_eq!([&quiet.change, &longer.change, &again.change], [&None, &None, &None]);
    assert_eq!(audit_info(&longer), (Some(3600), Some(false)));
    // The device is audited at its own interval.
    remove(&bench, "100");
    let soon = tokio::time::timeout(Duration::from_mins(1), changed.next()).await;
    assert_eq!(soon.expect("it is read again").as_deref(), Some("leaf1"));
    assert_eq!(drift(&bench.reconcile("leaf1", desired).await), ["VLAN 100 on Ethernet1 missing"]);
}

#[tokio::test]
async fn lost_configuration_is_restored() {
    let bench = Bench::with_capabilities(|capabilities| {
        (capabilities.startup, capabilities.candidate) = (true, true);
    })
    .await;
    let leaf = bench.switch("leaf1");
    let mut changed = Box::pin(bench.driver.changed());
    let desired = bench.desired("leaf1", "100-170", &["Ethernet1"]);
    applied_vlans(&bench.settle("leaf1", &desired).await);
    // The switch boots with the factory configuration.
    leaf.reboot(Boot::Factory);
    assert_eq!(changed.next().await.as_deref(), Some("leaf1"));
    let back = bench.settle("leaf1", &desired).await;
    assert_eq!(on_switch(leaf, "Ethernet1"), ("100-170".into(), "100-170".into()));
    let notes = drift(&back);
    assert_eq!((notes.len(), notes[0], notes[50]), (51, "VLAN 100 missing", "and 93 more differences"));
    let change = back.change.expect("a change");
    assert_eq!((change.added, change.removed, change.transaction), (142, 0, None));
    // A backup is restored while the session is open.
    remove(&bench, "110-120");
    assert_eq!(changed.next().await.as_deref(), Some("leaf1"));
    assert_eq!(drift(&bench.settle("leaf1", &desired).await).len(), 11);
    let quiet = bench.reconcile("leaf1", desired).await;
    assert_eq!((drift(&quiet), &quiet.change), (vec![], &None));
}

/// The last report, as the host gives it to a new process.
fn report(desired: &FabricDesired, reconciled: &Reconciled) -> Report {
    let command = crate::common::command("leaf1", desired.clone());
    Report {
        driver: command.driver,
        target: command.target,
        instance: "before".into(),
        generation: command.generation,
        at: "2020-01-01T00:00:00Z".into(),
        outcome: reconciled.outcome.clone(),
        applied: reconciled.applied.clone(),
        rejected: reconciled.rejected.clone(),
        notes: reconciled.notes.clone(),
        device: None,
        change: None,
        lacking: Vec::new(),
    }
}

#[tokio::test]
async fn new_process_distinguishes_drift_from_pending_changes() {
    for mode in [Drift::Report, Drift::Repair] {
        let mut bench = Bench::start(|_| ()).await;
        let mut desired = bench.desired("leaf1", "100,102", &["Ethernet1", "Ethernet999"]);
        desired.device.drift = mode;
        let done = bench.settle("leaf1", &desired).await;
        assert_eq!(done.rejected.len(), 1, "there is no such port");
        bench.restart_driver();
        remove(&bench, "100");
        let work = work("leaf1", desired.clone()).with_reported(Some(report(&desired, &done)));
        let found = bench.driver.reconcile(work).await;
        assert_eq!(drift(&found), ["VLAN 100 on Ethernet1 missing"]);
        let carried = if mode == Drift::Repair { "100,102" } else { "102" };
        assert_eq!(on_switch(bench.switch("leaf1"), "Ethernet1").1, carried);
        // The note stays while the drift does.
        let again = bench.reconcile("leaf1", desired).await;
        assert_eq!(drift(&again).len(), usize::from(mode == Drift::Report), "{again:?}");
    }
}

#[tokio::test]
async fn own_removal_whose_report_is_lost_is_no_drift() {
    let bench = Bench::start(|_| ()).await;
    let (with, without) =
        (bench.desired("leaf1", "100", &["Ethernet1"]), bench.desired("leaf1", "", &["Ethernet1"]));
    let first = bench.reconcile("leaf1", with.clone()).await;
    let reported = report(&with, &first);
    let mut last = None;
    for (sequence, desired) in [(2, &without), (3, &with)] {
        let command = Command::new("netconf", "leaf1", (1, sequence), Desired::Fabric(desired.clone()));
        let work = Work::alone(command).with_reported(Some(reported.clone()));
        last = Some(bench.driver.reconcile(work).await);
    }
    let last = last.expect("a report");
    assert_eq!((drift(&last), applied_vlans(&last).0), (vec![], "100".into()));
}

#[tokio::test]
async fn cluster_uid_change_causes_no_edit() {
    for restarts in [false, true] {
        let mut bench = Bench::start(|_| ()).await;
        let mut desired = bench.desired("leaf1", "100,102", &["Ethernet1"]);
        desired.device.drift = Drift::Report;
        let done = bench.settle("leaf1", &desired).await;
        if restarts {
            bench.restart_driver();
        }
        remove(&bench, "100");
        let reported = report(&desired, &done);
        desired.cluster_uid = Some("uid".into());
        let work = work("leaf1", desired).with_reported(Some(reported));
        let found = bench.driver.reconcile(work).await;
        assert_eq!((drift(&found), &found.change), (vec!["VLAN 100 on Ethernet1 missing"], &None));
        assert_eq!(on_switch(bench.switch("leaf1"), "Ethernet1").1, "102");
    }
}

/// The items of the notes about a clash of cluster identifiers.
fn clash_note(reconciled: &Reconciled) -> Vec<String> {
    let notes = reconciled.notes.iter().filter(|note| note.kind == "ClusterIDClash");
    notes.map(|note| note.item.to_string()).collect()
}

#[tokio::test]
async fn cluster_id_clash_is_detected_and_foreign_vlans_stay() {
    let mut bench = Bench::start(|_| ()).await;
    let (ours, theirs) =
        (bench.desired("leaf1", "100", &["Ethernet1"]), bench.desired("leaf1", "200", &["Ethernet2"]));
    let other = NetconfDriver::new(options(bench.credentials.path()));
    let theirs = async || other.reconcile(work("leaf1", theirs.clone())).await;
    let mut last = None;
    for _ in 0..3 {
        theirs().await;
        last = Some(bench.settle("leaf1", &ours).await);
    }
    let last = last.expect("a report");
    assert_eq!(clash_note(&last), ["VLAN 200"]);
    // Neither driver removes VLANs of the other any more.
    assert_eq!(clash_note(&theirs().await), ["VLAN 100"]);
    assert_eq!(drift(&bench.settle("leaf1", &ours).await), [""; 0]);
    let leaf = bench.switch("leaf1");
    assert_eq!(on_switch(leaf, "Ethernet1"), ("100,200".into(), "100".into()));
    assert_eq!(on_switch(leaf, "Ethernet2").1, "200");
    // Desired VLANs are created, and VLANs that are not desired any more stay.
    let more = bench.desired("leaf1", "101", &["Ethernet1"]);
    assert_eq!(clash_note(&bench.settle("leaf1", &more).await), ["VLAN 200"]);
    assert_eq!(on_switch(leaf, "Ethernet1"), ("100-101,200".into(), "100-101".into()));

    // A new process knows the clash from the report. Removals go on once the other cluster has left.
    bench.restart_driver();
    let next = || work("leaf1", ours.clone()).with_reported(Some(report(&ours, &last)));
    assert_eq!(clash_note(&bench.driver.reconcile(next()).await), ["VLAN 200"]);
    let leaf = bench.switch("leaf1");
    bench.edit("leaf1", &removed(Some("Ethernet2"), "200"));
    bench.edit("leaf1", &defined(&[(200, "theirs")]));
    let free = bench.settle("leaf1", &ours).await;
    assert_eq!(clash_note(&free), [""; 0]);
    assert_eq!(on_switch(leaf, "Ethernet1").1, "100");
}

#[tokio::test]
async fn renamed_vlan_is_reported_and_not_taken_over() {
    let bench = Bench::start(|_| ()).await;
    let desired = bench.desired("leaf1", "100,102", &["Ethernet1"]);
    applied_vlans(&bench.settle("leaf1", &desired).await);
    bench.edit("leaf1", &defined(&[(100, "mine")]));
    let found = bench.reconcile("leaf1", desired).await;
    assert_eq!(drift(&found), ["VLAN 100 renamed from \"eno-test-100\" to \"mine\""]);
    assert!(found.rejected.iter().any(|rejection| rejection.reason.contains("it is not ours")), "{found:?}");
}

#[tokio::test]
async fn port_entries_of_deleted_vlan_are_removed_with_their_network() {
    let bench = Bench::start(|_| ()).await;
    let both = bench.desired("leaf1", "100,102", &["Ethernet1"]);
    let done = bench.settle("leaf1", &both).await;
    bench.edit("leaf1", &removed(None, "100"));
    let listed = || bench.switch("leaf1").view().ports["Ethernet1"].configured.to_string();
    assert_eq!(listed(), "100,102");
    let one = bench.desired("leaf1", "102", &["Ethernet1"]);
    let work = work("leaf1", one).with_reported(Some(report(&both, &done)));
    applied_vlans(&bench.driver.reconcile(work).await);
    assert_eq!(listed(), "102");
}

/// The ports that the driver reports as trunks with a list.
fn closed(reconciled: &Reconciled) -> Vec<&str> {
    match &reconciled.applied {
        Some(Applied::Fabric { closed: Some(closed), .. }) => closed.iter().map(String::as_str).collect(),
        other => panic!("it is not reported: {other:?}"),
    }
}

fn open_trunks(reconciled: &Reconciled) -> usize {
    reconciled.notes.iter().filter(|note| note.kind == "OpenTrunk").count()
}

const EMPTIED_LIST_MESSAGE: &str = "Ethernet1 carries every VLAN: its list is gone";

#[tokio::test]
async fn trunk_emptied_by_others_gets_its_list_back() {
    for mode in [Drift::Repair, Drift::Report] {
        let bench = Bench::start(|_| ()).await;
        let leaf = bench.switch("leaf1");
        let port = || leaf.view().ports["Ethernet1"].clone();
        let mut desired = bench.desired("leaf1", "100,102", &["Ethernet1", "Ethernet2"]);
        desired.device.drift = mode;
        let done = bench.settle("leaf1", &desired).await;
        assert_eq!(closed(&done), ["Ethernet1", "Ethernet2"]);
        let desired = with_new_port_memory(&desired, &done);
        let quiet = bench.reconcile("leaf1", desired.clone()).await;
        assert_eq!((&quiet.change, closed(&quiet)), (&None, closed(&done)));

        let mut changed = Box::pin(bench.driver.changed());
        remove(&bench, "100,102");
        assert!(port().open_trunk);
        assert_eq!(changed.next().await.as_deref(), Some("leaf1"));
        let found = bench.reconcile("leaf1", desired.clone()).await;
        assert_eq!((drift(&found), open_trunks(&found)), (vec![EMPTIED_LIST_MESSAGE], 0));
        assert_eq!(applied_vlans(&found).1["Ethernet1"], "100,102");
        assert_eq!(closed(&found), closed(&done));
        assert_eq!(port().open_trunk, mode == Drift::Report);
        if mode == Drift::Repair {
            assert_eq!(port().configured.to_string(), "100,102");
        } else {
            // The note stays while the drift does, also after other commands.
            let more = bench.desired("leaf1", "100,102-103", &["Ethernet1", "Ethernet2"]);
            let more =
                FabricDesired { device: desired.device.clone(), ..with_new_port_memory(&more, &found) };
            let found = bench.reconcile("leaf1", more).await;
            assert_eq!((drift(&found), open_trunks(&found)), (vec![EMPTIED_LIST_MESSAGE], 0));
            assert_eq!(on_switch(leaf, "Ethernet2").1, "100,102-103");
            assert!(port().open_trunk);
        }
    }
}

/// A new process knows from the report, or from the command, which trunks had a list.
#[tokio::test]
async fn new_process_restores_list_of_emptied_trunk() {
    let mut bench = Bench::start(|_| ()).await;
    let desired = bench.desired("leaf1", "100,102", &["Ethernet1"]);
    let open = |bench: &Bench| bench.switch("leaf1").view().ports["Ethernet1"].open_trunk;
    let done = bench.settle("leaf1", &desired).await;
    let last = report(&desired, &done);
    let mut older = last.clone();
    if let Some(Applied::Fabric { closed, .. }) = &mut older.applied {
        *closed = None;
    }
    let by_command = with_new_port_memory(&desired, &done);
    for (command, last) in [(&desired, Some(last)), (&desired, Some(older)), (&by_command, None)] {
        bench.restart_driver();
        remove(&bench, "100,102");
        assert!(open(&bench));
        let work = work("leaf1", command.clone()).with_reported(last);
        let found = bench.driver.reconcile(work).await;
        assert_eq!((applied_vlans(&found).1["Ethernet1"].as_str(), open_trunks(&found)), ("100,102", 0));
        assert!(!open(&bench), "{found:?}");
    }
    // Neither report nor command tells of the list.
    bench.restart_driver();
    remove(&bench, "100,102");
    let found = bench.reconcile("leaf1", desired).await;
    assert_eq!((open_trunks(&found), closed(&found)), (1, vec![]));
    assert!(open(&bench));
}

#[tokio::test]
async fn port_memory_ends_with_last_vlan() {
    let bench = Bench::start(|_| ()).await;
    let port = || bench.switch("leaf1").view().ports["Ethernet1"].clone();
    let some = bench.desired("leaf1", "100,102", &["Ethernet1"]);
    let done = bench.settle("leaf1", &some).await;
    remove(&bench, "100,102");
    let none = with_new_port_memory(&bench.desired("leaf1", "", &["Ethernet1"]), &done);
    let ended = bench.settle("leaf1", &none).await;
    assert_eq!(closed(&ended), [""; 0]);
    assert!(port().mode.is_none() && !port().open_trunk, "{:?}", port());
    // From now on the driver must not give it a list.
    bench.edit("leaf1", &trunk("Ethernet1", ""));
    let work = work("leaf1", none.clone()).with_reported(Some(report(&none, &ended)));
    let left = bench.driver.reconcile(work).await;
    assert_eq!((&left.change, closed(&left)), (&None, vec![]));
    let some = bench.settle("leaf1", &some).await;
    assert_eq!((open_trunks(&some), closed(&some)), (1, vec![]));
    assert!(port().open_trunk);
}

#[tokio::test]
async fn rollback_keeps_port_memory() {
    let bench = Bench::start(|_| ()).await;
    let before = bench.settle("leaf1", &bench.desired("leaf1", "100", &["Ethernet1"])).await;
    remove(&bench, "100");
    // Ethernet1 is to get its list back, and Ethernet2 to become a trunk.
    let desired = with_new_port_memory(&bench.desired("leaf1", "100", &["Ethernet1", "Ethernet2"]), &before);
    for decision in [Decision::Abort, Decision::Confirm] {
        let part = Part::new("leaf1", desired.clone(), Duration::from_mins(5));
        let ended = part.hold(&bench.driver, async |_| part.decide(decision)).await;
        let open = bench.switch("leaf1").view().ports["Ethernet1"].open_trunk;
        if decision == Decision::Abort {
            assert!(rolled_back(&ended).contains("aborted") && open);
            assert_eq!(closed(&ended), ["Ethernet1"]);
        } else {
            assert_eq!(applied_vlans(&ended).0, "100");
            assert!(!open);
            assert_eq!(closed(&ended), ["Ethernet1", "Ethernet2"]);
        }
    }
}

/// Reconciles as the host does: with the last report.
async fn next(bench: &Bench, desired: &FabricDesired, last: &mut Option<Report>) -> Reconciled {
    let work = work("leaf1", desired.clone()).with_reported(last.clone());
    let done = bench.driver.reconcile(work).await;
    *last = Some(report(desired, &done));
    done
}

/// Without repair, what others removed stays removed also when the command changes.
#[tokio::test]
async fn reported_drift_stays_after_other_commands() {
    for restarts in [false, true] {
        let mut bench = Bench::start(|_| ()).await;
        let mut last = None;
        let state = |bench: &Bench, vlans: &str, drift| {
            let mut desired = bench.desired("leaf1", vlans, &["Ethernet1", "Ethernet2"]);
            desired.device.drift = drift;
            desired
        };
        next(&bench, &state(&bench, "100-103", Drift::Report), &mut last).await;
        remove(&bench, "100");
        bench.edit("leaf1", &removed(None, "101"));
        let notes = ["VLAN 101 missing", "VLAN 100 on Ethernet1 missing"];
        let found = next(&bench, &state(&bench, "100-103", Drift::Report), &mut last).await;
        assert_eq!((drift(&found), &found.change), (notes.to_vec(), &None));
        if restarts {
            bench.restart_driver();
        }
        // One VLAN more, and one less.
        let more = next(&bench, &state(&bench, "100-102,104", Drift::Report), &mut last).await;
        assert_eq!((drift(&more), &more.rejected), (notes.to_vec(), &vec![]), "restarts: {restarts}");
        let leaf = bench.switch("leaf1");
        assert_eq!(on_switch(leaf, "Ethernet1").0, "100,102,104");
        let carried = |port: &str| leaf.view().ports[port].configured.to_string();
        assert_eq!([carried("Ethernet1"), carried("Ethernet2")], ["101-102,104", "100-102,104"]);
        let again = next(&bench, &state(&bench, "100-102,104", Drift::Report), &mut last).await;
        assert_eq!((drift(&again), &again.change), (notes.to_vec(), &None));
        let repaired = next(&bench, &state(&bench, "100-102,104", Drift::Repair), &mut last).await;
        assert_eq!(applied_vlans(&repaired).1["Ethernet1"], "100-102,104");
        assert_eq!(on_switch(leaf, "Ethernet1"), ("100-102,104".into(), "100-102,104".into()));
    }
}

/// A change that nobody announced is found by the command that follows it.
#[tokio::test]
async fn drift_before_another_command_is_not_repaired() {
    let bench = Bench::with_capabilities(|capabilities| capabilities.notifications = false).await;
    let mut last = None;
    let state = |vlans: &str| {
        let mut desired = bench.desired("leaf1", vlans, &["Ethernet1"]);
        desired.device.drift = Drift::Report;
        desired
    };
    next(&bench, &state("100-101"), &mut last).await;
    remove(&bench, "100");
    let more = next(&bench, &state("100-102"), &mut last).await;
    assert_eq!(drift(&more), ["VLAN 100 on Ethernet1 missing"]);
    assert_eq!(on_switch(bench.switch("leaf1"), "Ethernet1"), ("100-102".into(), "101-102".into()));
    // Another device at another address has nothing yet, which is no drift.
    let mut other = state("100-103");
    other.device = Device { drift: Drift::Report, ..bench.device("leaf2") };
    let made = next(&bench, &other, &mut last).await;
    assert_eq!((drift(&made), applied_vlans(&made).1["Ethernet1"].as_str()), (vec![], "100-103"));
}

#[tokio::test]
async fn port_entries_of_deleted_vlan_stay_ours_while_drift_is_reported() {
    for (keeps, restarts) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut bench = Bench::start(|_| ()).await;
        let ports = ["Ethernet1", "Ethernet2"];
        let mut last = None;
        let mut both = bench.desired("leaf1", "100,102", &ports);
        both.device.drift = Drift::Report;
        next(&bench, &both, &mut last).await;
        bench.edit("leaf1", &removed(None, "100"));
        for _ in 0..2 {
            assert_eq!(drift(&next(&bench, &both, &mut last).await), ["VLAN 100 missing"]);
        }
        // A failure is no reason to forget it.
        bench.switch("leaf1").inject(Fault::LockDenied { times: None });
        let mut other = bench.desired("leaf1", "100,102-103", &ports);
        other.device.drift = Drift::Report;
        let before = last.clone();
        failed(&next(&bench, &other, &mut last).await);
        bench.switch("leaf1").inject(Fault::Clear {});
        if restarts {
            last = before;
            bench.restart_driver();
        }
        both.device.drift = Drift::Repair;
        if keeps {
            let repaired = next(&bench, &both, &mut last).await;
            both = with_new_port_memory(&both, &repaired);
        }
        let mut none = with_port_memory(bench.desired("leaf1", "", &ports), last_applied(last.as_ref()));
        none.device.drift = Drift::Repair;
        let gone = next(&bench, &none, &mut last).await;
        assert_eq!(applied_vlans(&gone), (String::new(), [].into()));
        let view = bench.switch("leaf1").view();
        let listed = ports.map(|port| view.ports[port].configured.to_string());
        assert_eq!(listed, ["", ""], "keeps: {keeps}, restarts: {restarts}");
        assert!(view.vlans.is_empty() && both.vlans.len() == 2);
    }
}

/// The applied state of a report; nothing after a failure.
fn last_applied(last: Option<&Report>) -> &Applied {
    static NOTHING: Applied = Applied::Fabric {
        vlans: VlanSet::EMPTY,
        ports: BTreeMap::new(),
        carried: BTreeMap::new(),
        closed: Some(BTreeSet::new()),
        before: BTreeMap::new(),
        vrfs: BTreeSet::new(),
        routed: VlanSet::EMPTY,
        lookup: None,
        bgp: BTreeMap::new(),
    };
    last.and_then(|last| last.applied.as_ref()).unwrap_or(&NOTHING)
}

/// A port of which every VLAN was refused never was a trunk.
#[tokio::test]
async fn refused_vlans_are_no_drift() {
    for mode in [Drift::Report, Drift::Repair] {
        let bench = Bench::start(|_| ()).await;
        let leaf = bench.switch("leaf1");
        let mut last = None;
        leaf.inject(Fault::RejectEdit(RejectEdit { vlan: Some(100), ..RejectEdit::default() }));
        let mut desired =
            bench.desired_ports("leaf1", "100,102", &[("Ethernet1", "100"), ("Ethernet2", "102")]);
        desired.device.drift = mode;
        for _ in 0..3 {
            let done = next(&bench, &desired, &mut last).await;
            assert_eq!(drift(&done), [""; 0]);
            assert_eq!(items(&done), [Item::vlan(vid(100))].into());
        }
        // The refusal does not vanish beside drift elsewhere.
        bench.edit("leaf1", &removed(None, "102"));
        let found = next(&bench, &desired, &mut last).await;
        assert_eq!(drift(&found), ["VLAN 102 missing"]);
        assert_eq!(items(&found), [Item::vlan(vid(100))].into());
    }
}
