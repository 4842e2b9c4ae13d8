//! Checks of a driver without its host.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use eno_schemas::{Applied, Outcome};
use tokio::sync::{mpsc, watch};

use super::{DriverFixture, all, command};
use eno_sbi::{Driver, Reconciled};
use eno_sbi::{LatestCommand, Work};

const OTHER_ITEMS: &str = "the target's items (left) are not those of the command (right)";

/// Runs one reconcile.
pub(super) async fn reconcile<R: DriverFixture>(
    fixture: &R,
    driver: &R::Driver,
    items: &BTreeSet<usize>,
) -> Reconciled {
    let (work, _channels) = work(fixture, driver, items, 1);
    driver.reconcile(work).await
}

type WorkChannels = (watch::Sender<LatestCommand>, mpsc::Receiver<String>);

/// Work on command 1, while the command of sequence `newest` is the target's latest.
fn work<R: DriverFixture>(
    fixture: &R,
    driver: &R::Driver,
    items: &BTreeSet<usize>,
    newest: u64,
) -> (Work, WorkChannels) {
    let of = |sequence| Arc::new(command(fixture, &driver.identity().name, sequence, items));
    let (newest, newest_seen) = watch::channel(LatestCommand::Command(of(newest)));
    let (progress, messages) = mpsc::channel(16);
    (Work::new(of(1), newest_seen, progress), (newest, messages))
}

#[track_caller]
pub(super) fn assert_applied(reconciled: &Reconciled) {
    assert_eq!(reconciled.outcome, Outcome::Applied, "the outcome is not applied: {reconciled:?}");
    assert!(reconciled.applied.is_some(), "what is there was not read back: {reconciled:?}");
    assert!(reconciled.rejected.is_empty(), "items are rejected: {reconciled:?}");
}

/// A reconcile applies every desired item and preserves foreign configuration.
pub async fn apply_converges_and_preserves_foreign_config<R: DriverFixture>(fixture: &R) {
    let (driver, foreign) = (fixture.driver(), fixture.foreign().await);
    assert_applied(&reconcile(fixture, &driver, &all(fixture)).await);
    assert_eq!(fixture.items().await, all(fixture), "{OTHER_ITEMS}");
    assert_eq!(fixture.foreign().await, foreign, "foreign configuration was changed");
}

/// A second reconcile writes nothing, by the same process and by a new one.
pub async fn reconcile_without_drift_writes_nothing<R: DriverFixture>(fixture: &R) {
    let driver = fixture.driver();
    let first = reconcile(fixture, &driver, &all(fixture)).await;
    assert_applied(&first);
    let writes = fixture.writes().await;
    for driver in [driver, fixture.driver()] {
        let again = reconcile(fixture, &driver, &all(fixture)).await;
        assert_applied(&again);
        assert_eq!(
            read_back(&again),
            read_back(&first),
            "another state was read back though nothing differed"
        );
        assert_eq!(fixture.writes().await, writes, "the target was written though nothing differed");
    }
}

/// The state read back, without `before`: what is remembered of ports comes with the next command or is lost
/// with the process.
fn read_back(reconciled: &Reconciled) -> Option<Applied> {
    let mut applied = reconciled.applied.clone();
    if let Some(Applied::Fabric { before, .. }) = &mut applied {
        before.clear();
    }
    applied
}

/// A command with fewer items removes the others, down to none, and preserves foreign configuration.
pub async fn reconcile_removes_undesired_items<R: DriverFixture>(fixture: &R) {
    let (driver, foreign) = (fixture.driver(), fixture.foreign().await);
    let fewer: BTreeSet<usize> = all(fixture).into_iter().skip(1).collect();
    for items in [all(fixture), fewer, BTreeSet::new(), all(fixture), BTreeSet::new()] {
        assert_applied(&reconcile(fixture, &driver, &items).await);
        assert_eq!(fixture.items().await, items, "{OTHER_ITEMS}");
    }
    assert_eq!(fixture.foreign().await, foreign, "foreign configuration was changed");
}

/// The command is the complete state: an item that was removed externally returns, and one that was added as
/// ours goes.
pub async fn reconcile_repairs_external_edits<R: DriverFixture>(fixture: &R) {
    let driver = fixture.driver();
    let wanted: BTreeSet<usize> = all(fixture).into_iter().take((fixture.item_count() - 1).max(1)).collect();
    assert_applied(&reconcile(fixture, &driver, &wanted).await);
    fixture.edit(0, false).await;
    assert_applied(&reconcile(fixture, &driver, &wanted).await);
    assert_eq!(fixture.items().await, wanted, "what was taken away by hand is not back");
    for item in all(fixture).difference(&wanted) {
        fixture.edit(*item, true).await;
    }
    assert_applied(&reconcile(fixture, &driver, &wanted).await);
    assert_eq!(fixture.items().await, wanted, "what was added by hand is still there");
}

