//! The networks of the host: bridges that filter VLANs, bonds, VLAN subinterfaces, bridges of pods, and the NICs that
//! lead from them to the fabric.
//!
//! [`plan`](mod@plan) works out from a snapshot of the kernel what has to be done, [`guard`] what must be left alone,
//! [`mark`] tells what is ours; all of them are pure. [`reconcile`] reads, plans and does until nothing is left to do,
//! and so the last thing it does is to have read back what is there.
//!
//! What is done to a NIC that is not ours ends with its last user: MTU, up or down and IPv6 mode come back as they
//! were ([`mark::Was`]). The main routing table, rules of others and firewall rules are never touched.

pub mod applied;
pub mod guard;
pub mod mark;
mod nic;
pub mod plan;
mod pod_bridge;
pub mod state;
mod watch;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use eno_schemas::{AppliedNetwork, HostNetwork, Item, NodeDesired, Note, Rejection};
use futures::Stream;

use crate::netlink::{Kind, Namespace, NamespaceError, Netlink, NetlinkError, Request};
use guard::Refusal;
use plan::{Plan, Spot};
use state::State;

/// How many plans it may take: making a bond, its VLANs, their settings and giving things back take four.
const ROUNDS: usize = 8;

/// Why nothing could be done.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The kernel can't be asked what is there.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// The node's network namespace can't be worked in.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// A newer command has come.
    #[error("a newer command has come")]
    Overtaken,
}

impl HostError {
    /// Another try may help.
    pub fn retryable(&self) -> bool {
        match self {
            Self::Netlink(error) => error.retryable(),
            Self::Namespace(error) => error.retryable(),
            Self::Overtaken => true,
        }
    }
}

/// A kernel: that of the node, or one that counts or breaks off.
pub trait Kernel {
    /// What is there. `group`: that of our interfaces.
    fn state(&mut self, group: u32) -> Result<State, NetlinkError>;
    /// Changes something.
    fn change(&mut self, request: Request) -> Result<(), NetlinkError>;
}

impl Kernel for Netlink {
    fn state(&mut self, group: u32) -> Result<State, NetlinkError> {
        let snapshot = self.snapshot()?;
        let ours = |index: Option<u32>| {
            index.and_then(|index| snapshot.link(index)).is_some_and(|link| {
                link.group == group && matches!(link.kind, Kind::Bridge { vlan_filtering: true, .. })
            })
        };
        // Ports of pods have neither the mark of a NIC nor our group, and are not looked at.
        let uplinks = snapshot.links.iter().filter(|link| {
            ours(link.master)
                && (link.group == group || link.altnames.iter().any(|name| mark::is_written(name)))
        });
        let mut vlans = BTreeMap::new();
        for uplink in uplinks {
            vlans.insert(uplink.index, self.port_vlans(uplink.index)?);
        }
        Ok(State { snapshot, vlans })
    }

    fn change(&mut self, request: Request) -> Result<(), NetlinkError> {
        self.execute(request)
    }
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub struct HostApplied {
    /// What is there and as wanted, by name. Of an Open vSwitch bridge only the MTU of its uplink is told.
    pub networks: BTreeMap<String, AppliedNetwork>,
    /// What was left out, and why.
    pub refused: BTreeMap<Spot, Refusal>,
    /// What was different and is not any more.
    pub changed: Vec<(Spot, String)>,
    /// What is there now.
    pub state: State,
}

impl HostApplied {
    /// True when all of these NICs are marked as used.
    pub fn uses(&self, cluster: &str, nics: &[String]) -> bool {
        nics.iter()
            .all(|name| self.state.named(name).is_some_and(|link| mark::Was::of(link, cluster).is_some()))
    }

