//! What a southbound driver is.

use std::future::Future;
use std::sync::Arc;

use eno_schemas::{
    Applied, ChangeReport, Command, DeviceInfo, Failure, Note, Outcome, PayloadKind, Preview, Rejection,
};
use futures::Stream;

use crate::work::Work;

/// What a driver is called and what it can do.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The second token of its subjects, as FabricDevice `Driver` names it.
    pub name: String,
    /// The kinds of targets that it realises.
    pub kinds: Vec<PayloadKind>,
    /// What else it can do: [`HOLD`](crate::HOLD), the dialects that it speaks.
    pub capabilities: Vec<String>,
}

/// Brings targets to their desired state. It is called for one command of a target at a time, and for many
/// targets at once; it holds what it needs to reach them (a session per device) between calls.
///
/// `reconcile` reads what is there, works out the difference, applies it, reads it back and reports. It is
/// idempotent, and it may be dropped or killed at any point and called again.
pub trait Driver: Send + Sync + 'static {
    /// Its name and abilities.
    fn identity(&self) -> Identity;

    /// The only target that this process works on, such as the node that it runs on; `None`: all that is commanded
    /// of the driver. Asked once.
    fn only_target(&self) -> Option<String> {
        None
    }

    /// Brings one target to the state that `work.command` describes. A driver that announces
    /// [`HOLD`](crate::HOLD) asks [`Work::intent`] first.
    fn reconcile(&self, work: Work) -> impl Future<Output = Reconciled> + Send;

    /// What [`Self::reconcile`] would do about a command as the target is now. It reads and changes nothing. `None`: the
    /// driver can't tell.
    fn preview(&self, command: Arc<Command>) -> impl Future<Output = Option<Preview>> + Send {
        drop(command);
        std::future::ready(None)
    }

    /// Targets of which something seems to have changed by another hand, for the host to reconcile again. Called
    /// once. A driver that can't see such changes returns `futures::stream::pending()`.
    fn changed(&self) -> impl Stream<Item = String> + Send + 'static;

    /// The target is gone for good: close its session, drop what is remembered of it.
    fn forget(&self, target: &str) -> impl Future<Output = ()> + Send;
}

/// What came of a command.
#[derive(Clone, Debug, PartialEq)]
pub struct Reconciled {
    /// How it ended.
    pub outcome: Outcome,
    /// What is there of ours, as read back; `None`: not known.
    pub applied: Option<Applied>,
    /// Items left out while the rest was applied.
    pub rejected: Vec<Rejection>,
    /// What the admin should know.
    pub notes: Vec<Note>,
    /// What the device said of itself.
    pub device: Option<DeviceInfo>,
    /// The change that was made, if there was one to make.
    pub change: Option<ChangeReport>,
}

impl Reconciled {
    /// All of it is there.
    pub fn applied(applied: Applied) -> Self {
        Self {
            outcome: Outcome::Applied,
            applied: Some(applied),
            rejected: Vec::new(),
            notes: Vec::new(),
            device: None,
            change: None,
        }
    }

    /// What was held was taken back, and this is there now.
    pub fn rolled_back(reason: String, applied: Applied) -> Self {
        Self { outcome: Outcome::RolledBack { reason }, ..Self::applied(applied) }
    }

    /// Nothing could be done.
    pub fn failed(failure: Failure) -> Self {
        Self {
            outcome: Outcome::Failed(failure),
            applied: None,
            rejected: Vec::new(),
            notes: Vec::new(),
            device: None,
            change: None,
        }
    }

    /// Another try by the driver may help: it failed that way, or an item of it did.
    pub fn wants_retry(&self) -> bool {
        match &self.outcome {
            Outcome::Failed(failure) => failure.retryable,
            // Nothing is done until the next command.
            Outcome::RolledBack { .. } => false,
            _ => self.rejected.iter().any(|rejection| rejection.retryable),
        }
    }
}
