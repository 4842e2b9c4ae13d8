//! What is requested of the VLANs of one network.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use eno_schemas::{CrossedVlans, VlanId, VlanSet};

use crate::node::probes::{ProbedVlan, Tally};
use crate::status::inputs::Inputs;
use crate::{Key, Name};

/// Identifies a path, with the bytes of the packets that are to pass.
type SizedPath = (u32, Option<u16>);

/// The probes of one network of a connection point.
#[derive(Debug, Default)]
pub(in crate::node) struct Probed {
    /// By VLAN: what attachments request. The first one counts.
    pub(super) users: BTreeMap<VlanId, BTreeMap<Key, ProbedVlan>>,
    /// By VLAN of which objects ask for new probes: the version since which they do.
    pub(in crate::node) since: BTreeMap<VlanId, u64>,
    /// By revision, and the size of the packets that are sent too: the VLANs of that path.
    pub(super) paths: BTreeMap<SizedPath, VlanSet>,
    /// By gateway: the VLANs on which it is asked.
    pub(in crate::node) gateways: BTreeMap<IpAddr, VlanSet>,
    /// By what objects ask: their VLANs.
    apart: BTreeMap<Apart, VlanSet>,
    /// By object that asks for isolation: its VLANs, each with one that must not be reached from there.
    pub(in crate::node) crossed: BTreeMap<Key, BTreeSet<CrossedVlans>>,
    /// What was found, by VLAN.
    pub(super) tallies: BTreeMap<VlanId, Tally>,
}

/// That an object asks for isolation: it, the other one, and the nonce.
type Apart = (Key, Key, Name);

impl Probed {
    /// What counts of the requests for a VLAN: the path with all that asks for new probes and the size of packets, and the
    /// gateways.
    fn wanted(&self, vid: VlanId) -> Option<(SizedPath, BTreeSet<IpAddr>)> {
        let users = self.users.get(&vid)?;
        let first = users.values().next()?;
        let asked = || users.values().flat_map(|user| &user.asked);
        let nonces: BTreeMap<&Key, &Name> = asked().map(|(key, request)| (key, &request.nonce)).collect();
        let revision = if nonces.is_empty() { first.revision } else { renewed(first.revision, &nonces) };
        Some(((revision, self.size(vid)), first.gateways.clone()))
    }

    /// Bytes of the packets that are to pass on a VLAN: the most that an attachment wants of which somebody asks for this.
    /// `None`: nobody does.
    pub(super) fn size(&self, vid: VlanId) -> Option<u16> {
        let users = self.users.get(&vid).into_iter().flat_map(BTreeMap::values);
        let asking = users.filter(|user| user.asked.values().any(|request| request.mtu));
        asking.map(|user| user.mtu).max()
    }

    /// The requests for isolation of a VLAN.
    fn apart(&self, vid: VlanId) -> BTreeSet<Apart> {
        let asked = self.users.get(&vid).into_iter().flat_map(BTreeMap::values).flat_map(|user| &user.asked);
        let apart = asked.filter_map(|(key, request)| {
            Some((key.clone(), request.isolation_from.clone()?, request.nonce.clone()))
        });
        apart.collect()
    }

    /// Crosses the VLANs of objects that name each other, with one nonce. Returns true when that changes.
    pub(super) fn cross(&mut self) -> bool {
        let pairs = self.apart.iter().filter_map(|((key, from, nonce), vlans)| {
            let others = self.apart.get(&(from.clone(), key.clone(), nonce.clone()))?;
            let pairs =
                vlans.iter().filter_map(|vlan| Some(CrossedVlans { vlan, other: nearest(others, vlan)? }));
            Some((key, pairs.take(CrossedVlans::MAX).collect::<Vec<_>>()))
        });
        let pairs: Vec<(&Key, Vec<CrossedVlans>)> = pairs.collect();
        let (mut all, mut crossed) = (BTreeSet::new(), BTreeMap::<Key, BTreeSet<CrossedVlans>>::new());
        // Each object gets some of what is possible.
        for round in 0..CrossedVlans::MAX {
            for (key, pair) in pairs.iter().filter_map(|(key, pairs)| Some((*key, *pairs.get(round)?))) {
                if all.len() < CrossedVlans::MAX || all.contains(&pair) {
                    all.insert(pair);
                    crossed.entry(key.clone()).or_default().insert(pair);
                }
            }
        }
        std::mem::replace(&mut self.crossed, crossed) != self.crossed
    }

