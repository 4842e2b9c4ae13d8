//! One command to reconcile, its intent at this moment, and the hold of a transaction.

use std::sync::Arc;
use std::time::Duration;

use eno_schemas::{Command, Decision, Generation, Outcome, Report, Transaction};
use tokio::sync::{mpsc, watch};

use crate::driver::Reconciled;
use crate::permit::ConcurrencyPermit;
use crate::target_ownership::TargetOwnership;

/// The capability of drivers that can hold a change. Other drivers get no transactions.
pub const HOLD: &str = "hold";

/// The capability of drivers that read commands in parts. Other drivers get whole commands.
pub const PARTS: &str = "parts";
/// The capability of drivers that know VRFs. Other drivers get none.
pub const VRFS: &str = "vrfs";
/// The capability of drivers that know the BGP groups of VRFs. Other drivers get none.
pub const BGP: &str = "bgp";
/// The capability of drivers that know groups of which any host of a network may be a neighbour.
pub const DYNAMIC_NEIGHBOURS: &str = "dynamicNeighbours";
/// The capability of drivers that answer the lookup of a command. Other drivers are not asked.
pub const LOOKUPS: &str = "lookups";
/// The capability of drivers whose processes visit each other ([`Visits`](crate::Visits)).
pub const VISITS: &str = "visits";

/// The latest command of a target.
#[derive(Clone, Debug, PartialEq)]
pub enum LatestCommand {
    /// This command.
    Command(Arc<Command>),
    /// This process stops working on the target: it shuts down, another instance owns the target, or the
    /// target is gone.
    Stopped,
}

impl LatestCommand {
    /// True when it is newer than the command of this generation.
    pub fn is_newer_than(&self, generation: &Generation) -> bool {
        match self {
            Self::Command(command) => command.generation > *generation,
            Self::Stopped => true,
        }
    }
}

/// The phase of the work on a command.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Phase {
    /// Nothing is held.
    #[default]
    Working,
    /// The change is applied, verified, and can still be rolled back.
    Held(Box<Reconciled>),
    /// The hold ended; with the command that decided it, if one did. That command is the one worked on from
    /// here.
    Settled(Option<Arc<Command>>),
}

/// What a command currently requires of a driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Intent<'a> {
    /// Apply the change.
    Apply,
    /// Apply the change so that it can be rolled back, verify it, [`Work::hold`] it, and do as decided.
    Hold(&'a Transaction),
    /// Roll back what an earlier process may have left held, and change nothing else. Report
    /// [`RolledBack`](eno_schemas::Outcome::RolledBack) with this reason and the state read back.
    RollBack {
        /// Why, as a message.
        reason: String,
    },
}

/// How a transaction ended for one participant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HoldOutcome {
    /// The change is kept.
    Confirm,
    /// The change is to be rolled back.
    Abort {
        /// Why, as a message.
        reason: String,
    },
}

/// The outcome, and the command that decided it.
type Decided = (HoldOutcome, Option<Arc<Command>>);

/// One command to reconcile, with the means to follow newer ones.
#[derive(Clone, Debug)]
pub struct Work {
    /// The latest command of the target when the work began.
    pub command: Arc<Command>,
    /// The target's latest command.
    newest: watch::Receiver<LatestCommand>,
    /// Progress messages to the host.
    progress: mpsc::Sender<String>,
    /// The phase of the work.
    phase: watch::Sender<Phase>,
    /// The last report of the target.
    reported: Option<Arc<Report>>,
    /// The concurrency permit.
    permit: ConcurrencyPermit,
    /// Whether this process owns the target.
    ownership: TargetOwnership,
}

impl Work {
    /// For the host and for tests: `newest` follows the target's latest command.
    pub fn new(
        command: Arc<Command>,
        newest: watch::Receiver<LatestCommand>,
        progress: mpsc::Sender<String>,
    ) -> Self {
        Self {
            command,
            newest,
            progress,
            phase: watch::Sender::default(),
            reported: None,
            permit: ConcurrencyPermit::default(),
            ownership: TargetOwnership::default(),
        }
    }

