//! The presence of drivers.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// The presence of one driver process, put into the KV bucket `ENO_DRIVERS` under `<driver>.<instance>` and
/// renewed before the bucket's time-to-live ends.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DriverHello {
    /// The driver's name, the second token of its subjects.
    pub driver: String,
    /// The name of the process among those of the driver.
    pub instance: String,
    /// Its version.
    pub version: String,
    /// The kinds of targets that it configures.
    pub kinds: Vec<PayloadKind>,
    /// Further capabilities, in its own terms, such as the dialects that it speaks.
    #[serde(default)]
    pub capabilities: Vec<String>,
    /// The only target that it works on; absent: every target that is commanded of the driver.
    pub target: Option<String>,
    /// The time at which it was sent, RFC 3339, by the clock of the driver. Others compare it with their own clocks.
    /// Absent: unknown.
    pub at: Option<String>,
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
    /// BGPSessionGroups of BGP speakers.
    Speaker,
}
