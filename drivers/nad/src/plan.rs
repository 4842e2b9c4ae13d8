//! What to do about one NetworkAttachmentDefinition. Pure.

use crate::object::{Content, Seen, Wanted};

/// The next step; after it the object is looked at again.
#[derive(Debug, PartialEq, Eq)]
pub enum Plan<'a> {
    /// Ours, and as it should be.
    Keep(Content),
    /// Not there, and not to be there. A foreign object of that name is not ours to remove.
    Absent,
    /// Nothing of that name is there: make it, unless it appears first.
    Create(&'a Wanted),
    /// It is ours and says something else: apply with force to the object with this uid.
    Update(&'a Wanted, &'a Seen),
    /// Delete the object with this uid.
    Delete(&'a Seen),
    /// It is deleted already and kept by finalizers of others: wait until it is gone.
    AwaitGone(&'a Seen),
    /// Somebody else's: leave it, and say whose.
    Refuse {
        /// In words.
        holder: String,
    },
}

/// Plans for the attachment `owner` (its uid). `wanted: None`: the object is to be gone.
pub fn plan<'a>(owner: &str, wanted: Option<&'a Wanted>, seen: Option<&'a Seen>) -> Plan<'a> {
    match (wanted, seen) {
        (None, Some(seen)) if seen.belongs_to(owner) => match seen.finalizers {
            Some(_) => Plan::AwaitGone(seen),
            None => Plan::Delete(seen),
        },
        (None, _) => Plan::Absent,
        (Some(wanted), None) => Plan::Create(wanted),
        (Some(wanted), Some(seen)) => match seen.foreign_to(owner) {
            Some(holder) => Plan::Refuse { holder },
            None if seen.finalizers.is_some() => Plan::AwaitGone(seen),
            None if seen.content == wanted.content() => Plan::Keep(seen.content),
            None => Plan::Update(wanted, seen),
        },
    }
}
