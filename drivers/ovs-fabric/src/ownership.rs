//! The owners of the VLANs on a bridge. Each bridge is a VLAN scope of its own, unless bridges are joined.

use std::collections::BTreeSet;

use eno_ovsdb::Uuid;
use eno_schemas::{VlanId, VlanSet};

use crate::record::{Record, of_others, uids};
use crate::view::{Mode, View};

/// The VLANs of one bridge.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VlanOwnership<'a> {
    /// VLANs that our cluster has on a port of the bridge.
    pub ours: VlanSet,
    /// VLANs that others have on a port of the bridge. A VLAN may also be ours.
    pub foreign: VlanSet,
    /// The VLANs of other clusters by port. Of a VLAN the last one counts.
    of_clusters: Vec<(VlanSet, VlanOwner<'a>)>,
    /// The VLANs that were configured by other means, by port. Of a VLAN the first one counts.
    external: Vec<(VlanSet, VlanOwner<'a>)>,
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
            found.ours = found.ours.union(record.vlans.vlans());
            let conflict = uid.and_then(|uid| uids(&port.external_ids, cluster).find(|other| *other != uid));
            found.conflict = found.conflict.or(conflict.map(|conflict| (port.name.as_str(), conflict)));
            let mut claimed = record.vlans.vlans().clone();
            for (other, vlans) in of_others(&port.external_ids, cluster) {
                let owner = VlanOwner { port: &port.name, cluster: Some(other) };
                claimed = claimed.union(vlans.vlans());
                found.foreign = found.foreign.union(vlans.vlans());
                // VLANs of another cluster can't be adopted.
                found.of_clusters.push((vlans.vlans().clone(), owner));
            }
            // The mode may disable the tag, and may be changed again.
            let tag: VlanSet = port.tag.and_then(|tag| VlanId::new(tag).ok()).into_iter().collect();
            let external = match port.mode() {
                Mode::Access(vlan) => VlanId::new(vlan).into_iter().collect(),
                Mode::Other(_) => tag,
                Mode::Trunk { native } => {
                    let tagged = port.trunks.vlans().difference(&claimed);
                    tagged.union(&native.into_iter().collect()).union(&tag)
                }
            };
            if !external.is_empty() {
                found.foreign = found.foreign.union(&external);
                found.external.push((external, VlanOwner { port: &port.name, cluster: None }));
            }
        }
        found
    }

    /// The VLANs of others that are not ours.
    pub fn of_others(&self) -> VlanSet {
        self.foreign.difference(&self.ours)
    }

    /// The owner that blocks us from a VLAN. VLANs in `adopt` are taken over, except from another cluster.
    pub fn blocking_owner(&self, vlan: VlanId, adopt: &VlanSet) -> Option<VlanOwner<'a>> {
        if self.ours.contains(vlan) {
            return None;
        }
        let has = |(vlans, _): &&(VlanSet, VlanOwner<'a>)| vlans.contains(vlan);
        let of_cluster = self.of_clusters.iter().rfind(has);
        let owner = of_cluster.or_else(|| self.external.iter().find(has)).map(|(_, owner)| *owner)?;
        (owner.cluster.is_some() || !adopt.contains(vlan)).then_some(owner)
    }
}
