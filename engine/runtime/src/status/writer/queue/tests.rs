use kube::api::DynamicObject;

use super::*;
use crate::api;

fn status(phase: Phase, message: &str) -> Arc<Status> {
    Arc::new(Status { phase: Some(phase), message: message.into(), ..Status::default() })
}

fn written(status: &Status, version: u64) -> WrittenStatus {
    WrittenStatus { content: content(Kind::L2Service, status), version }
}

fn key() -> Key {
    Key::cluster(Kind::Subnet, &"s".into())
}

fn add_transition(queue: &mut Queue, phase: Phase, message: &str, now: Instant) {
    let mut object = DynamicObject::new("s", &api::resource(Kind::Subnet));
    object.metadata.uid = Some("uid".into());
    let object = Arc::new(StoredObject::new(&key(), object));
    let at = "2026-01-01T00:00:00Z".into();
    queue.add(Change::Transition { previous: None, status: status(phase, message), object, at }, now);
}

/// Completes pure outbox rounds, and returns the next step.
fn next(queue: &mut Queue, now: Instant) -> Next {
    match queue.next(now, false, false) {
        Next::Work(todo) if todo.status.is_none() && todo.remove.is_none() && !todo.add => {
            queue.finished(Todo { uid: todo.uid, written: todo.written, ..Todo::default() }, None, now);
            queue.next(now, false, false)
        }
        Next::LowPriority => queue.next(now, false, true),
        next => next,
    }
}

fn work(queue: &mut Queue, now: Instant) -> Todo {
    match next(queue, now) {
        Next::Work(todo) => *todo,
        other => panic!("{other:?}"),
    }
}

/// Completes a round successfully.
fn done(queue: &mut Queue, mut todo: Todo, now: Instant) {
    if let Some(status) = todo.status.take() {
        todo.written = Some(written(&status, 1));
    }
    queue.finished(
        Todo { sequence: todo.sequence + 1, written: todo.written, uid: todo.uid, ..Todo::default() },
        None,
        now,
    );
}

#[test]
fn transient_pending_is_not_written() {
    let now = Instant::now();
    let mut queue = Queue::new(&key(), 0);
    add_transition(&mut queue, Phase::Pending, "", now);
    assert!(matches!(next(&mut queue, now), Next::Wait(at) if at == now + STATUS_DELAY));
    add_transition(&mut queue, Phase::Ready, "", now + STATUS_DELAY / 2);
    let todo = work(&mut queue, now + STATUS_DELAY / 2);
    assert_eq!(todo.status.as_ref().unwrap().phase, Some(Phase::Ready));
    done(&mut queue, todo, now);
    // Returning to the written phase needs no write.
    add_transition(&mut queue, Phase::Pending, "", now);
    add_transition(&mut queue, Phase::Ready, "", now);
    assert!(matches!(next(&mut queue, now + STATUS_DELAY), Next::Nothing));
}

#[test]
fn lasting_pending_is_written_once() {
    let now = Instant::now();
    let mut queue = Queue::new(&key(), 0);
    add_transition(&mut queue, Phase::Pending, "a", now);
    add_transition(&mut queue, Phase::Pending, "b", now + STATUS_DELAY / 2);
    assert!(matches!(next(&mut queue, now + STATUS_DELAY / 2), Next::Wait(at) if at == now + STATUS_DELAY));
    let todo = work(&mut queue, now + STATUS_DELAY);
    assert_eq!(todo.status.as_ref().unwrap().message, "b");
    // Only one round runs at a time.
    add_transition(&mut queue, Phase::Ready, "", now + STATUS_DELAY);
    assert!(matches!(next(&mut queue, now + STATUS_DELAY), Next::Nothing));
    done(&mut queue, todo, now);
    assert!(work(&mut queue, now + STATUS_DELAY).status.is_some());
}

