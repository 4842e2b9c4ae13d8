//! Callbacks: every transition of an object that has a CallbackURL is posted there, from the outbox, in order per
//! object, at least once.
//!
//! Memory holds sequence numbers; the body is fetched when its turn comes. What was delivered is remembered in the
//! bucket `ENO_CALLBACKS`: a floor, below which nothing is left to do, but for the objects that have an entry of their
//! own, which are those whose endpoint did not take a callback.

mod post;
mod schedule;
mod state;

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_nats::jetstream::consumer::{DeliverPolicy, pull};
use async_nats::jetstream::stream::{DirectGetErrorKind, Stream};
use eno_core::Name;
use eno_sbi::nats::Connection;
use eno_schemas::{Delivery, DeliveryEnd, Phase, encode, subject};
use futures::StreamExt as _;
use jiff::Timestamp;
use serde::Deserialize;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use self::post::{Answer, Poster};
use self::schedule::Ended;
use crate::metrics::Metrics;

/// What is remembered is written so often at most.
const SAVE: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_secs(1);
/// A transition that is older than this is given up when it fails once more.
const GIVE_UP: Duration = Duration::from_hours(24);
const PREFIX: &str = "eno.v1.transition.";
/// As [`subject::deliveries`] has it, before the object.
const HISTORY: &str = "eno.v1.history.callback.";

/// Delivers until `stop`. `lost` changes when the outbox was made anew.
pub(crate) async fn run(
    connection: Connection,
    metrics: Arc<Metrics>,
    mut lost: watch::Receiver<u64>,
    stop: CancellationToken,
) {
    let poster = match Poster::new() {
        Ok(poster) => poster,
        Err(error) => {
            warn!(%error, "no callbacks: the HTTP client can't be made");
            stop.cancelled().await;
            return;
        }
    };
    loop {
        lost.mark_unchanged();
        let delivered = tokio::select! {
            delivered = deliver(&connection, &poster, &metrics) => delivered,
            changed = lost.changed() => changed.map_err(Into::into),
            () = stop.cancelled() => return,
        };
        if let Err(error) = delivered {
            warn!(%error, "delivering callbacks, beginning again");
        }
        sleep(PAUSE).await;
    }
}

async fn deliver(
    connection: &Connection,
    poster: &Poster,
    metrics: &Arc<Metrics>,
) -> Result<(), async_nats::Error> {
    let stream = connection.jetstream.get_stream(subject::TRANSITIONS).await?;
    let bucket = connection.jetstream.get_key_value(subject::CALLBACKS).await?;
    let mut schedule = state::load(&bucket, &stream).await?;
    let mut consumer = stream
        .create_consumer(pull::OrderedConfig {
            deliver_policy: DeliverPolicy::ByStartSequence { start_sequence: schedule.read() + 1 },
            filter_subject: format!("{PREFIX}>"),
            ..pull::OrderedConfig::default()
        })
        .await?;
    let pending = consumer.info().await?.num_pending;
    debug!(from = schedule.read() + 1, pending, "delivering callbacks");
    let mut messages = consumer.messages().await?;
    let mut posts: JoinSet<(Name, Ended)> = JoinSet::new();
    let mut save = interval(SAVE);
    save.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let now = Timestamp::now().as_millisecond();
        while let Some(turn) = schedule.next(now) {
            let (stream, poster, metrics) = (stream.clone(), poster.clone(), metrics.clone());
            let client = connection.client.clone();
            posts.spawn(async move {
                let ended = attempt(&stream, &client, &poster, &metrics, &turn.object, turn.sequence).await;
                (turn.object, ended)
            });
        }
        metrics.callbacks_pending.set(i64::try_from(schedule.len()).unwrap_or(i64::MAX));
        let wait =
            schedule.wake().map(|at| Duration::from_millis(u64::try_from(at - now).unwrap_or_default()));
        tokio::select! {
            message = messages.next() => {
                let message = message.ok_or("the consumer ended")??;
                let sequence = message.info()?.stream_sequence;
                let object = Name::from(message.subject.strip_prefix(PREFIX).unwrap_or(&message.subject));
                schedule.add(object, sequence, host(&message.payload));
            }
            Some(done) = posts.join_next() => {
                if let Ok((object, ended)) = done {
                    schedule.ended(&object, ended, Timestamp::now().as_millisecond(), jitter());
                }
            }
            _ = save.tick() => state::save(&bucket, &mut schedule).await?,
            () = sleep(wait.unwrap_or(SAVE)), if wait.is_some() => {}
        }
    }
}

