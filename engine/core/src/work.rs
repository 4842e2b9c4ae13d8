//! What the parts of the engine request of each other.

use std::collections::BTreeSet;

use eno_schemas::VlanId;

use crate::{Effect, Key, Name, Target};

/// Requests of one part to the others. The engine hands each one to the part whose queue it belongs to, before it
/// takes the next work from any queue.
#[derive(Debug, Default)]
pub struct Work {
    /// Objects to be validated.
    pub validate: BTreeSet<Key>,
    /// An input of the decision changed which attachments exclude each other.
    pub trunks: bool,
    /// Networks whose VLAN claims are to be updated.
    pub claim: BTreeSet<Key>,
    /// VLAN IDs whose holders are to be decided.
    pub arbitrate: BTreeSet<VlanId>,
    /// Networks to be placed on switch ports.
    pub place: BTreeSet<Key>,
    /// Pairs of an object and a pod uid: what the one gives to the other is to be planned.
    pub grant: BTreeSet<(Key, Name)>,
    /// Pod uids whose PodNetwork may have changed.
    pub view: BTreeSet<Name>,
    /// Nodes whose labels and extended resources may have changed.
    pub label: BTreeSet<Name>,
    /// Nodes whose switches may have to be asked anew for the ports of probes.
    pub lookup: BTreeSet<Name>,
    /// Objects whose status is to be evaluated.
    pub evaluate: BTreeSet<Key>,
    /// Targets whose desired state changed.
    pub publish: BTreeSet<Target>,
    /// Targets that are gone, and confirmed to be empty.
    pub forget: Vec<Target>,
    /// What the runtime has to do.
    pub effects: Vec<Effect>,
}
