//! VLANs and desired states for the unit tests.

use std::collections::BTreeMap;

use eno_schemas::{Device, FabricDesired, FabricPort, FabricVlan, VlanId, VlanSet, vlan_name};

use crate::plan::ObservedVlan;

pub(crate) fn vid(id: u16) -> VlanId {
    VlanId::new(id).unwrap()
}

pub(crate) fn set(text: &str) -> VlanSet {
    text.parse().unwrap()
}

/// The desired state of cluster `c` with these VLANs, and with ports by name and VLANs.
pub(crate) fn desired(vlans: &str, ports: &[(&str, &str)]) -> FabricDesired {
    FabricDesired {
        cluster: "c".into(),
        cluster_uid: None,
        device: Device::new(""),
        vlans: set(vlans).iter().map(|vid| FabricVlan { vid, owners: Vec::new() }).collect(),
        ports: ports.iter().map(|(name, vlans)| FabricPort::new(*name, set(vlans))).collect(),
    }
}

/// Active VLANs under the names of cluster `c`.
pub(crate) fn own_vlans(vlans: &str) -> BTreeMap<VlanId, ObservedVlan> {
    let own = |vid| ObservedVlan { name: Some(vlan_name("c", vid)), active: true, rename_blocker: None };
    set(vlans).iter().map(|vid| (vid, own(vid))).collect()
}
