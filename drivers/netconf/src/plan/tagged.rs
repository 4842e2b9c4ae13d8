//! The list of tagged VLANs of an interface.

use eno_schemas::{VlanId, VlanSet};

/// The tagged VLANs as the device lists them: inclusive ranges, which may overlap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tagged {
    entries: Vec<(VlanId, VlanId)>,
    /// All VLANs of the entries.
    vlans: VlanSet,
}

impl Tagged {
    /// Adds an entry.
    pub fn push(&mut self, (first, last): (VlanId, VlanId)) {
        self.entries.push((first, last));
        self.vlans.insert_range(first, last);
    }

    /// The entries, in the order of the device.
    pub fn entries(&self) -> &[(VlanId, VlanId)] {
        &self.entries
    }

    /// All VLANs of the entries.
    pub fn vlans(&self) -> &VlanSet {
        &self.vlans
    }

    /// True when there is no entry.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

impl Extend<(VlanId, VlanId)> for Tagged {
    fn extend<I: IntoIterator<Item = (VlanId, VlanId)>>(&mut self, entries: I) {
        entries.into_iter().for_each(|entry| self.push(entry));
    }
}

impl FromIterator<(VlanId, VlanId)> for Tagged {
    fn from_iter<I: IntoIterator<Item = (VlanId, VlanId)>>(entries: I) -> Self {
        let mut tagged = Self::default();
        tagged.extend(entries);
        tagged
    }
}

/// An entry for each range.
impl From<VlanSet> for Tagged {
    fn from(vlans: VlanSet) -> Self {
        Self { entries: vlans.ranges(), vlans }
    }
}
