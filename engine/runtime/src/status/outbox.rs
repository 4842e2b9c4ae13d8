//! The outbox: every transition is stored on NATS before the status shows it.

use std::collections::HashMap;

use async_nats::jetstream::consumer::DeliverPolicy;
use async_nats::jetstream::context::PublishErrorKind;
use async_nats::jetstream::message::{Info, PublishMessage};
use async_nats::jetstream::{Context, Message};
use bytes::Bytes;
use eno_core::{Key, Name, Status};
use eno_schemas::{LeftOut, Subject, SubjectKind, Transition, encode, subject};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;
use tracing::warn;

use crate::api;
use crate::status::{bounds, convert};
use crate::stream_reader;

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

/// Publishes a transition after the message `expected` of its subject, and returns its sequence.
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
    for _ in 0..2 {
        let message = PublishMessage::build()
            .payload(payload.clone())
            .message_id(&transition.id)
            .expected_last_subject_sequence(expected);
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
                match last(jetstream, &subject).await.map_err(nats)? {
                    // Entries expire after 7 days, and a recreated stream is empty.
                    None => expected = 0,
                    // An earlier attempt succeeded without an answer.
                    Some((sequence, id)) if id == transition.id => return Ok(sequence),
                    Some((found, _)) => return Err(OutboxError::Superseded { subject, expected, found }),
                }
            }
            Err(error) => return Err(nats(error.into())),
        }
    }
    Err(nats("the last sequence of the subject keeps changing".into()))
}

/// Removes an entry that a later one takes the place of.
pub async fn remove(jetstream: &Context, sequence: u64) -> Result<(), async_nats::Error> {
    jetstream.get_stream_no_info(subject::TRANSITIONS).await?.delete_message(sequence).await?;
    Ok(())
}

/// The sequence and the id of a subject's last message.
async fn last(jetstream: &Context, subject: &str) -> Result<Option<(u64, String)>, async_nats::Error> {
    #[derive(Deserialize)]
    struct Id {
        id: String,
    }
    let stream = jetstream.get_stream_no_info(subject::TRANSITIONS).await?;
    let last = stream_reader::last(&stream, subject).await?;
    Ok(last.map(|message| {
        let id = serde_json::from_slice::<Id>(&message.payload).map(|id| id.id).unwrap_or_default();
        (message.sequence, id)
    }))
}

/// Reads the last entry of every object.
pub async fn load(jetstream: &Context) -> Result<LoadedOutbox, async_nats::Error> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Entry {
        uid: Name,
        kind: String,
        namespace: Option<Name>,
        name: Name,
        object: Value,
        #[serde(default)]
        left_out: LeftOut,
    }
    let (mut all, mut unreadable) = (HashMap::new(), 0);
    let stream = jetstream.get_stream(subject::TRANSITIONS).await?;
    let made = stream.cached_info().created.unix_timestamp();
    let keeps = i64::try_from(stream.cached_info().config.max_age.as_secs()).unwrap_or(i64::MAX);
    // A margin of a minute for clock skew.
    let is_complete = Timestamp::now().as_second().saturating_sub(made) < keeps.saturating_sub(60);
    let visit = |message: &Message, info: &Info<'_>| {
        match serde_json::from_slice::<Entry>(&message.payload) {
            Ok(entry) => {
                let Some(kind) = api::kind(&entry.kind) else { return };
                let key = match &entry.namespace {
                    Some(namespace) => Key::namespaced(kind, namespace, &entry.name),
                    None => Key::cluster(kind, &entry.name),
                };
                let is_cut = entry.left_out.fields.iter().any(|field| field == bounds::STATUS);
                let status = entry
                    .object
                    .get("status")
                    .filter(|_| !is_cut)
                    .and_then(|value| convert::read(kind, value));
                all.insert(key, LastEntry { sequence: info.stream_sequence, uid: entry.uid, status });
            }
            // An empty message marks that the subject was purged.
            Err(_) if message.payload.is_empty() => {}
            Err(error) => {
                unreadable += 1;
                // The next entry needs the last sequence of the subject.
                if let Some(key) = key(&message.subject) {
                    let sequence = info.stream_sequence;
                    all.insert(key, LastEntry { sequence, uid: Name::default(), status: None });
                }
                warn!(subject = %message.subject, %error, "an outbox entry can't be read");
            }
        }
    };
    let filter = SubjectKind::Transition.all();
    let last = DeliverPolicy::LastPerSubject;
    let read = stream_reader::for_each_message(jetstream, subject::TRANSITIONS, last, &filter, visit);
    Box::pin(read).await?;
    Ok(LoadedOutbox { last: all, is_complete, unreadable })
}

/// The object of a subject.
fn key(subject: &str) -> Option<Key> {
    let Ok(Subject::Transition(object)) = subject.parse() else { return None };
    let (kind, name) = (api::kind(&object.kind)?, Name::from(&*object.name));
    Some(match object.namespace {
        None => Key::cluster(kind, &name),
        Some(namespace) => Key::namespaced(kind, &Name::from(&*namespace), &name),
    })
}

#[cfg(test)]
mod tests;
