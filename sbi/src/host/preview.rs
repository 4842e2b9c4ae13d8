//! Previews: requests for what the driver would do about a command, without doing it. Whether it logs in to the device
//! that a request names is the driver's decision, as with commands.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use async_nats::{Client, Message};
use eno_schemas::{Command, Failure, Preview, Subject, decode, encode};
use futures::FutureExt as _;
use tracing::debug;

use super::job::Context;
use crate::driver::Driver;
use crate::nats::answer_subject;

/// Maximum concurrent previews; further requests wait on the subscription.
pub(super) const MAX_CONCURRENT: usize = 16;
/// Time limit of one preview.
const TIME_LIMIT: Duration = Duration::from_secs(30);

/// The command to preview, and the subject of the answer.
pub(super) fn parse_request(message: &Message) -> Option<(Command, String)> {
    match decode::<Command>(&message.payload) {
        // The NATS permission is per target, so the subject must match the command's target.
        Ok(command) if *message.subject == Subject::preview(&command.driver, &command.target).to_string() => {
            let reply = answer_subject(message.reply.as_deref(), (&command.driver, &command.target))?;
            Some((command, reply))
        }
        Ok(command) => {
            debug!(subject = %message.subject, target = command.target, "asked about another target");
            None
        }
        Err(error) => {
            debug!(%error, "asked about what is no command");
            None
        }
    }
}

/// Runs the driver's preview within the time limit, and catches its panics.
pub(super) async fn run<D: Driver>(context: &Context<D>, command: Command) -> Preview {
    let previewing = AssertUnwindSafe(context.driver.preview(Arc::new(command))).catch_unwind();
    match tokio::time::timeout(TIME_LIMIT, previewing).await {
        Ok(Ok(Some(preview))) => preview,
        Ok(Ok(None)) => failed("this driver can't tell what it would do", false),
        Ok(Err(_)) => failed("the driver panicked", true),
        Err(_) => failed("the target is busy or does not answer", true),
    }
}

/// A preview that failed.
pub(super) fn failed(reason: &str, retryable: bool) -> Preview {
    let failure = Failure { reason: reason.into(), retryable, unreachable: false };
    Preview { failure: Some(failure), ..Preview::default() }
}

/// Sends a reply.
pub(super) async fn reply(client: &Client, preview: &Preview, to: String) {
    let sent = match encode(preview) {
        Ok(bytes) => client.publish(to, bytes.into()).await.map_err(async_nats::Error::from),
        Err(error) => Err(error.into()),
    };
    if let Err(error) = sent {
        debug!(%error, "an answer was not sent");
    }
}
