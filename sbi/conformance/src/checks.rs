//! Checks of a driver alone.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use eno_schemas::{Applied, Outcome};
use tokio::sync::{mpsc, watch};

use super::{DriverFixture, all, command};
use eno_sbi::{Driver, Reconciled};
use eno_sbi::{Newest, Work};

/// Has the driver reconcile.
pub(super) async fn reconcile<R: DriverFixture>(
    fixture: &R,
    driver: &R::Driver,
    items: &BTreeSet<usize>,
) -> Reconciled {
    let (work, _kept) = work(fixture, driver, items, 1);
    driver.reconcile(work).await
}

type Kept = (watch::Sender<Newest>, mpsc::Receiver<String>);

/// Work on command 1, while the command of sequence `newest` is the newest of the target.
fn work<R: DriverFixture>(
    fixture: &R,
    driver: &R::Driver,
    items: &BTreeSet<usize>,
    newest: u64,
) -> (Work, Kept) {
    let of = |sequence| Arc::new(command(fixture, &driver.identity().name, sequence, items));
    let (newest, newest_seen) = watch::channel(Newest::Command(of(newest)));
    let (progress, messages) = mpsc::channel(16);
    (Work::new(of(1), newest_seen, progress), (newest, messages))
}

#[track_caller]
pub(super) fn assert_applied(reconciled: &Reconciled) {
    assert_eq!(reconciled.outcome, Outcome::Applied, "{reconciled:?}");
    assert!(reconciled.applied.is_some(), "what is there was not read back: {reconciled:?}");
    assert!(reconciled.rejected.is_empty(), "{reconciled:?}");
}

/// All that is wanted is there afterwards, and what is foreign is as before.
pub async fn reaches_the_state<R: DriverFixture>(fixture: &R) {
    let (driver, foreign) = (fixture.driver(), fixture.foreign().await);
    assert_applied(&reconcile(fixture, &driver, &all::<R>()).await);
    assert_eq!(fixture.items().await, all::<R>());
    assert_eq!(fixture.foreign().await, foreign, "foreign configuration was changed");
}

/// A second time writes nothing, by the same process and by a new one.
pub async fn writes_nothing_when_nothing_differs<R: DriverFixture>(fixture: &R) {
    let driver = fixture.driver();
    let first = reconcile(fixture, &driver, &all::<R>()).await;
    assert_applied(&first);
    let writes = fixture.writes().await;
    for driver in [driver, fixture.driver()] {
        let again = reconcile(fixture, &driver, &all::<R>()).await;
        assert_applied(&again);
        assert_eq!(there(&again), there(&first));
        assert_eq!(fixture.writes().await, writes, "the target was written though nothing differed");
    }
}

/// What was read back. What is remembered of ports comes with the next command, or is forgotten with the process.
fn there(reconciled: &Reconciled) -> Option<Applied> {
    let mut applied = reconciled.applied.clone();
    if let Some(Applied::Fabric { before, .. }) = &mut applied {
        before.clear();
    }
    applied
}

/// What a newer command no longer has goes, down to nothing, and what is foreign stays.
pub async fn removes_what_is_not_wanted<R: DriverFixture>(fixture: &R) {
    let (driver, foreign) = (fixture.driver(), fixture.foreign().await);
    let fewer: BTreeSet<usize> = all::<R>().into_iter().skip(1).collect();
    for items in [all::<R>(), fewer, BTreeSet::new(), all::<R>(), BTreeSet::new()] {
        assert_applied(&reconcile(fixture, &driver, &items).await);
        assert_eq!(fixture.items().await, items);
    }
    assert_eq!(fixture.foreign().await, foreign, "foreign configuration was changed");
}

/// What another hand took away comes back, and what it added as ours goes: the command is the complete state.
pub async fn undoes_edits_by_hand<R: DriverFixture>(fixture: &R) {
    let driver = fixture.driver();
    let wanted: BTreeSet<usize> = all::<R>().into_iter().take((R::ITEMS - 1).max(1)).collect();
    assert_applied(&reconcile(fixture, &driver, &wanted).await);
    fixture.edit(0, false).await;
    assert_applied(&reconcile(fixture, &driver, &wanted).await);
    assert_eq!(fixture.items().await, wanted, "what was taken away by hand is not back");
    for item in all::<R>().difference(&wanted) {
        fixture.edit(*item, true).await;
    }
    assert_applied(&reconcile(fixture, &driver, &wanted).await);
    assert_eq!(fixture.items().await, wanted, "what was added by hand is still there");
}

