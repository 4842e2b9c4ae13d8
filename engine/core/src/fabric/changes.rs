//! The changes of one switch since its last confirmed state, and where each network was confirmed before.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, LazyLock};

use eno_schemas::{RoutedInterface, VlanId, VlanSet};

use crate::Key;
use crate::fabric::topology::Indices;

/// Maximum of issued states that are remembered. More are never in flight at once.
const MAX_ISSUED: usize = 8;

/// A value for each of some networks of a VLAN, sorted by key. Nearly always there is one network, and a large fabric
/// has hundreds of thousands of these.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ByNetwork<T>(Box<[(Key, T)]>);

/// Where a network wants a VLAN on a device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The indices of the ports that carry it.
    pub ports: Indices,
    /// How it is led into a VRF; `None`: it is not.
    pub routed: Option<Arc<RoutedInterface>>,
}

impl Place {
    /// True when the network does not want the VLAN there.
    pub fn is_empty(&self) -> bool {
        self.ports.is_empty() && self.routed.is_none()
    }
}

/// The networks that want a VLAN, each with its place.
pub type Owners = ByNetwork<Place>;

impl<T> Default for ByNetwork<T> {
    fn default() -> Self {
        Self(Box::default())
    }
}

impl<T> ByNetwork<T> {
    fn find(&self, network: &Key) -> Result<usize, usize> {
        self.0.binary_search_by(|(key, _)| key.cmp(network))
    }

    /// The value of a network.
    pub fn get(&self, network: &Key) -> Option<&T> {
        self.find(network).ok().map(|index| &self.0[index].1)
    }

    fn get_mut(&mut self, network: &Key) -> Option<&mut T> {
        self.find(network).ok().map(|index| &mut self.0[index].1)
    }

    /// The value of a network, which is added when there is none.
    fn entry(&mut self, network: &Key) -> &mut T
    where
        T: Default,
    {
        let index = self.find(network).unwrap_or_else(|index| {
            self.add(index, network, T::default());
            index
        });
        &mut self.0[index].1
    }

    /// Sets the value of a network; returns its former one.
    pub fn insert(&mut self, network: &Key, value: T) -> Option<T> {
        match self.find(network) {
            Ok(index) => Some(std::mem::replace(&mut self.0[index].1, value)),
            Err(index) => {
                self.add(index, network, value);
                None
            }
        }
    }

    fn add(&mut self, index: usize, network: &Key, value: T) {
        let mut all = std::mem::take(&mut self.0).into_vec();
        all.reserve_exact(1);
        all.insert(index, (network.clone(), value));
        self.0 = all.into();
    }

    /// Removes a network; returns its value.
    pub fn remove(&mut self, network: &Key) -> Option<T> {
        let index = self.find(network).ok()?;
        let mut all = std::mem::take(&mut self.0).into_vec();
        let (_, value) = all.remove(index);
        self.0 = all.into();
        Some(value)
    }

    fn iter(&self) -> impl Iterator<Item = (&Key, &T)> {
        self.0.iter().map(|(key, value)| (key, value))
    }

    fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.0.iter_mut().map(|(_, value)| value)
    }

    /// The networks.
    pub fn networks(&self) -> impl Iterator<Item = &Key> {
        self.0.iter().map(|(key, _)| key)
    }

    /// The value of each network.
    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|(_, value)| value)
    }

    /// True when there is no network.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Owners {
    /// All indices, of each network in turn.
    pub fn indices(&self) -> impl Iterator<Item = u16> {
        self.values().flat_map(|place| place.ports.iter().copied())
    }

    /// How the VLAN is led into a VRF.
    pub fn routed(&self) -> Option<&Arc<RoutedInterface>> {
        self.values().find_map(|place| place.routed.as_ref())
    }
}

impl<T> IntoIterator for ByNetwork<T> {
    type Item = (Key, T);
    type IntoIter = std::vec::IntoIter<(Key, T)>;
    fn into_iter(self) -> Self::IntoIter {
        self.0.into_vec().into_iter()
    }
}

/// The placements of a network since the last confirmed one, oldest first, each with the change count at which it
/// ended. No two have the same count.
type History = Vec<(u64, Place)>;

/// The changes that an issued state contains.
#[derive(Clone, Debug)]
pub struct Extent {
    /// The change count up to which changes are contained.
    pub count: u64,
    /// The VLANs whose changes are left out: they are as last confirmed.
    pub without: VlanSet,
}

