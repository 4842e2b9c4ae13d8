//! What another hand changes, and how it is found.

mod common;

use std::time::Duration;

use common::{Bench, on_switch, options, there, work};
use eno_driver_netconf::driver::{NetconfDriver, Options};
use eno_sbi::{Driver as _, Reconciled};
use eno_schemas::{Drift, FabricDesired, Report};
use eno_simulator::{Boot, HandEdit};
use futures::StreamExt as _;

fn drift(reconciled: &Reconciled) -> Vec<&str> {
    let notes = reconciled.notes.iter().filter(|note| note.kind == "Drift");
    notes.map(|note| note.message.as_str()).collect()
}

fn remove(bench: &Bench, vlans: &str) {
    let edit = HandEdit {
        port: Some("Ethernet1".into()),
        remove_vlans: vlans.parse().expect("a set"),
        ..HandEdit::default()
    };
    bench.switch("leaf1").change_by_hand(&edit).expect("an edit");
}

#[tokio::test]
async fn a_device_that_tells_nothing_is_looked_at_now_and_then() {
    let bench = Bench::start(|topology| {
        for switch in &mut topology.switches {
            switch.capabilities.notifications = false;
        }
    })
    .await;
    let audit_interval = Duration::from_millis(200);
    let driver = NetconfDriver::new(Options { audit_interval, ..options(bench.credentials.path()) });
    let desired = bench.desired("leaf1", "100,102", &["Ethernet1"]);
    there(&driver.reconcile(work("leaf1", desired.clone())).await);
    remove(&bench, "100");
    let mut changed = Box::pin(driver.changed());
    assert_eq!(changed.next().await.as_deref(), Some("leaf1"));
    let repaired = driver.reconcile(work("leaf1", desired)).await;
    assert_eq!(drift(&repaired), ["VLAN 100 on Ethernet1 missing"]);
    assert_eq!(on_switch(bench.switch("leaf1"), "Ethernet1").1, "100,102");
    // And again.
    assert_eq!(changed.next().await.as_deref(), Some("leaf1"));
    driver.forget("leaf1").await;
}

#[tokio::test]
async fn a_device_that_lost_its_configuration_gets_it_back() {
    let bench = Bench::start(|topology| {
        for switch in &mut topology.switches {
            (switch.capabilities.startup, switch.capabilities.candidate) = (true, true);
        }
    })
    .await;
    let leaf = bench.switch("leaf1");
    let mut changed = Box::pin(bench.driver.changed());
    let desired = bench.desired("leaf1", "100-170", &["Ethernet1"]);
    there(&bench.settle("leaf1", &desired).await);
    // One that is empty in its place, and one with an old start-up configuration.
    leaf.reboot(Boot::Factory);
    assert_eq!(changed.next().await.as_deref(), Some("leaf1"));
    let back = bench.settle("leaf1", &desired).await;
    assert_eq!(on_switch(leaf, "Ethernet1"), ("100-170".into(), "100-170".into()));
    let told = drift(&back);
    assert_eq!((told.len(), told[0], told[50]), (51, "VLAN 100 missing", "and 93 more differences"));
    let change = back.change.expect("a change");
    assert_eq!((change.added, change.removed, change.transaction), (142, 0, None));
    // Restored from a backup, under way.
    remove(&bench, "110-120");
    assert_eq!(changed.next().await.as_deref(), Some("leaf1"));
    assert_eq!(drift(&bench.settle("leaf1", &desired).await).len(), 11);
    let quiet = bench.reconcile("leaf1", desired).await;
    assert_eq!((drift(&quiet), &quiet.change), (vec![], &None));
}

/// As the host gives it to a new process.
fn report(desired: &FabricDesired, reconciled: &Reconciled) -> Report {
    let command = common::command("leaf1", desired.clone());
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
    }
}

#[tokio::test]
async fn a_new_process_tells_drift_from_work_not_done_yet() {
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
        // It is said for as long as it is so.
        let again = bench.reconcile("leaf1", desired).await;
        assert_eq!(drift(&again).len(), usize::from(mode == Drift::Report), "{again:?}");
    }
}

