//! Reads and follows the parts of commands that NATS stores, and makes commands of heads and parts.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use eno_sbi::nats::{Connection, Content, Restarts, Selection, StoredMessage, StreamReader, for_each_stored};
use eno_schemas::{
    Command, CommandMessage, Generation, Incomplete, Part, PartHash, Subject, SubjectKind, Tree, assemble,
    decode_part, subject,
};
use tokio::sync::watch;
use tracing::warn;

use super::drivers::target;
use super::parts::{PartsEvent, Place, Sequences};
use crate::metrics::Metrics;
use crate::watch::mailbox::{Input, Mailbox, post};

/// The parts of one switch by their names.
pub type PartsOfSwitch = BTreeMap<PartHash, Part>;

/// The command that a message and these parts make, and the tree of a head.
pub fn resolve(
    message: CommandMessage,
    parts: &PartsOfSwitch,
) -> Result<(Command, Option<Tree>), Incomplete> {
    match message {
        CommandMessage::Whole(command) => Ok((*command, None)),
        CommandMessage::Head(head) => {
            let (tree, desired) = assemble(head.generation.hash, |part| parts.get(&part), None)?;
            Ok((head.command(desired), Some(tree)))
        }
    }
}

/// The generation of a command.
pub fn generation(message: &CommandMessage) -> Generation {
    match message {
        CommandMessage::Whole(command) => command.generation.clone(),
        CommandMessage::Head(head) => head.generation(),
    }
}

/// All parts that NATS stores.
#[derive(Debug, Default)]
pub struct StoredParts {
    /// Their sequences, of unreadable ones too.
    pub sequences: Sequences,
    /// Those that can be read.
    pub parts: BTreeMap<Place, PartsOfSwitch>,
}

/// Reads all parts that NATS stores. A part that can't be read counts as lacking.
pub async fn read(connection: &Connection, metrics: &Metrics) -> Result<StoredParts, async_nats::Error> {
    let mut found = StoredParts::default();
    let of = SubjectKind::Part.all();
    let parts = Selection::last(subject::PARTS, &of);
    for_each_stored(&connection.jetstream, parts, |message| {
        let Some((place, hash)) = place_and_hash(&message.subject) else { return };
        let part = match &message.content {
            Content::Payload(payload) => decode_part(hash, payload).map_err(|error| error.to_string()),
            Content::Removed => return,
            Content::Foreign(reason) => Err(reason.clone()),
        };
        match part {
            Ok(part) => {
                found.parts.entry(place.clone()).or_default().insert(hash, part);
                found.sequences.entry(place).or_default().insert(hash, message.sequence);
            }
            Err(error) => {
                metrics.malformed("part");
                warn!(subject = message.subject, error, "a part of a command can't be read");
                found.sequences.entry(place).or_default().insert(hash, message.sequence);
            }
        }
    })
    .await?;
    Ok(found)
}

/// Follows which parts are stored: first all, then each that is stored by this engine or somebody else.
pub async fn follow(connection: Connection, mailbox: Mailbox, lost: watch::Receiver<u64>) {
    let mut restarts = Restarts::new(&connection, Some(lost));
    while restarts.follow("reading parts of commands from NATS", follow_once(&connection, &mailbox)).await {}
}

/// Breaks when the receiver has ended.
async fn follow_once(
    connection: &Connection,
    mailbox: &Mailbox,
) -> Result<ControlFlow<()>, async_nats::Error> {
    if !post(mailbox, PartsEvent::ReadingBegins).await {
        return Ok(ControlFlow::Break(()));
    }
    let of = SubjectKind::Part.all();
    let parts = Selection { headers_only: true, ..Selection::last(subject::PARTS, &of) };
    let mut reader = StreamReader::open(&connection.jetstream, parts).await?;
    let mut found = Sequences::new();
    while !reader.is_caught_up() {
        let message = reader.next().await?;
        let receives = match stored(&message) {
            Some(Ok((place, hash))) => {
                found.entry(place).or_default().insert(hash, message.sequence);
                true
            }
            Some(Err(nameless)) => post(mailbox, nameless).await,
            None => true,
        };
        if !receives {
            return Ok(ControlFlow::Break(()));
        }
    }
    let mut input = PartsEvent::Read(found).into();
    loop {
        if !post(mailbox, input).await {
            return Ok(ControlFlow::Break(()));
        }
        input = loop {
            let message = reader.next().await?;
            match stored(&message) {
                Some(Ok((place, hash))) => {
                    break PartsEvent::Stored(place, hash, message.sequence).into();
                }
                Some(Err(nameless)) => break nameless,
                None => {}
            }
        };
    }
}

/// What a message of the stream stores. `Err`: its subject names no part. `None`: it stores nothing.
fn stored(message: &StoredMessage) -> Option<Result<(Place, PartHash), Input>> {
    if message.content == Content::Removed {
        return None;
    }
    let nameless = || Input::Nameless(subject::PARTS, message.subject.clone());
    Some(place_and_hash(&message.subject).ok_or_else(nameless))
}

/// The switch, its driver, and the hash in the subject of a part.
pub fn place_and_hash(subject: &str) -> Option<(Place, PartHash)> {
    let Ok(Subject::Part(name, hash)) = subject.parse() else { return None };
    Some(((target(&name.driver, &name.target), (&*name.driver).into()), hash))
}
