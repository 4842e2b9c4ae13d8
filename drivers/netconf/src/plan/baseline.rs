//! The VLANs of a device as a session last saw all of them, so that a change has to read only those that it is about.

use std::collections::BTreeMap;

use eno_schemas::{FabricDesired, VlanId, VlanSet, vlan_name};

use super::{Seen, SeenVlan, is_ours};

/// A change that is about more VLANs reads all of them.
const MOST: usize = 64;

/// All VLANs of a device. It says nothing of ports: these are always read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Baseline {
    cluster: String,
    /// Those that bear our name, forward, and are nothing out of the ordinary.
    ours: VlanSet,
    others: BTreeMap<VlanId, SeenVlan>,
    /// The device has answered a filter with several names with more than one of them.
    answers_several: bool,
}

impl Baseline {
    /// Of all that was seen.
    pub fn of(seen: &Seen, cluster: &str, answers_several: bool) -> Self {
        let (mut ours, mut others) = (VlanSet::EMPTY, BTreeMap::new());
        for (vid, vlan) in &seen.vlans {
            if is_ours(vlan, cluster, *vid) && vlan.active && vlan.fixed.is_none() {
                ours.insert(*vid);
            } else {
                others.insert(*vid, vlan.clone());
            }
        }
        Self { cluster: cluster.to_owned(), ours, others, answers_several }
    }

    /// The VLANs that are not as they are wanted, or may not be; `None`: they can't be read one by one, since they are too
    /// many, or the device may answer only one.
    pub fn in_question(&self, desired: &FabricDesired) -> Option<VlanSet> {
        if desired.cluster != self.cluster {
            return None;
        }
        let wanted: VlanSet = desired.vlans.iter().map(|vlan| vlan.vid).collect();
        let mut in_question = wanted.difference(&self.ours).union(&self.ours.difference(&wanted));
        in_question.extend(
            self.others.iter().filter(|(vid, vlan)| is_ours(vlan, &self.cluster, **vid)).map(|(vid, _)| *vid),
        );
        let most = if self.answers_several { MOST } else { 1 };
        (in_question.len() <= most).then_some(in_question)
    }

    /// Adds to what was read of the VLANs `read` all others.
    pub fn complete(&self, seen: &mut Seen, read: &VlanSet) {
        for vid in self.ours.difference(read).iter() {
            seen.vlans.entry(vid).or_insert_with(|| SeenVlan {
                name: Some(vlan_name(&self.cluster, vid)),
                active: true,
                fixed: None,
            });
        }
        for (vid, vlan) in self.others.iter().filter(|(vid, _)| !read.contains(**vid)) {
            seen.vlans.entry(*vid).or_insert_with(|| vlan.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use eno_schemas::{Device, Drift, FabricVlan};
    use proptest::prelude::*;

    use super::*;

    fn set(vids: &[u16]) -> VlanSet {
        vids.iter().map(|vid| VlanId::new(*vid).unwrap()).collect()
    }

    fn desired(vlans: &VlanSet) -> FabricDesired {
        let device = Device {
            address: String::new(),
            dialect: None,
            credential: None,
            host_key: None,
            drift: Drift::Repair,
            audit_interval: None,
            adopt: VlanSet::EMPTY,
        };
        let vlans = vlans.iter().map(|vid| FabricVlan { vid, owners: Vec::new() }).collect();
        FabricDesired { cluster: "c".into(), cluster_uid: None, device, vlans, ports: Vec::new() }
    }

    prop_compose! {
        fn any_seen()(vlans in prop::collection::btree_map(1u16..40, (0u8..4, any::<bool>(), any::<bool>()), 0..30)) -> Seen {
            let vlan = |(id, (whose, active, fixed)): (u16, (u8, bool, bool))| {
                let vid = VlanId::new(id).unwrap();
                let name = match whose {
                    0 | 1 => Some(vlan_name("c", vid)),
                    2 => Some("other".to_owned()),
                    _ => None,
                };
                (vid, SeenVlan { name, active, fixed: fixed.then(|| "why".to_owned()) })
            };
            Seen { vlans: vlans.into_iter().map(vlan).collect(), ..Seen::default() }
        }
    }

    proptest! {
        /// What is read of the VLANs in question and completed is what reading all would have told.
        #[test]
        fn nothing_is_lost(seen in any_seen(), wanted in prop::collection::vec(1u16..40, 0..30)) {
            let baseline = Baseline::of(&seen, "c", true);
            let read = baseline.in_question(&desired(&set(&wanted))).unwrap();
            let mut part = Seen { vlans: seen.vlans.clone(), ..Seen::default() };
            part.vlans.retain(|vid, _| read.contains(*vid));
            baseline.complete(&mut part, &read);
            prop_assert_eq!(part, seen);
        }

        /// Only what is in question is planned for, whatever else has become of the device.
        #[test]
        fn what_is_in_question_is_all_there_is_to_do(seen in any_seen(), wanted in prop::collection::vec(1u16..40, 0..30)) {
            let desired = desired(&set(&wanted));
            let read = Baseline::of(&seen, "c", true).in_question(&desired).unwrap();
            let changes = super::super::plan(&seen, &desired, &super::super::LeftOut::default()).changes;
            prop_assert!(changes.vlans().is_subset(&read));
        }
    }

    #[test]
    fn many_are_read_all_at_once() {
        let baseline = Baseline::of(&Seen::default(), "c", true);
        let many: VlanSet = (1..=65).map(|id| VlanId::new(id).unwrap()).collect();
        assert_eq!(baseline.in_question(&desired(&many)), None);
        assert_eq!(baseline.in_question(&desired(&set(&[5]))), Some(set(&[5])));
        let one = Baseline::of(&Seen::default(), "c", false);
        assert_eq!(one.in_question(&desired(&set(&[5, 6]))), None);
        assert_eq!(one.in_question(&desired(&set(&[5]))), Some(set(&[5])));
        let other = FabricDesired { cluster: "d".into(), ..desired(&set(&[5])) };
        assert_eq!(baseline.in_question(&other), None);
    }
}
