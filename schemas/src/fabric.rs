//! The desired state of one switch.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{VlanId, VlanSet};

/// The complete desired state of one switch, as far as it is ours: every VLAN that we make there and every port
/// that a FabricDevice lists. VLANs and ports that are not named here are not ours and are left alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FabricDesired {
    /// Identifies the cluster on the device, at most 8 characters of `[a-z0-9]`; see [`vlan_name`].
    #[schemars(regex(pattern = r"^[a-z0-9]{1,8}$"))]
    pub cluster: String,
    /// How the device is reached.
    pub device: Device,
    /// The VLANs that are to exist, ascending by `vid`, each once.
    pub vlans: Vec<FabricVlan>,
    /// All listed ports, ascending by `name`, each once; also those that carry nothing.
    pub ports: Vec<FabricPort>,
}

/// How a switch is reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Device {
    /// `host:port`, or whatever the driver takes for an address.
    pub address: String,
    /// The dialect to speak; absent: chosen by what the device announces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dialect: Option<String>,
    /// The name of a credential that the driver reads itself; never the credential.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential: Option<String>,
    /// The host key to accept, an OpenSSH public key line; absent: the driver refuses to connect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_key: Option<String>,
    /// What to do about drift.
    #[serde(default)]
    pub drift: Drift,
    /// VLANs that exist there under another name and are taken over when they are wanted: they get our name.
    #[serde(default, skip_serializing_if = "VlanSet::is_empty")]
    pub adopt: VlanSet,
}

/// What a driver does when the device no longer holds what it verified.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Drift {
    /// Put it right and say so.
    #[default]
    Repair,
    /// Only say so.
    Report,
}

/// A VLAN that is to exist on a switch, under the name [`vlan_name`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FabricVlan {
    /// The identifier.
    pub vid: VlanId,
    /// The objects that want it, as `<kind>/[<namespace>/]<name>`, ascending.
    pub owners: Vec<String>,
}

/// A port of a switch and the tagged VLANs of ours that it is to carry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FabricPort {
    /// The device's own name for it.
    pub name: String,
    /// The LAG that it is a member of: that is configured instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lag: Option<String>,
    /// Whether a foreign access port may be turned into a trunk.
    #[serde(default)]
    pub mode: PortMode,
    /// The tagged VLANs, all of them in [`FabricDesired::vlans`].
    pub vlans: VlanSet,
}

/// What may be done to a port that is in access mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PortMode {
    /// A foreign access port is refused.
    #[default]
    Keep,
    /// It is made a trunk.
    Trunk,
}

/// The name of a VLAN that is ours: `eno-<cluster>-<vid>`. It tells our VLANs from the device alone.
pub fn vlan_name(cluster: &str, vid: VlanId) -> String {
    format!("eno-{cluster}-{vid}")
}
