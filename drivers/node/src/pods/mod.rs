//! What running pods are given: interfaces, addresses, routes, rules and settings in their network namespaces, and
//! the host's ends of them.
//!
//! [`Pods::reconcile`] brings all pods of the node to the wanted state, several at a time; one that fails or dies
//! holds up no other. For each, [`plan`](plan::plan) says what to do next from what is there, and
//! [`session`] does it on a thread that is in the pod's namespace, until there is nothing left to do. Nothing is
//! remembered between two runs that the kernel could not tell ([`mark`]): stopped between any two steps and started
//! again, it ends in the same state.

pub mod check;
mod host;
mod kind;
mod known;
pub mod mark;
mod plan;
mod resolve;
mod session;
mod sweep;
pub mod sysctl;
mod watch;

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

use self::host::{Host, HostView};
use self::known::{Known, KnownPod, Settled};
use self::plan::Wanted;
use self::session::{Outcome, Sockets, Trouble, converge};
use self::watch::Ears;
use crate::netlink::{Namespace, NamespaceId, Netlink, Pool, Snapshot, Watch, anywhere};

/// Pods that are asked for at the same time.
const AT_ONCE: usize = 16;

/// Pods that are worked on at the same time. The kernel changes one interface at a time: more would wait for it.
const THREADS: u32 = 4;

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
    /// Interfaces of pods wait for Open vSwitch to open their ports ([`Pods::plugged`]), and get their addresses then.
    pub held: bool,
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
    known: Mutex<Known>,
    ears: Ears,
    /// Held by threads, which go on to their end when the future that waits for them is dropped.
    slots: Arc<Semaphore>,
}

/// One pod's work.
struct Job {
    uid: String,
    wanted: NodePod,
    known: Option<KnownPod>,
    /// Nothing of ours is in it, unless there are interfaces of ours.
    fresh: bool,
    /// [`Known::plugged`].
    plugged: Arc<BTreeSet<String>>,
}

