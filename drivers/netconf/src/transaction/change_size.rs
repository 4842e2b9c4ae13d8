//! The size of a change. Pure.

use std::time::Duration;

use eno_fabric_driver::report::change_report;
use eno_schemas::ChangeReport;

use crate::plan::Changes;

/// True when every part of `planned` is also in `missing`: the device applied nothing.
pub(super) fn is_unchanged(planned: &Changes, missing: &Changes) -> bool {
    planned.routing.units().all(|unit| missing.routing.units().any(|left| left == unit))
        && planned.create.keys().all(|vid| missing.create.contains_key(vid))
        && planned.delete.is_subset(&missing.delete)
        && planned.ports.iter().all(|(name, change)| {
            // A port that only restores settings does not count.
            let restored = change.add.is_empty() && change.remove.is_empty() && !change.close;
            let left = missing.ports.get(name).filter(|_| !restored);
            left.is_some_and(|left| change.add.is_subset(&left.add) && change.remove.is_subset(&left.remove))
        })
}

/// The number of units of a change: VLANs, VLANs on ports, VRFs, and what leads VLANs into them.
pub(super) fn size(changes: &Changes) -> usize {
    let (added, removed) = added_and_removed(changes);
    added + removed
}

/// The report of a change: the units of `planned` without those of `missing`.
pub(super) fn report(
    planned: &Changes,
    missing: &Changes,
    transaction: Option<String>,
    took: Duration,
) -> ChangeReport {
    let ((added, removed), (not_added, not_removed)) =
        (added_and_removed(planned), added_and_removed(missing));
    let (added, removed) = (added.saturating_sub(not_added), removed.saturating_sub(not_removed));
    ChangeReport { transaction, ..change_report(took, added, removed) }
}

fn added_and_removed(changes: &Changes) -> (usize, usize) {
    let ports = changes.ports.values();
    let added: usize = ports.clone().map(|change| change.add.len()).sum();
    let removed: usize = ports.map(|change| change.remove.len()).sum();
    let (routing_added, routing_removed) = changes.routing.added_and_removed();
    (changes.create.len() + added + routing_added, changes.delete.len() + removed + routing_removed)
}
