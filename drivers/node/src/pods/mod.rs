//! What running pods are given: interfaces, addresses, routes, rules and settings in their network namespaces, and
//! the host's ends of them.
//!
//! [`Pods::reconcile`] brings all pods of the node to the wanted state, several at a time; one that fails or dies
//! holds up no other. For each, [`plan`](plan::plan) says what to do next from what is there, and
//! [`session`] does it on a thread that is in the pod's namespace, until there is nothing left to do. Nothing is
//! remembered between two runs that the kernel could not tell ([`ownership`]): stopped between any two steps and started
//! again, it ends in the same state.

mod cache;
pub mod check;
mod cleanup;
mod host;
mod kind;
mod monitor;
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

use eno_schemas::{AppliedLink, Item, NodeDesired, NodePod, Note, PortVlans, Rejection};
use futures::{Stream, StreamExt as _};
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};

pub use check::Refusal;
pub use resolve::{Resolve, Sandbox, Unresolved};

use self::cache::{Cache, CachedPod, ConvergedPod};
use self::host::{Host, HostView};
use self::monitor::NetlinkMonitor;
use self::plan::DesiredPod;
use self::session::{Outcome, PodError, Sockets, converge};
use crate::netlink::{Namespace, NamespaceId, Netlink, Pool, Snapshot, Watch, run_on_worker};

/// Pods that are asked for at the same time.
const MAX_IN_FLIGHT: usize = 16;

/// Pods that are worked on at the same time. The kernel changes one interface at a time: more would wait for it.
const MAX_WORKERS: u32 = 4;

/// How it is set up.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where the host's ends of pairs are: the agent's own namespace.
    pub host: Namespace,
    /// Interfaces of the host that pods' may be made on, besides the networks that are ours.
    pub allowed_masters: BTreeSet<String>,
    /// `/proc/sys/net`, writable.
    pub proc_sys_net: PathBuf,
    /// All pods are looked at when nothing else is wanted than before and they were not for this long: the kernel does
    /// not tell of everything. Zero: whenever nothing else is wanted.
    pub audit: Duration,
    /// `/run/netns`: looked through once, for pods that stopped being wanted while nobody looked.
    pub namespaces: PathBuf,
}

/// What came of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodsApplied {
    /// What is as wanted, by the pod's uid and the interface's id.
    pub pods: BTreeMap<String, BTreeMap<String, AppliedLink>>,
    /// What is not.
    pub rejected: Vec<Rejection>,
    /// `Repaired`: what another hand had changed and is as wanted again.
    pub notes: Vec<Note>,
    /// Host ends that are to be ports of an Open vSwitch bridge, by their names.
    pub ovs_ports: BTreeMap<String, OvsPort>,
    /// Interfaces of pods wait for Open vSwitch to open their ports ([`Pods::set_open_ports`]), and get their addresses then.
    pub awaiting_port: bool,
}

/// What a host end is to be a port of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OvsPort {
    /// The bridge.
    pub bridge: String,
    /// Which VLANs.
    pub vlans: PortVlans,
    /// Whose it is.
    pub pod: String,
    /// The id of its interface.
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
    resolver: R,
    /// That of the node itself, where it can be told.
    node: Option<NamespaceId>,
    options: Options,
    /// Sockets in the host's namespace.
    sockets: Pool,
    cache: Mutex<Cache>,
    monitor: NetlinkMonitor,
    /// Held by threads, which go on to their end when the future that waits for them is dropped.
    workers: Arc<Semaphore>,
}

/// One pod's work.
struct Job {
    uid: String,
    wanted: NodePod,
    cached: Option<CachedPod>,
    /// Nothing of ours is in it, unless there are interfaces of ours.
    is_new: bool,
    /// [`Cache::open_ports`].
    open_ports: Arc<BTreeSet<String>>,
}

/// How it ended.
struct JobResult {
    uid: String,
    wanted: NodePod,
    cached: Option<CachedPod>,
    result: Result<Outcome, Refusal>,
}

impl<R: Resolve> Pods<R> {
    /// Nothing is touched before the first [`Self::reconcile`].
    pub fn new(resolver: R, options: Options) -> Self {
        Self {
            shared: Arc::new(Shared {
                resolver,
                node: Namespace::open("/proc/1/ns/net".as_ref()).ok().map(|node| node.id()),
                sockets: Pool::new(options.host.clone()),
                options,
                cache: Mutex::default(),
                monitor: NetlinkMonitor::default(),
                workers: Arc::new(Semaphore::new(MAX_WORKERS as usize)),
            }),
        }
    }

