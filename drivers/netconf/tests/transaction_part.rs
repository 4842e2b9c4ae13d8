//! Partial reads: a change reads only the VLANs that it affects, and misses no foreign change.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use eno_driver_netconf::dialect::DIALECTS;
use eno_driver_netconf::plan::Baseline;
use eno_driver_netconf::transaction::RunContext;
use eno_sbi::{Driver as _, Reconciled};
use eno_schemas::FabricDesired;
use futures::StreamExt as _;

use crate::common::{
    Bench, TappedSession, applied_vlans, defined, on_switch, removed, run_transaction, work,
};

/// A session with leaf1 that records the length of the longest reply in bytes.
struct MeasuringSession {
    session: TappedSession,
    longest: Arc<AtomicUsize>,
}

impl MeasuringSession {
    async fn connect(bench: &Bench) -> Self {
        let longest = Arc::new(AtomicUsize::new(0));
        let tap = {
            let longest = Arc::clone(&longest);
            Arc::new(move |reply: String| {
                longest.fetch_max(reply.len(), Ordering::SeqCst);
                reply
            })
        };
        Self { session: TappedSession { session: bench.connect().await, tap }, longest }
    }

    /// Runs a transaction. Returns its report, the VLANs of its last read, and the length of the longest reply.
    async fn run(
        &self,
        desired: &FabricDesired,
        baseline: Option<&Baseline>,
    ) -> (Reconciled, Baseline, usize) {
        self.longest.store(0, Ordering::SeqCst);
        let context =
            RunContext { verified_other_command: baseline.is_some(), baseline, ..RunContext::default() };
        let work = work("leaf1", desired.clone());
        let (report, read) = run_transaction(&self.session, DIALECTS, &work, desired, context).await;
        let (report, read) = (report.expect("it runs"), read.expect("something was read"));
        (report, read, self.longest.load(Ordering::SeqCst))
    }
}

#[tokio::test]
async fn change_reads_only_affected_vlans() {
    let bench = Bench::start(|_| ()).await;
    let leaf = bench.switch("leaf1");
    bench.edit("leaf1", &defined(&[(50, "users"), (1001, "printers")]));
    let session = MeasuringSession::connect(&bench).await;
    let (first, baseline, whole) =
        session.run(&bench.desired("leaf1", "100-999", &["Ethernet1", "Ethernet2"]), None).await;
    assert_eq!(applied_vlans(&first).0, "100-999");
    assert!(whole > 100_000, "{whole}");

    // One VLAN more, one less, and a foreign one: the report is that of a complete read.
    let desired = bench.desired("leaf1", "101-1001", &["Ethernet1", "Ethernet2"]);
    let (part, kept, length) = session.run(&desired, Some(&baseline)).await;
    assert!(length < 5_000, "{length}");
    assert_eq!(applied_vlans(&part).0, "101-1000");
    assert_eq!(on_switch(leaf, "Ethernet1"), ("101-1000".into(), "101-1000".into()));
    assert_eq!(part.rejected.len(), 1, "{:?}", part.rejected);
    let (again, read, _) = session.run(&desired, None).await;
    assert_eq!((&again.applied, &again.rejected), (&part.applied, &part.rejected));
    assert_eq!(kept, read);
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
