//! Callbacks: each transition of an object with a CallbackURL is posted there from the outbox, in order per object and
//! at least once.
//!
//! Memory holds only sequence numbers; the body is read when it is posted. The bucket `ENO_CALLBACKS` stores the
//! progress. It has a floor: all transitions below it are delivered, except those of objects with an entry of their
//! own. An object gets an entry when its endpoint fails. Callbacks that are given up go to `ENO_DEAD_LETTERS`.

mod address;
mod args;
mod attempt;
mod client;
mod condition;
mod deliver;
mod hosts;
mod http;
mod keys;
mod message;
mod notices;
mod post;
mod requests;
mod schedule;
mod secrets;
mod state;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use eno_sbi::nats::Connection;
use tokio::sync::watch;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::warn;

pub use address::Allowed;
pub use args::{CallbackArgs, proxy_url};
pub use client::{ClientError, dead_letters, send_request, undelivered};
pub use notices::Undelivered;
pub(crate) use post::Poster;
pub(crate) use state::UNDELIVERED_PREFIX;

use self::message::{Endpoint, Message};
use crate::leader::lease_guard::LeaseGuard;
use crate::metrics::Metrics;

const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Delivers callbacks until `stop`. `lost` changes when the outbox was recreated.
pub(crate) async fn run(
    connection: Connection,
    poster: Arc<Poster>,
    metrics: Arc<Metrics>,
    lease_guard: LeaseGuard,
    mut lost: watch::Receiver<u64>,
    stop: CancellationToken,
) {
    let context = Arc::new(DeliveryContext { connection, poster, metrics, lease_guard });
    let mut newest = None;
    loop {
        lost.mark_unchanged();
        let delivered = tokio::select! {
            delivered = Box::pin(deliver::deliver(&context, &mut newest)) => delivered,
            changed = lost.changed() => changed.map_err(Into::into),
            () = stop.cancelled() => return,
        };
        if let Err(error) = delivered {
            warn!(%error, "delivering callbacks, beginning again");
        }
        sleep(RETRY_DELAY).await;
    }
}

/// Connections and settings for delivering callbacks.
struct DeliveryContext {
    /// Connection to NATS.
    connection: Connection,
    /// Posts messages.
    poster: Arc<Poster>,
    /// Metrics of the engine.
    metrics: Arc<Metrics>,
    /// A former leader must not post after its successor: that would break the order.
    lease_guard: LeaseGuard,
}

impl DeliveryContext {
    /// The current endpoint of a message's object; `None`: the object is gone or can't be read.
    async fn current_endpoint(&self, message: &Message) -> Option<Endpoint> {
        let about = attempt::about(message, 0, 0, String::new());
        let object = self.poster.object(&condition::key(&about)?).await?;
        let same = object.metadata.uid.as_deref() == Some(&message.uid);
        same.then(|| Endpoint::of_object(&object.data))
    }
}

/// The newest transition that was read: its sequence in the outbox, and its time in nanoseconds since 1970.
type Newest = Option<(u64, i128)>;
