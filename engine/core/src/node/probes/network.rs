//! What is requested of the VLANs of one network.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use eno_schemas::{VlanId, VlanSet};

use crate::node::probes::{ProbedVlan, Tally};
use crate::status::inputs::Inputs;
use crate::{Key, Name};

/// The probes of one network of a connection point.
#[derive(Debug, Default)]
pub(in crate::node) struct Probed {
    /// By VLAN: what attachments request. The first one counts.
    pub(super) users: BTreeMap<VlanId, BTreeMap<Key, ProbedVlan>>,
    /// By VLAN of which objects ask for new probes: the version since which they do.
    pub(in crate::node) since: BTreeMap<VlanId, u64>,
    /// By revision: the VLANs of that path.
    pub(super) paths: BTreeMap<u32, VlanSet>,
    /// By gateway: the VLANs on which it is asked.
    pub(in crate::node) gateways: BTreeMap<IpAddr, VlanSet>,
    /// What was found, by VLAN.
    pub(super) tallies: BTreeMap<VlanId, Tally>,
}

impl Probed {
    /// What counts of the requests for a VLAN: the path with all that asks for new probes, and the gateways.
    fn wanted(&self, vid: VlanId) -> Option<(u32, BTreeSet<IpAddr>)> {
        let users = self.users.get(&vid)?;
        let first = users.values().next()?;
        let asked: BTreeMap<&Key, &Name> = users.values().flat_map(|user| &user.asked).collect();
        let revision = if asked.is_empty() { first.revision } else { renewed(first.revision, &asked) };
        Some((revision, first.gateways.clone()))
    }

    /// Replaces the request of an attachment for a VLAN, as of `version`. Returns true when what is probed changes.
    pub(super) fn set(&mut self, vid: VlanId, key: &Key, vlan: Option<&ProbedVlan>, version: u64) -> bool {
        let before = self.wanted(vid);
        let users = self.users.entry(vid).or_default();
        match vlan {
            Some(vlan) => drop(users.insert(key.clone(), vlan.clone())),
            None => drop(users.remove(key)),
        }
        let is_asked = users.values().any(|user| !user.asked.is_empty());
        if users.is_empty() {
            self.users.remove(&vid);
        }
        let now = self.wanted(vid);
        if before == now {
            return false;
        }
        self.since.remove(&vid);
        if is_asked {
            self.since.insert(vid, version);
        }
        if let Some((revision, gateways)) = before {
            leave(&mut self.paths, &revision, vid);
            for gateway in gateways {
                leave(&mut self.gateways, &gateway, vid);
            }
        }
        if let Some((revision, gateways)) = now {
            self.paths.entry(revision).or_default().insert(vid);
            for gateway in gateways {
                self.gateways.entry(gateway).or_default().insert(vid);
            }
        }
        true
    }

    /// True when nothing is requested and nothing was found.
    pub(super) fn is_empty(&self) -> bool {
        self.users.is_empty() && self.tallies.is_empty()
    }
}

/// Identifies a path of which these objects ask for new probes.
fn renewed(revision: u32, asked: &BTreeMap<&Key, &Name>) -> u32 {
    let mut hash = Inputs::default();
    hash.add(&revision);
    for (key, nonce) in asked {
        hash.add(&(key.to_string(), &***nonce));
    }
    u32::try_from(hash.finish() >> 32).unwrap_or_default()
}

/// Takes a VLAN out of a set in a map.
fn leave<K: Ord>(sets: &mut BTreeMap<K, VlanSet>, key: &K, vid: VlanId) {
    if let Some(set) = sets.get_mut(key) {
        set.remove(vid);
        if set.is_empty() {
            sets.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vlans_are_grouped_by_path_in_any_order() {
        let vid = |id| VlanId::new(id).unwrap();
        let vlan = |revision, gateways: &[[u8; 4]]| ProbedVlan {
            service: Key::cluster(crate::Kind::L2Service, &"s".into()),
            revision,
            gateways: gateways.iter().map(|one| IpAddr::from(*one)).collect(),
            asked: BTreeMap::new(),
        };
        let keys = ["a", "b"].map(|name| Key::cluster(crate::Kind::L2ServiceAttachment, &name.into()));
        let mut probed = Probed::default();
        let gateway = [10, 1, 0, 1];
        assert!(probed.set(vid(10), &keys[1], Some(&vlan(1, &[gateway])), 1));
        assert!(!probed.set(vid(10), &keys[0], Some(&vlan(1, &[gateway])), 1), "it is probed already");
        assert!(probed.set(vid(11), &keys[0], Some(&vlan(1, &[])), 1));
        let texts = |probed: &Probed| {
            let paths = probed.paths.iter().map(|(revision, vlans)| format!("{revision}: {vlans}"));
            let gateways = probed.gateways.iter().map(|(address, vlans)| format!("{address}: {vlans}"));
            paths.chain(gateways).collect::<Vec<_>>()
        };
        assert_eq!(texts(&probed), ["1: 10-11", "10.1.0.1: 10"]);
        assert!(probed.set(vid(10), &keys[0], Some(&vlan(2, &[])), 1), "the first attachment counts");
        assert_eq!(texts(&probed), ["1: 11", "2: 10"]);
        assert!(probed.set(vid(10), &keys[0], None, 1) && probed.set(vid(10), &keys[1], None, 1));
        assert!(probed.set(vid(11), &keys[0], None, 1) && probed.is_empty() && texts(&probed).is_empty());
    }
}
