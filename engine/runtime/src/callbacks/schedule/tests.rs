use super::super::hosts::{MAX_POSTS, MAX_POSTS_PER_HOST, MAX_POSTS_PER_OTHER_HOST, PROMPT};
use super::*;

const FAST: Duration = Duration::from_millis(5);

fn retry() -> AttemptEnd {
    AttemptEnd::Retry { error: "no".into(), after: None }
}

fn due_callbacks(schedule: &mut Schedule, now: i64) -> Vec<(String, u64)> {
    std::iter::from_fn(|| schedule.next(now))
        .map(|callback| (callback.object.to_string(), callback.sequence))
        .collect()
}

fn save(schedule: &mut Schedule) -> Vec<Change> {
    let changes = schedule.changes();
    for change in &changes {
        schedule.change_saved(change);
    }
    changes
}

#[test]
fn callbacks_run_in_order_one_at_a_time_per_object() {
    let mut schedule = Schedule::new(0, 0);
    for sequence in 1..=3 {
        schedule.add(&"a".into(), sequence, Some("h".into()));
    }
    schedule.add(&"b".into(), 4, Some("h".into()));
    schedule.add(&"c".into(), 5, None);
    assert_eq!(due_callbacks(&mut schedule, 0), [("a".into(), 1), ("b".into(), 4)]);
    assert_eq!(schedule.floor(), 0);
    schedule.attempt_ended(&"b".into(), AttemptEnd::Done, FAST, 0, 0.5);
    schedule.attempt_ended(&"a".into(), AttemptEnd::Done, FAST, 0, 0.5);
    assert_eq!(schedule.floor(), 1);
    assert_eq!(due_callbacks(&mut schedule, 0), [("a".into(), 2)]);
    schedule.attempt_ended(&"a".into(), AttemptEnd::Done, FAST, 0, 0.5);
    assert_eq!(due_callbacks(&mut schedule, 0), [("a".into(), 3)]);
    schedule.attempt_ended(&"a".into(), AttemptEnd::Done, FAST, 0, 0.5);
    assert_eq!((schedule.floor(), schedule.len()), (5, 0));
    assert!(save(&mut schedule).is_empty());
}

#[test]
fn failed_callbacks_back_off_and_get_entries() {
    let mut schedule = Schedule::new(0, 0);
    schedule.add(&"a".into(), 1, Some("h".into()));
    schedule.add(&"a".into(), 2, Some("h".into()));
    assert_eq!(due_callbacks(&mut schedule, 0).len(), 1);
    schedule.attempt_ended(&"a".into(), retry(), FAST, 0, 0.5);
    assert_eq!(schedule.floor(), 0);
    let entry = save(&mut schedule)[0].entry.clone().unwrap();
    assert_eq!((entry.from, entry.attempts, entry.next_try), (1, 1, 1000));
    // From here on, the entry records the progress of the object, also for later transitions.
    assert_eq!(schedule.floor(), 2);
    schedule.add(&"a".into(), 3, Some("h".into()));
    assert_eq!(schedule.floor(), 3);
    assert!(due_callbacks(&mut schedule, 999).is_empty());
    assert_eq!(schedule.wake(), Some(1000));
    assert_eq!(due_callbacks(&mut schedule, 1000), [("a".into(), 1)]);
    schedule.attempt_ended(&"a".into(), retry(), FAST, 1000, 0.5);
    assert_eq!(schedule.wake(), Some(3000));
    for sequence in 1..=3 {
        assert_eq!(due_callbacks(&mut schedule, 3000), [("a".into(), sequence)]);
        schedule.attempt_ended(&"a".into(), AttemptEnd::Done, FAST, 3000, 0.5);
    }
    assert_eq!(save(&mut schedule), [Change { object: "a".into(), entry: None }]);
    assert_eq!((schedule.floor(), schedule.len()), (3, 0));
}

