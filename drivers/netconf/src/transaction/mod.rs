//! Applies one command to one device: read, plan, edit in a transaction, read back, confirm.
//!
//! On a device with a candidate and confirmed commit 1.1 (`a | b` are in flight together):
//!
//! ```text
//! get-config                                             nothing to do: that was all; left out where this session
//!                                                        verified another command before
//! lock running | lock candidate | get-config             the difference is worked out again under the locks
//! discard-changes | edit-config | validate               refused: exclude the items that the errors name, or bisect
//! commit confirmed, persist | get-config                 read back; missing items are excluded, or all is cancelled
//!                                                        part of a larger transaction: held until that is decided
//! commit persist-id                                      or cancel-commit, get-config
//! unlock candidate | unlock running
//! ```
//!
//! A transaction reads all VLANs and all ports of the command. It reads only the affected VLANs if the session has
//! read all before and the device notifies of foreign changes.
//!
//! All transactions of a device share one persist-id. So the next session can cancel a commit that was never
//! confirmed: of this process after a lost session, or of another process. Otherwise it would read the pending change
//! as present, and the device would roll it back a minute later.

mod bisect;
mod change_size;
mod commit;
pub mod drift;
mod error;
mod lock;
mod read;
mod stage;
mod stale_candidate;

use std::sync::Mutex;
use std::time::{Duration, Instant};

use eno_sbi::{HoldOutcome, Intent, Reconciled, Work};
use eno_schemas::{Applied, DeviceInfo, Drift, FabricDesired, Item, Note, Preview, VlanSet};
use tracing::debug;

use crate::dialect::Dialect;
use crate::hello::{Confirmation, Profile, Target};
use crate::operation::Operation;
use crate::plan::{
    Baseline, Changes, ClashDetector, Exclusions, Inventory, ObservedConfig, Plan, applied, interfaces, plan,
    with_new_port_memory,
};
use crate::session::{Call, CallError, Session};
use crate::text::Text;
use crate::transaction::drift::KnownDeviations;
use crate::transaction::read::View;

pub use error::TransactionError;
use error::is_transient;

/// Maximum units that may be missing after the commit for the rest to stay.
const MAX_MISSING_UNITS: usize = 512;

/// One command on one device.
pub struct Transaction<'a, S> {
    /// The session with the device.
    pub session: &'a S,
    /// The dialect of the device.
    pub dialect: &'a dyn Dialect,
    /// The datastore, locks and confirmation that the device supports.
    pub profile: Profile,
    /// The work on the command.
    pub work: &'a Work,
    /// The desired state of the command.
    pub desired: &'a FabricDesired,
    /// The persist-id of pending commits, the same for all transactions of this target.
    pub persist_id: &'a str,
    /// The confirm-timeout; a held change gets a longer one.
    pub confirm_timeout: Duration,
    /// Whether to apply, hold or roll back.
    pub intent: &'a Intent<'a>,
    /// The device information for the report.
    pub device: &'a DeviceInfo,
    /// The VLANs of the last read.
    pub read_baseline: Mutex<Option<Baseline>>,
    /// The detector of clashes of the cluster identifier.
    pub clash_detector: &'a ClashDetector,
}

/// The result of reading back after a commit.
struct ReadBack {
    report: Reconciled,
    /// The part of the change that is missing.
    missing: Changes,
}

/// The state of the session before [`Transaction::run`].
#[derive(Clone, Copy, Debug, Default)]
pub struct RunContext<'a> {
    /// A commit of an earlier session may be pending.
    pub may_be_pending: bool,
    /// The deviations at the last verification of this command. Any other difference is drift.
    pub known: Option<&'a KnownDeviations>,
    /// The session verified another command last, so changes are likely. The read before the locks is skipped.
    pub verified_other_command: bool,
    /// All VLANs as this session last read them, if the device notifies it of changes. It is used only with
    /// `verified_other_command`, since a check for drift reads all.
    pub baseline: Option<&'a Baseline>,
}

