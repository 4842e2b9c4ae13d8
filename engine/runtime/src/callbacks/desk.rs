//! Does what people ask about callbacks.

use std::sync::Arc;
use std::time::Instant;

use async_nats::Subject;
use eno_core::{Key, Name};
use eno_schemas::{CallbackAction, CallbackAnswer, CallbackRequest, DeliveryEnd, decode, encode, subject};
use jiff::Timestamp;
use reqwest::Url;
use serde_json::json;
use tracing::{debug, warn};

use super::look::letters;
use super::message::{Message, Place};
use super::post::Answer;
use super::{PREFIX, Tools, remember};
use crate::{api, status};

/// What somebody asks.
#[derive(Debug)]
pub struct Asked {
    /// What.
    pub request: CallbackRequest,
    /// The object, as in the subject of its transitions.
    pub object: Name,
    reply: Option<Subject>,
}

/// What was done about it.
#[derive(Debug)]
pub struct Finished {
    /// What was asked.
    pub asked: Asked,
    /// What came of it.
    pub answer: CallbackAnswer,
    /// The last transition that was delivered.
    pub delivered: Option<u64>,
}

impl Asked {
    /// Reads a request; one that breaks its schema is left unanswered.
    pub fn read(message: async_nats::Message) -> Option<Self> {
        let request: CallbackRequest = match decode(&message.payload) {
            Ok(request) => request,
            Err(error) => {
                warn!(%error, "a request about callbacks can't be read");
                return None;
            }
        };
        let whole = subject::transition(&request.kind, request.namespace.as_deref(), &request.name);
        let object = Name::from(whole.strip_prefix(PREFIX).unwrap_or(&whole));
        Some(Self { request, object, reply: message.reply })
    }

    /// Nothing else may be posted for the object meanwhile.
    pub fn needs_the_line(&self) -> bool {
        self.request.action == CallbackAction::Retry
    }

    fn key(&self) -> Option<Key> {
        let kind = api::kind(&self.request.kind)?;
        let name = Name::from(self.request.name.as_str());
        Some(match self.request.namespace.as_deref() {
            Some(namespace) => Key::namespaced(kind, &namespace.into(), &name),
            None => Key::cluster(kind, &name),
        })
    }

    /// Does it.
    pub async fn act(self, tools: Arc<Tools>) -> Finished {
        let mut delivered = None;
        let answer = match self.request.action {
            CallbackAction::Retry => retry(&tools, &self, &mut delivered).await,
            CallbackAction::TestEndpoint | CallbackAction::TestMessage => test(&tools, &self).await,
        };
        Finished { asked: self, answer, delivered }
    }
}

impl Finished {
    /// Answers the one who asked.
    pub async fn reply(self, client: &async_nats::Client) {
        let Some(reply) = self.asked.reply else { return };
        let sent = async {
            client.publish(reply, encode(&self.answer)?.into()).await?;
            Ok::<_, async_nats::Error>(())
        };
        if let Err(error) = sent.await {
            debug!(%error, "a request about callbacks is not answered");
        }
    }
}

/// Posts the dead letters of an object, the oldest first, up to one that is not taken.
async fn retry(tools: &Tools, asked: &Asked, delivered: &mut Option<u64>) -> CallbackAnswer {
    let CallbackRequest { kind, namespace, name, .. } = &asked.request;
    let mut answer = CallbackAnswer::default();
    let filter = subject::dead_letter(kind, namespace.as_deref(), name);
    let letters = match letters(&tools.connection, &filter).await {
        Ok(letters) => letters,
        Err(error) => return CallbackAnswer { error: Some(error.to_string()), ..answer },
    };
    answer.dead = letters.len().try_into().unwrap_or(u64::MAX);
    for (sequence, letter) in letters {
        let posted = async {
            let payload = serde_json::to_vec(&letter.transition)?;
            let message: Message = serde_json::from_slice(&payload)?;
            let place = tools.place_now(&message).await.unwrap_or_else(|| Place::of(&message));
            let began = Instant::now();
            let posted = tools.poster.post(&message, &place).await;
            if posted == Answer::Taken {
                let end = DeliveryEnd::Delivered;
                remember(&tools.connection.client, &asked.object, &message, began.elapsed(), end).await?;
                let stream = tools.connection.jetstream.get_stream(subject::DEAD_LETTERS).await?;
                stream.delete_message(sequence).await?;
            }
            Ok::<_, async_nats::Error>(posted)
        };
        let error = match posted.await {
            Ok(Answer::Taken) => {
                tools.metrics.callback("delivered");
                *delivered = Some(letter.transition.counter);
                answer.delivered += 1;
                answer.dead -= 1;
                continue;
            }
            Ok(Answer::Nowhere) => "the object has no CallbackURL".to_owned(),
            Ok(Answer::Refused { error, .. } | Answer::Failed { error, .. }) => error,
            Err(error) => error.to_string(),
        };
        answer.error = Some(error);
        break;
    }
    answer
}

/// Tests the endpoint of an object, or posts the object there as it is.
async fn test(tools: &Tools, asked: &Asked) -> CallbackAnswer {
    let not = |error: &str| CallbackAnswer { error: Some(error.to_owned()), ..CallbackAnswer::default() };
    let Some(key) = asked.key() else { return not("there is no such kind") };
    let Some(object) = tools.poster.object(&key).await else {
        return not("the object does not exist, or the API server does not answer");
    };
    let place = Place::of_object(&object.data);
    let Some(url) = place.url.as_deref().and_then(|text| Url::parse(text).ok()) else {
        return not("the object has no CallbackURL");
    };
    let posted = if asked.request.action == CallbackAction::TestEndpoint {
        tools.poster.test_endpoint(&url).await
    } else {
        match message(&key, object) {
            Ok(message) => tools.poster.post(&message, &place).await,
            Err(error) => return not(&error.to_string()),
        }
    };
    match posted {
        Answer::Taken => CallbackAnswer { delivered: 1, ..CallbackAnswer::default() },
        Answer::Nowhere => not("the object has no CallbackURL"),
        Answer::Refused { error, .. } | Answer::Failed { error, .. } => not(&error),
    }
}

/// An object as a message of its own, which no transition has the id of.
fn message(key: &Key, mut object: kube::api::DynamicObject) -> Result<Message, serde_json::Error> {
    object.metadata.managed_fields = None;
    let uid = object.metadata.uid.clone().unwrap_or_default();
    let now = Timestamp::now();
    let told = object.data.get("status").cloned().unwrap_or_default();
    let phase = crate::ingest::status(key.kind, &told).and_then(|status| status.phase);
    let text = json!({
        "id": format!("test-{}", status::transition_id(&uid, now.as_millisecond().unsigned_abs())),
        "uid": uid,
        "counter": told.get("transitions").and_then(serde_json::Value::as_u64).unwrap_or_default(),
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
