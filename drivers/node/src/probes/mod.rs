//! Probes: whether packets pass on the VLANs of connection points.
//!
//! On each VLAN this node asks the gateways and the next node for their link addresses, by ARP and neighbour discovery,
//! without an address of the network. Before it asks the next node, it has that node's agent go to the VLAN. So a VLAN on
//! which nobody answers is told from an agent that does not run.
//!
//! [`schedule`] and [`slots`] are pure: what is asked when, and which port is where. [`namespace`] makes the network
//! namespace that all ports end in, [`port`] moves these, [`ask`] asks, and [`visit`] talks to other agents.

mod ask;
mod metrics;
mod namespace;
mod port;
mod schedule;
mod slots;
mod visit;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use eno_sbi::{Peers, Visits, random};
use eno_schemas::{AppliedNetwork, NodeDesired, ProbeResults, Visit, VlanId, VlanSet};
use futures::Stream;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, sleep_until};
use tracing::debug;

pub use metrics::ProbeMetrics;
pub use port::GROUP;

use self::ask::Ask;
use self::port::{Placed, Ports, Reach, Reaches};
use self::schedule::{Aim, Batch, Next, Outcome, Place, Schedule, Verdict};
use self::slots::Use;
use self::visit::Exchange;
use crate::driver::Switch;
use crate::netlink::{Namespace, NamespaceError, NetlinkError};
use crate::ovs::OvsError;

/// The time from one question to the next.
const PACE: Duration = Duration::from_millis(20);
/// How long this node stays where another one has it go.
const STAY: Duration = Duration::from_secs(8);
/// The time from one visit to the next that this node takes.
const VISIT_PACE: Duration = Duration::from_millis(100);
/// Visits that wait. Who asks for further ones gets no answer.
const MAX_VISITS: usize = 4;

/// Why nothing could be asked.
#[derive(Debug, thiserror::Error)]
enum ProbeError {
    /// A netlink request failed.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// A namespace can't be used.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// Open vSwitch failed.
    #[error(transparent)]
    Ovs(Box<OvsError>),
    /// A sysctl can't be written.
    #[error("can't write {}: {source}", path.display())]
    File {
        /// The sysctl's file.
        path: PathBuf,
        /// The I/O error.
        source: std::io::Error,
    },
    /// Anything else.
    #[error("{0}")]
    Other(String),
}

impl From<OvsError> for ProbeError {
    fn from(error: OvsError) -> Self {
        Self::Ovs(Box::new(error))
    }
}

/// The probes of this node. They end when this is dropped, and nothing of them is left on the host then.
pub struct Probes {
    shared: Arc<Shared>,
    /// Takes the visits of others.
    met: Mutex<Option<oneshot::Sender<Visits>>>,
    task: JoinHandle<()>,
}

/// What the task and the driver share.
struct Shared {
    schedule: Mutex<Schedule>,
    /// Where ports may be.
    reaches: watch::Sender<Reaches>,
    /// Wakes the task when something else is wanted.
    wake: Notify,
    /// Changes with each changed result.
    changed: watch::Sender<()>,
    exchange: Exchange,
    metrics: ProbeMetrics,
}

impl Probes {
    /// Starts the task, which does nothing before the first [`Self::want`]. `host`: the namespace of the networks;
    /// `proc_sys_net`: `/proc/sys/net`, writable.
    pub fn start(
        node: &str,
        host: Namespace,
        proc_sys_net: PathBuf,
        switch: Arc<Switch>,
        metrics: ProbeMetrics,
    ) -> Self {
        let shared = Arc::new(Shared {
            schedule: Mutex::default(),
            reaches: watch::Sender::default(),
            wake: Notify::new(),
            changed: watch::Sender::default(),
            exchange: Exchange::default(),
            metrics,
        });
        let ports = Ports::new(node.to_owned(), host, proc_sys_net, switch);
        let (met, visits) = oneshot::channel();
        let task = tokio::spawn(run(Arc::clone(&shared), ports, visits));
        Self { shared, met: Mutex::new(Some(met)), task }
    }

    /// Sets what is wanted. Only networks that are applied are probed.
    pub fn want(&self, desired: &NodeDesired, applied: &BTreeMap<String, AppliedNetwork>) {
        let (mut wanted, mut places) = (Vec::new(), BTreeMap::new());
        for probes in &desired.probes {
            let network =
                desired.networks.get(&probes.network).filter(|_| applied.contains_key(&probes.network));
            let Some(reach) = network.and_then(Reach::of) else { continue };
            let place = Place { point: probes.point.clone(), network: probes.network.clone() };
            if places.insert(place, reach).is_none() {
                wanted.push(probes.clone());
            }
        }
        let points: BTreeSet<&str> = wanted.iter().map(|probes| probes.point.as_str()).collect();
        self.shared.metrics.keep(&points);
        self.shared.schedule().want(wanted, std::time::Instant::now());
        let reaches = Reaches { cluster: desired.cluster.clone(), places };
        self.shared.reaches.send_replace(reaches);
        self.shared.wake.notify_one();
    }

