//! Detects drift of the host's networks from netlink notifications.
//!
//! A notification says only that something has changed. So the changes are planned again. An empty plan, as after ENO's
//! own changes and most foreign ones, wakes nobody.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, TryLockError};
use std::time::Duration;

use eno_sbi::Baseline;
use futures::Stream;
use tokio::time::{Instant, sleep};
use tracing::{debug, warn};

use super::guard::Refusal;
use super::{HostError, HostKernel, Kernel as _, Last, LastReconcile, ownership, plan};
use crate::netlink::{Namespace, Readiness, Watch};

/// Notifications come in bursts, such as for a pod's interfaces: they are handled together.
const DEBOUNCE: Duration = Duration::from_millis(50);
/// Delay before the next attempt after a failure.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);
/// Maximum drift events yielded without delay (capacity of the token bucket).
const MAX_TOKENS: f64 = 20.0;
/// Time in which one token is refilled.
const TOKEN_INTERVAL: Duration = Duration::from_secs(2);

struct Watcher {
    /// The network namespace of the host.
    namespace: Namespace,
    last: Arc<LastReconcile>,
    /// Locked by a reconcile, during which drift is not checked.
    repairs: Arc<Mutex<BTreeMap<String, u64>>>,
    /// The netlink notifications; absent: not subscribed yet.
    subscription: Option<Readiness>,
    /// Drift events that may be yielded without delay.
    tokens: f64,
    /// When `tokens` was last computed.
    refilled: Instant,
}

/// Yields when the observed state differs from the last reconcile.
pub(super) fn changed(
    namespace: Namespace,
    last: Arc<LastReconcile>,
    repairs: Arc<Mutex<BTreeMap<String, u64>>>,
) -> impl Stream<Item = ()> + Send + 'static {
    let watcher = Watcher {
        namespace,
        last,
        repairs,
        subscription: None,
        tokens: MAX_TOKENS,
        refilled: Instant::now(),
    };
    futures::stream::unfold(watcher, |mut watcher| async move {
        watcher.next().await;
        Some(((), watcher))
    })
}

impl Watcher {
    /// Waits until the observed state differs from the desired one.
    async fn next(&mut self) {
        loop {
            self.wait_for_notification().await;
            loop {
                sleep(DEBOUNCE).await;
                if let Some(subscription) = &self.subscription {
                    subscription.get_ref().drain();
                }
                match self.differs().await {
                    Ok(None) => {}
                    Ok(Some(false)) => break,
                    Ok(Some(true)) => {
                        self.throttle().await;
                        return;
                    }
                    Err(error) => {
                        warn!(%error, "can't look at what has changed on the host");
                        sleep(RETRY_INTERVAL).await;
                    }
                }
            }
        }
    }

    /// Waits for a notification. Also returns after subscribing: earlier changes may have been missed.
    async fn wait_for_notification(&mut self) {
        loop {
            match &self.subscription {
                Some(subscription) => match notified(subscription).await {
                    Ok(()) => return,
                    Err(error) => {
                        warn!(%error, "the kernel's news of the host can't be read, listening anew");
                        self.subscription = None;
                    }
                },
                None => match subscribe(&self.namespace).await {
                    Ok(subscription) => {
                        self.subscription = Some(subscription);
                        return;
                    }
                    Err(error) => {
                        warn!(%error, "can't listen to what changes on the host");
                        sleep(RETRY_INTERVAL).await;
                    }
                },
            }
        }
    }

    /// True when a plan would not be empty, or its refusals differ; `None`: a reconcile is in progress.
    async fn differs(&self) -> Result<Option<bool>, HostError> {
        let (last, repairs) = (self.last.clone(), self.repairs.clone());
        self.namespace
            .run(move || {
                let _guard = match repairs.try_lock() {
                    Ok(guard) => guard,
                    Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                    Err(TryLockError::WouldBlock) => return Ok(None),
                };
                // Without a command nothing is desired, and a failed reconcile is retried anyway.
                let last = match &*last.borrow() {
                    Baseline::Observed(last) => Arc::clone(last),
                    Baseline::Unset | Baseline::Failed => return Ok(Some(false)),
                };
                let Last { desired, refused, installation } = &*last;
                let state =
                    HostKernel::open(Arc::clone(installation))?.state(ownership::group(&desired.cluster))?;
                // Requests that the kernel refused are retried by the driver's host.
                let failed = refused.iter().filter(|(_, refusal)| {
                    matches!(refusal, Refusal::Failed { .. } | Refusal::Unstable { .. })
                });
                let failed = failed.map(|(item, refusal)| (item.clone(), refusal.clone())).collect();
                let plan = plan::plan(desired, &state, &failed);
                if let Some(step) = plan.steps.first() {
                    debug!(difference = %step.difference, "another hand has changed something");
                }
                Ok(Some(!plan.steps.is_empty() || plan.refused != *refused))
            })
            .await?
    }

    /// Delays repairs when another process keeps undoing them.
    async fn throttle(&mut self) {
        let now = Instant::now();
        let refill = (now - self.refilled).as_secs_f64() / TOKEN_INTERVAL.as_secs_f64();
        self.tokens = (self.tokens + refill).min(MAX_TOKENS);
        self.refilled = now;
        if self.tokens < 1.0 {
            sleep(TOKEN_INTERVAL.mul_f64(1.0 - self.tokens)).await;
        }
        self.tokens -= 1.0;
    }
}

/// Subscribes to the host's notifications.
async fn subscribe(namespace: &Namespace) -> io::Result<Readiness> {
    let watch = namespace.run(Watch::open).await.map_err(io::Error::other)??;
    Arc::new(watch).register()
}

async fn notified(subscription: &Readiness) -> io::Result<()> {
    loop {
        subscription.readable().await?.clear_ready();
        if subscription.get_ref().drain() {
            return Ok(());
        }
    }
}
