//! Whose VLANs there are on a bridge. Each bridge is a network of its own: a VLAN of one is another's only where they
//! are joined.

use std::collections::{BTreeMap, BTreeSet};

use eno_ovsdb::Uuid;
use eno_schemas::{VlanId, VlanSet};

use crate::record::{Record, of_others, uids};
use crate::view::{Mode, View};

/// The VLANs of one bridge.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ownership<'a> {
    /// That our cluster has on a port of it.
    pub ours: VlanSet,
    /// That somebody else has on a port of it, and who; perhaps also ours.
    pub foreign: BTreeMap<VlanId, Holder<'a>>,
    /// A port on which another cluster with our identifier has VLANs, and the uid of that cluster.
    pub rival: Option<(&'a str, &'a str)>,
}

/// Who has a VLAN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder<'a> {
    /// One of the ports that have it.
    pub port: &'a str,
    /// The cluster that put it there; absent: it was put there by other means.
    pub cluster: Option<&'a str>,
}

impl<'a> Ownership<'a> {
    /// Looks at all ports of a bridge, also those that no FabricDevice lists. A trunk that is open has every VLAN and
    /// is a sign of none.
    pub fn of(view: &'a View, ports: &BTreeSet<Uuid>, cluster: &str, uid: Option<&str>) -> Self {
        let mut found = Self::default();
        for port in ports.iter().filter_map(|uuid| view.ports.get(uuid)) {
            let record = Record::read(&port.external_ids, cluster);
            found.ours.extend(ids(&record.vlans));
            let rival = uid.and_then(|uid| uids(&port.external_ids, cluster).find(|other| *other != uid));
            found.rival = found.rival.or(rival.map(|rival| (port.name.as_str(), rival)));
            let mut claimed = record.vlans;
            for (other, vlans) in of_others(&port.external_ids, cluster) {
                let holder = Holder { port: &port.name, cluster: Some(other) };
                // Whom a cluster's name was written for can't be asked to give it away.
                found.foreign.extend(ids(&vlans).map(|vlan| (vlan, holder)));
                claimed.extend(vlans);
            }
            let holder = Holder { port: &port.name, cluster: None };
            let by_hand: VlanSet = match port.mode() {
                Mode::Access(vlan) => VlanId::new(vlan).into_iter().collect(),
                Mode::Other(_) => port.tag.and_then(|tag| VlanId::new(tag).ok()).into_iter().collect(),
                Mode::Trunk { native } => {
                    let tagged = ids(&port.trunks).filter(|vlan| !claimed.contains(&vlan.get()));
                    // It may be set aside by the mode, and in use again tomorrow.
                    let tag = port.tag.and_then(|tag| VlanId::new(tag).ok());
                    tagged.chain(native).chain(tag).collect()
                }
            };
            for vlan in by_hand.iter() {
                found.foreign.entry(vlan).or_insert(holder);
            }
        }
        found
    }

    /// Who keeps us from using a VLAN; those in `adopt` are taken over from anybody but another cluster.
    pub fn obstacle(&self, vlan: VlanId, adopt: &VlanSet) -> Option<Holder<'a>> {
        let holder = self.foreign.get(&vlan).filter(|_| !self.ours.contains(vlan))?;
        (holder.cluster.is_some() || !adopt.contains(vlan)).then_some(*holder)
    }
}

/// Those that are VLANs, and neither 0 nor 4095.
pub fn ids(list: &BTreeSet<u16>) -> impl Iterator<Item = VlanId> {
    list.iter().filter_map(|vlan| VlanId::new(*vlan).ok())
}
