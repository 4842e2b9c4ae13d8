//! The outbox: every transition is stored on NATS before the status shows it.

use std::collections::HashMap;

use async_nats::jetstream::Context;
use async_nats::jetstream::context::PublishErrorKind;
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream::Stream;
use bytes::Bytes;
use eno_core::{Key, Kind, Name, Status};
use eno_sbi::nats::{Content, Selection, StoredMessage, for_each_stored, last_stored};
use eno_schemas::{LeftOut, Subject, SubjectKind, Transition, encode, subject};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;
use tracing::warn;

use crate::status::{bounds, convert};

/// `max_payload` of the shipped configuration, which is also the bound of the stream's messages.
const MAX_MESSAGE: usize = 2 * 1024 * 1024;
/// Bytes of headers, and of what a dead letter adds to a transition.
const RESERVE: usize = 16 * 1024;

/// The last entry of one object.
#[derive(Debug)]
pub struct LastEntry {
    /// Its sequence in the stream.
    pub sequence: u64,
    /// Uid of the object.
    pub uid: Name,
    /// The status in the entry, with its transition counter; `None`: the entry is unreadable.
    pub status: Option<Status>,
}

/// The state of the outbox when leadership begins.
#[derive(Debug)]
pub struct LoadedOutbox {
    /// The last entry of every object.
    pub last: HashMap<Key, LastEntry>,
    /// The stream is younger than its retention time. An object with a transition but without an entry then had its
    /// entry in an outbox that was lost.
    pub is_complete: bool,
    /// Number of last entries that can't be read.
    pub unreadable: usize,
}

/// Why a transition is not in the outbox.
#[derive(Debug, thiserror::Error)]
pub enum OutboxError {
    /// Another engine has written: this one no longer leads.
    #[error("another engine wrote {subject}: expected the last sequence to be {expected}, it is {found}")]
    Superseded {
        /// The subject.
        subject: String,
        /// The expected last sequence.
        expected: u64,
        /// The actual last sequence.
        found: u64,
    },
    /// The message breaks its schema; a retry does not help.
    #[error(transparent)]
    Message(#[from] eno_schemas::MessageError),
    /// The message is too large for NATS; a retry does not help.
    #[error("{subject}: {bytes} bytes are more than NATS takes")]
    TooLarge {
        /// The subject.
        subject: String,
        /// Size of the message.
        bytes: usize,
    },
    /// NATS did not take it; a retry may help.
    #[error("publishing {subject}: {source}")]
    Nats {
        /// The subject.
        subject: String,
        /// Error of NATS.
        source: async_nats::Error,
    },
}

/// Maximum bytes of a transition: a dead letter has it with an error, within the server's limit.
pub fn max_size(jetstream: &Context) -> usize {
    jetstream.client().server_info().max_payload.min(MAX_MESSAGE).saturating_sub(RESERVE)
}

/// How often messages of nobody are removed before a write or a reading fails for now.
const MAX_REMOVALS: usize = 16;

/// Publishes a transition after the message `expected` of its subject, and returns its sequence. Removes what no engine
/// wrote there.
///
/// The last sequence alone prevents duplicates. A server acknowledges the identifier of a message that it has since lost,
/// and may refuse for two minutes one whose message was lost in an election.
pub async fn publish(
    jetstream: &Context,
    transition: &Transition,
    expected: u64,
) -> Result<u64, OutboxError> {
    let key_namespace = transition.namespace.as_deref();
    let subject = Subject::transition(&transition.kind, key_namespace, &transition.name).to_string();
    let payload = Bytes::from(encode(transition)?);
    let nats = |source: async_nats::Error| OutboxError::Nats { subject: subject.clone(), source };
    let mut expected = expected;
    for _ in 0..MAX_REMOVALS {
        let message =
            PublishMessage::build().payload(payload.clone()).expected_last_subject_sequence(expected);
        let stored = match jetstream.send_publish(subject.clone(), message).await {
            Ok(acknowledged) => acknowledged.await,
            Err(error) => Err(error),
        };
        match stored {
            Ok(done) => return Ok(done.sequence),
            Err(error) if error.kind() == PublishErrorKind::MaxPayloadExceeded => {
                return Err(OutboxError::TooLarge { subject, bytes: payload.len() });
            }
            Err(error) if error.kind() == PublishErrorKind::WrongLastSequence => {
                let last = last_stored(jetstream, subject::TRANSITIONS, &subject).await.map_err(nats)?;
                // Entries expire after 7 days, and a recreated stream is empty.
                let Some(last) = last.filter(|last| last.content != Content::Removed) else {
                    expected = 0;
                    continue;
                };
                match Entry::of(&last) {
                    // An earlier attempt succeeded without an answer.
                    Ok(entry) if entry.id == transition.id => return Ok(last.sequence),
                    Err(Unreadable { of_nobody: true, .. }) => {
                        remove(jetstream, last.sequence).await.map_err(nats)?;
                    }
                    _ => {
                        return Err(OutboxError::Superseded { subject, expected, found: last.sequence });
                    }
                }
            }
            Err(error) => return Err(nats(error.into())),
        }
    }
    Err(nats("the last sequence of the subject keeps changing".into()))
}

/// Removes a message that no engine wrote, or an entry that a later one takes the place of.
pub async fn remove(jetstream: &Context, sequence: u64) -> Result<(), async_nats::Error> {
    let stream: Stream<()> = jetstream.get_stream_no_info(subject::TRANSITIONS).await?;
    stream.delete_message(sequence).await?;
    Ok(())
}

/// What a new leader reads of an entry.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    id: String,
    uid: Name,
    kind: String,
    namespace: Option<Name>,
    name: Name,
    object: Value,
    #[serde(default)]
    left_out: LeftOut,
}

