//! Checks of a driver in its host, with a real nats-server.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use eno_schemas::{Decision, Outcome, PayloadKind, Report};

use super::holding::{can_hold, transaction_command};
use super::program::ProgramFixture;
use super::{DriverFixture, Engine, NatsServer, RunningHost, all, command, done, soon};
use eno_sbi::host::{HostOptions, Ownership};
use eno_sbi::{Driver, Identity};

/// A target with an invalid command, which is rejected after all earlier commands were handled.
const SENTINEL: &str = "conformance-sentinel";

/// The name of every instance of the driver: under another name, the next one would wait for the lease of a killed one
/// to expire.
pub const INSTANCE: &str = "conformance";

/// A process of the driver on NATS.
pub struct DriverProcess(Running);

enum Running {
    /// A task of this process.
    Task(RunningHost),
    /// A program.
    Program(ProgramFixture),
}

impl DriverProcess {
    pub(super) async fn in_process<D: Driver>(driver: D, server: &NatsServer) -> Self {
        let connection = server.connect("eno-driver").await;
        let mut options = HostOptions::new(connection, Ownership::WholeDriver, "0");
        options.instance = INSTANCE.into();
        let Identity { name, kinds, .. } = driver.identity();
        let process = Self(Running::Task(RunningHost::start(driver, options)));
        if kinds.contains(&PayloadKind::Fabric) {
            // The host announces it once it can.
            let engine = Engine { connection: server.connect("eno-engine").await };
            let announced = async { while !engine.sends_parts(&name).await {} };
            soon("the host announces that it reads parts", announced).await;
        }
        process
    }

    pub(super) fn program(fixture: ProgramFixture) -> Self {
        Self(Running::Program(fixture))
    }

    /// Waits for a few of its steps.
    async fn let_work(&self, steps: u64) {
        match &self.0 {
            Running::Task(_) => {
                for _ in 0..steps {
                    tokio::task::yield_now().await;
                }
            }
            Running::Program(_) => tokio::time::sleep(Duration::from_millis(steps)).await,
        }
    }

    /// Ends it in an orderly way.
    pub(super) async fn stop(self) {
        match self.0 {
            Running::Task(host) => host.end().await,
            Running::Program(fixture) => fixture.stop_driver(),
        }
    }

    /// Kills it.
    async fn kill(self) {
        match self.0 {
            Running::Task(host) => host.kill().await,
            Running::Program(fixture) => fixture.kill_driver(),
        }
    }
}

/// A repeated or older command changes nothing, even when it is the last one that a new process finds.
pub async fn repeated_and_older_commands_change_nothing<R: DriverFixture>(fixture: Arc<R>) {
    let server = NatsServer::start().await;
    let engine = Engine::new(&server).await;
    let (driver, target) = (fixture.driver().identity().name, fixture.target());
    let host = fixture.start_host(&server).await;
    let newest = command(&*fixture, &driver, 2, &all(&*fixture));
    engine.send(&newest).await;
    engine.report(&driver, &target, done(2)).await;
    let writes = fixture.writes().await;

    engine.send(&newest).await;
    engine.send(&command(&*fixture, &driver, 1, &BTreeSet::new())).await;
    engine.raw(&driver, SENTINEL, "1").await;
    engine.report(&driver, SENTINEL, |_| true).await;
    host.stop().await;
    assert_eq!(fixture.items().await, all(&*fixture), "an older generation was applied");

    let host = fixture.start_host(&server).await;
    engine.raw(&driver, SENTINEL, "2").await;
    engine.raw(&driver, "conformance-sentinel-2", "1").await;
    engine.report(&driver, "conformance-sentinel-2", |_| true).await;
    host.stop().await;
    assert_eq!(fixture.items().await, all(&*fixture), "an older generation was applied by a new process");
    assert_eq!(fixture.writes().await, writes, "the target was written without need");
    assert!(done(2)(&engine.report(&driver, &target, |_| true).await), "the newest report was replaced");
}

/// When the host is killed during a reconcile, the next host completes it.
pub async fn killed_host_is_resumed_by_the_next<R: DriverFixture>(fixture: Arc<R>) {
    let server = NatsServer::start().await;
    let engine = Engine::new(&server).await;
    let (driver, target) = (fixture.driver().identity().name, fixture.target());
    for sequence in 1..=4 {
        let host = fixture.start_host(&server).await;
        let items = if sequence % 2 == 0 { BTreeSet::new() } else { all(&*fixture) };
        engine.send(&command(&*fixture, &driver, sequence, &items)).await;
        // Somewhere between the first step and the report.
        host.let_work(sequence * sequence * 10).await;
        host.kill().await;
        let host = fixture.start_host(&server).await;
        engine.report(&driver, &target, done(sequence)).await;
        assert_eq!(fixture.items().await, items, "the next process has not finished what a killed one began");
        host.stop().await;
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
    let host = fixture.start_host(&server).await;
    let long = Duration::from_mins(5);
    let mut sequence = 1;
    let mut before = BTreeSet::new();
    for (decision, items) in [
        (Decision::Confirm, all(&*fixture)),
        (Decision::Abort, BTreeSet::new()),
        (Decision::Confirm, BTreeSet::new()),
    ] {
        let mut command = transaction_command(&*fixture, &prober, sequence, &items, long, None);
        engine.send(&command).await;
        let held =
            |report: &Report| report.generation.sequence == sequence && report.outcome == Outcome::Held;
        engine.report(&driver, &target, held).await;
        assert_eq!(fixture.items().await, items);
        command.generation.sequence += 1;
        if let Some(transaction) = &mut command.transaction {
            transaction.decision = Some(decision);
        }
        engine.send(&command).await;
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
    engine.send(&transaction_command(&*fixture, &prober, sequence, &all(&*fixture), long, None)).await;
    let held = |report: &Report| report.generation.sequence == sequence && report.outcome == Outcome::Held;
    engine.report(&driver, &target, held).await;
    host.stop().await;
    assert_eq!(fixture.items().await, before);
    let report = engine.report(&driver, &target, |_| true).await;
    assert!(matches!(report.outcome, Outcome::RolledBack { .. }), "{report:?}");
}
