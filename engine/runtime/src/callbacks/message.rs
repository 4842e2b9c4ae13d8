//! The posted message and its endpoint. Pure.

use std::borrow::Cow;

use bytes::Bytes;
use eno_core::Name;
use eno_nbi_crds::{CallbackFormat, CallbackSecret};
use eno_schemas::{LeftOut, Phase};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// The fields of a transition that subscribers get. The object stays in its original text.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Message {
    /// Identifier, the same for each attempt.
    pub id: String,
    /// Uid of the object.
    pub uid: String,
    /// The transition counter of the object.
    pub counter: u64,
    /// Kind of the object.
    pub kind: String,
    /// Its namespace; `None`: it is cluster-scoped.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
    /// Its phase after the transition.
    pub phase: Phase,
    /// Time of the transition, RFC 3339.
    pub at: String,
    /// The object in its original text.
    pub object: Box<RawValue>,
    /// What is left out.
    #[serde(default)]
    pub left_out: Option<LeftOut>,
    /// A test message on request, which is no transition.
    #[serde(skip)]
    pub test: bool,
}

#[derive(Deserialize)]
struct Object {
    #[serde(default)]
    metadata: Metadata,
    #[serde(default)]
    spec: Endpoint,
}

#[derive(Default, Deserialize)]
struct Metadata {
    generation: Option<i64>,
}

/// The endpoint of an object's callbacks, from its spec.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Endpoint {
    #[serde(rename = "CallbackURL")]
    pub url: Option<String>,
    #[serde(rename = "CallbackSecret")]
    pub secret: Option<CallbackSecret>,
    #[serde(rename = "CallbackFormat")]
    pub format: Option<CallbackFormat>,
}

impl Endpoint {
    /// The endpoint in the object at the time of the transition.
    pub fn of_message(message: &Message) -> Self {
        serde_json::from_str::<Object>(message.object.get()).map(|object| object.spec).unwrap_or_default()
    }

    /// The endpoint in a custom resource.
    pub fn of_object(object: &Value) -> Self {
        Object::deserialize(object).map(|object| object.spec).unwrap_or_default()
    }
}

impl Message {
    /// The object's generation at the transition.
    pub fn generation(&self) -> Option<i64> {
        serde_json::from_str::<Object>(self.object.get()).ok()?.metadata.generation
    }

    /// The body in a format, with its media type.
    pub fn body(&self, format: CallbackFormat) -> (Bytes, &'static str) {
        match format {
            CallbackFormat::Object => (self.content().into_owned().into(), "application/json"),
            CallbackFormat::CloudEvents => (self.event().into(), "application/cloudevents+json"),
        }
    }

    /// Corrects how many transitions are left out: the subscriber got the one with this counter.
    pub fn told(&mut self, counter: u64) {
        if let Some(left_out) = &mut self.left_out {
            let missing = self.counter.saturating_sub(counter).saturating_sub(1);
            left_out.transitions =
                left_out.transitions.map(|count| count.min(missing)).filter(|count| *count > 0);
            if *left_out == LeftOut::default() {
                self.left_out = None;
            }
        }
    }

    /// The object's text, with the field `leftOut` if something is left out.
    fn content(&self) -> Cow<'_, str> {
        let object = self.object.get();
        let left_out = self.left_out.as_ref().and_then(|left_out| serde_json::to_string(left_out).ok());
        match (left_out, object.strip_suffix('}')) {
            (Some(left_out), Some(fields)) => format!("{fields},\"leftOut\":{left_out}}}").into(),
            _ => object.into(),
        }
    }

    /// A CloudEvent 1.0 in JSON, with the extension `sequence`.
    fn event(&self) -> String {
        let endpoint = match &self.namespace {
            Some(namespace) => format!("{namespace}/{}", self.name),
            None => self.name.clone(),
        };
        let attributes = json!({
            "specversion": "1.0",
            "id": self.id,
            "source": format!("/eno/{}/{endpoint}", self.kind),
            "type": if self.test { "io.k8s.eno.test" } else { "io.k8s.eno.transition" },
            "subject": endpoint,
            "time": self.at,
            "datacontenttype": "application/json",
            // Zero-padded, so that it sorts as text.
            "sequence": format!("{:020}", self.counter),
        });
        // The object's text is embedded unchanged.
        let mut text = attributes.to_string();
        text.pop();
        text + ",\"data\":" + &self.content() + "}"
    }
}

