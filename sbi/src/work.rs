//! One command to carry out, what it asks for at this moment, and what a driver may ask or say while it does.

use std::sync::Arc;
use std::time::Duration;

use eno_schemas::{Command, Decision, Generation, Outcome, Report, Transaction};
use tokio::sync::{mpsc, watch};

use crate::driver::Reconciled;
use crate::permit::ConcurrencyPermit;
use crate::target_ownership::TargetOwnership;

/// The capability by which a driver announces that it can hold a change. Others are never given a transaction.
pub const HOLD: &str = "hold";

/// The newest word about a target.
#[derive(Clone, Debug, PartialEq)]
pub enum Newest {
    /// This command.
    Command(Arc<Command>),
    /// This process works on it no more: it is to stop, or another one owns the target, or the target is gone.
    End,
}

impl Newest {
    /// Newer than the command of this generation.
    pub fn is_newer_than(&self, generation: &Generation) -> bool {
        match self {
            Self::Command(command) => command.generation > *generation,
            Self::End => true,
        }
    }
}

/// Where the work on a command stands.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Phase {
    /// Nothing is held.
    #[default]
    Working,
    /// The change is there, verified, and can still be taken back.
    Held(Box<Reconciled>),
    /// It was held and is no more; with the command that decided, if one did. That one is what is worked on from
    /// here.
    Settled(Option<Arc<Command>>),
}

/// What a command asks of a driver at this moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Intent<'a> {
    /// To make the change.
    Apply,
    /// To make it so that it can be taken back, to verify it, to [`Work::hold`] it, and to do as decided.
    Hold(&'a Transaction),
    /// To take back what an earlier process may have left held, to change nothing else, and to report
    /// [`RolledBack`](eno_schemas::Outcome::RolledBack) for this reason with what is there.
    RollBack {
        /// Why, in words.
        reason: String,
    },
}

/// How a transaction ended for one participant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HoldOutcome {
    /// The change stays.
    Confirm,
    /// It is to be taken back.
    Abort {
        /// Why, in words.
        reason: String,
    },
}

/// How it ended, and the command that said so.
type Decided = (HoldOutcome, Option<Arc<Command>>);

/// One command to carry out, and what a driver may ask while it does.
#[derive(Clone, Debug)]
pub struct Work {
    /// The newest command of the target when the work began.
    pub command: Arc<Command>,
    newest: watch::Receiver<Newest>,
    progress: mpsc::Sender<String>,
    phase: watch::Sender<Phase>,
    reported: Option<Arc<Report>>,
    permit: ConcurrencyPermit,
    ownership: TargetOwnership,
}

impl Work {
    /// For the host and for tests: `newest` follows the target's newest command.
    pub fn new(
        command: Arc<Command>,
        newest: watch::Receiver<Newest>,
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

    /// For the host and for tests: follows where the work stands.
    pub fn phase(&self) -> watch::Receiver<Phase> {
        self.phase.subscribe()
    }

    /// The same, after this report.
    #[must_use]
    pub fn with_reported(mut self, report: Option<Report>) -> Self {
        self.reported = report.map(Arc::new);
        self
    }

    /// The same, in this place among the targets that are worked on.
    pub(crate) fn with_permit(mut self, permit: ConcurrencyPermit) -> Self {
        self.permit = permit;
        self
    }

    /// The same, while the target is this process's own.
    pub(crate) fn with_ownership(mut self, ownership: TargetOwnership) -> Self {
        self.ownership = ownership;
        self
    }

    /// Waits until the target is reached, such as for a connection to a device, which may never answer. Meanwhile the
    /// target does not count among those that are worked on at once, so that many that are silent keep nobody waiting;
    /// once it is reached, the next place is waited for.
    pub async fn reach<T, E>(&self, reaching: impl Future<Output = Result<T, E>>) -> Result<T, E> {
        self.permit.give_up();
        let reached = reaching.await;
        if reached.is_ok() {
            self.permit.take_again().await;
        }
        reached
    }

    /// What was last reported of the target, by this process or another; `None`: nothing, or it is not known.
    pub fn reported(&self) -> Option<&Report> {
        self.reported.as_deref()
    }

    /// False as soon as a newer command for the target has come, and when another instance may work on it. Asked once
    /// more after the device is locked and before anything is committed.
    pub fn is_current(&self) -> bool {
        self.ownership.holds() && !self.newest.borrow().is_newer_than(&self.command.generation)
    }

    /// The transaction that this command opens: the change has to be held.
    pub fn transaction(&self) -> Option<&Transaction> {
        self.command.transaction.as_ref().filter(|transaction| transaction.decision.is_none())
    }

    /// What is to be done, for a driver that holds nothing: asked when the work begins.
    pub fn intent(&self) -> Intent<'_> {
        let Some(transaction) = &self.command.transaction else { return Intent::Apply };
        match transaction.decision {
            Some(Decision::Confirm) => Intent::Apply,
            Some(Decision::Abort) => Intent::RollBack { reason: aborted(transaction) },
            None if left(transaction).is_none() => Intent::RollBack { reason: overdue(transaction) },
            None => Intent::Hold(transaction),
        }
    }

