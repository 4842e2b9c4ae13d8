//! VLANs and desired states for the unit tests.

use eno_conformance::fabrics;
use eno_schemas::{Device, FabricDesired};

pub(crate) use eno_conformance::fabrics::{set, vid};

use crate::plan::{ObservedVlan, ObservedVlans};

/// The desired state of cluster `c` with these VLANs, and with ports by name and VLANs.
pub(crate) fn desired(vlans: &str, ports: &[(&str, &str)]) -> FabricDesired {
    fabrics::desired("c", Device::new(""), vlans, ports)
}

/// Active VLANs under the names of cluster `c`.
pub(crate) fn own_vlans(vlans: &str) -> ObservedVlans {
    set(vlans).iter().map(|vid| (vid, ObservedVlan::ours("c", vid))).collect()
}