/// The notes about another cluster with the same identifier.
fn clash(reconciled: &Reconciled) -> Vec<String> {
    let notes = reconciled.notes.iter().filter(|note| note.kind == "ClusterIDClash");
    notes.map(|note| note.item.to_string()).collect()
}

#[tokio::test]
async fn another_cluster_with_the_same_identifier_is_noticed_and_keeps_its_vlans() {
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
    assert_eq!(clash(&last), ["VLAN 200"]);
    // Neither takes out what is the other's any more.
    assert_eq!(clash(&theirs().await), ["VLAN 100"]);
    assert_eq!(drift(&bench.settle("leaf1", &ours).await), [""; 0]);
    let leaf = bench.switch("leaf1");
    assert_eq!(on_switch(leaf, "Ethernet1"), ("100,200".into(), "100".into()));
    assert_eq!(on_switch(leaf, "Ethernet2").1, "200");
    // What it wants is made, and what it no longer wants stays.
    let more = bench.desired("leaf1", "101", &["Ethernet1"]);
    assert_eq!(clash(&bench.settle("leaf1", &more).await), ["VLAN 200"]);
    assert_eq!(on_switch(leaf, "Ethernet1"), ("100-101,200".into(), "100-101".into()));

    // A new process knows it from the report, and goes on once the other cluster has left.
    bench.restart_driver();
    let next = || work("leaf1", ours.clone()).with_reported(Some(report(&ours, &last)));
    assert_eq!(clash(&bench.driver.reconcile(next()).await), ["VLAN 200"]);
    let leaf = bench.switch("leaf1");
    let edit = HandEdit {
        port: Some("Ethernet2".into()),
        remove_vlans: "200".parse().expect("a set"),
        ..HandEdit::default()
    };
    leaf.change_by_hand(&edit).expect("an edit");
    let edit = HandEdit { define_vlans: [(200, "theirs".to_owned())].into(), ..HandEdit::default() };
    leaf.change_by_hand(&edit).expect("an edit");
    let free = bench.settle("leaf1", &ours).await;
    assert_eq!(clash(&free), [""; 0]);
    assert_eq!(on_switch(leaf, "Ethernet1").1, "100");
}

#[tokio::test]
async fn a_vlan_that_was_renamed_is_said_and_not_taken() {
    let bench = Bench::start(|_| ()).await;
    let desired = bench.desired("leaf1", "100,102", &["Ethernet1"]);
    there(&bench.settle("leaf1", &desired).await);
    let edit = HandEdit { define_vlans: [(100, "mine".to_owned())].into(), ..HandEdit::default() };
    bench.switch("leaf1").change_by_hand(&edit).expect("an edit");
    let found = bench.reconcile("leaf1", desired).await;
    assert_eq!(drift(&found), ["VLAN 100 renamed from \"eno-test-100\" to \"mine\""]);
    assert!(found.rejected.iter().any(|rejection| rejection.reason.contains("it is not ours")), "{found:?}");
}

#[tokio::test]
async fn what_ports_list_of_a_vlan_that_somebody_deleted_goes_with_its_network() {
    let bench = Bench::start(|_| ()).await;
    let both = bench.desired("leaf1", "100,102", &["Ethernet1"]);
    let done = bench.settle("leaf1", &both).await;
    let edit = HandEdit { remove_vlans: "100".parse().expect("a set"), ..HandEdit::default() };
    bench.switch("leaf1").change_by_hand(&edit).expect("an edit");
    let listed = || bench.switch("leaf1").view().ports["Ethernet1"].configured.to_string();
    assert_eq!(listed(), "100,102");
    let one = bench.desired("leaf1", "102", &["Ethernet1"]);
    let work = work("leaf1", one).with_reported(Some(report(&both, &done)));
    there(&bench.driver.reconcile(work).await);
    assert_eq!(listed(), "102");
}
