//! Hearing of changes by another hand, and not of one's own.

use std::collections::{BTreeMap, BTreeSet};
use std::future::poll_fn;
use std::io;
use std::os::fd::AsFd as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures::Stream;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::{Sandbox, ownership};
use crate::netlink::{Link, Links, Mirror, Namespace, Netlink, NetlinkError, PortsVlans, Watch};

/// Changes come in bursts, and those of a routing daemon never end: they are gathered for this long.
const DEBOUNCE: Duration = Duration::from_millis(100);

/// How often it is looked whether pods' namespaces have ended: to listen in one keeps it alive.
const LIVENESS_INTERVAL: Duration = Duration::from_secs(2);

/// Listens to the host's interfaces, and in the namespaces of pods that were given something. Nobody is woken by what
/// is told while the host or a pod is worked on.
#[derive(Clone, Debug, Default)]
pub struct NetlinkMonitor(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// By the pods' uids; without those that are worked on.
    pods: BTreeMap<String, PodWatch>,
    host: Option<HostWatch>,
    /// The host is worked on.
    paused: bool,
    /// Pods of which something was heard since they were last looked at.
    changed_pods: BTreeSet<String>,
    /// Of the one that waits for news.
    waker: Option<Waker>,
}

/// Wakes whoever waits when something is told. Armed by whoever waits: the work need not wait for that.
type Readiness = AsyncFd<Arc<Watch>>;

#[derive(Debug)]
struct PodWatch {
    watch: Arc<Watch>,
    sandbox: Sandbox,
    /// Absent until somebody waits.
    readiness: Option<Readiness>,
}

#[derive(Debug)]
struct HostWatch {
    mirror: Mirror,
    /// What the ends of pairs are marked with.
    cluster: String,
    /// Nothing that was told is lost.
    complete: bool,
    /// Absent while anything is worked on, and until somebody waits.
    readiness: Option<Readiness>,
}

/// While this is held nobody is woken by what is told of the host.
#[derive(Debug)]
pub struct PauseGuard(NetlinkMonitor);

impl Drop for PauseGuard {
    fn drop(&mut self) {
        let mut all = self.0.lock();
        all.paused = false;
        if let Some(waker) = &all.waker {
            waker.wake_by_ref();
        }
    }
}

impl NetlinkMonitor {
    /// One item for all that was heard since the last, and one when there was none for the time of `audit`. For one
    /// listener.
    pub fn changes(&self, audit: Duration) -> impl Stream<Item = ()> + Send + use<> {
        let start = (self.clone(), None::<Interval>);
        futures::stream::unfold(start, move |(monitor, liveness)| async move {
            let mut liveness = liveness.unwrap_or_else(|| {
                let mut liveness = interval(LIVENESS_INTERVAL);
                liveness.set_missed_tick_behavior(MissedTickBehavior::Delay);
                liveness
            });
            let mut notified = async || poll_fn(|context| monitor.lock().poll(&mut liveness, context)).await;
            drop(tokio::time::timeout(audit, notified()).await);
            // It goes on listening: what is told would not fit into the sockets.
            let debounce = async {
                loop {
                    notified().await;
                }
            };
            let Err(_) = tokio::time::timeout(DEBOUNCE, debounce).await;
            Some(((), (monitor, Some(liveness))))
        })
    }

    /// The host is about to be worked on. What was told up to now has been heard.
    pub fn pause(&self) -> PauseGuard {
        let mut all = self.lock();
        all.paused = true;
        if let Some(host) = &mut all.host {
            host.readiness = None;
        }
        all.receive_host();
        all.receive_pods();
        drop(all);
        PauseGuard(self.clone())
    }

    /// The host's interfaces; `None`: they have to be listed.
    pub fn host_links(&self) -> Option<Arc<Links>> {
        let mut all = self.lock();
        all.host.as_mut().filter(|host| host.complete).map(|host| Arc::clone(host.mirror.links()))
    }

    /// Lists the host's interfaces. The calling thread and `netlink` are in its namespace.
    pub fn list_host(&self, netlink: &mut Netlink, cluster: &str) -> Result<(), NetlinkError> {
        let known = self.lock().host.take();
        let (mirror, changed) = match known {
            Some(HostWatch { mut mirror, .. }) => {
                let changed = mirror.list(netlink);
                (mirror, changed)
            }
            None => (Mirror::open(netlink)?, Ok(Vec::new())),
        };
        let mut all = self.lock();
        let complete = changed.is_ok();
        all.host = Some(HostWatch { mirror, cluster: cluster.to_owned(), complete, readiness: None });
        all.mark_changed(&changed?);
        Ok(())
    }

    /// What was seen of interfaces of the host, by their index, with the VLANs of ports that filter them.
    pub fn update_links(&self, ends: impl IntoIterator<Item = (u32, Option<Link>)>, mut vlans: PortsVlans) {
        if let Some(host) = &mut self.lock().host {
            ends.into_iter().for_each(|(index, link)| host.mirror.update(index, link, vlans.remove(&index)));
        }
    }

