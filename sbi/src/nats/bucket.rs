//! Writes to buckets. `async-nats` reads a bucket before it writes, by requests that no driver may make: their answers
//! are payloads that a driver chooses.

use async_nats::jetstream::Context;
use async_nats::jetstream::context::PublishError;
use async_nats::jetstream::message::PublishMessage;
use bytes::Bytes;
use eno_schemas::subject;

/// Stores the value of a key, and returns its sequence. `after`: refuse unless this is the last sequence of the key;
/// 0: the key has never been there.
pub async fn put(
    jetstream: &Context,
    (bucket, key): (&str, &str),
    value: Bytes,
    after: Option<u64>,
) -> Result<u64, PublishError> {
    send(jetstream, (bucket, key), PublishMessage::build().payload(value), after).await
}

/// Removes a key.
pub async fn remove(
    jetstream: &Context,
    (bucket, key): (&str, &str),
    after: Option<u64>,
) -> Result<u64, PublishError> {
    let removal = PublishMessage::build().header("KV-Operation", "DEL");
    send(jetstream, (bucket, key), removal, after).await
}

async fn send(
    jetstream: &Context,
    (bucket, key): (&str, &str),
    mut message: PublishMessage,
    after: Option<u64>,
) -> Result<u64, PublishError> {
    if let Some(sequence) = after {
        message = message.expected_last_subject_sequence(sequence);
    }
    Ok(jetstream.send_publish(subject::of_bucket(bucket, key), message).await?.await?.sequence)
}
