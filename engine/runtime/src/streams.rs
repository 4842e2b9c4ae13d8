//! Sees when NATS has lost its streams, and makes them anew.

use std::time::Duration;

use eno_sbi::nats::{Connection, ensure_streams};
use eno_schemas::subject;
use tokio::sync::watch;
use tokio::time::sleep;
use tracing::warn;

use crate::mailbox::{Input, Mailbox, post};

/// How often the streams are looked at while the connection holds.
const LOOK: Duration = Duration::from_secs(10);

/// Looks at the streams after each new connection and now and then. A stream that was created later than remembered
/// has lost what it held: `lost` counts that, for those who read from streams to begin again.
pub async fn guard(connection: Connection, mailbox: Mailbox, lost: watch::Sender<u64>) {
    let mut connects = connection.connects();
    let mut remembered = None;
    loop {
        connects.mark_unchanged();
        match created(&connection).await {
            Ok(created) => {
                if remembered.is_some_and(|remembered| remembered != created) {
                    lost.send_modify(|count| *count += 1);
                    if !post(&mailbox, Input::StreamsLost).await {
                        return;
                    }
                }
                remembered = Some(created);
            }
            Err(error) => {
                warn!(%error, "the streams can't be looked at");
                if let Err(error) = ensure_streams(&connection.jetstream, connection.replicas).await {
                    warn!(%error, "the streams can't be made anew");
                }
            }
        }
        tokio::select! {
            () = sleep(if remembered.is_some() { LOOK } else { LOOK / 10 }) => {}
            changed = connects.changed() => if changed.is_err() { return },
        }
    }
}

/// When the streams were created; an error when one is not there.
async fn created(connection: &Connection) -> Result<[i128; 3], async_nats::Error> {
    let mut all = [0; 3];
    for (created, name) in all.iter_mut().zip([subject::COMMANDS, subject::RESULTS, subject::TRANSITIONS]) {
        *created = connection.jetstream.get_stream(name).await?.cached_info().created.unix_timestamp_nanos();
    }
    connection.jetstream.get_stream(subject::HISTORY).await?;
    Ok(all)
}
