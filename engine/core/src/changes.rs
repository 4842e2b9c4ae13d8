//! What changed on a switch since a state of it was last confirmed, and what was confirmed of each network before.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use eno_schemas::{VlanId, VlanSet};

use crate::Key;

/// How many handed out states are remembered: more than can be on their way at once.
const HANDED_OUT: usize = 8;

/// The networks that want a VLAN, each with the indices of its ports.
pub type Owners = BTreeMap<Key, Vec<u16>>;

/// The placements that a network had since the last confirmed one, the oldest first: each with the count by which it
/// ended. Between two counts there is one at most.
type Past = Vec<(u64, Vec<u16>)>;

/// What a state that was handed out contains.
#[derive(Clone, Debug)]
pub struct Extent {
    /// The changes up to this count,
    pub count: u64,
    /// but not those of these VLANs, which are as they were confirmed.
    pub without: VlanSet,
}

/// The changes of one switch.
#[derive(Debug, Default)]
pub struct Changes {
    /// The count of the last one. It goes up whenever a switch, whichever, is handed a state: what all of them were told
    /// of is told from it.
    count: u64,
    /// Hashes of the states handed out, with what they contain.
    handed_out: VecDeque<(String, Extent)>,
    /// VLANs that changed since the last state that was confirmed.
    unsettled: BTreeMap<VlanId, BTreeMap<Key, Past>>,
    /// Those of them that are wanted elsewhere than they were confirmed, and those that may be.
    moved: VlanSet,
    /// Those that may not be where a former process last commanded them.
    unsure: VlanSet,
}

impl Changes {
    /// Something changed at this count.
    pub fn touch(&mut self, count: u64) {
        self.count = count;
    }

    /// A network wanted `vid` on the ports `before`, and does no longer.
    pub fn left(&mut self, vid: VlanId, network: &Key, before: Vec<u16>) {
        let past = self.unsettled.entry(vid).or_default().entry(network.clone()).or_default();
        // Else nobody was told of the placement in between.
        if past.last().is_none_or(|(until, _)| *until < self.count) {
            past.push((self.count, before));
        }
    }

    /// Of these VLANs alone it is not known whether they are where a former process last commanded them: what is done
    /// about them goes together with others.
    pub fn doubt(&mut self, unsure: VlanSet, wanted: &BTreeMap<VlanId, Owners>) {
        let before = std::mem::replace(&mut self.unsure, unsure);
        for vid in before.union(&self.unsure).iter() {
            self.weigh(vid, wanted.get(&vid));
        }
    }

    /// Looks whether `vid` is, or may be, wanted elsewhere than it was confirmed.
    pub fn weigh(&mut self, vid: VlanId, wanted: Option<&Owners>) {
        let moved = self.unsettled.get(&vid).into_iter().flatten().any(|(network, past)| {
            past.first().is_some_and(|(_, confirmed)| confirmed.as_slice() != ports_of(wanted, network))
        });
        if moved || self.unsure.contains(vid) {
            self.moved.insert(vid);
        } else {
            self.moved.remove(vid);
        }
    }

    /// The VLANs that are wanted elsewhere than they were confirmed, and those that may be.
    pub fn moved(&self) -> &VlanSet {
        &self.moved
    }

    /// A state was handed out with all changes up to `count` but those of the VLANs `without`.
    pub fn hand_out(&mut self, hash: &str, count: u64, without: VlanSet) {
        self.handed_out.pop_back_if(|(last, _)| last == hash);
        self.handed_out.push_back((hash.to_owned(), Extent { count, without }));
        if self.handed_out.len() > HANDED_OUT {
            self.handed_out.pop_front();
        }
    }

    /// What a state that was handed out contains.
    pub fn contained(&self, hash: &str) -> Option<Extent> {
        self.handed_out.iter().rev().find(|(known, _)| known == hash).map(|(_, contained)| contained.clone())
    }

    /// The last state that was handed out leaves out changes that others have to decide on first.
    pub fn is_partial(&self) -> bool {
        self.handed_out.back().is_some_and(|(_, contained)| !contained.without.is_empty())
    }

    /// True when a state contains all changes so far.
    pub fn is_all(&self, contained: &Extent) -> bool {
        contained.count >= self.count && contained.without.is_empty()
    }