    /// Replaces the request of an attachment for a VLAN, as of `version`. Returns true when what is probed changes.
    pub(super) fn set(&mut self, vid: VlanId, key: &Key, vlan: Option<&ProbedVlan>, version: u64) -> bool {
        let (before, apart) = (self.wanted(vid), self.apart(vid));
        let users = self.users.entry(vid).or_default();
        match vlan {
            Some(vlan) => drop(users.insert(key.clone(), vlan.clone())),
            None => drop(users.remove(key)),
        }
        let is_asked = users.values().any(|user| !user.asked.is_empty());
        if users.is_empty() {
            self.users.remove(&vid);
        }
        let now_apart = self.apart(vid);
        for gone in apart.difference(&now_apart) {
            leave(&mut self.apart, gone, vid);
        }
        for new in now_apart.difference(&apart) {
            self.apart.entry(new.clone()).or_default().insert(vid);
        }
        let now = self.wanted(vid);
        if before == now {
            return false;
        }
        self.since.remove(&vid);
        if is_asked {
            self.since.insert(vid, version);
        }
        if let Some((path, gateways)) = before {
            leave(&mut self.paths, &path, vid);
            for gateway in gateways {
                leave(&mut self.gateways, &gateway, vid);
            }
        }
        if let Some((path, gateways)) = now {
            self.paths.entry(path).or_default().insert(vid);
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

/// The VLAN of a set that is next to this one.
fn nearest(set: &VlanSet, vlan: VlanId) -> Option<VlanId> {
    let others = set.iter().filter(|other| *other != vlan);
    others.min_by_key(|other| other.get().abs_diff(vlan.get()))
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
    use crate::VerifyRequest;

    #[test]
    fn vlans_are_grouped_by_path_in_any_order() {
        let vid = |id| VlanId::new(id).unwrap();
        let vlan = |revision, gateways: &[[u8; 4]]| ProbedVlan {
            service: Key::cluster(crate::Kind::L2Service, &"s".into()),
            revision,
            gateways: gateways.iter().map(|one| IpAddr::from(*one)).collect(),
            mtu: 1500,
            asked: BTreeMap::new(),
        };
        let keys = ["a", "b"].map(|name| Key::cluster(crate::Kind::L2ServiceAttachment, &name.into()));
        let mut probed = Probed::default();
        let gateway = [10, 1, 0, 1];
        assert!(probed.set(vid(10), &keys[1], Some(&vlan(1, &[gateway])), 1));
        assert!(!probed.set(vid(10), &keys[0], Some(&vlan(1, &[gateway])), 1), "it is probed already");
        assert!(probed.set(vid(11), &keys[0], Some(&vlan(1, &[])), 1));
        let texts = |probed: &Probed| {
            let paths = probed.paths.iter().map(|((revision, _), vlans)| format!("{revision}: {vlans}"));
            let gateways = probed.gateways.iter().map(|(address, vlans)| format!("{address}: {vlans}"));
            paths.chain(gateways).collect::<Vec<_>>()
        };
        assert_eq!(texts(&probed), ["1: 10-11", "10.1.0.1: 10"]);
        assert!(probed.set(vid(10), &keys[0], Some(&vlan(2, &[])), 1), "the first attachment counts");
        assert_eq!(texts(&probed), ["1: 11", "2: 10"]);
        assert!(probed.set(vid(10), &keys[0], None, 1) && probed.set(vid(10), &keys[1], None, 1));
        assert!(probed.set(vid(11), &keys[0], None, 1) && probed.is_empty() && texts(&probed).is_empty());
    }

    #[test]
    fn another_size_asks_again() {
        let vid = VlanId::new(10).unwrap();
        let keys = ["a", "b"].map(|name| Key::cluster(crate::Kind::L2ServiceAttachment, &name.into()));
        let vlan = |mtu, asked: &[&Key]| {
            let request = VerifyRequest { mtu: true, ..VerifyRequest::new("n".into()) };
            ProbedVlan {
                service: Key::cluster(crate::Kind::L2Service, &"s".into()),
                revision: 1,
                gateways: BTreeSet::new(),
                mtu,
                asked: asked.iter().map(|key| ((*key).clone(), request.clone())).collect(),
            }
        };
        let mut probed = Probed::default();
        for (user, mtu, asked, version, size, since) in [
            (&keys[0], 1500, &[&keys[0]][..], 1, Some(1500), Some(1)),
            (&keys[1], 9000, &[], 2, Some(1500), Some(1)),
            (&keys[0], 4000, &[&keys[0]], 3, Some(4000), Some(3)),
            (&keys[1], 9000, &[&keys[1]], 4, Some(9000), Some(4)),
            (&keys[1], 9000, &[], 5, Some(4000), Some(5)),
            (&keys[0], 4000, &[], 6, None, None),
        ] {
            probed.set(vid, user, Some(&vlan(mtu, asked)), version);
            assert_eq!((probed.size(vid), probed.since.get(&vid).copied()), (size, since), "{version}");
        }
    }

    #[test]
    fn vlans_of_objects_that_name_each_other_are_crossed() {
        let vid = |id| VlanId::new(id).unwrap();
        let [a, b] = ["a", "b"].map(|name| Key::cluster(crate::Kind::L2ServiceAttachment, &name.into()));
        let mut probed = Probed::default();
        let ask = |probed: &mut Probed, [own, from]: [&Key; 2], nonce: &str, ids: &[u16]| {
            let request =
                VerifyRequest { isolation_from: Some(from.clone()), ..VerifyRequest::new(nonce.into()) };
            let vlan = ProbedVlan {
                service: Key::cluster(crate::Kind::L2Service, &"s".into()),
                revision: 1,
                gateways: BTreeSet::new(),
                mtu: 1500,
                asked: [(own.clone(), request)].into(),
            };
            for id in ids {
                probed.set(vid(*id), own, Some(&vlan), 1);
            }
            probed.cross()
        };
        let texts = |probed: &Probed, key| {
            let pairs = probed.crossed.get(key).into_iter().flatten();
            pairs.map(|CrossedVlans { vlan, other }| format!("{vlan}-{other}")).collect::<Vec<_>>()
        };
        assert!(!ask(&mut probed, [&a, &b], "n1", &[10, 20, 30]), "the other one does not name it");
        assert!(!ask(&mut probed, [&b, &a], "n2", &[12, 29, 30]), "another nonce");
        assert!(ask(&mut probed, [&b, &a], "n1", &[12, 29, 30]));
        assert_eq!(texts(&probed, &a), ["10-12", "20-12", "30-29"]);
        assert_eq!(texts(&probed, &b), ["12-10", "29-30", "30-20"]);
        assert!(!probed.cross());
        // Both have their share of the most that nodes ask.
        let (all, others): (Vec<u16>, Vec<u16>) = ((100..200).collect(), (200..300).collect());
        ask(&mut probed, [&a, &b], "n1", &all);
        ask(&mut probed, [&b, &a], "n1", &others);
        assert_eq!((texts(&probed, &a).len(), texts(&probed, &b).len()), (32, 32));
        for vlan in 1..300 {
            probed.set(vid(vlan), &b, None, 1);
        }
        assert!(probed.cross() && probed.crossed.is_empty());
    }
}