/// A target that does not answer is to be tried again and is not called wrong; when it answers, all is well.
pub async fn tells_unreachable_from_wrong<R: DriverFixture>(fixture: &R) {
    let driver = fixture.driver();
    for before in [BTreeSet::new(), all::<R>()] {
        assert_applied(&reconcile(fixture, &driver, &before).await);
        fixture.set_reachable(false).await;
        let away = reconcile(fixture, &driver, &all::<R>()).await;
        match &away.outcome {
            Outcome::Failed(failure) => assert!(failure.retryable && failure.unreachable, "{failure:?}"),
            other => panic!("an unreachable target ended with {other:?}"),
        }
        fixture.set_reachable(true).await;
        assert_applied(&reconcile(fixture, &driver, &all::<R>()).await);
        assert_eq!(fixture.items().await, all::<R>());
    }
}

/// What the target refuses is left out, named and not tried again; the rest is applied.
pub async fn leaves_out_what_is_refused<R: DriverFixture>(fixture: &R) {
    let (driver, foreign) = (fixture.driver(), fixture.foreign().await);
    let refused = R::ITEMS / 2;
    fixture.set_refused(Some(refused)).await;
    let reconciled = reconcile(fixture, &driver, &all::<R>()).await;
    assert!(!reconciled.wants_retry(), "a refused change would be tried again and again: {reconciled:?}");
    match &reconciled.outcome {
        Outcome::Applied => {
            assert!(!reconciled.rejected.is_empty(), "nothing is reported as rejected");
            for rejection in &reconciled.rejected {
                assert!(fixture.names(refused, &rejection.item), "{rejection:?} is not about item {refused}");
                assert!(!rejection.reason.is_empty(), "{rejection:?} gives no reason");
            }
        }
        Outcome::Failed(failure) if R::ITEMS == 1 => assert!(!failure.unreachable, "{failure:?}"),
        other => panic!("one refused item of {} ended with {other:?}", R::ITEMS),
    }
    let rest: BTreeSet<usize> = all::<R>().into_iter().filter(|item| *item != refused).collect();
    assert_eq!(fixture.items().await, rest);
    assert_eq!(fixture.foreign().await, foreign, "foreign configuration was changed");
    fixture.set_refused(None).await;
    assert_applied(&reconcile(fixture, &driver, &all::<R>()).await);
    assert_eq!(fixture.items().await, all::<R>());
}

/// Work that a newer command has overtaken writes nothing.
pub async fn writes_nothing_for_an_older_generation<R: DriverFixture>(fixture: &R) {
    let driver = fixture.driver();
    assert_applied(&reconcile(fixture, &driver, &BTreeSet::new()).await);
    let writes = fixture.writes().await;
    let (work, _kept) = work(fixture, &driver, &all::<R>(), 2);
    let overtaken = driver.reconcile(work).await;
    assert_ne!(overtaken.outcome, Outcome::Applied, "{overtaken:?}");
    assert_eq!(fixture.writes().await, writes, "the target was written for a command that is not the newest");
    assert_eq!(fixture.items().await, BTreeSet::new());
}

/// Broken off after any number of steps and repeated, by the same process or a new one, it comes to the same end.
pub async fn survives_being_killed_at_any_point<R: DriverFixture>(fixture: &R) {
    let foreign = fixture.foreign().await;
    let mut driver = fixture.driver();
    let mut steps = 1;
    loop {
        assert_applied(&reconcile(fixture, &driver, &BTreeSet::new()).await);
        let (work, kept) = work(fixture, &driver, &all::<R>(), 1);
        let ended = broken_off(driver.reconcile(work), steps).await;
        drop(kept);
        if steps % 2 == 0 {
            driver = fixture.driver();
        }
        assert_applied(&reconcile(fixture, &driver, &all::<R>()).await);
        assert_eq!(fixture.items().await, all::<R>(), "broken off after {steps} steps");
        assert_eq!(fixture.foreign().await, foreign, "broken off after {steps} steps");
        if ended {
            return;
        }
        // Every early step, then fewer: a long transaction has hundreds.
        steps += 1 + steps / 4;
    }
}

/// Polls a future so many times and drops it; true when it ended before.
async fn broken_off(future: impl Future, steps: usize) -> bool {
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