/// The changes of one switch.
#[derive(Debug, Default)]
pub struct Changes {
    /// The count of the last change. All switches share one counter ([`crate::Engine`]), which grows whenever a state
    /// of any of them is issued.
    count: u64,
    /// The hashes of the last issued states, with what each contains.
    issued: VecDeque<(String, Extent)>,
    /// By VLAN: the networks with a change that is not confirmed yet.
    open_by_vlan: BTreeMap<VlanId, ByNetwork<History>>,
    /// The networks and VLANs with such a change.
    open_by_network: BTreeSet<(Key, VlanId)>,
    /// The VLANs whose wanted placement differs, or may differ, from the confirmed one.
    moved: VlanSet,
    /// The VLANs that may not be where a former leader last commanded them.
    unverified: VlanSet,
}

impl Changes {
    /// Sets the count of the last change.
    pub fn set_count(&mut self, count: u64) {
        self.count = count;
    }

    /// Records that a network no longer wants `vid` as `before`.
    pub fn record_change(&mut self, vid: VlanId, network: &Key, before: Place) {
        let count = self.count;
        let history = self.history(vid, network);
        // Without an issued state in between, no switch has seen the intermediate placement.
        if history.last().is_none_or(|(until, _)| *until < count) {
            // Most have one.
            history.reserve_exact(1);
            history.push((count, before));
        }
    }

    /// The history of a network for this VLAN, created when there is none.
    fn history(&mut self, vid: VlanId, network: &Key) -> &mut History {
        self.open_by_network.insert((network.clone(), vid));
        self.open_by_vlan.entry(vid).or_default().entry(network)
    }

    /// Sets the VLANs whose placement is unknown: a former leader may have commanded them elsewhere. They count as
    /// moved.
    pub fn set_unverified(&mut self, unverified: VlanSet, wanted: &BTreeMap<VlanId, Owners>) {
        let before = std::mem::replace(&mut self.unverified, unverified);
        for vid in before.union(&self.unverified).iter() {
            self.update_moved(vid, wanted.get(&vid));
        }
    }

    /// Recomputes whether `vid` is in [`Self::moved`].
    pub fn update_moved(&mut self, vid: VlanId, wanted: Option<&Owners>) {
        let moved =
            self.open_by_vlan.get(&vid).into_iter().flat_map(ByNetwork::iter).any(|(network, history)| {
                history.first().is_some_and(|(_, confirmed)| confirmed != place_of(wanted, network))
            });
        if moved || self.unverified.contains(vid) {
            self.moved.insert(vid);
        } else {
            self.moved.remove(vid);
        }
    }

    /// The VLANs whose wanted placement differs, or may differ, from the confirmed one.
    pub fn moved(&self) -> &VlanSet {
        &self.moved
    }

    /// Records an issued state: it contains all changes up to `count` except those of the VLANs `without`.
    pub fn record_issued(&mut self, hash: &str, count: u64, without: VlanSet) {
        self.issued.pop_back_if(|(last, _)| last == hash);
        self.issued.push_back((hash.to_owned(), Extent { count, without }));
        if self.issued.len() > MAX_ISSUED {
            self.issued.pop_front();
        }
    }

    /// The content of the issued state with this hash.
    pub fn extent(&self, hash: &str) -> Option<Extent> {
        self.issued.iter().rev().find(|(known, _)| known == hash).map(|(_, extent)| extent.clone())
    }

    /// True when the last issued state leaves out changes that other switches have to decide first.
    pub fn is_partial(&self) -> bool {
        self.issued.back().is_some_and(|(_, extent)| !extent.without.is_empty())
    }

    /// True when a state contains all changes so far.
    pub fn is_complete(&self, extent: &Extent) -> bool {
        extent.count >= self.count && extent.without.is_empty()
    }

    /// Marks a state as confirmed. Returns the networks without open changes now, and the networks and VLANs that it
    /// moved.
    pub fn confirm(
        &mut self,
        extent: &Extent,
        wanted: &BTreeMap<VlanId, Owners>,
    ) -> (BTreeSet<Key>, BTreeSet<(Key, VlanId)>) {
        let (mut settled, mut decided) = (BTreeSet::new(), BTreeSet::new());
        let mut open = BTreeSet::new();
        self.open_by_vlan.retain(|vid, networks| {
            if extent.without.contains(*vid) {
                open.insert(*vid);
                return true;
            }
            for (network, history) in &mut networks.0 {
                let later = history.iter().find(|(until, _)| *until > extent.count);
                let then = later.map_or_else(|| place_of(wanted.get(vid), network), |(_, place)| place);
                if history.first().is_some_and(|(_, confirmed)| confirmed != then) {
                    decided.insert((network.clone(), *vid));
                }
                history.retain(|(until, _)| *until > extent.count);
            }
            let done = networks.values().all(Vec::is_empty);
            if done {
                for (network, _) in std::mem::take(networks) {
                    let open = (network, *vid);
                    self.open_by_network.remove(&open);
                    let (network, _) = open;
                    settled.insert(network);
                }
            } else {
                open.insert(*vid);
            }
            !done
        });
        self.moved = VlanSet::EMPTY;
        for vid in open {
            self.update_moved(vid, wanted.get(&vid));
        }
        (settled, decided)
    }

