//! Reads the stored messages of a stream.

use async_nats::jetstream::Message;
use async_nats::jetstream::consumer::{DeliverPolicy, pull};
use async_nats::jetstream::message::Info;
use eno_sbi::nats::Connection;
use futures::StreamExt as _;

/// Visits the messages of a stream that match `filter`, up to the last one stored.
pub async fn for_each_message(
    nats: &Connection,
    stream: &str,
    deliver_policy: DeliverPolicy,
    filter: &str,
    mut visit: impl FnMut(&Message, &Info<'_>),
) -> Result<(), async_nats::Error> {
    let stream = nats.jetstream.get_stream(stream).await?;
    let config = pull::OrderedConfig {
        deliver_policy,
        filter_subject: filter.to_owned(),
        ..pull::OrderedConfig::default()
    };
    let mut consumer = stream.create_consumer(config).await?;
    let mut left = consumer.info().await?.num_pending;
    let mut messages = consumer.messages().await?;
    while left > 0 {
        let Some(message) = messages.next().await else { break };
        let message = message?;
        let info = message.info()?;
        left = info.pending;
        visit(&message, &info);
    }
    Ok(())
}
