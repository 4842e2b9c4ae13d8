use kube::api::DynamicObject;

use super::*;
use crate::api;

fn status(phase: Phase, message: &str) -> Arc<Status> {
    Arc::new(Status { phase: Some(phase), message: message.into(), ..Status::default() })
}

fn told(status: &Status, version: u64) -> Told {
    Told { content: content(Kind::L2Service, status), version }
}

fn key() -> Key {
    Key::cluster(Kind::Subnet, &"s".into())
}

fn say(queue: &mut Queue, phase: Phase, message: &str, now: Instant) {
    let mut object = DynamicObject::new("s", &api::resource(Kind::Subnet));
    object.metadata.uid = Some("uid".into());
    let object = Arc::new(Stored::new(&key(), object));
    let at = "2026-01-01T00:00:00Z".into();
    queue.add(Change::Transition { previous: None, status: status(phase, message), object, at }, now);
}

/// The outbox takes what it is given; what else there is to do is returned.
fn next(queue: &mut Queue, now: Instant) -> Next {
    match queue.next(now, false, false) {
        Next::Work(todo) if todo.status.is_none() && todo.remove.is_none() && !todo.add => {
            queue.finished(Todo { uid: todo.uid, written: todo.written, ..Todo::default() }, None, now);
            queue.next(now, false, false)
        }
        Next::Line => queue.next(now, false, true),
        next => next,
    }
}

fn work(queue: &mut Queue, now: Instant) -> Todo {
    match next(queue, now) {
        Next::Work(todo) => *todo,
        other => panic!("{other:?}"),
    }
}

/// Pretends that a round went well.
fn done(queue: &mut Queue, mut todo: Todo, now: Instant) {
    if let Some(status) = todo.status.take() {
        todo.written = Some(told(&status, 1));
    }
    queue.finished(
        Todo { sequence: todo.sequence + 1, written: todo.written, uid: todo.uid, ..Todo::default() },
        None,
        now,
    );
}

#[test]
fn a_pending_that_passes_is_not_written() {
    let now = Instant::now();
    let mut queue = Queue::new(&key(), 0);
    say(&mut queue, Phase::Pending, "", now);
    assert!(matches!(next(&mut queue, now), Next::Wait(at) if at == now + HOLD));
    say(&mut queue, Phase::Ready, "", now + HOLD / 2);
    let todo = work(&mut queue, now + HOLD / 2);
    assert_eq!(todo.status.as_ref().unwrap().phase, Some(Phase::Ready));
    done(&mut queue, todo, now);
    // Away and back: nothing to write.
    say(&mut queue, Phase::Pending, "", now);
    say(&mut queue, Phase::Ready, "", now);
    assert!(matches!(next(&mut queue, now + HOLD), Next::Nothing));
}

#[test]
fn a_pending_that_lasts_is_written_once() {
    let now = Instant::now();
    let mut queue = Queue::new(&key(), 0);
    say(&mut queue, Phase::Pending, "a", now);
    say(&mut queue, Phase::Pending, "b", now + HOLD / 2);
    assert!(matches!(next(&mut queue, now + HOLD / 2), Next::Wait(at) if at == now + HOLD));
    let todo = work(&mut queue, now + HOLD);
    assert_eq!(todo.status.as_ref().unwrap().message, "b");
    // Only one round at a time.
    say(&mut queue, Phase::Ready, "", now + HOLD);
    assert!(matches!(next(&mut queue, now + HOLD), Next::Nothing));
    done(&mut queue, todo, now);
    assert!(work(&mut queue, now + HOLD).status.is_some());
}

#[test]
fn taking_the_finalizer_off_spares_the_status() {
    let now = Instant::now();
    let mut queue = Queue::new(&key(), 0);
    say(&mut queue, Phase::Terminating, "", now);
    say(&mut queue, Phase::Deleted, "", now);
    queue.add(Change::RemoveFinalizer(Removal { index: Some(0) }), now);
    let todo = work(&mut queue, now);
    assert!(todo.status.is_none() && todo.remove == Some(Removal { index: Some(0) }));
    queue.add(Change::Gone, now);
    assert!(!queue.gone());
    done(&mut queue, todo, now);
    assert!(matches!(next(&mut queue, now), Next::Nothing) && queue.gone());
}

