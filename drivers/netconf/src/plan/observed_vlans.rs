//! The VLANs of a device. Those that are as the driver makes them are only a set, so thousands of them cost no more
//! than one.

use std::borrow::Cow;
use std::collections::BTreeMap;

use eno_schemas::{VlanId, VlanSet, is_vlan_name, vlan_name};

/// An observed VLAN.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObservedVlan {
    /// Its name.
    pub name: Option<String>,
    /// The VLAN forwards.
    pub active: bool,
    /// The reason why it can't be renamed, if any.
    pub rename_blocker: Option<String>,
}

impl ObservedVlan {
    /// An active VLAN under the name of this cluster, as the driver makes it.
    pub fn ours(cluster: &str, vid: VlanId) -> Self {
        Self { name: Some(vlan_name(cluster, vid)), active: true, rename_blocker: None }
    }

    /// The VLAN bears the name of this cluster.
    pub(super) fn is_ours(&self, cluster: &str, vid: VlanId) -> bool {
        self.name.as_deref().is_some_and(|name| is_vlan_name(name, cluster, vid))
    }
}

/// All VLANs of a device. A dialect gives each an entry. [`Self::settle`] makes a set of those that are ours and need no
/// change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObservedVlans {
    /// The cluster of the settled VLANs.
    cluster: String,
    /// VLANs that equal [`ObservedVlan::ours`]. They have no entry.
    settled: VlanSet,
    entries: BTreeMap<VlanId, ObservedVlan>,
}

impl ObservedVlans {
    /// Adds or replaces a VLAN.
    pub fn insert(&mut self, vid: VlanId, vlan: ObservedVlan) {
        self.settled.remove(vid);
        self.entries.insert(vid, vlan);
    }

    /// The VLAN of this VID.
    pub fn get(&self, vid: VlanId) -> Option<Cow<'_, ObservedVlan>> {
        let settled =
            || self.settled.contains(vid).then(|| Cow::Owned(ObservedVlan::ours(&self.cluster, vid)));
        self.entries.get(&vid).map(Cow::Borrowed).or_else(settled)
    }

    /// The name of the VLAN of this VID.
    pub fn name(&self, vid: VlanId) -> Option<Cow<'_, str>> {
        let settled = || self.settled.contains(vid).then(|| Cow::Owned(vlan_name(&self.cluster, vid)));
        match self.entries.get(&vid) {
            Some(vlan) => vlan.name.as_deref().map(Cow::Borrowed),
            None => settled(),
        }
    }

    /// Whether the device has a VLAN of this VID.
    pub fn contains(&self, vid: VlanId) -> bool {
        self.settled.contains(vid) || self.entries.contains_key(&vid)
    }

    /// The VIDs of all VLANs.
    pub fn vids(&self) -> VlanSet {
        let mut vids = self.settled.clone();
        vids.extend(self.entries.keys().copied());
        vids
    }

    /// True when there is no VLAN.
    pub fn is_empty(&self) -> bool {
        self.settled.is_empty() && self.entries.is_empty()
    }

    /// All VLANs, ascending.
    pub fn iter(&self) -> impl Iterator<Item = (VlanId, Cow<'_, ObservedVlan>)> {
        let vids: Vec<VlanId> = self.vids().iter().collect();
        vids.into_iter().filter_map(|vid| Some((vid, self.get(vid)?)))
    }

    /// The VLANs under the names of this cluster.
    pub fn ours(&self, cluster: &str) -> VlanSet {
        let mut ours = self.settled(cluster).clone();
        let named = self.entries.iter().filter(|(vid, vlan)| vlan.is_ours(cluster, **vid));
        ours.extend(named.map(|(vid, _)| *vid));
        ours
    }

    /// The VLANs that [`Self::settle`] found to be ours and to need no change.
    pub fn all_settled(&self) -> &VlanSet {
        &self.settled
    }

    /// The VLANs of this cluster that [`Self::settle`] found to need no change.
    pub fn settled(&self, cluster: &str) -> &VlanSet {
        if self.cluster == cluster { &self.settled } else { &VlanSet::EMPTY }
    }

    /// Keeps the VLANs that equal [`ObservedVlan::ours`] of this cluster as a set.
    pub fn settle(&mut self, cluster: &str) {
        if self.cluster != cluster {
            self.entries = self.iter().map(|(vid, vlan)| (vid, vlan.into_owned())).collect();
            (self.cluster, self.settled) = (cluster.to_owned(), VlanSet::EMPTY);
        }
        let settled = &mut self.settled;
        self.entries.retain(|vid, vlan| {
            let is_settled = vlan.is_ours(cluster, *vid) && vlan.active && vlan.rename_blocker.is_none();
            if is_settled {
                settled.insert(*vid);
            }
            !is_settled
        });
    }

    /// Adds all VLANs of `before` that were not `read` now.
    pub(super) fn complete(&mut self, before: &Self, read: &VlanSet) {
        self.settle(&before.cluster);
        self.settled = self.settled.union(&before.settled.difference(read));
        for (vid, vlan) in before.entries.iter().filter(|(vid, _)| !read.contains(**vid)) {
            if !self.settled.contains(*vid) {
                self.entries.entry(*vid).or_insert_with(|| vlan.clone());
            }
        }
        for vid in self.entries.keys() {
            self.settled.remove(*vid);
        }
    }

    /// The VLANs of this cluster that are not settled.
    pub(super) fn unsettled(&self, cluster: &str) -> VlanSet {
        self.ours(cluster).difference(self.settled(cluster))
    }
}

