//! Carries out requests of users about callbacks.

use std::sync::Arc;
use std::time::Instant;

use eno_core::{Key, Kind, Name};
use eno_sbi::nats::{CALLBACKS, answer_subject};
use eno_schemas::{
    CallbackAction, CallbackAnswer, CallbackRequest, DeliveryEnd, ObjectName, Subject, decode, encode,
    subject,
};
use jiff::Timestamp;
use reqwest::Url;
use serde_json::json;
use tracing::{debug, warn};

use super::DeliveryContext;
use super::attempt::publish_delivery;
use super::client::read_dead_letters;
use super::message::{Endpoint, Message};
use super::post::PostOutcome;
use crate::status::convert;

/// A received request.
#[derive(Debug)]
pub struct PendingRequest {
    /// The request.
    pub request: CallbackRequest,
    /// The object, as in the subject of its transitions.
    pub object: Name,
    reply: String,
}

/// A request that was carried out.
#[derive(Debug)]
pub struct FinishedRequest {
    /// The request.
    pub request: PendingRequest,
    /// The response.
    pub answer: CallbackAnswer,
    /// Counter of the last transition that it delivered.
    pub delivered: Option<u64>,
}

impl PendingRequest {
    /// Decodes a request. One that breaks the schema, or that is not for an answer of this part, gets no response.
    pub fn parse(message: &async_nats::Message) -> Option<Self> {
        // A server that delivers a stored message names the subject that it has in its stream.
        let reply = answer_subject(message.reply.as_deref(), CALLBACKS)
            .filter(|_| message.subject.parse() == Ok(Subject::CallbackRequest))?;
        let request: CallbackRequest = match decode(&message.payload) {
            Ok(request) => request,
            Err(error) => {
                warn!(%error, "a request about callbacks can't be read");
                return None;
            }
        };
        let object =
            ObjectName::new(&request.kind, request.namespace.as_deref(), &request.name).to_string().into();
        Some(Self { request, object, reply })
    }

    /// True when no other callback of the object may be posted meanwhile.
    pub fn needs_exclusive_delivery(&self) -> bool {
        self.request.action == CallbackAction::Retry
    }

    fn key(&self) -> Option<Key> {
        let kind = Kind::of_name(&self.request.kind)?;
        let name = Name::from(self.request.name.as_str());
        Some(match self.request.namespace.as_deref() {
            Some(namespace) => Key::namespaced(kind, &namespace.into(), &name),
            None => Key::cluster(kind, &name),
        })
    }

    /// Carries out the request.
    pub async fn execute(self, context: Arc<DeliveryContext>) -> FinishedRequest {
        let mut delivered = None;
        let answer = match self.request.action {
            CallbackAction::Retry => retry(&context, &self, &mut delivered).await,
            CallbackAction::TestEndpoint | CallbackAction::TestMessage => test(&context, &self).await,
        };
        FinishedRequest { request: self, answer, delivered }
    }
}

impl FinishedRequest {
    /// Sends the response.
    pub async fn reply(self, client: &async_nats::Client) {
        let reply = self.request.reply;
        let sent = async {
            client.publish(reply, encode(&self.answer)?.into()).await?;
            Ok::<_, async_nats::Error>(())
        };
        if let Err(error) = sent.await {
            debug!(%error, "a request about callbacks is not answered");
        }
    }
}

