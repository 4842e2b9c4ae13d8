//! One command on one device: read, work out the difference, change it in a transaction, read back, confirm.
//!
//! On a device with a candidate and confirmed commit 1.1 (`a | b` are in flight together):
//!
//! ```text
//! get-config                                             nothing to do: that was all
//! lock running | lock candidate | get-config             the difference is worked out again under the locks
//! discard-changes | edit-config | validate               refused: leave out what the errors name, or halve
//! commit confirmed, persist | get-config                 read back; what is not there is left out, or all taken back
//! commit persist-id
//! unlock candidate | unlock running
//! ```
//!
//! The persist-id is the same for each transaction on a device, so that whoever comes next (this process after a
//! dropped session, or another after this one died) can take back a commit that was never confirmed before it
//! reads; otherwise it would find everything there, and the device would roll it back a minute later.

mod culprits;
mod stage;

use std::collections::BTreeSet;
use std::time::Duration;

use eno_sbi::{Reconciled, Work};
use eno_schemas::{Drift, FabricDesired, Failure, Item, Note, Outcome, VlanSet};
use tracing::{debug, info};

use crate::dialect::{Dialect, ParseError};
use crate::hello::{Confirmation, Profile, Target};
use crate::operation::Operation;
use crate::plan::{LeftOut, Plan, Seen, applied, interfaces, plan};
use crate::reply::RpcErrors;
use crate::session::{Call, CallError, Session};

/// How often a denied lock is asked for again within one transaction.
const LOCK_TRIES: u32 = 5;
/// The wait after the first denied lock; it doubles.
const LOCK_WAIT: Duration = Duration::from_millis(150);

/// Why a transaction came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum TransactionError {
    /// A request failed.
    #[error("{0}")]
    Call(#[from] CallError),
    /// The device's configuration can't be read.
    #[error("the device's configuration does not follow its model: {0}")]
    Parse(#[from] ParseError),
    /// Another session holds the lock.
    #[error("the {datastore} configuration is locked by {holder}")]
    Locked {
        /// Which datastore.
        datastore: &'static str,
        /// The session that holds it.
        holder: String,
    },
    /// The device refuses, and not because of single items.
    #[error("{operation} was refused: {errors}")]
    Refused {
        /// The request's element.
        operation: String,
        /// The device's words.
        errors: RpcErrors,
        /// It may pass.
        retryable: bool,
    },
    /// Nothing of an accepted change was there afterwards.
    #[error("the device accepted the change, and nothing of it reads back; it was taken back")]
    NotThere,
}

impl TransactionError {
    /// Another try by itself may help.
    pub fn retryable(&self) -> bool {
        match self {
            Self::Call(CallError::Session(_)) | Self::Locked { .. } => true,
            Self::Call(CallError::Refused { errors, .. }) => may_pass(errors),
            Self::Refused { retryable, .. } => *retryable,
            Self::Parse(_) | Self::NotThere => false,
        }
    }

    /// The session is of no use any more.
    pub fn ends_session(&self) -> bool {
        matches!(self, Self::Call(CallError::Session(_)))
    }

    /// The session has to go, so that the device lets go of what it holds for it.
    pub fn taints_session(&self) -> bool {
        !matches!(self, Self::Locked { .. })
    }

    /// As a report has it.
    pub fn failure(&self) -> Failure {
        Failure { reason: self.to_string(), retryable: self.retryable(), unreachable: self.ends_session() }
    }
}

/// Errors that speak of the moment and not of the request.
fn may_pass(errors: &RpcErrors) -> bool {
    ["in-use", "lock-denied", "resource-denied"].iter().any(|tag| errors.tagged(tag).is_some())
}

/// What a transaction is about.
pub struct Transaction<'a, S> {
    /// The device.
    pub session: &'a S,
    /// Its dialect.
    pub dialect: &'a dyn Dialect,
    /// How it is changed.
    pub profile: Profile,
    /// The command.
    pub work: &'a Work,
    /// What the command wants.
    pub desired: &'a FabricDesired,
    /// The name of a pending commit on this device: the same for all transactions of this target.
    pub persist_id: &'a str,
    /// After how long the device takes back what was not confirmed.
    pub confirm_timeout: Duration,
}

