//! Locks the datastores of the device.

use std::sync::PoisonError;
use std::time::Duration;

use eno_sbi::random_up_to;
use eno_schemas::Note;

use crate::hello::{Confirmation, Target};
use crate::operation::Operation;
use crate::reply::RpcErrors;
use crate::session::{CallError, Session};
use crate::text::Text;
use crate::transaction::error_class::{Class, class};
use crate::transaction::{RunContext, Transaction, TransactionError, note};

/// The datastore whose lock is optional.
const RUNNING: &str = Target::Running.element();
/// Attempts to lock within one transaction.
const LOCK_TRIES: u32 = 5;
/// Wait after the first denied lock; it doubles with each attempt.
const LOCK_WAIT: Duration = Duration::from_millis(150);

/// The kind of the note about a missing lock.
const NO_RUNNING_LOCK: &str = "NoRunningLock";

/// The answer of a device to a lock of the running datastore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunningLock {
    /// It locks it.
    Supported,
    /// It has no such lock. Changes are made without that safeguard.
    Missing,
}

impl<S: Session> Transaction<'_, S> {
    /// The note about a missing lock of the running datastore. Without an attempt, that of the last report holds.
    pub(super) fn missing_lock_note(&self) -> Option<Note> {
        let tried = *self.running_lock.lock().unwrap_or_else(PoisonError::into_inner);
        let reported = || {
            let report = self.work.reported()?;
            report.notes.iter().find(|note| note.kind == NO_RUNNING_LOCK).cloned()
        };
        match tried {
            None => reported(),
            Some(RunningLock::Supported) => None,
            Some(RunningLock::Missing) => {
                let why = "the device can't lock its running configuration, so another manager may change it while \
                           ENO does";
                Some(note(NO_RUNNING_LOCK, why.to_owned()))
            }
        }
    }

    fn set_running_lock(&self, answer: RunningLock) {
        *self.running_lock.lock().unwrap_or_else(PoisonError::into_inner) = Some(answer);
    }

    /// Takes all locks of the profile or none, and reads under them. A device may lack the lock of its running
    /// datastore, but not that of a candidate, which all sessions share. A commit of an earlier session may take
    /// effect until then. So it is cancelled under the locks, or when it is what denies them.
    pub(super) async fn lock(
        &self,
        filter: &str,
        context: &RunContext<'_>,
    ) -> Result<Text, TransactionError> {
        let may_be_pending = context.may_be_pending && self.profile.confirmation == Confirmation::Persistent;
        let mut wait = LOCK_WAIT;
        let mut checked_candidate = false;
        for attempt in 1.. {
            let pending_locks: Vec<_> =
                self.profile.locks.iter().map(|name| (*name, self.send(Operation::Lock(name)))).collect();
            let cancelled = may_be_pending.then(|| self.cancel_earlier_commit());
            let read = self.read(filter);
            let (mut locked, mut denied) = (Vec::new(), None);
            // The candidate's lock is denied although no session holds it.
            let mut modified = false;
            for (datastore, lock) in pending_locks {
                match lock.await {
                    Ok(_) => {
                        if datastore == RUNNING {
                            self.set_running_lock(RunningLock::Supported);
                        }
                        locked.push(datastore);
                    }
                    Err(CallError::Refused { errors, .. })
                        if datastore == RUNNING && errors.all(Class::Unsupported) =>
                    {
                        self.set_running_lock(RunningLock::Missing);
                    }
                    Err(CallError::Refused { errors, .. }) if is_retryable_lock_error(&errors) => {
                        modified |= datastore == Target::Candidate.element() && !is_of_session(&errors);
                        denied.get_or_insert(TransactionError::Locked {
                            datastore,
                            holder: holder(&errors, context),
                        });
                    }
                    // The device releases the locks at the end of the session.
                    Err(error @ CallError::Session(_)) => return Err(error.into()),
                    Err(error) => {
                        denied = Some(error.into());
                        break;
                    }
                }
            }
            if let Some(cancelled) = cancelled {
                self.was_pending(cancelled).await?;
            }
            let Some(denied) = denied else { return Ok(read.await?) };
            for datastore in locked.into_iter().rev() {
                self.send(Operation::Unlock(datastore)).await?;
            }
            if modified
                && !std::mem::replace(&mut checked_candidate, true)
                && self.discard_stale_candidate().await?
            {
                continue;
            }
            if attempt >= LOCK_TRIES || !matches!(denied, TransactionError::Locked { .. }) {
                return Err(denied);
            }
            self.work.progress(format!("{denied}; trying again"));
            // The jitter keeps two drivers from colliding again.
            tokio::time::sleep(wait / 2 + random_up_to(wait / 2)).await;
            wait *= 2;
        }
        unreachable!("the last attempt returns")
    }

    /// Releases the locks. `failed`: discards the candidate first.
    pub(super) async fn unlock(&self, failed: bool) -> Result<(), CallError> {
        let mut calls = Vec::new();
        if failed && self.profile.target == Target::Candidate {
            calls.push(self.send(Operation::Discard));
        }
        calls.extend(self.profile.locks.iter().rev().map(|name| self.send(Operation::Unlock(name))));
        for call in calls {
            match call.await {
                Ok(_) | Err(CallError::Refused { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Somebody holds the lock, or left changes in the candidate. Some devices report that as `operation-failed` (RFC
/// 6241 section 8.3.5.2: a modified candidate can't be locked), others by a message only.
fn is_retryable_lock_error(errors: &RpcErrors) -> bool {
    let may_pass = |class| matches!(class, Class::Failed | Class::Unknown);
    errors.are_transient() || errors.0.iter().all(|error| may_pass(class(error)))
}

/// Describes the holder of a lock and the admin's remedy.
fn holder(errors: &RpcErrors, context: &RunContext<'_>) -> String {
    const LEFT: &str = "changes in it that nobody committed or discarded. They are not this cluster's alone and stay: \
                        their author commits them, or <discard-changes> in any session discards them";
    match errors.tagged("lock-denied").and_then(|error| error.info("session-id")) {
        // RFC 6241 section 7.5.
        Some("0") => {
            format!(
                "something that is no NETCONF session (session 0), such as a person at its console, or {LEFT}"
            )
        }
        Some(id) if id.parse().ok().is_some_and(|id| context.earlier_session == Some(id)) => {
            format!("session {id}, an earlier session of this driver that the device has not ended yet")
        }
        Some(id) => format!("session {id}"),
        None => format!("another session, or by {LEFT} ({errors})"),
    }
}

/// Whether a NETCONF session holds the lock.
fn is_of_session(errors: &RpcErrors) -> bool {
    let holder = errors.tagged("lock-denied").and_then(|error| error.info("session-id"));
    holder.is_some_and(|session| session != "0")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reply::RpcError;

    #[test]
    fn lock_error_without_holder_is_retryable() {
        let errors = |tags: &[&str]| {
            let error = |tag: &&str| RpcError { tag: (*tag).to_owned(), ..RpcError::default() };
            RpcErrors(tags.iter().map(error).collect())
        };
        assert!(is_retryable_lock_error(&errors(&[""])));
        assert!(is_retryable_lock_error(&errors(&["vendor-specific"])));
        assert!(is_retryable_lock_error(&errors(&["operation-failed"])));
        assert!(is_retryable_lock_error(&errors(&["lock-denied"])));
        assert!(!is_retryable_lock_error(&errors(&["operation-failed", "access-denied"])));
        assert!(!is_retryable_lock_error(&errors(&["operation-not-supported"])));
    }
}
