//! L2BridgeDomain: a VLAN on connection points.

use eno_schemas::VlanId;
use serde::{Deserialize, Serialize};

use super::{Described, Facts, Kind, Name, Path, Reference};

/// A VLAN on connection points.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct BridgeDomainSpec {
    /// The VLAN.
    pub vlan: VlanId,
    /// The ConnectionPoints.
    pub connection_points: Vec<Name>,
}

impl Described for BridgeDomainSpec {
    const FACTS: Facts =
        Facts { path: Path::Networks, has_vlan: true, needs_networks: true, ..Facts::DEFAULT };
    const REFERENCES: &'static [Reference<Self>] =
        &[Reference::new("ConnectionPoints", Kind::ConnectionPoint, |spec| {
            spec.connection_points.iter().collect()
        })];
}
