//! The phase, the message and the conditions of objects.

use eno_engine::forecast::Key;
use kube::api::DynamicObject;
use serde::Serialize;
use serde_json::Value;

/// An object and its phase.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Row {
    /// `KIND/NAME` or `KIND/NAMESPACE/NAME`.
    pub object: String,
    /// Its phase; `-`: it has none yet.
    pub phase: String,
    /// The message of its status.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The time of the last change of the condition Ready, RFC 3339.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub since: String,
}

/// A condition of a status.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Condition {
    /// Its type.
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// Its reason.
    pub reason: String,
    /// Its message.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Its `lastTransitionTime`.
    pub since: String,
}

/// True for the phases in which everything is done: `configured` is that of PodConfig and PodNetworkConfig.
pub(crate) fn is_settled(phase: &str) -> bool {
    matches!(phase, "ready" | "configured")
}

/// The row of an object.
pub(crate) fn row(key: &Key, object: &DynamicObject) -> Row {
    let status = |field: &str| {
        let value = object.data.pointer(&format!("/status/{field}")).and_then(Value::as_str);
        value.unwrap_or_default().to_owned()
    };
    let ready = conditions(object).into_iter().find(|condition| condition.kind == "Ready");
    let phase = Some(status("phase")).filter(|phase| !phase.is_empty()).unwrap_or_else(|| "-".into());
    let since = ready.map(|ready| ready.since).unwrap_or_default();
    Row { object: key.to_string(), phase, message: status("message"), since }
}

/// The conditions of an object, in the order of its status.
pub(crate) fn conditions(object: &DynamicObject) -> Vec<Condition> {
    let text = |value: &Value, field: &str| value[field].as_str().unwrap_or_default().to_owned();
    let conditions = object.data.pointer("/status/conditions").and_then(Value::as_array);
    let conditions = conditions.into_iter().flatten().map(|condition| Condition {
        kind: text(condition, "type"),
        status: text(condition, "status"),
        reason: text(condition, "reason"),
        message: text(condition, "message"),
        since: text(condition, "lastTransitionTime"),
    });
    conditions.collect()
}
