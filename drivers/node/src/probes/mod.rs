//! Probes: whether packets pass on the VLANs of connection points.
//!
//! On each VLAN this node asks the gateways and the next node for their link addresses, by ARP and neighbour discovery,
//! without an address of the network. Before it asks the next node, it has that node's agent go to the VLAN. So a VLAN on
//! which nobody answers is distinguished from an agent that does not run. On request it also asks by packets of full
//! size, and across VLANs that should be isolated.
//!
//! [`schedule`], [`crossing`] and [`slots`] are pure: what is asked when, and which port is where. [`namespace`] makes the
//! network namespace that all ports end in. [`port`] moves these, and [`host_end`] makes them. [`ask`], [`echo`] and
//! [`duplicate`] ask, [`visit`] talks to other agents, and a [`round`] does both.

mod ask;
mod crossing;
mod duplicate;
mod echo;
mod host_end;
mod metrics;
mod namespace;
mod port;
mod round;
mod schedule;
mod slots;
mod visit;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use eno_sbi::{Peers, Visits};
use eno_schemas::{AppliedNetwork, NodeDesired, ProbeResults, Visit, VlanSet};
use futures::Stream;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, sleep_until};
use tracing::debug;

pub use host_end::GROUP;
pub use metrics::ProbeMetrics;

use self::host_end::Reach;
use self::port::{Ports, Reaches};
use self::schedule::{Next, Permit, Place, Schedule};
use self::slots::Use;
use self::visit::{Exchange, There};
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
    /// Packets of full size can't be sent.
    #[error("can't ask by packets of full size: {0}")]
    Echo(std::io::Error),
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
            let asked = desired.probes.iter().filter(|other| other.network == probes.network);
            let asked = asked.flat_map(|other| &other.paths).filter_map(|path| path.mtu).max();
            let Some(reach) = network.and_then(|network| Reach::of(network, asked)) else { continue };
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

    /// Tells the driver when results have changed.
    fn notify(&self, changed: bool) {
        if changed {
            self.changed.send_replace(());
        }
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
            shared.exchange.answered(&from, visit, there);
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
    let permit = shared.schedule().permitted(from, &visit);
    let Some(Permit { place, vlans, echo }) = permit else { return };
    let there = {
        let mut ports = ports.lock(shared).await;
        match ports.go(&place, &vlans, Use::Visited(Instant::now() + STAY)).await {
            Ok(placed) => {
                let vlans: VlanSet = placed.there.into_keys().collect();
                let echo = ports.set_echo(&place, echo.intersection(&vlans)).await;
                There { echo, vlans, ports: ports.number(&place) }
            }
            Err(error) => {
                debug!(%error, from, "can't go where the agent of another node asks");
                There::default()
            }
        }
    };
    shared.exchange.answer(from, visit, there).await;
}

/// Probes what is due.
async fn probe_forever(shared: &Shared, ports: &Shelf) {
    let mut pace = paced(PACE);
    loop {
        drop(ports.lock(shared).await);
        let next = shared.schedule().next(std::time::Instant::now());
        let until = match next {
            Next::Probe(batch) => {
                round::probe(shared, ports, &batch, &mut pace).await;
                continue;
            }
            Next::Cross(crossing) => {
                round::cross(shared, ports, &crossing, &mut pace).await;
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

/// An interval without bursts.
fn paced(period: Duration) -> Interval {
    let mut interval = interval(period);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    interval
}
