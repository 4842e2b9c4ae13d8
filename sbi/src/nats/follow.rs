//! Reads streams for as long as a process runs, without missing a message.

use std::ops::ControlFlow;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;
use tracing::warn;

use super::Connection;

/// Delay after an error.
const RETRY_DELAY: Duration = Duration::from_millis(500);

/// Tells a reader of streams when to begin anew: messages in flight are lost with a connection, and the messages of a
/// stream that was recreated have other sequences.
#[derive(Debug)]
pub struct Restarts {
    connects: watch::Receiver<u64>,
    lost: Option<watch::Receiver<u64>>,
}

impl Restarts {
    /// `lost` changes when streams were recreated. `None`: the reader finds that out itself.
    pub fn new(connection: &Connection, lost: Option<watch::Receiver<u64>>) -> Self {
        Self { connects: connection.connects(), lost }
    }

    /// The reader begins. Call this before it creates its consumer, so that no restart is missed.
    pub fn begin(&mut self) {
        self.connects.mark_unchanged();
        self.lost.iter_mut().for_each(watch::Receiver::mark_unchanged);
    }

    /// Waits until the reader has to begin anew. False: no more restarts come, since the process ends.
    pub async fn needed(&mut self) -> bool {
        let lost = async {
            match &mut self.lost {
                Some(lost) => lost.changed().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            changed = self.connects.changed() => changed.is_ok(),
            changed = lost => changed.is_ok(),
        }
    }

    /// Reads once, until `read` returns or has to begin anew. True: read again, from everything that is stored; `read`
    /// failed, did not break, or may have missed a message. `what`: what it does, for the log.
    pub async fn follow(
        &mut self,
        what: &str,
        read: impl Future<Output = Result<ControlFlow<()>, async_nats::Error>>,
    ) -> bool {
        self.begin();
        let result = tokio::select! {
            result = read => result,
            more = self.needed() => return more,
        };
        if let Err(error) = &result {
            warn!(%error, "{what}, trying again");
            sleep(RETRY_DELAY).await;
        }
        !matches!(result, Ok(ControlFlow::Break(())))
    }
}