/// Posts the dead letters of an object, the oldest first, up to the first failure.
async fn retry(
    context: &DeliveryContext,
    pending: &PendingRequest,
    delivered: &mut Option<u64>,
) -> CallbackAnswer {
    let CallbackRequest { kind, namespace, name, .. } = &pending.request;
    let mut answer = CallbackAnswer::default();
    let filter = Subject::dead_letter(kind, namespace.as_deref(), name).to_string();
    let letters = match read_dead_letters(&context.connection, &filter).await {
        Ok(letters) => letters,
        Err(error) => return CallbackAnswer { error: Some(error.to_string().into()), ..answer },
    };
    answer.dead = letters.len().try_into().unwrap_or(u64::MAX);
    for (sequence, letter) in letters {
        let posted = async {
            let payload = serde_json::to_vec(&letter.transition)?;
            let message: Message = serde_json::from_slice(&payload)?;
            let endpoint =
                context.current_endpoint(&message).await.unwrap_or_else(|| Endpoint::of_message(&message));
            let started = Instant::now();
            let posted = context.poster.post(&message, &endpoint).await;
            if posted == PostOutcome::Accepted {
                let end = DeliveryEnd::Delivered;
                publish_delivery(
                    &context.connection.client,
                    &pending.object,
                    &message,
                    started.elapsed(),
                    end,
                )
                .await?;
                let stream = context.connection.jetstream.get_stream(subject::DEAD_LETTERS).await?;
                stream.delete_message(sequence).await?;
            }
            Ok::<_, async_nats::Error>(posted)
        };
        let error = match posted.await {
            Ok(PostOutcome::Accepted) => {
                context.metrics.callback("delivered");
                *delivered = Some(letter.transition.counter);
                answer.delivered += 1;
                answer.dead -= 1;
                continue;
            }
            Ok(PostOutcome::NoEndpoint) => "the object has no CallbackURL".to_owned(),
            Ok(PostOutcome::Rejected { error, .. } | PostOutcome::Failed { error, .. }) => error.text,
            Err(error) => error.to_string(),
        };
        answer.error = Some(error.into());
        break;
    }
    answer
}

/// Tests the endpoint of an object, or posts the object's current version there.
async fn test(context: &DeliveryContext, pending: &PendingRequest) -> CallbackAnswer {
    let failed = |error: &str| CallbackAnswer { error: Some(error.into()), ..CallbackAnswer::default() };
    let Some(key) = pending.key() else { return failed("there is no such kind") };
    let Some(object) = context.poster.object(&key).await else {
        return failed("the object does not exist, or the API server does not answer");
    };
    let endpoint = Endpoint::of_object(&object.data);
    let Some(url) = endpoint.url.as_deref().and_then(|text| Url::parse(text).ok()) else {
        return failed("the object has no CallbackURL");
    };
    let posted = if pending.request.action == CallbackAction::TestEndpoint {
        context.poster.test_endpoint(&url).await
    } else {
        match message(&key, object) {
            Ok(message) => context.poster.post(&message, &endpoint).await,
            Err(error) => return failed(&error.to_string()),
        }
    };
    match posted {
        PostOutcome::Accepted => CallbackAnswer { delivered: 1, ..CallbackAnswer::default() },
        PostOutcome::NoEndpoint => failed("the object has no CallbackURL"),
        PostOutcome::Rejected { error, .. } | PostOutcome::Failed { error, .. } => failed(&error.text),
    }
}

/// A test message with the object's current version. Its id differs from those of transitions.
fn message(key: &Key, mut object: kube::api::DynamicObject) -> Result<Message, serde_json::Error> {
    object.metadata.managed_fields = None;
    let uid = object.metadata.uid.clone().unwrap_or_default();
    let now = Timestamp::now();
    let status = object.data.get("status").cloned().unwrap_or_default();
    let phase = crate::status::convert::read(key.kind, &status).and_then(|status| status.phase);
    let text = json!({
        "id": format!("test-{}", convert::transition_id(&uid, now.as_millisecond().unsigned_abs())),
        "uid": uid,
        "counter": status.get("transitions").and_then(serde_json::Value::as_u64).unwrap_or_default(),
        "kind": key.kind.as_str(),
        "namespace": key.namespace(),
        "name": &*key.name,
        "phase": phase.unwrap_or(eno_schemas::Phase::Pending),
        "at": format!("{now:.3}"),
        "object": object,
    })
    .to_string();
    let mut message: Message = serde_json::from_str(&text)?;
    message.test = true;
    Ok(message)
}