/// An unreachable target is reported as unreachable and retryable. The reconcile succeeds once it is
/// reachable.
pub async fn unreachable_target_is_reported_and_retried<R: DriverFixture>(fixture: &R) {
    let driver = fixture.driver();
    for before in [BTreeSet::new(), all(fixture)] {
        assert_applied(&reconcile(fixture, &driver, &before).await);
        fixture.set_reachable(false).await;
        let away = reconcile(fixture, &driver, &all(fixture)).await;
        match &away.outcome {
            Outcome::Failed(failure) => assert!(failure.retryable && failure.unreachable, "{failure:?}"),
            other => panic!("an unreachable target ended with {other:?}"),
        }
        fixture.set_reachable(true).await;
        assert_applied(&reconcile(fixture, &driver, &all(fixture)).await);
        assert_eq!(fixture.items().await, all(fixture), "{OTHER_ITEMS}");
    }
}

/// A refused item is rejected by name and not retried; the other items are applied.
pub async fn refused_item_is_rejected_and_rest_applied<R: DriverFixture>(fixture: &R) {
    let (driver, foreign) = (fixture.driver(), fixture.foreign().await);
    let refused = fixture.item_count() / 2;
    fixture.set_refused(Some(refused)).await;
    let reconciled = reconcile(fixture, &driver, &all(fixture)).await;
    assert!(!reconciled.wants_retry(), "a refused change would be tried again and again: {reconciled:?}");
    match &reconciled.outcome {
        Outcome::Applied => {
            assert!(!reconciled.rejected.is_empty(), "nothing is reported as rejected");
            for rejection in &reconciled.rejected {
                assert!(fixture.names(refused, &rejection.item), "{rejection:?} is not about item {refused}");
                assert!(!rejection.reason.is_empty(), "{rejection:?} gives no reason");
            }
        }
        Outcome::Failed(failure) if fixture.item_count() == 1 => assert!(!failure.unreachable, "{failure:?}"),
        other => panic!("one refused item of {} ended with {other:?}", fixture.item_count()),
    }
    let rest: BTreeSet<usize> = all(fixture).into_iter().filter(|item| *item != refused).collect();
    assert_eq!(fixture.items().await, rest, "{OTHER_ITEMS}");
    assert_eq!(fixture.foreign().await, foreign, "foreign configuration was changed");
    fixture.set_refused(None).await;
    assert_applied(&reconcile(fixture, &driver, &all(fixture)).await);
    assert_eq!(fixture.items().await, all(fixture), "{OTHER_ITEMS}");
}

/// Work that a newer command has superseded writes nothing.
pub async fn superseded_command_writes_nothing<R: DriverFixture>(fixture: &R) {
    let driver = fixture.driver();
    assert_applied(&reconcile(fixture, &driver, &BTreeSet::new()).await);
    let writes = fixture.writes().await;
    let (work, _channels) = work(fixture, &driver, &all(fixture), 2);
    let overtaken = driver.reconcile(work).await;
    assert_ne!(overtaken.outcome, Outcome::Applied, "{overtaken:?}");
    assert_eq!(fixture.writes().await, writes, "the target was written for a command that is not the newest");
    assert_eq!(fixture.items().await, BTreeSet::new(), "{OTHER_ITEMS}");
}

/// A reconcile that is cancelled after any number of steps and repeated converges, by the same process or a
/// new one.
pub async fn interrupted_reconcile_converges_when_repeated<R: DriverFixture>(fixture: &R) {
    let foreign = fixture.foreign().await;
    let mut driver = fixture.driver();
    let mut steps = 1;
    loop {
        assert_applied(&reconcile(fixture, &driver, &BTreeSet::new()).await);
        let (work, channels) = work(fixture, &driver, &all(fixture), 1);
        let ended = cancel_after(driver.reconcile(work), steps).await;
        drop(channels);
        if steps % 2 == 0 {
            driver = fixture.driver();
        }
        assert_applied(&reconcile(fixture, &driver, &all(fixture)).await);
        assert_eq!(fixture.items().await, all(fixture), "broken off after {steps} steps");
        assert_eq!(fixture.foreign().await, foreign, "broken off after {steps} steps");
        if ended {
            return;
        }
        // Every early step, then fewer: a long transaction has hundreds.
        steps += 1 + steps / 4;
    }
}

/// Polls a future `steps` times and drops it; true when it completed before.
async fn cancel_after(future: impl Future, steps: usize) -> bool {
    let mut future = pin!(future);
    let mut polls = 0;
    std::future::poll_fn(|context| {
        polls += 1;
        match future.as_mut().poll(context) {
            Poll::Ready(_) => Poll::Ready(true),
            Poll::Pending if polls >= steps => Poll::Ready(false),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}