    /// How long a transaction that this command opens may still be held; zero when it may not, or there is none.
    pub fn time_to_decide(&self) -> Duration {
        self.transaction().and_then(left).unwrap_or_default()
    }

    /// Says that the change is there as `verified`, and can still be taken back, and waits for what is decided. It ends
    /// at the latest at the deadline of the transaction, also when nobody hears what is said.
    ///
    /// Until then the driver keeps what it needs for either end, such as a lock on the device. Dropping the future
    /// means that the work is broken off: the device takes the change back by itself, or whoever comes next does.
    pub async fn hold(&self, verified: Reconciled) -> HoldOutcome {
        let Some(transaction) = self.transaction() else {
            return HoldOutcome::Abort { reason: "the command opens no transaction".to_owned() };
        };
        let (verdict, by) = if let Some(decided) = self.decision(transaction) {
            decided
        } else {
            let held = Reconciled { outcome: Outcome::Held, ..verified };
            self.phase.send_replace(Phase::Held(Box::new(held)));
            self.until_decided(transaction).await
        };
        self.phase.send_replace(Phase::Settled(by));
        verdict
    }

    async fn until_decided(&self, transaction: &Transaction) -> Decided {
        let mut newest = self.newest.clone();
        let decided = async {
            loop {
                // Marks as seen what is looked at.
                newest.borrow_and_update();
                if let Some(decided) = self.decision(transaction) {
                    return decided;
                }
                if newest.changed().await.is_err() {
                    return (HoldOutcome::Abort { reason: stopped() }, None);
                }
            }
        };
        match tokio::time::timeout(left(transaction).unwrap_or_default(), decided).await {
            Ok(decided) => decided,
            Err(_) => (HoldOutcome::Abort { reason: overdue(transaction) }, None),
        }
    }

    /// What the newest word decides; `None`: nothing yet.
    fn decision(&self, transaction: &Transaction) -> Option<Decided> {
        let command = match &*self.newest.borrow() {
            Newest::End => return Some((HoldOutcome::Abort { reason: stopped() }, None)),
            Newest::Command(command) if command.generation <= self.command.generation => return None,
            Newest::Command(command) => Arc::clone(command),
        };
        let same = command.transaction.as_ref().filter(|other| other.id == transaction.id);
        let same_state = command.generation.hash == self.command.generation.hash;
        Some(match same.and_then(|other| other.decision) {
            Some(Decision::Confirm) if same_state => (HoldOutcome::Confirm, Some(command)),
            Some(Decision::Abort) => (HoldOutcome::Abort { reason: aborted(transaction) }, Some(command)),
            _ => {
                let reason =
                    format!("transaction {}: a newer command came before it was decided", transaction.id);
                (HoldOutcome::Abort { reason }, None)
            }
        })
    }

    /// Says what is being done, for work that takes long. Never blocks; what can't be taken is dropped.
    pub fn progress(&self, message: impl Into<String>) {
        let _ = self.progress.try_send(message.into());
    }
}

/// The time to the deadline; `None`: it is over, or can't be read.
fn left(transaction: &Transaction) -> Option<Duration> {
    let deadline: jiff::Timestamp = transaction.deadline.parse().ok()?;
    let left = Duration::try_from(deadline.duration_since(jiff::Timestamp::now())).ok()?;
    (!left.is_zero()).then_some(left)
}

fn aborted(transaction: &Transaction) -> String {
    format!("transaction {} was aborted", transaction.id)
}

fn overdue(transaction: &Transaction) -> String {
    format!("transaction {} was not decided by its deadline, {}", transaction.id, transaction.deadline)
}

fn stopped() -> String {
    "the driver stops working on the target".to_owned()
}

#[cfg(test)]
mod tests;
