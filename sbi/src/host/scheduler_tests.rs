use std::time::Duration;

use super::*;
use eno_conformance::fabric;

const MIN_RETRY_DELAY: Duration = Duration::from_millis(500);
const MAX_RETRY_DELAY: Duration = Duration::from_mins(1);

fn command(target: &str, term: u64, sequence: u64) -> Arc<Command> {
    Arc::new(Command::new("d", target, (term, sequence), fabric([])))
}

fn owning_all() -> TargetScheduler<u8> {
    let mut scheduler = TargetScheduler::new(Ownership::WholeDriver);
    scheduler.set_owned(None, true);
    scheduler
}

#[track_caller]
fn sequence(start: &Start<u8>) -> u64 {
    match &start.job {
        Job::Reconcile(command) => command.generation.sequence,
        other => panic!("{other:?}"),
    }
}

fn finish(scheduler: &mut TargetScheduler<u8>, start: &Start<u8>, retry: bool) -> bool {
    finish_by(scheduler, start, retry.then_some(Backoff::FAILED_TARGET))
}

fn finish_by(scheduler: &mut TargetScheduler<u8>, start: &Start<u8>, policy: Option<Backoff>) -> bool {
    let generation = match &start.job {
        Job::Reconcile(command) => Some(command.generation.clone()),
        _ => None,
    };
    let retry = generation.zip(policy);
    scheduler.finished(&start.target, retry.as_ref(), &start.job, start.record + 1, Instant::now())
}

#[test]
fn commands_during_work_coalesce_into_one_reconcile_of_the_latest() {
    let mut scheduler = owning_all();
    assert_eq!(scheduler.offer(command("t", 1, 1), 1), OfferResult::New);
    let first = scheduler.next().unwrap();
    for sequence in 2..=20 {
        assert_eq!(scheduler.offer(command("t", 1, sequence), sequence), OfferResult::New);
        assert!(scheduler.next().is_none(), "two reconciles of one target at once");
    }
    assert!(
        matches!(&*first.newest.borrow(), LatestCommand::Command(newest) if newest.generation.sequence == 20)
    );
    finish(&mut scheduler, &first, false);
    let second = scheduler.next().unwrap();
    assert_eq!((sequence(&second), second.record), (20, 1));
    finish(&mut scheduler, &second, false);
    assert!(scheduler.next().is_none());
}

#[test]
fn namespace_with_many_targets_starves_no_other() {
    let mut scheduler = owning_all();
    for n in 0..10_000 {
        scheduler.offer(command(&format!("flood/{n}"), 1, n), n);
    }
    scheduler.offer(command("other/a", 1, 10_000), 10_000);
    scheduler.offer(command("leaf1", 1, 10_001), 10_001);
    let names: Vec<String> =
        std::iter::from_fn(|| scheduler.next()).take(4).map(|start| start.target).collect();
    assert_eq!(names, ["flood/0", "other/a", "leaf1", "flood/1"]);
}

#[test]
fn older_and_known_generations_start_nothing() {
    let mut scheduler = owning_all();
    scheduler.offer(command("t", 2, 5), 1);
    let start = scheduler.next().unwrap();
    finish(&mut scheduler, &start, false);
    assert_eq!(scheduler.offer(command("t", 2, 5), 2), OfferResult::Known);
    assert_eq!(scheduler.offer(command("t", 2, 4), 3), OfferResult::Stale);
    assert_eq!(scheduler.offer(command("t", 1, 9), 4), OfferResult::Stale);
    assert!(scheduler.next().is_none());
    assert_eq!(scheduler.offer(command("t", 3, 1), 5), OfferResult::New);
    assert_eq!(sequence(&scheduler.next().unwrap()), 1);
}

