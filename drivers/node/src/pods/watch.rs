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

use super::{Sandbox, mark};
use crate::netlink::{Link, Links, Mirror, Namespace, Netlink, NetlinkError, PortsVlans, Watch};

/// Changes come in bursts, and those of a routing daemon never end: they are gathered for this long.
const GATHER: Duration = Duration::from_millis(100);

/// How often it is looked whether pods' namespaces have ended: to listen in one keeps it alive.
const ALIVE: Duration = Duration::from_secs(2);

/// Listens to the host's interfaces, and in the namespaces of pods that were given something. Nobody is woken by what
/// is told while the host or a pod is worked on.
#[derive(Clone, Debug, Default)]
pub struct Ears(Arc<Mutex<All>>);

#[derive(Debug, Default)]
struct All {
    /// By the pods' uids; without those that are worked on.
    pods: BTreeMap<String, Ear>,
    host: Option<Host>,
    /// The host is worked on.
    hushed: bool,
    /// Pods of which something was heard since they were last looked at.
    stirred: BTreeSet<String>,
    /// Of the one that waits for news.
    waker: Option<Waker>,
}

/// Wakes whoever waits when something is told. Armed by whoever waits: the work need not wait for that.
type Armed = AsyncFd<Arc<Watch>>;

#[derive(Debug)]
struct Ear {
    watch: Arc<Watch>,
    sandbox: Sandbox,
    /// Absent until somebody waits.
    armed: Option<Armed>,
}

#[derive(Debug)]
struct Host {
    mirror: Mirror,
    /// What the ends of pairs are marked with.
    cluster: String,
    /// Nothing that was told is lost.
    whole: bool,
    /// Absent while anything is worked on, and until somebody waits.
    armed: Option<Armed>,
}

/// While this is held nobody is woken by what is told of the host.
#[derive(Debug)]
pub struct Quiet(Ears);

impl Drop for Quiet {
    fn drop(&mut self) {
        let mut all = self.0.lock();
        all.hushed = false;
        if let Some(waker) = &all.waker {
            waker.wake_by_ref();
        }
    }
}

impl Ears {
    /// One item for all that was heard since the last, and one when there was none for the time of `audit`. For one
    /// listener.
    pub fn news(&self, audit: Duration) -> impl Stream<Item = ()> + Send + use<> {
        let start = (self.clone(), None::<Interval>);
        futures::stream::unfold(start, move |(ears, alive)| async move {
            let mut alive = alive.unwrap_or_else(|| {
                let mut alive = interval(ALIVE);
                alive.set_missed_tick_behavior(MissedTickBehavior::Delay);
                alive
            });
            let mut heard = async || poll_fn(|context| ears.lock().poll(&mut alive, context)).await;
            drop(tokio::time::timeout(audit, heard()).await);
            // It goes on listening: what is told would not fit into the sockets.
            let gather = async {
                loop {
                    heard().await;
                }
            };
            let Err(_) = tokio::time::timeout(GATHER, gather).await;
            Some(((), (ears, Some(alive))))
        })
    }

    /// The host is about to be worked on. What was told up to now has been heard.
    pub fn hush(&self) -> Quiet {
        let mut all = self.lock();
        all.hushed = true;
        if let Some(host) = &mut all.host {
            host.armed = None;
        }
        all.hear_host();
        all.hear_pods();
        drop(all);
        Quiet(self.clone())
    }

    /// The host's interfaces; `None`: they have to be listed.
    pub fn host(&self) -> Option<Arc<Links>> {
        let mut all = self.lock();
        all.host.as_mut().filter(|host| host.whole).map(|host| Arc::clone(host.mirror.links()))
    }

    /// Lists the host's interfaces. The calling thread and `netlink` are in its namespace.
    pub fn list_host(&self, netlink: &mut Netlink, cluster: &str) -> Result<(), NetlinkError> {
        let known = self.lock().host.take();
        let (mirror, different) = match known {
            Some(Host { mut mirror, .. }) => {
                let different = mirror.list(netlink);
                (mirror, different)
            }
            None => (Mirror::open(netlink)?, Ok(Vec::new())),
        };
        let mut all = self.lock();
        let whole = different.is_ok();
        all.host = Some(Host { mirror, cluster: cluster.to_owned(), whole, armed: None });
        all.stir(&different?);
        Ok(())
    }

    /// What was seen of interfaces of the host, by their index, with the VLANs of ports that filter them.
    pub fn saw(&self, ends: impl IntoIterator<Item = (u32, Option<Link>)>, mut vlans: PortsVlans) {
        if let Some(host) = &mut self.lock().host {
            ends.into_iter().for_each(|(index, link)| host.mirror.put(index, link, vlans.remove(&index)));
        }
    }

    /// The pod is about to be looked at: what was told so far will be seen then.
    pub fn hush_pod(&self, uid: &str, sandbox: &Sandbox) -> Option<Arc<Watch>> {
        let mut all = self.lock();
        all.stirred.remove(uid);
        let ear = all.pods.remove(uid).filter(|ear| ear.sandbox.id == sandbox.id)?;
        Some(ear.watch)
    }