    /// Takes the placement that a former leader commanded as the confirmed one, until a report shows otherwise.
    pub fn assume_confirmed(&mut self, vid: VlanId, network: &Key, place: Place) {
        let count = self.count;
        let history = self.history(vid, network);
        match history.first_mut() {
            Some((_, confirmed)) => *confirmed = place,
            None => *history = vec![(count, place)],
        }
    }

    /// Takes what was observed on the device as confirmed, while no state of this process is. An observed VLAN
    /// belongs to the network that is known to have had it, else to the one that wants it.
    /// A routed interface that is not there as commanded counts as absent. `on`: the ports, and whether it is there.
    pub fn set_observed(
        &mut self,
        wanted: &BTreeMap<VlanId, Owners>,
        on: impl Fn(VlanId) -> (Indices, bool),
    ) {
        for (vid, networks) in &mut self.open_by_vlan {
            let had = |history: &History| history.first().is_some_and(|(_, confirmed)| !confirmed.is_empty());
            let known = networks.values().any(had);
            for (network, history) in &mut networks.0 {
                let its = if known { had(history) } else { !place_of(wanted.get(vid), network).is_empty() };
                if let Some((_, confirmed)) = history.first_mut().filter(|_| its) {
                    let (ports, is_routed) = on(*vid);
                    // An equal list is shared already.
                    if confirmed.ports != ports {
                        confirmed.ports = ports;
                    }
                    confirmed.routed.take_if(|_| !is_routed);
                }
            }
        }
        let vids: Vec<VlanId> = self.open_by_vlan.keys().copied().collect();
        for vid in vids {
            self.update_moved(vid, wanted.get(&vid));
        }
    }

    /// Other switches confirmed what the network wanted at `count`: this becomes its confirmed placement here, too.
    pub fn adopt_confirmed(&mut self, vid: VlanId, network: &Key, count: u64, wanted: Option<&Owners>) {
        let history = self.open_by_vlan.get_mut(&vid).and_then(|networks| networks.get_mut(network));
        let Some(history) = history else { return };
        if let Some(since) = history.iter().position(|(until, _)| *until > count) {
            history.drain(..since);
        } else {
            let last = history.last().map(|(until, _)| (*until, place_of(wanted, network).clone()));
            *history = last.into_iter().collect();
        }
        self.update_moved(vid, wanted);
    }

    /// Port indices changed: `new` maps an old index to the new one, or to `None` when the port is gone.
    pub fn remap_ports(&mut self, new: impl Fn(u16) -> Option<u16>) {
        for (_, place) in self.open_by_vlan.values_mut().flat_map(ByNetwork::values_mut).flatten() {
            let moved: BTreeSet<u16> = place.ports.iter().filter_map(|port| new(*port)).collect();
            place.ports = moved.into_iter().collect();
        }
    }

    /// True when a change of the VLAN is not confirmed yet.
    pub fn is_open(&self, vid: VlanId) -> bool {
        self.open_by_vlan.contains_key(&vid)
    }

    /// True when a change of the network is not confirmed yet.
    pub fn has_open(&self, network: &Key) -> bool {
        self.open_vlans_of(network).next().is_some()
    }

    /// The VLANs with which the network has a change that is not confirmed yet.
    pub fn open_vlans_of(&self, network: &Key) -> impl Iterator<Item = VlanId> {
        let all = (network.clone(), VlanId::MIN)..=(network.clone(), VlanId::MAX);
        self.open_by_network.range(all).map(|(_, vid)| *vid)
    }

    /// The networks with a change of this VLAN that is not confirmed yet.
    pub fn open_networks(&self, vid: VlanId) -> impl Iterator<Item = &Key> {
        self.open_by_vlan.get(&vid).into_iter().flat_map(ByNetwork::networks)
    }

    /// The VLANs with changes that are not confirmed yet.
    pub fn open_vlans(&self) -> impl Iterator<Item = VlanId> {
        self.open_by_vlan.keys().copied()
    }

    /// Where the network was last confirmed to have the VLAN. `None`: there is no open change, so it is where it wants
    /// it.
    pub fn confirmed(&self, vid: VlanId, network: &Key) -> Option<&Place> {
        let (_, place) = self.open_by_vlan.get(&vid)?.get(network)?.first()?;
        Some(place)
    }

