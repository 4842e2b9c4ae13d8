//! The networks of the host: VLAN-filtering bridges, bonds, VLAN subinterfaces, pod bridges, interfaces for BGP sessions,
//! and the NICs that connect them to the fabric.
//!
//! [`plan`](mod@plan) computes the changes from a snapshot of the kernel, [`guard`] decides what must be left alone,
//! and [`ownership`] recognises ENO's interfaces; all three are pure. [`reconcile`] reads, plans and applies until a
//! plan is empty, so it always ends with reading the observed state.
//!
//! Changes to a NIC of the node end with its last user: MTU, administrative state and IPv6 mode are restored
//! ([`ownership::OriginalSettings`]). The main routing table, foreign policy rules and firewall rules are never
//! touched.

pub mod applied;
pub mod guard;
pub mod interface;
pub mod kernel;
mod nic;
pub mod ownership;
pub mod plan;
mod pod_bridge;
mod return_path;
mod routing;
mod session_filter;
pub mod state;
mod watch;

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use eno_sbi::{Baseline, BaselineGuard};
use eno_schemas::{AppliedNetwork, HostNetwork, Item, NodeDesired, Note, Rejection};
use futures::Stream;

use crate::netlink::{Namespace, NamespaceError, NetlinkError};
use guard::Refusal;
pub use kernel::{Change, HostKernel, Kernel};
use plan::{ItemRef, Plan};
use state::{Installation, State};

/// Maximum plans per reconcile. Making a bond, its VLANs and their settings, and restoring NICs, takes four.
const MAX_PLANS: usize = 8;

/// Why nothing could be done.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The state of the kernel can't be read.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// The node's network namespace can't be entered.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// A sysctl can't be written.
    #[error("can't {operation}: {source}")]
    Sysctl {
        /// The operation and its object.
        operation: String,
        /// The I/O error.
        source: io::Error,
    },
    /// A newer command has arrived.
    #[error("a newer command has come")]
    Superseded,
}

impl HostError {
    /// True when a retry may succeed.
    pub fn retryable(&self) -> bool {
        match self {
            Self::Netlink(error) => error.retryable(),
            Self::Namespace(error) => error.retryable(),
            // An interface that is gone by now is made again.
            Self::Sysctl { source, .. } => source.kind() == io::ErrorKind::NotFound,
            Self::Superseded => true,
        }
    }
}

/// The result of a reconcile.
#[derive(Clone, Debug, Default)]
pub struct HostApplied {
    /// Networks that are as desired, by name. For an Open vSwitch bridge only the MTU of its uplink is reported.
    pub networks: BTreeMap<String, AppliedNetwork>,
    /// Items that were not realised, and why.
    pub refused: BTreeMap<ItemRef, Refusal>,
    /// Items that were changed, each with the difference that was removed.
    pub changed: Vec<(ItemRef, String)>,
    /// The observed state after the changes.
    pub state: State,
}

impl HostApplied {
    /// True when all of these NICs are marked as in use by the cluster's networks.
    pub fn uses(&self, cluster: &str, nics: &[String]) -> bool {
        nics.iter().all(|name| {
            self.state
                .named(name)
                .is_some_and(|link| ownership::OriginalSettings::recorded(link, cluster).is_some())
        })
    }

    /// The refused items as rejections of a report.
    pub fn rejected(&self) -> impl Iterator<Item = Rejection> {
        self.refused.iter().map(|(item, refusal)| Rejection {
            item: report_item(item),
            reason: refusal.to_string().into(),
            retryable: refusal.retryable(),
            unreachable: false,
        })
    }
}

fn report_item(item: &ItemRef) -> Item {
    match item {
        ItemRef::Leftovers => Item::TARGET,
        ItemRef::Network(name) => Item::port(name.as_str()),
        ItemRef::Vlan(name, vlan) => Item::port_vlan(name.as_str(), *vlan),
    }
}

/// Brings the host's networks to the desired state. Stops with [`HostError::Superseded`] before the next round of
/// changes once `is_current` returns false.
pub fn reconcile(
    kernel: &mut impl Kernel,
    desired: &NodeDesired,
    is_current: impl Fn() -> bool,
) -> Result<HostApplied, HostError> {
    let group = ownership::group(&desired.cluster);
    let mut failed: BTreeMap<ItemRef, Refusal> = BTreeMap::new();
    let mut changed = Vec::new();
    let mut plans = 0;
    loop {
        let state = kernel.state(group)?;
        let Plan { steps, mut refused } = plan::plan(desired, &state, &failed);
        if !steps.is_empty() && plans < MAX_PLANS {
            plans += 1;
            if !is_current() {
                return Err(HostError::Superseded);
            }
            for step in steps {
                if failed.keys().any(|other| *other != ItemRef::Leftovers && other.covers(&step.item)) {
                    continue;
                }
                match kernel.change(step.change) {
                    Ok(()) => changed.push((step.item, step.difference)),
                    Err(error) => {
                        let refusal =
                            Refusal::Failed { message: error.to_string(), retryable: error.retryable() };
                        failed.entry(step.item).or_insert(refusal);
                    }
                }
            }
            continue;
        }
        for step in steps {
            refused.entry(step.item).or_insert(Refusal::Unstable { difference: step.difference });
        }
        let networks = applied::applied(desired, &state, &refused);
        return Ok(HostApplied { networks, refused, changed, state });
    }
}

