//! The owners of the VLANs on a bridge. Each bridge is a VLAN scope of its own, unless bridges are joined.

use std::collections::{BTreeMap, BTreeSet};

use eno_ovsdb::Uuid;
use eno_schemas::{VlanId, VlanSet};

use crate::record::{Record, of_others, uids};
use crate::view::{Mode, View};

/// The VLANs of one bridge.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VlanOwnership<'a> {
    /// VLANs that our cluster has on a port of the bridge.
    pub ours: VlanSet,
    /// VLANs that others have on a port of the bridge, and their owners. A VLAN may also be ours.
    pub foreign: BTreeMap<VlanId, VlanOwner<'a>>,
    /// A port on which another cluster with our identifier has VLANs, and the uid of that cluster.
    pub conflict: Option<(&'a str, &'a str)>,
}

/// The owner of a VLAN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VlanOwner<'a> {
    /// One of the ports with the VLAN.
    pub port: &'a str,
    /// The cluster that configured it; absent: it was configured by other means.
    pub cluster: Option<&'a str>,
}

impl<'a> VlanOwnership<'a> {
    /// Reads all ports of a bridge, including unlisted ones. An open trunk carries every VLAN and owns none.
    pub fn of(view: &'a View, ports: &BTreeSet<Uuid>, cluster: &str, uid: Option<&str>) -> Self {
        let mut found = Self::default();
        for port in ports.iter().filter_map(|uuid| view.ports.get(uuid)) {
            let record = Record::read(&port.external_ids, cluster);
            found.ours.extend(vlan_ids(&record.vlans));
            let conflict = uid.and_then(|uid| uids(&port.external_ids, cluster).find(|other| *other != uid));
            found.conflict = found.conflict.or(conflict.map(|conflict| (port.name.as_str(), conflict)));
            let mut claimed = record.vlans;
            for (other, vlans) in of_others(&port.external_ids, cluster) {
                let owner = VlanOwner { port: &port.name, cluster: Some(other) };
                // VLANs of another cluster can't be adopted.
                found.foreign.extend(vlan_ids(&vlans).map(|vlan| (vlan, owner)));
                claimed.extend(vlans);
            }
            let owner = VlanOwner { port: &port.name, cluster: None };
            let external: VlanSet = match port.mode() {
                Mode::Access(vlan) => VlanId::new(vlan).into_iter().collect(),
                Mode::Other(_) => port.tag.and_then(|tag| VlanId::new(tag).ok()).into_iter().collect(),
                Mode::Trunk { native } => {
                    let tagged = vlan_ids(&port.trunks).filter(|vlan| !claimed.contains(&vlan.get()));
                    // The mode may disable the tag, and may be changed again.
                    let tag = port.tag.and_then(|tag| VlanId::new(tag).ok());
                    tagged.chain(native).chain(tag).collect()
                }
            };
            for vlan in external.iter() {
                found.foreign.entry(vlan).or_insert(owner);
            }
        }
        found
    }

    /// The owner that blocks us from a VLAN. VLANs in `adopt` are taken over, except from another cluster.
    pub fn blocking_owner(&self, vlan: VlanId, adopt: &VlanSet) -> Option<VlanOwner<'a>> {
        let owner = self.foreign.get(&vlan).filter(|_| !self.ours.contains(vlan))?;
        (owner.cluster.is_some() || !adopt.contains(vlan)).then_some(*owner)
    }
}

/// The valid VLAN identifiers of a list, without 0 and 4095.
pub fn vlan_ids(list: &BTreeSet<u16>) -> impl Iterator<Item = VlanId> {
    list.iter().filter_map(|vlan| VlanId::new(*vlan).ok())
}