/// How a session begins, for [`Transaction::run`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Circumstances {
    /// A commit of an earlier session may be waiting for its confirmation.
    pub may_be_pending: bool,
    /// All of this command was verified before: a difference is drift.
    pub was_verified: bool,
}

impl<S: Session> Transaction<'_, S> {
    /// Brings the device to the desired state.
    pub async fn run(&self, circumstances: Circumstances) -> Result<Reconciled, TransactionError> {
        let filter = self.dialect.filter(&interfaces(self.desired));
        let mut left_out = LeftOut::default();

        let cancelled = (circumstances.may_be_pending
            && self.profile.confirmation == Confirmation::Persistent)
            .then(|| self.send(&Operation::Cancel { persist_id: self.persist_id }));
        let read = self.read(&filter);
        if let Some(cancelled) = cancelled {
            match cancelled.await {
                Ok(_) => info!("took back a commit that was never confirmed"),
                // The usual case: none is pending.
                Err(CallError::Refused { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let mut inventory = None;
        let seen = self.complete(self.dialect.parse(&read.await?)?, &mut inventory).await?;
        let first = plan(&seen, self.desired, &left_out);
        if first.changes.is_empty() {
            return Ok(self.report(&seen, first));
        }
        let drift = circumstances.was_verified.then(|| drift_note(&first));
        if drift.is_some() && self.desired.device.drift == Drift::Report {
            let mut report = self.report(&seen, first);
            report.notes.extend(drift);
            return Ok(report);
        }
        if !self.work.is_current() {
            return Ok(superseded());
        }

        let locked_read = self.lock(&filter).await?;
        let changed = self.change(&locked_read, &filter, &mut inventory, &mut left_out).await;
        let unlocked = match &changed {
            Err(error) if error.ends_session() => return changed,
            _ => self.unlock(changed.is_err()).await,
        };
        let mut report = changed?;
        if let Err(error) = unlocked {
            // The change is there; the session is not, which its next use shows.
            debug!(%error, "the session ended while unlocking");
        }
        report.notes.extend(drift);
        Ok(report)
    }

    /// All between the locks.
    async fn change(
        &self,
        locked_read: &str,
        filter: &str,
        inventory: &mut Option<BTreeSet<String>>,
        left_out: &mut LeftOut,
    ) -> Result<Reconciled, TransactionError> {
        let seen = self.complete(self.dialect.parse(locked_read)?, inventory).await?;
        loop {
            let Some(planned) = self.stage(&seen, left_out).await? else {
                // Nothing is left to change.
                self.discard().await?;
                let now = match self.profile.target {
                    Target::Candidate => seen,
                    // Halving may have left some of it there.
                    Target::Running => self.reread(filter, inventory).await?,
                };
                return Ok(self.report(&now, plan(&now, self.desired, left_out)));
            };
            if !self.work.is_current() {
                self.discard().await?;
                return Ok(superseded());
            }
            let (committed, read) = (self.commit(), self.read(filter));
            if let Some(committed) = committed {
                match committed.await {
                    Ok(_) => {}
                    Err(CallError::Refused { operation, errors }) => {
                        self.leave_out(
                            &seen,
                            &planned.changes,
                            &operation,
                            errors,
                            stage::Depth::Commit,
                            left_out,
                        )
                        .await?;
                        continue;
                    }
                    Err(error) => return Err(error.into()),
                }
            }
            let verified = self.verify(read, &planned, inventory, left_out).await;
            if matches!(&verified, Err(error) if !error.ends_session()) {
                self.take_back().await?;
            }
            let mut report = verified?;
            report.notes.extend(self.save_startup().await?);
            return Ok(report);
        }
    }

    /// Reads back what was committed, and confirms it.
    async fn verify(
        &self,
        read: Call,
        planned: &Plan,
        inventory: &mut Option<BTreeSet<String>>,
        left_out: &mut LeftOut,
    ) -> Result<Reconciled, TransactionError> {
        let now = self.complete(self.dialect.parse(&read.await?)?, inventory).await?;
        let missing = plan(&now, self.desired, left_out).changes.units();
        if !missing.is_empty() && missing.is_superset(&planned.changes.units()) {
            return Err(TransactionError::NotThere);
        }
        for unit in missing {
            left_out.add(unit, "the device accepted it, but does not show it when read back");
        }
        self.confirm().await?;
        Ok(self.report(&now, plan(&now, self.desired, left_out)))
    }

    /// Locks what the profile needs, all or nothing, and reads under the locks.
    async fn lock(&self, filter: &str) -> Result<String, TransactionError> {
        let mut wait = LOCK_WAIT;
        for attempt in 1.. {
            let asked: Vec<_> =
                self.datastores().iter().map(|name| (*name, self.send(&Operation::Lock(name)))).collect();
            let read = self.read(filter);
            let (mut held, mut denied) = (Vec::new(), None);
            for (datastore, lock) in asked {
                match lock.await {
                    Ok(_) => held.push(datastore),
                    Err(CallError::Refused { errors, .. }) if may_pass(&errors) => {
                        denied.get_or_insert(TransactionError::Locked { datastore, holder: holder(&errors) });
                    }
                    Err(error) => {
                        denied = Some(error.into());
                        break;
                    }
                }
            }
            let Some(denied) = denied else { return Ok(read.await?) };
            for datastore in held.into_iter().rev() {
                self.send(&Operation::Unlock(datastore)).await?;
            }
            if attempt >= LOCK_TRIES || !matches!(denied, TransactionError::Locked { .. }) {
                return Err(denied);
            }
            self.work.progress(format!("{denied}; trying again"));
            tokio::time::sleep(jitter(wait)).await;
            wait *= 2;
        }
        unreachable!("the last attempt returns")
    }

    /// Gives the locks back; `failed`: what is in the candidate is thrown away first.
    async fn unlock(&self, failed: bool) -> Result<(), CallError> {
        let mut calls = Vec::new();
        if failed && self.profile.target == Target::Candidate {
            calls.push(self.send(&Operation::Discard));
        }
        calls.extend(self.datastores().iter().rev().map(|name| self.send(&Operation::Unlock(name))));
        for call in calls {
            match call.await {
                Ok(_) | Err(CallError::Refused { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn datastores(&self) -> &'static [&'static str] {
        match self.profile.target {
            Target::Candidate => &["running", "candidate"],
            Target::Running => &["running"],
        }
    }

    /// Commits the candidate; `None` where an edit is one already.
    fn commit(&self) -> Option<Call> {
        let timeout = u32::try_from(self.confirm_timeout.as_secs()).unwrap_or(u32::MAX);
        let operation = match (self.profile.target, self.profile.confirmation) {
            (Target::Running, _) => return None,
            (_, Confirmation::Persistent) => {
                Operation::CommitConfirmed { timeout, persist: Some(self.persist_id) }
            }
            (_, Confirmation::Session) => Operation::CommitConfirmed { timeout, persist: None },
            (_, Confirmation::None) => Operation::Commit,
        };
        Some(self.send(&operation))
    }

    async fn confirm(&self) -> Result<(), TransactionError> {
        let persist_id = match self.profile.confirmation {
            Confirmation::Persistent => Some(self.persist_id),
            Confirmation::Session => None,
            Confirmation::None => return Ok(()),
        };
        self.send(&Operation::Confirm { persist_id }).await?;
        Ok(())
    }

    /// Takes back what was committed and not confirmed, as far as the device can.
    async fn take_back(&self) -> Result<(), CallError> {
        match self.profile.confirmation {
            Confirmation::Persistent => {
                match self.send(&Operation::Cancel { persist_id: self.persist_id }).await {
                    // None is pending any more: it was confirmed after all, or its time was over.
                    Ok(_) | Err(CallError::Refused { .. }) => Ok(()),
                    Err(error) => Err(error),
                }
            }
            // It ends with its session, which does not outlive an error.
            Confirmation::Session | Confirmation::None => Ok(()),
        }
    }

    async fn save_startup(&self) -> Result<Option<Note>, CallError> {
        if !self.profile.startup {
            return Ok(None);
        }
        self.work.progress("saving the startup configuration");
        match self.send(&Operation::SaveStartup).await {
            Ok(_) => Ok(None),
            Err(CallError::Refused { errors, .. }) => {
                let message =
                    format!("the change runs, but would not survive a restart of the device: {errors}");
                Ok(Some(note("StartupNotSaved", message)))
            }
            Err(error) => Err(error),
        }
    }

    async fn discard(&self) -> Result<(), CallError> {
        match self.profile.target {
            Target::Candidate => self.send(&Operation::Discard).await.map(drop),
            Target::Running => Ok(()),
        }
    }

    async fn reread(
        &self,
        filter: &str,
        inventory: &mut Option<BTreeSet<String>>,
    ) -> Result<Seen, TransactionError> {
        let reply = self.read(filter).await?;
        self.complete(self.dialect.parse(&reply)?, inventory).await
    }

    /// Adds the interfaces that exist and are not configured, which are asked for once.
    async fn complete(
        &self,
        mut seen: Seen,
        inventory: &mut Option<BTreeSet<String>>,
    ) -> Result<Seen, TransactionError> {
        let asked = interfaces(self.desired);
        let absent: BTreeSet<&str> =
            asked.into_iter().filter(|name| !seen.ports.contains_key(*name)).collect();
        if absent.is_empty() {
            return Ok(seen);
        }
        let names = if let Some(names) = inventory {
            names
        } else {
            let filter = self.dialect.inventory_filter(&absent);
            let reply = self.send(&Operation::Get { filter: &filter }).await?;
            inventory.insert(self.dialect.parse_inventory(&reply)?)
        };
        for name in absent.into_iter().filter(|name| names.contains(*name)) {
            seen.ports.insert(name.to_owned(), crate::plan::SeenPort::default());
        }
        Ok(seen)
    }

    fn read(&self, filter: &str) -> Call {
        self.send(&Operation::GetConfig { source: "running", filter })
    }

    fn send(&self, operation: &Operation<'_>) -> Call {
        self.session.call(operation.xml())
    }

    fn report(&self, seen: &Seen, plan: Plan) -> Reconciled {
        let mut report = Reconciled::applied(applied(seen, self.desired));
        report.rejected = plan.rejected;
        report.notes = plan.notes;
        if self.profile.confirmation == Confirmation::None {
            let why = match self.profile.target {
                Target::Candidate => "the device can't take back a commit by itself",
                Target::Running => {
                    "the device has no candidate configuration, and can't take back a change by itself"
                }
            };
            report.notes.push(note("NoConfirmedCommit", why.to_owned()));
        }
        report
    }
}

/// A newer command came, or the process is to stop, before anything was committed.
fn superseded() -> Reconciled {
    Reconciled {
        outcome: Outcome::Progress {
            message: "given up before the commit, for a newer command or a stop".into(),
        },
        applied: None,
        rejected: Vec::new(),
        notes: Vec::new(),
        device: None,
        change: None,
    }
}

fn note(kind: &str, message: String) -> Note {
    Note { kind: kind.to_owned(), item: Item::TARGET, message }
}

fn drift_note(plan: &Plan) -> Note {
    let changes = &plan.changes;
    let made: VlanSet = changes.make.keys().copied().collect();
    let mut what = Vec::new();
    if !made.is_empty() {
        what.push(format!("VLANs {made} were gone or suspended"));
    }
    if !changes.delete.is_empty() {
        what.push(format!("VLANs {} of ours were there again", changes.delete));
    }
    for (name, change) in &changes.ports {
        if !change.add.is_empty() {
            what.push(format!("{name} had lost {}", change.add));
        }
        if !change.remove.is_empty() {
            what.push(format!("{name} carried {} of ours again", change.remove));
        }
    }
    note("Drift", format!("the device was changed by another hand: {}", what.join("; ")))
}

/// Who holds a lock, in words.
fn holder(errors: &RpcErrors) -> String {
    match errors.tagged("lock-denied").and_then(|error| error.info("session-id")) {
        // RFC 6241 section 7.5.
        Some("0") => {
            "something that is no NETCONF session (session 0), such as a person at its console, or changes \
                      that nobody committed or discarded"
                .into()
        }
        Some(id) => format!("session {id}"),
        None => format!("another session ({errors})"),
    }
}

/// Between half and all of `wait`, so that those who met once do not meet again.
fn jitter(wait: Duration) -> Duration {
    use std::hash::{BuildHasher as _, RandomState};
    let percent = u32::try_from(RandomState::new().hash_one(()) % 50).unwrap_or(0);
    wait / 2 + wait * percent / 100
}
