//! Transitions in the outbox.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::Phase;

/// One phase change, kept in `ENO_TRANSITIONS` before it is visible in the object's status.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Transition {
    /// `<uid>-<counter>`: the same transition always has the same id.
    pub id: String,
    /// `metadata.uid`.
    pub uid: String,
    /// Counts the transitions of the object, from 1.
    pub counter: u64,
    /// The kind, as in the manifest.
    pub kind: String,
    /// The namespace; absent for cluster-scoped kinds.
    pub namespace: Option<String>,
    /// The name.
    pub name: String,
    /// The phase before; absent: there was none.
    pub previous: Option<Phase>,
    /// The phase now.
    pub phase: Phase,
    /// RFC 3339.
    pub at: String,
    /// The whole object: apiVersion, kind, metadata without managedFields, spec, status.
    pub object: serde_json::Value,
    /// What is left out; absent: nothing.
    pub left_out: Option<LeftOut>,
}

/// What a transition and its callback leave out.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LeftOut {
    /// Number of transitions directly before this one that it takes the place of. The object changed too often.
    pub transitions: Option<u64>,
    /// Names of annotations that the object has besides. The first 64 are named.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub annotations: Vec<String>,
    /// Number of such annotations that are not named.
    pub more_annotations: Option<u64>,
    /// Fields of the object without which it is small enough for NATS, such as `metadata.labels`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<String>,
}
