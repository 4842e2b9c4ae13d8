//! Checks of a driver that can hold a change until a transaction is decided.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use eno_schemas::{Command, Decision, Outcome, Transaction};
use tokio::sync::{mpsc, watch};

use super::checks::{assert_applied, reconcile};
use super::{DriverFixture, all, command};
use eno_sbi::{Driver, Reconciled};
use eno_sbi::{HOLD, LatestCommand, Phase, Work};

/// A deadline that no check reaches.
const LONG_HOLD: Duration = Duration::from_mins(5);
/// A deadline that leaves time for the change, and that a check waits for.
const SHORT_HOLD: Duration = Duration::from_secs(3);
const EXPIRED: Duration = Duration::ZERO;

pub(super) fn can_hold(driver: &impl Driver) -> bool {
    driver.identity().capabilities.iter().any(|capability| capability == HOLD)
}

/// The command of a transaction whose deadline is `left` from now.
pub(super) fn transaction_command<R: DriverFixture>(
    fixture: &R,
    driver: &R::Driver,
    sequence: u64,
    items: &BTreeSet<usize>,
    left: Duration,
    decision: Option<Decision>,
) -> Command {
    let command = command(fixture, &driver.identity().name, sequence, items);
    let deadline = jiff::Timestamp::now() + jiff::SignedDuration::try_from(left).expect("a short time");
    let transaction = Transaction {
        id: "t1".into(),
        participants: vec![fixture.target(), "another".into()],
        deadline: deadline.to_string(),
        decide_within_ms: u64::try_from(left.as_millis()).ok(),
        decision,
    };
    Command { transaction: Some(transaction), ..command }
}

/// A reconcile of a held command, and the sender of newer commands.
struct HeldWork {
    newest: watch::Sender<LatestCommand>,
    work: Option<Work>,
    phase: watch::Receiver<Phase>,
    command: Command,
    _messages: mpsc::Receiver<String>,
}

impl HeldWork {
    fn of(command: Command) -> Self {
        let (newest, seen) = watch::channel(LatestCommand::Command(Arc::new(command.clone())));
        let (progress, messages) = mpsc::channel(16);
        let work = Work::new(Arc::new(command.clone()), seen, progress);
        Self { newest, phase: work.phase(), work: Some(work), command, _messages: messages }
    }

    /// Reconciles until the driver holds the change, calls `then`, and returns the result.
    async fn work(mut self, driver: &impl Driver, then: impl AsyncFnOnce(&Self, &Reconciled)) -> Reconciled {
        let work = self.work.take().expect("it works once");
        let deciding = async {
            let mut phase = self.phase.clone();
            let phase = phase.wait_for(|phase| matches!(phase, Phase::Held(_))).await;
            let Phase::Held(held) = phase.expect("it holds the change").clone() else { return };
            then(&self, &held).await;
        };
        tokio::join!(driver.reconcile(work), deciding).0
    }

    /// Sends the next command: the same one, with its decision or without a transaction.
    fn send_next(&self, decision: Option<Decision>) {
        let mut next = self.command.clone();
        next.generation.sequence += 1;
        next.transaction = match (next.transaction, decision) {
            (Some(transaction), Some(_)) => Some(Transaction { decision, ..transaction }),
            _ => None,
        };
        self.newest.send_replace(LatestCommand::Command(Arc::new(next)));
    }
}

#[track_caller]
fn assert_rolled_back(reconciled: &Reconciled) {
    assert!(
        matches!(&reconciled.outcome, Outcome::RolledBack { reason } if !reason.is_empty()),
        "{reconciled:?}"
    );
    assert!(reconciled.applied.is_some(), "what is there was not read back: {reconciled:?}");
    assert!(!reconciled.wants_retry(), "{reconciled:?}");
}

/// A held change is applied and reported, and stays once it is confirmed; also when there was nothing to
/// change.
pub async fn confirmed_hold_keeps_the_change<R: DriverFixture>(fixture: &R) {
    let (driver, foreign) = (fixture.driver(), fixture.foreign().await);
    if !can_hold(&driver) {
        return;
    }
    for _ in ["a change", "none"] {
        let running = HeldWork::of(transaction_command(fixture, &driver, 1, &all(fixture), LONG_HOLD, None));
        let ended = running.work(&driver, async |running, held| {
            assert_applied(&Reconciled { outcome: Outcome::Applied, ..held.clone() });
            assert_eq!(fixture.items().await, all(fixture), "what is reported as held is not there");
            running.send_next(Some(Decision::Confirm));
        });
        assert_applied(&ended.await);
        assert_eq!(fixture.items().await, all(fixture));
    }
    assert_eq!(fixture.foreign().await, foreign, "foreign configuration was changed");
}