/// A message that is no entry.
#[derive(Debug)]
pub struct Unreadable {
    /// No engine wrote it, of whatever version: it came from a server.
    pub of_nobody: bool,
    /// What is wrong.
    pub reason: String,
}

impl Entry {
    fn of(message: &StoredMessage) -> Result<Self, Unreadable> {
        check(&message.content)
            .and_then(|payload| serde_json::from_slice(payload).map_err(|error| unreadable(payload, &error)))
    }
}

/// The payload of an entry, as far as headers tell.
pub fn check(content: &Content) -> Result<&Bytes, Unreadable> {
    match content {
        Content::Payload(payload) => Ok(payload),
        Content::Removed => Err(Unreadable { of_nobody: false, reason: "it is empty".into() }),
        Content::Foreign(reason) => Err(Unreadable { of_nobody: true, reason: reason.clone() }),
    }
}

/// Judges a payload that can't be read. An entry of another version names it, and those of this one can be read.
pub fn unreadable(payload: &[u8], error: &serde_json::Error) -> Unreadable {
    let value = serde_json::from_slice::<Value>(payload).unwrap_or_default();
    Unreadable { of_nobody: value.get("schemaVersion").is_none(), reason: error.to_string() }
}

/// Reads the last entry of every object. Removes what no engine wrote and hides them.
pub async fn load(jetstream: &Context) -> Result<LoadedOutbox, async_nats::Error> {
    let stream = jetstream.get_stream(subject::TRANSITIONS).await?;
    let made = stream.cached_info().created.unix_timestamp();
    let keeps = i64::try_from(stream.cached_info().config.max_age.as_secs()).unwrap_or(i64::MAX);
    // A margin of a minute for clock skew.
    let is_complete = Timestamp::now().as_second().saturating_sub(made) < keeps.saturating_sub(60);
    let mut unreadable = 0;
    for _ in 0..MAX_REMOVALS {
        let (mut all, mut of_nobody) = (HashMap::new(), Vec::new());
        let filter = SubjectKind::Transition.all();
        for_each_stored(jetstream, Selection::last(subject::TRANSITIONS, &filter), |message| {
            let sequence = message.sequence;
            match Entry::of(&message) {
                Ok(entry) => {
                    let Some(kind) = Kind::of_name(&entry.kind) else { return };
                    let key = match &entry.namespace {
                        Some(namespace) => Key::namespaced(kind, namespace, &entry.name),
                        None => Key::cluster(kind, &entry.name),
                    };
                    let is_cut = entry.left_out.fields.iter().any(|field| field == bounds::STATUS);
                    let status = entry.object.get("status").filter(|_| !is_cut);
                    let status = status.and_then(|value| convert::read(kind, value));
                    all.insert(key, LastEntry { sequence, uid: entry.uid, status });
                }
                // It marks that the subject was purged.
                Err(_) if message.content == Content::Removed => {}
                Err(error) => {
                    unreadable += 1;
                    warn!(subject = message.subject, error = error.reason, "an outbox entry can't be read");
                    if error.of_nobody {
                        of_nobody.push(sequence);
                    } else if let Some(key) = key(&message.subject) {
                        // The next entry needs the last sequence of the subject.
                        all.insert(key, LastEntry { sequence, uid: Name::default(), status: None });
                    }
                }
            }
        })
        .await?;
        if of_nobody.is_empty() {
            return Ok(LoadedOutbox { last: all, is_complete, unreadable });
        }
        for sequence in of_nobody {
            remove(jetstream, sequence).await?;
        }
    }
    Err("the outbox is filled by others".into())
}

/// The object of a subject.
fn key(subject: &str) -> Option<Key> {
    let Ok(Subject::Transition(object)) = subject.parse() else { return None };
    let (kind, name) = (Kind::of_name(&object.kind)?, Name::from(&*object.name));
    Some(match object.namespace {
        None => Key::cluster(kind, &name),
        Some(namespace) => Key::namespaced(kind, &Name::from(&*namespace), &name),
    })
}

#[cfg(test)]
mod tests;
