//! Since when what is commanded of a target is commanded. A report on the same state from a time before, when something
//! else was commanded in between, doesn't tell that it is there again.

use eno_schemas::Generation;

use crate::Target;

use super::Engine;

/// What is commanded of one target.
#[derive(Debug)]
pub(super) struct LastCommanded {
    hash: String,
    /// Term and sequence of the first of the generations with this hash that no other has come between.
    since: (u64, u64),
}

impl Engine {
    /// A former process commanded this last.
    pub(super) fn restore_command(&mut self, target: Target, hash: String) {
        self.last_commanded.insert(target, LastCommanded { hash, since: (0, 0) });
    }

    /// This is commanded.
    pub(super) fn record_command(&mut self, target: Target, generation: Generation) {
        if self.last_commanded.get(&target).is_none_or(|said| said.hash != generation.hash) {
            let since = (generation.term, generation.sequence);
            self.last_commanded.insert(target, LastCommanded { hash: generation.hash, since });
        }
    }

    /// True when a report on this generation tells nothing of what is commanded though that has the same hash.
    pub(super) fn is_outdated(&self, target: &Target, generation: &Generation) -> bool {
        let order = (generation.term, generation.sequence);
        self.last_commanded.get(target).is_some_and(|said| said.hash == generation.hash && order < said.since)
    }
}
