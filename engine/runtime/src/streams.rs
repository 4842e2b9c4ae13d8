//! Sees when NATS has lost its streams, and makes them anew.

use std::sync::Arc;
use std::time::Duration;

use eno_sbi::nats::{Connection, ensure_streams};
use eno_schemas::subject;
use tokio::sync::watch;
use tokio::time::sleep;
use tracing::warn;

use crate::drivers;
use crate::mailbox::{Input, Mailbox, post};
use crate::metrics::Metrics;

/// How often the streams are looked at while the connection holds.
const LOOK: Duration = Duration::from_secs(10);

/// When those were made whose loss has to be answered. Others are filled by who writes into them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Made {
    /// Commands, reports and presence.
    words: [i128; 3],
    outbox: i128,
}

/// Looks at the streams after each new connection and now and then, and makes those that are missing. A stream that was
/// made later than remembered has lost what it held: `lost` counts that, for those who read from streams to begin again.
/// One that was not may have lost single messages with its server: after each new connection the commands are read.
pub async fn guard(
    connection: Connection,
    mailbox: Mailbox,
    metrics: Arc<Metrics>,
    lost: watch::Sender<u64>,
) {
    let mut connects = connection.connects();
    let mut remembered: Option<Made> = None;
    let mut unread = false;
    loop {
        connects.mark_unchanged();
        match look(&connection).await {
            Ok(made) => {
                if let Some(before) = remembered.filter(|before| *before != made) {
                    lost.send_modify(|count| *count += 1);
                    if !post(&mailbox, Input::StreamsLost { outbox: before.outbox != made.outbox }).await {
                        return;
                    }
                }
                remembered = Some(made);
            }
            Err(error) => warn!(%error, "the streams can't be looked at"),
        }
        if unread {
            match drivers::commands(&connection, &metrics).await {
                Ok(found) => {
                    unread = false;
                    let kept = found.into_iter().map(|(target, held, _)| (target, held.sequence)).collect();
                    if !post(&mailbox, Input::Kept(kept)).await {
                        return;
                    }
                }
                Err(error) => warn!(%error, "the commands can't be read"),
            }
        }
        tokio::select! {
            () = sleep(if remembered.is_some() && !unread { LOOK } else { LOOK / 10 }) => {}
            changed = connects.changed() => {
                if changed.is_err() {
                    return;
                }
                unread = true;
            }
        }
    }
}

async fn look(connection: &Connection) -> Result<Made, async_nats::Error> {
    ensure_streams(&connection.jetstream, connection.replicas).await?;
    let made = async |name: &str| -> Result<i128, async_nats::Error> {
        let stream = connection.jetstream.get_stream(name).await?;
        Ok(stream.cached_info().created.unix_timestamp_nanos())
    };
    let drivers = format!("KV_{}", subject::DRIVERS);
    Ok(Made {
        words: [made(subject::COMMANDS).await?, made(subject::RESULTS).await?, made(&drivers).await?],
        outbox: made(subject::TRANSITIONS).await?,
    })
}
