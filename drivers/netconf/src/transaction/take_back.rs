//! Takes back the VLANs whose names the device changed. Under another name a VLAN can't be told from a foreign one, so
//! it must not stay.

use std::collections::BTreeMap;

use eno_schemas::{VlanId, VlanSet};

use crate::plan::{ChangeUnit, Changes, Exclusions, ObservedConfig, Plan, plan};
use crate::session::{Call, CallError, Session};
use crate::text::{REPLACEMENT, excerpt};
use crate::transaction::read::View;
use crate::transaction::{ReadBack, Transaction, TransactionError};

/// Maximum characters of a device's name in a reason.
const MAX_SHOWN: usize = 80;

/// What is needed of the state before a change to verify it and to take it back.
pub(super) struct Before {
    /// The VLANs of another cluster with our identifier.
    pub(super) contested: VlanSet,
    /// The names of the VLANs that the change renames.
    names: BTreeMap<VlanId, Option<String>>,
    /// The VLANs that the change adds to each interface.
    added: BTreeMap<String, VlanSet>,
}

impl Before {
    pub(super) fn of(observed: &ObservedConfig, changes: &Changes) -> Self {
        let created = changes.create.keys().copied();
        let renamed = created.filter_map(|vid| Some((vid, observed.vlans.get(vid)?.into_owned().name)));
        let added = changes.ports.iter().map(|(name, change)| (name.clone(), change.add.clone()));
        Self { contested: observed.contested.clone(), names: renamed.collect(), added: added.collect() }
    }
}

/// Excludes the VLANs whose names the device changed.
pub(super) fn exclude_renamed(verified: &ReadBack, changes: &Changes, excluded: &mut Exclusions) {
    for vid in &verified.renamed {
        let shown = verified.now.vlans.name(*vid).unwrap_or_default();
        let shown = excerpt(&shown, MAX_SHOWN);
        let name = changes.create.get(vid).map(String::as_str).unwrap_or_default();
        let reason = format!(
            "the device can't hold the name {name:?} of the VLAN: it shows {shown:?}. So the VLAN was taken back"
        );
        excluded.add(ChangeUnit::Vlan(*vid), reason);
    }
}

/// The plan without these new VLANs.
pub(super) fn without(mut planned: Plan, vlans: &[VlanId]) -> Plan {
    let left_out: VlanSet = vlans.iter().copied().collect();
    planned.changes.create.retain(|vid, _| !left_out.contains(*vid));
    for change in planned.changes.ports.values_mut() {
        change.add = change.add.difference(&left_out);
    }
    planned
}

impl<S: Session> Transaction<'_, S> {
    /// Takes the renamed VLANs of a change back by an edit. The device does not cancel a commit in its own session, and
    /// without confirmed commit not at all. Returns the read after it.
    pub(super) async fn take_back(
        &self,
        verified: ReadBack,
        before: &Before,
        excluded: &Exclusions,
        view: &View<'_>,
    ) -> Result<Call, TransactionError> {
        let ReadBack { mut now, renamed, .. } = verified;
        now.renamed = renamed.iter().copied().collect();
        let mut desired = self.desired.clone();
        desired.vlans.retain(|vlan| !now.renamed.contains(vlan.vid));
        for port in &mut desired.ports {
            port.vlans = port.vlans.difference(&now.renamed);
        }
        let mut others = excluded.clone();
        others.remove_vlans(&now.renamed);
        let mut changes = plan(&now, &desired, &others).changes;
        // A VLAN that was there before gets its name back.
        for (vid, name) in before.names.iter().filter(|(vid, _)| now.renamed.contains(**vid)) {
            changes.delete.remove(*vid);
            // A name that could not be read as it is, is not written.
            let name = name.clone().filter(|name| !name.contains(REPLACEMENT));
            changes.create.extend(name.map(|name| (*vid, name)));
            for (port, change) in &mut changes.ports {
                if before.added.get(port).is_none_or(|added| !added.contains(*vid)) {
                    change.remove.remove(*vid);
                }
            }
        }
        self.try_changes(&now, &changes).await?;
        let (committed, read) = (self.commit(self.rollback_timeout()), self.read(&view.filter));
        match committed {
            None => Ok(read),
            Some(committed) => match committed.await {
                Ok(_) => Ok(read),
                Err(CallError::Refused { operation, errors }) => {
                    Err(TransactionError::Refused { operation, errors, retryable: false })
                }
                Err(error) => Err(error.into()),
            },
        }
    }
}
