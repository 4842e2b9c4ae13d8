//! Whether a message is the word of who may publish on its subject.

use async_nats::HeaderMap;
use async_nats::header::NATS_STREAM;
use async_nats::jetstream::stream::Stream;
use eno_schemas::subject;
use futures::TryStreamExt as _;

use super::Connection;

/// True for a message that a server read out of a stream and sent on.
///
/// A server answers a read to whatever subject the reader names, so who may not publish on a subject could have a
/// server do it, with words that stand in a stream of their own. A server marks what it reads out in this way, and
/// those who may publish never set this header.
pub fn is_stream_readout(headers: Option<&HeaderMap>) -> bool {
    headers.is_some_and(|headers| headers.get(NATS_STREAM).is_some())
}

/// Whether a target has a command. The stream's leader is asked, whose answer is never behind.
pub async fn has_command(
    connection: &Connection,
    driver: &str,
    target: &str,
) -> Result<bool, async_nats::Error> {
    let commands: Stream<()> = connection.jetstream.get_stream_no_info(subject::COMMANDS).await?;
    let mut found = commands.info_with_subjects(subject::command(driver, target)).await?;
    Ok(found.try_next().await?.is_some())
}
