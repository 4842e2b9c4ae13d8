//! Partial reads: a change reads only the VLANs and ports that it affects, and misses no foreign change.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use eno_driver_netconf::dialect::DIALECTS;
use eno_driver_netconf::plan::{Baseline, ObservedConfig, ObservedPort, ObservedVlans, Unsettled};
use eno_driver_netconf::transaction::RunContext;
use eno_sbi::{Driver as _, Reconciled};
use eno_schemas::FabricDesired;
use futures::StreamExt as _;

use crate::common::{
    Bench, TappedSession, applied_vlans, defined, on_switch, removed, run_transaction, trunk, work,
};

/// A session with leaf1 that records the replies.
struct RecordingSession {
    session: TappedSession,
    replies: Arc<Mutex<Vec<String>>>,
}

impl RecordingSession {
    async fn connect(bench: &Bench) -> Self {
        let replies = Arc::new(Mutex::new(Vec::new()));
        let tap = {
            let replies = Arc::clone(&replies);
            Arc::new(move |reply: String| {
                replies.lock().unwrap().push(reply.clone());
                reply
            })
        };
        Self { session: TappedSession { session: bench.connect().await, tap }, replies }
    }

    /// Runs a transaction. Returns its report, what it read at last, and the replies.
    async fn run(
        &self,
        desired: &FabricDesired,
        baseline: Option<&Baseline>,
    ) -> (Reconciled, Baseline, Vec<String>) {
        self.replies.lock().unwrap().clear();
        let context =
            RunContext { verified_other_command: baseline.is_some(), baseline, ..RunContext::default() };
        let work = work("leaf1", desired.clone());
        let (report, read) = run_transaction(&self.session, DIALECTS, &work, desired, context).await;
        let (report, read) = (report.expect("it runs"), read.expect("something was read"));
        (report, read, std::mem::take(&mut self.replies.lock().unwrap()))
    }
}

fn longest(replies: &[String]) -> usize {
    replies.iter().map(String::len).max().unwrap_or_default()
}

/// All that a baseline knows.
fn all(baseline: &Baseline) -> (ObservedVlans, BTreeMap<String, ObservedPort>) {
    let mut observed = ObservedConfig::default();
    baseline.complete(&mut observed, &Unsettled::default());
    (observed.vlans, observed.ports)
}

#[tokio::test]
async fn change_reads_only_affected_vlans() {
    let bench = Bench::start(|_| ()).await;
    let leaf = bench.switch("leaf1");
    bench.edit("leaf1", &defined(&[(50, "users"), (1001, "printers")]));
    let session = RecordingSession::connect(&bench).await;
    let (first, baseline, whole) =
        session.run(&bench.desired("leaf1", "100-999", &["Ethernet1", "Ethernet2"]), None).await;
    assert_eq!(applied_vlans(&first).0, "100-999");
    assert!(longest(&whole) > 100_000, "{}", longest(&whole));

    // One VLAN more, one less, and a foreign one: the report is that of a complete read.
    let desired = bench.desired("leaf1", "101-1001", &["Ethernet1", "Ethernet2"]);
    let (part, kept, replies) = session.run(&desired, Some(&baseline)).await;
    assert!(longest(&replies) < 5_000, "{}", longest(&replies));
    assert_eq!(applied_vlans(&part).0, "101-1000");
    assert_eq!(on_switch(leaf, "Ethernet1"), ("101-1000".into(), "101-1000".into()));
    assert_eq!(part.rejected.len(), 1, "{:?}", part.rejected);
    let (again, read, _) = session.run(&desired, None).await;
    assert_eq!((&again.applied, &again.rejected), (&part.applied, &part.rejected));
    assert_eq!(all(&kept), all(&read));
}

#[tokio::test]
async fn change_reads_only_affected_ports() {
    let bench = Bench::start(|_| ()).await;
    let leaf = bench.switch("leaf1");
    let session = RecordingSession::connect(&bench).await;
    let on = |vlans: &str, second: &str| {
        bench.desired_ports("leaf1", vlans, &[("Ethernet1", "100-110"), ("Ethernet2", second)])
    };
    let (_, baseline, _) = session.run(&on("100-110", "100"), None).await;
    let (part, kept, replies) = session.run(&on("100-111", "100,111"), Some(&baseline)).await;
    assert!(replies.iter().all(|reply| !reply.contains("Ethernet1")), "{replies:?}");
    assert!(replies.iter().any(|reply| reply.contains("Ethernet2")), "{replies:?}");
    assert_eq!(on_switch(leaf, "Ethernet2"), ("100-111".into(), "100,111".into()));
    let (again, read, _) = session.run(&on("100-111", "100,111"), None).await;
    assert_eq!((&again.applied, &again.rejected, &again.change), (&part.applied, &part.rejected, &None));
    assert_eq!(all(&kept), all(&read));
}

