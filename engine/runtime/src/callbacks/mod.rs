//! Callbacks: each transition of an object with a CallbackURL is posted there from the outbox, in order per object and
//! at least once.
//!
//! Memory holds only sequence numbers; the body is read when it is posted. The bucket `ENO_CALLBACKS` stores the
//! progress. It has a floor: all transitions below it are delivered, except those of objects with an entry of their
//! own. An object gets an entry when its endpoint fails. Callbacks that are given up go to `ENO_DEAD_LETTERS`.

mod address;
mod args;
mod client;
mod condition;
mod keys;
mod message;
mod notices;
mod post;
mod requests;
mod schedule;
mod secrets;
mod state;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_nats::jetstream::consumer::{DeliverPolicy, pull};
use async_nats::jetstream::context::PublishErrorKind;
use async_nats::jetstream::message::{PublishMessage, StreamMessage};
use async_nats::jetstream::stream::{DirectGetErrorKind, LastRawMessageErrorKind, RawMessageError, Stream};
use eno_core::Name;
use eno_sbi::nats::Connection;
use eno_sbi::random;
use eno_schemas::{DeadLetter, Delivery, DeliveryEnd, Subject, SubjectKind, decode, encode, subject};
use futures::StreamExt as _;
use jiff::Timestamp;
use serde::Deserialize;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, warn};

pub use address::Allowed;
pub use args::CallbackArgs;
pub use client::{ClientError, dead_letters, send_request, undelivered};
pub use notices::Undelivered;
pub(crate) use post::Poster;

use self::message::{Endpoint, Message};
use self::notices::WriteOutcome;
use self::post::PostOutcome;
use self::requests::{FinishedRequest, PendingRequest};
use self::schedule::{AttemptEnd, DueCallback};
use self::state::EntryWatch;
use crate::leader::lease_guard::LeaseGuard;
use crate::metrics::Metrics;

/// Interval of saving the progress.
const SAVE_INTERVAL: Duration = Duration::from_millis(250);
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// A failed callback is given up after this number of attempts if its transition is older than [`GIVE_UP_AGE`].
const MIN_ATTEMPTS: u32 = 10;
const GIVE_UP_AGE: Duration = Duration::from_hours(3 * 24);
/// Maximum waiting requests; further ones get no answer.
const MAX_PENDING_REQUESTS: usize = 64;

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
            delivered = deliver(&context, &mut newest) => delivered,
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
    connection: Connection,
    poster: Arc<Poster>,
    metrics: Arc<Metrics>,
    /// A former leader must not post after its successor: that would break the order.
    lease_guard: LeaseGuard,
}

impl DeliveryContext {
    /// The current endpoint of a message's object; `None`: the object is gone or can't be read.
    async fn current_endpoint(&self, message: &Message) -> Option<Endpoint> {
        let about = about(message, 0, 0, String::new());
        let object = self.poster.object(&condition::key(&about)?).await?;
        let same = object.metadata.uid.as_deref() == Some(&message.uid);
        same.then(|| Endpoint::of_object(&object.data))
    }
}

/// The newest transition that was read: its sequence in the outbox, and its time in nanoseconds since 1970.
type Newest = Option<(u64, i128)>;

