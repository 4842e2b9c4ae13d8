//! The command and report of one target in the streams.

use async_nats::jetstream::stream::Stream;
use eno_schemas::{Subject, subject};
use futures::TryStreamExt as _;

use super::Connection;

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
    let purge = async |stream: &str, subject: String| -> Result<(), async_nats::Error> {
        let stream: Stream<()> = connection.jetstream.get_stream_no_info(stream).await?;
        stream.purge().filter(subject).await?;
        Ok(())
    };
    purge(subject::COMMANDS, Subject::command(driver, target).to_string())
        .await
        .map_err(|source| failed("purging the command", source))?;
    connection
        .client
        .publish(Subject::forget(driver).to_string(), target.to_owned().into())
        .await
        .map_err(|source| failed("telling the end", source.into()))?;
    purge(subject::RESULTS, Subject::result(driver, target).to_string())
        .await
        .map_err(|source| failed("purging the report", source))
}

/// True when a target has a command, according to the stream's leader, which never lags.
pub async fn has_command(
    connection: &Connection,
    driver: &str,
    target: &str,
) -> Result<bool, async_nats::Error> {
    let commands: Stream<()> = connection.jetstream.get_stream_no_info(subject::COMMANDS).await?;
    let mut found = commands.info_with_subjects(Subject::command(driver, target).to_string()).await?;
    Ok(found.try_next().await?.is_some())
}