/// Another one deletes his VLAN, so it can be ours. A port lists it, which the baseline leaves as it is.
#[tokio::test]
async fn foreign_change_since_the_baseline_makes_the_change_read_all() {
    let bench = Bench::start(|_| ()).await;
    let leaf = bench.switch("leaf1");
    bench.edit("leaf1", &defined(&[(200, "users")]));
    bench.edit("leaf1", &trunk("Ethernet1", "200"));
    let session = RecordingSession::connect(&bench).await;
    let on =
        |second: &str| bench.desired_ports("leaf1", "100", &[("Ethernet1", "100"), ("Ethernet2", second)]);
    let (_, baseline, _) = session.run(&on("100"), None).await;
    assert_eq!(on_switch(leaf, "Ethernet1").1, "100,200");
    bench.edit("leaf1", &removed(None, "200"));
    let (part, _, replies) = session.run(&on("100,200"), Some(&baseline)).await;
    assert!(replies.iter().any(|reply| reply.contains("Ethernet1")), "{replies:?}");
    assert_eq!(applied_vlans(&part).0, "100,200");
    assert_eq!(on_switch(leaf, "Ethernet1"), ("100,200".into(), "100".into()));
    assert_eq!(on_switch(leaf, "Ethernet2"), ("100,200".into(), "100,200".into()));
}

/// A change of another hand on a port that the command leaves as it is: that is drift, and is noted.
#[tokio::test]
async fn foreign_change_of_a_port_that_is_not_read_is_drift() {
    let bench = Bench::start(|_| ()).await;
    let leaf = bench.switch("leaf1");
    let mut changed = Box::pin(bench.driver.changed());
    let on = |second: &str| {
        bench.desired_ports("leaf1", "100-101", &[("Ethernet1", "100-101"), ("Ethernet2", second)])
    };
    let work = |second: &str| work("leaf1", on(second));
    applied_vlans(&bench.driver.reconcile(work("")).await);
    applied_vlans(&bench.driver.reconcile(work("100")).await);
    bench.edit("leaf1", &removed(Some("Ethernet1"), "101"));
    assert_eq!(changed.next().await.as_deref(), Some("leaf1"));
    // The notification comes before the next command, so that command reads all.
    let (_, ports) = applied_vlans(&bench.driver.reconcile(work("100-101")).await);
    assert_eq!(ports["Ethernet1"], "100-101");
    // It comes after the change, so the port is repaired when the driver reads again.
    applied_vlans(&bench.driver.reconcile(work("100")).await);
    bench.edit("leaf1", &removed(Some("Ethernet1"), "101"));
    assert_eq!(changed.next().await.as_deref(), Some("leaf1"));
    let again = bench.driver.reconcile(work("100")).await;
    assert!(again.notes.iter().any(|note| note.kind == "Drift"), "{:?}", again.notes);
    assert_eq!(on_switch(leaf, "Ethernet1").1, "100-101");
}

#[tokio::test]
async fn concurrent_foreign_change_is_detected() {
    let bench = Bench::start(|_| ()).await;
    let leaf = bench.switch("leaf1");
    let mut changed = Box::pin(bench.driver.changed());
    applied_vlans(&bench.apply("leaf1", "100-110", &["Ethernet1", "Ethernet2"]).await);
    applied_vlans(&bench.apply("leaf1", "100-111", &["Ethernet1"]).await);
    for port in [Some("Ethernet1"), None] {
        bench.edit("leaf1", &removed(port, "105"));
    }
    assert_eq!(changed.next().await.as_deref(), Some("leaf1"));
    // The next command comes before the driver has read the foreign change.
    let (vlans, _) = applied_vlans(&bench.apply("leaf1", "100-112", &["Ethernet1"]).await);
    assert_eq!(vlans, "100-112");
    assert_eq!(on_switch(leaf, "Ethernet1"), ("100-112".into(), "100-112".into()));
}
