//! All VLANs of a device as a session last read them. With them, a change reads only the VLANs that it affects.

use std::collections::BTreeMap;

use eno_fabric_driver::desired::desired_vlans;
use eno_schemas::{FabricDesired, VlanId, VlanSet, vlan_name};

use super::{ObservedConfig, ObservedVlan, is_ours};

/// Maximum VLANs that are read one by one. A larger change reads all VLANs.
const MAX_SINGLE_VLANS: usize = 64;

/// All VLANs of a device. Ports are not in it, since every change reads them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Baseline {
    cluster: String,
    /// Our VLANs that forward and have no peculiarity.
    ours: VlanSet,
    others: BTreeMap<VlanId, ObservedVlan>,
    /// The device returned more than one entry for a filter with several names.
    answers_several_names: bool,
}

impl Baseline {
    /// The baseline of a complete read.
    pub fn of(observed: &ObservedConfig, cluster: &str, answers_several_names: bool) -> Self {
        let (mut ours, mut others) = (VlanSet::EMPTY, BTreeMap::new());
        for (vid, vlan) in &observed.vlans {
            if is_ours(vlan, cluster, *vid) && vlan.active && vlan.rename_blocker.is_none() {
                ours.insert(*vid);
            } else {
                others.insert(*vid, vlan.clone());
            }
        }
        Self { cluster: cluster.to_owned(), ours, others, answers_several_names }
    }

    /// The VLANs that differ from the desired state, or may differ. `None`: they can't be read one by one, since they
    /// are too many or the device returns only one.
    pub fn unsettled(&self, desired: &FabricDesired) -> Option<VlanSet> {
        if desired.cluster != self.cluster {
            return None;
        }
        let desired_vlans = desired_vlans(desired);
        let mut unsettled = desired_vlans.difference(&self.ours).union(&self.ours.difference(&desired_vlans));
        unsettled.extend(
            self.others.iter().filter(|(vid, vlan)| is_ours(vlan, &self.cluster, **vid)).map(|(vid, _)| *vid),
        );
        let limit = if self.answers_several_names { MAX_SINGLE_VLANS } else { 1 };
        (unsettled.len() <= limit).then_some(unsettled)
    }

    /// Adds all VLANs that were not `read` to the observed ones.
    pub fn complete(&self, observed: &mut BTreeMap<VlanId, ObservedVlan>, read: &VlanSet) {
        for vid in self.ours.difference(read).iter() {
            observed.entry(vid).or_insert_with(|| ObservedVlan {
                name: Some(vlan_name(&self.cluster, vid)),
                active: true,
                rename_blocker: None,
            });
        }
        for (vid, vlan) in self.others.iter().filter(|(vid, _)| !read.contains(**vid)) {
            observed.entry(*vid).or_insert_with(|| vlan.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::plan::test_states::{desired, set};

    /// VIDs as the text of a set.
    fn vids(vids: &[u16]) -> String {
        vids.iter().map(|id| VlanId::new(*id).unwrap()).collect::<VlanSet>().to_string()
    }

    prop_compose! {
        fn any_observed()(vlans in prop::collection::btree_map(1u16..40, (0u8..4, any::<bool>(), any::<bool>()), 0..30)) -> ObservedConfig {
            let vlan = |(id, (owner, active, rename_blocker)): (u16, (u8, bool, bool))| {
                let vid = VlanId::new(id).unwrap();
                let name = match owner {
                    0 | 1 => Some(vlan_name("c", vid)),
                    2 => Some("other".to_owned()),
                    _ => None,
                };
                (vid, ObservedVlan { name, active, rename_blocker: rename_blocker.then(|| "why".to_owned()) })
            };
            ObservedConfig { vlans: vlans.into_iter().map(vlan).collect(), ..ObservedConfig::default() }
        }
    }

    proptest! {
        /// Reading only unsettled VLANs and completing them gives the same result as reading all.
        #[test]
        fn baseline_completes_to_the_full_state(observed in any_observed(), desired_vlans in prop::collection::vec(1u16..40, 0..30)) {
            let baseline = Baseline::of(&observed, "c", true);
            let read = baseline.unsettled(&desired(&vids(&desired_vlans), &[])).unwrap();
            let mut part = observed.vlans.clone();
            part.retain(|vid, _| read.contains(*vid));
            baseline.complete(&mut part, &read);
            prop_assert_eq!(part, observed.vlans);
        }

        /// The plan changes only unsettled VLANs, whatever else changed on the device.
        #[test]
        fn unsettled_vlans_cover_all_changes(observed in any_observed(), desired_vlans in prop::collection::vec(1u16..40, 0..30)) {
            let desired = desired(&vids(&desired_vlans), &[]);
            let read = Baseline::of(&observed, "c", true).unsettled(&desired).unwrap();
            let changes = super::super::plan(&observed, &desired, &super::super::Exclusions::default()).changes;
            prop_assert!(changes.vlans().is_subset(&read));
        }
    }

    #[test]
    fn many_changes_read_all_vlans() {
        let baseline = Baseline::of(&ObservedConfig::default(), "c", true);
        assert_eq!(baseline.unsettled(&desired("1-65", &[])), None);
        assert_eq!(baseline.unsettled(&desired("5", &[])), Some(set("5")));
        let one = Baseline::of(&ObservedConfig::default(), "c", false);
        assert_eq!(one.unsettled(&desired("5-6", &[])), None);
        assert_eq!(one.unsettled(&desired("5", &[])), Some(set("5")));
        let other = FabricDesired { cluster: "d".into(), ..desired("5", &[]) };
        assert_eq!(baseline.unsettled(&other), None);
    }
}
