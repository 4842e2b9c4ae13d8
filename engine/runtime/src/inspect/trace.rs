//! Reads the history of objects and targets from NATS, or from messages that were stored.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use eno_sbi::nats::{Connection, Content, Selection, StoredMessage, ask, for_each_stored, last_stored};
use eno_schemas::{
    Command, CommandMessage, Delivery, Message, Preview, Report, Subject, SubjectKind, TargetName,
    Transition, decode, decode_command, decode_part, encode, subject,
};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::commands::stored_parts::{PartsOfSwitch, resolve};

/// Timeout of a preview; the driver reads the switch before it answers.
const PREVIEW_TIMEOUT: Duration = Duration::from_secs(30);

/// The streams of ENO, with those behind its buckets.
pub const STREAMS: [&str; 9] = [
    subject::COMMANDS,
    subject::PARTS,
    subject::RESULTS,
    subject::TRANSITIONS,
    subject::HISTORY,
    subject::DEAD_LETTERS,
    "KV_ENO_DRIVERS",
    "KV_ENO_OWNERS",
    "KV_ENO_CALLBACKS",
];

/// Where messages are read.
#[derive(Clone, Debug)]
pub enum Messages {
    /// In the streams of NATS, as they are now.
    Nats(Box<Connection>),
    /// Where they were stored before.
    Stored(Arc<dyn StoredMessages>),
}

/// Messages of streams that were read before.
pub trait StoredMessages: Debug + Send + Sync {
    /// The payloads of a stream on one subject, the oldest first.
    fn payloads(&self, stream: &str, subject: &str) -> Result<Vec<Vec<u8>>, async_nats::Error>;

    /// All subjects of a stream.
    fn subjects(&self, stream: &str) -> Result<Vec<String>, async_nats::Error>;
}

/// A message of a stream.
#[derive(Clone, Debug)]
pub struct StreamMessage<'a> {
    /// Its subject.
    pub subject: &'a str,
    /// Its sequence in the stream.
    pub sequence: u64,
    /// When the server stored it, RFC 3339.
    pub time: String,
    /// Its payload; empty for a deleted key of a bucket. Of a message that no part of ENO wrote: why that is so.
    pub payload: &'a [u8],
}

/// Messages could not be read. A retry may help.
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
pub async fn transitions(messages: &Messages, of: ObjectRef<'_>) -> Result<Vec<Transition>, TraceError> {
    all(messages, subject::TRANSITIONS, Subject::transition(of.kind, of.namespace, of.name).to_string()).await
}

/// The attempts to post its callbacks, the oldest first.
pub async fn deliveries(messages: &Messages, of: ObjectRef<'_>) -> Result<Vec<Delivery>, TraceError> {
    all(messages, subject::HISTORY, Subject::delivery(of.kind, of.namespace, of.name).to_string()).await
}

/// The reports on a target, the oldest first.
pub async fn reports(messages: &Messages, driver: &str, target: &str) -> Result<Vec<Report>, TraceError> {
    all(messages, subject::HISTORY, Subject::history(driver, target).to_string()).await
}

/// The transitions of all objects of a namespace, the oldest first.
pub async fn transitions_in(messages: &Messages, namespace: &str) -> Result<Vec<Transition>, TraceError> {
    let filter = SubjectKind::Transition.with_tokens(&format!("*.{}.*", subject::token(namespace)));
    let is_inside = |on: &str| matches!(on.parse(), Ok(Subject::Transition(name)) if name.namespace.as_deref() == Some(namespace));
    matching(messages, subject::TRANSITIONS, filter, is_inside).await
}

/// The attempts to post callbacks of all objects of a namespace. [`Delivery::transition`] tells the object.
pub async fn deliveries_in(messages: &Messages, namespace: &str) -> Result<Vec<Delivery>, TraceError> {
    let filter = SubjectKind::Delivery.with_tokens(&format!("*.{}.*", subject::token(namespace)));
    let is_inside = |on: &str| matches!(on.parse(), Ok(Subject::Delivery(name)) if name.namespace.as_deref() == Some(namespace));
    matching(messages, subject::HISTORY, filter, is_inside).await
}

/// The last report on a target.
pub async fn report(messages: &Messages, driver: &str, target: &str) -> Result<Option<Report>, TraceError> {
    last(messages, subject::RESULTS, &Subject::result(driver, target).to_string()).await
}

/// The last command of a target, and when NATS stored it, RFC 3339; empty: that is not known.
pub async fn timed_command(
    messages: &Messages,
    driver: &str,
    target: &str,
) -> Result<Option<(Command, String)>, TraceError> {
    let subject = Subject::command(driver, target).to_string();
    let Some((payload, at)) = last_payload(messages, subject::COMMANDS, &subject).await? else {
        return Ok(None);
    };
    Ok(command_of(messages, driver, target, &payload).await?.map(|command| (command, at)))
}

/// The last command of a target, whole or in parts. `None`: there is none, or it can't be read.
pub async fn command(messages: &Messages, driver: &str, target: &str) -> Result<Option<Command>, TraceError> {
    Ok(timed_command(messages, driver, target).await?.map(|(command, _)| command))
}

