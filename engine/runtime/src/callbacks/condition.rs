//! The condition `CallbackDelivered`. It has a field manager of its own, since the core's status knows nothing of
//! callbacks.

use async_nats::jetstream::kv::Store;
use bytes::Bytes;
use eno_core::{Key, Kind, Name};
use eno_nbi_crds::CALLBACK_DELIVERED;
use jiff::Timestamp;
use kube::Client;
use kube::Resource as _;
use kube::api::{DynamicObject, Patch, PatchParams, Request};
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use tracing::warn;

use super::notices::{Notice, Undelivered, WriteOutcome};
use super::state::{UNDELIVERED_PREFIX, delete_key};
use crate::api;

const MANAGER: &str = "eno-callbacks";
/// Maximum bytes of a condition's message.
const MAX_MESSAGE_LEN: usize = 2000;

/// Writes the condition, and records in the bucket that the object has it. The record is written before a failure and
/// deleted after a recovery.
pub async fn update(client: &Client, bucket: &Store, object: &Name, notice: &Notice) -> WriteOutcome {
    let entry = format!("{UNDELIVERED_PREFIX}{object}");
    let saved = async {
        if notice.recovered.is_none() {
            bucket.put(&entry, Bytes::from(serde_json::to_vec(&notice.about)?)).await?;
        }
        Ok::<_, async_nats::Error>(())
    };
    if let Err(error) = saved.await {
        warn!(object = &**object, %error, "the state of callbacks can't be stored");
        return WriteOutcome::Retry;
    }
    let outcome = write(client, notice).await;
    let finished =
        outcome == WriteOutcome::Gone || (outcome == WriteOutcome::Done && notice.recovered.is_some());
    if finished && let Err(error) = delete_key(bucket, &entry).await {
        warn!(object = &**object, %error, "the state of callbacks can't be removed");
        return WriteOutcome::Retry;
    }
    outcome
}

/// The object of a callback.
pub fn key(about: &Undelivered) -> Option<Key> {
    let kind = Kind::of_name(&about.kind)?;
    let name = Name::from(about.name.as_str());
    Some(match about.namespace.as_deref() {
        Some(namespace) => Key::namespaced(kind, &namespace.into(), &name),
        None => Key::cluster(kind, &name),
    })
}

async fn write(client: &Client, notice: &Notice) -> WriteOutcome {
    let Some(key) = key(&notice.about) else { return WriteOutcome::Gone };
    let mut body = api::apply_body(&key, &notice.about.uid);
    body["status"] = json!({ "conditions": [condition(notice)] });
    let path = DynamicObject::url_path(&api::resource(key.kind), key.namespace());
    let params = PatchParams::apply(MANAGER).force();
    let request = Request::new(path).patch_subresource("status", &key.name, &params, &Patch::Apply(body));
    let Ok(request) = request else { return WriteOutcome::Gone };
    match client.request::<IgnoredAny>(request).await {
        Ok(_) => WriteOutcome::Done,
        Err(kube::Error::Api(status)) if status.code == 404 || api::is_uid_mismatch(&status) => {
            WriteOutcome::Gone
        }
        Err(error) => {
            warn!(object = %key, %error, "the condition {CALLBACK_DELIVERED} can't be written");
            WriteOutcome::Retry
        }
    }
}

/// The reason of the condition.
#[derive(Clone, Copy, strum::Display)]
enum Reason {
    Delivered,
    NotWanted,
    Retrying,
    GivenUp,
}