    /// The networks that were last confirmed to have the VLAN, each with its place.
    pub fn confirmed_owners(&self, vid: VlanId, wanted: Option<&Owners>) -> Owners {
        let mut owners = wanted.cloned().unwrap_or_default();
        for (network, history) in self.open_by_vlan.get(&vid).into_iter().flat_map(ByNetwork::iter) {
            match history.first().filter(|(_, confirmed)| !confirmed.is_empty()) {
                Some((_, confirmed)) => drop(owners.insert(network, confirmed.clone())),
                None => drop(owners.remove(network)),
            }
        }
        owners
    }

    /// The networks whose placement an issued state changes. Each comes with its ports of this VLAN before and after,
    /// and whether it has changed again since.
    pub fn changed_by(
        &self,
        extent: &Extent,
        vid: VlanId,
        wanted: Option<&Owners>,
    ) -> impl Iterator<Item = (&Key, BTreeSet<u16>, bool)> {
        let included = !extent.without.contains(vid);
        let count = extent.count;
        let open = self.open_by_vlan.get(&vid).into_iter().filter(move |_| included);
        open.flat_map(ByNetwork::iter).filter_map(move |(network, history)| {
            let (_, confirmed) = history.first()?;
            let later = history.iter().find(|(until, _)| *until > count);
            let then = later.map_or_else(|| place_of(wanted, network), |(_, place)| place);
            let ports = confirmed.ports.iter().chain(&*then.ports).copied().collect();
            (confirmed != then).then_some((network, ports, later.is_some()))
        })
    }
}

fn place_of<'a>(wanted: Option<&'a Owners>, network: &Key) -> &'a Place {
    static NONE: LazyLock<Place> = LazyLock::new(Place::default);
    wanted.and_then(|owners| owners.get(network)).unwrap_or(&NONE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;

    fn on(ports: &[u16]) -> Place {
        Place { ports: ports.into(), routed: None }
    }

    fn vid() -> VlanId {
        VlanId::new(10).unwrap()
    }

    #[test]
    fn confirm_keeps_later_changes_open_and_returns_moved_networks() {
        let network = Key::cluster(Kind::L2Service, &"s".into());
        let mut changes = Changes::default();
        let mut wanted: BTreeMap<VlanId, Owners> = BTreeMap::new();
        let mut want = |changes: &mut Changes, count: u64, ports: &[u16]| {
            let before = wanted.entry(vid()).or_default().insert(&network, on(ports));
            changes.set_count(count);
            changes.record_change(vid(), &network, before.unwrap_or_default());
            changes.update_moved(vid(), wanted.get(&vid()));
            wanted.clone()
        };
        want(&mut changes, 1, &[1]);
        changes.record_issued("a", 1, VlanSet::EMPTY);
        let now = want(&mut changes, 2, &[1, 2]);
        // The first state is confirmed while the second one is wanted.
        let (settled, decided) = changes.confirm(&changes.extent("a").unwrap(), &now);
        assert_eq!((settled, decided.len()), (BTreeSet::new(), 1));
        assert_eq!(changes.confirmed(vid(), &network).map(|place| &*place.ports), Some(&[1][..]));
        changes.record_issued("b", 2, VlanSet::EMPTY);
        want(&mut changes, 3, &[2]);
        // Back to the confirmed placement: the change is open, but no VLAN moves.
        let now = want(&mut changes, 3, &[1]);
        assert!(changes.is_open(vid()) && changes.moved().is_empty());
        changes.record_issued("c", 3, VlanSet::EMPTY);
        let all = changes.extent("c").unwrap();
        assert!(changes.is_complete(&all));
        assert_eq!(changes.changed_by(&all, vid(), now.get(&vid())).count(), 0);
        assert_eq!(changes.confirm(&all, &now).0, BTreeSet::from([network.clone()]));
        assert_eq!(changes.confirmed(vid(), &network), None);
    }

    #[test]
    fn adopt_confirmed_takes_the_placement_wanted_at_that_count() {
        let network = Key::cluster(Kind::L2Service, &"s".into());
        let mut changes = Changes::default();
        let owners = |ports: &[u16]| {
            let mut owners = Owners::default();
            owners.insert(&network, on(ports));
            owners
        };
        // Wanted on port 1 since the count 1, on 2 since 5.
        for (count, before) in [(1, &[][..]), (5, &[1])] {
            changes.set_count(count);
            changes.record_change(vid(), &network, on(before));
        }
        for (count, confirmed) in [(0, &[][..]), (3, &[1]), (6, &[2])] {
            changes.adopt_confirmed(vid(), &network, count, Some(&owners(&[2])));
            assert_eq!(changes.confirmed(vid(), &network).map(|place| &*place.ports), Some(confirmed));
            assert_eq!(changes.moved().is_empty(), count == 6);
        }
        assert!(changes.is_open(vid()), "it has not confirmed anything itself");
    }
}