#[test]
fn retries_back_off_and_a_new_command_resets_them() {
    let mut scheduler = owning_all();
    scheduler.offer(command("t", 1, 1), 1);
    let mut last = Duration::ZERO;
    for round in 0..10 {
        let start = scheduler.next().unwrap();
        let before = Instant::now();
        finish(&mut scheduler, &start, true);
        assert!(scheduler.next().is_none(), "no delay before a retry");
        let at = scheduler.next_retry().unwrap();
        last = at - before;
        let least = MIN_RETRY_DELAY * 2u32.pow(round.min(6));
        assert!(last >= least.min(MAX_RETRY_DELAY), "round {round}: {last:?}");
        assert!(last <= MAX_RETRY_DELAY * 2 + MIN_RETRY_DELAY, "round {round}: {last:?}");
        assert_eq!(scheduler.retry(before), 0);
        assert_eq!(scheduler.retry(at), 1);
    }
    assert!(last >= MAX_RETRY_DELAY);
    let start = scheduler.next().unwrap();
    finish(&mut scheduler, &start, true);
    scheduler.offer(command("t", 1, 2), 2);
    assert_eq!(scheduler.next_retry(), None);
    let start = scheduler.next().unwrap();
    finish(&mut scheduler, &start, true);
    assert!(scheduler.next_retry().unwrap() - Instant::now() < MIN_RETRY_DELAY * 3);
}

#[test]
fn refused_items_are_tried_again_after_5_s_doubled_up_to_5_min() {
    let mut scheduler = owning_all();
    scheduler.offer(command("t", 1, 1), 1);
    for longest in [5, 10, 20, 40, 80, 160, 300, 300] {
        let start = scheduler.next().unwrap();
        let before = Instant::now();
        finish_by(&mut scheduler, &start, Some(Backoff::REFUSED));
        let at = scheduler.next_retry().unwrap();
        let (delay, longest) = (at - before, Duration::from_secs(longest));
        assert!(delay >= longest.mul_f64(0.75) && delay <= longest + Duration::from_secs(1), "{delay:?}");
        assert_eq!(scheduler.retry(at), 1);
    }
}

#[test]
fn nothing_starts_without_ownership_and_ownership_loss_stops_work_in_flight() {
    let mut scheduler = TargetScheduler::<u8>::new(Ownership::PerTarget);
    scheduler.offer(command("t", 1, 1), 1);
    assert!(scheduler.next().is_none());
    scheduler.set_owned(Some("t"), true);
    let start = scheduler.next().unwrap();
    scheduler.set_owned(Some("t"), false);
    assert_eq!(*start.newest.borrow(), LatestCommand::Stopped);
    scheduler.set_owned(Some("t"), true);
    assert!(scheduler.next().is_none(), "the work begun before goes on");
    finish(&mut scheduler, &start, true);
    assert_eq!(sequence(&scheduler.next().unwrap()), 1);
}

#[test]
fn forget_waits_for_work_and_target_may_be_recreated() {
    let mut scheduler = owning_all();
    scheduler.offer(command("t", 5, 5), 1);
    let start = scheduler.next().unwrap();
    scheduler.forget("t");
    assert!(scheduler.next().is_none());
    finish(&mut scheduler, &start, true);
    let forget = scheduler.next().unwrap();
    assert_eq!(forget.job, Job::Forget);
    // A target of the same name is created again, with its own generation.
    assert_eq!(scheduler.offer(command("t", 1, 1), 2), OfferResult::New);
    assert!(!finish(&mut scheduler, &forget, false));
    let start = scheduler.next().unwrap();
    assert_eq!((sequence(&start), start.record), (1, 0));
    finish(&mut scheduler, &start, false);
    scheduler.forget("t");
    let forget = scheduler.next().unwrap();
    assert!(finish(&mut scheduler, &forget, false));
    assert_eq!(scheduler.len(), 0);
}

#[test]
fn target_recreated_during_forget_needs_new_ownership() {
    let mut scheduler: TargetScheduler<u8> = TargetScheduler::new(Ownership::PerTarget);
    scheduler.offer(command("t", 1, 1), 1);
    scheduler.set_owned(Some("t"), true);
    let start = scheduler.next().unwrap();
    finish(&mut scheduler, &start, false);
    assert!(scheduler.is_active("t"));
    scheduler.forget("t");
    let forget = scheduler.next().unwrap();
    assert!(scheduler.contains("t") && !scheduler.is_active("t"));
    scheduler.offer(command("t", 1, 2), 2);
    assert!(scheduler.is_active("t"));
    finish(&mut scheduler, &forget, false);
    assert!(scheduler.next().is_none(), "another instance may have it");
    scheduler.set_owned(Some("t"), true);
    assert_eq!(sequence(&scheduler.next().unwrap()), 2);
}

