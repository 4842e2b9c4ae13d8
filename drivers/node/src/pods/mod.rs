//! Interfaces of running pods: addresses, routes, policy rules and sysctls in their network namespaces, and the host
//! ends of veth pairs.
//!
//! [`Pods::reconcile`] brings all pods of the node to the desired state, several at a time. A pod that fails or ends
//! does not delay the others. [`node_view`] decides which pods are read. For each of them, [`plan`](plan::plan)
//! computes the next steps from the observed state, and [`session`] applies them on a thread in the pod's namespace,
//! until a plan is empty. The kernel holds all state ([`ownership`]): an agent that is stopped between any two steps
//! and started again ends in the same state.

pub mod anti_spoof;
pub mod check;
mod cleanup;
mod host;
mod kind;
mod monitor;
mod node_view;
pub mod ownership;
mod plan;
mod resolve;
mod session;
pub mod sysctl;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use eno_schemas::{AppliedLink, Item, NodeDesired, NodePod, Note, OvsDatapath, PortVlans, Rejection};
use futures::{Stream, StreamExt as _};
use rustix::time::{ClockId, clock_gettime};
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};

pub use check::Refusal;
pub use resolve::{Resolve, Sandbox, Unresolved};

use self::host::{Host, HostView};
use self::monitor::NetlinkMonitor;
use self::node_view::{LastRead, PodNamespace, PodRead, ReadReason};
use self::plan::DesiredPod;
use self::session::{Outcome, PodError, Sockets, converge};
use crate::netlink::{Namespace, NamespaceId, Netlink, Pool, Snapshot, Watch, run_on_worker};

/// Maximum pods in flight: resolved, or waiting for a worker.
const MAX_IN_FLIGHT: usize = 16;

/// Maximum worker threads. The kernel changes one interface at a time, so more workers would only wait.
const MAX_WORKERS: u32 = 4;

/// Settings of [`Pods`].
#[derive(Clone, Debug)]
pub struct Options {
    /// The namespace of the host ends: the agent's own.
    pub host: Namespace,
    /// Names of host interfaces that pods' interfaces may be made on, besides those of networks.
    pub allowed_masters: BTreeSet<String>,
    /// The datapath of Open vSwitch bridges that ask for none in particular.
    pub ovs_datapath: OvsDatapath,
    /// `/proc/sys/net`, writable.
    pub proc_sys_net: PathBuf,
    /// Maximum time between two audits, which read all pods: the kernel does not notify every change. An audit is due
    /// only in a reconcile with an unchanged desired state. Zero: in each of those.
    pub audit: Duration,
    /// The folder of network namespaces, `/run/netns`. It is searched once for pods that became undesired while no
    /// agent ran, and for other pods' namespaces when what a pod made on an interface of ENO ends.
    pub namespaces: PathBuf,
}

/// The result of a reconcile.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodsApplied {
    /// Links that are as desired, by the pod's uid and the link's id.
    pub pods: BTreeMap<String, BTreeMap<String, AppliedLink>>,
    /// Items that are not as desired.
    pub rejected: Vec<Rejection>,
    /// `Repaired`: pods whose drift was repaired.
    pub notes: Vec<Note>,
    /// Host ends that are to be ports of an Open vSwitch bridge, by name.
    pub ovs_ports: BTreeMap<String, OvsPort>,
    /// True when interfaces wait for Open vSwitch to open their ports ([`Pods::set_open_ports`]); they get their
    /// addresses then.
    pub awaiting_port: bool,
    /// The host could not be read, so `ovs_ports` lacks ports of pods.
    pub host_unread: bool,
}

/// The Open vSwitch port that a host end is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OvsPort {
    /// Name of the bridge.
    pub bridge: String,
    /// VLANs that it carries.
    pub vlans: PortVlans,
    /// The pod's uid.
    pub pod: String,
    /// The link's id.
    pub link: String,
}

/// The pods of this node.
#[derive(Debug)]
pub struct Pods<R> {
    shared: Arc<Shared<R>>,
}

impl<R> Clone for Pods<R> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

#[derive(Debug)]
struct Shared<R> {
    /// Resolves pods to namespaces.
    resolver: R,
    /// The node's own namespace, if it can be read.
    node: Option<NamespaceId>,
    /// Settings.
    options: Options,
    /// Sockets in the host's namespace.
    sockets: Pool,
    /// What is known of the node, and the subscriptions that keep it true.
    monitor: NetlinkMonitor,
    /// Host ends that are open ports of Open vSwitch, for the next reconcile. Locked during a reconcile.
    open_ports: Mutex<BTreeSet<String>>,
    /// Permits of worker threads, which run to their end even if the waiting future is dropped.
    workers: Arc<Semaphore>,
}

