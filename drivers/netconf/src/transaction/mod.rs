//! Applies one command to one device: read, plan, edit in a transaction, read back, confirm.
//!
//! On a device with a candidate and confirmed commit 1.1 (`a | b` are in flight together):
//!
//! ```text
//! get-config                                             nothing to do: that was all; left out where this session
//!                                                        verified another command before
//! lock running | lock candidate | get-config             the difference is worked out again under the locks
//! discard-changes | edit-config | validate               refused: exclude the items that the errors name, or bisect
//! commit confirmed, persist | get-config                 read back, for some seconds where it differs; then missing
//!                                                        items are excluded, or all is cancelled
//!                                                        part of a larger transaction: held until that is decided
//! commit persist-id                                      or cancel-commit, get-config
//! unlock candidate | unlock running
//! ```
//!
//! A transaction reads all VLANs and all ports of the command. It reads only the affected VLANs and ports if the session
//! has read all before and the device notifies of foreign changes.
//!
//! VRFs are read beside the VLANs, by a `get-config` that follows each of the above, if the command has to do with them,
//! if the last read found any of ours, and at the first read of each session. So a driver that died after a commit and
//! before its report finds what is left, also when the next command wants no VRF. A switch without VRFs costs one read in
//! each session.
//!
//! All transactions of a device share one persist-id. So the next session can cancel a commit that was never
//! confirmed: of this process after a lost session, or of another process. Otherwise it would read the pending change
//! as present, and the device would roll it back a minute later. Such a commit may still be in progress when the next
//! session begins. So that session asks for it after its first read, and again under the locks.
//!
//! BGP is read after the VRFs, by a `get-config` of its own, if the command has groups, if the last read found any of ours,
//! and at the first read of each session of a device with VRFs.
//!
//! A confirmation without a persist-id proves nothing, since the device may have rolled back before. So it is followed
//! by a read.

mod bisect;
mod change_size;
mod commit;
pub mod drift;
mod error;
mod error_class;
mod lock;
mod read;
mod stage;
mod stale_candidate;
mod take_back;

use std::sync::Mutex;
use std::time::{Duration, Instant};

use eno_sbi::{HoldOutcome, Intent, Reconciled, Work};
use eno_schemas::{Applied, DeviceInfo, Drift, FabricDesired, Item, Note, Preview, VlanId, VlanSet};
use tracing::debug;

use crate::dialect::Dialect;
use crate::hello::{Confirmation, Profile, Target};
use crate::operation::Operation;
use crate::plan::{
    Baseline, Changes, ClashDetector, Exclusions, Inventory, ObservedConfig, Passwords, Plan, applied,
    interfaces, ours, plan, with_new_port_memory,
};
use crate::session::{Call, CallError, Session};
use crate::text::Text;
use crate::transaction::drift::{DriftFound, KnownDeviations};
use crate::transaction::read::View;
use crate::transaction::take_back::{Before, exclude_renamed, without};

pub use error::TransactionError;
pub use lock::RunningLock;

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
    /// All VLANs that were ours at the last report.
    pub own_before: &'a VlanSet,
    /// The VLANs and the ports of the last read.
    pub read_baseline: Mutex<Option<Baseline>>,
    /// The detector of clashes of the cluster identifier.
    pub clash_detector: &'a ClashDetector,
    /// Whether anything of ours was there at the last read of VRFs; `None`: this session has not read any.
    pub own_routing: Mutex<Option<bool>>,
    /// The same of BGP.
    pub own_bgp: Mutex<Option<bool>>,
    /// The passwords of the command's BGP groups.
    pub passwords: &'a Passwords,
    /// Whether the running datastore was locked, or the device can't; `None`: not tried yet.
    pub running_lock: Mutex<Option<RunningLock>>,
}

/// Maximum time for which a read is repeated that differs after a commit, or shows nothing: some devices show a commit
/// late, or boot.
const READ_BACK_TIME: Duration = Duration::from_secs(6);
/// Time until the first repetition; it doubles with each.
const READ_BACK_WAIT: Duration = Duration::from_millis(100);

