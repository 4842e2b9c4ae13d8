use super::*;
use eno_conformance::fabric;

fn command(target: &str, term: u64, sequence: u64) -> Arc<Command> {
    let desired = fabric([]);
    Arc::new(Command {
        driver: "d".into(),
        target: target.into(),
        generation: Generation { term, sequence, hash: desired.hash() },
        desired,
        transaction: None,
    })
}

fn owner_of_all() -> Schedule<u8> {
    let mut schedule = Schedule::new(Ownership::WholeDriver);
    schedule.set_owned(None, true);
    schedule
}

#[track_caller]
fn sequence(start: &Start<u8>) -> u64 {
    match &start.job {
        Job::Reconcile(command) => command.generation.sequence,
        other => panic!("{other:?}"),
    }
}

fn finish(schedule: &mut Schedule<u8>, start: &Start<u8>, retry: bool) -> bool {
    let generation = match &start.job {
        Job::Reconcile(command) => Some(command.generation.clone()),
        _ => None,
    };
    let retry = generation.filter(|_| retry);
    schedule.finished(&start.target, retry.as_ref(), &start.job, start.record + 1, Instant::now())
}

#[test]
fn commands_during_work_make_one_more_reconcile_with_the_newest() {
    let mut schedule = owner_of_all();
    assert_eq!(schedule.offer(command("t", 1, 1), 1), Offer::New);
    let first = schedule.next().unwrap();
    for sequence in 2..=20 {
        assert_eq!(schedule.offer(command("t", 1, sequence), sequence), Offer::New);
        assert!(schedule.next().is_none(), "two reconciles of one target at once");
    }
    assert!(matches!(&*first.newest.borrow(), Newest::Command(newest) if newest.generation.sequence == 20));
    finish(&mut schedule, &first, false);
    let second = schedule.next().unwrap();
    assert_eq!((sequence(&second), second.record), (20, 1));
    finish(&mut schedule, &second, false);
    assert!(schedule.next().is_none());
}

#[test]
fn a_namespace_with_many_targets_keeps_no_other_waiting() {
    let mut schedule = owner_of_all();
    for n in 0..10_000 {
        schedule.offer(command(&format!("flood/{n}"), 1, n), n);
    }
    schedule.offer(command("other/a", 1, 10_000), 10_000);
    schedule.offer(command("leaf1", 1, 10_001), 10_001);
    let names: Vec<String> =
        std::iter::from_fn(|| schedule.next()).take(4).map(|start| start.target).collect();
    assert_eq!(names, ["flood/0", "other/a", "leaf1", "flood/1"]);
}

#[test]
fn older_and_known_generations_start_nothing() {
    let mut schedule = owner_of_all();
    schedule.offer(command("t", 2, 5), 1);
    let start = schedule.next().unwrap();
    finish(&mut schedule, &start, false);
    assert_eq!(schedule.offer(command("t", 2, 5), 2), Offer::Known);
    assert_eq!(schedule.offer(command("t", 2, 4), 3), Offer::Older);
    assert_eq!(schedule.offer(command("t", 1, 9), 4), Offer::Older);
    assert!(schedule.next().is_none());
    assert_eq!(schedule.offer(command("t", 3, 1), 5), Offer::New);
    assert_eq!(sequence(&schedule.next().unwrap()), 1);
}

#[test]
fn retries_back_off_and_a_new_command_resets_them() {
    let mut schedule = owner_of_all();
    schedule.offer(command("t", 1, 1), 1);
    let mut last = Duration::ZERO;
    for round in 0..10 {
        let start = schedule.next().unwrap();
        let before = Instant::now();
        finish(&mut schedule, &start, true);
        assert!(schedule.next().is_none(), "no delay before a retry");
        let at = schedule.next_retry().unwrap();
        last = at - before;
        let least = FIRST_RETRY * 2u32.pow(round.min(6));
        assert!(last >= least.min(LAST_RETRY), "round {round}: {last:?}");
        assert!(last <= LAST_RETRY * 2 + FIRST_RETRY, "round {round}: {last:?}");
        assert_eq!(schedule.retry(before), 0);
        assert_eq!(schedule.retry(at), 1);
    }
    assert!(last >= LAST_RETRY);
    let start = schedule.next().unwrap();
    finish(&mut schedule, &start, true);
    schedule.offer(command("t", 1, 2), 2);
    assert_eq!(schedule.next_retry(), None);
    let start = schedule.next().unwrap();
    finish(&mut schedule, &start, true);
    assert!(schedule.next_retry().unwrap() - Instant::now() < FIRST_RETRY * 3);
}

#[test]
fn nothing_starts_without_ownership_and_work_in_flight_learns_of_its_loss() {
    let mut schedule = Schedule::<u8>::new(Ownership::PerTarget);
    schedule.offer(command("t", 1, 1), 1);
    assert!(schedule.next().is_none());
    schedule.set_owned(Some("t"), true);
    let start = schedule.next().unwrap();
    schedule.set_owned(Some("t"), false);
    assert_eq!(*start.newest.borrow(), Newest::End);
    schedule.set_owned(Some("t"), true);
    assert!(schedule.next().is_none(), "the work begun before goes on");
    finish(&mut schedule, &start, true);
    assert_eq!(sequence(&schedule.next().unwrap()), 1);
}

