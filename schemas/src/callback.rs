//! Dead letters of callbacks, and requests about callbacks.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::{Text, Transition};

/// A transition that was not delivered and is not retried automatically, kept in `ENO_DEAD_LETTERS`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeadLetter {
    /// The transition, as it was in the outbox.
    pub transition: Transition,
    /// Number of delivery attempts.
    pub attempts: u32,
    /// When the delivery was given up, RFC 3339.
    pub at: String,
    /// Why the last attempt failed. The URL is not in it.
    pub error: Text,
}

/// A request to the leading engine on [`Subject::CallbackRequest`](crate::Subject::CallbackRequest).
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CallbackRequest {
    /// The requested action.
    pub action: CallbackAction,
    /// The object's kind, as in the manifest.
    pub kind: String,
    /// Its namespace; absent for cluster-scoped kinds.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
}

/// An action on an object's callbacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CallbackAction {
    /// Deliver its dead letters, then retry pending callbacks at once.
    Retry,
    /// GET its CallbackURL, which has to be answered 204 (ETSI GS NFV-SOL 013, 5.9).
    TestEndpoint,
    /// Post the object to its CallbackURL, as a message that is no transition.
    TestMessage,
}

/// The response to a [`CallbackRequest`].
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CallbackAnswer {
    /// Number of messages that the endpoint accepted.
    pub delivered: u64,
    /// Number of remaining dead letters.
    pub dead: u64,
    /// Number of pending callbacks, which are retried at once.
    pub waiting: u64,
    /// Why the delivery failed.
    pub error: Option<Text>,
}
