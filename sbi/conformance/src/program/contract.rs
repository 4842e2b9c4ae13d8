//! Checks of the messages that a driver has to handle. Drivers in Rust have the host of `eno-sbi`, whose own tests
//! check the same.

use std::collections::BTreeSet;
use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::jetstream::kv::Store;
use eno_schemas::{Command, Generation, Outcome, Report, Subject, Transaction, encode, subject};
use serde_json::json;

use super::{ProgramFixture, bucket, until, value};
use crate::holding::can_hold;
use crate::{DriverFixture, DriverProcess, Engine, INSTANCE, NatsServer, all, command};

/// The lifetime of keys is 15 s, so they have to be renewed earlier.
const RENEWED_WITHIN: Duration = Duration::from_secs(14);
/// Time for a driver to do what needs neither a retry nor a lease that expires.
const SOON: Duration = Duration::from_secs(10);
/// Time in which a driver that does what it must not would have done it.
const NOT_YET: Duration = Duration::from_secs(1);
/// Time for a driver to do by itself what it does from time to time.
const EVENTUALLY: Duration = Duration::from_secs(70);
/// The key of drivers of which one instance works on all targets.
const WHOLE_DRIVER: &str = "_";
/// A further target, with an invalid command, which is refused after all earlier commands were handled.
const SENTINEL: &str = "conformance-sentinel";

/// A driver that runs on a NATS of its own.
struct Setting {
    fixture: ProgramFixture,
    server: NatsServer,
    engine: Engine,
    host: DriverProcess,
    owners: Store,
}

impl Setting {
    async fn new(fixture: ProgramFixture) -> Self {
        let server = NatsServer::start().await;
        let engine = Engine::new(&server).await;
        let host = fixture.start_host(&server).await;
        let owners = bucket(&engine.connection, subject::OWNERS).await;
        Self { fixture, server, engine, host, owners }
    }

    fn command(&self, sequence: u64, items: &BTreeSet<usize>) -> Command {
        command(&self.fixture, self.fixture.driver_name(), sequence, items)
    }

    async fn report(&self, accepts: impl FnMut(&Report) -> bool) -> Report {
        self.engine.report(self.fixture.driver_name(), &self.fixture.target(), accepts).await
    }

    /// Sends a command with all items and waits until it is applied.
    async fn apply(&self, sequence: u64) -> Report {
        self.engine.send(&self.command(sequence, &all(&self.fixture))).await;
        self.report(applied(sequence)).await
    }

    /// The name in the owners bucket by which the driver owns the target.
    async fn owned_name(&self) -> String {
        for name in [self.fixture.target(), WHOLE_DRIVER.to_owned()] {
            let found = value(&self.owners, &subject::key(self.fixture.driver_name(), &name)).await;
            if found.is_some_and(|(owner, _)| owner == INSTANCE.as_bytes()) {
                return name;
            }
        }
        panic!(
            "the driver has reported on the target but does not own it: no key {} in {} has its instance name",
            subject::key(self.fixture.driver_name(), &self.fixture.target()),
            subject::OWNERS
        )
    }
}

fn applied(sequence: u64) -> impl FnMut(&Report) -> bool {
    move |report| report.generation.sequence == sequence && report.outcome == Outcome::Applied
}

/// Presence and ownership are renewed while the driver runs, and end with it.
pub async fn presence_and_ownership_last_as_long_as_the_driver(fixture: ProgramFixture) {
    let setting = Setting::new(fixture).await;
    setting.apply(1).await;
    let drivers = bucket(&setting.engine.connection, subject::DRIVERS).await;
    let presence = setting.fixture.presence_key();
    let ownership = subject::key(setting.fixture.driver_name(), &setting.owned_name().await);
    for (store, key) in [(&drivers, &presence), (&setting.owners, &ownership)] {
        let revision = async || value(store, key).await.map(|(_, revision)| revision);
        let before = revision().await;
        until(&format!("the driver renews {key}"), RENEWED_WITHIN, || async { revision().await > before })
            .await;
    }
    setting.host.stop().await;
    for (store, key) in [(&drivers, &presence), (&setting.owners, &ownership)] {
        let what = format!("a driver that ends deletes {key}");
        until(&what, SOON, || async { value(store, key).await.is_none() }).await;
    }
}

/// A target that another instance owns is left alone until that instance releases it.
pub async fn target_of_another_instance_is_left_alone(fixture: ProgramFixture) {
    let mut setting = Setting::new(fixture).await;
    setting.apply(1).await;
    let name = setting.owned_name().await;
    let key = subject::key(setting.fixture.driver_name(), &name);
    setting.host.stop().await;
    until(&format!("a driver that ends deletes {key}"), SOON, || async {
        value(&setting.owners, &key).await.is_none()
    })
    .await;
    let owned = setting.owners.put(&key, "another".into()).await;
    owned.expect("owning the target");
    let writes = setting.fixture.writes().await;
    setting.host = setting.fixture.start_host(&setting.server).await;
    let command = setting.command(2, &BTreeSet::new());
    setting.engine.send(&command).await;
    if name != WHOLE_DRIVER {
        setting.engine.raw(&command.driver, SENTINEL, "1").await;
        setting.engine.report(&command.driver, SENTINEL, |_| true).await;
    }
    // A driver may work on several targets at once, and be slower with this one.
    let late = tokio::time::timeout(NOT_YET, setting.report(applied(2))).await;
    let report = match late {
        Ok(report) => report,
        Err(_) => setting.report(|_| true).await,
    };
    assert!(
        applied(1)(&report) && setting.fixture.writes().await == writes,
        "the driver works on a target that another instance owns ({key} in {}): {report:?}",
        subject::OWNERS
    );
    setting.owners.delete(&key).await.expect("releasing the target");
    setting.report(applied(2)).await;
}

