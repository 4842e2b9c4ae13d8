//! A target that is gone for good.

use async_nats::jetstream::stream::Stream;
use eno_schemas::subject;

use super::Connection;

/// Why a target was not forgotten. A retry helps, and does no harm.
#[derive(Debug, thiserror::Error)]
#[error("{operation} of target {target} of driver {driver}: {source}")]
pub struct ForgetError {
    operation: &'static str,
    driver: String,
    target: String,
    source: async_nats::Error,
}

/// The core NATS subject on which drivers are told the name of a target that is gone for good.
pub fn forget_subject(driver: &str) -> String {
    format!("eno.v1.forget.{}", subject::token(driver))
}

/// Takes a target's command out of its stream, tells the drivers, and takes its report out. A driver that does
/// not hear of it sees that the command is gone when it connects the next time.
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
    purge(subject::COMMANDS, subject::command(driver, target))
        .await
        .map_err(|source| failed("purging the command", source))?;
    connection
        .client
        .publish(forget_subject(driver), target.to_owned().into())
        .await
        .map_err(|source| failed("telling the end", source.into()))?;
    purge(subject::RESULTS, subject::result(driver, target))
        .await
        .map_err(|source| failed("purging the report", source))
}
