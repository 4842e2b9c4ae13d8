//! The end of a commit: confirmed, held until a decision, or cancelled.

use std::time::Duration;

use eno_sbi::{HoldOutcome, Intent, Reconciled};
use eno_schemas::Note;
use tokio::time::Instant;
use tracing::info;

use crate::hello::{Confirmation, Target};
use crate::operation::Operation;
use crate::plan::{Exclusions, Inventory, Plan, plan, with_new_port_memory};
use crate::session::{Call, CallError, Session};
use crate::text::Text;
use crate::transaction::read::View;
use crate::transaction::{RunContext, Transaction, TransactionError, note};

/// Time between the end of a hold and the rollback by the device, for sending the decision.
const HOLD_MARGIN: Duration = Duration::from_secs(10);
/// Interval of the liveness probes while a change is held.
const HOLD_PROBE: Duration = Duration::from_secs(5);

impl<S: Session> Transaction<'_, S> {
    /// The time that the device gets to wait for the confirmation.
    pub(super) fn rollback_timeout(&self) -> Duration {
        let held = if self.holds() { self.work.time_to_decide() + HOLD_MARGIN } else { Duration::ZERO };
        self.confirm_timeout.max(held)
    }

    /// Commits the candidate; `None`: edits go to running directly.
    pub(super) fn commit(&self, rollback_timeout: Duration) -> Option<Call> {
        let timeout = u32::try_from(rollback_timeout.as_secs()).unwrap_or(u32::MAX);
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

    /// Confirms the pending commit. A commit without a persist-id also succeeds after the device has rolled back, so
    /// it is followed by a read.
    pub(super) async fn confirm(
        &self,
        planned: &Plan,
        excluded: &Exclusions,
        view: &View<'_>,
        inventory: &mut Option<Inventory>,
    ) -> Result<(), TransactionError> {
        let (persist_id, read) = match self.profile.confirmation {
            Confirmation::Persistent => (Some(self.persist_id), false),
            Confirmation::Session => (None, true),
            Confirmation::None => return Ok(()),
        };
        let confirmed = self.send(Operation::Confirm { persist_id });
        let read = read.then(|| self.read(&view.filter));
        match confirmed.await {
            Ok(_) => {}
            Err(CallError::Refused { errors, .. }) => {
                return Err(TransactionError::NotConfirmed { reason: errors.to_string() });
            }
            Err(error) => return Err(error.into()),
        }
        let Some(read) = read else { return Ok(()) };
        let mut now = self.parse(read.await?, view, inventory).await?;
        now.assume_passwords_written();
        let changes = plan(&now, &with_new_port_memory(self.desired, planned), excluded).changes;
        if changes.is_empty() {
            return Ok(());
        }
        Err(TransactionError::NotConfirmed { reason: "it took the change back by itself before".to_owned() })
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

    /// Requests to cancel the commit of an earlier session by its persist-id.
    pub(super) fn cancel_earlier_commit(&self) -> Call {
        self.send(Operation::Cancel { persist_id: self.persist_id })
    }

    /// Whether [`Self::cancel_earlier_commit`] found a pending commit.
    pub(super) async fn was_pending(&self, cancelled: Call) -> Result<bool, CallError> {
        match cancelled.await {
            Ok(_) => {
                info!("took back a commit that was never confirmed");
                Ok(true)
            }
            // Usually no commit is pending.
            Err(CallError::Refused { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Reads, and cancels the pending commit of an earlier session. That commit may take effect at any time. The
    /// cancellation follows the read, so what was read was not pending. A rollback is reported as final, so it is read
    /// under the locks, when no other commit is in progress.
    pub(super) async fn read_and_cancel_commit(
        &self,
        filter: &str,
        context: &RunContext<'_>,
    ) -> Result<Text, TransactionError> {
        match self.profile.confirmation {
            Confirmation::Persistent if !matches!(self.intent, Intent::RollBack { .. }) => {
                let (read, cancelled) = (self.read(filter), self.cancel_earlier_commit());
                Ok(if self.was_pending(cancelled).await? { self.read(filter).await? } else { read.await? })
            }
            // Without a persist-id, the device rolls back at the end of that session, and denies the lock until then
            // (RFC 6241 section 7.5).
            Confirmation::Persistent | Confirmation::Session => {
                let read = self.lock(filter, context).await;
                if read.is_ok() {
                    self.unlock(false).await?;
                }
                read
            }
            Confirmation::None => Ok(self.read(filter).await?),
        }
    }

    /// Reports the change as held and waits for the decision. Returns the outcome and the time waited. The hold ends
    /// before the device rolls back. `rollback_at`: when it does so at the earliest; `None`: nothing is pending.
    pub(super) async fn hold(
        &self,
        verified: Reconciled,
        rollback_at: Option<Instant>,
    ) -> Result<(HoldOutcome, Duration), TransactionError> {
        let held_since = Instant::now();
        let too_late = async {
            match rollback_at {
                Some(at) => tokio::time::sleep_until(at.checked_sub(HOLD_MARGIN).unwrap_or(at)).await,
                None => std::future::pending().await,
            }
        };
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
            () = too_late => {
                let reason = "the device would take the change back by itself before the decision".to_owned();
                Ok((HoldOutcome::Abort { reason }, held_since.elapsed()))
            }
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