#[test]
fn finalizer_removal_skips_status_write() {
    let now = Instant::now();
    let mut queue = Queue::new(&key(), 0);
    add_transition(&mut queue, Phase::Terminating, "", now);
    add_transition(&mut queue, Phase::Deleted, "", now);
    queue.add(Change::RemoveFinalizer(Removal { index: Some(0) }), now);
    let todo = work(&mut queue, now);
    assert!(todo.status.is_none() && todo.remove == Some(Removal { index: Some(0) }));
    queue.add(Change::Gone, now);
    assert!(!queue.gone());
    done(&mut queue, todo, now);
    assert!(matches!(next(&mut queue, now), Next::Nothing) && queue.gone());
}

#[test]
fn failures_back_off_and_latest_status_wins() {
    let now = Instant::now();
    let mut queue = Queue::new(&key(), 0);
    add_transition(&mut queue, Phase::Ready, "a", now);
    let todo = work(&mut queue, now);
    add_transition(&mut queue, Phase::Error, "b", now);
    queue.finished(todo, Some(Failed::Write), now);
    assert!(matches!(next(&mut queue, now), Next::Wait(at) if at == now + FIRST_BACKOFF));
    let todo = work(&mut queue, now + FIRST_BACKOFF);
    assert_eq!(todo.status.as_ref().unwrap().message, "b");
    queue.finished(todo, Some(Failed::Write), now);
    assert!(matches!(next(&mut queue, now), Next::Wait(at) if at == now + FIRST_BACKOFF * 2));
    // A permanent failure is not retried.
    let todo = work(&mut queue, now + MAX_BACKOFF);
    queue.finished(todo, Some(Failed::ForGood), now);
    assert!(matches!(next(&mut queue, now + MAX_BACKOFF), Next::Nothing));
}

/// An election among NATS servers may take a minute.
#[test]
fn outbox_entry_is_written_soon_after_nats_returns() {
    let start = Instant::now();
    let mut queue = Queue::new(&key(), 0);
    add_transition(&mut queue, Phase::Error, "a", start);
    let (mut now, mut longest) = (start, Duration::ZERO);
    while now < start + Duration::from_mins(1) {
        let todo = work(&mut queue, now);
        assert_eq!(todo.entries.len(), 1);
        queue.finished(todo, Some(Failed::Outbox), now);
        let Next::Wait(at) = next(&mut queue, now) else { panic!("no wait") };
        longest = longest.max(at - now);
        now = at;
    }
    assert!(longest <= Duration::from_secs(5), "{longest:?}");
}

#[test]
fn low_priority_status_waits_and_joins_urgent_write() {
    let now = Instant::now();
    let mut queue = Queue::new(&key(), 0);
    queue.add(Change::Status(status(Phase::Ready, "news"), "uid".into()), now);
    assert!(matches!(queue.next(now, false, false), Next::Wait(at) if at == now + STATUS_DELAY));
    // An urgent status includes it.
    add_transition(&mut queue, Phase::Error, "now", now + STATUS_DELAY);
    let todo = work(&mut queue, now + STATUS_DELAY);
    assert_eq!(todo.status.unwrap().message, "now");
}

#[test]
fn low_priority_status_waits_for_its_turn() {
    let now = Instant::now();
    let mut queue = Queue::new(&key(), 0);
    let low_priority = |message| Change::Status(status(Phase::Ready, message), "uid".into());
    queue.add(low_priority("news"), now);
    let due = now + STATUS_DELAY;
    assert!(matches!(queue.next(due, false, false), Next::LowPriority) && queue.is_queued_low_priority());
    assert!(matches!(queue.next(due, false, false), Next::Nothing));
    // A newer status takes the same turn.
    queue.add(low_priority("newer"), due);
    assert!(matches!(queue.next(due, false, false), Next::Nothing));
    let Next::Work(todo) = queue.next(due, false, true) else { panic!("it is its turn") };
    assert!(todo.status.as_ref().unwrap().message == "newer" && !queue.is_queued_low_priority());
    // Another change during the write.
    queue.add(low_priority("more"), due);
    assert!(matches!(queue.next(due + STATUS_DELAY, false, true), Next::Nothing));
    done(&mut queue, *todo, due);
    assert!(matches!(queue.next(due + STATUS_DELAY, false, false), Next::LowPriority));
    // An urgent status waits for no turn.
    add_transition(&mut queue, Phase::Error, "now", due);
    assert_eq!(work(&mut queue, due).status.unwrap().message, "now");
}