/// A message that is no valid command is answered with a failure that is not retryable, and nothing is written.
pub async fn invalid_commands_are_refused(fixture: ProgramFixture) {
    let setting = Setting::new(fixture).await;
    setting.apply(1).await;
    let (driver, writes) = (setting.fixture.driver_name().to_owned(), setting.fixture.writes().await);
    let valid = |target: &str| Command { target: target.into(), ..setting.command(7, &BTreeSet::new()) };
    let message = |target: &str| serde_json::to_value(valid(target)).expect("a command is JSON");
    let (mut incomplete, mut newer) = (message("c2"), message("c3"));
    incomplete["desired"] = json!({"kind": "fabric"});
    newer["schemaVersion"] = json!(3);
    let mut cases = vec![
        ("c1", "is not JSON", "{".to_owned(), ""),
        ("c2", "breaks its schema", incomplete.to_string(), "desired"),
        ("c3", "is of schemaVersion 3", newer.to_string(), "3"),
        ("c4", "is for another target than its subject", message("other").to_string(), ""),
    ];
    if !can_hold(&setting.fixture.driver()) {
        let transaction = Transaction {
            id: "t1".into(),
            participants: vec!["c5".into(), "another".into()],
            deadline: "2100-01-01T00:00:00Z".into(),
            decide_within_ms: Some(60_000),
            decision: None,
        };
        let command = Command { transaction: Some(transaction), ..valid("c5") };
        let message = serde_json::to_string(&command).expect("a command is JSON");
        cases.push(("c5", "is for drivers that can hold a change", message, ""));
    }
    for (target, what, message, named) in cases {
        setting.engine.raw(&driver, target, message).await;
        check_refused(&setting.engine.report(&driver, target, |_| true).await, what, named);
    }
    // A server that reads a message out of a stream adds this header. Anybody may have it sent to any subject.
    let mut headers = HeaderMap::new();
    headers.insert("Nats-Stream", "ENO_RESULTS");
    let bytes = encode(&valid("c6")).expect("a valid command");
    let subject = Subject::command(&driver, "c6").to_string();
    let sent = setting.engine.connection.jetstream.publish_with_headers(subject, headers, bytes.into()).await;
    sent.expect("a connection").await.expect("an acknowledgement");
    check_refused(&setting.engine.report(&driver, "c6", |_| true).await, "has the header Nats-Stream", "");
    assert_eq!(
        setting.fixture.writes().await,
        writes,
        "the target was written for a message that is no command"
    );
    assert_eq!(setting.fixture.items().await, all(&setting.fixture), "an invalid command was carried out");
}

fn check_refused(report: &Report, what: &str, named: &str) {
    let Outcome::Failed(failure) = &report.outcome else {
        panic!("a command that {what} has to fail: {report:?}");
    };
    assert!(!failure.retryable, "a command that {what} is not retryable: {failure:?}");
    assert!(
        !failure.reason.is_empty() && failure.reason.contains(named),
        "a command that {what}: the reason does not name it ({named:?}): {failure:?}"
    );
}

/// A target that is gone for good is released and not reported on; one of its name may come later.
pub async fn forgotten_target_may_return(fixture: ProgramFixture) {
    let setting = Setting::new(fixture).await;
    setting.apply(5).await;
    let (driver, target, name) =
        (setting.fixture.driver_name(), setting.fixture.target(), setting.owned_name().await);
    let (key, writes) = (subject::key(driver, &name), setting.fixture.writes().await);
    setting.engine.forget(driver, &target).await;
    if name != WHOLE_DRIVER {
        let what = format!("a driver deletes {key} of a target that is gone");
        until(&what, SOON, || async { value(&setting.owners, &key).await.is_none() }).await;
    }
    setting.engine.raw(driver, SENTINEL, "1").await;
    setting.engine.report(driver, SENTINEL, |_| true).await;
    assert_eq!(setting.fixture.writes().await, writes, "the target was written when it was to be forgotten");
    // With older generations than before.
    let command = setting.command(1, &BTreeSet::new());
    setting.engine.send(&command).await;
    setting.report(applied(1)).await;
    assert_eq!(setting.fixture.items().await, BTreeSet::new(), "the items of the target that returned");
}

/// A retryable failure is retried by the driver itself.
pub async fn failure_is_retried_without_a_new_command(fixture: ProgramFixture) {
    let setting = Setting::new(fixture).await;
    setting.fixture.set_reachable(false).await;
    let command = setting.command(1, &all(&setting.fixture));
    setting.engine.send(&command).await;
    let failed = |report: &Report| matches!(&report.outcome, Outcome::Failed(failure) if failure.unreachable);
    setting.report(failed).await;
    setting.fixture.set_reachable(true).await;
    let report = setting.report(applied(1)).await;
    assert_eq!(
        (report.driver, report.instance, report.generation),
        (command.driver, INSTANCE.to_owned(), Generation { ..command.generation }),
        "driver, instance and generation of the report"
    );
    assert_eq!(setting.fixture.items().await, all(&setting.fixture));
}

/// A driver whose device notifies it of changes repairs them by itself.
pub async fn external_change_is_noticed(fixture: ProgramFixture) {
    let setting = Setting::new(fixture).await;
    let report = setting.apply(1).await;
    if report.device.and_then(|device| device.change_notifications) != Some(true) {
        setting.fixture.skip("the driver does not report changeNotifications");
        return;
    }
    setting.fixture.edit(0, false).await;
    let what = "a driver that reports changeNotifications brings back what was removed by hand";
    until(what, EVENTUALLY, || async { setting.fixture.items().await == all(&setting.fixture) }).await;
}
