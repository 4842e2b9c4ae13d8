//! Callbacks, shared by all kinds.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::schema;

/// Where the transitions of an object are posted.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Callbacks {
    /// An http or https URL that gets a POST of this object on every transition of its phase.
    #[serde(default, rename = "CallbackURL")]
    #[schemars(schema_with = "schema::callback_url")]
    pub url: Option<String>,
    /// The key that signs the callbacks: a Secret in the operator's namespace. Absent: they are not signed.
    #[serde(rename = "CallbackSecret")]
    pub secret: Option<CallbackSecret>,
    /// The body of the POST to CallbackURL; absent: Object.
    #[serde(rename = "CallbackFormat")]
    pub format: Option<CallbackFormat>,
}

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
