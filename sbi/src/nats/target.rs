//! The command, its parts and the report of one target in the streams.

use std::sync::atomic::Ordering;

use async_nats::jetstream::stream::Stream;
use eno_schemas::{Subject, SubjectKind, TargetName, subject};

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

/// Purges a target's command and its parts, notifies the drivers, and purges its report. All is done again if the
/// connection breaks meanwhile, since a notification in flight is lost with it: no server stores it. A driver that loses
/// its own connection finds the command gone at the next one.
pub async fn forget_target(connection: &Connection, driver: &str, target: &str) -> Result<(), ForgetError> {
    let count = || connection.client.statistics().connects.load(Ordering::Relaxed);
    let mut connects = connection.connects();
    loop {
        connects.mark_unchanged();
        let before = count();
        tokio::select! {
            // A server takes the messages of one connection in order. So its last answer shows that the notification
            // came. The answer may precede what the watch says of a new connection.
            ended = try_forget(connection, driver, target) => {
                if count() == before {
                    return ended;
                }
            }
            Ok(()) = connects.changed() => {}
        }
    }
}

async fn try_forget(connection: &Connection, driver: &str, target: &str) -> Result<(), ForgetError> {
    let failed = |operation, source| ForgetError {
        operation,
        driver: driver.to_owned(),
        target: target.to_owned(),
        source,
    };
    purge_subject(connection, subject::COMMANDS, &Subject::command(driver, target).to_string())
        .await
        .map_err(|source| failed("purging the command", source))?;
    purge_subject(connection, subject::PARTS, &SubjectKind::Part.of_target(&TargetName::new(driver, target)))
        .await
        .map_err(|source| failed("purging the parts of the command", source))?;
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
