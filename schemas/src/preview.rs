//! Previews of a driver's changes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::{DeviceInfo, Failure, Note, Rejection};

/// A driver's response to a [`Command`](crate::Command) on [`Subject::Preview`](crate::Subject::Preview): the changes
/// that it would make in the target's current state. Nothing is changed.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Preview {
    /// The messages that it would send, in its protocol's own form (netconf: the content of `<config>`), in
    /// order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub edits: Vec<String>,
    /// Items that it would reject.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rejected: Vec<Rejection>,
    /// Messages for the administrator.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<Note>,
    /// Why there is no preview.
    pub failure: Option<Failure>,
    /// Data that the device gave about itself.
    pub device: Option<DeviceInfo>,
}
