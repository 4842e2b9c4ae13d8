//! The interface of a southbound driver.

use std::future::Future;
use std::sync::Arc;

use eno_queue::Backoff;
use eno_schemas::{
    Applied, ChangeReport, Command, DeviceInfo, Failure, Note, Outcome, PayloadKind, Preview, Rejection, Text,
};
use futures::Stream;

use crate::host::{Peers, Visits};
use crate::work::Work;

/// A driver's name and abilities.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The second token of its subjects, as FabricDevice `Driver` names it.
    pub name: String,
    /// The kinds of targets that it configures.
    pub kinds: Vec<PayloadKind>,
    /// Further capabilities: [`HOLD`](crate::HOLD), [`VRFS`](crate::VRFS), [`BGP`](crate::BGP),
    /// [`DYNAMIC_NEIGHBOURS`](crate::DYNAMIC_NEIGHBOURS), [`LOOKUPS`](crate::LOOKUPS), the dialects that it speaks. The host adds
    /// [`PARTS`](crate::PARTS) for drivers of switches.
    pub capabilities: Vec<String>,
}

/// Reconciles targets to their desired state. It is called for one command of a target at a time, and for
/// many targets at once. It keeps what it needs to reach them, such as a session per device, between calls.
///
/// `reconcile` reads the target's state, computes the difference, applies it, reads it back and reports. It
/// is idempotent, and it may be dropped or killed at any point and called again.
pub trait Driver: Send + Sync + 'static {
    /// The driver's name and abilities.
    fn identity(&self) -> Identity;

    /// The only target that this process works on, such as its own node; `None`: every target that is
    /// commanded of the driver. Called once.
    fn only_target(&self) -> Option<String> {
        None
    }

    /// Reconciles one target to `work.command`. A driver with the capability [`HOLD`](crate::HOLD) reads
    /// [`Work::intent`] first.
    fn reconcile(&self, work: Work) -> impl Future<Output = Reconciled> + Send;

    /// What [`Self::reconcile`] would do about a command, without changing anything. `None`: the driver does
    /// not support previews. Anyone who may read may ask: a driver with passwords logs in only as its FabricDevice says.
    fn preview(&self, command: Arc<Command>) -> impl Future<Output = Option<Preview>> + Send {
        drop(command);
        std::future::ready(None)
    }

    /// A stream of targets that seem to have been changed externally, for the host to reconcile again. Called
    /// once.
    fn changed(&self) -> impl Stream<Item = String> + Send + 'static {
        futures::stream::pending()
    }

    /// A driver with the capability [`VISITS`](crate::VISITS) and an only target joins the exchange with the processes of
    /// other targets. Called once, and not from [`Self::reconcile`]: it must not wait.
    fn meet(&self, peers: Peers, visits: Visits) {
        drop((peers, visits));
    }

    /// The target is gone for good: close its session and drop its state.
    fn forget(&self, target: &str) -> impl Future<Output = ()> + Send {
        let _ = target;
        std::future::ready(())
    }
}

/// The result of a reconcile.
#[derive(Clone, Debug, PartialEq)]
pub struct Reconciled {
    /// How it ended.
    pub outcome: Outcome,
    /// Our configuration on the target, as read back; `None`: not known.
    pub applied: Option<Applied>,
    /// Items left out while the rest was applied.
    pub rejected: Vec<Rejection>,
    /// Messages for the administrator.
    pub notes: Vec<Note>,
    /// Data that the device gave about itself.
    pub device: Option<DeviceInfo>,
    /// The change that was made; `None`: none was needed.
    pub change: Option<ChangeReport>,
}

impl Reconciled {
    /// The whole desired state is applied.
    pub fn applied(applied: Applied) -> Self {
        Self::new(Outcome::Applied, Some(applied))
    }

    /// An outcome and a state, and nothing else to say.
    fn new(outcome: Outcome, applied: Option<Applied>) -> Self {
        Self { outcome, applied, rejected: Vec::new(), notes: Vec::new(), device: None, change: None }
    }

    /// The held change was rolled back; `applied` is the state after it.
    pub fn rolled_back(reason: impl Into<Text>, applied: Applied) -> Self {
        Self::new(Outcome::RolledBack { reason: reason.into() }, Some(applied))
    }

    /// The reconcile failed and reports no state.
    pub fn failed(failure: Failure) -> Self {
        Self::new(Outcome::Failed(failure), None)
    }

    /// The reconcile goes on, or was given up for a newer command or a stop.
    pub fn progress(message: impl Into<Text>) -> Self {
        Self::new(Outcome::Progress { message: message.into() }, None)
    }

    /// True when the failure, or a rejection, is retryable.
    pub fn wants_retry(&self) -> bool {
        match &self.outcome {
            Outcome::Failed(failure) => failure.retryable,
            // A rolled-back target waits for the next command.
            Outcome::RolledBack { .. } => false,
            _ => self.rejected.iter().any(|rejection| rejection.retryable),
        }
    }

    /// When the same command is worked on again by itself. What was refused is tried again less often, since the
    /// obstacle may be removed without a notice.
    pub(crate) fn retry_policy(&self) -> Option<Backoff> {
        let is_applied = matches!(self.outcome, Outcome::Applied);
        if self.wants_retry() {
            Some(Backoff::FAILED_TARGET)
        } else {
            (is_applied && !self.rejected.is_empty()).then_some(Backoff::REFUSED)
        }
    }
}
