//! Bridge: a bridge of pods (`podnetwork.opdev.io`).

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::{Absence, Described, Facts, Path, Users};

/// A pod bridge: its ports are pods of one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BridgeSpec {
    /// Its name on the nodes: at most 15 bytes.
    pub name: String,
    /// Its networks, at most one of each family. It has the first address of each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cidrs: Vec<IpNet>,
    /// Bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
}

impl Described for BridgeSpec {
    const FACTS: Facts = Facts {
        path: Path::Bridge,
        users: Users::BridgeLinks,
        absence: Absence::UnlessInPods,
        ..Facts::DEFAULT
    };
}
