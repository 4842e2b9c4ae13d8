//! One attempt to post a callback: reads the transition, posts it, and records the outcome.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_nats::jetstream::context::PublishErrorKind;
use async_nats::jetstream::message::{PublishMessage, StreamMessage};
use async_nats::jetstream::stream::{DirectGetErrorKind, LastRawMessageErrorKind, RawMessageError, Stream};
use eno_core::Name;
use eno_sbi::nats::{Content, last_stored};
use eno_schemas::{DeadLetter, Delivery, DeliveryEnd, Subject, SubjectKind, decode, encode, subject};
use jiff::Timestamp;
use tracing::{debug, error, warn};

use super::DeliveryContext;
use super::message::{Endpoint, Message};
use super::notices::Undelivered;
use super::post::{PostOutcome, Problem};
use super::schedule::{AttemptEnd, DueCallback};
use crate::status::convert::transition_id;

/// A failed callback is given up after this number of attempts if its transition is older than [`GIVE_UP_AGE`].
const MIN_ATTEMPTS: u32 = 10;
const GIVE_UP_AGE: Duration = Duration::from_hours(3 * 24);

/// A completed attempt.
pub struct AttemptResult {
    /// The object.
    pub object: Name,
    /// What is left to do.
    pub ended: AttemptEnd,
    /// How long the endpoint took.
    pub took: Duration,
    /// What the attempt tells about the object's callbacks.
    pub change: DeliveryChange,
}

/// The effect of an attempt on the delivery state of its object.
pub enum DeliveryChange {
    /// None.
    None,
    /// Delivered transition; `None`: the object wants no callbacks any more.
    Delivered(Option<u64>),
    /// `next_try` is set if there will be another attempt; its time is not known yet.
    Undelivered(Box<Undelivered>),
}

/// Attempts one callback.
pub async fn attempt(context: Arc<DeliveryContext>, stream: Stream, callback: DueCallback) -> AttemptResult {
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

/// Posts a transition with this payload. `old`: it is old enough to be given up.
pub async fn try_once(
    context: &DeliveryContext,
    object: &Name,
    sequence: u64,
    attempts: u32,
    old: bool,
    payload: &[u8],
) -> (AttemptEnd, Duration, DeliveryChange) {
    let mut message = match serde_json::from_slice::<Message>(payload) {
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
    if message.left_out.as_ref().is_some_and(|left_out| left_out.transitions.is_some())
        && let Some(counter) = last_delivered(context, object, &message.uid).await
    {
        message.told(counter);
    }
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
    let Problem { text: error, shown } = error;
    let mut about = about(&message, sequence, attempts, error.clone());
    about.shown = shown;
    about.since = about.since.saturating_sub(i64::try_from(took.as_millis()).unwrap_or(i64::MAX));
    if attempts == 1 {
        about.delivered = last_delivered(context, object, &message.uid).await;
    }
    if let Some(after) = after {
        context.metrics.callback(what);
        debug!(object = &**object, sequence, error, "a callback failed and is tried again");
        record_attempt(context, object, &message, took, DeliveryEnd::Failed { error: error.clone().into() })
            .await;
        about.next_try = Some(0);
        return (AttemptEnd::Retry { error, after }, took, DeliveryChange::Undelivered(about.into()));
    }
    if let Err(error) = dead_letter(context, payload, attempts, &error).await {
        warn!(object = &**object, sequence, %error, "a callback that is given up can't be kept yet");
        return (AttemptEnd::NotAttempted, took, DeliveryChange::None);
    }
    context.metrics.callback(what);
    warn!(object = &**object, sequence, error, "a callback is given up");
    record_attempt(context, object, &message, took, DeliveryEnd::GivenUp { error: error.into() }).await;
    (AttemptEnd::Done, took, DeliveryChange::Undelivered(about.into()))
}

/// The record of a failed attempt.
pub fn about(message: &Message, sequence: u64, attempts: u32, error: String) -> Undelivered {
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
        shown: None,
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
        error: error.into(),
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

/// A stored message; `None`: the stream leader does not have it.
pub fn if_found(
    read: Result<StreamMessage, RawMessageError>,
) -> Result<Option<StreamMessage>, async_nats::Error> {
    match read {
        Ok(message) => Ok(Some(message)),
        Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The last delivered transition of the object of this uid, if the history has it.
async fn last_delivered(context: &DeliveryContext, object: &Name, uid: &str) -> Option<u64> {
    let of = SubjectKind::Delivery.with_tokens(object);
    let last = last_stored(&context.connection.jetstream, subject::HISTORY, &of).await;
    let last = last.inspect_err(|error| debug!(object = &**object, %error, "the history can't be read"));
    let Content::Payload(payload) = last.ok()??.content else { return None };
    let last: Delivery = decode(&payload).ok()?;
    let is_same = last.transition == transition_id(uid, last.counter);
    (is_same && last.end == DeliveryEnd::Delivered).then_some(last.counter)
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
pub async fn publish_delivery(
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