#[test]
fn failures_wait_longer_each_time_and_the_latest_status_wins() {
    let now = Instant::now();
    let mut queue = Queue::new(&key(), 0);
    say(&mut queue, Phase::Ready, "a", now);
    let todo = work(&mut queue, now);
    say(&mut queue, Phase::Error, "b", now);
    queue.finished(todo, Some(true), now);
    assert!(matches!(next(&mut queue, now), Next::Wait(at) if at == now + FIRST_DELAY));
    let todo = work(&mut queue, now + FIRST_DELAY);
    assert_eq!(todo.status.as_ref().unwrap().message, "b");
    queue.finished(todo, Some(true), now);
    assert!(matches!(next(&mut queue, now), Next::Wait(at) if at == now + FIRST_DELAY * 2));
    // A refusal is not repeated.
    let todo = work(&mut queue, now + LAST_DELAY);
    queue.finished(todo, Some(false), now);
    assert!(matches!(next(&mut queue, now + LAST_DELAY), Next::Nothing));
}

#[test]
fn news_waits_and_goes_with_what_is_urgent() {
    let now = Instant::now();
    let mut queue = Queue::new(&key(), 0);
    queue.add(Change::Status(status(Phase::Ready, "news"), "uid".into()), now);
    assert!(matches!(queue.next(now, false, false), Next::Wait(at) if at == now + HOLD));
    // Something urgent takes it along.
    say(&mut queue, Phase::Error, "now", now + HOLD);
    let todo = work(&mut queue, now + HOLD);
    assert_eq!(todo.status.unwrap().message, "now");
}

#[test]
fn news_stands_in_line() {
    let now = Instant::now();
    let mut queue = Queue::new(&key(), 0);
    let news = |message| Change::Status(status(Phase::Ready, message), "uid".into());
    queue.add(news("news"), now);
    let due = now + HOLD;
    assert!(matches!(queue.next(due, false, false), Next::Line) && queue.in_line());
    assert!(matches!(queue.next(due, false, false), Next::Nothing));
    // What is newer goes at the same time.
    queue.add(news("newer"), due);
    assert!(matches!(queue.next(due, false, false), Next::Nothing));
    let Next::Work(todo) = queue.next(due, false, true) else { panic!("it is its turn") };
    assert!(todo.status.as_ref().unwrap().message == "newer" && !queue.in_line());
    // While that is written there is more.
    queue.add(news("more"), due);
    assert!(matches!(queue.next(due + HOLD, false, true), Next::Nothing));
    done(&mut queue, *todo, due);
    assert!(matches!(queue.next(due + HOLD, false, false), Next::Line));
    // What is urgent waits for no turn.
    say(&mut queue, Phase::Error, "now", due);
    assert_eq!(work(&mut queue, due).status.unwrap().message, "now");
}

#[test]
fn news_of_an_error_never_stands_in_line() {
    let now = Instant::now();
    let due = now + HOLD;
    let news = |message| Change::Status(status(Phase::Error, message), "uid".into());
    let mut queue = Queue::new(&key(), 0);
    queue.add(news("stalled"), now);
    assert!(matches!(queue.next(now, true, false), Next::Wait(at) if at == due));
    let Next::Work(todo) = queue.next(due, true, false) else { panic!("it waits for nothing else") };
    // While that is written there is more.
    queue.add(news("more"), due);
    done(&mut queue, *todo, due);
    let Next::Work(todo) = queue.next(due + HOLD, true, false) else { panic!("it waits for nothing else") };
    assert_eq!(todo.status.unwrap().message, "more");
    // News that stands in line when the error comes goes with it.
    let mut queue = Queue::new(&key(), 0);
    queue.add(Change::Status(status(Phase::Ready, "news"), "uid".into()), now);
    assert!(matches!(queue.next(due, false, false), Next::Line));
    say(&mut queue, Phase::Error, "now", due);
    queue.add(news("stalled"), due);
    let Next::Work(todo) = queue.next(due, true, false) else { panic!("it waits for nothing else") };
    assert_eq!(todo.status.unwrap().message, "stalled");
}

#[test]
fn what_may_pass_waits_for_what_is_urgent_alone() {
    let now = Instant::now();
    let mut queue = Queue::new(&key(), 0);
    say(&mut queue, Phase::Pending, "waits", now);
    assert!(matches!(next(&mut queue, now), Next::Wait(at) if at == now + HOLD));
    let again = now + HOLD + HOLD_AGAIN;
    assert!(matches!(queue.next(now + HOLD, true, false), Next::Wait(at) if at == again));
    let Next::Work(todo) = queue.next(again, false, false) else { panic!("nothing is urgent") };
    assert!(todo.status.is_some());
}