    /// The state that contains so much is confirmed. The networks for which that settles something, and those that it
    /// has brought elsewhere.
    pub fn settle(
        &mut self,
        contained: &Extent,
        wanted: &BTreeMap<VlanId, Owners>,
    ) -> (BTreeSet<Key>, BTreeSet<(Key, VlanId)>) {
        let (mut settled, mut decided) = (BTreeSet::new(), BTreeSet::new());
        let mut open = BTreeSet::new();
        self.unsettled.retain(|vid, networks| {
            if contained.without.contains(*vid) {
                open.insert(*vid);
                return true;
            }
            for (network, past) in networks.iter_mut() {
                let later = past.iter().find(|(until, _)| *until > contained.count);
                let then = later.map_or_else(|| ports_of(wanted.get(vid), network), |(_, ports)| ports);
                if past.first().is_some_and(|(_, confirmed)| confirmed.as_slice() != then) {
                    decided.insert((network.clone(), *vid));
                }
                past.retain(|(until, _)| *until > contained.count);
            }
            let done = networks.values().all(Vec::is_empty);
            if done {
                settled.extend(std::mem::take(networks).into_keys());
            } else {
                open.insert(*vid);
            }
            !done
        });
        self.moved = VlanSet::EMPTY;
        for vid in open {
            self.weigh(vid, wanted.get(&vid));
        }
        (settled, decided)
    }

    /// A former process wanted `vid` for a network here; that counts as confirmed until something else is found.
    pub fn was_wanted(&mut self, vid: VlanId, network: &Key, ports: Vec<u16>) {
        let past = self.unsettled.entry(vid).or_default().entry(network.clone()).or_default();
        match past.first_mut() {
            Some((_, confirmed)) => *confirmed = ports,
            None => past.push((self.count, ports)),
        }
    }

    /// What was found on the device counts as confirmed, as long as no state of ours was. It is put down to who is
    /// known to have had the VLAN, else to who wants it.
    pub fn found(&mut self, wanted: &BTreeMap<VlanId, Owners>, on: impl Fn(VlanId) -> Vec<u16>) {
        for (vid, networks) in &mut self.unsettled {
            let had = |past: &Past| past.first().is_some_and(|(_, confirmed)| !confirmed.is_empty());
            let known = networks.values().any(had);
            for (network, past) in networks {
                let its = if known { had(past) } else { !ports_of(wanted.get(vid), network).is_empty() };
                if let Some((_, confirmed)) = past.first_mut().filter(|_| its) {
                    *confirmed = on(*vid);
                }
            }
        }
        let vids: Vec<VlanId> = self.unsettled.keys().copied().collect();
        for vid in vids {
            self.weigh(vid, wanted.get(&vid));
        }
    }

    /// Others have confirmed what was wanted of the network at this count: here, too, it is what to stay at.
    pub fn accept(&mut self, vid: VlanId, network: &Key, count: u64, wanted: Option<&Owners>) {
        let past = self.unsettled.get_mut(&vid).and_then(|networks| networks.get_mut(network));
        let Some(past) = past else { return };
        if let Some(since) = past.iter().position(|(until, _)| *until > count) {
            past.drain(..since);
        } else {
            let last = past.last().map(|(until, _)| (*until, ports_of(wanted, network).into()));
            *past = last.into_iter().collect();
        }
        self.weigh(vid, wanted);
    }

    /// True when a change of the network with this VLAN is not confirmed yet.
    pub fn is_open_for(&self, vid: VlanId, network: &Key) -> bool {
        self.unsettled.get(&vid).is_some_and(|networks| networks.contains_key(network))
    }

    /// Port indices changed: `new` tells the index of what was at another one.
    pub fn renumber(&mut self, new: impl Fn(u16) -> Option<u16>) {
        for (_, ports) in self.unsettled.values_mut().flat_map(BTreeMap::values_mut).flatten() {
            *ports = ports.iter().filter_map(|port| new(*port)).collect();
            ports.sort_unstable();
        }
    }

    /// True when a change of the VLAN is not confirmed yet.
    pub fn is_open(&self, vid: VlanId) -> bool {
        self.unsettled.contains_key(&vid)
    }

    /// True when a change of the network is not confirmed yet.
    pub fn has_open(&self, network: &Key) -> bool {
        self.unsettled.values().any(|networks| networks.contains_key(network))
    }

    /// The networks with a change of this VLAN that is not confirmed yet.
    pub fn open(&self, vid: VlanId) -> impl Iterator<Item = &Key> {
        self.unsettled.get(&vid).into_iter().flat_map(BTreeMap::keys)
    }

    /// The VLANs with changes that are not confirmed yet.
    pub fn open_vlans(&self) -> impl Iterator<Item = VlanId> {
        self.unsettled.keys().copied()
    }

    /// Where the network was last confirmed to have the VLAN; `None`: where it is wanted.
    pub fn confirmed(&self, vid: VlanId, network: &Key) -> Option<&[u16]> {
        let (_, ports) = self.unsettled.get(&vid)?.get(network)?.first()?;
        Some(ports)
    }

