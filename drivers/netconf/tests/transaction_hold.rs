//! Changes that are held until a transaction over several devices is decided.

use std::time::Duration;

use eno_driver_netconf::driver::{NetconfDriver, Options};
use eno_driver_netconf::session::Session as _;
use eno_sbi::{Driver as _, LatestCommand};
use eno_schemas::{Decision, Outcome, Rollback};
use eno_simulator::{Boot, ConfirmedCommit, Fault};

use crate::common::{
    Bench, Part, applied_vlans, failed, on_switch, options, rolled_back, until_change_is_held,
};

const LONG: Duration = Duration::from_mins(5);
const BOTH: [ConfirmedCommit; 2] = [ConfirmedCommit::V1_1, ConfirmedCommit::V1_0];

/// A fabric whose leaves carry VLAN 100 on Ethernet1.
async fn bench(confirmed_commit: ConfirmedCommit) -> Bench {
    let bench =
        Bench::with_capabilities(|capabilities| capabilities.confirmed_commit = confirmed_commit).await;
    for leaf in ["leaf1", "leaf2"] {
        assert_eq!(applied_vlans(&bench.apply(leaf, "100", &["Ethernet1"]).await).0, "100");
    }
    bench
}

fn part(bench: &Bench, leaf: &str, left: Duration) -> Part {
    Part::new(leaf, bench.desired(leaf, "100-110", &["Ethernet1"]), left)
}

fn old() -> (String, String) {
    ("100".into(), "100".into())
}

fn new() -> (String, String) {
    ("100-110".into(), "100-110".into())
}

#[tokio::test]
async fn two_devices_confirm_one_transaction() {
    for confirmed_commit in BOTH {
        let bench = bench(confirmed_commit).await;
        let parts = ["leaf1", "leaf2"].map(|leaf| part(&bench, leaf, LONG));
        let works = parts.each_ref().map(Part::work);
        let phases = works.each_ref().map(eno_sbi::Work::phase);
        let deciding = async {
            for (leaf, phase) in ["leaf1", "leaf2"].into_iter().zip(phases) {
                let held = until_change_is_held(phase).await;
                assert_eq!((&held.outcome, held.rejected.len()), (&Outcome::Held, 0), "{held:?}");
                let rollback = match confirmed_commit {
                    ConfirmedCommit::V1_0 => Rollback::Session,
                    _ => Rollback::Persistent,
                };
                assert_eq!(held.device.and_then(|device| device.rollback), Some(rollback));
                assert_eq!(held.change, None);
                assert_eq!(on_switch(bench.switch(leaf), "Ethernet1"), new());
                assert!(bench.switch(leaf).is_pending(), "{leaf} could not take it back");
            }
            for part in &parts {
                part.decide(Decision::Confirm);
            }
        };
        let [first, second] = works.map(|work| bench.driver.reconcile(work));
        let (first, second, ()) = tokio::join!(first, second, deciding);
        for (leaf, ended) in [("leaf1", first), ("leaf2", second)] {
            assert_eq!(applied_vlans(&ended).0, "100-110");
            let change = ended.change.expect("a change was made");
            assert_eq!((change.transaction.as_deref(), change.added, change.removed), (Some("t1"), 20, 0));
            assert!(change.took_ms < 60_000, "{change:?}");
            let switch = bench.switch(leaf);
            assert!(!switch.is_pending());
            switch.reboot(Boot::Saved);
            assert_eq!(on_switch(switch, "Ethernet1"), new());
        }
    }
}

