//! PhysicalNetwork: a network outside the fabric.

use eno_schemas::VlanSet;
use serde::{Deserialize, Serialize};

use super::{Absence, Described, Facts, Selector};

/// A network outside the fabric.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct PhysicalNetworkSpec {
    /// The VLANs that may be used on it; absent: all.
    #[serde(default, rename = "SegmentationIDs", skip_serializing_if = "Option::is_none")]
    pub segmentation_ids: Option<VlanSet>,
    /// The namespaces whose attachments may use it; absent: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespaces: Option<Selector>,
    /// It is wired by others: no path to it is required.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unmanaged: bool,
}

impl Described for PhysicalNetworkSpec {
    const FACTS: Facts = Facts { absence: Absence::UnlessNamed, admits_trunks: true, ..Facts::DEFAULT };
}
