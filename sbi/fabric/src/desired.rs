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
    desired.vlans.vids()
}

/// A desired state without its port memory, its audit interval and its lookup, which cause no change of the device. Comparing two
/// costs nothing for the VLANs that they share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content(FabricDesired);

impl Content {
    /// The content of a desired state.
    pub fn of(mut desired: FabricDesired) -> Self {
        (desired.device.audit_interval, desired.lookup) = (None, None);
        desired.ports.iter_mut().for_each(|port| (port.closed, port.before) = (false, None));
        Self(desired)
    }

    /// The hash of a command of this content alone. It costs more with each VLAN.
    pub fn hash(&self) -> String {
        Desired::Fabric(self.0.clone()).hash()
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use eno_conformance::fabrics;
    use eno_schemas::{Device, PortBefore};

    use super::*;

    #[test]
    fn content_is_what_changes_a_device() {
        let desired = fabrics::desired("c1", Device::new("leaf1"), "10-40", &[("p1", "10-20")]);
        let content = Content::of(desired.clone());
        let differs = |change: fn(&mut FabricDesired)| {
            let mut other = desired.clone();
            change(&mut other);
            Content::of(other) != content
        };
        assert!(!differs(|other| other.device.audit_interval = NonZeroU32::new(60)));
        assert!(!differs(|other| other.ports[0].closed = true));
        assert!(!differs(|other| other.lookup = Some("1".into())));
        assert!(!differs(|other| other.ports[0].before = Some(PortBefore::default())));
        // The same VLANs in blocks of their own.
        assert!(!differs(|other| other.vlans = other.vlans.iter().cloned().collect()));
        assert!(differs(|other| other.vlans.retain(|vlan| vlan.vid != fabrics::vid(40))));
        assert!(differs(|other| other.ports[0].vlans = fabrics::set("10-21")));
        assert!(differs(|other| other.ports[0].lag = Some("lag1".into())));
        assert!(differs(|other| other.cluster_uid = Some("u".into())));
        assert!(differs(|other| other.device.address = "leaf2".into()));
    }
}