    /// What was found so far.
    pub fn results(&self) -> Vec<ProbeResults> {
        self.shared.schedule().results()
    }

    /// Yields when results have changed.
    pub fn changed(&self) -> impl Stream<Item = ()> + Send + 'static {
        let changed = self.shared.changed.subscribe();
        futures::stream::unfold(changed, |mut changed| async move {
            changed.changed().await.ok()?;
            Some(((), changed))
        })
    }

    /// Joins the exchange with the agents of other nodes. Only the first call counts.
    pub fn meet(&self, peers: Peers, visits: Visits) {
        let met = self.met.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(met) = met {
            self.shared.exchange.join(peers);
            // The task has ended only if it crashed.
            let _ = met.send(visits);
        }
    }
}

impl Drop for Probes {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Shared {
    fn schedule(&self) -> MutexGuard<'_, Schedule> {
        self.schedule.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The ports, which are where they may be.
struct Shelf(tokio::sync::Mutex<Ports>);

impl Shelf {
    /// Locks the ports, after removing those that may not be any more.
    async fn lock(&self, shared: &Shared) -> tokio::sync::MutexGuard<'_, Ports> {
        let mut ports = self.0.lock().await;
        let wanted = shared.reaches.borrow().clone();
        ports.want(wanted).await;
        ports
    }
}

/// Asks, answers visits, and reads what other agents say, until it is dropped.
async fn run(shared: Arc<Shared>, ports: Ports, visits: oneshot::Receiver<Visits>) {
    let ports = Shelf(tokio::sync::Mutex::new(ports));
    let (requests, waiting) = mpsc::channel(MAX_VISITS);
    tokio::join!(
        probe_forever(&shared, &ports),
        be_visited(&shared, &ports, waiting),
        read_visits(&shared, visits, requests)
    );
}

/// Reads what other agents say. Visits that nobody may ask for are left out, and those that are too many.
async fn read_visits(
    shared: &Shared,
    visits: oneshot::Receiver<Visits>,
    requests: mpsc::Sender<(String, Visit)>,
) {
    let Ok(mut visits) = visits.await else { return };
    while let Some((from, visit)) = visits.next().await {
        if let Some(there) = visit.there.clone() {
            shared.exchange.answered(&from, &visit, there);
        } else if shared.schedule().permitted(&from, &visit).is_none()
            || requests.try_send((from, visit)).is_err()
        {
            debug!("left out a visit");
        }
    }
}

/// Goes where the agent of the previous node asks, and leaves in time.
async fn be_visited(shared: &Shared, ports: &Shelf, mut requests: mpsc::Receiver<(String, Visit)>) {
    let mut pace = paced(VISIT_PACE);
    loop {
        let end = ports.lock(shared).await.next_end();
        let over = async {
            match end {
                Some(end) => sleep_until(end).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            request = requests.recv() => match request {
                Some((from, visit)) => {
                    pace.tick().await;
                    be_visited_by(shared, ports, &from, visit).await;
                }
                // No agent can ask any more.
                None if end.is_none() => return,
                None => ports.lock(shared).await.end_visits(end.unwrap_or_else(Instant::now)).await,
            },
            () = over => ports.lock(shared).await.end_visits(Instant::now()).await,
        }
    }
}

/// Goes where the agent of the previous node asks.
async fn be_visited_by(shared: &Shared, ports: &Shelf, from: &str, visit: Visit) {
    let permitted = shared.schedule().permitted(from, &visit);
    let Some((place, vlans)) = permitted else { return };
    let until = Instant::now() + STAY;
    let placed = ports.lock(shared).await.go(&place, &vlans, Use::Visited(until)).await;
    match placed {
        Ok(placed) => shared.exchange.answer(from, visit, placed.there.into_keys().collect()).await,
        Err(error) => {
            debug!(%error, from, "can't go where the agent of another node asks");
            shared.exchange.answer(from, visit, BTreeSet::new()).await;
        }
    }
}

/// Probes what is due.
async fn probe_forever(shared: &Shared, ports: &Shelf) {
    let mut pace = paced(PACE);
    loop {
        drop(ports.lock(shared).await);
        let next = shared.schedule().next(std::time::Instant::now());
        let until = match next {
            Next::Probe(batch) => {
                probe(shared, ports, &batch, &mut pace).await;
                continue;
            }
            Next::Wait(until) => until,
        };
        let due = async {
            match until {
                Some(until) => sleep_until(until.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = due => {}
            () = shared.wake.notified() => {}
        }
    }
}

/// Probes a batch, and records what was found.
async fn probe(shared: &Shared, ports: &Shelf, batch: &Batch, pace: &mut Interval) {
    let found = match find(shared, ports, batch, pace).await {
        Ok(found) => found,
        Err(error) => {
            let reason = error.to_string();
            batch.vlans.keys().map(|vlan| (*vlan, Outcome::unasked(&reason))).collect()
        }
    };
    ports.lock(shared).await.end_asking(&batch.place).await;
    shared.metrics.count(&batch.place.point, found.values());
    let changed = shared.schedule().record(batch, found, std::time::Instant::now(), random());
    if changed {
        shared.changed.send_replace(());
    }
}

/// What is found on the VLANs of a batch.
async fn find(
    shared: &Shared,
    ports: &Shelf,
    batch: &Batch,
    pace: &mut Interval,
) -> Result<BTreeMap<VlanId, Outcome>, ProbeError> {
    let vlans = batch.vlan_set();
    let visit = async {
        match batch.next_node() {
            Some(next) => shared.exchange.ask(next, &batch.place, vlans.clone()).await,
            None => Ok(VlanSet::EMPTY),
        }
    };
    let go = async {
        let mut ports = ports.lock(shared).await;
        let placed = ports.go(&batch.place, &vlans, Use::Asking).await?;
        let next_address = |next: &str, vlan| ports.address(next, &batch.place, vlan);
        let addresses: BTreeMap<VlanId, std::net::Ipv6Addr> = batch
            .vlans
            .iter()
            .filter_map(|(vlan, aim)| Some((*vlan, next_address(aim.next.as_deref()?, *vlan))))
            .collect();
        Ok::<_, ProbeError>((placed, ports.namespace(), addresses))
    };
    let (there, placed) = tokio::join!(visit, go);
    let (placed, namespace, addresses) = placed?;
    let mut asks = BTreeMap::new();
    for (vlan, index) in &placed.there {
        let Some(aim) = batch.vlans.get(vlan) else { continue };
        asks.extend(aim.gateways.iter().map(|address| (Ask { index: *index, address: *address }, true)));
        if let Some(address) = addresses.get(vlan)
            && there.as_ref().is_ok_and(|there| there.contains(*vlan))
        {
            asks.insert(Ask { index: *index, address: (*address).into() }, false);
        }
    }
    let answers = match namespace {
        Some(namespace) if !asks.is_empty() => ask::ask(&namespace, asks, pace).await?,
        _ => BTreeMap::new(),
    };
    let outcome = |(vlan, aim): (&VlanId, &Arc<Aim>)| {
        let answered = |address| answers.get(&Ask { index: *placed.there.get(vlan)?, address });
        (*vlan, outcome(*vlan, aim, &placed, &there, addresses.get(vlan).copied().map(Into::into), answered))
    };
    Ok(batch.vlans.iter().map(outcome).collect())
}

/// What was found on a VLAN. `there`: where the agent of the next node is.
fn outcome<'a>(
    vlan: VlanId,
    aim: &Aim,
    placed: &Placed,
    there: &Result<VlanSet, String>,
    address: Option<std::net::IpAddr>,
    answered: impl Fn(std::net::IpAddr) -> Option<&'a BTreeSet<[u8; 6]>>,
) -> Outcome {
    if !placed.there.contains_key(&vlan) {
        let reason = placed.failed.get(&vlan).map_or("this node can't go there", String::as_str);
        return Outcome::unasked(reason);
    }
    let next = aim.next.as_ref().map(|next| match there {
        Err(reason) => Verdict::Unasked(reason.into()),
        Ok(there) if !there.contains(vlan) => {
            Verdict::Unasked(format!("the agent of node {next} does not go to this VLAN").into())
        }
        Ok(_) => match address.and_then(&answered) {
            Some(macs) if !macs.is_empty() => Verdict::Passed,
            _ => Verdict::Lost,
        },
    });
    let macs = |address: &std::net::IpAddr| {
        let macs = answered(*address).into_iter().flatten().copied().map(text).collect();
        (*address, macs)
    };
    Outcome { next, gateways: aim.gateways.iter().map(macs).collect() }
}

/// A MAC address as text.
fn text(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

/// An interval without bursts.
fn paced(period: Duration) -> Interval {
    let mut interval = interval(period);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    interval
}
