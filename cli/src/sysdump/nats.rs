//! What a dump takes from NATS, and from drivers over NATS.

use eno_engine::trace::{self, Messages, STREAMS, StreamMessage};
use eno_sbi::nats::Connection;
use eno_schemas::{Command, CommandMessage, Desired, decode_command, subject};
use futures::StreamExt as _;
use kube::Client;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::archive::Entry;
use super::messages::MessageLine;
use super::redact::Redactor;
use super::{Collector, stream_path};
use crate::inspect::NatsClientArgs;

/// How many drivers are asked at a time. A driver answers for one device after another.
const CONCURRENCY: usize = 4;

/// Reads the streams and asks the drivers of switches for what they would change.
pub(crate) async fn collect(collector: &Collector, args: &NatsClientArgs, client: Option<&Client>) {
    let nats = match collector.part("NATS", Box::pin(args.connect(client))).await {
        Some(Some(nats)) => nats,
        Some(None) => {
            return collector.not_read(
                "NATS",
                "no --nats-url or ENO_NATS_URL is given, and this disk has no keys of this cluster",
            );
        }
        None => return,
    };
    server(collector, &nats);
    let mut switches = Vec::new();
    for stream in STREAMS {
        state(collector, &nats, stream).await;
        Box::pin(messages(collector, &nats, stream, &mut switches)).await;
    }
    futures::stream::iter(&switches)
        .for_each_concurrent(CONCURRENCY, |(driver, switch)| preview(collector, &nats, driver, switch))
        .await;
}

/// The server that this client is connected to.
fn server(collector: &Collector, nats: &Connection) {
    let info = nats.client.server_info();
    let mut entry = Entry::new("nats/server.jsonl");
    entry.record(&json!({
        "version": info.version, "name": info.server_name, "maxPayload": info.max_payload,
        "authRequired": info.auth_required, "tlsRequired": info.tls_required, "servers": info.connect_urls.len(),
    }));
    collector.add("the server of NATS", entry);
}

/// The configuration and state of a stream.
async fn state(collector: &Collector, nats: &Connection, stream: &str) {
    let what = format!("the state of NATS stream {stream}");
    let Some(info) = collector.part(&what, trace::stream_info(nats, stream)).await else { return };
    let mut entry = Entry::new(&format!("nats/{stream}.state.jsonl"));
    entry.object(&info);
    collector.add(&what, entry);
}

/// All messages of a stream. Of commands of switches, driver and switch are kept.
async fn messages(
    collector: &Collector,
    nats: &Connection,
    stream: &str,
    switches: &mut Vec<(String, String)>,
) {
    let what = format!("the messages of NATS stream {stream}");
    let mut entry = Entry::new(&stream_path(stream));
    let read = trace::each_message(nats, stream, |message| {
        if !entry.has_room() {
            return;
        }
        if stream == subject::COMMANDS {
            switches.extend(switch_of(message.payload));
        }
        if let Ok(line) = line(entry.redactor(), &message) {
            entry.record(&line);
        }
    });
    let read = collector.long_part(&what, Box::pin(read)).await;
    // A stream whose end is missing would answer questions wrongly. What there is of it is kept under another name.
    if read.is_none() {
        if entry.lines() == 0 {
            return;
        }
        entry.rename(&format!("nats/{stream}.incomplete.jsonl"));
    }
    collector.add(&what, entry);
}

/// The driver and the switch of a command; `None`: it is not of a switch.
fn switch_of(payload: &[u8]) -> Option<(String, String)> {
    match decode_command(payload).ok()? {
        CommandMessage::Head(head) => Some((head.driver, head.target)),
        CommandMessage::Whole(command) => match *command {
            Command { driver, target, desired: Desired::Fabric(_), .. } => Some((driver, target)),
            _ => None,
        },
    }
}

/// A message as a line, redacted.
fn line(redactor: &mut Redactor, message: &StreamMessage<'_>) -> serde_json::Result<MessageLine> {
    let mut payload = serde_json::from_slice::<Value>(message.payload)
        .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(message.payload).into_owned()));
    redactor.value(&mut payload);
    let payload = RawValue::from_string(payload.to_string())?;
    let (subject, time) = (message.subject.to_owned(), message.time.clone());
    Ok(MessageLine { subject, sequence: message.sequence, time, payload })
}

/// What the driver of a switch would change to fulfil its last command. It reads the switch for this.
async fn preview(collector: &Collector, nats: &Connection, driver: &str, switch: &str) {
    let what = format!("what driver {driver} would change on {switch}");
    let ask = async {
        let command = trace::command(&Messages::Nats(Box::new(nats.clone())), driver, switch).await?;
        match command {
            Some(command) => trace::preview(nats, &command).await.map(Some),
            None => Ok(None),
        }
    };
    let Some(Some(preview)) = collector.part(&what, ask).await else { return };
    let mut entry = Entry::new(&format!("devices/{}.jsonl", subject::key(driver, switch)));
    entry.object(&preview);
    collector.add(&what, entry);
}
