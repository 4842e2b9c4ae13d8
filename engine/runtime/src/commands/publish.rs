//! Publishes commands to NATS, fenced by the last sequence of their subject.

use std::time::Duration;

use async_nats::jetstream::Context;
use async_nats::jetstream::context::PublishErrorKind;
use async_nats::jetstream::message::PublishMessage;
use bytes::Bytes;
use eno_core::{DEADLINE, Name, PendingCommand, StreamEvent, Target};
use eno_sbi::nats::{Connection, Content, forget_target, last_stored, purge_subject};
use eno_schemas::{Command, Desired, MessageError, Subject, Transaction, decode, encode, subject};
use jiff::Timestamp;
use tracing::{info, warn};

use crate::metrics::Metrics;
use crate::watch::mailbox::{Mailbox, post};

#[derive(Debug, thiserror::Error)]
enum PublishError {
    /// The subject holds a message of somebody else.
    #[error("the subject's last sequence is {0}")]
    Sequence(u64),
    #[error(transparent)]
    Message(#[from] MessageError),
    #[error("{0} bytes are more than NATS takes")]
    TooLarge(usize),
    #[error("{0}")]
    Nats(#[from] async_nats::Error),
}

/// Publishes one command and posts the outcome to the mailbox.
pub async fn publish(
    connection: &Connection,
    mailbox: &Mailbox,
    metrics: &Metrics,
    target: Target,
    driver: Name,
    desired: Desired,
    pending: PendingCommand,
) {
    let name = target.to_string();
    if let Some(former) = &pending.moved_from
        && let Err(error) = forget_target(connection, former, &name).await
    {
        warn!(%target, %error, "the former driver was not told that the target is another's");
    }
    let generation = pending.generation.clone();
    let command = Command {
        driver: driver.to_string(),
        target: name,
        generation: pending.generation,
        desired,
        transaction: pending.transaction.map(|transaction| with_time_left(transaction, Timestamp::now())),
    };
    let published = attempt(&connection.jetstream, &command, pending.expected).await;
    connection.store.note(subject::COMMANDS, &published);
    let answer = match published {
        Ok(sequence) => {
            metrics.command("published");
            StreamEvent::Published(target, generation, sequence)
        }
        Err(PublishError::Sequence(sequence)) => StreamEvent::NotPublished(target, Some(sequence)),
        Err(error @ (PublishError::Message(_) | PublishError::TooLarge(_))) => {
            // This state can't be sent; a later one may be.
            metrics.command("malformed");
            warn!(%target, %error, "a command can't be written");
            StreamEvent::Published(target, generation, pending.expected)
        }
        Err(PublishError::Nats(error)) => {
            metrics.command("failed");
            warn!(%target, %error, "a command was not published, trying again");
            StreamEvent::NotPublished(target, None)
        }
    };
    post(mailbox, answer).await;
}

/// Says how long a transaction may be undecided, from this moment on: the command may be published again after a failure.
/// Its deadline is by the clock of this process.
fn with_time_left(transaction: Transaction, now: Timestamp) -> Transaction {
    if transaction.decision.is_some() {
        return transaction;
    }
    let deadline: Option<Timestamp> = transaction.deadline.parse().ok();
    // The clock may have been set back since.
    let left = deadline.map(|deadline| Duration::try_from(deadline.duration_since(now)).unwrap_or_default());
    let decide_within_ms = left.map(|left| u64::try_from(left.min(DEADLINE).as_millis()).unwrap_or_default());
    Transaction { decide_within_ms, ..transaction }
}

async fn attempt(jetstream: &Context, command: &Command, expected: u64) -> Result<u64, PublishError> {
    let subject = Subject::command(&command.driver, &command.target).to_string();
    let payload = Bytes::from(encode(command)?);
    let bytes = payload.len();
    let message = PublishMessage::build().payload(payload).expected_last_subject_sequence(expected);
    let acknowledged = match jetstream.send_publish(subject.clone(), message).await {
        Ok(acknowledged) => acknowledged.await,
        Err(error) => Err(error),
    };
    match acknowledged {
        Ok(done) => Ok(done.sequence),
        Err(error) if error.kind() == PublishErrorKind::MaxPayloadExceeded => {
            Err(PublishError::TooLarge(bytes))
        }
        Err(error) if error.kind() == PublishErrorKind::WrongLastSequence => {
            let last = last_stored(jetstream, subject::COMMANDS, &subject).await?;
            let Some(last) = last.filter(|last| last.content != Content::Removed) else {
                return Err(PublishError::Sequence(0));
            };
            match &last.content {
                // An earlier attempt succeeded without an answer.
                Content::Payload(payload)
                    if decode::<Command>(payload).is_ok_and(|it| it.generation == command.generation) =>
                {
                    Ok(last.sequence)
                }
                _ => Err(PublishError::Sequence(last.sequence)),
            }
        }
        Err(error) => Err(PublishError::Nats(error.into())),
    }
}

/// Purges a removed target from NATS, tells its driver to forget it, and posts the end to the mailbox. The next leader
/// retries a failed purge.
pub async fn remove_target(connection: &Connection, mailbox: &Mailbox, target: Target, driver: Name) {
    match forget_target(connection, &driver, &target.to_string()).await {
        Ok(()) => info!(%target, "forgotten"),
        Err(error) => warn!(%target, %error, "a target that is gone was not taken off NATS"),
    }
    post(mailbox, StreamEvent::TargetRemoved(target, driver)).await;
}

/// Purges a subject that names no target, and that no part of ENO publishes on.
pub async fn remove_nameless(connection: &Connection, stream: &'static str, subject: String) {
    match purge_subject(connection, stream, &subject).await {
        Ok(()) => warn!(stream, subject, "removed messages of nobody"),
        Err(error) => warn!(stream, subject, %error, "messages of nobody were not removed"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_says_how_long_its_transaction_may_be_undecided() {
        let now: Timestamp = "2030-01-01T00:00:00Z".parse().unwrap();
        let left = |deadline: &str| {
            let transaction = Transaction {
                id: "t".into(),
                participants: Vec::new(),
                deadline: deadline.into(),
                decide_within_ms: None,
                decision: None,
            };
            let transaction = with_time_left(transaction, now);
            // Drivers of the version before read the deadline.
            assert_eq!(transaction.deadline, deadline);
            transaction.decide_within_ms
        };
        assert_eq!(left("2030-01-01T00:00:30Z"), Some(30_000));
        assert_eq!(left("2030-01-01T00:00:20.5Z"), Some(20_500));
        assert_eq!(left("2029-12-31T23:59:59Z"), Some(0));
        assert_eq!(left("2030-01-01T00:10:00Z"), Some(30_000), "the clock was set back meanwhile");
        assert_eq!(left("soon"), None);
    }
}