    /// Yields whenever something has changed by another hand in the namespace of a pod that was given something, or
    /// at the host's ends, and when it is time for an audit. Changes that come together are told once. For one
    /// listener, who goes on listening: that is what lets the namespaces of pods that ended go.
    pub fn changed(&self) -> impl Stream<Item = ()> + Send + use<R> {
        let audit = self.shared.options.audit;
        self.shared.monitor.changes(if audit.is_zero() { Duration::MAX } else { audit })
    }

    /// Says which host ends are open ports of Open vSwitch: the next [`Self::reconcile`], and no later one, gives the pods'
    /// ends of those their addresses. A host end that is made anew has the same name.
    pub async fn set_open_ports(&self, ends: BTreeSet<String>) {
        self.shared.cache.lock().await.open_ports = Arc::new(ends);
    }

    /// Brings all pods to the wanted state and reads back what is there. The bridges that they are to be ports of
    /// have been made before. Pods of which the same is wanted as before, and of which there is no news, are not looked
    /// at (`known.rs` has the exceptions). It may be dropped and called again at any time.
    pub async fn reconcile(&self, desired: &NodeDesired) -> PodsApplied {
        let mut applied = PodsApplied::default();
        let mut cache = self.shared.cache.lock().await;
        // Nothing that an earlier run began is still under way.
        drop(self.workers(MAX_WORKERS).await);
        let _paused = self.shared.monitor.pause();
        let open_ports = std::mem::take(&mut cache.open_ports);
        let (monitor, audit) = (&self.shared.monitor, self.shared.options.audit);
        let last_audit = cache.last_audit.take();
        // Where the kernel has told more of the host than could be heard, it may have been about any of them.
        let skipped = monitor
            .host_links()
            .and_then(|_| cache.skippable_pods(desired, last_audit, audit, |uid| monitor.is_unchanged(uid)));
        let full = skipped.is_none();
        let skipped = skipped.unwrap_or_default();
        for (uid, converged) in &skipped {
            applied.add(uid, &converged.outcome);
        }
        cache.networks.clone_from(&desired.networks);
        let host = match self.read_host(desired, &mut cache, full).await {
            Ok(host) => Arc::new(host),
            Err(error) => {
                applied.rejected.push(rejection(Item::TARGET, error.into()));
                return applied;
            }
        };
        if !cache.orphans_searched {
            match self.search_orphans(desired, &mut cache).await {
                Ok(()) => cache.orphans_searched = true,
                Err(refusal) => applied.rejected.push(rejection(Item::TARGET, refusal)),
            }
        }
        let departed = cache.pods.keys().filter(|uid| !desired.pods.contains_key(*uid));
        let wanted = desired.pods.iter().filter(|(uid, _)| !skipped.contains_key(uid.as_str()));
        let jobs: Vec<Job> = departed
            .map(|uid| (uid, empty_pod()))
            .chain(wanted.map(|(uid, pod)| (uid, pod.clone())))
            .map(|(uid, wanted)| {
                let before = cache.pods.get(uid).cloned();
                let is_new = !full && before.is_none() && !cache.unconverged.contains_key(uid);
                Job { uid: uid.clone(), wanted, cached: before, is_new, open_ports: Arc::clone(&open_ports) }
            })
            .collect();
        // From now on they may be on their way to another state, whether or not this is waited for.
        for (_, pod) in cache.pods.iter_mut().filter(|(uid, _)| !skipped.contains_key(uid.as_str())) {
            pod.converged = None;
        }
        cache.unconverged.clear();
        let mut run_job = futures::stream::iter(jobs)
            .map(|job| self.run_job(job, &host, &desired.cluster))
            .buffer_unordered(MAX_IN_FLIGHT);
        while let Some(done) = run_job.next().await {
            let wanted = desired.pods.contains_key(&done.uid);
            done.record(wanted, &mut applied, &mut cache);
        }
        cache.last_audit = if full { Some(Instant::now()) } else { last_audit };
        monitor.retain_pods(|uid| cache.pods.contains_key(uid));
        applied.rejected.sort_by(|a, b| a.item.cmp(&b.item));
        applied
    }