#[test]
fn targets_missing_from_a_replay_are_forgotten_and_the_rest_verified() {
    let mut scheduler = owning_all();
    scheduler.replay_started();
    for (target, position) in [("a", 1), ("b", 2)] {
        scheduler.offer(command(target, 1, 1), position);
        let start = scheduler.next().unwrap();
        finish(&mut scheduler, &start, false);
    }
    assert!(scheduler.replay_caught_up().is_empty());
    for _ in 0..2 {
        let start = scheduler.next().unwrap();
        assert_eq!(start.job, Job::Verify);
        finish(&mut scheduler, &start, false);
    }
    scheduler.replay_started();
    scheduler.offer(command("b", 1, 1), 2);
    assert_eq!(scheduler.replay_caught_up(), ["a"]);
    let (first, second) = (scheduler.next().unwrap(), scheduler.next().unwrap());
    let jobs = [(first.target, first.job), (second.target, second.job)];
    assert!(
        jobs.contains(&("a".into(), Job::Forget)) && jobs.contains(&("b".into(), Job::Verify)),
        "{jobs:?}"
    );
}

#[test]
fn failed_reconcile_is_retried_despite_other_jobs() {
    let mut scheduler = owning_all();
    scheduler.replay_started();
    scheduler.offer(command("t", 1, 1), 1);
    let failed = scheduler.next().unwrap();
    assert!(scheduler.replay_caught_up().is_empty());
    finish(&mut scheduler, &failed, true);
    let at = scheduler.next_retry().unwrap();
    let verified = scheduler.next().unwrap();
    assert_eq!(verified.job, Job::Verify);
    finish(&mut scheduler, &verified, false);
    scheduler.offer_invalid("t", 2, InvalidCommand { generation: None, reason: "at /desired".into() });
    let rejected = scheduler.next().unwrap();
    assert!(matches!(rejected.job, Job::Reject(..)));
    // The retry is due while the target is in flight.
    assert_eq!((scheduler.next_retry(), scheduler.retry(at)), (Some(at), 1));
    assert!(scheduler.next().is_none());
    finish(&mut scheduler, &rejected, false);
    assert_eq!(sequence(&scheduler.next().unwrap()), 1);
    assert_eq!(scheduler.next_retry(), None);
}

#[test]
fn invalid_message_is_rejected_and_previous_command_stays() {
    let mut scheduler = owning_all();
    scheduler.offer(command("t", 1, 3), 1);
    let start = scheduler.next().unwrap();
    finish(&mut scheduler, &start, false);
    scheduler.offer_invalid("t", 2, InvalidCommand { generation: None, reason: "at /desired".into() });
    let start = scheduler.next().unwrap();
    assert!(
        matches!(&start.job, Job::Reject(bad, generation) if bad.reason == "at /desired" && (generation.sequence, &*generation.hash) == (3, ""))
    );
    finish(&mut scheduler, &start, false);
    scheduler.changed("t");
    assert_eq!(sequence(&scheduler.next().unwrap()), 3);
}

#[test]
fn decision_taken_while_held_starts_no_reconcile() {
    for changed in [false, true] {
        let mut scheduler = owning_all();
        scheduler.offer(command("t", 1, 1), 1);
        let mut start = scheduler.next().unwrap();
        let decision = command("t", 1, 2);
        scheduler.offer(decision.clone(), 2);
        if changed {
            scheduler.changed("t");
        }
        start.job = Job::Reconcile(decision);
        finish(&mut scheduler, &start, false);
        let again = scheduler.next().map(|start| sequence(&start));
        assert_eq!(again, changed.then_some(2), "by another hand: {changed}");
    }
}

#[test]
fn lacking_parts_of_the_next_command_are_reported_once() {
    let mut scheduler = owning_all();
    let lacking = Lacking {
        generation: command("t", 1, 2).generation.clone(),
        waited: Duration::from_secs(2),
        parts: Vec::new(),
    };
    // Also without a command before it. The target counts as seen in the replay.
    scheduler.replay_started();
    scheduler.seen("t", 5);
    scheduler.wait("t", lacking.clone());
    let first = scheduler.next().unwrap();
    assert_eq!(first.job, Job::Wait(lacking.clone()));
    finish(&mut scheduler, &first, false);
    assert!(scheduler.next().is_none());
    assert!(scheduler.replay_caught_up().is_empty());
    // Not any more when the command is complete.
    scheduler.wait("t", lacking);
    scheduler.offer(command("t", 1, 2), 5);
    let second = scheduler.next().unwrap();
    assert_eq!(sequence(&second), 2);
    finish(&mut scheduler, &second, false);
    assert!(scheduler.next().is_none());
}
