//! Reads the history of objects and targets from NATS.

use std::time::Duration;

use async_nats::jetstream::consumer::DeliverPolicy;
use eno_sbi::nats::Connection;
use eno_schemas::{
    Command, Delivery, Message, Preview, Report, Subject, Transition, decode, encode, subject,
};

use crate::stream_reader;

/// Timeout of a preview; the driver reads the switch before it answers.
const PREVIEW_TIMEOUT: Duration = Duration::from_secs(30);

/// NATS could not be read. A retry may help.
#[derive(Debug, thiserror::Error)]
#[error("{operation} {subject}: {source}")]
pub struct TraceError {
    operation: &'static str,
    subject: String,
    source: async_nats::Error,
}

impl TraceError {
    fn new(operation: &'static str, subject: &str, source: impl Into<async_nats::Error>) -> Self {
        Self { operation, subject: subject.to_owned(), source: source.into() }
    }
}

/// An object, as named in subjects.
#[derive(Clone, Copy, Debug)]
pub struct ObjectRef<'a> {
    /// Its kind.
    pub kind: &'a str,
    /// Its namespace, if it has one.
    pub namespace: Option<&'a str>,
    /// Its name.
    pub name: &'a str,
}

/// The transitions of an object, the oldest first.
pub async fn transitions(nats: &Connection, of: ObjectRef<'_>) -> Result<Vec<Transition>, TraceError> {
    all(nats, subject::TRANSITIONS, Subject::transition(of.kind, of.namespace, of.name).to_string()).await
}

/// The attempts to post its callbacks, the oldest first.
pub async fn deliveries(nats: &Connection, of: ObjectRef<'_>) -> Result<Vec<Delivery>, TraceError> {
    all(nats, subject::HISTORY, Subject::delivery(of.kind, of.namespace, of.name).to_string()).await
}

/// The reports on a target, the oldest first.
pub async fn reports(nats: &Connection, driver: &str, target: &str) -> Result<Vec<Report>, TraceError> {
    all(nats, subject::HISTORY, Subject::history(driver, target).to_string()).await
}

/// The last report on a target.
pub async fn report(nats: &Connection, driver: &str, target: &str) -> Result<Option<Report>, TraceError> {
    last(nats, subject::RESULTS, &Subject::result(driver, target).to_string()).await
}

/// The last command of a target.
pub async fn command(nats: &Connection, driver: &str, target: &str) -> Result<Option<Command>, TraceError> {
    last(nats, subject::COMMANDS, &Subject::command(driver, target).to_string()).await
}

/// Asks a driver for a preview of a command. Nothing is changed.
pub async fn preview(nats: &Connection, command: &Command) -> Result<Preview, TraceError> {
    let subject = Subject::preview(&command.driver, &command.target).to_string();
    let failed = |source: async_nats::Error| TraceError::new("asking on", &subject, source);
    let payload = encode(command).map_err(|error| failed(error.into()))?;
    let request = async_nats::Request::new().payload(payload.into()).timeout(Some(PREVIEW_TIMEOUT));
    let answer = nats.client.send_request(subject.clone(), request).await;
    let answer = answer.map_err(|error| failed(error.into()))?;
    decode(&answer.payload).map_err(|error| failed(error.into()))
}

/// All stored messages of a subject. A message that breaks the schema is omitted: it is of another version.
async fn all<T: Message>(nats: &Connection, stream: &str, subject: String) -> Result<Vec<T>, TraceError> {
    let failed = |source: async_nats::Error| TraceError::new("reading", &subject, source);
    let mut found = Vec::new();
    stream_reader::for_each_message(&nats.jetstream, stream, DeliverPolicy::All, &subject, |message, _| {
        found.extend(decode(&message.payload).ok());
    })
    .await
    .map_err(failed)?;
    Ok(found)
}

async fn last<T: Message>(nats: &Connection, stream: &str, subject: &str) -> Result<Option<T>, TraceError> {
    let failed = |source: async_nats::Error| TraceError::new("reading", subject, source);
    let stream = nats.jetstream.get_stream(stream).await.map_err(|error| failed(error.into()))?;
    let last = stream_reader::last(&stream, subject).await.map_err(failed)?;
    Ok(last.and_then(|message| decode(&message.payload).ok()))
}
