//! Writes to the outbox of a real NATS server.

use eno_conformance::NatsServer;
use eno_core::Kind;
use eno_sbi::nats::ensure_streams;
use eno_schemas::{LeftOut, Subject};
use kube::api::DynamicObject;

use super::*;
use crate::watch::objects::StoredObject;

#[test]
fn finalizer_json_patch_deserializes() {
    let operations = json!([{ "op": "test", "path": "/metadata/finalizers/0", "value": "x" }]);
    assert!(serde_json::from_value(operations).map(Patch::Json::<()>).is_ok());
}

fn key() -> Key {
    Key::cluster(Kind::L2Service, &"a".into())
}

/// A transition of an object with these annotations and labels.
fn entry(counter: u64, annotation: usize, labels: usize) -> Entry {
    let mut object = DynamicObject::new("a", &api::resource(Kind::L2Service));
    object.metadata.uid = Some("u".into());
    object.metadata.annotations = Some([("big".to_owned(), "x".repeat(annotation))].into());
    object.metadata.labels = Some((0..labels).map(|n| (format!("l{n:0>60}"), "x".repeat(63))).collect());
    Entry {
        previous: None,
        status: Arc::new(Status { phase: Some(Phase::Ready), transitions: counter, ..Status::default() }),
        object: Arc::new(StoredObject::new(&key(), object)),
        at: "2026-01-02T03:04:05.000Z".into(),
        is_repeat: false,
    }
}

#[tokio::test]
async fn toggled_object_grows_the_outbox_up_to_its_allowance() {
    let server = NatsServer::start().await;
    let connection = server.connect("eno-engine").await;
    ensure_streams(&connection.jetstream, 1).await.unwrap();
    let (mut sequence, mut allowance) = (0, Allowance::default());
    // Half a minute of five changes in a second.
    for counter in 1..=150 {
        let transition = transition(&key(), &entry(counter, 255_000, 1000));
        assert_eq!(transition.left_out.as_ref().unwrap().annotations, ["big"]);
        add_to_outbox(&connection, transition, &mut sequence, &mut allowance).await.unwrap();
    }
    let stream = connection.jetstream.get_stream(subject::TRANSITIONS).await.unwrap();
    let state = stream.cached_info().state.clone();
    assert!(state.bytes < 5 * 1024 * 1024, "{state:?}");
    let subject = Subject::transition("L2Service", None, "a").to_string();
    let last = stream.get_last_raw_message_by_subject(&subject).await.unwrap();
    let last: Transition = eno_schemas::decode(&last.payload).unwrap();
    let left_out = last.left_out.unwrap();
    assert_eq!((last.counter, left_out.transitions), (150, Some(150 - state.messages)));
    assert_eq!(left_out.annotations, ["big"]);
}

#[tokio::test]
async fn largest_object_is_in_the_outbox() {
    let server = NatsServer::start().await;
    let connection = server.connect("eno-engine").await;
    ensure_streams(&connection.jetstream, 1).await.unwrap();
    let (mut sequence, mut allowance) = (0, Allowance::default());
    // 1.5 MiB, which is the limit of etcd.
    let whole = transition(&key(), &entry(1, 0, 12_200));
    assert!(serde_json::to_vec(&whole.object).unwrap().len() > 1536 * 1024);
    add_to_outbox(&connection, whole, &mut sequence, &mut allowance).await.unwrap();
    // Larger than NATS takes.
    let larger = transition(&key(), &entry(2, 0, 20_000));
    add_to_outbox(&connection, larger, &mut sequence, &mut allowance).await.unwrap();
    let stream = connection.jetstream.get_stream(subject::TRANSITIONS).await.unwrap();
    let read = async |sequence| -> Transition {
        eno_schemas::decode(&stream.get_raw_message(sequence).await.unwrap().payload).unwrap()
    };
    assert_eq!(read(1).await.left_out, None);
    let cut = LeftOut { fields: vec!["metadata.labels".into()], ..LeftOut::default() };
    assert_eq!(read(2).await.left_out, Some(cut));
}