    /// For previews and tests: no command follows, and nobody hears of the progress.
    pub fn alone(command: impl Into<Arc<Command>>) -> Self {
        let command = command.into();
        let newest = watch::channel(LatestCommand::Command(Arc::clone(&command))).1;
        Self::new(command, newest, mpsc::channel(1).0)
    }

    /// For the host and for tests: follows the phase of the work.
    pub fn phase(&self) -> watch::Receiver<Phase> {
        self.phase.subscribe()
    }

    /// The generation worked on: that of the command that decided it, once one has.
    pub fn generation(&self) -> Generation {
        match &*self.phase.borrow() {
            Phase::Settled(Some(decided)) => decided.generation.clone(),
            _ => self.command.generation.clone(),
        }
    }

    /// Sets the report that was last published for the target.
    #[must_use]
    pub fn with_reported(mut self, report: Option<Report>) -> Self {
        self.reported = report.map(Arc::new);
        self
    }

    /// Sets the concurrency permit of the work.
    pub(crate) fn with_permit(mut self, permit: ConcurrencyPermit) -> Self {
        self.permit = permit;
        self
    }

    /// Sets the ownership of the target.
    pub(crate) fn with_ownership(mut self, ownership: TargetOwnership) -> Self {
        self.ownership = ownership;
        self
    }

    /// Waits for a connection to the target, without a concurrency permit. A device may never answer, so
    /// targets that are being connected to do not count as worked on. Once connected, it waits for a permit.
    pub async fn await_connection<T, E>(
        &self,
        connecting: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        self.permit.release();
        let connected = connecting.await;
        if connected.is_ok() {
            self.permit.reacquire().await;
        }
        connected
    }

    /// The last report of the target, by this process or another; `None`: none, or not known.
    pub fn reported(&self) -> Option<&Report> {
        self.reported.as_deref()
    }

    /// False as soon as a newer command has come or another instance may own the target. A driver checks it
    /// again after it has locked the device and before it commits. After a hold, the decision is worked on.
    pub fn is_current(&self) -> bool {
        let phase = self.phase.borrow();
        let worked_on = if let Phase::Settled(Some(decision)) = &*phase { decision } else { &self.command };
        self.ownership.is_valid() && !self.newest.borrow().is_newer_than(&worked_on.generation)
    }

    /// True when the change was held and its transaction is confirmed: it has to be applied whatever the device
    /// did meanwhile.
    pub fn is_confirmed(&self) -> bool {
        let confirms = |decision: &Command| {
            decision.transaction.as_ref().is_some_and(|other| other.decision == Some(Decision::Confirm))
        };
        matches!(&*self.phase.borrow(), Phase::Settled(Some(decision)) if confirms(decision))
    }

    /// The transaction that this command opens, whose change has to be held.
    pub fn transaction(&self) -> Option<&Transaction> {
        self.command.transaction.as_ref().filter(|transaction| transaction.decision.is_none())
    }

