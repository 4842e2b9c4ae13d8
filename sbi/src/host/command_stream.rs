//! Reads the latest command of each target from the commands stream, and the parts of commands from theirs, for as long
//! as the host runs.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use eno_schemas::{
    Command, CommandMessage, Generation, Head, PartHash, PayloadKind, Subject, SubjectKind, TargetName,
    decode_command, subject,
};
use serde::Deserialize;
use tokio::sync::{mpsc, watch};
use tracing::warn;

use super::scheduler::InvalidCommand;
use crate::nats::{Connection, Content, Restarts, Selection, StoredMessage, StreamReader, last_stored};
use crate::work::set_deadline;

/// A term is the Unix time in seconds at which an engine began to lead. By this much the engine's clock may be ahead.
const MAX_TERM_AHEAD: u64 = 24 * 60 * 60;

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
    /// The head of the latest command of a target, with its stream position and the time since NATS stored it.
    Head(Head, u64, Duration),
    /// A replay of the parts from their start begins.
    PartsStarted,
    /// The replay has delivered every stored part.
    PartsCaughtUp,
    /// A part of commands of a target, of this name, that was not checked.
    Part(String, PartHash, Bytes),
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
    let mut commands =
        StreamReader::open(&connection.jetstream, Selection::last(subject::COMMANDS, &filter.subject()))
            .await?;
    events.send(Event::Started).await?;
    let mut caught_up = false;
    loop {
        if !caught_up && commands.is_caught_up() {
            caught_up = true;
            events.send(Event::CaughtUp).await?;
        }
        // A consumer of a stream that is deleted falls silent.
        if let Some(event) = filter.parse(commands.next().await?) {
            events.send(event).await?;
        }
    }
}

/// Reads the parts of commands until the receiver is closed. Sets `can_read` once it is known whether the stream lets
/// itself be read, and again when it does later: an earlier engine has not created it, and a driver may lack the right.
pub(super) async fn run_parts(
    connection: Connection,
    filter: CommandFilter,
    events: mpsc::Sender<Event>,
    can_read: watch::Sender<Option<bool>>,
) {
    let mut restarts = Restarts::new(&connection, None);
    let reading = async {
        while restarts.follow("reading the parts", read_parts(&connection, &filter, &events, &can_read)).await
        {
        }
    };
    tokio::select! {
        () = reading => {}
        () = events.closed() => {}
    }
}

async fn read_parts(
    connection: &Connection,
    filter: &CommandFilter,
    events: &mpsc::Sender<Event>,
    can_read: &watch::Sender<Option<bool>>,
) -> Result<ControlFlow<()>, async_nats::Error> {
    let selection = filter.subject_of_parts();
    let opened = StreamReader::open(&connection.jetstream, Selection::last(subject::PARTS, &selection)).await;
    let could_read = can_read.borrow().unwrap_or_default();
    can_read.send_replace(Some(could_read || opened.is_ok()));
    let mut parts = opened?;
    events.send(Event::PartsStarted).await?;
    let mut caught_up = false;
    loop {
        if !caught_up && parts.is_caught_up() {
            caught_up = true;
            events.send(Event::PartsCaughtUp).await?;
        }
        if let Some(event) = parse_part(parts.next().await?) {
            events.send(event).await?;
        }
    }
}

/// Reads single parts of a target.
pub(super) async fn read_alone(
    connection: Connection,
    driver: String,
    target: String,
    parts: Vec<PartHash>,
    events: mpsc::Sender<Event>,
) {
    for part in parts {
        let subject = Subject::part(&driver, &target, part).to_string();
        match last_stored(&connection.jetstream, subject::PARTS, &subject).await {
            Ok(found) => {
                if let Some(event) = found.and_then(parse_part)
                    && events.send(event).await.is_err()
                {
                    return;
                }
            }
            Err(error) => return warn!(%error, %target, %part, "reading a part that is lacking"),
        }
    }
}

/// `None`: no part of ENO stored it, or it was purged.
fn parse_part(message: StoredMessage) -> Option<Event> {
    let Ok(Subject::Part(TargetName { target, .. }, hash)) = message.subject.parse() else {
        warn!(subject = message.subject, "ignoring a message on a subject that names no part");
        return None;
    };
    match message.content {
        Content::Payload(payload) => Some(Event::Part(target.into_owned(), hash, payload)),
        Content::Removed => None,
        Content::Foreign(reason) => {
            warn!(%target, part = %hash, reason, "ignoring a message that is no part");
            None
        }
    }
}

impl CommandFilter {
    /// True when commands may come in parts.
    pub fn reads_parts(&self) -> bool {
        self.kinds.contains(&PayloadKind::Fabric)
    }

    fn subject_of_parts(&self) -> String {
        match &self.target {
            Some(target) => SubjectKind::Part.of_target(&TargetName::new(&self.driver, target)),
            None => SubjectKind::Part.of_driver(&self.driver),
        }
    }

    /// The consumer's filter subject.
    fn subject(&self) -> String {
        match &self.target {
            Some(target) => Subject::command(&self.driver, target).to_string(),
            None => SubjectKind::Command.of_driver(&self.driver),
        }
    }

