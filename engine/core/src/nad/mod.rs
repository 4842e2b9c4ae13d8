//! The NetworkAttachmentDefinitions of attachments: their content, and the pods that use them.

pub mod addresses;
pub mod plan;
pub mod subnets;
pub mod target;
pub mod users;

use std::collections::HashMap;

use crate::{Key, Name};

use target::NadTarget;
use users::Users;

/// The NetworkAttachmentDefinitions of all attachments.
#[derive(Debug, Default)]
pub struct Nads {
    /// By L2ServiceAttachment: its NetworkAttachmentDefinition.
    pub targets: HashMap<Key, NadTarget>,
    /// By pod uid: the L2ServiceAttachments that the pod uses.
    pub attachments_by_pod: HashMap<Name, Vec<Key>>,
    /// The inverse of `attachments_by_pod`.
    pub pods_by_attachment: HashMap<Key, Users>,
}
