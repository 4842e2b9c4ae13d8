//! Between the program and the database of Open vSwitch.

use std::path::Path;

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::unix::OwnedReadHalf;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::{Changes, Timing};

/// It passes everything on until it is dropped, but for the transaction that the program dies of.
pub struct Proxy(#[expect(dead_code, reason = "ends with it")] JoinSet<()>);

impl Proxy {
    pub fn start(socket: &Path, database: &Path, changes_seen: &watch::Sender<Changes>) -> Self {
        let listener = UnixListener::bind(socket).unwrap();
        let (changes_seen, database) = (changes_seen.clone(), database.to_owned());
        let mut connections = JoinSet::new();
        connections.spawn(async move {
            let mut all = JoinSet::new();
            while let Ok((program, _)) = listener.accept().await {
                let server = UnixStream::connect(&database).await.unwrap();
                all.spawn(pass(program, server, changes_seen.clone()));
            }
        });
        Self(connections)
    }
}

async fn pass(program: UnixStream, server: UnixStream, changes_seen: watch::Sender<Changes>) {
    let (mut from_program, mut to_program) = program.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let (mut said, mut answered) = (Vec::new(), Vec::new());
    loop {
        let read = tokio::select! {
            read = from_program.read_buf(&mut said) => read,
            read = from_server.read_buf(&mut answered) => read,
        };
        if !matches!(read, Ok(1..)) {
            return;
        }
        while let Some((message, bytes)) = take(&mut said) {
            let mut dies = None;
            if let Some(change) = change(&message) {
                changes_seen.send_modify(|changes_seen| dies = changes_seen.record(change));
            }
            if dies != Some(Timing::Before) && to_server.write_all(&bytes).await.is_err() {
                return;
            }
            if dies == Some(Timing::After) {
                until_answered(&mut from_server, &mut answered, &message["id"]).await;
            }
            if dies.is_some() {
                changes_seen.send_modify(|changes_seen| changes_seen.killed = true);
                // Until it is dead.
                while matches!(from_program.read_buf(&mut said).await, Ok(1..)) {}
                return;
            }
        }
        while let Some((_, bytes)) = take(&mut answered) {
            if to_program.write_all(&bytes).await.is_err() {
                return;
            }
        }
    }
}

/// The operations of a transaction that changes something.
fn change(message: &Value) -> Option<String> {
    if message["method"] != "transact" {
        return None;
    }
    let operations = message["params"].as_array().into_iter().flatten();
    let changes = operations.filter_map(|operation| {
        let what = operation["op"].as_str()?;
        let table = operation["table"].as_str()?;
        matches!(what, "insert" | "update" | "mutate" | "delete").then(|| format!("{what} {table}"))
    });
    let changes: Vec<String> = changes.collect();
    (!changes.is_empty()).then(|| changes.join(", "))
}

/// Takes the first message that is complete.
fn take(buffer: &mut Vec<u8>) -> Option<(Value, Vec<u8>)> {
    let mut messages = serde_json::Deserializer::from_slice(buffer).into_iter();
    let message = messages.next()?.ok()?;
    let length = messages.byte_offset();
    Some((message, buffer.drain(..length).collect()))
}

async fn until_answered(server: &mut OwnedReadHalf, answered: &mut Vec<u8>, id: &Value) {
    loop {
        while let Some((answer, _)) = take(answered) {
            if answer["id"] == *id {
                return;
            }
        }
        let read = server.read_buf(answered).await;
        assert!(matches!(read, Ok(1..)), "the database does not answer: {read:?}");
    }
}