    /// What a driver that holds nothing has to do, evaluated when the work begins.
    pub fn intent(&self) -> Intent<'_> {
        let Some(transaction) = &self.command.transaction else { return Intent::Apply };
        match transaction.decision {
            Some(Decision::Confirm) => Intent::Apply,
            Some(Decision::Abort) => Intent::RollBack { reason: aborted_reason(transaction) },
            None if time_left(transaction).is_none() => {
                Intent::RollBack { reason: overdue_reason(transaction) }
            }
            None => Intent::Hold(transaction),
        }
    }

    /// Time left to decide a transaction that this command opens; zero: none is open, or its deadline has
    /// passed.
    pub fn time_to_decide(&self) -> Duration {
        self.transaction().and_then(time_left).unwrap_or_default()
    }

    /// Reports the change as held and waits for the decision, at the latest until the deadline of the
    /// transaction. `verified` is the state read back, which can still be rolled back.
    ///
    /// Until then the driver keeps what it needs for either outcome, such as a lock on the device. Dropping
    /// the future cancels the work: the device rolls back by itself, or the next process does.
    pub async fn hold(&self, verified: Reconciled) -> HoldOutcome {
        let Some(transaction) = self.transaction() else {
            return HoldOutcome::Abort { reason: "the command opens no transaction".to_owned() };
        };
        let (outcome, by) = if let Some(decided) = self.decision(transaction) {
            decided
        } else {
            let held = Reconciled { outcome: Outcome::Held, ..verified };
            self.phase.send_replace(Phase::Held(Box::new(held)));
            self.until_decided(transaction).await
        };
        self.phase.send_replace(Phase::Settled(by));
        outcome
    }

    async fn until_decided(&self, transaction: &Transaction) -> Decided {
        let mut newest = self.newest.clone();
        let decided = async {
            loop {
                // Marks the current value as seen.
                newest.borrow_and_update();
                if let Some(decided) = self.decision(transaction) {
                    return decided;
                }
                if newest.changed().await.is_err() {
                    return (HoldOutcome::Abort { reason: stopped_reason() }, None);
                }
            }
        };
        match tokio::time::timeout(time_left(transaction).unwrap_or_default(), decided).await {
            Ok(decided) => decided,
            Err(_) => (HoldOutcome::Abort { reason: overdue_reason(transaction) }, None),
        }
    }

    /// The decision of the latest command; `None`: none yet.
    fn decision(&self, transaction: &Transaction) -> Option<Decided> {
        let command = match &*self.newest.borrow() {
            LatestCommand::Stopped => return Some((HoldOutcome::Abort { reason: stopped_reason() }, None)),
            LatestCommand::Command(command) if command.generation <= self.command.generation => return None,
            LatestCommand::Command(command) => Arc::clone(command),
        };
        let same = command.transaction.as_ref().filter(|other| other.id == transaction.id);
        let same_state = command.generation.hash == self.command.generation.hash;
        Some(match same.and_then(|other| other.decision) {
            Some(Decision::Confirm) if same_state => (HoldOutcome::Confirm, Some(command)),
            Some(Decision::Abort) => {
                (HoldOutcome::Abort { reason: aborted_reason(transaction) }, Some(command))
            }
            _ => {
                let reason =
                    format!("transaction {}: a newer command came before it was decided", transaction.id);
                (HoldOutcome::Abort { reason }, None)
            }
        })
    }

    /// Publishes a progress message of long work. Never blocks; a message that finds the queue full is
    /// dropped.
    pub fn progress(&self, message: impl Into<String>) {
        let _ = self.progress.try_send(message.into());
    }
}

/// Sets the deadline of a transaction by the clock of this process, which only then compares it with its own time.
/// `age`: the time since NATS stored the command. No command has a change held for longer than
/// [`Transaction::MAX_DECIDE_WITHIN_MS`], whatever it says.
pub(crate) fn set_deadline(transaction: &mut Transaction, age: Duration, now: jiff::Timestamp) {
    let longest = Duration::from_millis(Transaction::MAX_DECIDE_WITHIN_MS);
    let after = |left: Duration| now.checked_add(left).unwrap_or(jiff::Timestamp::MAX);
    let deadline = match transaction.decide_within_ms {
        Some(within) => after(Duration::from_millis(within).min(longest).saturating_sub(age)),
        // An unreadable deadline has passed.
        None => match transaction.deadline.parse::<jiff::Timestamp>() {
            Ok(deadline) => deadline.min(after(longest)),
            Err(_) => return,
        },
    };
    transaction.deadline = deadline.to_string();
}

/// Time to the deadline; `None`: it has passed or is unreadable.
fn time_left(transaction: &Transaction) -> Option<Duration> {
    let deadline: jiff::Timestamp = transaction.deadline.parse().ok()?;
    let left = Duration::try_from(deadline.duration_since(jiff::Timestamp::now())).ok()?;
    (!left.is_zero()).then_some(left)
}

fn aborted_reason(transaction: &Transaction) -> String {
    format!("transaction {} was aborted", transaction.id)
}

fn overdue_reason(transaction: &Transaction) -> String {
    format!("transaction {} was not decided by its deadline, {}", transaction.id, transaction.deadline)
}

fn stopped_reason() -> String {
    "the driver stops working on the target".to_owned()
}

#[cfg(test)]
mod tests;
