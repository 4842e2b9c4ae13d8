//! Partial reads: a change reads only the VLANs that it affects, and misses no foreign change.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use eno_driver_netconf::dialect::{DIALECTS, choose};
use eno_driver_netconf::hello::Hello;
use eno_driver_netconf::plan::{Baseline, ClashDetector};
use eno_driver_netconf::session::{Call, Session};
use eno_driver_netconf::ssh::SshSession;
use eno_driver_netconf::text::Text;
use eno_driver_netconf::transaction::{RunContext, Transaction};
use eno_sbi::{Driver as _, Intent, Reconciled};
use eno_schemas::{DeviceInfo, FabricDesired};
use eno_simulator::HandEdit;
use futures::StreamExt as _;
use futures::future::BoxFuture;

use crate::common::{Bench, applied_vlans, on_switch, options, work};

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
        let info = bench.info("leaf1");
        let options = options(bench.credentials.path());
        let address = info.netconf.to_string();
        let (key, ignore) = (Some(info.host_key.as_str()), Box::new(|_: &Text| ()));
        let session =
            SshSession::connect(&address, key, &options.credentials, Some("leaf1"), options.limits, ignore);
        Self { session: session.await.expect("a session"), longest: Arc::default() }
    }

    /// Runs a transaction. Returns its report, the VLANs of its last read, and the length of the longest reply.
    async fn run(
        &self,
        desired: &FabricDesired,
        baseline: Option<&Baseline>,
    ) -> (Reconciled, Baseline, usize) {
        *self.longest.lock().unwrap() = 0;
        let dialect = choose(DIALECTS, None, self.hello()).expect("a dialect");
        let transaction = Transaction {
            session: self,
            dialect,
            profile: dialect.profile(self.hello()).expect("a profile"),
            work: &work("leaf1", desired.clone()),
            desired,
            persist_id: "eno-test-leaf1",
            confirm_timeout: Duration::from_mins(1),
            intent: &Intent::Apply,
            device: &DeviceInfo::default(),
            read_baseline: Mutex::default(),
            clash_detector: &ClashDetector::default(),
        };
        let context =
            RunContext { verified_other_command: baseline.is_some(), baseline, ..RunContext::default() };
        let report = transaction.run(context).await.expect("it runs");
        let read = transaction.read_baseline.into_inner().unwrap().expect("something was read");
        (report, read, *self.longest.lock().unwrap())
    }
}

#[tokio::test]
async fn change_reads_only_affected_vlans() {
    let bench = Bench::start(|_| ()).await;
    let leaf = bench.switch("leaf1");
    let foreign = HandEdit {
        define_vlans: [(50, "users".to_owned()), (1001, "printers".to_owned())].into(),
        ..HandEdit::default()
    };
    leaf.change_by_hand(&foreign).expect("an edit");
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
    applied_vlans(
        &bench.reconcile("leaf1", bench.desired("leaf1", "100-110", &["Ethernet1", "Ethernet2"])).await,
    );
    applied_vlans(&bench.reconcile("leaf1", bench.desired("leaf1", "100-111", &["Ethernet1"])).await);
    let edit = HandEdit {
        port: Some("Ethernet1".into()),
        remove_vlans: "105".parse().expect("a set"),
        ..HandEdit::default()
    };
    leaf.change_by_hand(&edit).expect("an edit");
    leaf.change_by_hand(&HandEdit { port: None, ..edit }).expect("an edit");
    assert_eq!(changed.next().await.as_deref(), Some("leaf1"));
    // The next command comes before the driver has read the foreign change.
    let (vlans, _) =
        applied_vlans(&bench.reconcile("leaf1", bench.desired("leaf1", "100-112", &["Ethernet1"])).await);
    assert_eq!(vlans, "100-112");
    assert_eq!(on_switch(leaf, "Ethernet1"), ("100-112".into(), "100-112".into()));
}
