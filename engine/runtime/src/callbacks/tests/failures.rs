//! Conditions, dead letters and requests after failing callbacks.

use eno_schemas::{CallbackAction, CallbackAnswer, CallbackRequest};

use super::*;

fn request(action: CallbackAction, name: &str) -> CallbackRequest {
    CallbackRequest { action, kind: "L2Service".into(), namespace: None, name: name.into() }
}

#[tokio::test(flavor = "multi_thread")]
async fn condition_tracks_failing_callbacks_across_restart() {
    let (receiver, address, mut gets, mut bench) = start().await;
    for name in ["a", "quiet"] {
        bench.cluster.put(name, &json!({ "CallbackURL": format!("http://{address}/{name}") }));
        bench.transition(name, 1, None).await;
    }
    let delivery = bench.start_delivery();
    for _ in 0..2 {
        next(&mut gets).await;
    }
    receiver.refuse("a", u32::MAX, StatusCode::SERVICE_UNAVAILABLE);
    bench.transition("a", 2, None).await;
    let condition = bench.cluster.wait_for_condition("a", "False", "Retrying").await;
    let message = condition["message"].as_str().unwrap();
    assert!(message.starts_with("callback 2 was not taken at try "), "{message}");
    assert!(message.contains("answered 503 Service Unavailable; the next is at 2"), "{message}");
    assert!(message.ends_with("; the last one delivered is 1"), "{message}");
    let listed = undelivered(&bench.connection).await.unwrap();
    assert_eq!((&*listed[0].name, listed[0].counter, listed[0].delivered), ("a", 2, Some(1)));
    assert!(listed[0].next_try_at().is_some());
    // The condition survives a restart, and recovers with the delivery.
    delivery.stop().await;
    let delivery = bench.start_delivery();
    receiver.refuse("a", 0, StatusCode::OK);
    assert_eq!(next(&mut gets).await, ("a".into(), 2));
    let condition = bench.cluster.wait_for_condition("a", "True", "Delivered").await;
    assert_eq!(condition["message"], "callback 2 was delivered");
    let forgotten = async {
        while !undelivered(&bench.connection).await.unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
    };
    timeout(TIMEOUT, forgotten).await.unwrap();
    // An object whose callbacks succeed gets no condition.
    assert!(bench.cluster.0.lock().unwrap().conditions.iter().all(|(name, _)| name == "a"));
    delivery.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn retry_uses_current_callback_url_of_object() {
    let (receiver, address, mut gets, mut bench) = start().await;
    receiver.refuse("wrong", u32::MAX, StatusCode::NOT_FOUND);
    let wrong = format!("http://{address}/wrong");
    bench.transition("a", 1, Some(&wrong)).await;
    bench.transition("b", 1, Some(&wrong)).await;
    // Another object of the same name.
    bench.cluster.put("b", &json!({ "CallbackURL": format!("http://{address}/b") }));
    bench.cluster.0.lock().unwrap().objects.get_mut("b").unwrap()["metadata"]["uid"] = "other".into();
    bench.cluster.put("a", &json!({ "CallbackURL": format!("http://{address}/a") }));
    let delivery = bench.start_delivery();
    assert_eq!(next(&mut gets).await, ("a".into(), 1));
    bench.cluster.wait_for_condition("b", "False", "Retrying").await;
    assert!(gets.try_recv().is_err());
    delivery.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn callbacks_of_a_deleted_object_go_on_and_those_without_url_end() {
    let (receiver, _, mut gets, mut bench) = start().await;
    receiver.refuse("deleted", 2, StatusCode::INTERNAL_SERVER_ERROR);
    receiver.refuse("without", u32::MAX, StatusCode::INTERNAL_SERVER_ERROR);
    bench.cluster.put("without", &json!({}));
    for counter in 1..=2 {
        bench.transition("deleted", counter, None).await;
        bench.transition("without", counter, None).await;
    }
    let delivery = bench.start_delivery();
    for counter in 1..=2 {
        assert_eq!(next(&mut gets).await, ("deleted".into(), counter));
    }
    bench.wait_for_state(|floor, entries| floor == 4 && entries == 0).await;
    // Each was posted once, before the object was read.
    assert_eq!(receiver.refuse.lock().unwrap()["without"].0, u32::MAX - 2);
    delivery.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_letters_are_stored_and_retried_on_request() {
    let (receiver, address, mut gets, mut bench) = start().await;
    bench.cluster.put("a", &json!({ "CallbackURL": format!("http://{address}/a") }));
    receiver.refuse("a", 2, StatusCode::GONE);
    bench.transition("a", 1, None).await;
    bench.transition("a", 2, None).await;
    let delivery = bench.start_delivery();
    bench.cluster.wait_for_condition("a", "False", "GivenUp").await;
    let dead = async {
        while dead_letters(&bench.connection).await.unwrap().len() < 2 {
            tokio::task::yield_now().await;
        }
    };
    timeout(TIMEOUT, dead).await.unwrap();
    receiver.refuse("a", 1, StatusCode::INTERNAL_SERVER_ERROR);
    let retry = request(CallbackAction::Retry, "a");
    let answer = send_request(&bench.connection, &retry).await.unwrap();
    let error = Some("answered 500 Internal Server Error".into());
    assert_eq!(answer, CallbackAnswer { delivered: 0, dead: 2, waiting: 0, error });
    let answer = send_request(&bench.connection, &retry).await.unwrap();
    assert_eq!(answer, CallbackAnswer { delivered: 2, ..CallbackAnswer::default() });
    for counter in 1..=2 {
        assert_eq!(next(&mut gets).await, ("a".into(), counter));
    }
    assert!(dead_letters(&bench.connection).await.unwrap().is_empty());
    bench.cluster.wait_for_condition("a", "True", "Delivered").await;
    // A callback that waits for its retry is attempted at once.
    receiver.refuse("a", 6, StatusCode::INTERNAL_SERVER_ERROR);
    bench.transition("a", 3, None).await;
    let mut waiting = CallbackAnswer::default();
    while waiting.waiting == 0 {
        waiting = send_request(&bench.connection, &retry).await.unwrap();
    }
    receiver.refuse("a", 0, StatusCode::OK);
    send_request(&bench.connection, &retry).await.unwrap();
    assert_eq!(next(&mut gets).await, ("a".into(), 3));
    delivery.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn callback_is_given_up_only_after_ten_attempts_and_three_days() {
    let (receiver, address, _gets, bench) = start().await;
    let context = bench.context(&local());
    receiver.refuse("a", u32::MAX, StatusCode::INTERNAL_SERVER_ERROR);
    let spec = json!({ "CallbackURL": format!("http://{address}/a") });
    let payload = encode(&transition("a", 1, &spec)).unwrap();
    let object = Name::from("L2Service._.a");
    for (attempts, old, given_up) in [(0, true, false), (8, true, false), (50, false, false), (9, true, true)]
    {
        let (ended, _, change) = try_once(&context, &object, 1, attempts, old, &payload).await;
        assert_eq!(ended == AttemptEnd::Done, given_up, "{attempts} {old}");
        let DeliveryChange::Undelivered(about) = change else { panic!("{attempts}") };
        assert_eq!((about.attempts, about.next_try.is_none()), (attempts + 1, given_up));
    }
    let dead = dead_letters(&bench.connection).await.unwrap();
    assert_eq!((dead.len(), dead[0].attempts), (1, 10));
    // A crash before the attempt is recorded repeats the dead letter, which is stored once.
    try_once(&context, &object, 1, 9, true, &payload).await;
    assert_eq!(dead_letters(&bench.connection).await.unwrap().len(), 1);
    let messages = crate::inspect::trace::Messages::Nats(Box::new(bench.connection.clone()));
    let deliveries = crate::inspect::trace::deliveries(
        &messages,
        crate::inspect::trace::ObjectRef { kind: "L2Service", namespace: None, name: "a" },
    );
    let deliveries = deliveries.await.unwrap();
    assert!(matches!(deliveries.last().unwrap().end, DeliveryEnd::GivenUp { .. }));
}

#[tokio::test(flavor = "multi_thread")]
async fn endpoint_test_runs_on_request() {
    let (receiver, address, mut gets, mut bench) = start().await;
    for name in ["a", "not-a"] {
        bench.cluster.put(name, &json!({ "CallbackURL": format!("http://{address}/{name}") }));
    }
    bench.cluster.put("silent", &json!({}));
    let delivery = bench.start_delivery();
    bench.transition("first", 1, None).await;
    // The delivery task is subscribed from then on.
    next(&mut gets).await;
    let test = async |action, name: &str| {
        let answer = send_request(&bench.connection, &request(action, name)).await.unwrap();
        (answer.delivered, answer.error)
    };
    assert_eq!(test(CallbackAction::TestEndpoint, "a").await, (1, None));
    let not = "the endpoint test was answered 200 OK, not 204".into();
    assert_eq!(test(CallbackAction::TestEndpoint, "not-a").await, (0, Some(not)));
    assert_eq!(test(CallbackAction::TestMessage, "a").await, (1, None));
    let got = take(&mut gets).await;
    assert!(got.id.starts_with("test-a-") && got.headers["eno-test"] == "true", "{got:?}");
    assert_eq!(serde_json::from_slice::<Value>(&got.body).unwrap()["metadata"]["name"], "a");
    receiver.refuse("a", 1, StatusCode::BAD_REQUEST);
    let refused = Some("answered 400 Bad Request".into());
    assert_eq!(test(CallbackAction::TestMessage, "a").await, (0, refused));
    let nowhere = Some("the object has no CallbackURL".into());
    assert_eq!(test(CallbackAction::TestEndpoint, "silent").await, (0, nowhere));
    assert!(test(CallbackAction::TestMessage, "nobody").await.1.unwrap().contains("does not exist"));
    delivery.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn endpoint_test_precedes_first_callback() {
    let (_receiver, address, mut gets, mut bench) = start().await;
    bench.cluster.put("not-a", &json!({ "CallbackURL": format!("http://{address}/not-a") }));
    bench.transition("a", 1, None).await;
    bench.transition("not-a", 1, None).await;
    // Only the first callback is preceded by a test.
    bench.transition("not-b", 2, None).await;
    let delivery = bench.start_delivery_with(&CallbackArgs { callback_endpoint_test: true, ..local() });
    let mut came = [next(&mut gets).await, next(&mut gets).await];
    came.sort();
    assert_eq!(came, [("a".into(), 1), ("not-b".into(), 2)]);
    let condition = bench.cluster.wait_for_condition("not-a", "False", "Retrying").await;
    assert!(condition["message"].as_str().unwrap().contains("answered 200 OK, not 204"), "{condition}");
    delivery.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stale_entries_of_former_leader_are_deleted() {
    let (_receiver, _, mut gets, mut bench) = start().await;
    let delivery = bench.start_delivery();
    bench.transition("a", 1, None).await;
    next(&mut gets).await;
    // A paused former leader writes them after its successor deleted them.
    let bucket = bench.connection.jetstream.get_key_value(subject::CALLBACKS).await.unwrap();
    let at = schedule::Entry { from: 1, attempts: 3, next_try: 0, last_error: "no".into() };
    bucket.put("at.L2Service._.gone", serde_json::to_vec(&at).unwrap().into()).await.unwrap();
    let message = serde_json::from_slice(&encode(&transition("gone", 1, &json!({}))).unwrap()).unwrap();
    let undelivered = Undelivered { next_try: Some(0), ..about(&message, 1, 3, "no".into()) };
    bucket.put("told.L2Service._.gone", serde_json::to_vec(&undelivered).unwrap().into()).await.unwrap();
    bench.wait_until_no_entries().await;
    delivery.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unexpired_tombstones_are_renewed() {
    let (_receiver, _, _gets, bench) = start().await;
    let bucket = bench.connection.jetstream.get_key_value(subject::CALLBACKS).await.unwrap();
    let [at, undelivered, waiting] =
        ["at.L2Service._.gone", "told.L2Service._.gone", "at.L2Service._.waiting"];
    for key in [at, undelivered, waiting] {
        bucket.purge(key).await.unwrap();
    }
    let mut entries = EntryWatch::read(&bucket).await.unwrap();
    let fresh = "told.L2Service._.fresh";
    bucket.purge(fresh).await.unwrap();
    let mut schedule = schedule::Schedule::new(0, 0);
    let entry = schedule::Entry { from: 1, attempts: 1, next_try: 0, last_error: String::new() };
    schedule.restore("L2Service._.waiting".into(), entry, vec![(1, "h".into())]);
    let mut notices = notices::Notices::default();
    let mut next = async |entries: &mut EntryWatch| {
        let entry = timeout(TIMEOUT, entries.next()).await.expect("an entry within 30 s").unwrap();
        let needless = entries.apply_entry(&entry, &mut schedule, &mut notices, 0);
        if needless {
            state::delete_key(&bucket, &entry.key).await.unwrap();
        }
        (entry.key, needless)
    };
    for key in [at, undelivered, waiting, fresh] {
        assert_eq!(next(&mut entries).await, (key.into(), false));
    }
    entries.make_reread_due();
    entries.read_again(&bucket).await.unwrap();
    let expected = [
        (at, true),
        (undelivered, true),
        (waiting, false),
        (fresh, false),
        (at, false),
        (undelivered, false),
    ];
    for (key, needless) in expected {
        assert_eq!(next(&mut entries).await, (key.into(), needless));
    }
    // The missing entry is written again.
    assert_eq!(schedule.changes().len(), 1);
    for key in [waiting, fresh] {
        state::delete_key(&bucket, key).await.unwrap();
    }
    bench.tombstones_expire().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn callback_says_how_many_transitions_it_stands_for() {
    let (receiver, _, mut gets, mut bench) = start().await;
    receiver.refuse("a", u32::MAX, StatusCode::SERVICE_UNAVAILABLE);
    bench.transition("a", 1, None).await;
    let delivery = bench.start_delivery();
    bench.wait_for_state(|_, entries| entries == 1).await;
    for counter in 2..=4 {
        bench.joined_transition("a", counter).await;
    }
    receiver.refuse("a", 0, StatusCode::OK);
    let left_out = |got: &Received| {
        let body: Value = serde_json::from_slice(&got.body).unwrap();
        (got.counter, body["leftOut"]["transitions"].as_u64())
    };
    assert_eq!(left_out(&take(&mut gets).await), (4, Some(3)));
    bench.wait_for_state(|_, entries| entries == 0).await;
    // It took the place of nine transitions, of which the endpoint got the fourth.
    bench.joined_transition("a", 10).await;
    assert_eq!(left_out(&take(&mut gets).await), (10, Some(5)));
    bench.wait_for_state(|floor, entries| floor == 5 && entries == 0).await;
    assert!(gets.try_recv().is_err());
    delivery.stop().await;
}