async fn deliver(context: &Arc<DeliveryContext>, newest: &mut Newest) -> Result<(), async_nats::Error> {
    let DeliveryContext { connection, poster, metrics, lease_guard } = &**context;
    let stream = connection.jetstream.get_stream(subject::TRANSITIONS).await?;
    let bucket = connection.jetstream.get_key_value(subject::CALLBACKS).await?;
    let mut connects = connection.connects();
    connects.mark_unchanged();
    let (mut schedule, mut notices) = state::load(&bucket, &stream, newest).await?;
    let mut requests = connection.client.subscribe(Subject::CallbackRequest.to_string()).await?;
    let mut messages = follow(&stream, schedule.read() + 1).await?;
    let mut entries = EntryWatch::read(&bucket).await?;
    // After a reconnect, messages in flight and recent writes may be lost. The state in memory is complete and is
    // written again.
    let mut broken = false;
    let mut followed = Instant::now();
    let mut posts: JoinSet<AttemptResult> = JoinSet::new();
    let mut writes: JoinSet<(Name, WriteOutcome)> = JoinSet::new();
    let mut pending_requests: VecDeque<PendingRequest> = VecDeque::new();
    let mut running_requests: JoinSet<FinishedRequest> = JoinSet::new();
    let mut save = interval(SAVE_INTERVAL);
    save.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let now = Timestamp::now().as_millisecond();
        while let Some(callback) = schedule.next(now) {
            posts.spawn(attempt(context.clone(), stream.clone(), callback));
        }
        while let Some((object, notice)) = notices.next(now) {
            let (poster, bucket) = (poster.clone(), bucket.clone());
            writes.spawn(async move {
                let outcome = condition::update(poster.kube(), &bucket, &object, &notice).await;
                (object, outcome)
            });
        }
        for _ in 0..pending_requests.len() {
            let Some(one) = pending_requests.pop_front() else { break };
            if !one.needs_exclusive_delivery() || schedule.pause(&one.object) {
                running_requests.spawn(one.execute(context.clone()));
            } else {
                pending_requests.push_back(one);
            }
        }
        metrics.callbacks_pending.set(i64::try_from(schedule.len()).unwrap_or(i64::MAX));
        let wake = schedule.wake().into_iter().chain(notices.wake()).min();
        let wait = wake.map(|at| Duration::from_millis(u64::try_from(at - now).unwrap_or_default()));
        tokio::select! {
            message = messages.next(), if !broken => match message {
                Some(Ok(message)) => {
                    let info = message.info()?;
                    let sequence = info.stream_sequence;
                    *newest = (*newest).max(Some((sequence, info.published.unix_timestamp_nanos())));
                    let object = Name::from(SubjectKind::Transition.tokens_of(&message.subject).unwrap_or(&message.subject));
                    let host = host(&message.payload).unwrap_or_else(|error| {
                        metrics.malformed("transition");
                        warn!(object = &*object, sequence, %error, "a transition can't be read, and is called back to nobody");
                        None
                    });
                    schedule.add(&object, sequence, host);
                }
                ended => {
                    warn!(error = ?ended.and_then(Result::err), "transitions are not followed any more");
                    broken = true;
                }
            },
            entry = entries.next(), if !broken => match entry {
                Ok(entry) => {
                    let now = Timestamp::now().as_millisecond();
                    if entries.apply_entry(&entry, &mut schedule, &mut notices, now) {
                        lease_guard.wait_until_held().await;
                        if let Err(error) = state::delete_key(&bucket, &entry.key).await {
                            warn!(%error, key = entry.key, "what is remembered of nobody can't be forgotten");
                            broken = true;
                        }
                    }
                }
                Err(error) => {
                    warn!(%error, "what is remembered of callbacks is not followed any more");
                    broken = true;
                }
            },
            changed = connects.changed() => {
                changed?;
                broken = true;
            }
            Some(done) = posts.join_next() => {
                let AttemptResult { object, ended, took, change } = done?;
                let now = Timestamp::now().as_millisecond();
                schedule.attempt_ended(&object, ended, took, now, random());
                match change {
                    DeliveryChange::None => {}
                    DeliveryChange::Delivered(counter) => notices.delivered(&object, counter, now),
                    DeliveryChange::Undelivered(mut about) => {
                        about.next_try = about.next_try.and(schedule.next_try(&object));
                        notices.failed(&object, *about, now);
                    }
                }
            }
            Some(done) = writes.join_next() => {
                let (object, outcome) = done?;
                notices.written(&object, outcome, Timestamp::now().as_millisecond());
            }
            Some(request) = requests.next() => {
                pending_requests.extend(PendingRequest::parse(request).filter(|_| pending_requests.len() < MAX_PENDING_REQUESTS));
            }
            Some(done) = running_requests.join_next() => {
                let mut done = done?;
                let object = done.request.object.clone();
                if done.request.needs_exclusive_delivery() {
                    done.answer.waiting = schedule.resume(&object).try_into().unwrap_or(u64::MAX);
                }
                let all = done.answer.dead == 0 && done.answer.waiting == 0;
                if all && done.delivered.is_some() {
                    notices.delivered(&object, done.delivered, Timestamp::now().as_millisecond());
                }
                done.reply(&connection.client).await;
            }
            _ = save.tick() => {
                lease_guard.wait_until_held().await;
                if broken && followed.elapsed() >= RETRY_DELAY {
                    followed = Instant::now();
                    let resumed = async {
                        let end = state::intact_until(&stream, *newest).await?;
                        let messages = follow(&stream, schedule.read() + 1).await?;
                        Ok::<_, async_nats::Error>((end, messages, EntryWatch::read(&bucket).await?))
                    };
                    match resumed.await {
                        Ok((end, ..)) if end < schedule.read() => return Err("the outbox has lost its end".into()),
                        Ok((_, read, seen)) => {
                            (messages, entries) = (read, seen);
                            schedule.rewrite_entries();
                            notices.rewrite_all(Timestamp::now().as_millisecond());
                            broken = false;
                        }
                        Err(error) => warn!(%error, "callbacks can't be followed anew"),
                    }
                }
                let saved = async {
                    state::save(&bucket, &mut schedule).await?;
                    entries.read_again(&bucket).await
                };
                if let Err(error) = saved.await {
                    warn!(%error, "what is remembered of callbacks can't be written, trying again");
                }
                metrics.callbacks_failing.set(i64::try_from(notices.len()).unwrap_or(i64::MAX));
            }
            () = sleep(wait.unwrap_or(SAVE_INTERVAL)), if wait.is_some() => {}
        }
    }
}

