//! Commands from the stream, newest per target, for as long as the host runs.

use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, push};
use async_nats::jetstream::{Message, stream};
use eno_schemas::{Command, Generation, PayloadKind, decode, subject};
use futures::StreamExt;
use serde::Deserialize;
use tokio::sync::mpsc;
use tracing::{debug, info, warn};

use super::schedule::BadCommand;
use crate::nats::{Connection, is_stream_readout};

/// How often the streams are looked at: one that was deleted or made anew is noticed within this time.
const CHECK: Duration = Duration::from_secs(5);

/// What a driver accepts.
#[derive(Clone, Debug)]
pub(super) struct Filter {
    pub driver: String,
    /// The only target that it works on.
    pub target: Option<String>,
    pub kinds: Vec<PayloadKind>,
    /// It can hold a change until a transaction is decided.
    pub holds: bool,
}

/// What the stream says.
pub(super) enum Event {
    /// It is read from its start.
    Started,
    /// All that was there has been told.
    CaughtUp,
    /// The newest command of a target, at this position.
    Command(Arc<Command>, u64),
    /// A message that is no command, on the subject of this target.
    Bad(String, u64, BadCommand),
}

/// Reads the stream until nobody listens. Reads it from its start whenever something may have been missed: each
/// target's last command is all that counts, so that is cheap and safe.
pub(super) async fn run(connection: Connection, filter: Filter, events: mpsc::Sender<Event>) {
    let mut delay = Duration::ZERO;
    loop {
        tokio::select! {
            () = tokio::time::sleep(delay) => {}
            () = events.closed() => return,
        }
        delay = match read(&connection, &filter, &events).await {
            Ok(()) if events.is_closed() => return,
            Ok(()) => Duration::ZERO,
            Err(error) => {
                warn!(%error, "reading the commands, starting over");
                Duration::from_millis(500)
            }
        };
    }
}

async fn read(
    connection: &Connection,
    filter: &Filter,
    events: &mpsc::Sender<Event>,
) -> Result<(), async_nats::Error> {
    let mut connects = connection.connects();
    connects.mark_unchanged();
    let streams = created(connection).await?;
    let commands: stream::Stream<()> = connection.jetstream.get_stream_no_info(subject::COMMANDS).await?;
    // Into our own inbox: a pull consumer hands out its messages to whoever knows its name.
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
    if events.send(Event::Started).await.is_err() {
        return Ok(());
    }
    let mut told = waiting == 0;
    if told && events.send(Event::CaughtUp).await.is_err() {
        return Ok(());
    }
    let mut expected = 1;
    let mut check = tokio::time::interval_at(tokio::time::Instant::now() + CHECK, CHECK);
    loop {
        let message = tokio::select! {
            message = messages.next() => message.ok_or("the consumer ended")??,
            _ = connects.changed() => {
                info!("connected anew, reading the commands from their start");
                return Ok(());
            }
            _ = check.tick() => {
                if created(connection).await? != streams {
                    info!("the streams were made anew, reading the commands from their start");
                    return Ok(());
                }
                continue;
            }
            () = events.closed() => return Ok(()),
        };
        let info = message.info()?;
        let (position, pending, sequence) = (info.stream_sequence, info.pending, info.consumer_sequence);
        if sequence != expected {
            return Err(format!("message {expected} of the consumer was lost").into());
        }
        expected += 1;
        if events.send(filter.parse(&message, position)).await.is_err() {
            return Ok(());
        }
        if !told && (pending == 0 || sequence >= waiting) {
            told = true;
            if events.send(Event::CaughtUp).await.is_err() {
                return Ok(());
            }
        }
    }
}

/// When the streams were made, which tells a new one from the one before.
async fn created(connection: &Connection) -> Result<[String; 2], async_nats::Error> {
    let created = async |name| -> Result<String, async_nats::Error> {
        let stream = connection.jetstream.get_stream(name).await?;
        Ok(stream.cached_info().created.to_string())
    };
    Ok([created(subject::COMMANDS).await?, created(subject::RESULTS).await?])
}

impl Filter {
    /// What the consumer is asked for.
    fn subject(&self) -> String {
        match &self.target {
            Some(target) => subject::command(&self.driver, target),
            None => format!("eno.v1.command.{}.*", subject::token(&self.driver)),
        }
    }

    fn parse(&self, message: &Message, position: u64) -> Event {
        let token = message.subject.rsplit('.').next().unwrap_or_default();
        let bad = |target: String, reason: String| {
            let generation = generation(&message.payload);
            Event::Bad(target, position, BadCommand { generation, reason })
        };
        if is_stream_readout(message.headers.as_ref()) {
            return bad(
                name(token),
                "the message was read out of a stream, and so is not the engine's word".into(),
            );
        }
        let command: Command = match decode(&message.payload) {
            Ok(command) => command,
            Err(error) => return bad(name(token), error.to_string()),
        };
        if subject::command(&command.driver, &command.target) != message.subject.as_str() {
            let reason = format!(
                "command message for target {:?} of driver {:?} came on subject {}",
                command.target, command.driver, message.subject
            );
            return bad(name(token), reason);
        }
        let kind = command.desired.kind();
        if !self.kinds.contains(&kind) {
            let reason = format!("driver {} does not realise targets of kind {kind:?}", self.driver);
            return bad(command.target, reason);
        }
        if let (Some(transaction), false) = (&command.transaction, self.holds) {
            let reason = format!(
                "driver {} can't hold a change, and so has no part in transaction {}",
                self.driver, transaction.id
            );
            return bad(command.target, reason);
        }
        Event::Command(Arc::new(command), position)
    }
}

/// The generation of a message whose rest can't be read.
fn generation(payload: &[u8]) -> Option<Generation> {
    #[derive(Deserialize)]
    struct Message {
        generation: Generation,
    }
    serde_json::from_slice::<Message>(payload).ok().map(|message| message.generation)
}

/// The name that a subject token stands for; what is no escape stays as it is.
fn name(token: &str) -> String {
    let mut bytes = Vec::with_capacity(token.len());
    let mut rest = token.as_bytes();
    while let [first, others @ ..] = rest {
        let escaped = match (first, others) {
            (b'=', [high, low, after @ ..]) => {
                hex(*high).zip(hex(*low)).map(|(high, low)| (high << 4 | low, after))
            }
            _ => None,
        };
        let (byte, after) = escaped.unwrap_or((*first, others));
        bytes.push(byte);
        rest = after;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back() {
        for text in ["leaf1", "ns/a*>b", "é =", "=", "=2", "=zz", ""] {
            assert_eq!(name(&subject::token(text)), text);
        }
        assert_eq!(name("=2"), "=2");
    }

    #[test]
    fn generation_of_a_broken_message() {
        let payload = br#"{"generation":{"term":3,"sequence":9,"hash":"x"},"desired":7}"#;
        assert_eq!(generation(payload).map(|found| (found.term, found.sequence)), Some((3, 9)));
        assert_eq!(generation(b"{"), None);
    }
}
