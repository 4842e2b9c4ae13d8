//! The driver: reconciles the parts of a node in the order of their dependencies.
//!
//! 1. [`crate::host`]: bridges, bonds, VLAN subinterfaces, the NICs behind them.
//! 2. [`crate::pods`]: interfaces in pods. Their host ends become ports of Linux bridges in this step.
//! 3. [`crate::ovs`]: one transaction with bridges and pods' ports. It also deletes ports whose interface is gone.
//! 4. [`crate::pods`] again, if links wait for an Open vSwitch port: their addresses are added once it is open.
//!
//! A part that fails for some items rejects these and realises the others.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use eno_sbi::{Driver, Identity, Reconciled, Work};
use eno_schemas::{Applied, Desired, Failure, NodeDesired, PayloadKind};
use futures::stream::{self, BoxStream, Stream, StreamExt as _};

use crate::host::{Host, HostError};
use crate::ovs::{Ovs, OvsApplied, OvsDesired, OvsError};
use crate::pods::{Pods, Resolve};
use crate::switch::{self, NodeApplied, OvsFailure};

/// The driver's name, for engine and agent.
pub const NAME: &str = "node";

/// Open vSwitch of the node.
pub struct Switch {
    ovs: Ovs,
    /// The socket of its database, if that is local.
    socket: Option<PathBuf>,
    /// True once this process has configured it.
    used: AtomicBool,
}

impl Switch {
    /// `socket`: the path of its database, if that is local. While there is no socket and nothing is desired, the node
    /// counts as one without Open vSwitch.
    pub fn new(ovs: Ovs, socket: Option<PathBuf>) -> Self {
        Self { ovs, socket, used: AtomicBool::new(false) }
    }

    /// Brings it to the desired state and returns the observed one. `None`: there is no Open vSwitch, and nothing is
    /// desired.
    async fn reconcile(&self, desired_ovs: &OvsDesired) -> Result<Option<OvsApplied>, OvsError> {
        if switch::is_any_desired(desired_ovs) {
            self.used.store(true, Ordering::Relaxed);
        } else if !self.used.load(Ordering::Relaxed)
            && self.socket.as_ref().is_some_and(|socket| !socket.exists())
        {
            return Ok(None);
        }
        self.ovs.reconcile(desired_ovs).await.map(Some)
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
    /// The driver of the node with that name.
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
        let desired_ovs = switch::desired_ovs(desired, &host, &pods.ovs_ports);
        // Ports of pods that are not known now must stay.
        let observed = if pods.host_unread { Ok(None) } else { self.switch.reconcile(&desired_ovs).await };
        notes.append(&mut pods.notes);
        if let (true, Ok(Some(observed))) = (pods.awaiting_port, &observed) {
            if !work.is_current() {
                return Err(HostError::Superseded);
            }
            self.pods.set_open_ports(switch::open_ports(&desired_ovs, observed)).await;
            pods = self.pods.reconcile(desired).await;
            notes.append(&mut pods.notes);
        }
        let rejected = host.rejected().chain(pods.rejected.iter().cloned()).collect();
        let mut applied = NodeApplied { networks: host.networks, pods, rejected, notes };
        match observed {
            Ok(Some(observed)) => applied.add(&desired_ovs, observed),
            Ok(None) => {}
            Err(error) => {
                let (retryable, unreachable) = (error.retryable(), error.unreachable());
                applied.add_failure(
                    &desired_ovs,
                    &OvsFailure { reason: &error.to_string(), retryable, unreachable },
                );
            }
        }
        let NodeApplied { networks, pods, rejected, notes } = applied;
        let applied = Applied::Node { networks, pods: pods.pods, probes: Vec::new() };
        Ok(Reconciled { rejected, notes, ..Reconciled::applied(applied) })
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
        let fail = |reason: String, retryable| {
            Reconciled::failed(Failure { reason: reason.into(), retryable, unreachable: false })
        };
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
}
