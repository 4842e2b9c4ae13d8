//! The last command of each target. An older report on the same state doesn't confirm the command when another state
//! was commanded in between.

use eno_schemas::Generation;

use crate::Target;

use super::Schedule;

/// The last command of one target.
#[derive(Debug)]
pub(crate) struct LastCommanded {
    /// [`eno_schemas::Desired::hash`] of the command.
    hash: String,
    /// Term and sequence of the first generation in the latest run of generations with this hash.
    since: (u64, u64),
}

impl Schedule {
    /// Restores the last command of a former leader.
    pub(crate) fn restore_command(&mut self, target: Target, hash: String) {
        self.slots.entry(target).or_default().last_commanded = Some(LastCommanded { hash, since: (0, 0) });
    }

    /// Records that a generation is commanded.
    pub(crate) fn record_command(&mut self, target: Target, generation: Generation) {
        let last = &mut self.slots.entry(target).or_default().last_commanded;
        if last.as_ref().is_none_or(|last| last.hash != generation.hash) {
            let since = (generation.term, generation.sequence);
            *last = Some(LastCommanded { hash: generation.hash, since });
        }
    }

    /// True when a report is older than the command, although both have the same hash.
    pub(crate) fn is_outdated(&self, target: &Target, generation: &Generation) -> bool {
        let order = (generation.term, generation.sequence);
        let last = self.slots.get(target).and_then(|slot| slot.last_commanded.as_ref());
        last.is_some_and(|last| last.hash == generation.hash && order < last.since)
    }
}
