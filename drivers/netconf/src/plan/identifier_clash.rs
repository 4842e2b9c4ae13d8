//! Detects VLANs under our names that return after their removal: another cluster has our identifier.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use eno_fabric_driver::desired::desired_vlans;
use eno_schemas::{FabricDesired, Report, VlanId, VlanSet};

use super::CLASH;

/// Returns within a session after which a VLAN counts as foreign. A VLAN that is back in a new session may come from
/// an older startup configuration.
const RETURNS_OF_FOREIGN_VLAN: u8 = 2;

/// Detects the clashes on one device.
#[derive(Debug, Default)]
pub struct ClashDetector(Mutex<Memory>);

#[derive(Clone, Debug, Default)]
struct Memory {
    cluster: String,
    /// VLANs that exist and are to be removed.
    leaving: VlanSet,
    /// VLANs that were removed and have not returned.
    removed: VlanSet,
    /// The number of returns by VLAN.
    counts: BTreeMap<VlanId, u8>,
}

impl ClashDetector {
    /// Takes over the clashes that the driver's last report names.
    pub fn restore_from_report(&self, cluster: &str, report: Option<&Report>) {
        let Some(report) = report else { return };
        let mut memory = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        memory.of(cluster);
        let noted = report.notes.iter().filter(|note| note.kind == CLASH).filter_map(|note| note.item.vlan);
        memory.counts.extend(noted.map(|vid| (vid, RETURNS_OF_FOREIGN_VLAN)));
    }

    /// Returns the foreign VLANs among `ours`, which bear our names on the device now.
    pub fn foreign_vlans(&self, ours: &VlanSet, desired: &FabricDesired) -> VlanSet {
        let mut memory = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        memory.of(&desired.cluster);
        let desired_vlans = desired_vlans(desired);
        let back = memory.removed.intersection(ours).difference(&desired_vlans);
        for vid in back.iter() {
            *memory.counts.entry(vid).or_default() += 1;
        }
        memory.removed = memory.removed.difference(ours).difference(&desired_vlans);
        memory.leaving = memory.leaving.union(&ours.difference(&desired_vlans)).difference(&desired_vlans);
        // A foreign VLAN that has gone was removed by its owner.
        memory.counts.retain(|vid, count| {
            !desired_vlans.contains(*vid) && (*count < RETURNS_OF_FOREIGN_VLAN || ours.contains(*vid))
        });
        memory
            .counts
            .iter()
            .filter(|(_, count)| **count >= RETURNS_OF_FOREIGN_VLAN)
            .map(|(vid, _)| *vid)
            .collect()
    }

    /// Returns a copy, for a preview that must not change the counts.
    #[must_use]
    pub fn copy(&self) -> Self {
        Self(Mutex::new(self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()))
    }

    /// A new session began. The device may have booted an older configuration, so returned VLANs prove nothing.
    pub fn session_started(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).removed = VlanSet::EMPTY;
    }

    /// A command ended. `there`: our VLANs after its commit, if known.
    pub fn command_ended(&self, current: Option<&VlanSet>) {
        let mut memory = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let leaving = std::mem::take(&mut memory.leaving);
        if let Some(current) = current {
            memory.removed = memory.removed.union(&leaving.difference(current));
        }
    }
}

impl Memory {
    fn of(&mut self, cluster: &str) {
        if self.cluster != cluster {
            *self = Self { cluster: cluster.to_owned(), ..Self::default() };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::test_states::{desired, set};

    fn desired_state(cluster: &str, vlans: &str) -> FabricDesired {
        FabricDesired { cluster: cluster.into(), ..desired(vlans, &[]) }
    }

    #[test]
    fn vlan_that_returns_twice_belongs_to_another_cluster() {
        let (clash_detector, desired) = (ClashDetector::default(), desired_state("c", "10"));
        for _ in 0..2 {
            assert_eq!(clash_detector.foreign_vlans(&set("10,20"), &desired), set(""));
            // The reads under the locks and after the removal.
            assert_eq!(clash_detector.foreign_vlans(&set("10,20"), &desired), set(""));
            assert_eq!(clash_detector.foreign_vlans(&set("10"), &desired), set(""));
            clash_detector.command_ended(Some(&set("10")));
        }
        assert_eq!(clash_detector.foreign_vlans(&set("10,20-21"), &desired), set("20"));
        clash_detector.command_ended(Some(&set("10,20-21")));
        assert_eq!(clash_detector.foreign_vlans(&set("10,20"), &desired), set("20"));
        // Under another identifier, or once the VLAN is gone, nothing is remembered.
        assert_eq!(clash_detector.foreign_vlans(&set("10"), &desired), set(""));
        assert_eq!(clash_detector.foreign_vlans(&set("10,20"), &desired), set(""));
    }

    #[test]
    fn vlan_restored_by_older_config_is_not_foreign() {
        let (clash_detector, desired) = (ClashDetector::default(), desired_state("c", "10"));
        for _ in 0..4 {
            clash_detector.session_started();
            assert_eq!(clash_detector.foreign_vlans(&set("10,20"), &desired), set(""));
            clash_detector.command_ended(Some(&set("10")));
        }
    }

    #[test]
    fn copy_of_detector_is_independent() {
        let (clash_detector, desired) = (ClashDetector::default(), desired_state("c", "10"));
        for _ in 0..2 {
            assert_eq!(clash_detector.foreign_vlans(&set("10,20"), &desired), set(""));
            clash_detector.command_ended(Some(&set("10")));
        }
        // With 20 desired, it would be ours.
        assert_eq!(clash_detector.copy().foreign_vlans(&set("10,20"), &desired_state("c", "10,20")), set(""));
        assert_eq!(clash_detector.copy().foreign_vlans(&set("10,20"), &desired), set("20"));
        assert_eq!(clash_detector.foreign_vlans(&set("10,20"), &desired), set("20"));
    }

    #[test]
    fn uncommitted_removal_does_not_count_as_return() {
        let (clash_detector, desired) = (ClashDetector::default(), desired_state("c", "10"));
        for _ in 0..4 {
            assert_eq!(clash_detector.foreign_vlans(&set("10,20"), &desired), set(""));
            assert_eq!(clash_detector.foreign_vlans(&set("10"), &desired), set(""));
            // The change was rolled back.
            clash_detector.command_ended(None);
        }
        // A VLAN that is desired in between is ours.
        for _ in 0..4 {
            assert_eq!(clash_detector.foreign_vlans(&set("10,20"), &desired), set(""));
            clash_detector.command_ended(Some(&set("10")));
            assert_eq!(clash_detector.foreign_vlans(&set("10,20"), &desired_state("c", "10,20")), set(""));
            clash_detector.command_ended(Some(&set("10,20")));
        }
    }
}
