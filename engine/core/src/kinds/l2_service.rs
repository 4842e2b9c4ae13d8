//! L2Service: an L2 network.

use eno_schemas::VlanId;
use serde::{Deserialize, Serialize};

use super::{Described, Facts, Kind, Name, Path, Reference, Selector};

/// An L2 network.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct ServiceSpec {
    /// The VLAN ID.
    #[serde(rename = "SegmentationID")]
    pub vid: VlanId,
    /// At most one of each family.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub subnets: Vec<Name>,
    /// The PhysicalNetworks by which it leaves the fabric.
    #[serde(default, rename = "PhysicalNW", skip_serializing_if = "Vec::is_empty")]
    pub physical_networks: Vec<Name>,
    /// The namespaces whose attachments may use it. Absent: all that its PhysicalNetworks allow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespaces: Option<Selector>,
}

impl Described for ServiceSpec {
    const FACTS: Facts =
        Facts { path: Path::Networks, has_vlan: true, admits_trunks: true, ..Facts::DEFAULT };
    const REFERENCES: &'static [Reference<Self>] = &[
        Reference::new("Subnets", Kind::Subnet, |spec| spec.subnets.iter().collect()),
        Reference::new("PhysicalNW", Kind::PhysicalNetwork, |spec| spec.physical_networks.iter().collect()),
    ];
}