    /// `None`: the command was purged.
    fn parse(&self, message: StoredMessage) -> Option<Event> {
        let position = message.sequence;
        match message.content {
            Content::Payload(payload) => {
                Some(self.parse_payload(&message.subject, position, &payload, message.age))
            }
            Content::Removed => None,
            Content::Foreign(reason) => {
                let invalid = InvalidCommand { generation: None, reason };
                Some(Event::Invalid(target_of(&message.subject), position, invalid))
            }
        }
    }

    fn parse_payload(&self, subject: &str, position: u64, payload: &[u8], age: Duration) -> Event {
        let invalid = |target: String, reason: String| {
            let generation = parse_generation(payload);
            Event::Invalid(target, position, InvalidCommand { generation, reason })
        };
        let message = match decode_command(payload) {
            Ok(message) => message,
            Err(error) => return invalid(target_of(subject), error.to_string()),
        };
        let (driver, target, term, kind, transaction) = match &message {
            CommandMessage::Whole(it) => {
                let transaction = it.transaction.as_ref().map(|of| &of.id);
                (&it.driver, &it.target, it.generation.term, it.desired.kind(), transaction)
            }
            CommandMessage::Head(it) => {
                let transaction = it.transaction.as_ref().map(|of| &of.id);
                (&it.driver, &it.target, it.generation.term, it.desired.kind, transaction)
            }
        };
        if Subject::command(driver, target).to_string() != subject {
            let reason = format!(
                "command message for target {target:?} of driver {driver:?} came on subject {subject}"
            );
            return invalid(target_of(subject), reason);
        }
        if term > MAX_TERM_AHEAD + unix_seconds() {
            // Its generation is not repeated in the report.
            let reason = format!("its term {term} is more than a day ahead, so no engine issued it");
            return Event::Invalid(target.clone(), position, InvalidCommand { generation: None, reason });
        }
        if !self.kinds.contains(&kind) {
            let reason = format!("driver {} does not realise targets of kind {kind:?}", self.driver);
            return invalid(target.clone(), reason);
        }
        if let (Some(transaction), false) = (transaction, self.can_hold) {
            let reason = format!(
                "driver {} can't hold a change, and so has no part in transaction {transaction}",
                self.driver
            );
            return invalid(target.clone(), reason);
        }
        match message {
            CommandMessage::Whole(command) => Event::Command(with_deadline(*command, age), position),
            CommandMessage::Head(head) if kind == PayloadKind::Fabric => Event::Head(head, position, age),
            CommandMessage::Head(head) => {
                invalid(head.target, format!("commands of targets of kind {kind:?} have no parts"))
            }
        }
    }
}

/// The command with the deadline of its transaction by the clock of this process. `age`: the time since NATS stored it.
pub(super) fn with_deadline(mut command: Command, age: Duration) -> Arc<Command> {
    if let Some(transaction) = &mut command.transaction {
        set_deadline(transaction, age, jiff::Timestamp::now());
    }
    Arc::new(command)
}

fn unix_seconds() -> u64 {
    u64::try_from(jiff::Timestamp::now().as_second()).unwrap_or_default()
}

/// The generation of a message whose other fields may be invalid.
fn parse_generation(payload: &[u8]) -> Option<Generation> {
    #[derive(Deserialize)]
    struct Message {
        generation: Generation,
    }
    let message = serde_json::from_slice::<Message>(payload).ok()?;
    Some(message.generation).filter(|generation| generation.term <= MAX_TERM_AHEAD + unix_seconds())
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
    fn head_is_checked_like_a_command() {
        let filter = |kind, can_hold| CommandFilter {
            driver: "netconf".into(),
            target: None,
            kinds: vec![kind],
            can_hold,
        };
        let parsed = |filter: CommandFilter, target: &str, term: u64| {
            let head = serde_json::json!({
                "schemaVersion": 2, "driver": "netconf", "target": "leaf1",
                "generation": { "term": term, "sequence": 1, "hash": "AAAAAAAAAAAAAAAAAAAAAA" },
                "desired": { "kind": "fabric" },
                "transaction": { "id": "t", "decideWithinMs": 1 },
            });
            let subject = Subject::command("netconf", target).to_string();
            match filter.parse_payload(&subject, 7, head.to_string().as_bytes(), Duration::ZERO) {
                Event::Head(head, 7, _) => format!("head of {}", head.target),
                Event::Invalid(_, 7, bad) => bad.reason,
                _ => panic!("another event"),
            }
        };
        let fabric = PayloadKind::Fabric;
        assert_eq!(parsed(filter(fabric, true), "leaf1", 1), "head of leaf1");
        for (filter, target, term, reason) in [
            (filter(fabric, true), "leaf2", 1, "came on subject"),
            (filter(fabric, true), "leaf1", u64::MAX / 2, "more than a day ahead"),
            (filter(PayloadKind::Nad, true), "leaf1", 1, "does not realise"),
            (filter(fabric, false), "leaf1", 1, "can't hold"),
        ] {
            let found = parsed(filter, target, term);
            assert!(found.contains(reason), "{reason}: {found}");
        }
    }

    #[test]
    fn generation_is_parsed_from_an_invalid_message() {
        let payload = br#"{"generation":{"term":3,"sequence":9,"hash":"x"},"desired":7}"#;
        assert_eq!(parse_generation(payload).map(|found| (found.term, found.sequence)), Some((3, 9)));
        assert_eq!(parse_generation(b"{"), None);
    }
}
