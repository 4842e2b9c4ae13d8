//! The steps of a reconcile that plans, applies and reads back until a plan has nothing to change. Pure, except for
//! the time that it takes.
//!
//! 1. The driver reads the device and plans.
//! 2. The first plan shows the [drift](Convergence::first_plan).
//! 3. Where drift is only reported, [it stays](Convergence::leaves_drift), and the reconcile ends.
//! 4. The driver applies the plan and [counts](Convergence::count) its changes. Then it reads back and plans again.
//! 5. A plan without changes [ends](Convergence::end) the reconcile.

use std::time::Instant;

use eno_sbi::Reconciled;
use eno_schemas::{Applied, Drift, FabricDesired, Note, Rejection};

use crate::desired::Content;
use crate::report::{BoundedNotes, change_report};

/// Maximum drift notes of one report.
const MAX_DRIFT_NOTES: usize = 32;

/// The content of the desired state that the last reconcile of a device verified in full.
#[derive(Debug, Default)]
pub struct Verified(Option<Content>);

impl Verified {
    /// Starts a reconcile to the desired state with this content.
    pub fn start(&mut self, desired: &FabricDesired, content: &Content) -> Convergence {
        // Another command may be applied in part.
        self.0.take_if(|verified| verified != content);
        Convergence {
            started: Instant::now(),
            was_verified: self.0.is_some(),
            drift_policy: desired.device.drift,
            drift: None,
            counts: None,
        }
    }

    /// The reconcile to this content ended.
    pub fn end(&mut self, content: Content, converged: &Converged) {
        if converged.reconciled.rejected.is_empty() && !converged.drift_stays {
            self.0 = Some(content);
        }
    }
}

/// The memory of one reconcile.
#[derive(Debug)]
pub struct Convergence {
    started: Instant,
    was_verified: bool,
    drift_policy: Drift,
    drift: Option<Vec<Note>>,
    /// The additions and removals; `None`: nothing was changed.
    counts: Option<(usize, usize)>,
}

/// The result of a reconcile.
#[derive(Debug, PartialEq)]
pub struct Converged {
    /// The report.
    pub reconciled: Reconciled,
    /// Drift was left in place, as the drift policy of the FabricDevice says.
    pub drift_stays: bool,
}

impl Convergence {
    /// Remembers what the first plan says of drift. The argument of `drift`: the whole desired state was verified
    /// before, so each difference is drift.
    pub fn first_plan(&mut self, drift: impl FnOnce(bool) -> Vec<Note>) {
        let was_verified = self.was_verified;
        self.drift.get_or_insert_with(|| drift(was_verified));
    }

    /// Differences are drift, which is only reported.
    pub fn leaves_drift(&self) -> bool {
        self.was_verified && self.drift_policy == Drift::Report && self.counts.is_none()
    }

    /// The device was changed.
    pub fn has_changed(&self) -> bool {
        self.counts.is_some()
    }

    /// Counts what a change added and removed.
    pub fn count(&mut self, added: usize, removed: usize) {
        let counts = self.counts.get_or_insert_default();
        *counts = (counts.0 + added, counts.1 + removed);
    }

    /// Ends with the state that was read back. `more`: the message about further drift that has no note of its own.
    pub fn end(
        self,
        applied: Applied,
        rejected: Vec<Rejection>,
        notes: impl IntoIterator<Item = Note>,
        drift_stays: bool,
        more: impl FnOnce(usize) -> String,
    ) -> Converged {
        let mut drift = BoundedNotes::new(MAX_DRIFT_NOTES);
        self.drift.into_iter().flatten().for_each(|note| drift.add(|| note));
        let took = self.started.elapsed();
        let reconciled = Reconciled {
            rejected,
            notes: notes.into_iter().chain(drift.finish(more)).collect(),
            change: self.counts.map(|(added, removed)| change_report(took, added, removed)),
            ..Reconciled::applied(applied)
        };
        Converged { reconciled, drift_stays }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use eno_conformance::fabrics;
    use eno_schemas::{Device, Item, VlanSet};

    use super::*;

    fn end(convergence: Convergence, drift_stays: bool) -> Converged {
        let (ports, carried, before) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let applied = Applied::Fabric {
            vlans: VlanSet::EMPTY,
            ports,
            carried,
            closed: None,
            before,
            vrfs: BTreeSet::new(),
            routed: VlanSet::EMPTY,
            lookup: None,
            bgp: BTreeMap::new(),
        };
        convergence.end(applied, Vec::new(), [], drift_stays, |more| format!("{more} more"))
    }

    #[test]
    fn only_differences_from_a_verified_state_are_left() {
        let mut desired = fabrics::desired("c1", Device::new("leaf1"), "", &[]);
        desired.device.drift = Drift::Report;
        let mut verified = Verified::default();
        let content = |vlans: &str| Content::of(fabrics::desired("c1", Device::new("leaf1"), vlans, &[]));
        for (vlans, drift_stays, is_left) in
            [("1", true, false), ("1", false, false), ("1", false, true), ("2", false, false)]
        {
            let convergence = verified.start(&desired, &content(vlans));
            assert_eq!(convergence.leaves_drift(), is_left, "{vlans} {drift_stays}");
            verified.end(content(vlans), &end(convergence, drift_stays));
        }
        let mut convergence = verified.start(&desired, &content("2"));
        convergence.count(1, 0);
        assert!(!convergence.leaves_drift(), "the rest of a change is no drift");
        desired.device.drift = Drift::Repair;
        assert!(!verified.start(&desired, &content("2")).leaves_drift());
    }

    #[test]
    fn drift_of_the_first_plan_is_noted() {
        let desired = fabrics::desired("c1", Device::new("leaf1"), "", &[]);
        let mut convergence = Verified::default().start(&desired, &Content::of(desired.clone()));
        convergence.first_plan(|_| vec![Note::new("Drift", Item::TARGET, "gone"); 40]);
        convergence.first_plan(|_| panic!("it is not the first"));
        convergence.count(2, 0);
        convergence.count(1, 3);
        let Reconciled { notes, change, .. } = end(convergence, false).reconciled;
        assert_eq!((notes.len(), &*notes[32].message), (33, "8 more"));
        assert_eq!(change.map(|change| (change.added, change.removed)), Some((3, 3)));
    }
}