#[test]
fn unknown_entry_is_rewritten_or_deleted() {
    let mut schedule = Schedule::new(0, 0);
    schedule.entry_found(&"gone".into());
    assert_eq!(save(&mut schedule), [Change { object: "gone".into(), entry: None }]);
    assert!(schedule.objects.is_empty());
    // The entry of an object with pending callbacks is rewritten.
    schedule.add(&"a".into(), 7, Some("h".into()));
    schedule.entry_found(&"a".into());
    let changes = save(&mut schedule);
    assert_eq!(changes[0].entry.as_ref().map(|entry| (entry.from, entry.attempts)), Some((7, 0)));
    schedule.entry_found(&"a".into());
    assert!(save(&mut schedule).is_empty());
    assert_eq!((due_callbacks(&mut schedule, 0).len(), schedule.floor()), (1, 7));
}

#[test]
fn retry_after_extends_delay() {
    let mut schedule = Schedule::new(0, 0);
    schedule.add(&"a".into(), 1, Some("h".into()));
    due_callbacks(&mut schedule, 0);
    let after = Some(Duration::from_mins(2));
    schedule.attempt_ended(&"a".into(), AttemptEnd::Retry { error: String::new(), after }, FAST, 0, 0.5);
    assert_eq!(schedule.wake(), Some(120_000));
}

#[test]
fn retries_continue_for_days_with_bounded_delay() {
    let mut schedule = Schedule::new(0, 0);
    schedule.add(&"a".into(), 1, Some("h".into()));
    let mut now = 0;
    let mut tries = Vec::new();
    for attempts in 0..100 {
        let callback = schedule.next(now).unwrap();
        assert_eq!((callback.sequence, callback.attempts), (1, attempts));
        tries.push(now);
        schedule.attempt_ended(&"a".into(), retry(), FAST, now, 1.0);
        let next = schedule.wake().unwrap();
        assert!(next - now <= 72 * 60 * 1000);
        now = next;
    }
    assert!(tries[10] < 30 * 60 * 1000 && tries[99] > 3 * 24 * 3_600_000, "{tries:?}");
}

#[test]
fn slow_host_does_not_delay_others() {
    let mut schedule = Schedule::new(0, 0);
    for sequence in 1..=100_u64 {
        schedule.add(&format!("dead{sequence}").into(), sequence, Some("dead".into()));
    }
    schedule.add(&"a".into(), 101, Some("alive".into()));
    let first = due_callbacks(&mut schedule, 0);
    assert_eq!(first.len(), MAX_POSTS_PER_OTHER_HOST + 1);
    assert!(first.contains(&("a".into(), 101)));
    // A host that responds promptly, even with a failure, gets more concurrent posts.
    schedule.attempt_ended(&"dead1".into(), retry(), FAST, 0, 0.5);
    assert_eq!(due_callbacks(&mut schedule, 0).len(), MAX_POSTS_PER_HOST - 1);
    // A slow response reduces them again.
    schedule.attempt_ended(&"dead2".into(), retry(), PROMPT * 2, 0, 0.5);
    assert!(due_callbacks(&mut schedule, 0).is_empty());
}

/// When the dead hosts of [`simulate`] appear.
#[derive(Clone, Copy, PartialEq)]
enum Dead {
    /// Together with the others, all of unknown pace.
    Unknown,
    /// Attempted before a restart.
    Restored,
    /// After the other hosts responded once.
    Later,
}