#[test]
fn status_of_failed_object_skips_low_priority_queue() {
    let now = Instant::now();
    let due = now + STATUS_DELAY;
    let low_priority = |message| Change::Status(status(Phase::Error, message), "uid".into());
    let mut queue = Queue::new(&key(), 0);
    queue.add(low_priority("stalled"), now);
    assert!(matches!(queue.next(now, true, false), Next::Wait(at) if at == due));
    let Next::Work(todo) = queue.next(due, true, false) else { panic!("it waits for nothing else") };
    // Another change during the write.
    queue.add(low_priority("more"), due);
    done(&mut queue, *todo, due);
    let Next::Work(todo) = queue.next(due + STATUS_DELAY, true, false) else {
        panic!("it waits for nothing else")
    };
    assert_eq!(todo.status.unwrap().message, "more");
    // A queued low-priority status is written together with the error.
    let mut queue = Queue::new(&key(), 0);
    queue.add(Change::Status(status(Phase::Ready, "news"), "uid".into()), now);
    assert!(matches!(queue.next(due, false, false), Next::LowPriority));
    add_transition(&mut queue, Phase::Error, "now", due);
    queue.add(low_priority("stalled"), due);
    let Next::Work(todo) = queue.next(due, true, false) else { panic!("it waits for nothing else") };
    assert_eq!(todo.status.unwrap().message, "stalled");
}

#[test]
fn transient_status_waits_only_while_busy() {
    let now = Instant::now();
    let mut queue = Queue::new(&key(), 0);
    add_transition(&mut queue, Phase::Pending, "waits", now);
    assert!(matches!(next(&mut queue, now), Next::Wait(at) if at == now + STATUS_DELAY));
    let again = now + STATUS_DELAY + EXTRA_STATUS_DELAY;
    assert!(matches!(queue.next(now + STATUS_DELAY, true, false), Next::Wait(at) if at == again));
    let Next::Work(todo) = queue.next(again, false, false) else { panic!("nothing is urgent") };
    assert!(todo.status.is_some());
}

#[test]
fn first_service_status_waits_for_attachment() {
    let now = Instant::now();
    let mut queue = Queue::new(&Key::cluster(Kind::L2Service, &"s".into()), 0);
    add_transition(&mut queue, Phase::Ready, "", now);
    assert!(matches!(next(&mut queue, now), Next::Wait(at) if at == now + FIRST_STATUS_DELAY));
    queue.add(Change::Status(status(Phase::Ready, "attached"), "uid".into()), now + FIRST_STATUS_DELAY / 2);
    assert_eq!(work(&mut queue, now + FIRST_STATUS_DELAY).status.unwrap().message, "attached");
}

#[test]
fn foreign_status_is_overwritten() {
    let now = Instant::now();
    let mut queue = Queue::new(&key(), 0);
    let (ours, theirs) = (status(Phase::Ready, "ours"), status(Phase::Error, "theirs"));
    let found = |what: &Status, version, uid: &str| {
        let found = written(what, version);
        Change::StatusObserved { found, uid: uid.into(), status: ours.clone() }
    };
    queue.add(Change::StatusKnown(written(&ours, 10)), now);
    // The own status in a later version, and a foreign one that is overwritten already.
    queue.add(found(&ours, 12, "uid"), now);
    queue.add(found(&theirs, 9, "uid"), now);
    assert!(matches!(queue.next(now, false, false), Next::Nothing));
    queue.add(found(&theirs, 13, "uid"), now);
    let mut todo = work(&mut queue, now);
    assert_eq!(todo.status.take().unwrap().message, "ours");
    // During the write: the same status again, and one of another object of that name.
    queue.add(found(&theirs, 13, "uid"), now);
    queue.add(found(&theirs, 20, "other"), now);
    let written = Some(written(&ours, 15));
    queue.finished(Todo { written, uid: todo.uid.clone(), ..Todo::default() }, None, now);
    assert!(matches!(queue.next(now, false, false), Next::Nothing));
    // After it, during another write.
    add_transition(&mut queue, Phase::Ready, "more", now);
    let todo = work(&mut queue, now);
    queue.add(found(&theirs, 17, "uid"), now);
    queue.finished(Todo { written, uid: todo.uid, ..Todo::default() }, None, now);
    assert_eq!(work(&mut queue, now).status.unwrap().message, "ours");
}

