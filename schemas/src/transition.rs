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
}