/// Simulates `good` hosts that respond in 20 ms and `bad` hosts, with ten objects each, that fail after 15 s. Returns
/// the time until the last callback to a good host is delivered.
fn simulate(good: u64, bad: u64, dead: Dead) -> i64 {
    const OBJECTS: u64 = 40;
    const EACH: u64 = 5;
    let mut schedule = Schedule::new(0, 0);
    let mut now = 0;
    let mut sequence = 0;
    let mut add = |schedule: &mut Schedule, object: String, host: String| {
        sequence += 1;
        schedule.add(&object.into(), sequence, Some(host.into()));
    };
    if dead == Dead::Later {
        for n in 0..good {
            add(&mut schedule, format!("good{n}"), format!("good{n}"));
        }
        while let Some(callback) = schedule.next(now) {
            schedule.attempt_ended(&callback.object, AttemptEnd::Done, FAST, now, 0.5);
        }
    }
    for n in 0..bad * 10 {
        let (object, host) = (format!("bad{n}"), format!("bad{}", n / 10));
        if dead == Dead::Restored {
            let entry = Entry { from: 1, attempts: 3, next_try: 0, last_error: "no".into() };
            schedule.restore(object.into(), entry, vec![(1, host.into())]);
        } else {
            add(&mut schedule, object, host);
        }
    }
    for n in 0..good * OBJECTS * EACH {
        add(&mut schedule, format!("good{}", n % (good * OBJECTS)), format!("good{}", n % good));
    }
    let mut left = good * OBJECTS * EACH;
    let mut under_way: BTreeSet<(i64, Name)> = BTreeSet::new();
    while left > 0 {
        while let Some(callback) = schedule.next(now) {
            let takes = if callback.object.starts_with("bad") { 15_000 } else { 20 };
            under_way.insert((now + takes, callback.object));
        }
        assert!(under_way.len() <= MAX_POSTS);
        let ends = under_way.first().map(|(at, _)| *at);
        now = ends.into_iter().chain(schedule.wake()).min().unwrap();
        while let Some((at, _)) = under_way.first()
            && *at <= now
        {
            let (_, object) = under_way.pop_first().unwrap();
            if object.starts_with("bad") {
                schedule.attempt_ended(&object, retry(), Duration::from_secs(15), now, 0.5);
            } else {
                schedule.attempt_ended(&object, AttemptEnd::Done, Duration::from_millis(20), now, 0.5);
                left -= 1;
            }
        }
    }
    now
}

#[test]
fn dead_hosts_delay_others_by_at_most_ten_percent() {
    for good in [1, 20] {
        let alone = simulate(good, 0, Dead::Unknown);
        for (bad, dead) in
            [(1, Dead::Unknown), (100, Dead::Unknown), (1000, Dead::Restored), (1000, Dead::Later)]
        {
            let together = simulate(good, bad, dead);
            assert!(together * 10 <= alone * 11, "{good} and {bad} dead: {together} ms, alone {alone} ms");
        }
    }
}

#[test]
fn paused_object_is_not_scheduled_until_resumed() {
    let mut schedule = Schedule::new(0, 0);
    schedule.add(&"a".into(), 1, Some("h".into()));
    due_callbacks(&mut schedule, 0);
    // An attempt is in progress.
    assert!(!schedule.pause(&"a".into()));
    schedule.attempt_ended(&"a".into(), retry(), FAST, 0, 0.5);
    assert_eq!(schedule.next_try(&"a".into()), Some(1000));
    assert!(schedule.pause(&"a".into()) && !schedule.pause(&"a".into()));
    schedule.add(&"a".into(), 2, Some("h".into()));
    assert!(due_callbacks(&mut schedule, 5000).is_empty());
    // Pending callbacks are due at once.
    assert_eq!(schedule.resume(&"a".into()), 2);
    assert_eq!(due_callbacks(&mut schedule, 1), [("a".into(), 1)]);
    schedule.add(&"b".into(), 3, Some("h".into()));
    assert!(schedule.pause(&"b".into()));
    assert!(due_callbacks(&mut schedule, 1).is_empty());
    schedule.resume(&"b".into());
    assert_eq!(due_callbacks(&mut schedule, 1), [("b".into(), 3)]);
    assert!(schedule.pause(&"nobody".into()));
    assert_eq!(schedule.resume(&"nobody".into()), 0);
}

#[test]
fn restored_schedule_continues_at_entry() {
    let mut schedule = Schedule::new(0, 10);
    let entry = Entry { from: 3, attempts: 4, next_try: 500, last_error: "no".into() };
    schedule.restore("a".into(), entry, vec![(3, "h".into()), (7, "h".into())]);
    schedule.add(&"a".into(), 11, Some("h".into()));
    assert_eq!((schedule.read(), schedule.floor()), (11, 11));
    assert!(due_callbacks(&mut schedule, 499).is_empty());
    for sequence in [3, 7, 11] {
        assert_eq!(due_callbacks(&mut schedule, 500), [("a".into(), sequence)]);
        schedule.attempt_ended(&"a".into(), AttemptEnd::Done, FAST, 500, 0.5);
    }
    assert_eq!(save(&mut schedule)[0].entry, None);
    let mut schedule = Schedule::new(0, 10);
    let entry = Entry { from: 3, attempts: 4, next_try: 500, last_error: "no".into() };
    schedule.restore("gone".into(), entry, Vec::new());
    assert_eq!(save(&mut schedule)[0].entry, None);
    assert!(schedule.changes().is_empty());
}