/// The part of a transition that says where it is to be posted.
#[derive(Deserialize)]
struct Addressed {
    object: AddressedObject,
}

#[derive(Deserialize)]
struct AddressedObject {
    spec: Option<AddressedSpec>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct AddressedSpec {
    #[serde(rename = "CallbackURL")]
    callback_url: Option<String>,
}

/// The host that a transition is to be posted to; `None`: to none.
fn host(payload: &[u8]) -> Option<Name> {
    let addressed: Addressed = serde_json::from_slice(payload).ok()?;
    let url = reqwest::Url::parse(&addressed.object.spec?.callback_url?).ok()?;
    let host = url.host_str()?;
    Some(format!("{host}:{}", url.port_or_known_default().unwrap_or_default()).into())
}

/// Posts one transition once.
async fn attempt(
    stream: &Stream,
    client: &async_nats::Client,
    poster: &Poster,
    metrics: &Metrics,
    object: &str,
    sequence: u64,
) -> Ended {
    let message = match stream.direct_get(sequence).await {
        Ok(message) => message,
        Err(error) if matches!(error.kind(), DirectGetErrorKind::NotFound) => {
            metrics.callback("expired");
            warn!(object, sequence, "a callback was not delivered before its transition left the outbox");
            return Ended::Done;
        }
        Err(error) => return Ended::Again { error: error.to_string(), after: None },
    };
    let age = Timestamp::now().duration_since(
        Timestamp::from_nanosecond(message.time.unix_timestamp_nanos()).unwrap_or(Timestamp::MAX),
    );
    let began = Instant::now();
    let (end, ended) = match poster.post(&message.payload).await {
        Answer::Taken => {
            metrics.callback("delivered");
            (DeliveryEnd::Delivered, Ended::Done)
        }
        Answer::Nowhere => return Ended::Done,
        Answer::Refused(error) => {
            metrics.callback("refused");
            warn!(object, sequence, error, "a callback is not wanted any more and given up");
            (DeliveryEnd::GivenUp { error }, Ended::Done)
        }
        Answer::Failed { error, .. } if age.unsigned_abs() >= GIVE_UP => {
            metrics.callback("given-up");
            warn!(object, sequence, error, "a callback failed for a day and is given up");
            (DeliveryEnd::GivenUp { error }, Ended::Done)
        }
        Answer::Failed { error, after } => {
            metrics.callback("failed");
            debug!(object, sequence, error, "a callback failed and is tried again");
            (DeliveryEnd::Failed { error: error.clone() }, Ended::Again { error, after })
        }
    };
    if let Err(error) = remember(client, object, &message.payload, began.elapsed(), end).await {
        debug!(object, sequence, %error, "the history lacks a callback");
    }
    ended
}

/// The part of a transition that the history of its callbacks repeats.
#[derive(Deserialize)]
struct Told {
    id: String,
    counter: u64,
    phase: Phase,
}

/// Adds a try to the history. Nobody waits until it is stored: it is for people.
async fn remember(
    client: &async_nats::Client,
    object: &str,
    transition: &[u8],
    took: Duration,
    end: DeliveryEnd,
) -> Result<(), async_nats::Error> {
    let Told { id, counter, phase } = serde_json::from_slice(transition)?;
    let delivery = Delivery {
        transition: id,
        counter,
        phase,
        at: format!("{:.3}", Timestamp::now()),
        took_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
        end,
    };
    client.publish(format!("{HISTORY}{object}"), encode(&delivery)?.into()).await?;
    Ok(())
}

/// Evenly spread over 0 to 1.
fn jitter() -> f64 {
    use std::hash::{BuildHasher as _, Hasher as _};
    let random = std::hash::RandomState::new().build_hasher().finish();
    f64::from(u32::try_from(random >> 32).unwrap_or_default()) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests;
