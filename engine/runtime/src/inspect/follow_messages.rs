//! Follows the last messages of NATS: reports, drivers and callbacks that were not taken.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use eno_sbi::nats::{Connection, Content, Restarts, Selection, StreamReader};
use eno_schemas::{DriverHello, Report, SubjectKind, decode, subject};
use tokio::sync::mpsc;

use super::trace::StoredMessages;
use crate::callbacks::{UNDELIVERED_PREFIX, Undelivered};

/// A change of what NATS has last. `None`: there is none any more, or it is of another version.
#[derive(Clone, Debug)]
pub enum MessageChange {
    /// The last report on a target, by its subject.
    Report(String, Option<Box<Report>>),
    /// A process of a driver that is alive, by its key.
    Driver(String, Option<DriverHello>),
    /// The callback of an object that was not taken, by its key.
    Undelivered(String, Option<Box<Undelivered>>),
}

/// Sends reports, drivers and callbacks that were not taken: first those that are stored, then each change. After a lost
/// connection it sends the stored ones again. It ends when nobody receives them.
pub async fn follow_messages(nats: &Connection, to: &mpsc::Sender<MessageChange>) {
    let [reports, drivers, callbacks] = sources();
    tokio::join!(follow(nats, &reports, to), follow(nats, &drivers, to), follow(nats, &callbacks, to));
}

/// The same of messages that were stored; `None`: these have no such stream.
pub fn stored_messages(stored: &dyn StoredMessages) -> [Option<Vec<MessageChange>>; 3] {
    sources().map(|source| {
        let subjects = stored.subjects(&source.stream).ok()?;
        let wanted = subjects.into_iter().filter(|on| on.starts_with(source.filter.trim_end_matches('>')));
        let changes = wanted.filter_map(|on| {
            let last = stored.payloads(&source.stream, &on).ok()?.pop()?;
            Some((source.change)(on, Some(&last)))
        });
        Some(changes.collect())
    })
}

/// A stream, the subjects of it, and what a message of it says.
struct Source {
    stream: String,
    filter: String,
    change: fn(String, Option<&[u8]>) -> MessageChange,
}

/// Reports, drivers and callbacks.
fn sources() -> [Source; 3] {
    let bucket = subject::bucket_stream;
    [
        Source {
            stream: subject::RESULTS.to_owned(),
            filter: SubjectKind::Result.all(),
            change: |on, payload| {
                MessageChange::Report(on, payload.and_then(|payload| decode(payload).ok()).map(Box::new))
            },
        },
        Source {
            stream: bucket(subject::DRIVERS),
            filter: subject::of_bucket(subject::DRIVERS, ">"),
            change: |on, payload| MessageChange::Driver(on, payload.and_then(|payload| decode(payload).ok())),
        },
        Source {
            stream: bucket(subject::CALLBACKS),
            filter: subject::of_bucket(subject::CALLBACKS, &format!("{UNDELIVERED_PREFIX}>")),
            change: |on, payload| {
                let one = payload.and_then(|payload| serde_json::from_slice(payload).ok());
                MessageChange::Undelivered(on, one.map(Box::new))
            },
        },
    ]
}

async fn follow(nats: &Connection, source: &Source, to: &mpsc::Sender<MessageChange>) {
    let mut known = BTreeSet::new();
    let mut restarts = Restarts::new(nats, None);
    while restarts
        .follow("following the last messages of NATS", Box::pin(read(nats, source, to, &mut known)))
        .await
    {}
}

/// Breaks when nobody receives the changes.
async fn read(
    nats: &Connection,
    Source { stream, filter, change }: &Source,
    to: &mpsc::Sender<MessageChange>,
    known: &mut BTreeSet<String>,
) -> Result<ControlFlow<()>, async_nats::Error> {
    let mut messages = StreamReader::open(&nats.jetstream, Selection::last(stream, filter)).await?;
    // What was there before and is not sent again is gone.
    let mut missing = known.clone();
    loop {
        if messages.is_caught_up() {
            for gone in std::mem::take(&mut missing) {
                known.remove(&gone);
                if to.send(change(gone, None)).await.is_err() {
                    return Ok(ControlFlow::Break(()));
                }
            }
        }
        let message = messages.next().await?;
        let on = message.subject;
        missing.remove(&on);
        let sent = match message.content {
            Content::Payload(payload) => {
                known.insert(on.clone());
                to.send(change(on, Some(&payload))).await
            }
            Content::Removed => {
                known.remove(&on);
                to.send(change(on, None)).await
            }
            Content::Foreign(_) => continue,
        };
        if sent.is_err() {
            return Ok(ControlFlow::Break(()));
        }
    }
}
