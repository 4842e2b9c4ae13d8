//! Partial reads: a change reads only the VLANs that it affects, and misses no foreign change.

use std::sync::{Arc, Mutex};

use eno_driver_netconf::dialect::DIALECTS;
use eno_driver_netconf::hello::Hello;
use eno_driver_netconf::plan::Baseline;
use eno_driver_netconf::session::{Call, Session};
use eno_driver_netconf::ssh::SshSession;
use eno_driver_netconf::text::Text;
use eno_driver_netconf::transaction::RunContext;
use eno_sbi::{Driver as _, Reconciled};
use eno_schemas::FabricDesired;
use futures::StreamExt as _;
use futures::future::BoxFuture;

use crate::common::{Bench, applied_vlans, defined, on_switch, removed, run_transaction, work};

/// A session with leaf1 that records the length of the longest reply in bytes.
struct MeasuringSession {
    session: SshSession,
    longest: Arc<Mutex<usize>>,
}

impl Session for MeasuringSession {
    fn hello(&self) -> &Hello {
        self.session.hello()
    }

    fn call(&self, operation: Text) -> Call {
        let (call, longest) = (self.session.call(operation), Arc::clone(&self.longest));
        Box::pin(async move {
            let reply = call.await?;
            let mut longest = longest.lock().unwrap();
            *longest = reply.to_string().len().max(*longest);
            drop(longest);
            Ok(reply)
        })
    }

    fn ended(&self) -> BoxFuture<'static, ()> {
        self.session.ended()
    }
}

impl MeasuringSession {
    async fn connect(bench: &Bench) -> Self {
        Self { session: bench.connect().await, longest: Arc::default() }
    }

    /// Runs a transaction. Returns its report, the VLANs of its last read, and the length of the longest reply.
    async fn run(
        &self,
        desired: &FabricDesired,
        baseline: Option<&Baseline>,
    ) -> (Reconciled, Baseline, usize) {
        *self.longest.lock().unwrap() = 0;
        let context =
            RunContext { verified_other_command: baseline.is_some(), baseline, ..RunContext::default() };
        let work = work("leaf1", desired.clone());
        let (report, read) = run_transaction(self, DIALECTS, &work, desired, context).await;
        let (report, read) = (report.expect("it runs"), read.expect("something was read"));
        (report, read, *self.longest.lock().unwrap())
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