fn leased(count: u64, message: &str) -> Change {
    let status =
        Status { phase: Some(Phase::Pending), leased: count, message: message.into(), ..Status::default() };
    Change::Status(Arc::new(status), "uid".into())
}

#[test]
fn leases_are_written_at_once_and_reported_with_highest_count() {
    let now = Instant::now();
    let mut queue = Queue::new(&key(), 0);
    queue.add(leased(0, ""), now);
    assert!(matches!(queue.next(now, false, false), Next::Wait(_)));
    queue.add(leased(1, "a"), now);
    queue.add(leased(2, "b"), now);
    let todo = work(&mut queue, now);
    assert_eq!((todo.leased, todo.status.as_ref().unwrap().leased), (Some(2), 2));
    // A change meanwhile has no higher priority than others.
    queue.add(leased(2, "c"), now);
    assert!(matches!(queue.next(now, false, false), Next::Nothing));
    let written = todo.status.as_ref().map(|status| written(status, 1));
    queue.finished(Todo { written, leased_reported: 2, uid: todo.uid, ..Todo::default() }, None, now);
    assert!(matches!(queue.next(now, false, false), Next::Wait(at) if at == now + STATUS_DELAY));
    let todo = work(&mut queue, now + STATUS_DELAY);
    assert_eq!((todo.leased, todo.status.unwrap().message.as_str()), (None, "c"));
}

#[test]
fn already_written_leases_are_still_reported() {
    let now = Instant::now();
    let mut queue = Queue::new(&key(), 0);
    queue.add(leased(1, "a"), now);
    let todo = work(&mut queue, now);
    let written = todo.status.as_ref().map(|status| written(status, 1));
    queue.finished(Todo { written, leased_reported: 1, uid: todo.uid, ..Todo::default() }, None, now);
    // Leased and released at once: the status is the same.
    queue.add(leased(3, "a"), now);
    let todo = work(&mut queue, now);
    assert_eq!((todo.leased, todo.written), (Some(3), written));
    // A failed write is urgent again.
    queue.finished(todo, Some(Failed::Write), now);
    assert_eq!(work(&mut queue, now + FIRST_BACKOFF).leased, Some(3));
    // Another object of this name starts over.
    let mut other = leased(1, "a");
    let Change::Status(_, uid) = &mut other else { panic!() };
    *uid = "another".into();
    let mut queue = Queue::new(&key(), 0);
    queue.add(leased(5, "a"), now);
    work(&mut queue, now);
    queue.add(other, now);
    queue.finished(Todo { leased_reported: 5, uid: Some("uid".into()), ..Todo::default() }, None, now);
    assert_eq!(work(&mut queue, now).leased, Some(1));
}

#[test]
fn condition_of_a_former_leader_is_removed() {
    let now = Instant::now();
    let mut queue = Queue::new(&key(), 0);
    queue.add(Change::UnrecordedKnown("uid".into()), now);
    let Next::Work(mut todo) = queue.next(now, false, false) else { panic!("no work") };
    assert!(todo.is_unrecorded && todo.entries.is_empty() && todo.status.is_none());
    // The API server refuses it at first.
    let failed = Todo { uid: todo.uid.clone(), is_unrecorded: true, ..Todo::default() };
    queue.finished(failed, Some(Failed::Write), now);
    let Next::Wait(at) = queue.next(now, false, false) else { panic!("no wait") };
    assert!(matches!(queue.next(at, false, false), Next::Work(again) if again.is_unrecorded));
    todo.is_unrecorded = false;
    queue.finished(*todo, None, at);
    assert!(matches!(queue.next(at, false, false), Next::Nothing));
}
