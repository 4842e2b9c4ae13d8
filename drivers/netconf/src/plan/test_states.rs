//! VLANs and desired states for the unit tests.

use std::collections::BTreeMap;

use eno_conformance::fabrics;
use eno_schemas::{Device, FabricDesired, VlanId, vlan_name};

pub(crate) use eno_conformance::fabrics::{set, vid};

use crate::plan::ObservedVlan;

/// The desired state of cluster `c` with these VLANs, and with ports by name and VLANs.
pub(crate) fn desired(vlans: &str, ports: &[(&str, &str)]) -> FabricDesired {
    fabrics::desired("c", Device::new(""), vlans, ports)
}

/// Active VLANs under the names of cluster `c`.
pub(crate) fn own_vlans(vlans: &str) -> BTreeMap<VlanId, ObservedVlan> {
    let own = |vid| ObservedVlan { name: Some(vlan_name("c", vid)), active: true, rename_blocker: None };
    set(vlans).iter().map(|vid| (vid, own(vid))).collect()
}
