//! VLANs under our names that come back after they were taken out: another cluster has our identifier.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use eno_schemas::{FabricDesired, Report, VlanId, VlanSet};

use super::CLASH;

/// A VLAN that came back so often within sessions belongs to somebody else. What is back in a new session may be of an
/// older configuration with which the device was started.
const RETURNS_OF_FOREIGN_VLAN: u8 = 2;

/// What is remembered of one device for it.
#[derive(Debug, Default)]
pub struct ClashDetector(Mutex<Memory>);

#[derive(Clone, Debug, Default)]
struct Memory {
    cluster: String,
    /// There, and to be taken out.
    leaving: VlanSet,
    /// Taken out, and not back yet.
    removed: VlanSet,
    /// How often each came back.
    counts: BTreeMap<VlanId, u8>,
}

impl ClashDetector {
    /// Goes on with what the driver's last report says.
    pub fn with_reported_ports(&self, cluster: &str, report: Option<&Report>) {
        let Some(report) = report else { return };
        let mut memory = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        memory.of(cluster);
        let noted = report.notes.iter().filter(|note| note.kind == CLASH).filter_map(|note| note.item.vlan);
        memory.counts.extend(noted.map(|vid| (vid, RETURNS_OF_FOREIGN_VLAN)));
    }

    /// Of the VLANs `ours`, which bear our names on the device now, those that belong to somebody else.
    pub fn foreign_vlans(&self, ours: &VlanSet, desired: &FabricDesired) -> VlanSet {
        let mut memory = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        memory.of(&desired.cluster);
        let desired_vlans: VlanSet = desired.vlans.iter().map(|vlan| vlan.vid).collect();
        let back = memory.removed.intersection(ours).difference(&desired_vlans);
        for vid in back.iter() {
            *memory.counts.entry(vid).or_default() += 1;
        }
        memory.removed = memory.removed.difference(ours).difference(&desired_vlans);
        memory.leaving = memory.leaving.union(&ours.difference(&desired_vlans)).difference(&desired_vlans);
        // Who made it has taken it out again.
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

    /// The same, for somebody whose looks are to leave it as it is.
    #[must_use]
    pub fn copy(&self) -> Self {
        Self(Mutex::new(self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()))
    }

    /// A new session began. The device may have started with an older configuration, so that nobody has brought back
    /// what is there again.
    pub fn session_began(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).removed = VlanSet::EMPTY;
    }

    /// A command ended; what of ours is there for good, if that is known.
    pub fn ended(&self, current: Option<&VlanSet>) {
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
    use eno_schemas::{Device, Drift, FabricVlan};

    use super::*;

    fn set(text: &str) -> VlanSet {
        text.parse().unwrap()
    }

    fn desired(cluster: &str, vlans: &str) -> FabricDesired {
        let device = Device {
            address: String::new(),
            dialect: None,
            credential: None,
            host_key: None,
            drift: Drift::Repair,
            audit_interval: None,
            adopt: VlanSet::EMPTY,
        };
        let vlans = set(vlans).iter().map(|vid| FabricVlan { vid, owners: Vec::new() }).collect();
        FabricDesired { cluster: cluster.into(), cluster_uid: None, device, vlans, ports: Vec::new() }
    }

    #[test]
    fn vlan_that_returns_twice_belongs_to_another_cluster() {
        let (clash_detector, desired_vlans) = (ClashDetector::default(), desired("c", "10"));
        for _ in 0..2 {
            assert_eq!(clash_detector.foreign_vlans(&set("10,20"), &desired_vlans), set(""));
            // Read back under the locks, and once it was taken out.
            assert_eq!(clash_detector.foreign_vlans(&set("10,20"), &desired_vlans), set(""));
            assert_eq!(clash_detector.foreign_vlans(&set("10"), &desired_vlans), set(""));
            clash_detector.ended(Some(&set("10")));
        }
        assert_eq!(clash_detector.foreign_vlans(&set("10,20-21"), &desired_vlans), set("20"));
        clash_detector.ended(Some(&set("10,20-21")));
        assert_eq!(clash_detector.foreign_vlans(&set("10,20"), &desired_vlans), set("20"));
        // Under another identifier, or once it is gone, nothing is known of it.
        assert_eq!(clash_detector.foreign_vlans(&set("10"), &desired_vlans), set(""));
        assert_eq!(clash_detector.foreign_vlans(&set("10,20"), &desired_vlans), set(""));
    }

    #[test]
    fn vlan_restored_by_older_config_is_not_foreign() {
        let (clash_detector, desired_vlans) = (ClashDetector::default(), desired("c", "10"));
        for _ in 0..4 {
            clash_detector.session_began();
            assert_eq!(clash_detector.foreign_vlans(&set("10,20"), &desired_vlans), set(""));
            clash_detector.ended(Some(&set("10")));
        }
    }

    #[test]
    fn copy_of_detector_is_independent() {
        let (clash_detector, desired_vlans) = (ClashDetector::default(), desired("c", "10"));
        for _ in 0..2 {
            assert_eq!(clash_detector.foreign_vlans(&set("10,20"), &desired_vlans), set(""));
            clash_detector.ended(Some(&set("10")));
        }
        // With 20 wanted it would be ours.
        assert_eq!(clash_detector.copy().foreign_vlans(&set("10,20"), &desired("c", "10,20")), set(""));
        assert_eq!(clash_detector.copy().foreign_vlans(&set("10,20"), &desired_vlans), set("20"));
        assert_eq!(clash_detector.foreign_vlans(&set("10,20"), &desired_vlans), set("20"));
    }

    #[test]
    fn uncommitted_removal_does_not_count_as_return() {
        let (clash_detector, desired_vlans) = (ClashDetector::default(), desired("c", "10"));
        for _ in 0..4 {
            assert_eq!(clash_detector.foreign_vlans(&set("10,20"), &desired_vlans), set(""));
            assert_eq!(clash_detector.foreign_vlans(&set("10"), &desired_vlans), set(""));
            // The change was taken back.
            clash_detector.ended(None);
        }
        // What is wanted in between is ours.
        for _ in 0..4 {
            assert_eq!(clash_detector.foreign_vlans(&set("10,20"), &desired_vlans), set(""));
            clash_detector.ended(Some(&set("10")));
            assert_eq!(clash_detector.foreign_vlans(&set("10,20"), &desired("c", "10,20")), set(""));
            clash_detector.ended(Some(&set("10,20")));
        }
    }
}