/// The command that a payload on its subject is, with its parts. `None`: it is none, or it lacks parts.
pub async fn command_of(
    messages: &Messages,
    driver: &str,
    target: &str,
    payload: &[u8],
) -> Result<Option<Command>, TraceError> {
    let Ok(message) = decode_command(payload) else { return Ok(None) };
    let parts = match &message {
        CommandMessage::Whole(_) => PartsOfSwitch::new(),
        CommandMessage::Head(_) => parts(messages, TargetName::new(driver, target)).await?,
    };
    Ok(resolve(message, &parts).ok().map(|(command, _)| command))
}

/// The stored parts of a switch that can be read.
async fn parts(messages: &Messages, of: TargetName<'_>) -> Result<PartsOfSwitch, TraceError> {
    let filter = SubjectKind::Part.of_target(&of);
    let failed = |source: async_nats::Error| TraceError::new("reading", &filter, source);
    let mut found = PartsOfSwitch::new();
    let hash_of = |subject: &str| match subject.parse() {
        Ok(Subject::Part(name, hash)) if name == of => Some(hash),
        _ => None,
    };
    match messages {
        Messages::Nats(nats) => {
            for_each_stored(&nats.jetstream, Selection::last(subject::PARTS, &filter), |message| {
                let Content::Payload(payload) = &message.content else { return };
                let read = |hash| Some((hash, decode_part(hash, payload).ok()?));
                found.extend(hash_of(&message.subject).and_then(read));
            })
            .await
            .map_err(failed)?;
        }
        Messages::Stored(stored) => {
            for subject in stored.subjects(subject::PARTS).map_err(failed)? {
                let Some(hash) = hash_of(&subject) else { continue };
                // Stored messages may be written in another way, so the hash is not that of the payload.
                let payload = stored.payloads(subject::PARTS, &subject).map_err(failed)?.pop();
                found.extend(payload.and_then(|payload| Some((hash, decode(&payload).ok()?))));
            }
        }
    }
    Ok(found)
}

/// Asks a driver for a preview of a command. Nothing is changed.
pub async fn preview(nats: &Connection, command: &Command) -> Result<Preview, TraceError> {
    let subject = Subject::preview(&command.driver, &command.target).to_string();
    let failed = |source: async_nats::Error| TraceError::new("asking on", &subject, source);
    let payload = encode(command).map_err(|error| failed(error.into()))?;
    let of = (&*command.driver, &*command.target);
    let request = Subject::preview(of.0, of.1);
    let answer = ask(&nats.client, &request, of, payload.into(), PREVIEW_TIMEOUT).await.map_err(failed)?;
    decode(&answer).map_err(|error| failed(error.into()))
}

