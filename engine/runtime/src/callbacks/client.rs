//! Client functions for the CLI: reading the state of callbacks, and requests to the leading engine.

use std::time::Duration;

use eno_sbi::nats::{CALLBACKS, Connection, Content, Selection, ask, for_each_stored};
use eno_schemas::{
    CallbackAnswer, CallbackRequest, DeadLetter, Subject, SubjectKind, decode, encode, subject,
};

use super::condition::time;
use super::notices::Undelivered;
use super::state::UNDELIVERED_PREFIX;

/// Timeout of a request; a retry may post many dead letters.
const TIMEOUT: Duration = Duration::from_mins(2);

/// NATS could not be read, or no engine answered. A retry may help.
#[derive(Debug, thiserror::Error)]
#[error("{operation}: {source}")]
pub struct ClientError {
    operation: &'static str,
    source: async_nats::Error,
}

impl ClientError {
    fn new(operation: &'static str) -> impl Fn(async_nats::Error) -> Self {
        move |source| Self { operation, source }
    }
}

impl Undelivered {
    /// Time of the next attempt, RFC 3339; `None`: there is no automatic one.
    pub fn next_try_at(&self) -> Option<String> {
        self.next_try.map(time)
    }
}

/// The objects with a failing callback, by kind, namespace and name.
pub async fn undelivered(nats: &Connection) -> Result<Vec<Undelivered>, ClientError> {
    let read = async {
        let stream = subject::bucket_stream(subject::CALLBACKS);
        let of = subject::of_bucket(subject::CALLBACKS, &format!("{UNDELIVERED_PREFIX}>"));
        let mut all: Vec<Undelivered> = Vec::new();
        for_each_stored(&nats.jetstream, Selection::last(&stream, &of), |message| {
            if let Content::Payload(value) = message.content {
                all.extend(serde_json::from_slice(&value).ok());
            }
        })
        .await?;
        all.sort_by(|a, b| (&a.kind, &a.namespace, &a.name).cmp(&(&b.kind, &b.namespace, &b.name)));
        Ok(all)
    };
    read.await.map_err(ClientError::new("reading what is known of callbacks"))
}

/// The dead letters, the oldest first.
pub async fn dead_letters(nats: &Connection) -> Result<Vec<DeadLetter>, ClientError> {
    let letters = read_dead_letters(nats, &SubjectKind::DeadLetter.all()).await;
    let letters = letters.map_err(ClientError::new("reading dead letters"))?;
    Ok(letters.into_iter().map(|(_, letter)| letter).collect())
}

/// The dead letters on a subject, with their sequences in the stream. Those that break the schema are omitted.
pub(super) async fn read_dead_letters(
    nats: &Connection,
    filter: &str,
) -> Result<Vec<(u64, DeadLetter)>, async_nats::Error> {
    let mut found = Vec::new();
    for_each_stored(&nats.jetstream, Selection::all(subject::DEAD_LETTERS, filter), |message| {
        if let Content::Payload(payload) = message.content {
            found.extend(decode(&payload).ok().map(|letter| (message.sequence, letter)));
        }
    })
    .await?;
    Ok(found)
}

/// Sends a request to the leading engine.
pub async fn send_request(
    nats: &Connection,
    request: &CallbackRequest,
) -> Result<CallbackAnswer, ClientError> {
    let sent = async {
        let payload = encode(request)?.into();
        let answer = ask(&nats.client, &Subject::CallbackRequest, CALLBACKS, payload, TIMEOUT).await?;
        Ok(decode(&answer)?)
    };
    sent.await.map_err(ClientError::new("asking the leading engine"))
}