#[test]
fn rewrite_entries_saves_entries_and_floor_again() {
    let mut schedule = Schedule::new(0, 10);
    let entry = Entry { from: 3, attempts: 4, next_try: 500, last_error: "no".into() };
    schedule.restore("a".into(), entry.clone(), vec![(3, "h".into())]);
    schedule.add(&"b".into(), 11, Some("h".into()));
    assert!(save(&mut schedule).is_empty());
    let written = [Change { object: "a".into(), entry: Some(entry) }];
    schedule.rewrite_entries();
    assert_ne!(schedule.saved, schedule.floor());
    assert_eq!(save(&mut schedule), written);
    // Another client deleted the entry.
    assert!(schedule.entry_missing(&"a".into()) && !schedule.entry_missing(&"b".into()));
    assert_eq!(save(&mut schedule), written);
}

#[test]
fn unattempted_callback_does_not_count_as_attempt() {
    let mut schedule = Schedule::new(0, 0);
    schedule.add(&"a".into(), 1, Some("h".into()));
    assert_eq!(due_callbacks(&mut schedule, 0), [("a".into(), 1)]);
    schedule.attempt_ended(&"a".into(), AttemptEnd::NotAttempted, Duration::from_hours(1), 0, 0.5);
    assert!(save(&mut schedule).is_empty());
    assert_eq!((schedule.wake(), schedule.floor(), schedule.len()), (Some(NOT_ATTEMPTED_DELAY), 0, 1));
    assert_eq!(schedule.next(NOT_ATTEMPTED_DELAY).map(|callback| callback.attempts), Some(0));
}

#[test]
fn already_read_transition_is_skipped() {
    let mut schedule = Schedule::new(0, 10);
    for sequence in [1, 11, 10, 11] {
        schedule.add(&"a".into(), sequence, Some("h".into()));
    }
    assert_eq!((due_callbacks(&mut schedule, 0), schedule.len()), (vec![("a".into(), 11)], 1));
    assert_eq!(schedule.floor(), 10);
}

#[test]
fn joined_transition_replaces_the_waiting_one_and_keeps_its_back_off() {
    let mut schedule = Schedule::new(0, 0);
    let (object, host) = (Name::from("a"), Some(Name::from("h")));
    schedule.add(&object, 1, host.clone());
    schedule.add(&object, 2, host.clone());
    schedule.add_joined(&object, 3, host.clone());
    assert_eq!(due_callbacks(&mut schedule, 0), [("a".into(), 1)]);
    schedule.attempt_ended(&object, AttemptEnd::Done, FAST, 0, 0.5);
    assert_eq!(due_callbacks(&mut schedule, 0), [("a".into(), 3)]);
    // It leaves the outbox during its attempt, which fails.
    schedule.add_joined(&object, 4, host.clone());
    schedule.attempt_ended(&object, retry(), FAST, 0, 0.5);
    assert_eq!((schedule.len(), schedule.wake()), (1, Some(1000)));
    let entry = save(&mut schedule)[0].entry.clone().unwrap();
    assert_eq!((entry.from, entry.attempts), (4, 1));
    // While it waits for its retry, another one takes its place.
    schedule.add_joined(&object, 5, host);
    let entry = save(&mut schedule)[0].entry.clone().unwrap();
    assert_eq!((entry.from, entry.attempts, entry.next_try), (5, 1, 1000));
    assert_eq!(schedule.len(), 1);
    assert!(due_callbacks(&mut schedule, 999).is_empty());
    assert_eq!(due_callbacks(&mut schedule, 1000), [("a".into(), 5)]);
    schedule.attempt_ended(&object, AttemptEnd::Done, FAST, 1000, 0.5);
    save(&mut schedule);
    assert_eq!((schedule.floor(), schedule.len()), (5, 0));
}