/// Visits all stored messages of a stream, the oldest first.
pub async fn each_message(
    nats: &Connection,
    stream: &str,
    mut visit: impl FnMut(StreamMessage<'_>),
) -> Result<(), TraceError> {
    for_each_stored(&nats.jetstream, Selection::all(stream, ">"), |message| {
        visit(StreamMessage {
            subject: &message.subject,
            sequence: message.sequence,
            time: rfc3339(message.stored_at),
            payload: match &message.content {
                Content::Payload(payload) => payload,
                Content::Removed => &[],
                Content::Foreign(reason) => reason.as_bytes(),
            },
        });
    })
    .await
    .map_err(|source| TraceError::new("reading", stream, source))
}

/// The configuration and state of a stream, as the server answers (`STREAM.INFO` of JetStream's API).
pub async fn stream_info(nats: &Connection, stream: &str) -> Result<Value, TraceError> {
    api(nats, format!("STREAM.INFO.{stream}"), &json!({})).await
}

/// A request to JetStream's API.
async fn api(nats: &Connection, request: String, body: &Value) -> Result<Value, TraceError> {
    let answer: Result<Value, _> = nats.jetstream.request(request.clone(), body).await;
    let failed = |source: async_nats::Error| TraceError::new("asking NATS for", &request, source);
    let answer = answer.map_err(|error| failed(error.into()))?;
    match answer.pointer("/error/description").and_then(Value::as_str) {
        Some(error) => Err(failed(error.to_owned().into())),
        None => Ok(answer),
    }
}

/// A message of this version; `None`: it is none.
fn decoded<T: Message>(message: &StoredMessage) -> Option<T> {
    match &message.content {
        Content::Payload(payload) => decode(payload).ok(),
        Content::Removed | Content::Foreign(_) => None,
    }
}

/// A time of a message in RFC 3339; empty: it is out of range.
fn rfc3339(unix_nanoseconds: i128) -> String {
    Timestamp::from_nanosecond(unix_nanoseconds).map(|time| time.to_string()).unwrap_or_default()
}

/// All messages of a subject. A message that breaks the schema is omitted: it is of another version.
async fn all<T: Message>(messages: &Messages, stream: &str, subject: String) -> Result<Vec<T>, TraceError> {
    let failed = |source: async_nats::Error| TraceError::new("reading", &subject, source);
    let mut found = Vec::new();
    match messages {
        Messages::Nats(nats) => {
            for_each_stored(&nats.jetstream, Selection::all(stream, &subject), |message| {
                found.extend(decoded(&message));
            })
            .await
            .map_err(failed)?;
        }
        Messages::Stored(stored) => {
            let payloads = stored.payloads(stream, &subject).map_err(failed)?;
            found.extend(payloads.iter().filter_map(|payload| decode(payload).ok()));
        }
    }
    Ok(found)
}

/// All messages of the subjects that match `filter`; of stored ones, of those that `is_wanted`.
async fn matching<T: Message>(
    messages: &Messages,
    stream: &str,
    filter: String,
    is_wanted: impl Fn(&str) -> bool,
) -> Result<Vec<T>, TraceError> {
    let Messages::Stored(stored) = messages else { return all(messages, stream, filter).await };
    let subjects = stored.subjects(stream).map_err(|source| TraceError::new("reading", &filter, source))?;
    let mut found = Vec::new();
    for subject in subjects.into_iter().filter(|on| is_wanted(on)) {
        found.extend(all(messages, stream, subject).await?);
    }
    Ok(found)
}

async fn last<T: Message>(messages: &Messages, stream: &str, subject: &str) -> Result<Option<T>, TraceError> {
    let last = last_payload(messages, stream, subject).await?;
    Ok(last.and_then(|(payload, _)| decode(&payload).ok()))
}

/// The last message of a subject, and when NATS stored it, RFC 3339; empty: that is not known.
async fn last_payload(
    messages: &Messages,
    stream: &str,
    subject: &str,
) -> Result<Option<(Bytes, String)>, TraceError> {
    let failed = |source: async_nats::Error| TraceError::new("reading", subject, source);
    match messages {
        Messages::Nats(nats) => {
            let last = last_stored(&nats.jetstream, stream, subject).await.map_err(failed)?;
            Ok(last.and_then(|message| match message.content {
                Content::Payload(payload) => Some((payload, rfc3339(message.stored_at))),
                Content::Removed | Content::Foreign(_) => None,
            }))
        }
        Messages::Stored(stored) => {
            let last = stored.payloads(stream, subject).map_err(failed)?.pop();
            Ok(last.map(|payload| (payload.into(), String::new())))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use eno_schemas::{
        Desired, Device, FabricDesired, FabricPort, FabricVlans, Generation, Head, Tree, VlanSet,
    };

    use super::*;

    /// Messages whose fields were sorted when they were stored.
    #[derive(Debug)]
    struct Sorted(BTreeMap<String, Vec<u8>>);

    impl StoredMessages for Sorted {
        fn payloads(&self, _: &str, subject: &str) -> Result<Vec<Vec<u8>>, async_nats::Error> {
            Ok(self.0.get(subject).cloned().into_iter().collect())
        }

        fn subjects(&self, _: &str) -> Result<Vec<String>, async_nats::Error> {
            Ok(self.0.keys().cloned().collect())
        }
    }

    #[tokio::test]
    async fn stored_command_in_parts_is_read_as_a_whole_one() {
        let desired = FabricDesired {
            cluster: "lab".into(),
            cluster_uid: None,
            device: Device::new("192.0.2.1:830"),
            vrfs: Vec::new(),
            lookup: None,
            vlans: FabricVlans::new(),
            ports: vec![FabricPort::new("eth1", VlanSet::EMPTY)],
        };
        let tree = Tree::of(&desired);
        let command = Command {
            driver: "netconf".into(),
            target: "leaf1".into(),
            generation: Generation { term: 1, sequence: 2, hash: tree.root().to_string() },
            desired: Desired::Fabric(desired.clone()),
            transaction: None,
        };
        let sorted = |payload: Vec<u8>| {
            let value: Value = serde_json::from_slice(&payload).expect("JSON");
            value.to_string().into_bytes()
        };
        let head = encode(&Head::of(&command).expect("a switch")).expect("a head");
        let mut stored: BTreeMap<String, Vec<u8>> = tree
            .parts()
            .map(|part| (Subject::part("netconf", "leaf1", part).to_string(), tree.payload(&desired, part)))
            .map(|(subject, payload)| (subject, sorted(payload.expect("a part of the state"))))
            .collect();
        stored.insert(Subject::command("netconf", "leaf1").to_string(), sorted(head));
        let read = async |stored| {
            let messages = Messages::Stored(Arc::new(Sorted(stored)));
            super::command(&messages, "netconf", "leaf1").await.expect("the messages are there")
        };
        assert_eq!(read(stored.clone()).await, Some(command));
        // Another switch's parts don't count, and a command that lacks one can't be read.
        let root = Subject::part("netconf", "leaf1", tree.root()).to_string();
        let payload = stored.remove(&root).expect("the root");
        stored.insert(Subject::part("netconf", "leaf2", tree.root()).to_string(), payload);
        assert_eq!(read(stored).await, None);
    }
}