/// How it ended.
struct Done {
    uid: String,
    wanted: NodePod,
    known: Option<KnownPod>,
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
                known: Mutex::default(),
                ears: Ears::default(),
                slots: Arc::new(Semaphore::new(THREADS as usize)),
            }),
        }
    }

    /// Yields whenever something has changed by another hand in the namespace of a pod that was given something, or
    /// at the host's ends, and when it is time for an audit. Changes that come together are told once. For one
    /// listener, who goes on listening: that is what lets the namespaces of pods that ended go.
    pub fn changed(&self) -> impl Stream<Item = ()> + Send + use<R> {
        let audit = self.shared.options.audit;
        self.shared.ears.news(if audit.is_zero() { Duration::MAX } else { audit })
    }

    /// Says which host ends are open ports of Open vSwitch: the next [`Self::reconcile`], and no later one, gives the pods'
    /// ends of those their addresses. A host end that is made anew has the same name.
    pub async fn plugged(&self, ends: BTreeSet<String>) {
        self.shared.known.lock().await.plugged = Arc::new(ends);
    }

    /// Brings all pods to the wanted state and reads back what is there. The bridges that they are to be ports of
    /// have been made before. Pods of which the same is wanted as before, and of which there is no news, are not looked
    /// at (`known.rs` has the exceptions). It may be dropped and called again at any time.
    pub async fn reconcile(&self, desired: &NodeDesired) -> PodsApplied {
        let mut told = PodsApplied::default();
        let mut known = self.shared.known.lock().await;
        // Nothing that an earlier run began is still under way.
        drop(self.slots(THREADS).await);
        let _quiet = self.shared.ears.hush();
        let plugged = std::mem::take(&mut known.plugged);
        let (ears, audit) = (&self.shared.ears, self.shared.options.audit);
        let looked = known.looked.take();
        // Where the kernel has told more of the host than could be heard, it may have been about any of them.
        let resting = ears.host().and_then(|_| known.resting(desired, looked, audit, |uid| ears.quiet(uid)));
        let whole = resting.is_none();
        let resting = resting.unwrap_or_default();
        for (uid, settled) in &resting {
            told.add(uid, &settled.outcome);
        }
        known.networks.clone_from(&desired.networks);
        let host = match self.look_at_host(desired, &mut known, whole).await {
            Ok(host) => Arc::new(host),
            Err(trouble) => {
                told.rejected.push(rejection(Item::TARGET, trouble.into()));
                return told;
            }
        };
        if !known.searched {
            match self.search(desired, &mut known).await {
                Ok(()) => known.searched = true,
                Err(refusal) => told.rejected.push(rejection(Item::TARGET, refusal)),
            }
        }
        let departed = known.pods.keys().filter(|uid| !desired.pods.contains_key(*uid));
        let wanted = desired.pods.iter().filter(|(uid, _)| !resting.contains_key(uid.as_str()));
        let jobs: Vec<Job> = departed
            .map(|uid| (uid, nothing()))
            .chain(wanted.map(|(uid, pod)| (uid, pod.clone())))
            .map(|(uid, wanted)| {
                let before = known.pods.get(uid).cloned();
                let fresh = !whole && before.is_none() && !known.open.contains_key(uid);
                Job { uid: uid.clone(), wanted, known: before, fresh, plugged: Arc::clone(&plugged) }
            })
            .collect();
        // From now on they may be on their way to another state, whether or not this is waited for.
        for (_, pod) in known.pods.iter_mut().filter(|(uid, _)| !resting.contains_key(uid.as_str())) {
            pod.settled = None;
        }
        known.open.clear();
        let mut work = futures::stream::iter(jobs)
            .map(|job| self.work(job, &host, &desired.cluster))
            .buffer_unordered(AT_ONCE);
        while let Some(done) = work.next().await {
            let wanted = desired.pods.contains_key(&done.uid);
            done.tell(wanted, &mut told, &mut known);
        }
        known.looked = if whole { Some(Instant::now()) } else { looked };
        ears.keep(|uid| known.pods.contains_key(uid));
        told.rejected.sort_by(|a, b| a.item.cmp(&b.item));
        told
    }

    /// The host's side, as the kernel has told of it or, if `whole`, as it is listed; without the ends of pairs that
    /// nothing wants: all of them are deleted at once.
    async fn look_at_host(
        &self,
        desired: &NodeDesired,
        known: &mut Known,
        whole: bool,
    ) -> Result<Host, Trouble> {
        let allowed = &self.shared.options.allowed_masters;
        let heard = self.shared.ears.host().filter(|_| !whole && !host::has_parents(desired));
        if let Some(links) = heard {
            let host = Host::new(links, &Snapshot::default(), desired, allowed);
            if host.stale(desired).next().is_none() {
                return Ok(host);
            }
        }
        let (shared, wanted) = (Arc::clone(&self.shared), desired.clone());
        let slot = self.slots(1).await;
        let look = move || -> Result<_, Trouble> {
            let _slot = slot;
            shared.options.host.enter()?;
            let mut netlink: Netlink = shared.sockets.take::<Trouble>()?;
            let found =
                sweep::look(&mut netlink, &shared.ears, &wanted, &shared.options.allowed_masters, whole)?;
            shared.sockets.put(netlink);
            Ok(found)
        };
        let (host, swept) = anywhere(look).await??;
        known.pods.retain(|uid, pod| desired.pods.contains_key(uid) || !pod.went_with(uid, &swept));
        Ok(host)
    }

    /// Finds pods of earlier lives that are not wanted any more: marks of ours in namespaces of this node.
    async fn search(&self, desired: &NodeDesired, known: &mut Known) -> Result<(), Refusal> {
        let wanted: BTreeSet<String> = desired.pods.keys().cloned().collect();
        let (cluster, folder) = (desired.cluster.clone(), self.shared.options.namespaces.clone());
        let look = move || sweep::marked(&folder, &cluster, &wanted);
        let found = self.shared.options.host.run(look).await.map_err(Trouble::from)?;
        for (uid, id) in found {
            // Namespaces of other nodes may be in the same folder: only what our own resolver knows is ours.
            match self.shared.resolver.resolve(&uid, None).await {
                Ok(sandbox) if sandbox.id == id => {
                    let pod = KnownPod { sandbox, container: String::new(), settled: None };
                    known.pods.insert(uid, pod);
                }
                Ok(_) => {}
                Err(error) if error.gone || !error.retryable => {}
                Err(error) => return Err(Refusal::for_now(error.to_string())),
            }
        }
        Ok(())
    }

    /// `None` can't be: nobody closes them.
    async fn slots(&self, many: u32) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.shared.slots).acquire_many_owned(many).await.ok()
    }

    async fn work(&self, mut job: Job, host: &Arc<Host>, cluster: &str) -> Done {
        let result = self.attempt(&mut job, host, cluster).await;
        Done { uid: job.uid, wanted: job.wanted, known: job.known, result }
    }

    async fn attempt(&self, job: &mut Job, host: &Arc<Host>, cluster: &str) -> Result<Outcome, Refusal> {
        let Some(namespace) = self.namespace(job).await? else { return Ok(Outcome::default()) };
        let Some(known) = &job.known else { return Ok(Outcome::default()) };
        let ears = &self.shared.ears;
        let watch = ears.hush_pod(&job.uid, &known.sandbox);
        let start = watch.is_none();
        let (shared, host, cluster) = (Arc::clone(&self.shared), Arc::clone(host), cluster.to_owned());
        let (uid, pid, pod, fresh) = (job.uid.clone(), known.sandbox.pid, job.wanted.clone(), job.fresh);
        let runtime = tokio::runtime::Handle::current();
        let slot = self.slots(1).await;
        let quiet = watch.clone();
        let plugged = Arc::clone(&job.plugged);
        let run = move || -> Result<_, Trouble> {
            let _slot = slot;
            let socket: Netlink = shared.sockets.take::<Trouble>()?;
            let view = HostView::new(&host);
            let proc_sys_net = shared.options.proc_sys_net.clone();
            let mut sockets = Sockets::open(socket, namespace, view, proc_sys_net, runtime, quiet, fresh)?;
            let wanted = Wanted { cluster: &cluster, uid: &uid, pid, pod: &pod, plugged: &plugged };
            let outcome = converge(&mut sockets, &wanted);
            let (socket, pod, ends, vlans) = sockets.close();
            shared.ears.saw(ends, vlans);
            let outcome = outcome?;
            shared.sockets.put(socket);
            // Begun last: what was done here is no news. What changed in between is found by the next audit.
            let watch = start.then(|| Watch::instead_of(pod).ok()).flatten();
            Ok((outcome, watch))
        };
        let mut result = anywhere(run).await.map_err(Trouble::from).flatten();
        let started = result.as_mut().ok().and_then(|(_, watch)| watch.take()).map(Arc::new);
        if let Some(watch) = started.or(watch) {
            ears.listen(&job.uid, &known.sandbox, watch);
        }
        Ok(result?.0)
    }

    /// The pod's namespace, open, and surely the pod's. `None`: there is nothing of a pod that is not wanted.
    async fn namespace(&self, job: &mut Job) -> Result<Option<Namespace>, Refusal> {
        let departed = job.wanted.container.is_empty() && job.wanted == nothing();
        if let Some(known) = &job.known
            && (departed || known.container == job.wanted.container)
        {
            match Namespace::open_exactly(&known.sandbox.path, known.sandbox.id) {
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
        if self.is_the_nodes(namespace.id()) {
            return Err(Refusal::never("the pod uses the network of the node itself"));
        }
        let same = job.known.as_ref().filter(|known| known.sandbox.id == sandbox.id);
        job.known = Some(KnownPod {
            settled: same.and_then(|known| known.settled.clone()),
            container: job.wanted.container.clone(),
            sandbox,
        });
        Ok(Some(namespace))
    }

    fn is_the_nodes(&self, id: NamespaceId) -> bool {
        id == self.shared.options.host.id() || Some(id) == self.shared.node
    }
}

impl PodsApplied {
    fn add(&mut self, uid: &str, outcome: &Outcome) {
        for (name, (link, bridge, vlans)) in &outcome.ovs {
            let (bridge, vlans, link) = (bridge.clone(), vlans.clone(), link.clone());
            self.ovs_ports.insert(name.clone(), OvsPort { bridge, vlans, pod: uid.to_owned(), link });
        }
        self.held |= !outcome.held.is_empty();
        self.pods.insert(uid.to_owned(), outcome.applied.clone());
    }
}

impl Done {
    fn tell(self, wanted: bool, told: &mut PodsApplied, known: &mut Known) {
        let Self { uid, wanted: pod, known: found, result } = self;
        let mut found = found;
        match result {
            Ok(outcome) => {
                let complete = outcome.refused.is_empty() && outcome.pod.is_none() && outcome.held.is_empty();
                if !complete {
                    known.open.insert(uid.clone(), pod.clone());
                }
                let was = found.as_ref().and_then(|found| found.settled_as(&pod));
                if outcome.steps > 0 && was.is_some() {
                    let message = format!(
                        "{}/{}: what another hand had changed is as wanted again",
                        pod.namespace, pod.name
                    );
                    told.notes.push(Note { kind: "Repaired".to_owned(), item: Item::pod(&uid), message });
                }
                let of_links = outcome.refused.iter().map(|(id, refusal)| (Item::link(&uid, id), refusal));
                let of_pod = outcome.pod.iter().map(|refusal| (Item::pod(&uid), refusal));
                let rejected = of_links.chain(of_pod).map(|(item, refusal)| rejection(item, refusal.clone()));
                told.rejected.extend(rejected);
                if wanted {
                    told.add(&uid, &outcome);
                }
                if complete && !wanted {
                    found = None;
                } else if let Some(found) = &mut found {
                    found.settled = (complete && wanted).then(|| Arc::new(Settled { pod, outcome }));
                }
            }
            Err(refusal) => {
                told.rejected.push(rejection(Item::pod(&uid), refusal));
                known.open.insert(uid.clone(), pod);
                if let Some(found) = &mut found {
                    found.settled = None;
                }
            }
        }
        match found {
            Some(found) => drop(known.pods.insert(uid, found)),
            None => drop(known.pods.remove(&uid)),
        }
    }
}

/// What a pod that is not wanted is given.
fn nothing() -> NodePod {
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
