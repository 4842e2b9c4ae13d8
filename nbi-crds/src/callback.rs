//! Signing and format of callbacks, shared by all kinds.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema;

/// The key that signs callbacks, as Standard Webhooks defines it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "PascalCase")]
pub struct CallbackSecret {
    /// The Secret. Each value of its data is a key, whsec_… (HMAC-SHA256) or whsk_… (Ed25519), and all of them sign:
    /// two are there while one takes the other's place. The operator may read Secrets called eno-callback; for others
    /// it needs a Role.
    #[schemars(schema_with = "schema::name")]
    pub name: String,
}

/// The body of the POST to CallbackURL: the object (Object), or a CloudEvent 1.0 in structured mode with the object as its
/// data (CloudEvents); absent: Object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum CallbackFormat {
    /// The object.
    #[default]
    Object,
    /// A CloudEvent 1.0 in structured mode, whose data is the object.
    CloudEvents,
}