#[tokio::test]
async fn device_lost_while_held_is_reported_at_once_and_follows_decision() {
    for confirmed_commit in BOTH {
        for decision in [Decision::Abort, Decision::Confirm] {
            let mut bench = bench(confirmed_commit).await;
            let part = part(&bench, "leaf1", LONG);
            let losing = async |_| bench.switch("leaf1").inject(Fault::Unreachable {});
            let lost = part.hold(&bench.driver, losing).await;
            let (reason, retryable, unreachable) = failed(&lost);
            assert!(reason.contains("while the change waited") && retryable && unreachable, "{reason}");
            bench.switch("leaf1").inject(Fault::Clear {});
            if confirmed_commit == ConfirmedCommit::V1_0 {
                bench.restart_driver();
            }
            let ended = bench.driver.reconcile(part.work_later(decision)).await;
            let switch = bench.switch("leaf1");
            match decision {
                Decision::Abort => {
                    assert!(rolled_back(&ended).contains("t1 was aborted"));
                    assert_eq!(on_switch(switch, "Ethernet1"), old());
                }
                Decision::Confirm => {
                    assert_eq!(applied_vlans(&ended).0, "100-110");
                    assert_eq!(on_switch(switch, "Ethernet1"), new());
                }
            }
            assert!(!switch.is_pending());
        }
    }
}

#[tokio::test]
async fn device_rolls_back_held_change_of_killed_process() {
    for confirmed_commit in BOTH {
        let mut bench = bench(confirmed_commit).await;
        let soon = Options { confirm_timeout: Duration::from_secs(1), ..options(bench.credentials.path()) };
        let killed = NetconfDriver::new(soon);
        let left = Duration::from_secs(2);
        let part = part(&bench, "leaf1", left);
        let mut version = bench.switch("leaf1").version();
        part.hold_and_kill(killed).await;
        let back = version.wait_for(|_| on_switch(bench.switch("leaf1"), "Ethernet1") == old());
        tokio::time::timeout(Duration::from_secs(30), back).await.expect("it is taken back").unwrap();
        bench.restart_driver();
        let ended = bench.driver.reconcile(part.work()).await;
        assert!(rolled_back(&ended).contains("not decided by its deadline"), "{ended:?}");
        let plain = bench.settle("leaf1", &bench.desired("leaf1", "100-110", &["Ethernet1"])).await;
        assert_eq!(applied_vlans(&plain).0, "100-110");
    }
}

#[tokio::test]
async fn change_cancelled_by_another_manager_is_applied_again_after_confirm() {
    let bench = bench(ConfirmedCommit::V1_1).await;
    let part = part(&bench, "leaf1", LONG);
    let deciding = async |_| {
        // Another manager cancels the commit by its persist-id.
        let other = bench.connect().await;
        let cancel = "<cancel-commit><persist-id>eno-test-leaf1</persist-id></cancel-commit>";
        other.call(cancel.into()).await.expect("cancelled");
        part.decide(Decision::Confirm);
    };
    let ended = part.hold(&bench.driver, deciding).await;
    assert_eq!(applied_vlans(&ended).0, "100-110");
    assert!(!bench.switch("leaf1").is_pending());
    assert_eq!(on_switch(bench.switch("leaf1"), "Ethernet1"), new());
}

#[tokio::test]
async fn device_without_rollback_is_excluded_from_transaction() {
    let bench = bench(ConfirmedCommit::None).await;
    let before = bench.switch("leaf1").stats().transactions;
    let refused = bench.driver.reconcile(part(&bench, "leaf1", LONG).work()).await;
    let (reason, retryable, unreachable) = failed(&refused);
    assert!(reason.contains("can't take back a change") && !retryable && !unreachable, "{reason}");
    assert_eq!(refused.device.and_then(|device| device.rollback), Some(Rollback::None));
    assert_eq!(bench.switch("leaf1").stats().transactions, before);
    let plain = bench.apply("leaf1", "100-110", &["Ethernet1"]).await;
    assert_eq!(applied_vlans(&plain).0, "100-110");
}

#[tokio::test]
async fn abort_before_commit_changes_nothing() {
    let bench = bench(ConfirmedCommit::V1_1).await;
    let before = bench.switch("leaf1").stats().transactions;
    let part = part(&bench, "leaf1", LONG);
    let work = part.work();
    part.newest.send_replace(LatestCommand::Stopped);
    let given_up = bench.driver.reconcile(work).await;
    assert!(matches!(given_up.outcome, Outcome::Progress { .. }), "{given_up:?}");
    assert_eq!(bench.switch("leaf1").stats().transactions, before);
    assert_eq!(on_switch(bench.switch("leaf1"), "Ethernet1"), old());
}