/// Repeated reads of a device that may show its configuration late.
struct Repetition {
    end: tokio::time::Instant,
    wait: Duration,
}

impl Repetition {
    fn new() -> Self {
        Self { end: tokio::time::Instant::now() + READ_BACK_TIME, wait: READ_BACK_WAIT }
    }

    /// Waits for the next read; false when there is to be none.
    async fn wait(&mut self) -> bool {
        if tokio::time::Instant::now() >= self.end {
            return false;
        }
        tokio::time::sleep(self.wait).await;
        self.wait *= 2;
        true
    }
}

/// The result of reading back after a commit.
struct ReadBack {
    /// The state that was read.
    now: ObservedConfig,
    /// The part of the change that is missing.
    missing: Changes,
    /// The VLANs of the change that have another name than ours.
    renamed: Vec<VlanId>,
}

/// The state of the session before [`Transaction::run`].
#[derive(Clone, Copy, Debug, Default)]
pub struct RunContext<'a> {
    /// A commit of an earlier session may be pending.
    pub may_be_pending: bool,
    /// The deviations at the last verification. Any other difference is drift.
    pub known: Option<&'a KnownDeviations>,
    /// The last request got no reply, and the device may still carry it out. So it is asked under the locks.
    pub interrupted: bool,
    /// The session of this driver before this one.
    pub earlier_session: Option<u32>,
    /// The session verified another command last, so changes are likely. The read before the locks is skipped.
    pub verified_other_command: bool,
    /// All VLANs and the ports as this session last read them, if the device notifies it of changes. It is used only with
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
        let mut view = self.view(context.baseline.filter(|_| skips_first_read));
        let interfaces = interfaces(self.desired);
        let pending_inventory = self.dialect.needs_inventory().then(|| self.request_inventory(&interfaces));
        let first_read = if context.may_be_pending {
            Some(self.read_and_cancel_commit(&view.filter, &context).await?)
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
        let mut drift = DriftFound::default();
        if let Some(read) = first_read {
            let observed = self.parse_first(read, &view, &mut inventory).await?;
            if let Intent::RollBack { reason } = self.intent {
                return Ok(self.rolled_back(reason, &observed));
            }
            drift = self.drift(&observed, &context);
            let first = plan(&observed, self.desired, &self.left(&drift));
            if first.changes.is_empty() && !context.interrupted {
                let mut report = self.report(&observed, first);
                report.notes.extend(drift.notes);
                return self.unchanged(report, &observed).await;
            }
        }
        if !self.work.is_current() {
            return Ok(superseded());
        }

        let locked_read = self.lock(&view.filter, &context).await?;
        let changed = async {
            let observed = if skips_first_read {
                let observed = self.parse_first(locked_read, &view, &mut inventory).await?;
                Box::pin(self.widen(observed, &mut view, &mut inventory)).await?
            } else {
                self.parse(locked_read, &view, &mut inventory).await?
            };
            self.change(observed, &view, &mut inventory, &context, &mut drift, started).await
        };
        let changed = changed.await;
        let unlocked = match &changed {
            Err(error) if error.session_is_unusable() => return changed,
            _ => self.unlock(changed.is_err()).await,
        };
        let mut report = changed?;
        if let Err(error) = unlocked {
            // The change is applied. The next use shows that the session ended.
            debug!(%error, "the session ended while unlocking");
        }
        report.notes.extend(drift.notes);
        Ok(report)
    }

    /// What others changed.
    fn drift(&self, observed: &ObservedConfig, context: &RunContext<'_>) -> DriftFound {
        context.known.map(|known| drift::drift(observed, self.desired, known)).unwrap_or_default()
    }

    /// The units that stay as others changed them.
    fn left(&self, drift: &DriftFound) -> Exclusions {
        let mut left = Exclusions::default();
        if self.desired.device.drift == Drift::Report {
            drift.units.iter().for_each(|unit| left.leave(unit.clone()));
        }
        left
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
        match self.hold(report.clone(), None).await? {
            (HoldOutcome::Confirm, _) => Ok(report),
            (HoldOutcome::Abort { reason }, _) => Ok(self.rolled_back(&reason, observed)),
        }
    }

    /// Parses the first read. A device that boots may show nothing yet. So a device that had VLANs of ours and shows
    /// nothing is read again for some time.
    async fn parse_first(
        &self,
        mut reply: Text,
        view: &View<'_>,
        inventory: &mut Option<Inventory>,
    ) -> Result<ObservedConfig, TransactionError> {
        let mut repeated = Repetition::new();
        loop {
            let observed = self.parse(reply, view, inventory).await?;
            let shows_any = !observed.vlans.is_empty() || observed.ports.values().any(|port| port.configured);
            if shows_any || self.own_before.is_empty() || !repeated.wait().await {
                return Ok(observed);
            }
            self.work.progress("the device shows no configuration: reading again");
            reply = self.read(&view.filter).await?;
        }
    }

    /// Edits, commits and verifies under the locks.
    async fn change(
        &self,
        mut observed: ObservedConfig,
        view: &View<'_>,
        inventory: &mut Option<Inventory>,
        context: &RunContext<'_>,
        drift: &mut DriftFound,
        started: Instant,
    ) -> Result<Reconciled, TransactionError> {
        if self.desired.device.drift == Drift::Report {
            *drift = self.drift(&observed, context);
        }
        let mut excluded = self.left(drift);
        let mut tried_parts = false;
        let (planned, verified, rollback_at) = loop {
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
            let timeout = self.rollback_timeout();
            let rollback_at = tokio::time::Instant::now() + timeout;
            let (committed, read) = (self.commit(timeout), self.read(&view.filter));
            if let Some(committed) = committed {
                match committed.await {
                    Ok(_) => {}
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
                        continue;
                    }
                    Err(error) => return Err(error.into()),
                }
            }
            let before = Before::of(&observed, &planned.changes);
            // The observed state of a full device is large, and another one is read next.
            drop(observed);
            let verified = self.verify(read, &planned, &before, view, inventory, &excluded);
            let verified = match self.or_cancel(verified).await {
                Err(TransactionError::NotReadBack)
                    if self.profile.confirmation == Confirmation::Persistent && !tried_parts =>
                {
                    tried_parts = true;
                    observed = self.reread(view, inventory).await?;
                    let changes = &planned.changes;
                    let exclude =
                        self.exclude_unshown(&observed, changes, view, inventory.as_ref(), &mut excluded);
                    Box::pin(exclude).await?;
                    continue;
                }
                verified => verified?,
            };
            if verified.renamed.is_empty() {
                break (planned, verified, rollback_at);
            }
            exclude_renamed(&verified, &planned.changes, &mut excluded);
            if self.profile.confirmation == Confirmation::Persistent {
                self.cancel_commit().await?;
                observed = self.reread(view, inventory).await?;
            } else {
                let planned = without(planned, &verified.renamed);
                let taken_back = async {
                    let read = self.take_back(verified, &before, &excluded, view).await?;
                    let verified = self.verify(read, &planned, &before, view, inventory, &excluded).await?;
                    if verified.renamed.is_empty() {
                        Ok(verified)
                    } else {
                        Err(TransactionError::NotReadBack)
                    }
                };
                let verified = taken_back.await?;
                break (planned, verified, rollback_at);
            }
        };
        let mut confirming = excluded;
        let confirmed =
            self.hold_and_confirm(verified, planned, &mut confirming, view, inventory, rollback_at, started);
        self.or_cancel(confirmed).await
    }

    /// Cancels the pending commit if `work` fails.
    async fn or_cancel<T>(
        &self,
        work: impl Future<Output = Result<T, TransactionError>>,
    ) -> Result<T, TransactionError> {
        let ended = work.await;
        if matches!(&ended, Err(error) if !error.session_is_unusable()) {
            self.cancel_commit().await?;
        }
        ended
    }

    /// Reads back after the commit. A read that differs is repeated for some time.
    async fn verify(
        &self,
        read: Call,
        planned: &Plan,
        before: &Before,
        view: &View<'_>,
        inventory: &mut Option<Inventory>,
        excluded: &Exclusions,
    ) -> Result<ReadBack, TransactionError> {
        // The port memory of the plan counts from now on.
        let desired = &*with_new_port_memory(self.desired, planned);
        let (mut reply, mut repeated) = (read.await?, Repetition::new());
        loop {
            let mut now = self.parse(reply, view, inventory).await?;
            // Nothing shows which password a device has.
            now.assume_passwords_written();
            // While VLANs were contested, the plan has no removals.
            if !before.contested.is_empty() {
                now.contested.clone_from(&before.contested);
            }
            let missing = plan(&now, desired, excluded).changes;
            let ours = ours(&now, &self.desired.cluster);
            let is_renamed = |vid: &VlanId| now.vlans.contains(*vid) && !ours.contains(*vid);
            let renamed: Vec<VlanId> = planned.changes.create.keys().copied().filter(is_renamed).collect();
            if missing.is_empty() && renamed.is_empty() || !repeated.wait().await {
                let nothing = renamed.is_empty() && change_size::is_unchanged(&planned.changes, &missing);
                if !missing.is_empty() && (nothing || change_size::size(&missing) > MAX_MISSING_UNITS) {
                    return Err(TransactionError::NotReadBack);
                }
                return Ok(ReadBack { now, missing, renamed });
            }
            self.work.progress("the device does not show the change yet: reading again");
            reply = self.read(&view.filter).await?;
        }
    }

    /// Holds the verified change if the intent says so, then confirms or cancels it. `rollback_at`: when the device
    /// takes the commit back at the earliest.
    #[expect(clippy::too_many_arguments, reason = "each is a result of an earlier step")]
    async fn hold_and_confirm(
        &self,
        verified: ReadBack,
        planned: Plan,
        excluded: &mut Exclusions,
        view: &View<'_>,
        inventory: &mut Option<Inventory>,
        rollback_at: tokio::time::Instant,
        started: Instant,
    ) -> Result<Reconciled, TransactionError> {
        let ReadBack { now, missing, .. } = verified;
        for unit in missing.units() {
            excluded.add(unit, stage::NOT_SHOWN);
        }
        let desired = &*with_new_port_memory(self.desired, &planned);
        let mut report = self.report(&now, plan(&now, desired, excluded));
        if planned.changes.leaves_former_role(desired.device.role) {
            // A sub-interface that was removed in the same edit is made by the next one.
            report.rejected.iter_mut().for_each(|rejection| rejection.retryable = true);
        }
        report.applied = Some(applied(&now, desired));
        drop(now);
        let mut waited = Duration::ZERO;
        if self.holds() {
            let pending = (self.profile.confirmation != Confirmation::None).then_some(rollback_at);
            let (outcome, held) = self.hold(report.clone(), pending).await?;
            waited = held;
            match outcome {
                HoldOutcome::Confirm => {}
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
        }
        let confirmed = async {
            self.confirm(&planned, excluded, view, inventory).await?;
            Ok(self.save_startup().await?)
        };
        let confirmed: Result<_, TransactionError> = confirmed.await;
        report.notes.extend(if self.holds() {
            confirmed.map_err(TransactionError::after_decision)?
        } else {
            confirmed?
        });
        let transaction = self.work.command.transaction.as_ref().map(|transaction| transaction.id.clone());
        let took = started.elapsed().saturating_sub(waited);
        report.change = Some(change_size::report(&planned.changes, &missing, transaction, took));
        Ok(report)
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
        report.notes.extend(self.missing_lock_note());
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
