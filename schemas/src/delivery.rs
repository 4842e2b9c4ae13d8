//! Delivery attempts of callbacks.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Phase, Text};

/// One attempt to post a transition to its CallbackURL, kept in `ENO_HISTORY`. The URL is not in it: it may
/// contain a secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Delivery {
    /// [`Transition::id`](crate::Transition::id), which is the `webhook-id`.
    pub transition: String,
    /// [`Transition::counter`](crate::Transition::counter).
    pub counter: u64,
    /// The posted phase.
    pub phase: Phase,
    /// When the attempt ended, RFC 3339.
    pub at: String,
    /// Duration in milliseconds.
    pub took_ms: u64,
    /// How the attempt ended.
    pub end: DeliveryEnd,
}

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "status", rename_all = "kebab-case")]
pub enum DeliveryEnd {
    /// The endpoint accepted it.
    Delivered,
    /// It failed and is retried.
    Failed {
        /// Why.
        error: Text,
    },
    /// It failed and is not retried.
    GivenUp {
        /// Why.
        error: Text,
    },
}
