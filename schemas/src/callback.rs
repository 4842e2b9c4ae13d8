//! Callbacks that were given up, and what people ask about callbacks.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Transition;

/// A transition that was not delivered and is not tried again by itself, kept in `ENO_DEAD_LETTERS`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeadLetter {
    /// What was not delivered, as it was in the outbox.
    pub transition: Transition,
    /// How often it was tried.
    pub attempts: u32,
    /// When it was given up, RFC 3339.
    pub at: String,
    /// Why the last try failed. The URL is not in it.
    pub error: String,
}

/// What the leading engine is asked on [`crate::subject::CALLBACK_REQUESTS`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CallbackRequest {
    /// What is to be done.
    pub action: CallbackAction,
    /// The object's kind, as in the manifest.
    pub kind: String,
    /// Its namespace; absent for cluster-scoped kinds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
}

/// What is to be done about an object's callbacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CallbackAction {
    /// Deliver its dead letters, then try at once what waits.
    Retry,
    /// GET its CallbackURL, which has to be answered 204 (ETSI GS NFV-SOL 013, 5.9).
    TestEndpoint,
    /// Post the object to its CallbackURL, as a message that is no transition.
    TestMessage,
}

/// What came of a [`CallbackRequest`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CallbackAnswer {
    /// How many messages the endpoint took.
    pub delivered: u64,
    /// How many dead letters are left.
    pub dead: u64,
    /// How many callbacks wait and are tried at once.
    pub waiting: u64,
    /// Why it did not get through.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}
