//! The ports and VLANs of a desired state. Pure.

use std::collections::BTreeMap;

use eno_schemas::{Desired, FabricDesired, FabricPort, VlanSet};

/// The device's name of what a listed port stands for: its LAG, or the port itself.
pub fn listed_name(port: &FabricPort) -> &str {
    port.lag.as_deref().unwrap_or(&port.name)
}

/// The listed ports by what they stand for on the device. Several members of a LAG may be listed.
pub fn ports_by<'a, K: Ord>(
    desired: &'a FabricDesired,
    key: impl Fn(&'a FabricPort) -> Option<K>,
) -> BTreeMap<K, Vec<&'a FabricPort>> {
    let mut ports: BTreeMap<K, Vec<&FabricPort>> = BTreeMap::new();
    for port in &desired.ports {
        if let Some(key) = key(port) {
            ports.entry(key).or_default().push(port);
        }
    }
    ports
}

/// The VLANs that these ports are to carry.
pub fn vlans_of<'a>(ports: impl IntoIterator<Item = &'a FabricPort>) -> VlanSet {
    ports.into_iter().fold(VlanSet::EMPTY, |all, port| all.union(&port.vlans))
}

/// The VLANs that are to exist.
pub fn desired_vlans(desired: &FabricDesired) -> VlanSet {
    desired.vlans.iter().map(|vlan| vlan.vid).collect()
}

/// The hash of a desired state without its port memory and its audit interval, which cause no change of the device.
pub fn content_hash(mut desired: FabricDesired) -> String {
    desired.device.audit_interval = None;
    desired.ports.iter_mut().for_each(|port| (port.closed, port.before) = (false, None));
    Desired::Fabric(desired).hash()
}
