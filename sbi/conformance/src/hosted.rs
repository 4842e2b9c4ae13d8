//! Checks of a driver in its host, with a real nats-server.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use eno_schemas::{Decision, Outcome, Report};

use super::holding::{can_hold, transaction_command};
use super::{DriverFixture, Engine, NatsServer, RunningHost, all, command, done};
use eno_sbi::Driver;
use eno_sbi::host::{HostOptions, Ownership};

/// A target with an invalid command, which is rejected after all earlier commands were handled.
const SENTINEL: &str = "conformance-sentinel";

async fn start_host<R: DriverFixture>(fixture: &R, server: &NatsServer) -> RunningHost {
    let connection = server.connect("eno-driver").await;
    let mut options = HostOptions::new(connection, Ownership::WholeDriver, "0");
    // The same instance name, so that the next host need not wait for the lease to expire.
    options.instance = "conformance".into();
    RunningHost::start(fixture.driver(), options)
}

/// A repeated or older command changes nothing, even when it is the last one that a new process finds.
pub async fn repeated_and_older_commands_change_nothing<R: DriverFixture>(fixture: Arc<R>) {
    let server = NatsServer::start().await;
    let engine = Engine::new(&server).await;
    let (driver, target) = (fixture.driver().identity().name, fixture.target());
    let host = start_host(&*fixture, &server).await;
    let newest = command(&*fixture, &driver, 2, &all::<R>());
    engine.apply(&newest).await;
    let writes = fixture.writes().await;

    engine.command(&newest).await;
    engine.command(&command(&*fixture, &driver, 1, &BTreeSet::new())).await;
    engine.raw(&driver, SENTINEL, "1").await;
    engine.report(&driver, SENTINEL, |_| true).await;
    host.end().await;
    assert_eq!(fixture.items().await, all::<R>());

    let host = start_host(&*fixture, &server).await;
    engine.raw(&driver, SENTINEL, "2").await;
    engine.raw(&driver, "conformance-sentinel-2", "1").await;
    engine.report(&driver, "conformance-sentinel-2", |_| true).await;
    host.end().await;
    assert_eq!(fixture.items().await, all::<R>(), "an older generation was applied by a new process");
    assert_eq!(fixture.writes().await, writes, "the target was written without need");
    assert!(done(2)(&engine.report(&driver, &target, |_| true).await), "the newest report was replaced");
}

/// When the host is killed during a reconcile, the next host completes it.
pub async fn killed_host_is_resumed_by_the_next<R: DriverFixture>(fixture: Arc<R>) {
    let server = NatsServer::start().await;
    let engine = Engine::new(&server).await;
    let (driver, target) = (fixture.driver().identity().name, fixture.target());
    for sequence in 1..=4 {
        let host = start_host(&*fixture, &server).await;
        let items = if sequence % 2 == 0 { BTreeSet::new() } else { all::<R>() };
        engine.command(&command(&*fixture, &driver, sequence, &items)).await;
        // Somewhere between the first step and the report.
        for _ in 0..sequence * sequence * 10 {
            tokio::task::yield_now().await;
        }
        host.kill().await;
        let host = start_host(&*fixture, &server).await;
        engine.report(&driver, &target, done(sequence)).await;
        assert_eq!(fixture.items().await, items);
        host.end().await;
    }
}

/// A change is held, reported and decided through the host. The final report is about the decision, and the
/// decision is not reconciled again.
pub async fn hold_is_reported_and_decided_through_the_host<R: DriverFixture>(fixture: Arc<R>) {
    let prober = fixture.driver();
    if !can_hold(&prober) {
        return;
    }
    let server = NatsServer::start().await;
    let engine = Engine::new(&server).await;
    let (driver, target) = (prober.identity().name, fixture.target());
    let host = start_host(&*fixture, &server).await;
    let long = Duration::from_mins(5);
    let mut sequence = 1;
    let mut before = BTreeSet::new();
    for (decision, items) in [
        (Decision::Confirm, all::<R>()),
        (Decision::Abort, BTreeSet::new()),
        (Decision::Confirm, BTreeSet::new()),
    ] {
        let mut command = transaction_command(&*fixture, &prober, sequence, &items, long, None);
        engine.command(&command).await;
        let held =
            |report: &Report| report.generation.sequence == sequence && report.outcome == Outcome::Held;
        engine.report(&driver, &target, held).await;
        assert_eq!(fixture.items().await, items);
        command.generation.sequence += 1;
        if let Some(transaction) = &mut command.transaction {
            transaction.decision = Some(decision);
        }
        engine.command(&command).await;
        let ended = |report: &Report| report.generation.sequence == sequence + 1;
        let report = engine.report(&driver, &target, ended).await;
        match decision {
            Decision::Confirm => assert_eq!(report.outcome, Outcome::Applied),
            Decision::Abort => assert!(matches!(report.outcome, Outcome::RolledBack { .. }), "{report:?}"),
        }
        before = if decision == Decision::Confirm { items } else { before };
        assert_eq!(fixture.items().await, before);
        sequence += 2;
    }
    // The end of the process rolls back an undecided change.
    engine.command(&transaction_command(&*fixture, &prober, sequence, &all::<R>(), long, None)).await;
    let held = |report: &Report| report.generation.sequence == sequence && report.outcome == Outcome::Held;
    engine.report(&driver, &target, held).await;
    host.end().await;
    assert_eq!(fixture.items().await, before);
    let report = engine.report(&driver, &target, |_| true).await;
    assert!(matches!(report.outcome, Outcome::RolledBack { .. }), "{report:?}");
}
