//! What became of callbacks.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Phase;

/// One try to post a transition to its CallbackURL, kept in `ENO_HISTORY`. The URL is not in it: it may hold a secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Delivery {
    /// [`Transition::id`](crate::Transition::id), which is the `webhook-id`.
    pub transition: String,
    /// [`Transition::counter`](crate::Transition::counter).
    pub counter: u64,
    /// The phase that was told.
    pub phase: Phase,
    /// When it ended, RFC 3339.
    pub at: String,
    /// Milliseconds.
    pub took_ms: u64,
    /// How it ended.
    pub end: DeliveryEnd,
}

/// How a try ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "status", rename_all = "kebab-case")]
pub enum DeliveryEnd {
    /// The endpoint took it.
    Delivered,
    /// It is tried again.
    Failed {
        /// Why.
        error: String,
    },
    /// It is not tried again.
    GivenUp {
        /// Why.
        error: String,
    },
}