impl<S: Session> Transaction<'_, S> {
    /// Carries out the intent and reports the state.
    pub async fn run(&self, context: RunContext<'_>) -> Result<Reconciled, TransactionError> {
        if self.holds() && self.profile.confirmation == Confirmation::None {
            return Err(TransactionError::CannotHold);
        }
        let started = Instant::now();
        let is_rollback = matches!(self.intent, Intent::RollBack { .. });
        let skips_first_read = context.verified_other_command && !context.may_be_pending && !is_rollback;
        let view = self.view(context.baseline.filter(|_| skips_first_read));
        let interfaces = interfaces(self.desired);
        let pending_inventory = self.dialect.needs_inventory().then(|| self.request_inventory(&interfaces));
        let first_read = if context.may_be_pending {
            Some(self.cancel_commit_and_read(&view.filter).await?)
        } else if skips_first_read {
            None
        } else {
            Some(self.read(&view.filter).await?)
        };
        let mut inventory = match pending_inventory {
            Some(pending_inventory) => {
                Some(self.parse_inventory(pending_inventory.await?, &interfaces).await?)
            }
            None => None,
        };
        let mut drift = Vec::new();
        if let Some(read) = first_read {
            let observed = self.parse(read, &view, &mut inventory).await?;
            if let Intent::RollBack { reason } = self.intent {
                return Ok(self.rolled_back(reason, &observed));
            }
            drift =
                context.known.map(|known| drift::drift(&observed, self.desired, known)).unwrap_or_default();
            let first = plan(&observed, self.desired, &Exclusions::default());
            let leave = !drift.is_empty() && self.desired.device.drift == Drift::Report;
            if first.changes.is_empty() || leave {
                let mut report = self.report(&observed, first);
                report.notes.extend(drift);
                return self.unchanged(report, &observed).await;
            }
        }
        if !self.work.is_current() {
            return Ok(superseded());
        }

        let locked_read = self.lock(&view.filter).await?;
        let changed = self.change(locked_read, &view, &mut inventory, started).await;
        let unlocked = match &changed {
            Err(error) if error.session_is_unusable() => return changed,
            _ => self.unlock(changed.is_err()).await,
        };
        let mut report = changed?;
        if let Err(error) = unlocked {
            // The change is applied. The next use shows that the session ended.
            debug!(%error, "the session ended while unlocking");
        }
        report.notes.extend(drift);
        Ok(report)
    }

    /// Returns the edits that [`Self::run`] would send. Changes nothing.
    pub async fn preview(&self) -> Result<Preview, TransactionError> {
        let interfaces = interfaces(self.desired);
        let pending_inventory = self.dialect.needs_inventory().then(|| self.request_inventory(&interfaces));
        let view = self.view(None);
        let read = self.read(&view.filter).await?;
        let mut inventory = match pending_inventory {
            Some(pending_inventory) => {
                Some(self.parse_inventory(pending_inventory.await?, &interfaces).await?)
            }
            None => None,
        };
        let observed = self.parse(read, &view, &mut inventory).await?;
        let Plan { changes, rejected, notes, .. } = plan(&observed, self.desired, &Exclusions::default());
        let edits = (!changes.is_empty())
            .then(|| self.dialect.render(&observed, &changes).to_string())
            .into_iter()
            .collect();
        Ok(Preview { edits, rejected, notes, failure: None, device: Some(self.device.clone()) })
    }

    /// Ends a transaction without changes; in a held transaction after its decision.
    async fn unchanged(
        &self,
        report: Reconciled,
        observed: &ObservedConfig,
    ) -> Result<Reconciled, TransactionError> {
        if !self.holds() {
            return Ok(report);
        }
        match self.hold(report.clone()).await? {
            (HoldOutcome::Confirm, _) => Ok(report),
            (HoldOutcome::Abort { reason }, _) => Ok(self.rolled_back(&reason, observed)),
        }
    }

    /// Edits, commits and verifies under the locks.
    async fn change(
        &self,
        locked_read: Text,
        view: &View<'_>,
        inventory: &mut Option<Inventory>,
        started: Instant,
    ) -> Result<Reconciled, TransactionError> {
        let mut excluded = Exclusions::default();
        let observed = self.parse(locked_read, view, inventory).await?;
        let (planned, read) = loop {
            let Some(planned) = self.stage(&observed, &mut excluded).await? else {
                // Every change is excluded.
                self.discard().await?;
                let now = match self.profile.target {
                    Target::Candidate => observed,
                    // Bisection may have changed running.
                    Target::Running => self.reread(view, inventory).await?,
                };
                let report = self.report(&now, plan(&now, self.desired, &excluded));
                return self.unchanged(report, &now).await;
            };
            if !self.work.is_current() {
                self.discard().await?;
                return Ok(superseded());
            }
            let (committed, read) = (self.commit(), self.read(&view.filter));
            let Some(committed) = committed else { break (planned, read) };
            match committed.await {
                Ok(_) => break (planned, read),
                Err(CallError::Refused { operation, errors }) => {
                    // Some devices keep a refused commit pending and deny all locks.
                    self.cancel_commit().await?;
                    self.exclude_refused(
                        &observed,
                        &planned.changes,
                        &operation,
                        errors,
                        stage::Depth::Commit,
                        &mut excluded,
                    )
                    .await?;
                }
                Err(error) => return Err(error.into()),
            }
        };
        // The observed state of a full device is large, and another one is read next.
        let contested = observed.contested.clone();
        drop(observed);
        let ended = match self.verify(read, &planned, contested, view, inventory, &mut excluded).await {
            Ok(verified) => self.hold_and_confirm(verified, planned, view, inventory, started).await,
            Err(error) => Err(error),
        };
        if matches!(&ended, Err(error) if !error.session_is_unusable()) {
            self.cancel_commit().await?;
        }
        ended
    }

    /// Reads back after the commit. While VLANs were `contested`, the plan has no removals.
    async fn verify(
        &self,
        read: Call,
        planned: &Plan,
        contested: VlanSet,
        view: &View<'_>,
        inventory: &mut Option<Inventory>,
        excluded: &mut Exclusions,
    ) -> Result<ReadBack, TransactionError> {
        let mut now = self.parse(read.await?, view, inventory).await?;
        if !contested.is_empty() {
            now.contested = contested;
        }
        // The port memory of the plan counts from now on.
        let desired = &*with_new_port_memory(self.desired, planned);
        let missing = plan(&now, desired, excluded).changes;
        if !missing.is_empty() {
            if change_size::is_unchanged(&planned.changes, &missing)
                || change_size::size(&missing) > MAX_MISSING_UNITS
            {
                return Err(TransactionError::NotReadBack);
            }
            for unit in missing.units() {
                excluded.add(unit, "the device accepted it, but does not show it when read back");
            }
        }
        let mut report = self.report(&now, plan(&now, desired, excluded));
        report.applied = Some(applied(&now, desired));
        Ok(ReadBack { report, missing })
    }

    /// Holds the verified change if the intent says so, then confirms or cancels it.
    async fn hold_and_confirm(
        &self,
        verified: ReadBack,
        planned: Plan,
        view: &View<'_>,
        inventory: &mut Option<Inventory>,
        started: Instant,
    ) -> Result<Reconciled, TransactionError> {
        let ReadBack { mut report, missing } = verified;
        let mut waited = Duration::ZERO;
        let noted = if self.holds() {
            let (outcome, held) = self.hold(report.clone()).await?;
            waited = held;
            match outcome {
                HoldOutcome::Confirm => {
                    self.confirm_and_save().await.map_err(TransactionError::after_decision)?
                }
                HoldOutcome::Abort { reason } if self.profile.confirmation == Confirmation::Session => {
                    return Err(TransactionError::Aborted { reason });
                }
                HoldOutcome::Abort { reason } => {
                    let undone = async {
                        self.cancel_commit().await?;
                        self.reread(view, inventory).await
                    };
                    let now = undone.await.map_err(TransactionError::after_decision)?;
                    return Ok(self.rolled_back(&reason, &now));
                }
            }
        } else {
            self.confirm_and_save().await?
        };
        report.notes.extend(noted);
        let transaction = self.work.command.transaction.as_ref().map(|transaction| transaction.id.clone());
        let took = started.elapsed().saturating_sub(waited);
        report.change = Some(change_size::report(&planned.changes, &missing, transaction, took));
        Ok(report)
    }

    /// Confirms the commit and saves the startup configuration.
    async fn confirm_and_save(&self) -> Result<Option<Note>, TransactionError> {
        self.confirm().await?;
        Ok(self.save_startup().await?)
    }

    async fn discard(&self) -> Result<(), CallError> {
        match self.profile.target {
            Target::Candidate => self.send(Operation::Discard).await.map(drop),
            Target::Running => Ok(()),
        }
    }

    fn read(&self, filter: &str) -> Call {
        self.send(Operation::GetConfig { source: "running", filter: Some(filter) })
    }

    fn send(&self, operation: Operation<'_>) -> Call {
        self.session.call(operation.xml())
    }

    /// The report of a transaction that changed nothing or was rolled back.
    fn rolled_back(&self, reason: &str, now: &ObservedConfig) -> Reconciled {
        let mut current = applied(now, self.desired);
        if let Applied::Fabric { closed: Some(closed), before, .. } = &mut current {
            // The planned port memory does not count.
            let ports = &self.desired.ports;
            closed.extend(ports.iter().filter(|port| port.closed).map(|port| port.name.clone()));
            *before =
                ports.iter().filter_map(|port| Some((port.name.clone(), port.before.clone()?))).collect();
        }
        let mut report = Reconciled::rolled_back(reason.to_owned(), current);
        report.device = Some(self.device.clone());
        report
    }

    fn report(&self, observed: &ObservedConfig, plan: Plan) -> Reconciled {
        let mut report = Reconciled::applied(applied(observed, self.desired));
        report.device = Some(self.device.clone());
        report.rejected = plan.rejected;
        report.notes = plan.notes;
        report.notes.extend(self.dialect.caveat().map(|why| note("Experimental", why.to_owned())));
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

/// The outcome when a newer command or a stop arrives before the commit.
fn superseded() -> Reconciled {
    Reconciled::progress("given up before the commit, for a newer command or a stop")
}

fn note(kind: &str, message: String) -> Note {
    Note::new(kind, Item::TARGET, message)
}