fn condition(notice: &Notice) -> Value {
    let Undelivered { generation, counter, delivered, attempts, next_try, shown, since, .. } = &notice.about;
    let (status, reason, message, at) = match notice.recovered {
        Some((Some(counter), at)) => {
            ("True", Reason::Delivered, format!("callback {counter} was delivered"), at)
        }
        Some((None, at)) => {
            ("True", Reason::NotWanted, "the object has no CallbackURL any more".to_owned(), at)
        }
        None => {
            let last = match delivered {
                Some(last) => format!("; the last one delivered is {last}"),
                None => String::new(),
            };
            let reason = if next_try.is_some() { Reason::Retrying } else { Reason::GivenUp };
            let end = match (shown, next_try) {
                (_, None) => "it is given up".to_owned(),
                (Some(_), Some(at)) => format!("the next is at {}", time(*at)),
                // The times of attempts would tell how long the one before took.
                (None, Some(_)) => "it is tried again".to_owned(),
            };
            let failed = match shown {
                Some(error) => {
                    let error = &error[..error.floor_char_boundary(MAX_MESSAGE_LEN)];
                    format!("at try {attempts}: {error}")
                }
                None => "(admins see why: eno callbacks list)".to_owned(),
            };
            ("False", reason, format!("callback {counter} was not taken {failed}; {end}{last}"), *since)
        }
    };
    let mut condition = json!({
        "type": CALLBACK_DELIVERED,
        "status": status,
        "reason": reason.to_string(),
        "message": message,
        "lastTransitionTime": time(at),
    });
    if let Some(generation) = generation {
        condition["observedGeneration"] = (*generation).into();
    }
    condition
}

/// Unix milliseconds as RFC 3339 in seconds.
pub fn time(milliseconds: i64) -> String {
    format!("{:.0}", Timestamp::from_millisecond(milliseconds).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn condition_states_retry_give_up_and_recovery() {
        let about = Undelivered {
            kind: "L2ServiceAttachment".into(),
            namespace: Some("n".into()),
            name: "a".into(),
            uid: "u".into(),
            generation: Some(2),
            counter: 3,
            sequence: 30,
            delivered: Some(2),
            attempts: 4,
            next_try: Some(1_767_323_105_000),
            error: "answered 503 Service Unavailable".into(),
            shown: Some("answered 503 Service Unavailable".into()),
            since: 1_767_323_000_000,
        };
        assert_eq!(key(&about).unwrap().to_string(), "L2ServiceAttachment/n/a");
        let failing = Notice { about: about.clone(), recovered: None };
        assert_eq!(
            condition(&failing),
            json!({
                "type": "CallbackDelivered", "status": "False", "reason": "Retrying",
                "message": "callback 3 was not taken at try 4: answered 503 Service Unavailable; the next is at \
                            2026-01-02T03:05:05Z; the last one delivered is 2",
                "lastTransitionTime": "2026-01-02T03:03:20Z",
                "observedGeneration": 2,
            })
        );
        let given_up = Undelivered { next_try: None, delivered: None, ..about.clone() };
        let given_up = condition(&Notice { about: given_up, recovered: None });
        assert_eq!(
            (&given_up["reason"], &given_up["message"]),
            (
                &json!("GivenUp"),
                &json!("callback 3 was not taken at try 4: answered 503 Service Unavailable; it is given up")
            )
        );
        // Without a text for the writers, nothing depends on what the attempts met.
        let hidden = |attempts, next_try, error: &str| {
            let hidden =
                Undelivered { shown: None, attempts, next_try, error: error.into(), ..about.clone() };
            condition(&Notice { about: hidden, recovered: None })["message"].clone()
        };
        let tried = "callback 3 was not taken (admins see why: eno callbacks list); it is tried again; the last \
                     one delivered is 2";
        assert_eq!(hidden(4, Some(1_767_323_105_000), "connection refused"), tried);
        assert_eq!(hidden(9, Some(1_767_323_205_000), "answered 404 Not Found"), tried);
        let recovered = condition(&Notice { about, recovered: Some((Some(5), 1_767_323_105_000)) });
        assert_eq!((&recovered["status"], &recovered["reason"]), (&json!("True"), &json!("Delivered")));
        assert_eq!(recovered["message"], "callback 5 was delivered");
    }
}
