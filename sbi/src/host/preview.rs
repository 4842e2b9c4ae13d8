//! Answers to those who ask what would be done about a command.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use async_nats::{Client, Message, Subject};
use eno_schemas::{Command, Failure, Preview, decode, encode};
use futures::FutureExt as _;
use tracing::debug;

use super::work::Context;
use crate::driver::Driver;

/// So many are worked on at once; the rest waits on the subscription.
pub(super) const MOST: usize = 16;
/// Who asks waits no longer.
const LIMIT: Duration = Duration::from_secs(30);

/// Where a driver is asked about any target.
pub(super) fn subject(driver: &str) -> String {
    format!("eno.v1.preview.{}.*", eno_schemas::subject::token(driver))
}

/// The command that is asked about, and where the answer goes.
pub(super) fn read(message: Message) -> Option<(Command, Subject)> {
    let reply = message.reply?;
    match decode(&message.payload) {
        Ok(command) => Some((command, reply)),
        Err(error) => {
            debug!(%error, "asked about what is no command");
            None
        }
    }
}

/// Has the driver look, whatever becomes of it, and answers.
pub(super) async fn answer<D: Driver>(
    context: Arc<Context<D>>,
    client: Client,
    command: Command,
    reply: Subject,
) {
    let looked = AssertUnwindSafe(context.driver.preview(Arc::new(command))).catch_unwind();
    let failed = |reason: &str| Preview {
        failure: Some(Failure { reason: reason.to_owned(), retryable: true, unreachable: false }),
        ..Preview::default()
    };
    let preview = match tokio::time::timeout(LIMIT, looked).await {
        Ok(Ok(Some(preview))) => preview,
        Ok(Ok(None)) => failed("this driver can't tell what it would do"),
        Ok(Err(_)) => failed("the driver panicked"),
        Err(_) => failed("the target is busy or does not answer"),
    };
    let sent = match encode(&preview) {
        Ok(bytes) => client.publish(reply, bytes.into()).await.map_err(async_nats::Error::from),
        Err(error) => Err(error.into()),
    };
    if let Err(error) = sent {
        debug!(%error, "an answer was not sent");
    }
}
