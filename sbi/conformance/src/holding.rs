//! Checks of a driver that can hold a change until a transaction is decided.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use eno_schemas::{Command, Decision, Outcome, Transaction};
use tokio::sync::{mpsc, watch};

use super::checks::{assert_applied, reconcile};
use super::{DriverFixture, all, command};
use eno_sbi::{Driver, Reconciled};
use eno_sbi::{HOLD, Newest, Phase, Work};

/// Longer than any check.
const LONG: Duration = Duration::from_mins(5);
/// Long enough to make a change, and waited for.
const SHORT: Duration = Duration::from_secs(3);
const OVER: Duration = Duration::ZERO;

pub(super) fn holds(driver: &impl Driver) -> bool {
    driver.identity().capabilities.iter().any(|capability| capability == HOLD)
}

/// The command of a transaction that has this long to be decided.
pub(super) fn part<R: DriverFixture>(
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
        decision,
    };
    Command { transaction: Some(transaction), ..command }
}

/// A command that is worked on, and what comes after it.
struct Running {
    newest: watch::Sender<Newest>,
    work: Option<Work>,
    phase: watch::Receiver<Phase>,
    command: Command,
    _messages: mpsc::Receiver<String>,
}

impl Running {
    fn of(command: Command) -> Self {
        let (newest, seen) = watch::channel(Newest::Command(Arc::new(command.clone())));
        let (progress, messages) = mpsc::channel(16);
        let work = Work::new(Arc::new(command.clone()), seen, progress);
        Self { newest, phase: work.phase(), work: Some(work), command, _messages: messages }
    }

    /// Works until the driver holds the change, then does `then`, and works until the end.
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

    /// The next command: the same one, with its decision or without a transaction.
    fn next(&self, decision: Option<Decision>) {
        let mut next = self.command.clone();
        next.generation.sequence += 1;
        next.transaction = match (next.transaction, decision) {
            (Some(transaction), Some(_)) => Some(Transaction { decision, ..transaction }),
            _ => None,
        };
        self.newest.send_replace(Newest::Command(Arc::new(next)));
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

/// What is held is there and reported, and stays once it is confirmed; also when there was nothing to change.
pub async fn keeps_what_is_confirmed<R: DriverFixture>(fixture: &R) {
    let (driver, foreign) = (fixture.driver(), fixture.foreign().await);
    if !holds(&driver) {
        return;
    }
    for _ in ["a change", "none"] {
        let running = Running::of(part(fixture, &driver, 1, &all::<R>(), LONG, None));
        let ended = running.work(&driver, async |running, held| {
            assert_applied(&Reconciled { outcome: Outcome::Applied, ..held.clone() });
            assert_eq!(fixture.items().await, all::<R>(), "what is said to be held is not there");
            running.next(Some(Decision::Confirm));
        });
        assert_applied(&ended.await);
        assert_eq!(fixture.items().await, all::<R>());
    }
    assert_eq!(fixture.foreign().await, foreign, "foreign configuration was changed");
}

/// An abort, another command, the end of the ownership and the deadline undo what is held.
pub async fn takes_back_what_is_not_confirmed<R: DriverFixture>(fixture: &R) {
    let (driver, foreign) = (fixture.driver(), fixture.foreign().await);
    if !holds(&driver) {
        return;
    }
    let before: BTreeSet<usize> = all::<R>().into_iter().take(1).collect();
    assert_applied(&reconcile(fixture, &driver, &before).await);
    for why in ["abort", "another command", "the end", "the deadline"] {
        let left = if why == "the deadline" { SHORT } else { LONG };
        let running = Running::of(part(fixture, &driver, 1, &all::<R>(), left, None));
        let ended = running.work(&driver, async |running, _| match why {
            "abort" => running.next(Some(Decision::Abort)),
            "another command" => running.next(None),
            "the end" => drop(running.newest.send_replace(Newest::End)),
            _ => {}
        });
        assert_rolled_back(&ended.await);
        assert_eq!(fixture.items().await, before, "after {why}");
        assert_eq!(fixture.foreign().await, foreign, "after {why}");
    }
    assert_applied(&reconcile(fixture, &driver, &all::<R>()).await);
}

/// A driver that holds nothing makes the change when it is confirmed, and writes nothing when it is not.
pub async fn does_what_was_decided_while_it_was_away<R: DriverFixture>(fixture: &R) {
    let driver = fixture.driver();
    if !holds(&driver) {
        return;
    }
    let before: BTreeSet<usize> = all::<R>().into_iter().take(1).collect();
    assert_applied(&reconcile(fixture, &driver, &before).await);
    let writes = fixture.writes().await;
    for (left, decision) in [(LONG, Some(Decision::Abort)), (OVER, None)] {
        for driver in [fixture.driver(), fixture.driver()] {
            let mut running = Running::of(part(fixture, &driver, 2, &all::<R>(), left, decision));
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
    let mut running = Running::of(part(fixture, &driver, 2, &all::<R>(), OVER, Some(Decision::Confirm)));
    let work = running.work.take().expect("it works once");
    assert_applied(&driver.reconcile(work).await);
    assert_eq!(fixture.items().await, all::<R>());
}

/// What a killed process held is taken back by the next one, or made anew, as was decided.
pub async fn can_be_killed_while_it_holds<R: DriverFixture>(fixture: &R) {
    let foreign = fixture.foreign().await;
    if !holds(&fixture.driver()) {
        return;
    }
    let before: BTreeSet<usize> = all::<R>().into_iter().take(1).collect();
    for decision in [Decision::Abort, Decision::Confirm] {
        assert_applied(&reconcile(fixture, &fixture.driver(), &before).await);
        let killed = fixture.driver();
        let mut running = Running::of(part(fixture, &killed, 1, &all::<R>(), LONG, None));
        let work = running.work.take().expect("it works once");
        tokio::select! {
            ended = killed.reconcile(work) => panic!("it did not wait for the decision: {ended:?}"),
            held = running.phase.wait_for(|phase| matches!(phase, Phase::Held(_))) => {
                held.expect("it holds the change");
            }
        }
        drop(killed);
        let next = fixture.driver();
        let mut running = Running::of(part(fixture, &next, 2, &all::<R>(), LONG, Some(decision)));
        let ended = next.reconcile(running.work.take().expect("it works once")).await;
        match decision {
            Decision::Abort => {
                assert_rolled_back(&ended);
                assert_eq!(fixture.items().await, before);
            }
            Decision::Confirm => {
                assert_applied(&ended);
                assert_eq!(fixture.items().await, all::<R>());
            }
        }
        assert_eq!(fixture.foreign().await, foreign, "{decision:?}");
    }
}
