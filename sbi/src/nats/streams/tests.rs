//! The bounds against the shipped configuration, and on a real server.

use std::fs;
use std::path::{Path, PathBuf};

use async_nats::jetstream::context::PublishError;
use async_nats::jetstream::message::PublishMessage;
use eno_conformance::NatsServer;
use eno_schemas::Subject;

use super::*;

/// Kubernetes' API server stores no larger object: the limit of etcd's requests.
const LARGEST_OBJECT: i64 = 1536 * KIB;

/// The files that set limits of NATS, with the values of a setting.
fn settings(name: &str) -> Vec<(PathBuf, i64)> {
    let mut found = Vec::new();
    let mut directories = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy")];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
            } else if let Ok(text) = fs::read_to_string(&path) {
                let values =
                    text.lines().filter_map(|line| line.trim().strip_prefix(name)?.strip_prefix(": "));
                found.extend(values.map(|value| (path.clone(), bytes(value))));
            }
        }
    }
    found
}

/// A size as nats-server reads it.
fn bytes(value: &str) -> i64 {
    let (number, unit) = value.split_at(value.find(|c: char| !c.is_ascii_digit()).unwrap());
    let number: i64 = number.parse().unwrap();
    match unit {
        "MB" => number * MIB,
        "GB" => number * 1024 * MIB,
        _ => panic!("{value} has another unit"),
    }
}

/// The bounds of all streams and buckets, and the largest message.
fn bounds() -> (i64, i64) {
    let all: Vec<_> =
        streams(1).into_iter().map(|one| (one.max_bytes, i64::from(one.max_message_size))).collect();
    assert!(all.iter().all(|(bytes, message)| *bytes > 0 && *message > 0), "{all:?}");
    (all.iter().map(|(bytes, _)| bytes).sum(), all.iter().map(|(_, message)| *message).max().unwrap())
}

#[test]
fn bounds_fit_into_the_shipped_store() {
    let (sum, message) = bounds();
    let stores = settings("max_file_store");
    assert!(stores.len() >= 3, "{stores:?}");
    for (file, store) in stores {
        // A third is left for an outbox that is above its bound after an upgrade.
        assert!(sum * 3 <= store * 2, "{}: the streams may take {sum} of {store} bytes", file.display());
    }
    let payloads = settings("max_payload");
    assert!(payloads.len() >= 3, "{payloads:?}");
    for (file, payload) in payloads {
        assert!(payload > LARGEST_OBJECT, "{}: {payload}", file.display());
        assert!(payload >= message, "{}: {payload}", file.display());
    }
}

async fn publish(jetstream: &Context, subject: &str, size: usize) -> Result<u64, PublishError> {
    Ok(jetstream.publish(subject.to_owned(), vec![b'x'; size].into()).await?.await?.sequence)
}

/// Lowers the bound of a stream, so that a test fills it soon.
async fn bound(jetstream: &Context, stream: &str, bytes: i64) {
    let config = jetstream.get_stream(stream).await.unwrap().cached_info().config.clone();
    jetstream.update_stream(&Config { max_bytes: bytes, ..config }).await.unwrap();
}

#[tokio::test]
async fn full_stream_takes_no_space_from_others_and_keeps_all_targets() {
    let server = NatsServer::start().await;
    let jetstream = server.connect("eno-engine").await.jetstream;
    ensure_streams(&jetstream, 1).await.unwrap();
    let real = Subject::result("netconf", "leaf1").to_string();
    let first = publish(&jetstream, &real, 4000).await.unwrap();
    bound(&jetstream, subject::RESULTS, MIB).await;
    let mut made_up = 0;
    let full = loop {
        match publish(&jetstream, &Subject::result("node", &format!("t{made_up}")).to_string(), 30_000).await
        {
            Ok(_) => made_up += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(error_code(&full), Some(ErrorCode::STREAM_STORE_FAILED), "{full}");
    assert!(made_up > 20, "{made_up}");
    // Nothing was dropped, and the word of a target is replaced by one of its size.
    let message =
        PublishMessage::build().payload(vec![b'y'; 4000].into()).expected_last_subject_sequence(first);
    jetstream.send_publish(real, message).await.unwrap().await.unwrap();
    // All others have their own space.
    publish(&jetstream, &Subject::command("netconf", "leaf1").to_string(), 100_000).await.unwrap();
    let transition = Subject::transition("L2Service", None, "a").to_string();
    publish(&jetstream, &transition, 1_900_000).await.unwrap();
    let owners = jetstream.get_key_value(subject::OWNERS).await.unwrap();
    owners.put("netconf.leaf1", "x".into()).await.unwrap();
    // A message that no part of ENO writes is refused, whatever space there is.
    let large = owners.put("node.t", vec![b'x'; 5000].into()).await.unwrap_err();
    assert_eq!(error_code(&large), Some(ErrorCode::STREAM_MESSAGE_EXCEEDS_MAXIMUM), "{large}");
}

#[tokio::test]
async fn upgrade_drops_no_transition() {
    let server = NatsServer::start().await;
    let jetstream = server.connect("eno-engine").await.jetstream;
    let is_outbox = |config: &Config| config.name == subject::TRANSITIONS;
    let outbox = Config { max_bytes: 4 * MIB, ..streams(1).into_iter().find(is_outbox).unwrap() };
    // A stream without bounds.
    let unbound = Config { max_bytes: -1, max_message_size: -1, ..outbox.clone() };
    jetstream.create_stream(&unbound).await.unwrap();
    let transition = Subject::transition("L2Service", None, "a").to_string();
    for _ in 0..10 {
        publish(&jetstream, &transition, 500_000).await.unwrap();
    }
    let ensured = async || {
        ensure_stream(&jetstream, outbox.clone()).await.unwrap();
        let info = jetstream.get_stream(subject::TRANSITIONS).await.unwrap().cached_info().clone();
        assert_eq!(info.config.max_message_size, TRANSITIONS.message());
        (info.state.messages, info.config.max_bytes)
    };
    assert_eq!(ensured().await, (10, -1));
    // Entries expire.
    jetstream.get_stream(subject::TRANSITIONS).await.unwrap().purge().keep(7).await.unwrap();
    assert_eq!(ensured().await, (7, 4 * MIB));
}

#[tokio::test]
async fn small_server_keeps_its_streams() {
    let server = NatsServer::with_store("64MB").await;
    let jetstream = server.connect("eno-engine").await.jetstream;
    let error = ensure_streams(&jetstream, 1).await.unwrap_err();
    assert!(error.to_string().contains("max_file_store"), "{error}");
    for wanted in streams(1).into_iter().filter(|wanted| wanted.name != subject::PARTS) {
        jetstream.create_stream(&Config { max_bytes: -1, ..wanted }).await.unwrap();
    }
    // Without bounds it goes on as before, with the stream that an upgrade adds.
    for existing in [streams(1).len() - 1, streams(1).len()] {
        assert_eq!(ensure_streams(&jetstream, 1).await.unwrap().len(), existing);
    }
}
