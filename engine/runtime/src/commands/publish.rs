//! Publishes commands to NATS, fenced by the last sequence of their subject.

use async_nats::jetstream::Context;
use async_nats::jetstream::context::PublishErrorKind;
use async_nats::jetstream::message::PublishMessage;
use bytes::Bytes;
use eno_core::{Name, PendingCommand, StreamEvent, Target};
use eno_sbi::nats::{Connection, forget_target};
use eno_schemas::{Command, Desired, MessageError, Subject, decode, encode, subject};
use tracing::{info, warn};

use crate::metrics::Metrics;
use crate::stream_reader;
use crate::watch::mailbox::{Mailbox, post};

/// A later leader has published: this process no longer leads.
#[derive(Debug, thiserror::Error)]
#[error("the command of {subject} was written in term {found}, this is term {own}")]
pub struct Superseded {
    subject: String,
    found: u64,
    own: u64,
}

#[derive(Debug, thiserror::Error)]
enum PublishError {
    #[error(transparent)]
    Superseded(#[from] Superseded),
    /// The subject holds a command of an earlier leader.
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
) -> Result<(), Superseded> {
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
        transaction: pending.transaction,
    };
    let published = attempt(&connection.jetstream, &command, pending.expected).await;
    connection.store.note(subject::COMMANDS, &published);
    let answer = match published {
        Ok(sequence) => {
            metrics.command("published");
            StreamEvent::Published(target, generation, sequence)
        }
        Err(PublishError::Superseded(error)) => return Err(error),
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
    Ok(())
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
            let stream =
                jetstream.get_stream_no_info(subject::COMMANDS).await.map_err(async_nats::Error::from)?;
            let Some(last) = stream_reader::last(&stream, &subject).await? else {
                return Err(PublishError::Sequence(0));
            };
            let sequence = last.sequence;
            match decode::<Command>(&last.payload).ok() {
                // An earlier attempt succeeded without an answer.
                Some(found) if found.generation == command.generation => Ok(sequence),
                Some(found) if found.generation.term > command.generation.term => {
                    let (found, own) = (found.generation.term, command.generation.term);
                    Err(Superseded { subject, found, own }.into())
                }
                _ => Err(PublishError::Sequence(sequence)),
            }
        }
        Err(error) => Err(PublishError::Nats(error.into())),
    }
}

/// Purges a removed target from NATS, tells its driver to forget it, and posts the end to the mailbox. The next leader
/// retries a failed purge.
pub async fn remove_target(connection: &Connection, mailbox: &Mailbox, target: Target, driver: &Name) {
    match forget_target(connection, driver, &target.to_string()).await {
        Ok(()) => info!(%target, "forgotten"),
        Err(error) => warn!(%target, %error, "a target that is gone was not taken off NATS"),
    }
    post(mailbox, StreamEvent::TargetRemoved(target)).await;
}
