//! The commands of targets: which drivers are there to take them, what was commanded last, and what is to be commanded.

pub mod last_commanded;

use std::collections::{BTreeSet, HashMap};

use crate::{Name, Target};

use last_commanded::LastCommanded;

/// The commands of all targets.
#[derive(Debug, Default)]
pub struct Schedule {
    /// The drivers that are alive; an agent as `node/<name>`.
    pub live_drivers: BTreeSet<Name>,
    /// The drivers that can hold a change until its transaction is decided.
    pub holding_drivers: BTreeSet<Name>,
    /// The last command of each target.
    pub last_commanded: HashMap<Target, LastCommanded>,
    /// Targets whose desired state changed.
    pub publish_queue: BTreeSet<Target>,
}