    /// Listens in the pod's namespace, until it is no longer at its path.
    pub fn listen(&self, uid: &str, sandbox: &Sandbox, watch: Arc<Watch>) {
        let ear = Ear { watch, sandbox: sandbox.clone(), armed: None };
        self.lock().pods.insert(uid.to_owned(), ear);
    }

    /// The pod is listened to, and nothing was heard of it.
    pub fn quiet(&self, uid: &str) -> bool {
        let all = self.lock();
        all.pods.contains_key(uid) && !all.stirred.contains(uid)
    }

    /// Others are of no interest any more.
    pub fn keep(&self, wanted: impl Fn(&str) -> bool) {
        let mut all = self.lock();
        all.pods.retain(|uid, _| wanted(uid));
        all.stirred.retain(|uid| wanted(uid));
    }

    /// What a panic left behind is whole.
    fn lock(&self) -> MutexGuard<'_, All> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl All {
    /// Ready when there is news.
    fn poll(&mut self, alive: &mut Interval, context: &mut Context<'_>) -> Poll<()> {
        self.waker = Some(context.waker().clone());
        self.arm();
        let mut tick = false;
        while alive.poll_tick(context).is_ready() {
            tick = true;
            self.pods
                .retain(|_, Ear { sandbox, .. }| Namespace::open_exactly(&sandbox.path, sandbox.id).is_ok());
        }
        // A socket that overflowed just as it was read tells nothing more until it is read once again.
        let mut news =
            tick && self.host.as_ref().is_some_and(|host| host.armed.is_some()) && self.hear_host();
        for (uid, ear) in &self.pods {
            let Some(armed) = &ear.armed else { continue };
            if read_if_ready(armed, context, || ear.watch.drain()) || (tick && ear.watch.drain()) {
                self.stirred.insert(uid.clone());
                news = true;
            }
        }
        let armed = self.host.as_mut().and_then(|host| host.armed.take());
        news |= armed.as_ref().is_some_and(|armed| read_if_ready(armed, context, || self.hear_host()));
        if let Some(host) = &mut self.host {
            host.armed = armed;
        }
        if news { Poll::Ready(()) } else { Poll::Pending }
    }

    /// What can't be armed is looked at in every run.
    fn arm(&mut self) {
        if let Some(host) = self.host.as_mut().filter(|host| !self.hushed && host.armed.is_none()) {
            host.armed = arm(host.mirror.watch()).ok();
            host.whole &= host.armed.is_some();
        }
        self.pods.retain(|_, ear| {
            if ear.armed.is_none() {
                ear.armed = arm(&ear.watch).ok();
            }
            ear.armed.is_some()
        });
    }

    /// Takes in what was told in the pods' namespaces.
    fn hear_pods(&mut self) {
        let mut waiting: Vec<PollFd<'_>> =
            self.pods.values().map(|ear| PollFd::new(ear.watch.as_fd(), PollFlags::POLLIN)).collect();
        // Where they can't be asked all at once, each is read.
        let asked = poll(&mut waiting, PollTimeout::ZERO).is_ok();
        let told = |at: &PollFd<'_>| !asked || at.any() != Some(false);
        let told: Vec<bool> = waiting.iter().map(told).collect();
        for ((uid, ear), told) in self.pods.iter().zip(told) {
            if told && ear.watch.drain() {
                self.stirred.insert(uid.clone());
            }
        }
    }

    /// True when something was told that may have to be put right.
    fn hear_host(&mut self) -> bool {
        let Some(host) = &mut self.host else { return false };
        let heard = host.mirror.hear();
        host.whole &= heard.is_some();
        heard.is_none_or(|different| self.stir(&different))
    }

    /// True when there are ends of pods among these.
    fn stir(&mut self, different: &[Link]) -> bool {
        let Some(host) = &self.host else { return false };
        let whose = |link: &Link| {
            let (uid, _) = mark::read_alias(&host.cluster, link.alias.as_deref()?)?;
            Some(uid.to_owned())
        };
        let uids: Vec<String> = different.iter().filter_map(whose).collect();
        let any = !uids.is_empty();
        self.stirred.extend(uids);
        any
    }
}

/// Ready when something is told from now on, or was already.
fn arm(watch: &Arc<Watch>) -> io::Result<Armed> {
    // Its successor is unsafe to call since a type may lie about its descriptor; this one owns it and keeps it.
    #[expect(deprecated, reason = "unsafe code is forbidden here")]
    AsyncFd::with_interest(Arc::clone(watch), Interest::READABLE)
}

/// Reads when it is readable. True when that found something.
fn read_if_ready(armed: &Armed, context: &mut Context<'_>, mut read: impl FnMut() -> bool) -> bool {
    let mut news = false;
    while let Poll::Ready(Ok(mut guard)) = armed.poll_read_ready(context) {
        guard.clear_ready();
        news |= read();
    }
    news
}
