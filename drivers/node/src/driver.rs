//! The driver: reconciles the parts of a node in the order of their dependencies.
//!
//! 1. [`crate::addresses`]: what the CNI plugin may give to pods that start. Nothing else delays it.
//! 2. [`crate::host`]: bridges, bonds, VLAN subinterfaces, the NICs behind them.
//! 3. [`crate::pods`]: interfaces in pods. Their host ends become ports of Linux bridges in this step.
//! 4. [`crate::ovs`]: one transaction with bridges and pods' ports. It also deletes ports whose interface is gone.
//! 5. [`crate::pods`] again, if links wait for an Open vSwitch port: their addresses are added once it is open.
//! 6. [`crate::probes`] learn what to ask over the networks that are there. They work on their own.
//!
//! A part that fails for some items rejects these and realises the others.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use eno_sbi::{Driver, Identity, Peers, Reconciled, VISITS, Visits, Work};
use eno_schemas::{Applied, Desired, Failure, NodeDesired, PayloadKind};
use futures::stream::{self, BoxStream, Stream, StreamExt as _};
use tokio::sync::Mutex;

use crate::addresses::Addresses;
use crate::host::{Host, HostError};
use crate::ovs::{Item, Ovs, OvsApplied, OvsDesired, OvsError, PortDesired};
use crate::pods::{Pods, Resolve};
use crate::probes::Probes;
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
    /// What is desired. Locked during a reconcile.
    wanted: Mutex<SwitchWanted>,
}

/// What is desired of Open vSwitch.
#[derive(Default)]
struct SwitchWanted {
    /// As of the last reconcile of the node; absent: there was none.
    base: Option<OvsDesired>,
    /// The ports of probes, by interface.
    probes: BTreeMap<String, PortDesired>,
}

impl SwitchWanted {
    /// All of it. Probes keep no bridge from being deleted.
    fn all(&self) -> OvsDesired {
        let mut all = self.base.clone().unwrap_or_default();
        let probes = self.probes.iter().filter(|(_, port)| all.bridges.contains_key(&port.bridge));
        let probes: Vec<_> = probes.map(|(name, port)| (name.clone(), port.clone())).collect();
        all.ports.extend(probes);
        all
    }
}

impl Switch {
    /// `socket`: the path of its database, if that is local. While there is no socket and nothing is desired, the node
    /// counts as one without Open vSwitch.
    pub fn new(ovs: Ovs, socket: Option<PathBuf>) -> Self {
        Self { ovs, socket, used: AtomicBool::new(false), wanted: Mutex::default() }
    }

    /// Brings it to the desired state and returns the observed one, without what concerns ports of probes. `None`: there
    /// is no Open vSwitch, and nothing is desired.
    async fn reconcile(&self, desired_ovs: &OvsDesired) -> Result<Option<OvsApplied>, OvsError> {
        let mut wanted = self.wanted.lock().await;
        wanted.base = Some(desired_ovs.clone());
        if switch::is_any_desired(desired_ovs) {
            self.used.store(true, Ordering::Relaxed);
        } else if !self.used.load(Ordering::Relaxed)
            && self.socket.as_ref().is_some_and(|socket| !socket.exists())
        {
            return Ok(None);
        }
        let mut applied = self.ovs.reconcile(&wanted.all()).await?;
        applied.ports.retain(|name, _| !wanted.probes.contains_key(name));
        applied.rejected.retain(|rejected| match &rejected.item {
            Item::Port(name) => !wanted.probes.contains_key(name),
            Item::Bridge(_) => true,
        });
        Ok(Some(applied))
    }

    /// Sets the ports of probes, and returns those that are as desired. Ports of ENO on bridges that are not desired are
    /// not made.
    pub(crate) async fn set_probes(
        &self,
        ports: BTreeMap<String, PortDesired>,
    ) -> Result<BTreeSet<String>, OvsError> {
        let mut wanted = self.wanted.lock().await;
        wanted.probes = ports;
        if wanted.base.is_none() {
            return Ok(BTreeSet::new());
        }
        let all = wanted.all();
        let open = switch::open_ports(&all, &self.ovs.reconcile(&all).await?);
        Ok(open.into_iter().filter(|name| wanted.probes.contains_key(name)).collect())
    }
}

/// The driver of one node.
pub struct NodeDriver<R> {
    node: String,
    addresses: Addresses,
    host: Host,
    pods: Pods<R>,
    switch: Arc<Switch>,
    probes: Probes,
}

impl<R: Resolve> NodeDriver<R> {
    /// The driver of the node with that name.
    pub fn new(
        node: impl Into<String>,
        addresses: Addresses,
        host: Host,
        pods: Pods<R>,
        switch: Arc<Switch>,
        probes: Probes,
    ) -> Self {
        Self { node: node.into(), addresses, host, pods, switch, probes }
    }

    async fn reconcile_node(&self, work: &Work, desired: &NodeDesired) -> Result<Reconciled, HostError> {
        let addresses = self.addresses.reconcile(&desired.addresses).await?;
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
        self.probes.want(desired, &networks);
        let applied = Applied::Node { networks, pods: pods.pods, probes: self.probes.results(), addresses };
        Ok(Reconciled { rejected, notes, ..Reconciled::applied(applied) })
    }
}

impl<R: Resolve> Driver for NodeDriver<R> {
    fn identity(&self) -> Identity {
        Identity {
            name: NAME.to_owned(),
            kinds: vec![PayloadKind::Node],
            capabilities: vec![VISITS.to_owned()],
        }
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
        let parts: [BoxStream<'static, ()>; 5] = [
            self.addresses.changed().boxed(),
            self.host.changed().boxed(),
            self.pods.changed().boxed(),
            self.switch.ovs.changed().boxed(),
            self.probes.changed().boxed(),
        ];
        stream::select_all(parts).map(move |()| node.clone())
    }

    fn meet(&self, peers: Peers, visits: Visits) {
        self.probes.meet(peers, visits);
    }
}