/// The work on one pod.
struct Job {
    read: PodRead,
    /// Its desired state; `None`: it is not desired.
    wanted: Option<NodePod>,
    /// Host ends that are open ports of Open vSwitch.
    open_ports: Arc<BTreeSet<String>>,
    /// CPU time that a worker took for it.
    took: Duration,
}

impl<R: Resolve> Pods<R> {
    /// Changes nothing before the first [`Self::reconcile`].
    pub fn new(resolver: R, options: Options) -> Self {
        Self {
            shared: Arc::new(Shared {
                resolver,
                node: Namespace::open("/proc/1/ns/net".as_ref()).ok().map(|node| node.id()),
                sockets: Pool::new(options.host.clone()),
                options,
                monitor: NetlinkMonitor::default(),
                open_ports: Mutex::default(),
                workers: Arc::new(Semaphore::new(MAX_WORKERS as usize)),
            }),
        }
    }

    /// Yields on drift in a pod's namespace or at host ends, and when an audit is due. Changes in quick succession are
    /// combined. For one listener, which has to keep listening: only then the namespaces of pods that ended are
    /// released.
    pub fn changed(&self) -> impl Stream<Item = ()> + Send + use<R> {
        let audit = self.shared.options.audit;
        self.shared.monitor.changes(if audit.is_zero() { Duration::MAX } else { audit })
    }

    /// Sets the host ends that are open ports of Open vSwitch, for the next [`Self::reconcile`] only. It gives the
    /// pods' ends their addresses. Later reconciles must not use the set: a host end that is made again has the same
    /// name.
    pub async fn set_open_ports(&self, ends: BTreeSet<String>) {
        *self.shared.open_ports.lock().await = ends;
    }

    /// Brings all pods to the desired state and returns the observed one. The bridges of their ports must exist. Reads
    /// what has to be read ([`NodeView::start`](node_view::NodeView::start)). The future may be dropped at any time.
    pub async fn reconcile(&self, desired: &NodeDesired) -> PodsApplied {
        let mut applied = PodsApplied::default();
        let mut next_open_ports = self.shared.open_ports.lock().await;
        // Waits for workers of an earlier reconcile that was dropped.
        drop(self.workers(MAX_WORKERS).await);
        let monitor = &self.shared.monitor;
        let _paused = monitor.pause();
        let open_ports = Arc::new(std::mem::take(&mut *next_open_ports));
        let reads = monitor.start(desired, self.shared.options.audit);
        for (uid, last) in &reads.skipped {
            if desired.pods.contains_key(uid) {
                applied.add(uid, &last.outcome);
            }
            applied.add_rejected(uid, &last.outcome);
        }
        let host = match self.read_host(desired, reads.audit.is_some()).await {
            Ok(host) => Arc::new(host),
            Err(error) => {
                applied.rejected.push(rejection(Item::TARGET, error.into()));
                applied.host_unread = true;
                return applied;
            }
        };
        if let Err(refusal) = self.search_orphans(desired).await {
            applied.rejected.push(rejection(Item::TARGET, refusal));
        }
        let to_read = monitor.lock().view.pods_to_read(desired, &reads);
        let mut jobs = futures::stream::iter(to_read)
            .map(|read| {
                let wanted = desired.pods.get(&read.uid).cloned();
                let job = Job { read, wanted, open_ports: Arc::clone(&open_ports), took: Duration::ZERO };
                self.run_job(job, &host, &desired.cluster)
            })
            .buffer_unordered(MAX_IN_FLIGHT);
        while let Some((job, result)) = jobs.next().await {
            self.record(job, result, &host, &mut applied);
        }
        monitor.finish(&reads);
        applied.rejected.sort_by(|a, b| a.item.cmp(&b.item));
        applied
    }

    /// The state of the host, as it is known or, if `list`, listed. Undesired host ends are deleted.
    async fn read_host(&self, desired: &NodeDesired, list: bool) -> Result<Host, PodError> {
        let allowed = &self.shared.options.allowed_masters;
        let known = self.shared.monitor.lock().view.host_links();
        if let Some(links) = known.filter(|_| !list && !host::has_parents(desired)) {
            let host =
                Host::new(links, &Snapshot::default(), desired, allowed, self.shared.options.ovs_datapath);
            if host.stale_ends(desired).next().is_none() {
                return Ok(host);
            }
        }
        let (shared, wanted) = (Arc::clone(&self.shared), desired.clone());
        let permit = self.workers(1).await;
        let read = move || -> Result<_, PodError> {
            let _permit = permit;
            shared.options.host.enter()?;
            let mut netlink: Netlink = shared.sockets.take::<PodError>()?;
            let found = cleanup::read_host(
                &mut netlink,
                &shared.monitor,
                &wanted,
                (&shared.options.allowed_masters, shared.options.ovs_datapath),
                list,
            )?;
            shared.sockets.put(netlink);
            Ok(found)
        };
        let (host, deleted_ends) = run_on_worker(read).await??;
        self.shared.monitor.lock().view.forget_removed(desired, &deleted_ends);
        Ok(host)
    }

