//! How a driver makes itself known.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The presence of one driver process, put into the KV bucket `ENO_DRIVERS` under `<driver>.<instance>` and
/// renewed before the bucket's time-to-live ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DriverHello {
    /// The driver's name, the second token of its subjects.
    pub driver: String,
    /// Tells its processes apart.
    pub instance: String,
    /// Its version.
    pub version: String,
    /// What it can realise.
    pub kinds: Vec<PayloadKind>,
    /// What else it can do, in its own words, such as the dialects that it speaks.
    #[serde(default)]
    pub capabilities: Vec<String>,
    /// The only target that it works on; absent: any that is commanded of the driver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
}

/// The kinds of targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PayloadKind {
    /// Switches.
    Fabric,
    /// NetworkAttachmentDefinitions.
    Nad,
    /// Nodes.
    Node,
}
