//! Notices what another hand changes of the host's networks, by what the kernel tells of its own accord.
//!
//! News says only that something has changed. So it is planned again what would have to be done: when that is nothing,
//! as after our own changes and most of others', nobody is woken.

use std::io;
use std::os::fd::AsFd as _;
use std::sync::{Arc, Mutex, TryLockError};
use std::time::Duration;

use futures::Stream;
use tokio::io::Interest;
use tokio::net::UnixDatagram;
use tokio::time::{Instant, sleep};
use tracing::{debug, warn};

use super::guard::Refusal;
use super::{HostError, Kernel as _, Settled, lock, mark, plan};
use crate::netlink::{Namespace, Netlink, Watch};

/// News comes in bursts, such as the making of a pod's interfaces: they are looked at together.
const BURST: Duration = Duration::from_millis(50);
/// When listening did not work, it is tried again after this time.
const AGAIN: Duration = Duration::from_secs(5);
/// So many changes are told at once.
const ALLOWANCE: f64 = 20.0;
/// After that, one in this time.
const EARNED: Duration = Duration::from_secs(2);

struct Watcher {
    namespace: Namespace,
    settled: Arc<Mutex<Settled>>,
    lane: Arc<Mutex<()>>,
    listening: Option<Listening>,
    /// How many more changes are told at once.
    allowance: f64,
    /// When that was last worked out.
    counted: Instant,
}

pub(super) fn changed(
    namespace: Namespace,
    settled: Arc<Mutex<Settled>>,
    lane: Arc<Mutex<()>>,
) -> impl Stream<Item = ()> + Send + 'static {
    let watcher =
        Watcher { namespace, settled, lane, listening: None, allowance: ALLOWANCE, counted: Instant::now() };
    futures::stream::unfold(watcher, |mut watcher| async move {
        watcher.next().await;
        Some(((), watcher))
    })
}

impl Watcher {
    /// Ends when something differs from what is wanted.
    async fn next(&mut self) {
        loop {
            self.news().await;
            loop {
                sleep(BURST).await;
                if let Some(listening) = &self.listening {
                    listening.watch.drain();
                }
                match self.differs().await {
                    Ok(None) => {}
                    Ok(Some(false)) => break,
                    Ok(Some(true)) => {
                        self.pace().await;
                        return;
                    }
                    Err(error) => {
                        warn!(%error, "can't look at what has changed on the host");
                        sleep(AGAIN).await;
                    }
                }
            }
        }
    }

    /// Waits for news. When it begins to listen, what came before may have been missed, which is news.
    async fn news(&mut self) {
        loop {
            match &self.listening {
                Some(listening) => match listening.news().await {
                    Ok(()) => return,
                    Err(error) => {
                        warn!(%error, "the kernel's news of the host can't be read, listening anew");
                        self.listening = None;
                    }
                },
                None => match Listening::begin(&self.namespace).await {
                    Ok(listening) => {
                        self.listening = Some(listening);
                        return;
                    }
                    Err(error) => {
                        warn!(%error, "can't listen to what changes on the host");
                        sleep(AGAIN).await;
                    }
                },
            }
        }
    }

    /// Whether there would be something to do; `None`: it is being done just now.
    async fn differs(&self) -> Result<Option<bool>, HostError> {
        let (settled, lane) = (self.settled.clone(), self.lane.clone());
        self.namespace
            .run(move || {
                let _alone = match lane.try_lock() {
                    Ok(alone) => alone,
                    Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                    Err(TryLockError::WouldBlock) => return Ok(None),
                };
                // Without a command nothing is wanted, and after a failure it is tried again anyway.
                let (desired, refused) = match &*lock(&settled) {
                    Settled { desired: Some(desired), refused, .. } => (desired.clone(), refused.clone()),
                    Settled { desired: None, .. } => return Ok(Some(false)),
                };
                let state = Netlink::open()?.state(mark::group(&desired.cluster))?;
                // What the kernel did not do is tried again by the host of this driver.
                let failed = refused.iter().filter(|(_, refusal)| {
                    matches!(refusal, Refusal::Failed { .. } | Refusal::Restless { .. })
                });
                let failed = failed.map(|(spot, refusal)| (spot.clone(), refusal.clone())).collect();
                let plan = plan::plan(&desired, &state, &failed);
                if let Some(step) = plan.steps.first() {
                    debug!(difference = %step.difference, "another hand has changed something");
                }
                Ok(Some(!plan.steps.is_empty() || plan.refused != refused))
            })
            .await?
    }

    /// Someone who undoes what we do, again and again, is answered at once only so often.
    async fn pace(&mut self) {
        let now = Instant::now();
        let earned = (now - self.counted).as_secs_f64() / EARNED.as_secs_f64();
        self.allowance = (self.allowance + earned).min(ALLOWANCE);
        self.counted = now;
        if self.allowance < 1.0 {
            sleep(EARNED.mul_f64(1.0 - self.allowance)).await;
        }
        self.allowance -= 1.0;
    }
}

/// A socket on which the kernel tells news.
struct Listening {
    watch: Watch,
    /// The same socket: tokio has no type for one of this family that can be had without `unsafe`, and nothing but its
    /// readiness is asked for.
    readiness: UnixDatagram,
}

impl Listening {
    async fn begin(namespace: &Namespace) -> io::Result<Self> {
        let watch = namespace.run(Watch::open).await.map_err(io::Error::other)??;
        let same = std::os::unix::net::UnixDatagram::from(watch.as_fd().try_clone_to_owned()?);
        Ok(Self { watch, readiness: UnixDatagram::from_std(same)? })
    }

    async fn news(&self) -> io::Result<()> {
        loop {
            self.readiness.readable().await?;
            let drained = self.readiness.try_io(Interest::READABLE, || {
                if self.watch.drain() { Ok(()) } else { Err(io::ErrorKind::WouldBlock.into()) }
            });
            match drained {
                Ok(()) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }
}