    /// Finds undesired pods that an earlier agent configured, by the marks in namespaces of this node; once.
    async fn search_orphans(&self, desired: &NodeDesired) -> Result<(), Refusal> {
        if self.shared.monitor.lock().view.orphans_searched {
            return Ok(());
        }
        let wanted: BTreeSet<String> = desired.pods.keys().cloned().collect();
        let (cluster, folder) = (desired.cluster.clone(), self.shared.options.namespaces.clone());
        let read = move || cleanup::find_marked_pods(&folder, &cluster, &wanted);
        let found = self.shared.options.host.run(read).await.map_err(PodError::from)?;
        for (uid, id) in found {
            // The folder may contain namespaces of other nodes: only pods that the resolver knows run on this node.
            match self.shared.resolver.resolve(&uid, None).await {
                Ok(sandbox) if sandbox.id == id => self.shared.monitor.lock().view.add_orphan(uid, sandbox),
                Ok(_) => {}
                Err(error) if error.gone || !error.retryable => {}
                Err(error) => return Err(Refusal::temporary(error.to_string())),
            }
        }
        self.shared.monitor.lock().view.orphans_searched = true;
        Ok(())
    }

    /// Permits for `many` workers. Never `None`: the semaphore is not closed.
    async fn workers(&self, many: u32) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.shared.workers).acquire_many_owned(many).await.ok()
    }

    async fn run_job(
        &self,
        mut job: Job,
        host: &Arc<Host>,
        cluster: &str,
    ) -> (Job, Result<Outcome, Refusal>) {
        let result = self.converge_pod(&mut job, host, cluster).await;
        (job, result)
    }

    async fn converge_pod(&self, job: &mut Job, host: &Arc<Host>, cluster: &str) -> Result<Outcome, Refusal> {
        tracing::trace!(pod = job.read.uid, reason = ?job.read.reason, "reads a pod");
        let Some((namespace, sandbox)) = self.namespace(job).await? else { return Ok(Outcome::default()) };
        let monitor = &self.shared.monitor;
        let watch = monitor.pause_pod(&job.read.uid, &sandbox);
        let start = watch.is_none();
        let (shared, host, cluster) = (Arc::clone(&self.shared), Arc::clone(host), cluster.to_owned());
        let (uid, pid) = (job.read.uid.clone(), sandbox.pid);
        let pod = job.wanted.clone().unwrap_or_else(empty_pod);
        let is_new = job.read.reason == ReadReason::New;
        let runtime = tokio::runtime::Handle::current();
        let permit = self.workers(1).await;
        let own_watch = watch.clone();
        let open_ports = Arc::clone(&job.open_ports);
        let granted = job.read.granted.clone();
        let converge_in_pod = move || -> Result<_, PodError> {
            let _permit = permit;
            let socket: Netlink = shared.sockets.take::<PodError>()?;
            let view = HostView::new(&host);
            let mut sockets =
                Sockets::open(socket, namespace, view, &shared.options, runtime, own_watch, is_new)?;
            let (open_ports, granted) = (&open_ports, &granted);
            let wanted = DesiredPod { cluster: &cluster, uid: &uid, pid, pod: &pod, open_ports, granted };
            let outcome = converge(&mut sockets, &wanted);
            let (socket, pod, ends, vlans) = sockets.close();
            shared.monitor.lock().view.host_read(ends, vlans);
            let outcome = outcome?;
            shared.sockets.put(socket);
            // Subscribes last, so that ENO's own changes are not notified. The next audit finds changes in between.
            let watch = start.then(|| Watch::instead_of(pod).ok()).flatten();
            Ok((outcome, watch))
        };
        let run = move || {
            let start = cpu_time();
            let result = converge_in_pod();
            (result, cpu_time().saturating_sub(start))
        };
        let (mut result, took) = match run_on_worker(run).await {
            Ok(done) => done,
            Err(error) => (Err(error.into()), Duration::ZERO),
        };
        job.took = took;
        let started = result.as_mut().ok().and_then(|(_, watch)| watch.take()).map(Arc::new);
        if let Some(watch) = started.or(watch) {
            monitor.watch_pod(&job.read.uid, &sandbox, watch);
        }
        Ok(result?.0)
    }

    /// The pod's namespace, opened, with its identity checked. `None`: the namespace of an undesired pod has ended.
    async fn namespace(&self, job: &mut Job) -> Result<Option<(Namespace, Sandbox)>, Refusal> {
        let container = job.wanted.as_ref().map(|pod| pod.container.as_str());
        if let Some(known) = &job.read.namespace
            && container.is_none_or(|container| known.container == container)
        {
            match Namespace::open_exactly(&known.sandbox.path, known.sandbox.id) {
                Ok(namespace) => return Ok(Some((namespace, known.sandbox.clone()))),
                // It has ended with all its interfaces.
                Err(_) if container.is_none() => return Ok(None),
                Err(_) => {}
            }
        }
        let container = container.unwrap_or_default();
        let sandbox = self
            .shared
            .resolver
            .resolve(&job.read.uid, Some(container).filter(|container| !container.is_empty()))
            .await
            .map_err(|error| Refusal { retryable: error.retryable, reason: error.to_string() })?;
        let namespace = Namespace::open_exactly(&sandbox.path, sandbox.id)
            .map_err(|error| Refusal { retryable: error.retryable(), reason: error.to_string() })?;
        if self.is_node_namespace(namespace.id()) {
            return Err(Refusal::permanent("the pod uses the network of the node itself"));
        }
        if job.read.namespace.as_ref().is_none_or(|known| known.sandbox.id != sandbox.id) {
            job.read.before = None;
            job.read.granted.clear();
        }
        let container = container.to_owned();
        job.read.namespace = Some(PodNamespace { sandbox: sandbox.clone(), container });
        Ok(Some((namespace, sandbox)))
    }

    /// Records the result of the work on a pod, and adds it to the result of the reconcile.
    fn record(&self, job: Job, result: Result<Outcome, Refusal>, host: &Host, applied: &mut PodsApplied) {
        let Job { read: PodRead { uid, namespace, before, granted, .. }, wanted, took, .. } = job;
        let is_desired = wanted.is_some();
        let pod = wanted.unwrap_or_else(empty_pod);
        let outcome = match result {
            Ok(outcome) => {
                let was_as_wanted =
                    before.is_some_and(|before| before.outcome.is_complete() && before.pod == pod);
                if outcome.steps > 0 && was_as_wanted {
                    applied.notes.push(repaired(&uid, &pod));
                }
                if is_desired {
                    applied.add(&uid, &outcome);
                }
                outcome
            }
            // The pod may run and use its network: its ports stay, with the desired VLANs only.
            Err(refusal) => {
                let ovs = host.ovs_ports(&uid, &pod);
                let outcome = Outcome { pod: Some(refusal), ovs, granted, ..Outcome::default() };
                applied.add_ports(&uid, &outcome);
                outcome
            }
        };
        applied.add_rejected(&uid, &outcome);
        let last = LastRead { pod, outcome };
        let read = (Instant::now(), took);
        self.shared.monitor.lock().view.record(&uid, is_desired, namespace, last, read);
    }

    fn is_node_namespace(&self, id: NamespaceId) -> bool {
        id == self.shared.options.host.id() || Some(id) == self.shared.node
    }
}

