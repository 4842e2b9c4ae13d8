//! Plans the next step for one NetworkAttachmentDefinition. Pure.

use crate::object::{ContentHash, DesiredNad, ObservedNad};

/// The next step. The object is evaluated again after it.
#[derive(Debug, PartialEq, Eq)]
pub enum Plan<'a> {
    /// The object is ours and as desired.
    Keep(ContentHash),
    /// The object does not exist and should not. A foreign object of that name counts as absent.
    Absent,
    /// No object of that name exists: create it, unless one appears first.
    Create(&'a DesiredNad),
    /// The object is ours and differs: apply with force, guarded by its uid.
    Update(&'a DesiredNad, &'a ObservedNad),
    /// Delete the object with this uid.
    Delete(&'a ObservedNad),
    /// The object is being deleted and has finalizers of others: wait until it is gone.
    AwaitGone(&'a ObservedNad),
    /// The object is foreign: leave it and report its owner.
    Refuse {
        /// Description of the owner.
        holder: String,
    },
}

/// Plans for the attachment with the uid `owner`. `wanted: None`: the object is to be deleted.
pub fn plan<'a>(owner: &str, wanted: Option<&'a DesiredNad>, seen: Option<&'a ObservedNad>) -> Plan<'a> {
    match (wanted, seen) {
        (None, Some(seen)) if seen.belongs_to(owner) => match seen.finalizers {
            Some(_) => Plan::AwaitGone(seen),
            None => Plan::Delete(seen),
        },
        (None, _) => Plan::Absent,
        (Some(wanted), None) => Plan::Create(wanted),
        (Some(wanted), Some(seen)) => match seen.foreign_owner(owner) {
            Some(holder) => Plan::Refuse { holder },
            None if seen.finalizers.is_some() => Plan::AwaitGone(seen),
            None if seen.content == wanted.content() => Plan::Keep(seen.content),
            None => Plan::Update(wanted, seen),
        },
    }
}