    /// The host's side, as the kernel has told of it or, if `full`, as it is listed; without the ends of pairs that
    /// nothing wants: all of them are deleted at once.
    async fn read_host(
        &self,
        desired: &NodeDesired,
        cache: &mut Cache,
        full: bool,
    ) -> Result<Host, PodError> {
        let allowed = &self.shared.options.allowed_masters;
        let known = self.shared.monitor.host_links().filter(|_| !full && !host::has_parents(desired));
        if let Some(links) = known {
            let host = Host::new(links, &Snapshot::default(), desired, allowed);
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
                &shared.options.allowed_masters,
                full,
            )?;
            shared.sockets.put(netlink);
            Ok(found)
        };
        let (host, deleted_ends) = run_on_worker(read).await??;
        cache.pods.retain(|uid, pod| {
            desired.pods.contains_key(uid) || !pod.removed_with_host_ends(uid, &deleted_ends)
        });
        Ok(host)
    }

    /// Finds pods of earlier lives that are not wanted any more: marks of ours in namespaces of this node.
    async fn search_orphans(&self, desired: &NodeDesired, cache: &mut Cache) -> Result<(), Refusal> {
        let wanted: BTreeSet<String> = desired.pods.keys().cloned().collect();
        let (cluster, folder) = (desired.cluster.clone(), self.shared.options.namespaces.clone());
        let read = move || cleanup::find_marked_pods(&folder, &cluster, &wanted);
        let found = self.shared.options.host.run(read).await.map_err(PodError::from)?;
        for (uid, id) in found {
            // Namespaces of other nodes may be in the same folder: only what our own resolver knows is ours.
            match self.shared.resolver.resolve(&uid, None).await {
                Ok(sandbox) if sandbox.id == id => {
                    let pod = CachedPod { sandbox, container: String::new(), converged: None };
                    cache.pods.insert(uid, pod);
                }
                Ok(_) => {}
                Err(error) if error.gone || !error.retryable => {}
                Err(error) => return Err(Refusal::temporary(error.to_string())),
            }
        }
        Ok(())
    }

    /// `None` can't be: nobody closes them.
    async fn workers(&self, many: u32) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.shared.workers).acquire_many_owned(many).await.ok()
    }

    async fn run_job(&self, mut job: Job, host: &Arc<Host>, cluster: &str) -> JobResult {
        let result = self.converge_pod(&mut job, host, cluster).await;
        JobResult { uid: job.uid, wanted: job.wanted, cached: job.cached, result }
    }

    async fn converge_pod(&self, job: &mut Job, host: &Arc<Host>, cluster: &str) -> Result<Outcome, Refusal> {
        let Some(namespace) = self.namespace(job).await? else { return Ok(Outcome::default()) };
        let Some(cached) = &job.cached else { return Ok(Outcome::default()) };
        let monitor = &self.shared.monitor;
        let watch = monitor.pause_pod(&job.uid, &cached.sandbox);
        let start = watch.is_none();
        let (shared, host, cluster) = (Arc::clone(&self.shared), Arc::clone(host), cluster.to_owned());
        let (uid, pid, pod, is_new) = (job.uid.clone(), cached.sandbox.pid, job.wanted.clone(), job.is_new);
        let runtime = tokio::runtime::Handle::current();
        let permit = self.workers(1).await;
        let own_watch = watch.clone();
        let open_ports = Arc::clone(&job.open_ports);
        let run = move || -> Result<_, PodError> {
            let _permit = permit;
            let socket: Netlink = shared.sockets.take::<PodError>()?;
            let view = HostView::new(&host);
            let proc_sys_net = shared.options.proc_sys_net.clone();
            let mut sockets =
                Sockets::open(socket, namespace, view, proc_sys_net, runtime, own_watch, is_new)?;
            let wanted = DesiredPod { cluster: &cluster, uid: &uid, pid, pod: &pod, open_ports: &open_ports };
            let outcome = converge(&mut sockets, &wanted);
            let (socket, pod, ends, vlans) = sockets.close();
            shared.monitor.update_links(ends, vlans);
            let outcome = outcome?;
            shared.sockets.put(socket);
            // Begun last: what was done here is no news. What changed in between is found by the next audit.
            let watch = start.then(|| Watch::instead_of(pod).ok()).flatten();
            Ok((outcome, watch))
        };
        let mut result = run_on_worker(run).await.map_err(PodError::from).flatten();
        let started = result.as_mut().ok().and_then(|(_, watch)| watch.take()).map(Arc::new);
        if let Some(watch) = started.or(watch) {
            monitor.watch_pod(&job.uid, &cached.sandbox, watch);
        }
        Ok(result?.0)
    }

    /// The pod's namespace, open, and surely the pod's. `None`: there is nothing of a pod that is not wanted.
    async fn namespace(&self, job: &mut Job) -> Result<Option<Namespace>, Refusal> {
        let departed = job.wanted.container.is_empty() && job.wanted == empty_pod();
        if let Some(cached) = &job.cached
            && (departed || cached.container == job.wanted.container)
        {
            match Namespace::open_exactly(&cached.sandbox.path, cached.sandbox.id) {
                Ok(namespace) => return Ok(Some(namespace)),
                // It has ended, and all that was in it.
                Err(_) if departed => return Ok(None),
                Err(_) => {}
            }
        }
        let container = Some(job.wanted.container.as_str()).filter(|container| !container.is_empty());
        let sandbox = self
            .shared
            .resolver
            .resolve(&job.uid, container)
            .await
            .map_err(|error| Refusal { retryable: error.retryable, reason: error.to_string() })?;
        let namespace = Namespace::open_exactly(&sandbox.path, sandbox.id)
            .map_err(|error| Refusal { retryable: error.retryable(), reason: error.to_string() })?;
        if self.is_node_namespace(namespace.id()) {
            return Err(Refusal::permanent("the pod uses the network of the node itself"));
        }
        let same = job.cached.as_ref().filter(|cached| cached.sandbox.id == sandbox.id);
        job.cached = Some(CachedPod {
            converged: same.and_then(|cached| cached.converged.clone()),
            container: job.wanted.container.clone(),
            sandbox,
        });
        Ok(Some(namespace))
    }

    fn is_node_namespace(&self, id: NamespaceId) -> bool {
        id == self.shared.options.host.id() || Some(id) == self.shared.node
    }
}

