//! What a driver would do.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{DeviceInfo, Failure, Note, Rejection};

/// A driver's answer to a [`Command`](crate::Command) that is requested on [`subject::preview`](crate::subject::preview):
/// what it would do about it as the target is now. Nothing is changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Preview {
    /// What it would send, in its protocol's own form (netconf: the content of `<config>`), in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub edits: Vec<String>,
    /// Items that it would leave out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rejected: Vec<Rejection>,
    /// What the admin should know.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<Note>,
    /// Why it can't tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
    /// What the device said of itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<DeviceInfo>,
}
