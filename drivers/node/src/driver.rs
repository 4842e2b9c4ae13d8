//! The driver: the parts of a node, brought to the wanted state in the order in which they depend on each other.
//!
//! 1. [`crate::host`]: bridges, bonds, VLAN subinterfaces, the NICs behind them.
//! 2. [`crate::pods`]: interfaces in pods. Their ends on the host become ports of Linux bridges with that.
//! 3. [`crate::ovs`]: one transaction with bridges and ports of pods; ports whose interface has gone go with it.
//! 4. [`crate::pods`] again, where ports were opened: the pods' ends come up.
//!
//! A part that fails for some items names them and leaves the others alone.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use eno_sbi::{Driver, Identity, Reconciled, Work};
use eno_schemas::{Applied, Desired, Failure, NodeDesired, Outcome, PayloadKind};
use futures::stream::{self, BoxStream, Stream, StreamExt as _};

use crate::host::{Host, HostError};
use crate::ovs::{Ovs, OvsApplied, OvsDesired, OvsError};
use crate::pods::{Pods, Resolve};
use crate::switch::{self, NodeApplied, OvsFailure};

/// How engine and agent call it.
pub const NAME: &str = "node";

/// Open vSwitch of the node.
pub struct Switch {
    ovs: Ovs,
    /// The socket of its database, where it is one of this machine.
    socket: Option<PathBuf>,
    /// Something was wanted of it by this process.
    used: AtomicBool,
}

impl Switch {
    /// `socket`: where its database listens, if that is a path; while nothing is there and nothing is wanted of it,
    /// the node is taken to have no Open vSwitch.
    pub fn new(ovs: Ovs, socket: Option<PathBuf>) -> Self {
        Self { ovs, socket, used: AtomicBool::new(false) }
    }

    /// What it has now; `None`: there is none, and nothing is wanted of it.
    async fn reconcile(&self, wanted: &OvsDesired) -> Result<Option<OvsApplied>, OvsError> {
        if switch::is_wanted(wanted) {
            self.used.store(true, Ordering::Relaxed);
        } else if !self.used.load(Ordering::Relaxed)
            && self.socket.as_ref().is_some_and(|socket| !socket.exists())
        {
            return Ok(None);
        }
        self.ovs.reconcile(wanted).await.map(Some)
    }
}

/// The driver of one node.
pub struct NodeDriver<R> {
    node: String,
    host: Host,
    pods: Pods<R>,
    switch: Switch,
}

impl<R: Resolve> NodeDriver<R> {
    /// For the node of that name.
    pub fn new(node: impl Into<String>, host: Host, pods: Pods<R>, switch: Switch) -> Self {
        Self { node: node.into(), host, pods, switch }
    }

    async fn reconcile_node(&self, work: &Work, desired: &NodeDesired) -> Result<Reconciled, HostError> {
        let current = work.clone();
        let (host, mut notes) = self.host.reconcile(desired, move || current.is_current()).await?;
        if !work.is_current() {
            return Err(HostError::Superseded);
        }
        work.progress(format!("giving {} pods their interfaces", desired.pods.len()));
        let mut pods = self.pods.reconcile(desired).await;
        if !work.is_current() {
            return Err(HostError::Superseded);
        }
        let wanted = switch::wanted(desired, &host, &pods.ovs_ports);
        let found = self.switch.reconcile(&wanted).await;
        notes.append(&mut pods.notes);
        if let (true, Ok(Some(found))) = (pods.awaiting_port, &found) {
            if !work.is_current() {
                return Err(HostError::Superseded);
            }
            self.pods.set_open_ports(switch::open_ports(&wanted, found)).await;
            pods = self.pods.reconcile(desired).await;
            notes.append(&mut pods.notes);
        }
        let rejected = host.rejected().chain(pods.rejected.iter().cloned()).collect();
        let mut applied = NodeApplied { networks: host.networks, pods, rejected, notes };
        match found {
            Ok(Some(found)) => applied.add(&wanted, found),
            Ok(None) => {}
            Err(error) => {
                let (retryable, unreachable) = (error.retryable(), error.unreachable());
                applied
                    .add_failure(&wanted, &OvsFailure { reason: &error.to_string(), retryable, unreachable });
            }
        }
        Ok(Reconciled {
            outcome: Outcome::Applied,
            applied: Some(Applied::Node { networks: applied.networks, pods: applied.pods.pods }),
            rejected: applied.rejected,
            notes: applied.notes,
            device: None,
            change: None,
        })
    }
}

impl<R: Resolve> Driver for NodeDriver<R> {
    fn identity(&self) -> Identity {
        Identity { name: NAME.to_owned(), kinds: vec![PayloadKind::Node], capabilities: Vec::new() }
    }

    fn only_target(&self) -> Option<String> {
        Some(self.node.clone())
    }

    async fn reconcile(&self, work: Work) -> Reconciled {
        let fail =
            |reason: String, retryable| Reconciled::failed(Failure { reason, retryable, unreachable: false });
        let command = work.command.clone();
        let Desired::Node(desired) = &command.desired else {
            return fail("this command is not about a node".to_owned(), false);
        };
        match self.reconcile_node(&work, desired).await {
            Ok(reconciled) => reconciled,
            Err(error) => fail(error.to_string(), error.retryable()),
        }
    }

    fn changed(&self) -> impl Stream<Item = String> + Send + 'static {
        let node = self.node.clone();
        let parts: [BoxStream<'static, ()>; 3] =
            [self.host.changed().boxed(), self.pods.changed().boxed(), self.switch.ovs.changed().boxed()];
        stream::select_all(parts).map(move |()| node.clone())
    }

    async fn forget(&self, _target: &str) {}
}