/// An abort, another command, the loss of ownership and the deadline each roll back a held change.
pub async fn unconfirmed_hold_is_rolled_back<R: DriverFixture>(fixture: &R) {
    let (driver, foreign) = (fixture.driver(), fixture.foreign().await);
    if !can_hold(&driver) {
        return;
    }
    let before: BTreeSet<usize> = all(fixture).into_iter().take(1).collect();
    assert_applied(&reconcile(fixture, &driver, &before).await);
    for why in ["abort", "another command", "the end", "the deadline"] {
        let left = if why == "the deadline" { SHORT_HOLD } else { LONG_HOLD };
        let running = HeldWork::of(transaction_command(fixture, &driver, 1, &all(fixture), left, None));
        let ended = running.work(&driver, async |running, _| match why {
            "abort" => running.send_next(Some(Decision::Abort)),
            "another command" => running.send_next(None),
            "the end" => drop(running.newest.send_replace(LatestCommand::Stopped)),
            _ => {}
        });
        assert_rolled_back(&ended.await);
        assert_eq!(fixture.items().await, before, "after {why}");
        assert_eq!(fixture.foreign().await, foreign, "after {why}");
    }
    assert_applied(&reconcile(fixture, &driver, &all(fixture)).await);
}

/// A driver without a held change applies it when it was confirmed, and writes nothing when it was not.
pub async fn new_process_follows_recorded_decision<R: DriverFixture>(fixture: &R) {
    let driver = fixture.driver();
    if !can_hold(&driver) {
        return;
    }
    let before: BTreeSet<usize> = all(fixture).into_iter().take(1).collect();
    assert_applied(&reconcile(fixture, &driver, &before).await);
    let writes = fixture.writes().await;
    for (left, decision) in [(LONG_HOLD, Some(Decision::Abort)), (EXPIRED, None)] {
        for driver in [fixture.driver(), fixture.driver()] {
            let mut running =
                HeldWork::of(transaction_command(fixture, &driver, 2, &all(fixture), left, decision));
            let work = running.work.take().expect("it works once");
            assert_rolled_back(&driver.reconcile(work).await);
            assert_eq!(
                (fixture.items().await, fixture.writes().await),
                (before.clone(), writes),
                "{decision:?}"
            );
        }
    }
    let driver = fixture.driver();
    let mut running = HeldWork::of(transaction_command(
        fixture,
        &driver,
        2,
        &all(fixture),
        EXPIRED,
        Some(Decision::Confirm),
    ));
    let work = running.work.take().expect("it works once");
    assert_applied(&driver.reconcile(work).await);
    assert_eq!(fixture.items().await, all(fixture));
}

/// The next process rolls back, or applies again, what a killed one held, according to the decision.
pub async fn killed_hold_is_settled_by_the_next_process<R: DriverFixture>(fixture: &R) {
    let foreign = fixture.foreign().await;
    if !can_hold(&fixture.driver()) {
        return;
    }
    let before: BTreeSet<usize> = all(fixture).into_iter().take(1).collect();
    for decision in [Decision::Abort, Decision::Confirm] {
        assert_applied(&reconcile(fixture, &fixture.driver(), &before).await);
        let killed = fixture.driver();
        let mut running =
            HeldWork::of(transaction_command(fixture, &killed, 1, &all(fixture), LONG_HOLD, None));
        let work = running.work.take().expect("it works once");
        tokio::select! {
            ended = killed.reconcile(work) => panic!("it did not wait for the decision: {ended:?}"),
            held = running.phase.wait_for(|phase| matches!(phase, Phase::Held(_))) => {
                held.expect("it holds the change");
            }
        }
        drop(killed);
        let next = fixture.driver();
        let mut running =
            HeldWork::of(transaction_command(fixture, &next, 2, &all(fixture), LONG_HOLD, Some(decision)));
        let ended = next.reconcile(running.work.take().expect("it works once")).await;
        match decision {
            Decision::Abort => {
                assert_rolled_back(&ended);
                assert_eq!(fixture.items().await, before);
            }
            Decision::Confirm => {
                assert_applied(&ended);
                assert_eq!(fixture.items().await, all(fixture));
            }
        }
        assert_eq!(fixture.foreign().await, foreign, "{decision:?}");
    }
}