impl FromIterator<(VlanId, ObservedVlan)> for ObservedVlans {
    fn from_iter<I: IntoIterator<Item = (VlanId, ObservedVlan)>>(vlans: I) -> Self {
        BTreeMap::from_iter(vlans).into()
    }
}

impl From<BTreeMap<VlanId, ObservedVlan>> for ObservedVlans {
    fn from(entries: BTreeMap<VlanId, ObservedVlan>) -> Self {
        Self { entries, ..Self::default() }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    prop_compose! {
        /// Any VLANs up to 39: ours, of another name, or without a name.
        pub(in crate::plan) fn any_vlans()(vlans in prop::collection::btree_map(1u16..40, (0u8..4, any::<bool>(), any::<bool>()), 0..30)) -> ObservedVlans {
            let vlan = |(id, (owner, active, rename_blocker)): (u16, (u8, bool, bool))| {
                let vid = VlanId::new(id).unwrap();
                let name = match owner {
                    0 | 1 => Some(vlan_name("c", vid)),
                    2 => Some("other".to_owned()),
                    _ => None,
                };
                (vid, ObservedVlan { name, active, rename_blocker: rename_blocker.then(|| "why".to_owned()) })
            };
            vlans.into_iter().map(vlan).collect()
        }
    }

    fn all(vlans: &ObservedVlans) -> Vec<(VlanId, ObservedVlan)> {
        vlans.iter().map(|(vid, vlan)| (vid, vlan.into_owned())).collect()
    }

    proptest! {
        /// Whether a VLAN is an entry or only in the set makes no difference.
        #[test]
        fn settled_vlans_are_the_same_vlans(entries in any_vlans()) {
            for cluster in ["c", "d"] {
                let mut settled = entries.clone();
                settled.settle(cluster);
                prop_assert_eq!(all(&settled), all(&entries));
                prop_assert_eq!(settled.vids(), entries.vids());
                prop_assert_eq!(settled.is_empty(), entries.is_empty());
                for other in ["c", "d"] {
                    prop_assert_eq!(settled.ours(other), entries.ours(other));
                    prop_assert!(settled.settled(other).is_subset(&entries.ours(other)));
                }
                for vid in (1..40).map(|id| VlanId::new(id).unwrap()) {
                    prop_assert_eq!(settled.contains(vid), entries.contains(vid));
                    prop_assert_eq!(settled.name(vid), entries.name(vid));
                    prop_assert_eq!(settled.get(vid), entries.get(vid));
                }
                settled.settle("c");
                prop_assert_eq!(all(&settled), all(&entries));
            }
        }
    }
}