#[test]
fn forgetting_waits_for_work_and_a_new_life_may_follow() {
    let mut schedule = owner_of_all();
    schedule.offer(command("t", 5, 5), 1);
    let start = schedule.next().unwrap();
    schedule.forget("t");
    assert!(schedule.next().is_none());
    finish(&mut schedule, &start, true);
    let forget = schedule.next().unwrap();
    assert_eq!(forget.job, Job::Forget);
    // A target of that name comes back, with a generation of its own.
    assert_eq!(schedule.offer(command("t", 1, 1), 2), Offer::New);
    assert!(!finish(&mut schedule, &forget, false));
    let start = schedule.next().unwrap();
    assert_eq!((sequence(&start), start.record), (1, 0));
    finish(&mut schedule, &start, false);
    schedule.forget("t");
    let forget = schedule.next().unwrap();
    assert!(finish(&mut schedule, &forget, false));
    assert_eq!(schedule.len(), 0);
}

#[test]
fn a_target_that_comes_back_while_it_is_forgotten_has_to_be_owned_anew() {
    let mut schedule: Schedule<u8> = Schedule::new(Ownership::PerTarget);
    schedule.offer(command("t", 1, 1), 1);
    schedule.set_owned(Some("t"), true);
    let start = schedule.next().unwrap();
    finish(&mut schedule, &start, false);
    assert!(schedule.is_wanted("t"));
    schedule.forget("t");
    let forget = schedule.next().unwrap();
    assert!(schedule.contains("t") && !schedule.is_wanted("t"));
    schedule.offer(command("t", 1, 2), 2);
    assert!(schedule.is_wanted("t"));
    finish(&mut schedule, &forget, false);
    assert!(schedule.next().is_none(), "another instance may have it");
    schedule.set_owned(Some("t"), true);
    assert_eq!(sequence(&schedule.next().unwrap()), 2);
}

#[test]
fn what_is_missing_from_a_second_reading_is_forgotten_and_the_rest_verified() {
    let mut schedule = owner_of_all();
    schedule.reading_starts();
    for (target, position) in [("a", 1), ("b", 2)] {
        schedule.offer(command(target, 1, 1), position);
        let start = schedule.next().unwrap();
        finish(&mut schedule, &start, false);
    }
    assert!(schedule.reading_caught_up().is_empty());
    for _ in 0..2 {
        let start = schedule.next().unwrap();
        assert_eq!(start.job, Job::Verify);
        finish(&mut schedule, &start, false);
    }
    schedule.reading_starts();
    schedule.offer(command("b", 1, 1), 2);
    assert_eq!(schedule.reading_caught_up(), ["a"]);
    let (first, second) = (schedule.next().unwrap(), schedule.next().unwrap());
    let jobs = [(first.target, first.job), (second.target, second.job)];
    assert!(
        jobs.contains(&("a".into(), Job::Forget)) && jobs.contains(&("b".into(), Job::Verify)),
        "{jobs:?}"
    );
}

#[test]
fn what_failed_is_tried_again_whatever_else_is_done_before() {
    let mut schedule = owner_of_all();
    schedule.reading_starts();
    schedule.offer(command("t", 1, 1), 1);
    let failed = schedule.next().unwrap();
    assert!(schedule.reading_caught_up().is_empty());
    finish(&mut schedule, &failed, true);
    let at = schedule.next_retry().unwrap();
    let verified = schedule.next().unwrap();
    assert_eq!(verified.job, Job::Verify);
    finish(&mut schedule, &verified, false);
    schedule.offer_bad("t", 2, BadCommand { generation: None, reason: "at /desired".into() });
    let rejected = schedule.next().unwrap();
    assert!(matches!(rejected.job, Job::Reject(..)));
    // The time comes while it is still busy.
    assert_eq!((schedule.next_retry(), schedule.retry(at)), (Some(at), 1));
    assert!(schedule.next().is_none());
    finish(&mut schedule, &rejected, false);
    assert_eq!(sequence(&schedule.next().unwrap()), 1);
    assert_eq!(schedule.next_retry(), None);
}

#[test]
fn a_bad_message_is_answered_and_the_command_before_it_stays() {
    let mut schedule = owner_of_all();
    schedule.offer(command("t", 1, 3), 1);
    let start = schedule.next().unwrap();
    finish(&mut schedule, &start, false);
    schedule.offer_bad("t", 2, BadCommand { generation: None, reason: "at /desired".into() });
    let start = schedule.next().unwrap();
    assert!(
        matches!(&start.job, Job::Reject(bad, generation) if bad.reason == "at /desired" && (generation.sequence, &*generation.hash) == (3, ""))
    );
    finish(&mut schedule, &start, false);
    schedule.changed("t");
    assert_eq!(sequence(&schedule.next().unwrap()), 3);
}

#[test]
fn a_decision_that_was_taken_in_while_held_is_not_worked_on_again() {
    for changed in [false, true] {
        let mut schedule = owner_of_all();
        schedule.offer(command("t", 1, 1), 1);
        let mut start = schedule.next().unwrap();
        let decision = command("t", 1, 2);
        schedule.offer(decision.clone(), 2);
        if changed {
            schedule.changed("t");
        }
        start.job = Job::Reconcile(decision);
        finish(&mut schedule, &start, false);
        let again = schedule.next().map(|start| sequence(&start));
        assert_eq!(again, changed.then_some(2), "by another hand: {changed}");
    }
}