/// The fields of a transition that tell its endpoint.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Addressed {
    object: AddressedObject,
    #[serde(default)]
    left_out: LeftOut,
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

/// Where a transition goes.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Address {
    /// The host of its endpoint; `None`: it has none.
    pub host: Option<Name>,
    /// It takes the place of the transition before.
    pub is_joined: bool,
}

/// The address of a transition. An error: the payload is no transition.
pub fn address(payload: &[u8]) -> Result<Address, serde_json::Error> {
    // An empty message marks that the subject was purged.
    if payload.is_empty() {
        return Ok(Address::default());
    }
    let Addressed { object, left_out } = serde_json::from_slice(payload)?;
    let url = object.spec.and_then(|spec| reqwest::Url::parse(&spec.callback_url?).ok());
    let host = url.and_then(|url| {
        let host = url.host_str()?;
        Some(format!("{host}:{}", url.port_or_known_default().unwrap_or_default()).into())
    });
    Ok(Address { host, is_joined: left_out.transitions.is_some() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(namespace: Option<&str>) -> Message {
        serde_json::from_value(json!({
            "id": "u-2", "uid": "u", "counter": 2, "kind": "L2ServiceAttachment", "namespace": namespace,
            "name": "a", "phase": "ready", "at": "2026-01-02T03:04:05.000Z",
            "object": { "metadata": { "generation": 7 }, "spec": {
                "CallbackURL": "http://x/", "CallbackSecret": { "Name": "s" }, "CallbackFormat": "CloudEvents",
            } },
        }))
        .unwrap()
    }

    #[test]
    fn cloud_event_has_required_attributes_and_object() {
        let message = message(Some("n"));
        let (body, media_type) = message.body(CallbackFormat::CloudEvents);
        assert_eq!(media_type, "application/cloudevents+json");
        let event: Value = serde_json::from_slice(&body).unwrap();
        for (name, value) in [
            ("specversion", "1.0"),
            ("id", "u-2"),
            ("source", "/eno/L2ServiceAttachment/n/a"),
            ("type", "io.k8s.eno.transition"),
            ("subject", "n/a"),
            ("time", "2026-01-02T03:04:05.000Z"),
            ("datacontenttype", "application/json"),
            ("sequence", "00000000000000000002"),
        ] {
            assert_eq!(event[name], value, "{name}");
        }
        assert_eq!(event["data"]["spec"]["CallbackURL"], "http://x/");
        let (plain, media_type) = message.body(CallbackFormat::Object);
        assert_eq!((&plain[..], media_type), (message.object.get().as_bytes(), "application/json"));
    }

    #[test]
    fn body_says_what_is_left_out() {
        let mut message = message(None);
        let annotations = vec!["big".to_owned()];
        message.counter = 9;
        message.left_out =
            Some(LeftOut { transitions: Some(5), annotations: annotations.clone(), ..LeftOut::default() });
        let plain: Value = serde_json::from_slice(&message.body(CallbackFormat::Object).0).unwrap();
        assert_eq!(plain["leftOut"], json!({ "transitions": 5, "annotations": annotations }));
        assert_eq!(plain["metadata"]["generation"], 7);
        let event: Value = serde_json::from_slice(&message.body(CallbackFormat::CloudEvents).0).unwrap();
        assert_eq!((&event["data"], &event["sequence"]), (&plain, &json!("00000000000000000009")));
        // The callback of the sixth was taken, so two are missing.
        message.told(6);
        assert_eq!(message.left_out.as_ref().unwrap().transitions, Some(2));
        message.told(8);
        assert_eq!(message.left_out, Some(LeftOut { annotations, ..LeftOut::default() }));
    }

    #[test]
    fn message_generation_comes_from_object_metadata() {
        assert_eq!(message(None).generation(), Some(7));
    }

    #[test]
    fn endpoint_is_read_from_object_spec() {
        let endpoint = Endpoint::of_message(&message(None));
        assert_eq!(
            (endpoint.url.as_deref(), endpoint.format),
            (Some("http://x/"), Some(CallbackFormat::CloudEvents))
        );
        assert_eq!(endpoint.secret.unwrap().name, "s");
        assert!(Endpoint::of_object(&json!({ "spec": {} })).url.is_none());
        assert!(Endpoint::of_object(&json!({})).url.is_none());
    }
}