/// A stored message; `None`: the stream leader does not have it.
fn if_found(
    read: Result<StreamMessage, RawMessageError>,
) -> Result<Option<StreamMessage>, async_nats::Error> {
    match read {
        Ok(message) => Ok(Some(message)),
        Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Follows the transitions from a sequence on.
async fn follow(stream: &Stream, start_sequence: u64) -> Result<pull::Ordered, async_nats::Error> {
    let consumer = stream.create_consumer(pull::OrderedConfig {
        deliver_policy: DeliverPolicy::ByStartSequence { start_sequence },
        filter_subject: SubjectKind::Transition.all(),
        ..pull::OrderedConfig::default()
    });
    let mut consumer = consumer.await?;
    let pending = consumer.info().await?.num_pending;
    debug!(from = start_sequence, pending, "delivering callbacks");
    Ok(consumer.messages().await?)
}

/// The fields of a transition that tell its endpoint.
#[derive(Deserialize)]
struct Addressed {
    object: AddressedObject,
}

#[derive(Deserialize)]
struct AddressedObject {
    spec: Option<AddressedSpec>,
}

#[derive(Deserialize)]
struct AddressedSpec {
    #[serde(rename = "CallbackURL")]
    callback_url: Option<String>,
}

/// The host of a transition's endpoint; `None`: it has none. An error: the payload is no transition.
fn host(payload: &[u8]) -> Result<Option<Name>, serde_json::Error> {
    // An empty message marks that the subject was purged.
    if payload.is_empty() {
        return Ok(None);
    }
    let addressed: Addressed = serde_json::from_slice(payload)?;
    let url = addressed.object.spec.and_then(|spec| reqwest::Url::parse(&spec.callback_url?).ok());
    Ok(url.and_then(|url| {
        let host = url.host_str()?;
        Some(format!("{host}:{}", url.port_or_known_default().unwrap_or_default()).into())
    }))
}

/// A completed attempt.
struct AttemptResult {
    object: Name,
    ended: AttemptEnd,
    took: Duration,
    change: DeliveryChange,
}

/// The effect of an attempt on the delivery state of its object.
enum DeliveryChange {
    None,
    /// Delivered transition; `None`: the object wants no callbacks any more.
    Delivered(Option<u64>),
    /// `next_try` is set if there will be another attempt; its time is not known yet.
    Undelivered(Box<Undelivered>),
}

/// Attempts one callback.
async fn attempt(context: Arc<DeliveryContext>, stream: Stream, callback: DueCallback) -> AttemptResult {
    let DueCallback { object, sequence, attempts } = callback;
    let read = match stream.direct_get(sequence).await {
        // A replica may lag behind and not have the message yet.
        Err(error) if matches!(error.kind(), DirectGetErrorKind::NotFound) => {
            if_found(stream.get_raw_message(sequence).await)
        }
        read => read.map(Some).map_err(Into::into),
    };
    let (ended, took, change) = match read {
        // Any other subject means that the outbox lost its end and reused the sequence.
        Ok(Some(message)) if SubjectKind::Transition.tokens_of(&message.subject) == Some(&*object) => {
            let sent = message.time.unix_timestamp_nanos();
            let age =
                Timestamp::now().duration_since(Timestamp::from_nanosecond(sent).unwrap_or(Timestamp::MAX));
            let old = age.unsigned_abs() >= GIVE_UP_AGE;
            context.lease_guard.wait_until_held().await;
            try_once(&context, &object, sequence, attempts, old, &message.payload).await
        }
        Ok(_) => {
            context.metrics.callback("expired");
            let object = &*object;
            warn!(object, sequence, "a callback was not delivered before its transition left the outbox");
            (AttemptEnd::Done, Duration::ZERO, DeliveryChange::None)
        }
        Err(error) => {
            debug!(object = &*object, sequence, %error, "a transition can't be read");
            (AttemptEnd::NotAttempted, Duration::ZERO, DeliveryChange::None)
        }
    };
    AttemptResult { object, ended, took, change }
}

async fn try_once(
    context: &DeliveryContext,
    object: &Name,
    sequence: u64,
    attempts: u32,
    old: bool,
    payload: &[u8],
) -> (AttemptEnd, Duration, DeliveryChange) {
    let message = match serde_json::from_slice::<Message>(payload) {
        Ok(message) => message,
        // A transition of another version, whose endpoint is unknown.
        Err(error) => {
            context.metrics.malformed("transition");
            warn!(object = &**object, sequence, %error, "a transition can't be called back");
            return (AttemptEnd::Done, Duration::ZERO, DeliveryChange::None);
        }
    };
    // The user may have corrected the endpoint meanwhile.
    let corrected = if attempts > 0 { context.current_endpoint(&message).await } else { None };
    let endpoint = corrected.unwrap_or_else(|| Endpoint::of_message(&message));
    let started = Instant::now();
    let answer = context.poster.post(&message, &endpoint).await;
    let took = started.elapsed();
    let attempts = attempts.saturating_add(1);
    let (what, error, after) = match answer {
        PostOutcome::Accepted => {
            context.metrics.callback("delivered");
            record_attempt(context, object, &message, took, DeliveryEnd::Delivered).await;
            return (AttemptEnd::Done, took, DeliveryChange::Delivered(Some(message.counter)));
        }
        PostOutcome::NoEndpoint => return (AttemptEnd::Done, took, DeliveryChange::Delivered(None)),
        PostOutcome::Rejected { what, error } => (what, error, None),
        PostOutcome::Failed { error, .. } if old && attempts >= MIN_ATTEMPTS => ("given-up", error, None),
        PostOutcome::Failed { error, after } => ("failed", error, Some(after)),
    };
    let mut about = about(&message, sequence, attempts, error.clone());
    if attempts == 1 {
        about.delivered = last_delivered(context, object).await;
    }
    if let Some(after) = after {
        context.metrics.callback(what);
        debug!(object = &**object, sequence, error, "a callback failed and is tried again");
        record_attempt(context, object, &message, took, DeliveryEnd::Failed { error: error.clone() }).await;
        about.next_try = Some(0);
        return (AttemptEnd::Retry { error, after }, took, DeliveryChange::Undelivered(about.into()));
    }
    if let Err(error) = dead_letter(context, payload, attempts, &error).await {
        warn!(object = &**object, sequence, %error, "a callback that is given up can't be kept yet");
        return (AttemptEnd::NotAttempted, took, DeliveryChange::None);
    }
    context.metrics.callback(what);
    warn!(object = &**object, sequence, error, "a callback is given up");
    record_attempt(context, object, &message, took, DeliveryEnd::GivenUp { error }).await;
    (AttemptEnd::Done, took, DeliveryChange::Undelivered(about.into()))
}

fn about(message: &Message, sequence: u64, attempts: u32, error: String) -> Undelivered {
    Undelivered {
        kind: message.kind.clone(),
        namespace: message.namespace.clone(),
        name: message.name.clone(),
        uid: message.uid.clone(),
        generation: message.generation(),
        counter: message.counter,
        sequence,
        delivered: None,
        attempts,
        next_try: None,
        error,
        since: Timestamp::now().as_millisecond(),
    }
}

/// Stores a callback that is given up as a dead letter. It returns when the message is stored.
async fn dead_letter(
    context: &DeliveryContext,
    payload: &[u8],
    attempts: u32,
    error: &str,
) -> Result<(), async_nats::Error> {
    let letter = DeadLetter {
        transition: decode(payload)?,
        attempts,
        at: format!("{:.3}", Timestamp::now()),
        error: error.to_owned(),
    };
    let transition = &letter.transition;
    let subject =
        Subject::dead_letter(&transition.kind, transition.namespace.as_deref(), &transition.name).to_string();
    let message = PublishMessage::build().payload(encode(&letter)?.into()).message_id(&transition.id);
    let published = context.connection.jetstream.send_publish(subject.clone(), message).await;
    let stored = match published {
        Ok(acknowledged) => acknowledged.await.map(drop),
        Err(error) => Err(error),
    };
    match stored {
        Err(error) if error.kind() == PublishErrorKind::MaxPayloadExceeded => {
            error!(subject, "a callback that is given up is too large to be kept");
            Ok(())
        }
        stored => Ok(stored?),
    }
}

/// The last delivered transition of the object, if the history has it.
async fn last_delivered(context: &DeliveryContext, object: &Name) -> Option<u64> {
    let stream = context.connection.jetstream.get_stream_no_info(subject::HISTORY).await.ok()?;
    let last = stream.get_last_raw_message_by_subject(&SubjectKind::Delivery.with_tokens(object)).await;
    let message = match last {
        Ok(message) => message,
        Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => return None,
        Err(error) => {
            debug!(object = &**object, %error, "the history can't be read");
            return None;
        }
    };
    let last: Delivery = decode(&message.payload).ok()?;
    (last.end == DeliveryEnd::Delivered).then_some(last.counter)
}

/// Adds an attempt to the history, best effort.
async fn record_attempt(
    context: &DeliveryContext,
    object: &Name,
    message: &Message,
    took: Duration,
    end: DeliveryEnd,
) {
    if let Err(error) = publish_delivery(&context.connection.client, object, message, took, end).await {
        debug!(object = &**object, %error, "the history lacks a callback");
    }
}

/// Publishes an attempt to the history without waiting for storage: it is for people only.
async fn publish_delivery(
    client: &async_nats::Client,
    object: &str,
    message: &Message,
    took: Duration,
    end: DeliveryEnd,
) -> Result<(), async_nats::Error> {
    let delivery = Delivery {
        transition: message.id.clone(),
        counter: message.counter,
        phase: message.phase,
        at: format!("{:.3}", Timestamp::now()),
        took_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
        end,
    };
    client.publish(SubjectKind::Delivery.with_tokens(object), encode(&delivery)?.into()).await?;
    Ok(())
}

#[cfg(test)]
mod tests;