impl PodsApplied {
    fn add(&mut self, uid: &str, outcome: &Outcome) {
        for (name, (link, bridge, vlans)) in &outcome.ovs {
            let (bridge, vlans, link) = (bridge.clone(), vlans.clone(), link.clone());
            self.ovs_ports.insert(name.clone(), OvsPort { bridge, vlans, pod: uid.to_owned(), link });
        }
        self.awaiting_port |= !outcome.awaiting_port.is_empty();
        self.pods.insert(uid.to_owned(), outcome.applied.clone());
    }
}

impl JobResult {
    fn record(self, wanted: bool, applied: &mut PodsApplied, cache: &mut Cache) {
        let Self { uid, wanted: pod, cached, result } = self;
        let mut found = cached;
        match result {
            Ok(outcome) => {
                let complete =
                    outcome.refused.is_empty() && outcome.pod.is_none() && outcome.awaiting_port.is_empty();
                if !complete {
                    cache.unconverged.insert(uid.clone(), pod.clone());
                }
                let was_converged = found.as_ref().and_then(|found| found.converged_as(&pod));
                if outcome.steps > 0 && was_converged.is_some() {
                    let message = format!(
                        "{}/{}: what another hand had changed is as wanted again",
                        pod.namespace, pod.name
                    );
                    applied.notes.push(Note { kind: "Repaired".to_owned(), item: Item::pod(&uid), message });
                }
                let of_links = outcome.refused.iter().map(|(id, refusal)| (Item::link(&uid, id), refusal));
                let of_pod = outcome.pod.iter().map(|refusal| (Item::pod(&uid), refusal));
                let rejected = of_links.chain(of_pod).map(|(item, refusal)| rejection(item, refusal.clone()));
                applied.rejected.extend(rejected);
                if wanted {
                    applied.add(&uid, &outcome);
                }
                if complete && !wanted {
                    found = None;
                } else if let Some(found) = &mut found {
                    found.converged = (complete && wanted).then(|| Arc::new(ConvergedPod { pod, outcome }));
                }
            }
            Err(refusal) => {
                applied.rejected.push(rejection(Item::pod(&uid), refusal));
                cache.unconverged.insert(uid.clone(), pod);
                if let Some(found) = &mut found {
                    found.converged = None;
                }
            }
        }
        match found {
            Some(found) => drop(cache.pods.insert(uid, found)),
            None => drop(cache.pods.remove(&uid)),
        }
    }
}

/// What a pod that is not wanted is given.
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
    Rejection { item, reason: refusal.reason, retryable: refusal.retryable, unreachable: false }
}
