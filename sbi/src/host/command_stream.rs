//! Reads the latest command of each target from the commands stream, for as long as the host runs.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, push};
use async_nats::jetstream::{Message, stream};
use eno_schemas::{Command, Generation, PayloadKind, Subject, SubjectKind, decode, subject};
use futures::StreamExt;
use serde::Deserialize;
use tokio::sync::mpsc;
use tracing::{debug, info};

use super::scheduler::InvalidCommand;
use crate::nats::{Connection, Restarts, is_stream_readout};

/// Interval of the checks for deleted or recreated streams.
const STREAM_CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// The commands that a driver accepts.
#[derive(Clone, Debug)]
pub(super) struct CommandFilter {
    pub driver: String,
    /// The only target that the driver works on.
    pub target: Option<String>,
    pub kinds: Vec<PayloadKind>,
    /// The driver can hold a change until a transaction is decided.
    pub can_hold: bool,
}

/// An event of the commands stream.
pub(super) enum Event {
    /// A replay of the stream from its start begins.
    Started,
    /// The replay has delivered every stored message.
    CaughtUp,
    /// The latest command of a target, with its stream position.
    Command(Arc<Command>, u64),
    /// An invalid message on the subject of this target, with its stream position.
    Invalid(String, u64, InvalidCommand),
}

/// Reads the stream until the receiver is closed. It replays the stream from the start whenever a message may
/// have been missed, which is cheap since only the last command of each target counts.
pub(super) async fn run(connection: Connection, filter: CommandFilter, events: mpsc::Sender<Event>) {
    let mut restarts = Restarts::new(&connection, None);
    let reading =
        async { while restarts.follow("reading the commands", read(&connection, &filter, &events)).await {} };
    tokio::select! {
        () = reading => {}
        () = events.closed() => {}
    }
}

async fn read(
    connection: &Connection,
    filter: &CommandFilter,
    events: &mpsc::Sender<Event>,
) -> Result<ControlFlow<()>, async_nats::Error> {
    let streams = stream_creation_times(connection).await?;
    let commands: stream::Stream<()> = connection.jetstream.get_stream_no_info(subject::COMMANDS).await?;
    // Push delivery into our own inbox: a pull consumer gives its messages to any client that knows its name.
    let inbox = connection.client.new_inbox();
    let consumer = commands
        .create_consumer(push::Config {
            name: inbox.rsplit('.').next().map(str::to_owned),
            deliver_subject: inbox,
            description: Some(format!("driver {}", filter.driver)),
            deliver_policy: DeliverPolicy::LastPerSubject,
            filter_subject: filter.subject(),
            ack_policy: AckPolicy::None,
            memory_storage: true,
            num_replicas: 1,
            flow_control: true,
            idle_heartbeat: Duration::from_secs(5),
            inactive_threshold: Duration::from_secs(30),
            ..push::Config::default()
        })
        .await?;
    let waiting = consumer.cached_info().num_pending;
    let mut messages = consumer.messages().await?;
    debug!(waiting, "reading the commands");
    events.send(Event::Started).await?;
    let mut caught_up = waiting == 0;
    if caught_up {
        events.send(Event::CaughtUp).await?;
    }
    let mut expected = 1;
    let mut check =
        tokio::time::interval_at(tokio::time::Instant::now() + STREAM_CHECK_INTERVAL, STREAM_CHECK_INTERVAL);
    loop {
        let message = tokio::select! {
            message = messages.next() => message.ok_or("the consumer ended")??,
            _ = check.tick() => {
                if stream_creation_times(connection).await? != streams {
                    info!("the streams were made anew, reading the commands from their start");
                    return Ok(ControlFlow::Continue(()));
                }
                continue;
            }
        };
        let info = message.info()?;
        let (position, pending, sequence) = (info.stream_sequence, info.pending, info.consumer_sequence);
        if sequence != expected {
            return Err(format!("message {expected} of the consumer was lost").into());
        }
        expected += 1;
        events.send(filter.parse(&message, position)).await?;
        if !caught_up && (pending == 0 || sequence >= waiting) {
            caught_up = true;
            events.send(Event::CaughtUp).await?;
        }
    }
}

/// The creation times of the streams. They change when a stream is recreated.
async fn stream_creation_times(connection: &Connection) -> Result<[String; 2], async_nats::Error> {
    let created = async |name| -> Result<String, async_nats::Error> {
        let stream = connection.jetstream.get_stream(name).await?;
        Ok(stream.cached_info().created.to_string())
    };
    Ok([created(subject::COMMANDS).await?, created(subject::RESULTS).await?])
}

impl CommandFilter {
    /// The consumer's filter subject.
    fn subject(&self) -> String {
        match &self.target {
            Some(target) => Subject::command(&self.driver, target).to_string(),
            None => SubjectKind::Command.of_driver(&self.driver),
        }
    }

    fn parse(&self, message: &Message, position: u64) -> Event {
        let target = || target_of(&message.subject);
        let invalid = |target: String, reason: String| {
            let generation = parse_generation(&message.payload);
            Event::Invalid(target, position, InvalidCommand { generation, reason })
        };
        if is_stream_readout(message.headers.as_ref()) {
            return invalid(
                target(),
                "the message was read out of a stream, and so is not the engine's word".into(),
            );
        }
        let command: Command = match decode(&message.payload) {
            Ok(command) => command,
            Err(error) => return invalid(target(), error.to_string()),
        };
        if Subject::command(&command.driver, &command.target).to_string() != message.subject.as_str() {
            let reason = format!(
                "command message for target {:?} of driver {:?} came on subject {}",
                command.target, command.driver, message.subject
            );
            return invalid(target(), reason);
        }
        let kind = command.desired.kind();
        if !self.kinds.contains(&kind) {
            let reason = format!("driver {} does not realise targets of kind {kind:?}", self.driver);
            return invalid(command.target, reason);
        }
        if let (Some(transaction), false) = (&command.transaction, self.can_hold) {
            let reason = format!(
                "driver {} can't hold a change, and so has no part in transaction {}",
                self.driver, transaction.id
            );
            return invalid(command.target, reason);
        }
        Event::Command(Arc::new(command), position)
    }
}

/// The generation of a message whose other fields may be invalid.
fn parse_generation(payload: &[u8]) -> Option<Generation> {
    #[derive(Deserialize)]
    struct Message {
        generation: Generation,
    }
    serde_json::from_slice::<Message>(payload).ok().map(|message| message.generation)
}

/// The target of a subject of commands; a text that is no such subject: its last token.
fn target_of(subject: &str) -> String {
    match subject.parse() {
        Ok(Subject::Command(name)) => name.target.into_owned(),
        _ => subject.rsplit('.').next().unwrap_or_default().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn target_is_read_from_the_subject() {
        for target in ["leaf1", "ns/a*>b", "é =", "=", "=2", "=zz", ""] {
            assert_eq!(target_of(&Subject::command("netconf", target).to_string()), target);
        }
        assert_eq!(target_of("eno.v1.command.netconf.=2"), "=2");
    }

    #[test]
    fn generation_is_parsed_from_an_invalid_message() {
        let payload = br#"{"generation":{"term":3,"sequence":9,"hash":"x"},"desired":7}"#;
        assert_eq!(parse_generation(payload).map(|found| (found.term, found.sequence)), Some((3, 9)));
        assert_eq!(parse_generation(b"{"), None);
    }
}
