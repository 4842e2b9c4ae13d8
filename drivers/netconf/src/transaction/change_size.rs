//! How much a change is. Pure.

use std::time::Duration;

use eno_schemas::ChangeReport;

use crate::plan::Changes;

/// Every part of `planned` is in `missing` too: nothing of it happened.
pub(super) fn is_unchanged(planned: &Changes, missing: &Changes) -> bool {
    planned.create.keys().all(|vid| missing.create.contains_key(vid))
        && planned.delete.is_subset(&missing.delete)
        && planned.ports.iter().all(|(name, change)| {
            // That it is not restored leaves the rest.
            let restored = change.add.is_empty() && change.remove.is_empty() && !change.close;
            let left = missing.ports.get(name).filter(|_| !restored);
            left.is_some_and(|left| change.add.is_subset(&left.add) && change.remove.is_subset(&left.remove))
        })
}

/// How many units a change has: VLANs, and VLANs on ports.
pub(super) fn size(changes: &Changes) -> usize {
    let (added, removed) = both(changes);
    added + removed
}

/// What was made and taken away of `planned`, without what is `missing`.
pub(super) fn report(
    planned: &Changes,
    missing: &Changes,
    transaction: Option<String>,
    took: Duration,
) -> ChangeReport {
    let ((added, removed), (not_added, not_removed)) = (both(planned), both(missing));
    let count = |all: usize, less: usize| u32::try_from(all.saturating_sub(less)).unwrap_or(u32::MAX);
    ChangeReport {
        transaction,
        at: jiff::Timestamp::now().to_string(),
        took_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
        added: count(added, not_added),
        removed: count(removed, not_removed),
    }
}

fn both(changes: &Changes) -> (usize, usize) {
    let ports = changes.ports.values();
    let added: usize = ports.clone().map(|change| change.add.len()).sum();
    let removed: usize = ports.map(|change| change.remove.len()).sum();
    (changes.create.len() + added, changes.delete.len() + removed)
}
