//! The command and report of one target in the streams.

use async_nats::jetstream::stream::Stream;
use eno_schemas::{Subject, subject};

use super::{Connection, Content, last_stored};

/// Why a target was not removed from the streams. A retry helps and is harmless.
#[derive(Debug, thiserror::Error)]
#[error("{operation} of target {target} of driver {driver}: {source}")]
pub struct ForgetError {
    operation: &'static str,
    driver: String,
    target: String,
    source: async_nats::Error,
}

/// Purges a target's command, notifies the drivers, and purges its report. A driver that misses the
/// notification finds the command gone at its next connection.
pub async fn forget_target(connection: &Connection, driver: &str, target: &str) -> Result<(), ForgetError> {
    let failed = |operation, source| ForgetError {
        operation,
        driver: driver.to_owned(),
        target: target.to_owned(),
        source,
    };
    purge_subject(connection, subject::COMMANDS, &Subject::command(driver, target).to_string())
        .await
        .map_err(|source| failed("purging the command", source))?;
    connection
        .client
        .publish(Subject::forget(driver).to_string(), target.to_owned().into())
        .await
        .map_err(|source| failed("telling the end", source.into()))?;
    purge_subject(connection, subject::RESULTS, &Subject::result(driver, target).to_string())
        .await
        .map_err(|source| failed("purging the report", source))
}

/// Purges a subject of a stream.
pub async fn purge_subject(
    connection: &Connection,
    stream: &str,
    subject: &str,
) -> Result<(), async_nats::Error> {
    let stream: Stream<()> = connection.jetstream.get_stream_no_info(stream).await?;
    stream.purge().filter(subject).await?;
    Ok(())
}

/// True when a target has a command, according to a server, which may lag behind the stream's leader.
pub async fn has_command(
    connection: &Connection,
    driver: &str,
    target: &str,
) -> Result<bool, async_nats::Error> {
    let subject = Subject::command(driver, target).to_string();
    let last = last_stored(&connection.jetstream, subject::COMMANDS, &subject).await?;
    Ok(last.is_some_and(|last| last.content != Content::Removed))
}
