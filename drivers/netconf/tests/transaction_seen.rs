//! Nothing counts as applied that was not read: devices that roll back by themselves, answer or show late, or change
//! names.

use std::time::Duration;

use eno_driver_netconf::driver::{NetconfDriver, Options};
use eno_sbi::{Driver as _, Reconciled};
use eno_schemas::{Decision, FabricDesired, Item};
use eno_simulator::{Boot, Capabilities, ConfirmedCommit, Fault, NameChange, Switch};

use futures::future::join_all;

use crate::common::{
    Bench, Part, applied_vlans, defined, failed, items, on_switch, options, rolled_back, vid, work,
};

const LONG: Duration = Duration::from_mins(5);

/// The name of a profile, and the capabilities of its devices.
type NamedProfile = (&'static str, fn(&mut Capabilities));

/// Every way to commit: confirmed by a persist-id or by the session, not confirmed, and edits of running.
const PROFILES: [NamedProfile; 4] = [
    ("confirmed commit 1.1", |_| ()),
    ("confirmed commit 1.0", |capabilities| capabilities.confirmed_commit = ConfirmedCommit::V1_0),
    ("no confirmed commit", |capabilities| capabilities.confirmed_commit = ConfirmedCommit::None),
    ("running only", |capabilities| {
        capabilities.confirmed_commit = ConfirmedCommit::None;
        (capabilities.candidate, capabilities.writable_running) = (false, true);
    }),
];

fn both(vlans: &str) -> (String, String) {
    (vlans.to_owned(), vlans.to_owned())
}

/// Waits until the switch carries these VLANs.
async fn until_switch_carries(switch: &Switch, vlans: &str) {
    let mut version = switch.version();
    let carries = version.wait_for(|_| on_switch(switch, "Ethernet1") == both(vlans));
    tokio::time::timeout(Duration::from_mins(1), carries).await.expect("in time").expect("it runs");
}

/// A driver with timeouts so short that a slow device exceeds them.
fn impatient_driver(bench: &Bench) -> NetconfDriver {
    let mut options =
        Options { confirm_timeout: Duration::from_secs(30), ..options(bench.credentials.path()) };
    options.limits.rpc = Duration::from_secs(1);
    NetconfDriver::new(options)
}

/// Reconciles until the driver asks for no retry. Returns the failures, too.
async fn settle(driver: &NetconfDriver, desired: &FabricDesired) -> (Reconciled, Vec<String>) {
    let mut failures = Vec::new();
    for _ in 0..20 {
        let reconciled = driver.reconcile(work("leaf1", desired.clone())).await;
        if !reconciled.wants_retry() {
            return (reconciled, failures);
        }
        failures.push(failed(&reconciled).0.to_owned());
    }
    panic!("it does not settle: {failures:?}");
}

/// The device keeps this configuration, also after a reboot, which rolls back what nobody confirmed.
fn assert_keeps(switch: &Switch, vlans: &str) {
    assert!(!switch.is_pending(), "nobody confirmed it");
    assert_eq!(on_switch(switch, "Ethernet1"), both(vlans));
    switch.reboot(Boot::Saved);
    assert_eq!(on_switch(switch, "Ethernet1"), both(vlans));
}

#[tokio::test]
async fn change_that_device_rolled_back_while_held_is_applied_again_at_once() {
    for (profile, adapt) in &PROFILES[..2] {
        let bench = Bench::with_capabilities(adapt).await;
        let leaf = bench.switch("leaf1");
        assert_eq!(applied_vlans(&bench.apply("leaf1", "100", &["Ethernet1"]).await).0, "100");
        leaf.inject(Fault::ConfirmTimeout { ms: 300 });
        let part = Part::new("leaf1", bench.desired("leaf1", "100-110", &["Ethernet1"]), LONG);
        let deciding = async |_| {
            until_switch_carries(leaf, "100").await;
            leaf.inject(Fault::Clear {});
            part.decide(Decision::Confirm);
        };
        let ended = part.hold(&bench.driver, deciding).await;
        assert_eq!(applied_vlans(&ended).0, "100-110", "{profile}");
        assert_keeps(leaf, "100-110");
    }
}

#[tokio::test]
async fn commit_that_takes_effect_after_its_timeout_is_not_taken_for_confirmed() {
    join_all(PROFILES.map(async |(profile, adapt)| {
        let bench = Bench::with_capabilities(adapt).await;
        let leaf = bench.switch("leaf1");
        let operation = if profile == "running only" { "edit-config" } else { "commit" };
        leaf.inject(Fault::Slow { ms: 2500, operation: Some(operation.into()), times: Some(1) });
        let driver = impatient_driver(&bench);
        let desired = bench.desired("leaf1", "100-110", &["Ethernet1"]);
        let (done, failures) = settle(&driver, &desired).await;
        assert_eq!(applied_vlans(&done).0, "100-110", "{profile}");
        assert_keeps(leaf, "100-110");
        let first = failures.first().expect("the first try fails");
        assert!(first.contains(&format!("<{operation}> within 1 s")), "{profile}: {first}");
        assert!(first.contains("--rpc-timeout"), "{profile}: {first}");
        for locked in failures.iter().filter(|failure| failure.contains("locked by")) {
            assert!(locked.contains("an earlier session of this driver"), "{profile}: {locked}");
        }
    }))
    .await;
}

/// What the device still carries out is waited for, also when the command changes meanwhile.
#[tokio::test]
async fn late_commit_is_taken_back_when_the_command_has_changed() {
    join_all(PROFILES.map(async |(profile, adapt)| {
        let bench = Bench::with_capabilities(adapt).await;
        let leaf = bench.switch("leaf1");
        let [old, new] = ["100", "100-110"].map(|vlans| bench.desired("leaf1", vlans, &["Ethernet1"]));
        settle(&impatient_driver(&bench), &old).await;
        let driver = impatient_driver(&bench);
        let operation = if profile == "running only" { "edit-config" } else { "commit" };
        leaf.inject(Fault::Slow { ms: 2500, operation: Some(operation.into()), times: Some(1) });
        let late = driver.reconcile(work("leaf1", new)).await;
        assert!(failed(&late).0.contains("--rpc-timeout"), "{profile}: {late:?}");
        let (done, _) = settle(&driver, &old).await;
        assert_eq!(applied_vlans(&done).0, "100", "{profile}");
        assert_eq!(leaf.stats().open_sessions, 1, "{profile}: the earlier session still works");
        assert_keeps(leaf, "100");
    }))
    .await;
}

/// A rollback is no end while the device still carries out the commit.
#[tokio::test]
async fn late_commit_of_an_aborted_transaction_is_taken_back() {
    join_all(PROFILES[..2].iter().map(async |(profile, adapt)| {
        let bench = Bench::with_capabilities(adapt).await;
        let leaf = bench.switch("leaf1");
        settle(&impatient_driver(&bench), &bench.desired("leaf1", "100", &["Ethernet1"])).await;
        leaf.inject(Fault::Slow { ms: 2500, operation: Some("commit".into()), times: Some(1) });
        let driver = impatient_driver(&bench);
        let part = Part::new("leaf1", bench.desired("leaf1", "100-110", &["Ethernet1"]), LONG);
        let late = driver.reconcile(part.work()).await;
        assert!(failed(&late).0.contains("--rpc-timeout"), "{profile}: {late:?}");
        let mut ended = driver.reconcile(part.work_later(Decision::Abort)).await;
        while ended.wants_retry() {
            ended = driver.reconcile(part.work_later(Decision::Abort)).await;
        }
        assert!(rolled_back(&ended).contains("aborted"), "{profile}: {ended:?}");
        assert_eq!(leaf.stats().open_sessions, 1, "{profile}: the earlier session still works");
        assert_keeps(leaf, "100");
    }))
    .await;
}

#[tokio::test]
async fn device_that_is_always_slower_than_the_timeout_gets_more_time() {
    join_all(PROFILES.map(async |(profile, adapt)| {
        let bench = Bench::with_capabilities(adapt).await;
        let leaf = bench.switch("leaf1");
        let operation = if profile == "running only" { "edit-config" } else { "commit" };
        leaf.inject(Fault::Slow { ms: 1500, operation: Some(operation.into()), times: None });
        let driver = impatient_driver(&bench);
        let (done, _) = settle(&driver, &bench.desired("leaf1", "100-110", &["Ethernet1"])).await;
        assert_eq!(applied_vlans(&done).0, "100-110", "{profile}");
        assert!(leaf.stats().transactions <= 2, "{profile}: {:?}", leaf.stats());
        assert_keeps(leaf, "100-110");
    }))
    .await;
}

#[tokio::test]
async fn device_that_shows_a_commit_late_is_read_again() {
    join_all(PROFILES.map(async |(profile, adapt)| {
        for empty in [false, true] {
            let bench = Bench::with_capabilities(adapt).await;
            let leaf = bench.switch("leaf1");
            leaf.inject(Fault::LateRunning { ms: 3000, empty });
            let done = bench.apply("leaf1", "100-110", &["Ethernet1"]).await;
            assert_eq!((applied_vlans(&done).0.as_str(), &done.rejected), ("100-110", &vec![]), "{profile}");
            assert_eq!(leaf.stats().rolled_back, 0, "{profile}");
            assert_keeps(leaf, "100-110");
        }
    }))
    .await;
}

#[tokio::test]
async fn device_that_shows_nothing_while_it_boots_has_lost_nothing() {
    let bench = Bench::start(|_| ()).await;
    let leaf = bench.switch("leaf1");
    let desired = bench.desired("leaf1", "100-110", &["Ethernet1"]);
    bench.reconcile("leaf1", desired.clone()).await;
    leaf.inject(Fault::LateRunning { ms: 3000, empty: true });
    bench.edit("leaf1", &defined(&[(7, "users")]));
    let done = bench.reconcile("leaf1", desired).await;
    assert_eq!((applied_vlans(&done).0.as_str(), &done.change, done.notes.len()), ("100-110", &None, 0));
    assert_eq!(done.rejected, []);
}

/// A device that shows it even later is asked again.
#[tokio::test]
async fn change_that_does_not_read_back_is_retried() {
    let bench = Bench::start(|_| ()).await;
    let leaf = bench.switch("leaf1");
    leaf.inject(Fault::LateRunning { ms: 60_000, empty: false });
    let late = bench.apply("leaf1", "100", &["Ethernet1"]).await;
    let (reason, retryable, unreachable) = failed(&late);
    assert!(reason.contains("does not read back") && retryable && !unreachable, "{reason}");
    assert!(!leaf.is_pending());
    leaf.inject(Fault::Clear {});
    assert_eq!(applied_vlans(&bench.apply("leaf1", "100", &["Ethernet1"]).await).0, "100");
}

#[tokio::test]
async fn vlan_whose_name_the_device_changes_is_taken_back() {
    for (to, shown) in [(NameChange::UpperCase, "ENO-TEST-101"), (NameChange::EightCharacters, "eno-test")] {
        join_all(PROFILES.map(async |(profile, adapt)| {
            let bench = Bench::with_capabilities(adapt).await;
            let leaf = bench.switch("leaf1");
            assert_eq!(applied_vlans(&bench.apply("leaf1", "100", &["Ethernet1"]).await).0, "100");
            leaf.inject(Fault::ChangeNames { to });
            let ports = [("Ethernet1", "100-101"), ("Ethernet2", "101")];
            let done = bench.reconcile("leaf1", bench.desired_ports("leaf1", "100-101", &ports)).await;
            assert_eq!(applied_vlans(&done).0, "100", "{profile}");
            assert_eq!(items(&done), [Item::vlan(vid(101))].into(), "{profile}");
            let reason = &done.rejected[0].reason;
            assert!(reason.contains(shown) && reason.contains("eno-test-101"), "{profile}: {reason}");
            assert_keeps(leaf, "100");
            assert_eq!(leaf.view().vlans.keys().copied().collect::<Vec<_>>(), [100], "{profile}");
            assert!(leaf.view().ports["Ethernet2"].mode.is_none(), "{profile}");
            // A device that keeps names gets it.
            leaf.inject(Fault::Clear {});
            assert_eq!(applied_vlans(&bench.apply("leaf1", "100-101", &["Ethernet1"]).await).0, "100-101");
        }))
        .await;
    }
}
