//! Reads the messages of a stream.

use async_nats::jetstream::consumer::{DeliverPolicy, pull};
use async_nats::jetstream::message::{Info, StreamMessage};
use async_nats::jetstream::stream::{LastRawMessageErrorKind, RawMessageError, Stream};
use async_nats::jetstream::{Context, Message};
use futures::StreamExt as _;

/// The messages of a stream that match `filter`, stored and future ones, and the number of the stored ones.
pub async fn ordered(
    stream: &Stream,
    deliver_policy: DeliverPolicy,
    filter: &str,
) -> Result<(pull::Ordered, u64), async_nats::Error> {
    let config = pull::OrderedConfig {
        deliver_policy,
        filter_subject: filter.to_owned(),
        ..pull::OrderedConfig::default()
    };
    let mut consumer = stream.create_consumer(config).await?;
    let pending = consumer.info().await?.num_pending;
    Ok((consumer.messages().await?, pending))
}

/// Visits the messages of a stream that match `filter`, up to the last one stored.
pub async fn for_each_message(
    jetstream: &Context,
    stream: &str,
    deliver_policy: DeliverPolicy,
    filter: &str,
    mut visit: impl FnMut(&Message, &Info<'_>),
) -> Result<(), async_nats::Error> {
    let stream = jetstream.get_stream(stream).await?;
    let (mut messages, mut left) = ordered(&stream, deliver_policy, filter).await?;
    while left > 0 {
        let Some(message) = messages.next().await else { break };
        let message = message?;
        let info = message.info()?;
        left = info.pending;
        visit(&message, &info);
    }
    Ok(())
}

/// The last message on a subject, if there is one.
pub async fn last<I>(stream: &Stream<I>, subject: &str) -> Result<Option<StreamMessage>, async_nats::Error> {
    if_found(stream.get_last_raw_message_by_subject(subject).await)
}

/// A stored message; `None`: the stream leader does not have it.
pub fn if_found(
    read: Result<StreamMessage, RawMessageError>,
) -> Result<Option<StreamMessage>, async_nats::Error> {
    match read {
        Ok(message) => Ok(Some(message)),
        Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}