    /// The pod is about to be looked at: what was told so far will be seen then.
    pub fn pause_pod(&self, uid: &str, sandbox: &Sandbox) -> Option<Arc<Watch>> {
        let mut all = self.lock();
        all.changed_pods.remove(uid);
        let pod = all.pods.remove(uid).filter(|pod| pod.sandbox.id == sandbox.id)?;
        Some(pod.watch)
    }

    /// Listens in the pod's namespace, until it is no longer at its path.
    pub fn watch_pod(&self, uid: &str, sandbox: &Sandbox, watch: Arc<Watch>) {
        let pod = PodWatch { watch, sandbox: sandbox.clone(), readiness: None };
        self.lock().pods.insert(uid.to_owned(), pod);
    }

    /// The pod is listened to, and nothing was heard of it.
    pub fn is_unchanged(&self, uid: &str) -> bool {
        let all = self.lock();
        all.pods.contains_key(uid) && !all.changed_pods.contains(uid)
    }

    /// Others are of no interest any more.
    pub fn retain_pods(&self, wanted: impl Fn(&str) -> bool) {
        let mut all = self.lock();
        all.pods.retain(|uid, _| wanted(uid));
        all.changed_pods.retain(|uid| wanted(uid));
    }

    /// What a panic left behind is whole.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Ready when there is news.
    fn poll(&mut self, liveness: &mut Interval, context: &mut Context<'_>) -> Poll<()> {
        self.waker = Some(context.waker().clone());
        self.register();
        let mut tick = false;
        while liveness.poll_tick(context).is_ready() {
            tick = true;
            self.pods.retain(|_, PodWatch { sandbox, .. }| {
                Namespace::open_exactly(&sandbox.path, sandbox.id).is_ok()
            });
        }
        // A socket that overflowed just as it was read tells nothing more until it is read once again.
        let mut changed =
            tick && self.host.as_ref().is_some_and(|host| host.readiness.is_some()) && self.receive_host();
        for (uid, pod) in &self.pods {
            let Some(readiness) = &pod.readiness else { continue };
            if read_if_ready(readiness, context, || pod.watch.drain()) || (tick && pod.watch.drain()) {
                self.changed_pods.insert(uid.clone());
                changed = true;
            }
        }
        let readiness = self.host.as_mut().and_then(|host| host.readiness.take());
        changed |= readiness
            .as_ref()
            .is_some_and(|readiness| read_if_ready(readiness, context, || self.receive_host()));
        if let Some(host) = &mut self.host {
            host.readiness = readiness;
        }
        if changed { Poll::Ready(()) } else { Poll::Pending }
    }

    /// What can't be armed is looked at in every run.
    fn register(&mut self) {
        if let Some(host) = self.host.as_mut().filter(|host| !self.paused && host.readiness.is_none()) {
            host.readiness = register(host.mirror.watch()).ok();
            host.complete &= host.readiness.is_some();
        }
        self.pods.retain(|_, pod| {
            if pod.readiness.is_none() {
                pod.readiness = register(&pod.watch).ok();
            }
            pod.readiness.is_some()
        });
    }

    /// Takes in what was told in the pods' namespaces.
    fn receive_pods(&mut self) {
        let mut waiting: Vec<PollFd<'_>> =
            self.pods.values().map(|pod| PollFd::new(pod.watch.as_fd(), PollFlags::POLLIN)).collect();
        // Where they can't be asked all at once, each is read.
        let polled = poll(&mut waiting, PollTimeout::ZERO).is_ok();
        let has_data = |at: &PollFd<'_>| !polled || at.any() != Some(false);
        let has_data: Vec<bool> = waiting.iter().map(has_data).collect();
        for ((uid, pod), has_data) in self.pods.iter().zip(has_data) {
            if has_data && pod.watch.drain() {
                self.changed_pods.insert(uid.clone());
            }
        }
    }

    /// True when something was told that may have to be put right.
    fn receive_host(&mut self) -> bool {
        let Some(host) = &mut self.host else { return false };
        let notified = host.mirror.receive();
        host.complete &= notified.is_some();
        notified.is_none_or(|changed| self.mark_changed(&changed))
    }

    /// True when there are ends of pods among these.
    fn mark_changed(&mut self, changed: &[Link]) -> bool {
        let Some(host) = &self.host else { return false };
        let owner = |link: &Link| {
            let (uid, _) = ownership::read_alias(&host.cluster, link.alias.as_deref()?)?;
            Some(uid.to_owned())
        };
        let uids: Vec<String> = changed.iter().filter_map(owner).collect();
        let any = !uids.is_empty();
        self.changed_pods.extend(uids);
        any
    }
}

/// Ready when something is told from now on, or was already.
fn register(watch: &Arc<Watch>) -> io::Result<Readiness> {
    // Its successor is unsafe to call since a type may lie about its descriptor; this one owns it and keeps it.
    #[expect(deprecated, reason = "unsafe code is forbidden here")]
    AsyncFd::with_interest(Arc::clone(watch), Interest::READABLE)
}

/// Reads when it is readable. True when that found something.
fn read_if_ready(readiness: &Readiness, context: &mut Context<'_>, mut read: impl FnMut() -> bool) -> bool {
    let mut changed = false;
    while let Poll::Ready(Ok(mut guard)) = readiness.poll_read_ready(context) {
        guard.clear_ready();
        changed |= read();
    }
    changed
}
