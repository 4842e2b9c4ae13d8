//! Sees when NATS has lost its streams, and makes them anew.

use std::time::Duration;

use eno_sbi::nats::{Connection, ensure_streams};
use eno_schemas::subject;
use tokio::sync::watch;
use tokio::time::sleep;
use tracing::warn;

use crate::drivers;
use crate::mailbox::{Input, Mailbox, post};

/// How often the streams are looked at while the connection holds.
const CHECK_INTERVAL: Duration = Duration::from_secs(10);
/// So often the commands are read after a new connection: what a transaction held up at first is seen later.
const COMMAND_READS: u32 = 6;

/// When those were made whose loss has to be answered. Others are filled by who writes into them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CreationTimes {
    /// Commands, reports and presence.
    messaging: [i128; 3],
    outbox: i128,
}

/// Looks at the streams after each new connection and now and then, and makes those that are missing. A stream that was
/// made later than remembered has lost what it held: `lost` counts that, for those who read from streams to begin again.
/// One that was not may have lost single messages with its server: after each new connection the commands are read, for
/// a minute.
pub async fn guard(connection: Connection, mailbox: Mailbox, lost: watch::Sender<u64>) {
    let mut connects = connection.connects();
    let mut previous: Option<CreationTimes> = None;
    // The connection may have broken since the commands were read.
    let mut reads_left = 1;
    loop {
        if connects.has_changed().unwrap_or_default() && previous.is_some() {
            reads_left = COMMAND_READS;
        }
        connects.mark_unchanged();
        match read_created(&connection).await {
            Ok(created) => {
                if let Some(before) = previous.filter(|before| *before != created) {
                    lost.send_modify(|count| *count += 1);
                    if !post(&mailbox, Input::StreamsLost { outbox: before.outbox != created.outbox }).await {
                        return;
                    }
                }
                previous = Some(created);
            }
            Err(error) => warn!(%error, "the streams can't be looked at"),
        }
        if reads_left > 0 {
            match drivers::command_sequences(&connection).await {
                Ok(sequences) => {
                    reads_left -= 1;
                    if !post(&mailbox, Input::StoredSequences(sequences)).await {
                        return;
                    }
                }
                Err(error) => warn!(%error, "the commands can't be read"),
            }
        }
        tokio::select! {
            () = sleep(if previous.is_some() { CHECK_INTERVAL } else { CHECK_INTERVAL / 10 }) => {}
            changed = connects.changed() => match changed {
                // Said above, where one that comes while the streams are looked at is seen as well.
                Ok(()) => connects.mark_changed(),
                Err(_) => return,
            },
        }
    }
}

async fn read_created(connection: &Connection) -> Result<CreationTimes, async_nats::Error> {
    ensure_streams(&connection.jetstream, connection.replicas).await?;
    let created = async |name: &str| -> Result<i128, async_nats::Error> {
        let stream = connection.jetstream.get_stream(name).await?;
        Ok(stream.cached_info().created.unix_timestamp_nanos())
    };
    let drivers = format!("KV_{}", subject::DRIVERS);
    Ok(CreationTimes {
        messaging: [
            created(subject::COMMANDS).await?,
            created(subject::RESULTS).await?,
            created(&drivers).await?,
        ],
        outbox: created(subject::TRANSITIONS).await?,
    })
}
