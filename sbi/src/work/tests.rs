use std::future::Future;
use std::pin::pin;

use eno_schemas::Applied;

use super::*;
use eno_conformance::fabric;

fn command(sequence: u64, transaction: Option<(&str, &str, Option<Decision>)>) -> Arc<Command> {
    let desired = fabric([1]);
    let transaction = transaction.map(|(id, deadline, decision)| Transaction {
        id: id.into(),
        participants: vec!["a".into(), "b".into()],
        deadline: deadline.into(),
        decide_within_ms: None,
        decision,
    });
    Arc::new(Command { transaction, ..Command::new("d", "a", (1, sequence), desired) })
}

fn later() -> String {
    (jiff::Timestamp::now() + jiff::SignedDuration::from_mins(5)).to_string()
}

fn work(command: &Arc<Command>) -> (Work, watch::Sender<LatestCommand>) {
    let (newest, seen) = watch::channel(LatestCommand::Command(command.clone()));
    (Work::new(command.clone(), seen, mpsc::channel(1).0), newest)
}

fn verified() -> Reconciled {
    Reconciled::applied(Applied::Nad { present: true })
}

/// Polls once; the future must not be ready.
async fn waits(future: &mut (impl Future<Output = HoldOutcome> + Unpin)) {
    std::future::poll_fn(|context| {
        assert!(std::pin::Pin::new(&mut *future).poll(context).is_pending(), "it did not wait");
        std::task::Poll::Ready(())
    })
    .await;
}

#[test]
fn intent_follows_the_current_command() {
    let later = later();
    let intent = |transaction| {
        let command = command(1, transaction);
        match work(&command).0.intent() {
            Intent::Apply => "make".to_owned(),
            Intent::Hold(transaction) => format!("hold {}", transaction.id),
            Intent::RollBack { reason } => reason,
        }
    };
    assert_eq!(intent(None), "make");
    assert_eq!(intent(Some(("t", &later, None))), "hold t");
    assert_eq!(intent(Some(("t", "2020-01-01T00:00:00Z", Some(Decision::Confirm)))), "make");
    assert_eq!(intent(Some(("t", &later, Some(Decision::Abort)))), "transaction t was aborted");
    for deadline in ["2020-01-01T00:00:00Z", "soon"] {
        assert!(intent(Some(("t", deadline, None))).contains("not decided by its deadline"), "{deadline}");
    }
}

#[tokio::test]
async fn only_the_decision_of_the_own_transaction_counts() {
    let later = later();
    let decided = |id, decision| command(2, Some((id, later.as_str(), decision)));
    let (confirm, abort) = (Some(Decision::Confirm), Some(Decision::Abort));
    for (next, confirmed, settled) in [
        (decided("t", confirm), true, true),
        (decided("t", abort), false, true),
        (decided("other", confirm), false, false),
        (decided("t", None), false, false),
        (command(2, None), false, false),
    ] {
        let (work, newest) = work(&command(1, Some(("t", &later, None))));
        let mut phase = work.phase();
        let mut holding = pin!(work.hold(verified()));
        waits(&mut holding).await;
        assert!(matches!(&*phase.borrow_and_update(), Phase::Held(held) if held.outcome == Outcome::Held));
        // A repeated command is no newer one.
        newest.send_replace(LatestCommand::Command(work.command.clone()));
        waits(&mut holding).await;
        newest.send_replace(LatestCommand::Command(next.clone()));
        assert_eq!(holding.await == HoldOutcome::Confirm, confirmed, "{next:?}");
        assert_eq!(work.generation().sequence, if settled { 2 } else { 1 }, "{next:?}");
        assert_eq!(*phase.borrow(), Phase::Settled(settled.then_some(next)));
    }
}

#[tokio::test]
async fn confirmation_of_another_state_aborts() {
    let later = later();
    let (work, newest) = work(&command(1, Some(("t", &later, None))));
    let mut other = (*command(2, Some(("t", &later, Some(Decision::Confirm))))).clone();
    other.generation.hash = "another".into();
    newest.send_replace(LatestCommand::Command(Arc::new(other)));
    assert!(matches!(work.hold(verified()).await, HoldOutcome::Abort { .. }));
}

#[tokio::test]
async fn undecided_transaction_aborts_at_its_deadline() {
    let soon = (jiff::Timestamp::now() + jiff::SignedDuration::from_millis(50)).to_string();
    let (overdue, _newest) = work(&command(1, Some(("t", &soon, None))));
    assert!(!overdue.time_to_decide().is_zero());
    assert!(
        matches!(overdue.hold(verified()).await, HoldOutcome::Abort { reason } if reason.contains("by its deadline"))
    );
    let (stopped, newest) = work(&command(1, Some(("t", &later(), None))));
    let mut holding = pin!(stopped.hold(verified()));
    waits(&mut holding).await;
    newest.send_replace(LatestCommand::Stopped);
    assert!(matches!(holding.await, HoldOutcome::Abort { reason } if reason.contains("stops")));
    drop(newest);
    assert!(matches!(stopped.hold(verified()).await, HoldOutcome::Abort { .. }));
}

/// What the decision asks for may take longer than the hold, and only a still newer command ends it.
#[tokio::test]
async fn work_stays_current_under_the_decision_that_ended_its_hold() {
    let later = later();
    for (decision, confirmed) in [(Decision::Confirm, true), (Decision::Abort, false)] {
        let opening = command(1, Some(("t", &later, None)));
        let (work, newest) = work(&opening);
        assert!(work.is_current() && !work.is_confirmed());
        newest.send_replace(LatestCommand::Command(command(2, Some(("t", &later, Some(decision))))));
        assert!(!work.is_current() && !work.is_confirmed(), "before the hold");
        work.hold(verified()).await;
        assert!(work.is_current());
        assert_eq!(work.is_confirmed(), confirmed);
        newest.send_replace(LatestCommand::Command(command(3, None)));
        assert!(!work.is_current());
    }
}

/// The clock of the engine is 10 minutes behind, and then ahead.
#[test]
fn deadline_counts_from_the_storage_of_the_command() {
    let now = jiff::Timestamp::now();
    for apart in [-10, 0, 10] {
        let at = now + jiff::SignedDuration::from_mins(apart) + jiff::SignedDuration::from_secs(30);
        let left = |within, age| {
            let mut transaction = Transaction {
                decide_within_ms: within,
                ..command(1, Some(("t", &at.to_string(), None))).transaction.clone().unwrap()
            };
            set_deadline(&mut transaction, Duration::from_secs(age), now);
            let deadline: jiff::Timestamp = transaction.deadline.parse().unwrap();
            deadline.duration_since(now).as_secs()
        };
        assert_eq!(left(Some(30_000), 0), 30);
        // The message lay in the stream.
        assert_eq!((left(Some(30_000), 12), left(Some(30_000), 700)), (18, 0));
        // No command has a change held for ever.
        assert_eq!((left(Some(u64::MAX), 0), left(Some(301_000), 12)), (300, 288));
        // An earlier engine tells only its time.
        assert_eq!(left(None, 12), (apart * 60 + 30).min(300));
    }
}
