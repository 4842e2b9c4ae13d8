//! Concurrency permits of targets that hold a change, and of targets that do not answer.

use super::*;

/// A stub that holds the change of every transaction.
#[derive(Clone)]
struct Holder(Stub);

impl Driver for Holder {
    fn identity(&self) -> Identity {
        Identity { capabilities: vec![HOLD.into()], ..self.0.identity() }
    }

    async fn reconcile(&self, work: Work) -> Reconciled {
        let done = self.0.reconcile(work.clone()).await;
        match work.intent() {
            Intent::Apply => done,
            Intent::Hold(_) => match work.hold(done.clone()).await {
                HoldOutcome::Confirm => done,
                HoldOutcome::Abort { reason } => {
                    Reconciled::rolled_back(reason, Applied::Nad { present: false })
                }
            },
            Intent::RollBack { reason } => Reconciled::rolled_back(reason, Applied::Nad { present: false }),
        }
    }

    fn changed(&self) -> impl Stream<Item = String> + Send + 'static {
        self.0.changed()
    }

    async fn forget(&self, target: &str) {
        self.0.forget(target).await;
    }
}

fn part(target: &str, sequence: u64, decision: Option<Decision>) -> Command {
    let mut command = command(target, 1, sequence);
    command.desired = fabric([1]);
    command.generation.hash = command.desired.hash();
    let deadline = jiff::Timestamp::now() + jiff::SignedDuration::from_mins(5);
    let participants = vec!["a".into(), "b".into(), "c".into()];
    command.transaction = Some(Transaction {
        id: "t1".into(),
        participants,
        deadline: deadline.to_string(),
        decide_within_ms: None,
        decision,
    });
    command
}

#[tokio::test(flavor = "multi_thread")]
async fn held_changes_use_no_permit_and_no_time_limit() {
    let server = NatsServer::start().await;
    let engine = Engine::new(&server).await;
    let holder = Holder(Stub::new());
    let mut options = HostOptions::new(server.connect("eno-driver-stub").await, Ownership::WholeDriver, "1");
    // Three targets hold at once, for longer than the time limit.
    options.concurrency = 1;
    options.time_limit = Duration::from_millis(500);
    let host = RunningHost::start(holder.clone(), options);
    let held = |report: &Report| report.generation.sequence == 1 && report.outcome == Outcome::Held;
    for target in ["a", "b", "c"] {
        engine.command(&part(target, 1, None)).await;
        engine.report(DRIVER, target, held).await;
    }
    let limit = tokio::time::Instant::now() + Duration::from_secs(1);
    tokio::time::sleep_until(limit).await;
    for target in ["a", "b", "c"] {
        assert!(held(&engine.report(DRIVER, target, |_| true).await), "{target}");
        engine.command(&part(target, 2, Some(Decision::Confirm))).await;
        engine.report(DRIVER, target, done(2)).await;
    }
    // A command that comes now is worked on next.
    engine.apply(&command("a", 1, 3)).await;
    let begun: Vec<(String, u64)> =
        [("a", 1), ("b", 1), ("c", 1), ("a", 3)].map(|(name, at)| (name.to_owned(), at)).into();
    assert_eq!(holder.0.begun(), begun, "a decision was worked on again");
    host.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn driver_without_hold_capability_rejects_transactions() {
    let Setup { server: _server, engine, stub, host } = setup().await;
    engine.command(&part("a", 1, None)).await;
    let report = engine.report(DRIVER, "a", |report| report.generation.sequence == 1).await;
    let Outcome::Failed(failure) = &report.outcome else { panic!("{report:?}") };
    assert!(failure.reason.contains("can't hold a change") && !failure.retryable, "{failure:?}");
    assert!(stub.begun().is_empty());
    host.end().await;
}

/// Never connects to a target whose name begins with `silent`.
#[derive(Clone)]
struct Connecting(Stub);

impl Driver for Connecting {
    fn identity(&self) -> Identity {
        self.0.identity()
    }

    async fn reconcile(&self, work: Work) -> Reconciled {
        let silent = work.command.target.starts_with("silent");
        let reached = work.await_connection(async {
            if silent { std::future::pending::<Result<(), Reconciled>>().await } else { Ok(()) }
        });
        match reached.await {
            Ok(()) => self.0.reconcile(work).await,
            Err(failed) => failed,
        }
    }

    fn changed(&self) -> impl Stream<Item = String> + Send + 'static {
        self.0.changed()
    }

    async fn forget(&self, target: &str) {
        self.0.forget(target).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn connecting_targets_use_no_permit_and_connected_ones_wait_for_one() {
    let server = NatsServer::start().await;
    let engine = Engine::new(&server).await;
    let stub = Stub::new();
    stub.open(false);
    let mut options = HostOptions::new(server.connect("eno-driver-stub").await, Ownership::WholeDriver, "1");
    options.concurrency = 1;
    let host = RunningHost::start(Connecting(stub.clone()), options);
    for target in ["silent1", "silent2", "silent3", "a", "b"] {
        engine.command(&command(target, 1, 1)).await;
    }
    // One of the two that answer is worked on, the other waits for a permit.
    stub.until_begun(|begun| begun.len() == 1).await;
    assert_eq!(stub.begun().len(), 1);
    stub.open(true);
    for target in ["a", "b"] {
        engine.report(DRIVER, target, done(1)).await;
    }
    assert_eq!(stub.begun().len(), 2);
    host.kill().await;
}

/// The engine's clock is 10 minutes behind.
#[tokio::test(flavor = "multi_thread")]
async fn change_is_held_whatever_the_clock_of_the_engine_says() {
    let server = NatsServer::start().await;
    let engine = Engine::new(&server).await;
    let holder = Holder(Stub::new());
    let by = |target: &str, within: u64| {
        let mut command = part(target, 1, None);
        let transaction = command.transaction.as_mut().unwrap();
        transaction.deadline = (jiff::Timestamp::now() - jiff::SignedDuration::from_mins(10)).to_string();
        transaction.decide_within_ms = Some(within);
        command
    };
    engine.command(&by("a", 300_000)).await;
    // It lies in the stream for longer than it may be undecided: the host starts only then.
    engine.command(&by("b", 1)).await;
    let options = HostOptions::new(server.connect("eno-driver-stub").await, Ownership::WholeDriver, "1");
    let host = RunningHost::start(holder.clone(), options);
    engine.report(DRIVER, "a", |report| report.outcome == Outcome::Held).await;
    let late = engine.report(DRIVER, "b", |report| report.generation.sequence == 1).await;
    assert!(
        matches!(&late.outcome, Outcome::RolledBack { reason } if reason.contains("deadline")),
        "{late:?}"
    );
    host.end().await;
}