#[test]
fn the_first_status_of_a_service_gathers_what_follows() {
    let now = Instant::now();
    let mut queue = Queue::new(&Key::cluster(Kind::L2Service, &"s".into()), 0);
    say(&mut queue, Phase::Ready, "", now);
    assert!(matches!(next(&mut queue, now), Next::Wait(at) if at == now + GATHER));
    queue.add(Change::Status(status(Phase::Ready, "attached"), "uid".into()), now + GATHER / 2);
    assert_eq!(work(&mut queue, now + GATHER).status.unwrap().message, "attached");
}

#[test]
fn a_status_that_others_wrote_is_written_over() {
    let now = Instant::now();
    let mut queue = Queue::new(&key(), 0);
    let (ours, theirs) = (status(Phase::Ready, "ours"), status(Phase::Error, "theirs"));
    let found = |what: &Status, version, uid: &str| {
        let found = told(what, version);
        Change::Found { found, uid: uid.into(), status: ours.clone() }
    };
    queue.add(Change::Known(told(&ours, 10)), now);
    // Ours in a later version, one of theirs that was overtaken.
    queue.add(found(&ours, 12, "uid"), now);
    queue.add(found(&theirs, 9, "uid"), now);
    assert!(matches!(queue.next(now, false, false), Next::Nothing));
    queue.add(found(&theirs, 13, "uid"), now);
    let mut todo = work(&mut queue, now);
    assert_eq!(todo.status.take().unwrap().message, "ours");
    // While it is written: the same again, and of another object of that name.
    queue.add(found(&theirs, 13, "uid"), now);
    queue.add(found(&theirs, 20, "other"), now);
    let written = Some(told(&ours, 15));
    queue.finished(Todo { written, uid: todo.uid.clone(), ..Todo::default() }, None, now);
    assert!(matches!(queue.next(now, false, false), Next::Nothing));
    // After it, and while something else is.
    say(&mut queue, Phase::Ready, "more", now);
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
fn leases_are_written_at_once_and_told_with_the_highest_number() {
    let now = Instant::now();
    let mut queue = Queue::new(&key(), 0);
    queue.add(leased(0, ""), now);
    assert!(matches!(queue.next(now, false, false), Next::Wait(_)));
    queue.add(leased(1, "a"), now);
    queue.add(leased(2, "b"), now);
    let todo = work(&mut queue, now);
    assert_eq!((todo.leased, todo.status.as_ref().unwrap().leased), (Some(2), 2));
    // News meanwhile is no more urgent than other news.
    queue.add(leased(2, "c"), now);
    assert!(matches!(queue.next(now, false, false), Next::Nothing));
    let written = todo.status.as_ref().map(|status| told(status, 1));
    queue.finished(Todo { written, recorded: 2, uid: todo.uid, ..Todo::default() }, None, now);
    assert!(matches!(queue.next(now, false, false), Next::Wait(at) if at == now + HOLD));
    let todo = work(&mut queue, now + HOLD);
    assert_eq!((todo.leased, todo.status.unwrap().message.as_str()), (None, "c"));
}

#[test]
fn leases_that_are_written_already_are_told_all_the_same() {
    let now = Instant::now();
    let mut queue = Queue::new(&key(), 0);
    queue.add(leased(1, "a"), now);
    let todo = work(&mut queue, now);
    let written = todo.status.as_ref().map(|status| told(status, 1));
    queue.finished(Todo { written, recorded: 1, uid: todo.uid, ..Todo::default() }, None, now);
    // Given and taken back at once: the status is what it was.
    queue.add(leased(3, "a"), now);
    let todo = work(&mut queue, now);
    assert_eq!((todo.leased, todo.written), (Some(3), written));
    // What did not get through is urgent again.
    queue.finished(todo, Some(true), now);
    assert_eq!(work(&mut queue, now + FIRST_DELAY).leased, Some(3));
    // Another object of this name begins anew.
    let mut other = leased(1, "a");
    let Change::Status(_, uid) = &mut other else { panic!() };
    *uid = "another".into();
    let mut queue = Queue::new(&key(), 0);
    queue.add(leased(5, "a"), now);
    work(&mut queue, now);
    queue.add(other, now);
    queue.finished(Todo { recorded: 5, uid: Some("uid".into()), ..Todo::default() }, None, now);
    assert_eq!(work(&mut queue, now).leased, Some(1));
}
