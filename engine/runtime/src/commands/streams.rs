//! Detects lost streams of NATS and recreates them.

use std::sync::Arc;
use std::time::Duration;

use eno_core::StreamEvent;
use eno_sbi::nats::{Connection, StreamUse, ensure_streams};
use eno_schemas::subject;
use tokio::sync::watch;
use tokio::time::sleep;
use tracing::warn;

use crate::commands::drivers;
use crate::commands::parts::PartsEvent;
use crate::metrics::Metrics;
use crate::watch::mailbox::{Input, Mailbox, post};

/// Interval of checks while the connection holds.
const CHECK_INTERVAL: Duration = Duration::from_secs(10);
/// Number of reads of the commands after a reconnect: a message that a transaction hides at first is seen later.
const COMMAND_READS: u32 = 6;

/// Creation times of the streams whose loss needs a reaction, in nanoseconds since 1970. Others are refilled by their
/// writers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CreationTimes {
    /// Of commands, reports and presence.
    messaging: [i128; 3],
    /// Of the parts of commands, which are published again without their commands.
    parts: i128,
    outbox: i128,
}

impl CreationTimes {
    /// What follows from other times now.
    fn after_loss(&self, now: &Self) -> Input {
        if self.outbox != now.outbox {
            warn!("NATS lost the outbox and maybe other streams: beginning again");
            return Input::OutboxLost;
        }
        if self.messaging == now.messaging {
            warn!("NATS lost the parts of commands: publishing them again");
            return PartsEvent::StreamLost.into();
        }
        warn!("NATS lost streams: publishing all commands again");
        StreamEvent::StreamsLost.into()
    }
}

/// Checks the streams after each reconnect and periodically, and recreates missing ones. A stream with a new creation
/// time has lost its messages: `lost` counts that, so that readers start over. Other streams may have lost single
/// messages, so the commands are read for a minute after each reconnect.
pub async fn guard(
    connection: Connection,
    mailbox: Mailbox,
    metrics: Arc<Metrics>,
    lost: watch::Sender<u64>,
) {
    let mut connects = connection.connects();
    let mut previous: Option<CreationTimes> = None;
    // The connection may have broken since the leader read the commands.
    let mut reads_left = 1;
    let mut unbounded = Vec::new();
    loop {
        if connects.has_changed().unwrap_or_default() && previous.is_some() {
            reads_left = COMMAND_READS;
        }
        connects.mark_unchanged();
        match read_created(&connection).await {
            Ok((created, uses)) => {
                metrics.streams(&uses);
                let found: Vec<String> =
                    uses.into_iter().filter(|used| used.limit.is_none()).map(|used| used.stream).collect();
                if found != unbounded && !found.is_empty() {
                    let streams = found.join(", ");
                    warn!(
                        streams,
                        "no bound: max_file_store of NATS is too small, or they hold more than theirs"
                    );
                }
                unbounded = found;
                if let Some(before) = previous.filter(|before| *before != created) {
                    // The readers begin anew after the loss is known.
                    if !post(&mailbox, before.after_loss(&created)).await {
                        return;
                    }
                    lost.send_modify(|count| *count += 1);
                }
                previous = Some(created);
            }
            Err(error) => warn!(%error, "the streams can't be looked at"),
        }
        if reads_left > 0 {
            match drivers::command_sequences(&connection).await {
                Ok(sequences) => {
                    reads_left -= 1;
                    if !post(&mailbox, StreamEvent::StoredSequences(sequences)).await {
                        return;
                    }
                }
                Err(error) => warn!(%error, "the commands can't be read"),
            }
        }
        tokio::select! {
            () = sleep(if previous.is_some() { CHECK_INTERVAL } else { CHECK_INTERVAL / 10 }) => {}
            changed = connects.changed() => match changed {
                // Marks the change again for the check above, which also sees reconnects during a read.
                Ok(()) => connects.mark_changed(),
                Err(_) => return,
            },
        }
    }
}

/// Creates missing streams, and reads when the streams were created and what they hold.
async fn read_created(connection: &Connection) -> Result<(CreationTimes, Vec<StreamUse>), async_nats::Error> {
    let uses = ensure_streams(&connection.jetstream, connection.replicas).await?;
    let created = async |name: &str| -> Result<i128, async_nats::Error> {
        let stream = connection.jetstream.get_stream(name).await?;
        Ok(stream.cached_info().created.unix_timestamp_nanos())
    };
    let drivers = format!("KV_{}", subject::DRIVERS);
    let created = CreationTimes {
        messaging: [
            created(subject::COMMANDS).await?,
            created(subject::RESULTS).await?,
            created(&drivers).await?,
        ],
        parts: created(subject::PARTS).await?,
        outbox: created(subject::TRANSITIONS).await?,
    };
    Ok((created, uses))
}
