//! A proxy between the program and the database of Open vSwitch.

use std::path::Path;

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::unix::OwnedReadHalf;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::{StageProgress, Timing};

/// Forwards all messages until it is dropped, except at the kill point.
pub struct Proxy(#[expect(dead_code, reason = "ends with it")] JoinSet<()>);

impl Proxy {
    pub fn start(socket: &Path, database: &Path, changes_seen: &watch::Sender<StageProgress>) -> Self {
        let listener = UnixListener::bind(socket).unwrap();
        let (changes_seen, database) = (changes_seen.clone(), database.to_owned());
        let mut connections = JoinSet::new();
        connections.spawn(async move {
            let mut forwarders = JoinSet::new();
            while let Ok((program, _)) = listener.accept().await {
                let server = UnixStream::connect(&database).await.unwrap();
                forwarders.spawn(forward(program, server, changes_seen.clone()));
            }
        });
        Self(connections)
    }
}

async fn forward(program: UnixStream, server: UnixStream, changes_seen: watch::Sender<StageProgress>) {
    let (mut from_program, mut to_program) = program.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let (mut requests, mut answers) = (Vec::new(), Vec::new());
    loop {
        let read = tokio::select! {
            read = from_program.read_buf(&mut requests) => read,
            read = from_server.read_buf(&mut answers) => read,
        };
        if !matches!(read, Ok(1..)) {
            return;
        }
        while let Some((message, bytes)) = take_message(&mut requests) {
            let mut timing = None;
            if let Some(change) = change(&message) {
                changes_seen.send_modify(|changes_seen| timing = changes_seen.record(change));
            }
            if timing != Some(Timing::Before) && to_server.write_all(&bytes).await.is_err() {
                return;
            }
            if timing == Some(Timing::After) {
                wait_for_answer(&mut from_server, &mut answers, &message["id"]).await;
            }
            if timing.is_some() {
                changes_seen.send_modify(|changes_seen| changes_seen.killed = true);
                // Waits until the program is dead.
                while matches!(from_program.read_buf(&mut requests).await, Ok(1..)) {}
                return;
            }
        }
        while let Some((_, bytes)) = take_message(&mut answers) {
            if to_program.write_all(&bytes).await.is_err() {
                return;
            }
        }
    }
}

/// The changing operations of a transaction; `None`: it changes nothing.
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

/// Takes the first complete message, with its bytes, from the buffer.
fn take_message(buffer: &mut Vec<u8>) -> Option<(Value, Vec<u8>)> {
    let mut messages = serde_json::Deserializer::from_slice(buffer).into_iter();
    let message = messages.next()?.ok()?;
    let length = messages.byte_offset();
    Some((message, buffer.drain(..length).collect()))
}

async fn wait_for_answer(server: &mut OwnedReadHalf, answers: &mut Vec<u8>, id: &Value) {
    loop {
        while let Some((answer, _)) = take_message(answers) {
            if answer["id"] == *id {
                return;
            }
        }
        let read = server.read_buf(answers).await;
        assert!(matches!(read, Ok(1..)), "the database does not answer: {read:?}");
    }
}