/// The last reconcile, with which the watch compares the observed state.
type LastReconcile = tokio::sync::watch::Sender<Baseline<Last>>;

/// A reconcile that came to its end.
#[derive(Debug)]
struct Last {
    /// The desired state.
    desired: NodeDesired,
    /// Items that it did not realise.
    refused: BTreeMap<ItemRef, Refusal>,
    /// As [`State::installation`].
    installation: Arc<Installation>,
}

/// The networks of this node's host.
#[derive(Clone)]
pub struct Host {
    namespace: Namespace,
    last: Arc<LastReconcile>,
    /// Repairs of drift so far, by network. Locked during a reconcile.
    repairs: Arc<Mutex<BTreeMap<String, u64>>>,
    writes: Arc<AtomicU64>,
    /// As [`State::installation`].
    installation: Arc<Installation>,
}

impl Host {
    /// The networks of that namespace.
    pub fn new(namespace: Namespace, installation: Installation) -> Self {
        let last = Arc::new(LastReconcile::new(Baseline::Unset));
        Self {
            namespace,
            last,
            repairs: Arc::default(),
            writes: Arc::default(),
            installation: installation.into(),
        }
    }

    /// Change requests sent to the kernel so far.
    pub fn writes(&self) -> u64 {
        self.writes.load(Ordering::Relaxed)
    }

    /// Brings the networks to the desired state. Returns the result, and a note for each network whose drift it
    /// repaired.
    pub async fn reconcile(
        &self,
        desired: &NodeDesired,
        is_current: impl Fn() -> bool + Send + 'static,
    ) -> Result<(HostApplied, Vec<Note>), HostError> {
        let (wanted, writes) = (networks_only(desired), self.writes.clone());
        let installation = self.installation.clone();
        let (last, repairs) = (self.last.clone(), self.repairs.clone());
        self.namespace
            .run(move || {
                let mut repairs = lock(&repairs);
                let mut guard = BaselineGuard::start(&last);
                let mut kernel = CountingKernel { kernel: HostKernel::open(installation.clone())?, writes };
                let applied = reconcile(&mut kernel, &wanted, is_current)?;
                let before = match &guard.before {
                    Baseline::Observed(before) => Some(&before.desired),
                    Baseline::Unset | Baseline::Failed => None,
                };
                let notes = repair_notes(&mut repairs, before, &wanted, &applied);
                let refused = applied.refused.clone();
                guard.next = Baseline::Observed(Arc::new(Last { desired: wanted, refused, installation }));
                Ok((applied, notes))
            })
            .await?
    }

    /// Yields when the networks have drifted, or when the cause of a refusal has changed.
    pub fn changed(&self) -> impl Stream<Item = ()> + Send + 'static {
        watch::changed(self.namespace.clone(), self.last.clone(), self.repairs.clone())
    }
}

/// The desired state without pods.
fn networks_only(desired: &NodeDesired) -> NodeDesired {
    NodeDesired {
        cluster: desired.cluster.clone(),
        networks: desired.networks.clone(),
        ..NodeDesired::default()
    }
}

/// A note for each network that was changed although its desired state is the same as before: drift was repaired.
fn repair_notes(
    repairs: &mut BTreeMap<String, u64>,
    before: Option<&NodeDesired>,
    desired: &NodeDesired,
    applied: &HostApplied,
) -> Vec<Note> {
    let mut differences: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (item, difference) in &applied.changed {
        let (ItemRef::Network(name) | ItemRef::Vlan(name, _)) = item else { continue };
        let network: Option<&HostNetwork> = before.and_then(|before| before.networks.get(name));
        if network.is_some() && network == desired.networks.get(name) {
            differences.entry(name).or_default().push(difference);
        }
    }
    let mut notes = Vec::new();
    for (name, mut differences) in differences {
        differences.dedup();
        let count = repairs.entry(name.to_owned()).or_insert(0);
        *count += 1;
        let times = if *count > 1 { format!(" ({count} times by now)") } else { String::new() };
        let message = format!("put right what another hand had changed: {}{times}", differences.join(", "));
        notes.push(Note { kind: "Repaired".to_owned(), item: Item::port(name), message: message.into() });
    }
    notes
}

struct CountingKernel {
    kernel: HostKernel,
    writes: Arc<AtomicU64>,
}

impl Kernel for CountingKernel {
    fn state(&mut self, group: u32) -> Result<State, HostError> {
        self.kernel.state(group)
    }

    fn change(&mut self, change: Change) -> Result<(), HostError> {
        self.writes.fetch_add(1, Ordering::Relaxed);
        self.kernel.change(change)
    }
}

/// Locks, also after a panic: the data is replaced at once or not at all, so it is never half-written.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
