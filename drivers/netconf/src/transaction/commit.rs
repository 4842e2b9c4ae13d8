//! The end of a commit: confirmed, held until a decision, or cancelled.

use std::time::Duration;

use eno_sbi::{HoldOutcome, Intent, Reconciled};
use eno_schemas::Note;
use tracing::info;

use crate::hello::{Confirmation, Target};
use crate::operation::Operation;
use crate::session::{Call, CallError, Session};
use crate::text::Text;
use crate::transaction::{Transaction, TransactionError, note};

/// Time between the deadline of a transaction and the confirm-timeout, for sending the decision.
const HOLD_MARGIN: Duration = Duration::from_secs(10);
/// Interval of the liveness probes while a change is held.
const HOLD_PROBE: Duration = Duration::from_secs(5);

impl<S: Session> Transaction<'_, S> {
    /// Commits the candidate; `None`: edits go to running directly.
    pub(super) fn commit(&self) -> Option<Call> {
        let held = self.work.time_to_decide();
        let held = if held.is_zero() { held } else { held + HOLD_MARGIN };
        let timeout = u32::try_from(self.confirm_timeout.max(held).as_secs()).unwrap_or(u32::MAX);
        let operation = match (self.profile.target, self.profile.confirmation) {
            (Target::Running, _) => return None,
            (_, Confirmation::Persistent) => {
                Operation::CommitConfirmed { timeout, persist: Some(self.persist_id) }
            }
            (_, Confirmation::Session) => Operation::CommitConfirmed { timeout, persist: None },
            (_, Confirmation::None) => Operation::Commit,
        };
        Some(self.send(operation))
    }

    /// Confirms the pending commit.
    pub(super) async fn confirm(&self) -> Result<(), TransactionError> {
        let persist_id = match self.profile.confirmation {
            Confirmation::Persistent => Some(self.persist_id),
            Confirmation::Session => None,
            Confirmation::None => return Ok(()),
        };
        match self.send(Operation::Confirm { persist_id }).await {
            Ok(_) => Ok(()),
            Err(CallError::Refused { errors, .. }) => Err(TransactionError::NotConfirmed { errors }),
            Err(error) => Err(error.into()),
        }
    }

    /// Cancels the pending commit, if the device supports that.
    pub(super) async fn cancel_commit(&self) -> Result<(), CallError> {
        match self.profile.confirmation {
            Confirmation::Persistent => {
                match self.send(Operation::Cancel { persist_id: self.persist_id }).await {
                    // No commit is pending: it was confirmed, or its timeout has passed.
                    Ok(_) | Err(CallError::Refused { .. }) => Ok(()),
                    Err(error) => Err(error),
                }
            }
            // The commit ends with its session, which does not survive an error.
            Confirmation::Session | Confirmation::None => Ok(()),
        }
    }

    /// Cancels the pending commit of an earlier session by its persist-id, and reads.
    pub(super) async fn cancel_commit_and_read(&self, filter: &str) -> Result<Text, TransactionError> {
        match self.profile.confirmation {
            Confirmation::Persistent => {
                let cancelled = self.send(Operation::Cancel { persist_id: self.persist_id });
                let read = self.read(filter);
                match cancelled.await {
                    Ok(_) => info!("took back a commit that was never confirmed"),
                    // Usually no commit is pending.
                    Err(CallError::Refused { .. }) => {}
                    Err(error) => return Err(error.into()),
                }
                Ok(read.await?)
            }
            // The device rolls back at the end of that session, and denies the lock until then (RFC 6241 section
            // 7.5).
            Confirmation::Session => {
                let read = self.lock(filter).await;
                if read.is_ok() {
                    self.unlock(false).await?;
                }
                read
            }
            Confirmation::None => Ok(self.read(filter).await?),
        }
    }

    /// Reports the change as held and waits for the decision. Returns the outcome and the time waited.
    pub(super) async fn hold(
        &self,
        verified: Reconciled,
    ) -> Result<(HoldOutcome, Duration), TransactionError> {
        let held_since = tokio::time::Instant::now();
        let probing = async {
            loop {
                tokio::time::sleep(HOLD_PROBE).await;
                // An empty filter selects nothing (RFC 6241 section 6.4.2).
                let probe = tokio::time::timeout(HOLD_PROBE, self.read(""));
                match probe.await {
                    Ok(Ok(_) | Err(CallError::Refused { .. })) => {}
                    Ok(Err(CallError::Session(error))) => return error.to_string(),
                    Err(_) => return "the device does not answer".to_owned(),
                }
            }
        };
        let ended = self.session.ended();
        tokio::select! {
            outcome = self.work.hold(verified) => Ok((outcome, held_since.elapsed())),
            reason = probing => Err(TransactionError::LostWhileHeld { reason }),
            () = ended => Err(TransactionError::LostWhileHeld { reason: "the session ended".to_owned() }),
        }
    }

    /// Whether the change is part of a transaction that holds.
    pub(super) fn holds(&self) -> bool {
        matches!(self.intent, Intent::Hold(_))
    }

    /// Copies running to startup, if the device has a startup datastore.
    pub(super) async fn save_startup(&self) -> Result<Option<Note>, CallError> {
        if !self.profile.startup {
            return Ok(None);
        }
        self.work.progress("saving the startup configuration");
        match self.send(Operation::SaveStartup).await {
            Ok(_) => Ok(None),
            Err(CallError::Refused { errors, .. }) => {
                let message =
                    format!("the change runs, but would not survive a restart of the device: {errors}");
                Ok(Some(note("StartupNotSaved", message)))
            }
            Err(error) => Err(error),
        }
    }
}