impl PodsApplied {
    fn add(&mut self, uid: &str, outcome: &Outcome) {
        self.add_ports(uid, outcome);
        self.awaiting_port |= !outcome.awaiting_port.is_empty();
        self.pods.insert(uid.to_owned(), outcome.applied.clone());
    }

    fn add_ports(&mut self, uid: &str, outcome: &Outcome) {
        for (name, (link, bridge, vlans)) in &outcome.ovs {
            let (bridge, vlans, link) = (bridge.clone(), vlans.clone(), link.clone());
            self.ovs_ports.insert(name.clone(), OvsPort { bridge, vlans, pod: uid.to_owned(), link });
        }
    }

    fn add_rejected(&mut self, uid: &str, outcome: &Outcome) {
        let of_links = outcome.refused.iter().map(|(id, refusal)| (Item::link(uid, id), refusal));
        let of_pod = outcome.pod.iter().map(|refusal| (Item::pod(uid), refusal));
        self.rejected.extend(of_links.chain(of_pod).map(|(item, refusal)| rejection(item, refusal.clone())));
    }
}

/// The note on a pod whose drift was repaired.
fn repaired(uid: &str, pod: &NodePod) -> Note {
    let message = format!("{}/{}: what another hand had changed is as wanted again", pod.namespace, pod.name);
    Note { kind: "Repaired".to_owned(), item: Item::pod(uid), message: message.into() }
}

/// The CPU time of the calling thread.
fn cpu_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

/// The desired state of a pod that is not desired: no links.
fn empty_pod() -> NodePod {
    NodePod {
        namespace: String::new(),
        name: String::new(),
        container: String::new(),
        links: Vec::new(),
        primary: None,
    }
}

fn rejection(item: Item, refusal: Refusal) -> Rejection {
    Rejection { item, reason: refusal.reason.into(), retryable: refusal.retryable, unreachable: false }
}
