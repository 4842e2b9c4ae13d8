//! Netlink subscriptions for the host and the pods: drift is notified, ENO's own changes are not.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::os::fd::AsFd as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use eno_schemas::NodeDesired;
use futures::Stream;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::Sandbox;
use super::node_view::{NodeView, Reads};
use crate::netlink::{Namespace, Netlink, NetlinkError, Readiness, Watch};

/// Changes come in bursts, and those of a routing daemon never end: they are combined for this long.
const DEBOUNCE: Duration = Duration::from_millis(100);

/// Interval of the checks whether pods' namespaces have ended: a subscription keeps a namespace alive.
const LIVENESS_INTERVAL: Duration = Duration::from_secs(2);

/// Subscribes to the host's interfaces and to the namespaces of pods that have interfaces of ENO, and keeps the
/// [`NodeView`] true with what they notify. Notifications wake nobody while the host or the pod is being reconciled.
#[derive(Clone, Debug, Default)]
pub struct NetlinkMonitor(Arc<Mutex<State>>);

/// The view, and the sockets that keep it true.
#[derive(Debug, Default)]
pub struct State {
    /// What is known of the node.
    pub view: NodeView,
    /// Subscriptions to the namespaces of pods, by uid; without pods that are being reconciled.
    pods: BTreeMap<String, PodWatch>,
    /// The subscription to the host; `None` before its interfaces are first listed.
    host: Option<HostWatch>,
    /// True while the host is being reconciled.
    paused: bool,
    /// The waker of the task that waits in [`NetlinkMonitor::changes`].
    waker: Option<Waker>,
}

#[derive(Debug)]
struct PodWatch {
    watch: Arc<Watch>,
    sandbox: Sandbox,
    /// `None` until a task waits for changes.
    readiness: Option<Readiness>,
}

#[derive(Debug)]
struct HostWatch {
    watch: Arc<Watch>,
    /// `None` during a reconcile, and until a task waits for changes.
    readiness: Option<Readiness>,
}

/// While this is held, notifications of the host wake nobody.
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
    /// Yields once for all changes since the last item, and once when there were none for the time of `audit`. For one
    /// listener only.
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
            // Goes on reading during that time, so that the sockets' buffers don't overflow.
            let debounce = async {
                loop {
                    notified().await;
                }
            };
            let Err(_) = tokio::time::timeout(DEBOUNCE, debounce).await;
            Some(((), (monitor, Some(liveness))))
        })
    }

    /// Pauses the notifications of the host for a reconcile, after reading those that are waiting.
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

    /// Lists the host's interfaces. The calling thread and `netlink` are in the host's namespace.
    pub fn list_host(&self, netlink: &mut Netlink, cluster: &str) -> Result<(), NetlinkError> {
        let known = self.lock().host.as_ref().map(|host| Arc::clone(&host.watch));
        let watch = match known {
            Some(watch) => watch,
            None => Arc::new(Watch::links()?),
        };
        let listed = watch.list(netlink);
        let mut all = self.lock();
        all.host = Some(HostWatch { watch, readiness: None });
        match listed {
            Ok(links) => all.view.host_listed(cluster, links),
            Err(error) => {
                all.view.host_lost();
                return Err(error);
            }
        }
        Ok(())
    }

    /// Starts a reconcile: what it has to read. `interval`: the time between audits.
    pub fn start<'a>(&self, desired: &'a NodeDesired, interval: Duration) -> Reads<'a> {
        let State { view, pods, .. } = &mut *self.lock();
        view.start(desired, Instant::now(), interval, |uid| pods.contains_key(uid))
    }

    /// Ends a reconcile that came to its end, and the subscriptions to pods without interfaces of ENO.
    pub fn finish(&self, reads: &Reads<'_>) {
        let State { view, pods, .. } = &mut *self.lock();
        view.finish(reads, Instant::now());
        pods.retain(|uid, _| view.has_pod(uid));
    }

    /// Pauses the notifications of a pod that is about to be read, and returns its subscription.
    pub fn pause_pod(&self, uid: &str, sandbox: &Sandbox) -> Option<Arc<Watch>> {
        let mut all = self.lock();
        all.view.pod_starts(uid);
        let pod = all.pods.remove(uid).filter(|pod| pod.sandbox.id == sandbox.id)?;
        Some(pod.watch)
    }

    /// Subscribes to the pod's namespace until that is no longer at its path.
    pub fn watch_pod(&self, uid: &str, sandbox: &Sandbox, watch: Arc<Watch>) {
        let pod = PodWatch { watch, sandbox: sandbox.clone(), readiness: None };
        self.lock().pods.insert(uid.to_owned(), pod);
    }

    /// Locks, also after a panic: the state is never half-written.
    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Ready when something has changed.
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
        // A socket that overflowed while it was read signals nothing more until it is read again.
        let mut changed =
            tick && self.host.as_ref().is_some_and(|host| host.readiness.is_some()) && self.receive_host();
        changed |= tick && self.view.is_postponed_due(Instant::now());
        for (uid, pod) in &self.pods {
            let Some(readiness) = &pod.readiness else { continue };
            if read_if_ready(readiness, context, || pod.watch.drain()) || (tick && pod.watch.drain()) {
                self.view.pod_notified(uid);
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

    /// Registers all sockets for wake-ups, so that a reconcile need not. A pod whose socket can't be registered is read
    /// in every reconcile.
    fn register(&mut self) {
        if let Some(host) = self.host.as_mut().filter(|host| !self.paused && host.readiness.is_none()) {
            host.readiness = host.watch.register().ok();
            if host.readiness.is_none() {
                self.view.host_lost();
            }
        }
        self.pods.retain(|_, pod| {
            if pod.readiness.is_none() {
                pod.readiness = pod.watch.register().ok();
            }
            pod.readiness.is_some()
        });
    }

    /// Reads the waiting notifications of all pods.
    fn receive_pods(&mut self) {
        let mut waiting: Vec<PollFd<'_>> =
            self.pods.values().map(|pod| PollFd::new(pod.watch.as_fd(), PollFlags::POLLIN)).collect();
        // If poll(2) fails, every socket is read.
        let polled = poll(&mut waiting, PollTimeout::ZERO).is_ok();
        let has_data = |at: &PollFd<'_>| !polled || at.any() != Some(false);
        for ((uid, pod), at) in self.pods.iter().zip(&waiting) {
            if has_data(at) && pod.watch.drain() {
                self.view.pod_notified(uid);
            }
        }
    }

    /// Reads the waiting notifications of the host. True when a pod may have drifted.
    fn receive_host(&mut self) -> bool {
        let Some(host) = &self.host else { return false };
        if let Some(notifications) = host.watch.read_links(|port| self.view.tracks_vlans(port)) {
            return self.view.host_notified(notifications);
        }
        self.view.host_lost();
        true
    }
}

/// Calls `read` while the socket is readable. True when any call returned true.
fn read_if_ready(readiness: &Readiness, context: &mut Context<'_>, mut read: impl FnMut() -> bool) -> bool {
    let mut changed = false;
    while let Poll::Ready(Ok(mut guard)) = readiness.poll_read_ready(context) {
        guard.clear_ready();
        changed |= read();
    }
    changed
}
