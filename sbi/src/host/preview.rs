//! Answers to those who ask what would be done about a command.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use async_nats::{Client, Message, Subject};
use eno_schemas::{Command, Desired, Device, Failure, Preview, decode, encode, subject};
use futures::FutureExt as _;
use tracing::debug;

use super::work::Context;
use crate::driver::Driver;

/// So many are worked on at once; the rest waits on the subscription.
pub(super) const MOST: usize = 16;
/// Who asks waits no longer.
const LIMIT: Duration = Duration::from_secs(30);

/// Where a driver is asked about any target.
pub(super) fn all(driver: &str) -> String {
    format!("eno.v1.preview.{}.*", subject::token(driver))
}

/// The command that is asked about, and where the answer goes.
pub(super) fn read(message: Message) -> Option<(Command, Subject)> {
    let reply = message.reply?;
    match decode::<Command>(&message.payload) {
        // Who may ask about one target is not to ask about another.
        Ok(command) if *message.subject == *subject::preview(&command.driver, &command.target) => {
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

/// Whether the driver may look at the target of `asked`, which was last commanded to be `last`; else why not.
///
/// Who asks is trusted with no more than a look at what the engine has the driver configure: a device of their own
/// choice would be sent a login that they name, for a host key that they hold.
pub(super) fn allowed(asked: &Desired, last: &Desired) -> Result<(), &'static str> {
    match (asked, last) {
        (Desired::Fabric(asked), Desired::Fabric(last))
            if endpoint(&asked.device) != endpoint(&last.device) =>
        {
            Err(
                "the address, credential, host key or dialect is not that of the device's last command: what would \
                 be done can be told once the FabricDevice is applied",
            )
        }
        _ if asked.kind() != last.kind() => Err("the target was last commanded to be of another kind"),
        _ => Ok(()),
    }
}

/// What is connected to, and how.
fn endpoint(device: &Device) -> (&str, [Option<&str>; 3]) {
    // So that a new field is thought about here.
    let Device { address, dialect, credential, host_key, drift: _, audit_interval: _, adopt: _ } = device;
    (address, [dialect.as_deref(), credential.as_deref(), host_key.as_deref()])
}

/// Has the driver look, whatever becomes of it.
pub(super) async fn look<D: Driver>(context: &Context<D>, command: Command) -> Preview {
    let looked = AssertUnwindSafe(context.driver.preview(Arc::new(command))).catch_unwind();
    match tokio::time::timeout(LIMIT, looked).await {
        Ok(Ok(Some(preview))) => preview,
        Ok(Ok(None)) => failed("this driver can't tell what it would do", false),
        Ok(Err(_)) => failed("the driver panicked", true),
        Err(_) => failed("the target is busy or does not answer", true),
    }
}

/// Nothing can be told.
pub(super) fn failed(reason: &str, retryable: bool) -> Preview {
    let failure = Failure { reason: reason.to_owned(), retryable, unreachable: false };
    Preview { failure: Some(failure), ..Preview::default() }
}

/// Sends an answer.
pub(super) async fn answer(client: &Client, preview: &Preview, reply: Subject) {
    let sent = match encode(preview) {
        Ok(bytes) => client.publish(reply, bytes.into()).await.map_err(async_nats::Error::from),
        Err(error) => Err(error.into()),
    };
    if let Err(error) = sent {
        debug!(%error, "an answer was not sent");
    }
}