    /// The networks that have the VLAN, each with its ports, as it was last confirmed.
    pub fn former(&self, vid: VlanId, wanted: Option<&Owners>) -> Owners {
        let mut owners = wanted.cloned().unwrap_or_default();
        for (network, past) in self.unsettled.get(&vid).into_iter().flatten() {
            match past.first().filter(|(_, confirmed)| !confirmed.is_empty()) {
                Some((_, confirmed)) => drop(owners.insert(network.clone(), confirmed.clone())),
                None => drop(owners.remove(network)),
            }
        }
        owners
    }

    /// The networks whose placement a state changes, each with the ports of this VLAN before and with it, and whether
    /// it has changed again since.
    pub fn made_by(
        &self,
        contained: &Extent,
        vid: VlanId,
        wanted: Option<&Owners>,
    ) -> impl Iterator<Item = (&Key, BTreeSet<u16>, bool)> {
        let told = !contained.without.contains(vid);
        let count = contained.count;
        self.unsettled.get(&vid).into_iter().filter(move |_| told).flatten().filter_map(
            move |(network, past)| {
                let (_, confirmed) = past.first()?;
                let later = past.iter().find(|(until, _)| *until > count);
                let then = later.map_or_else(|| ports_of(wanted, network), |(_, ports)| ports);
                let ports = confirmed.iter().chain(then).copied().collect();
                (confirmed.as_slice() != then).then_some((network, ports, later.is_some()))
            },
        )
    }
}

fn ports_of<'a>(wanted: Option<&'a Owners>, network: &Key) -> &'a [u16] {
    wanted.and_then(|owners| owners.get(network)).map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;

    fn vid() -> VlanId {
        VlanId::new(10).unwrap()
    }

    #[test]
    fn what_was_confirmed_is_known_however_often_it_changes() {
        let network = Key::cluster(Kind::L2Service, &"s".into());
        let mut changes = Changes::default();
        let mut wanted: BTreeMap<VlanId, Owners> = BTreeMap::new();
        let mut want = |changes: &mut Changes, count: u64, ports: &[u16]| {
            let before = wanted.entry(vid()).or_default().insert(network.clone(), ports.into());
            changes.touch(count);
            changes.left(vid(), &network, before.unwrap_or_default());
            changes.weigh(vid(), wanted.get(&vid()));
            wanted.clone()
        };
        want(&mut changes, 1, &[1]);
        changes.hand_out("a", 1, VlanSet::EMPTY);
        let now = want(&mut changes, 2, &[1, 2]);
        // The first state is confirmed while the second is already wanted.
        let (settled, decided) = changes.settle(&changes.contained("a").unwrap(), &now);
        assert_eq!((settled, decided.len()), (BTreeSet::new(), 1));
        assert_eq!(changes.confirmed(vid(), &network), Some(&[1][..]));
        changes.hand_out("b", 2, VlanSet::EMPTY);
        want(&mut changes, 3, &[2]);
        // Back to what is confirmed: open, but nothing that has to be done together with others.
        let now = want(&mut changes, 3, &[1]);
        assert!(changes.is_open(vid()) && changes.moved().is_empty());
        changes.hand_out("c", 3, VlanSet::EMPTY);
        let all = changes.contained("c").unwrap();
        assert!(changes.is_all(&all));
        assert_eq!(changes.made_by(&all, vid(), now.get(&vid())).count(), 0);
        assert_eq!(changes.settle(&all, &now).0, BTreeSet::from([network.clone()]));
        assert_eq!(changes.confirmed(vid(), &network), None);
    }

    #[test]
    fn what_others_confirmed_is_accepted_as_it_was_then() {
        let network = Key::cluster(Kind::L2Service, &"s".into());
        let mut changes = Changes::default();
        let owners = |ports: &[u16]| Owners::from([(network.clone(), ports.into())]);
        // Wanted on port 1 since the count 1, on 2 since 5.
        for (count, before) in [(1, vec![]), (5, vec![1])] {
            changes.touch(count);
            changes.left(vid(), &network, before);
        }
        for (count, confirmed) in [(0, &[][..]), (3, &[1]), (6, &[2])] {
            changes.accept(vid(), &network, count, Some(&owners(&[2])));
            assert_eq!(changes.confirmed(vid(), &network), Some(confirmed));
            assert_eq!(changes.moved().is_empty(), count == 6);
        }
        assert!(changes.is_open(vid()), "it has not confirmed anything itself");
    }
}
