//! Until when this process may work on what it owns, by its own clock.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// What this instance owns for sure, and until when. Who was stopped for a while and goes on finds that it is over
/// before it hears that another instance has taken it.
#[derive(Clone, Debug, Default)]
pub(crate) struct OwnedTargets(Arc<Mutex<HashMap<String, Instant>>>);

impl OwnedTargets {
    /// It is ours until then. False when it was not up to now, so that work on it may have been given up.
    pub fn extend(&self, name: &str, until: Instant) -> bool {
        self.all().insert(name.to_owned(), until).is_some_and(|former| Instant::now() < former)
    }

    /// It is not ours.
    pub fn end(&self, name: &str) {
        self.all().remove(name);
    }

    /// The tenure of one name.
    pub fn of(&self, name: &str) -> TargetOwnership {
        TargetOwnership(Some((self.clone(), name.to_owned())))
    }

    fn all(&self) -> MutexGuard<'_, HashMap<String, Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether one target is ours for sure. By default for ever: there is no other instance.
#[derive(Clone, Debug, Default)]
pub(crate) struct TargetOwnership(Option<(OwnedTargets, String)>);

impl TargetOwnership {
    /// It is ours at this moment.
    pub fn holds(&self) -> bool {
        self.0.as_ref().is_none_or(|(owned_targets, name)| {
            owned_targets.all().get(name).is_some_and(|until| Instant::now() < *until)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn it_ends_by_itself_and_when_it_is_lost() {
        let owned_targets = OwnedTargets::default();
        let (one, now) = (owned_targets.of("one"), Instant::now());
        assert!(!one.holds() && TargetOwnership::default().holds());
        assert!(!owned_targets.extend("one", now + Duration::from_mins(1)), "it is new");
        assert!(one.holds() && !owned_targets.of("two").holds());
        assert!(owned_targets.extend("one", now));
        assert!(!one.holds());
        assert!(!owned_targets.extend("one", now + Duration::from_mins(1)), "it had ended");
        owned_targets.end("one");
        assert!(!one.holds());
        assert!(!owned_targets.extend("one", now + Duration::from_mins(1)), "it was lost");
    }
}
