//! Publishes commands to NATS, fenced by the last sequence of their subject. A command in parts is a head that follows
//! its parts, which need no fence: their names say what they are.

use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::Context;
use async_nats::jetstream::context::{self, PublishErrorKind};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream::Stream;
use bytes::Bytes;
use eno_core::{DEADLINE, Name, PendingCommand, StreamEvent, Target};
use eno_sbi::nats::{Connection, Content, forget_target, last_stored, purge_subject};
use eno_schemas::{
    Command, Desired, Head, MessageError, PartError, PartHash, Subject, Transaction, decode_command,
    decode_part, encode, subject,
};
use futures::{StreamExt as _, stream};
use jiff::Timestamp;
use tracing::{info, warn};

use super::parts::{PartsEvent, Place, Purge, Resend, SwitchState};
use super::stored_parts::generation;
use crate::metrics::Metrics;
use crate::watch::mailbox::{Mailbox, post};

#[derive(Debug, thiserror::Error)]
enum PublishError {
    /// The subject holds a message of somebody else.
    #[error("the subject's last sequence is {0}")]
    Sequence(u64),
    #[error(transparent)]
    Message(#[from] MessageError),
    #[error(transparent)]
    Part(#[from] PartError),
    #[error("{0} bytes are more than NATS takes")]
    TooLarge(usize),
    #[error("{0}")]
    Nats(#[from] async_nats::Error),
}

impl PublishError {
    /// Of a message with a payload of this size.
    fn of(error: context::PublishError, bytes: usize) -> Self {
        match error.kind() {
            PublishErrorKind::MaxPayloadExceeded => Self::TooLarge(bytes),
            _ => Self::Nats(error.into()),
        }
    }
}

/// Maximum parts of one command that wait for an acknowledgement of NATS.
const MAX_PARTS_IN_FLIGHT: usize = 32;

/// A command that has to be published.
#[derive(Debug)]
pub struct Outgoing {
    /// Its target.
    pub target: Target,
    /// The driver that it is for.
    pub driver: Name,
    /// The desired state.
    pub desired: Arc<Desired>,
    /// What the core says of it.
    pub pending: PendingCommand,
    /// Its state in parts, with those that have to be stored before its head; `None`: it goes whole.
    pub parts: Option<(SwitchState, Vec<PartHash>)>,
}

/// Publishes one command and posts the outcome to the mailbox.
pub async fn publish(connection: &Connection, mailbox: &Mailbox, metrics: &Metrics, outgoing: Outgoing) {
    let Outgoing { target, driver, desired, pending, parts } = outgoing;
    let name = target.to_string();
    if let Some(former) = &pending.moved_from {
        let place = (target.clone(), former.clone());
        let forgotten = forget_target(connection, former, &name).await;
        if let Err(error) = &forgotten {
            warn!(%target, %error, "the former driver was not told that the target is another's");
        }
        post(mailbox, PartsEvent::forgotten(place, forgotten.is_ok())).await;
    }
    let generation = pending.generation.clone();
    let command = Command {
        driver: driver.to_string(),
        target: name,
        generation: pending.generation,
        desired: Arc::unwrap_or_clone(desired),
        transaction: pending.transaction.map(|transaction| with_time_left(transaction, Timestamp::now())),
    };
    let place = (target.clone(), driver);
    let root = parts.as_ref().map(|(state, _)| state.root());
    let published = match parts {
        Some((state, missing)) => {
            attempt_in_parts(connection, mailbox, &place, &command, &state, missing, pending.expected).await
        }
        None => attempt(&connection.jetstream, &command, encode(&command), pending.expected).await,
    };
    connection.store.note(subject::COMMANDS, &published);
    let of_parts = match &published {
        Ok(_) => PartsEvent::CommandStored(place, root),
        Err(_) => PartsEvent::CommandNotStored(place),
    };
    let answer = match published {
        Ok(sequence) => {
            metrics.command("published");
            StreamEvent::Published(target, generation, sequence)
        }
        Err(PublishError::Sequence(sequence)) => StreamEvent::NotPublished(target, Some(sequence)),
        Err(error @ (PublishError::Message(_) | PublishError::Part(_) | PublishError::TooLarge(_))) => {
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
    post(mailbox, of_parts).await;
    post(mailbox, answer).await;
}

/// Publishes the missing parts, and once all are stored the head.
async fn attempt_in_parts(
    connection: &Connection,
    mailbox: &Mailbox,
    place: &Place,
    command: &Command,
    state: &SwitchState,
    missing: Vec<PartHash>,
    expected: u64,
) -> Result<u64, PublishError> {
    let (stored, all) = publish_parts(connection, place, state, missing).await;
    post(mailbox, PartsEvent::Published(place.clone(), stored)).await;
    all?;
    let payload = match Head::of(command) {
        Some(head) => encode(&head),
        None => encode(command),
    };
    attempt(&connection.jetstream, command, payload, expected).await
}

/// Publishes parts, several at a time. Returns those that are stored, with their sequences, and the first error.
async fn publish_parts(
    connection: &Connection,
    (target, driver): &Place,
    state: &SwitchState,
    parts: Vec<PartHash>,
) -> (Vec<(PartHash, u64)>, Result<(), PublishError>) {
    let target = target.to_string();
    let publish = |part: PartHash| {
        let subject = Subject::part(driver, &target, part).to_string();
        async move {
            let payload = state.payload(part).unwrap_or_default();
            decode_part(part, &payload)?;
            let bytes = payload.len();
            let message = PublishMessage::build().payload(payload.into());
            match acknowledged(&connection.jetstream, subject, message).await {
                Ok(sequence) => Ok((part, sequence)),
                Err(error) => Err(PublishError::of(error, bytes)),
            }
        }
    };
    let mut results = stream::iter(parts).map(publish).buffer_unordered(MAX_PARTS_IN_FLIGHT);
    let (mut stored, mut all) = (Vec::new(), Ok(()));
    while let Some(result) = results.next().await {
        match result {
            Ok(part) => stored.push(part),
            Err(error) => all = all.and(Err(error)),
        }
    }
    connection.store.note(subject::PARTS, &all);
    (stored, all)
}

/// Publishes parts again that NATS lost or that a driver lacks, and posts the outcome to the mailbox.
pub async fn resend(connection: &Connection, mailbox: &Mailbox, resend: Resend) {
    let Resend { place, state, parts } = resend;
    let count = parts.len();
    let (stored, all) = publish_parts(connection, &place, &state, parts).await;
    match &all {
        Ok(()) => info!(target = %place.0, count, "published parts of a command again"),
        Err(error) => warn!(target = %place.0, %error, "parts of a command were not published, trying again"),
    }
    post(mailbox, PartsEvent::Resent(place, stored, all.is_ok())).await;
}

/// Purges a copy of a part that no command names, and posts the outcome to the mailbox.
pub async fn purge_part(connection: &Connection, mailbox: &Mailbox, purge: Purge) {
    let (target, driver) = &purge.place;
    let subject = Subject::part(driver, &target.to_string(), purge.part).to_string();
    let purged = async {
        let stream: Stream<()> = connection.jetstream.get_stream_no_info(subject::PARTS).await?;
        // Up to this sequence, and not including it.
        stream.purge().filter(&subject).sequence(purge.sequence + 1).await?;
        Ok::<_, async_nats::Error>(())
    };
    let purged = purged.await;
    if let Err(error) = &purged {
        warn!(subject, %error, "a part that no command names was not purged, trying again");
    }
    post(mailbox, PartsEvent::Purged(purge, purged.is_ok())).await;
}

async fn acknowledged(
    jetstream: &Context,
    subject: String,
    message: PublishMessage,
) -> Result<u64, context::PublishError> {
    Ok(jetstream.send_publish(subject, message).await?.await?.sequence)
}

/// Says how long a transaction may be undecided, from this moment on: the command may be published again after a failure.
/// Its deadline is by the clock of this process. A decided transaction has no time left, which a head has to say.
fn with_time_left(transaction: Transaction, now: Timestamp) -> Transaction {
    if transaction.decision.is_some() {
        let decide_within_ms = transaction.decide_within_ms.or(Some(0));
        return Transaction { decide_within_ms, ..transaction };
    }
    let deadline: Option<Timestamp> = transaction.deadline.parse().ok();
    // The clock may have been set back since.
    let left = deadline.map(|deadline| Duration::try_from(deadline.duration_since(now)).unwrap_or_default());
    let decide_within_ms = left.map(|left| u64::try_from(left.min(DEADLINE).as_millis()).unwrap_or_default());
    Transaction { decide_within_ms, ..transaction }
}

/// Publishes a command, whole or as a head.
async fn attempt(
    jetstream: &Context,
    command: &Command,
    payload: Result<Vec<u8>, MessageError>,
    expected: u64,
) -> Result<u64, PublishError> {
    let subject = Subject::command(&command.driver, &command.target).to_string();
    let payload = Bytes::from(payload?);
    let bytes = payload.len();
    let message = PublishMessage::build().payload(payload).expected_last_subject_sequence(expected);
    match acknowledged(jetstream, subject.clone(), message).await {
        Ok(sequence) => Ok(sequence),
        Err(error) if error.kind() == PublishErrorKind::WrongLastSequence => {
            let last = last_stored(jetstream, subject::COMMANDS, &subject).await?;
            let Some(last) = last.filter(|last| last.content != Content::Removed) else {
                return Err(PublishError::Sequence(0));
            };
            match &last.content {
                // An earlier attempt succeeded without an answer.
                Content::Payload(payload)
                    if decode_command(payload).is_ok_and(|it| generation(&it) == command.generation) =>
                {
                    Ok(last.sequence)
                }
                _ => Err(PublishError::Sequence(last.sequence)),
            }
        }
        Err(error) => Err(PublishError::of(error, bytes)),
    }
}

/// Purges a removed target from NATS, tells its driver to forget it, and posts the end to the mailbox. The next leader
/// retries a failed purge.
pub async fn remove_target(connection: &Connection, mailbox: &Mailbox, target: Target, driver: Name) {
    let forgotten = forget_target(connection, &driver, &target.to_string()).await;
    match &forgotten {
        Ok(()) => info!(%target, "forgotten"),
        Err(error) => warn!(%target, %error, "a target that is gone was not taken off NATS"),
    }
    post(mailbox, PartsEvent::forgotten((target.clone(), driver.clone()), forgotten.is_ok())).await;
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
        let decided = Transaction {
            id: "t".into(),
            participants: Vec::new(),
            deadline: String::new(),
            decide_within_ms: None,
            decision: Some(eno_schemas::Decision::Confirm),
        };
        assert_eq!(
            with_time_left(decided, now).decide_within_ms,
            Some(0),
            "a head has no deadline beside it"
        );
    }
}