    /// What was left out, as reports say it.
    pub fn rejected(&self) -> impl Iterator<Item = Rejection> {
        self.refused.iter().map(|(spot, refusal)| Rejection {
            item: item(spot),
            reason: refusal.to_string(),
            retryable: refusal.retryable(),
            unreachable: false,
        })
    }
}

fn item(spot: &Spot) -> Item {
    match spot {
        Spot::Rest => Item::TARGET,
        Spot::Network(name) => Item::port(name.as_str()),
        Spot::Vlan(name, vlan) => Item::port_vlan(name.as_str(), *vlan),
    }
}

/// Brings the host's networks to the state that is wanted. Before anything is changed, `current` is asked whether it
/// is wanted still.
pub fn reconcile(
    kernel: &mut impl Kernel,
    desired: &NodeDesired,
    current: impl Fn() -> bool,
) -> Result<HostApplied, HostError> {
    let group = mark::group(&desired.cluster);
    let mut failed: BTreeMap<Spot, Refusal> = BTreeMap::new();
    let mut changed = Vec::new();
    let mut round = 0;
    loop {
        let state = kernel.state(group)?;
        let Plan { steps, mut refused } = plan::plan(desired, &state, &failed);
        if !steps.is_empty() && round < ROUNDS {
            round += 1;
            if !current() {
                return Err(HostError::Overtaken);
            }
            for step in steps {
                if failed.keys().any(|other| *other != Spot::Rest && other.covers(&step.spot)) {
                    continue;
                }
                match kernel.change(step.request) {
                    Ok(()) => changed.push((step.spot, step.difference)),
                    Err(error) => {
                        let refusal =
                            Refusal::Failed { message: error.to_string(), retryable: error.retryable() };
                        failed.entry(step.spot).or_insert(refusal);
                    }
                }
            }
            continue;
        }
        for step in steps {
            refused.entry(step.spot).or_insert(Refusal::Restless { difference: step.difference });
        }
        let networks = applied::applied(desired, &state, &refused);
        return Ok(HostApplied { networks, refused, changed, state });
    }
}

/// What was last brought about, and what the watch compares with.
#[derive(Default)]
struct Settled {
    /// `None` before the first time, while it is worked on, and after a failure.
    desired: Option<NodeDesired>,
    refused: BTreeMap<Spot, Refusal>,
    /// How often something of a network was put right.
    repairs: BTreeMap<String, u64>,
}

/// The networks of this node's host.
#[derive(Clone)]
pub struct Host {
    namespace: Namespace,
    settled: Arc<Mutex<Settled>>,
    /// Held by the one who works.
    lane: Arc<Mutex<()>>,
    writes: Arc<AtomicU64>,
}

impl Host {
    /// Works in that namespace.
    pub fn new(namespace: Namespace) -> Self {
        Self { namespace, settled: Arc::default(), lane: Arc::default(), writes: Arc::default() }
    }

    /// How many times the kernel was asked to change something.
    pub fn writes(&self) -> u64 {
        self.writes.load(Ordering::Relaxed)
    }

    /// Brings the networks to the state that is wanted, and tells what another hand had changed of them.
    pub async fn reconcile(
        &self,
        desired: &NodeDesired,
        current: impl Fn() -> bool + Send + 'static,
    ) -> Result<(HostApplied, Vec<Note>), HostError> {
        let (wanted, lane, writes) = (networks_of(desired), self.lane.clone(), self.writes.clone());
        let settled = self.settled.clone();
        self.namespace
            .run(move || {
                let _alone = lock(&lane);
                let before = lock(&settled).desired.take();
                let mut kernel = Counting { netlink: Netlink::open()?, writes };
                let applied = reconcile(&mut kernel, &wanted, current)?;
                let mut settled = lock(&settled);
                let notes = repaired(&mut settled.repairs, before.as_ref(), &wanted, &applied);
                settled.refused.clone_from(&applied.refused);
                settled.desired = Some(wanted);
                Ok((applied, notes))
            })
            .await?
    }

    /// Yields when another hand has changed something of the networks, or what stood in the way of one.
    pub fn changed(&self) -> impl Stream<Item = ()> + Send + 'static {
        watch::changed(self.namespace.clone(), self.settled.clone(), self.lane.clone())
    }
}

/// What is wanted of the host alone.
fn networks_of(desired: &NodeDesired) -> NodeDesired {
    NodeDesired {
        cluster: desired.cluster.clone(),
        networks: desired.networks.clone(),
        ..NodeDesired::default()
    }
}

/// What was put right though nothing else was wanted than before.
fn repaired(
    repairs: &mut BTreeMap<String, u64>,
    before: Option<&NodeDesired>,
    desired: &NodeDesired,
    applied: &HostApplied,
) -> Vec<Note> {
    let mut differences: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (spot, difference) in &applied.changed {
        let (Spot::Network(name) | Spot::Vlan(name, _)) = spot else { continue };
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
        notes.push(Note { kind: "Repaired".to_owned(), item: Item::port(name), message });
    }
    notes
}

struct Counting {
    netlink: Netlink,
    writes: Arc<AtomicU64>,
}

impl Kernel for Counting {
    fn state(&mut self, group: u32) -> Result<State, NetlinkError> {
        Kernel::state(&mut self.netlink, group)
    }

    fn change(&mut self, request: Request) -> Result<(), NetlinkError> {
        self.writes.fetch_add(1, Ordering::Relaxed);
        self.netlink.execute(request)
    }
}

/// What a panic left behind is whole: it is replaced at once or not at all.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
