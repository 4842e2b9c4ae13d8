//! The outbox on a real NATS server.

use eno_conformance::NatsServer;
use eno_core::{Key, Kind};
use eno_sbi::nats::ensure_streams;
use eno_schemas::Phase;
use serde_json::json;

use super::*;

fn transition(name: &str, counter: u64, phase: Phase) -> Transition {
    Transition {
        id: format!("uid-{name}-{counter}"),
        uid: format!("uid-{name}"),
        counter,
        kind: "L2Service".into(),
        namespace: None,
        name: name.into(),
        previous: None,
        phase,
        at: "2026-01-02T03:04:05.000Z".into(),
        object: json!({ "status": { "phase": phase, "transitions": counter } }),
        left_out: None,
    }
}

/// A NATS server with the streams.
async fn start() -> (NatsServer, Context) {
    let server = NatsServer::start().await;
    let jetstream = server.connect("eno-engine").await.jetstream;
    ensure_streams(&jetstream, 1).await.unwrap();
    (server, jetstream)
}

#[tokio::test]
async fn load_finds_last_entry_of_each_object() {
    let (_server, jetstream) = start().await;
    let empty = load(&jetstream).await.unwrap();
    assert!(empty.last.is_empty() && empty.is_complete);
    let first = publish(&jetstream, &transition("a", 1, Phase::Pending), 0).await.unwrap();
    publish(&jetstream, &transition("b.c", 1, Phase::Pending), 0).await.unwrap();
    let second = publish(&jetstream, &transition("a", 2, Phase::Ready), first).await.unwrap();
    assert!(second > first);
    // Publishing the same transition again, as after a crash, adds no entry.
    assert_eq!(publish(&jetstream, &transition("a", 2, Phase::Ready), first).await.unwrap(), second);
    let last = load(&jetstream).await.unwrap().last;
    assert_eq!(last.len(), 2);
    let a = &last[&Key::cluster(Kind::L2Service, &"a".into())];
    assert_eq!((a.sequence, &*a.uid), (second, "uid-a"));
    let status = a.status.as_ref().unwrap();
    assert_eq!((status.phase, status.transitions), (Some(Phase::Ready), 2));
    assert!(last.contains_key(&Key::cluster(Kind::L2Service, &"b.c".into())));
}

#[tokio::test]
async fn publish_fails_after_entry_of_another_engine() {
    let (_server, jetstream) = start().await;
    let theirs = publish(&jetstream, &transition("a", 1, Phase::Pending), 0).await.unwrap();
    let ours = publish(&jetstream, &transition("a", 7, Phase::Ready), 0).await;
    assert!(matches!(ours, Err(OutboxError::Superseded { found, .. }) if found == theirs), "{ours:?}");
    // Entries that expire are not taken for those of another engine.
    jetstream.get_stream(subject::TRANSITIONS).await.unwrap().purge().await.unwrap();
    publish(&jetstream, &transition("a", 2, Phase::Ready), theirs).await.unwrap();
}

#[tokio::test]
async fn entries_of_other_versions_stay() {
    let (_server, jetstream) = start().await;
    for subject in ["eno.v1.transition.L2Service._.a", "eno.v1.transition.Nothing._.a"] {
        jetstream.publish(subject, r#"{"schemaVersion":2}"#.into()).await.unwrap().await.unwrap();
    }
    let found = load(&jetstream).await.unwrap();
    let last = &found.last[&Key::cluster(Kind::L2Service, &"a".into())];
    assert_eq!((found.last.len(), found.unreadable, last.sequence), (1, 2, 1));
    publish(&jetstream, &transition("a", 1, Phase::Pending), last.sequence).await.unwrap();
}

#[tokio::test]
async fn messages_of_nobody_are_removed() {
    let (_server, jetstream) = start().await;
    let subject = "eno.v1.transition.L2Service._.a";
    let marked: async_nats::HeaderMap =
        [("Nats-Stream".parse().unwrap(), "x".parse().unwrap())].into_iter().collect();
    let entry: Bytes = encode(&transition("a", 9, Phase::Ready)).unwrap().into();
    let others = [("{", None), (r#"{"stream":"ENO_RESULTS","seq":1}"#, None)]
        .map(|(text, headers)| (Bytes::from(text), headers));
    let others: Vec<_> = others.into_iter().chain([(entry, Some(marked))]).collect();
    let store = async || {
        for (payload, headers) in others.clone() {
            let sent =
                jetstream.publish_with_headers(subject, headers.unwrap_or_default(), payload).await.unwrap();
            sent.await.unwrap();
        }
    };
    let first = publish(&jetstream, &transition("a", 1, Phase::Pending), 0).await.unwrap();
    store().await;
    // A new leader sees the entry behind them, and the running one goes on.
    let found = load(&jetstream).await.unwrap();
    let last = &found.last[&Key::cluster(Kind::L2Service, &"a".into())];
    assert_eq!((last.sequence, last.status.as_ref().unwrap().transitions), (first, 1));
    assert_eq!(found.unreadable, others.len());
    store().await;
    publish(&jetstream, &transition("a", 2, Phase::Ready), first).await.unwrap();
    let stream = jetstream.get_stream(subject::TRANSITIONS).await.unwrap();
    assert_eq!(stream.cached_info().state.messages, 2);
}

/// The acknowledgement of an entry that NATS lost is no acknowledgement of its repetition.
#[tokio::test]
async fn lost_entry_is_stored_again() {
    let (_server, jetstream) = start().await;
    let deleted = transition("a", 4, Phase::Deleted);
    let lost = publish(&jetstream, &deleted, 0).await.unwrap();
    remove(&jetstream, lost).await.unwrap();
    let again = publish(&jetstream, &deleted, 0).await.unwrap();
    assert_ne!(again, lost);
    let last = load(&jetstream).await.unwrap().last;
    assert_eq!(last[&Key::cluster(Kind::L2Service, &"a".into())].sequence, again);
}
