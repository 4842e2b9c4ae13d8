//! Transitions in the outbox.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The life of an object as its client sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// Dependencies or targets are not done yet.
    Pending,
    /// Every target that realises it has confirmed it.
    Ready,
    /// It can't be done; the message names the hop.
    Error,
    /// Deleted, and still in use or being cleaned up.
    Terminating,
    /// Verifiably gone.
    Deleted,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pending => "pending",
            Self::Ready => "ready",
            Self::Error => "error",
            Self::Terminating => "terminating",
            Self::Deleted => "deleted",
        })
    }
}

/// One phase change, kept in `ENO_TRANSITIONS` before it is visible in the object's status.
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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The name.
    pub name: String,
    /// The phase before; absent: there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<Phase>,
    /// The phase now.
    pub phase: Phase,
    /// RFC 3339.
    pub at: String,
    /// The whole object: apiVersion, kind, metadata without managedFields, spec, status.
    pub object: serde_json::Value,
}
