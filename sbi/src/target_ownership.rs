//! How long this process may work on the targets that it leases, by its own clock.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// The leased targets with the expiry of their leases. A process that was suspended sees the expiry before it
/// learns that another instance took over.
#[derive(Clone, Debug, Default)]
pub(crate) struct OwnedTargets(Arc<Mutex<HashMap<String, Instant>>>);

impl OwnedTargets {
    /// Sets the expiry of a lease. False when the lease was not valid up to now, so that work on the target
    /// may have been cancelled.
    pub fn renew(&self, name: &str, until: Instant) -> bool {
        self.lock_targets().insert(name.to_owned(), until).is_some_and(|former| Instant::now() < former)
    }

    /// Ends the ownership of a target.
    pub fn revoke(&self, name: &str) {
        self.lock_targets().remove(name);
    }

    /// A handle that tells whether this target is owned.
    pub fn ownership_of(&self, name: &str) -> TargetOwnership {
        TargetOwnership(Some((self.clone(), name.to_owned())))
    }

    fn lock_targets(&self) -> MutexGuard<'_, HashMap<String, Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether this process owns one target. The default is always valid: there is no other instance.
#[derive(Clone, Debug, Default)]
pub(crate) struct TargetOwnership(Option<(OwnedTargets, String)>);

impl TargetOwnership {
    /// True while the lease has not expired.
    pub fn is_valid(&self) -> bool {
        self.0.as_ref().is_none_or(|(owned_targets, name)| {
            owned_targets.lock_targets().get(name).is_some_and(|until| Instant::now() < *until)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn ownership_ends_on_expiry_and_revocation() {
        let owned_targets = OwnedTargets::default();
        let (one, now) = (owned_targets.ownership_of("one"), Instant::now());
        assert!(!one.is_valid() && TargetOwnership::default().is_valid());
        assert!(!owned_targets.renew("one", now + Duration::from_mins(1)), "it is new");
        assert!(one.is_valid() && !owned_targets.ownership_of("two").is_valid());
        assert!(owned_targets.renew("one", now));
        assert!(!one.is_valid());
        assert!(!owned_targets.renew("one", now + Duration::from_mins(1)), "it had ended");
        owned_targets.revoke("one");
        assert!(!one.is_valid());
        assert!(!owned_targets.renew("one", now + Duration::from_mins(1)), "it was lost");
    }
}
