//! Leases of targets among the instances of a driver: keys with a time-to-live in the owners bucket, renewed
//! by their holder.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use async_nats::Subscriber;
use async_nats::jetstream::kv::{CreateErrorKind, Operation, Store, UpdateErrorKind};
use eno_schemas::{Subject, subject};
use futures::StreamExt;
use futures::stream;
use tokio::sync::mpsc;
use tracing::{debug, warn};

use crate::nats::Connection;
use crate::target_ownership::OwnedTargets;

/// Maximum concurrent calls to the bucket.
const MAX_CONCURRENT_CALLS: usize = 32;
/// Lifetime of a lease where the bucket gives none.
const DEFAULT_LEASE_DURATION: Duration = Duration::from_secs(15);

/// Interval of the attempts to open a bucket that does not exist yet.
const BUCKET_RETRY_INTERVAL: Duration = Duration::from_millis(200);

/// A request of the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LeaseRequest {
    /// Acquire and renew the lease of this name.
    Acquire(String),
    /// Release the lease of this name.
    Release(String),
}

/// A change of what this instance holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LeaseEvent {
    /// This instance holds the lease until further notice.
    Acquired(String),
    /// This instance does not hold the lease any more.
    Lost(String),
}

#[derive(Clone, Copy)]
struct Lease {
    revision: u64,
    renewed: Instant,
}

struct LeaseManager {
    /// The connection to NATS.
    connection: Connection,
    /// The driver's name.
    driver: String,
    /// This instance's name, which is the value of its keys.
    instance: String,
    /// The owners bucket, once it was opened.
    store: Option<Store>,
    /// Lifetime of a lease after its renewal.
    lease_duration: Duration,
    /// The requested names, with their leases where this instance holds them.
    names: HashMap<String, Option<Lease>>,
    /// Tells jobs until when the leases are valid.
    owned_targets: OwnedTargets,
    /// Notifies the host of acquired and lost leases.
    events: mpsc::UnboundedSender<LeaseEvent>,
}

/// Acquires and renews the requested leases until `requests` ends, then releases all. `released` is the
/// subscription to [`Subject::Released`].
pub(super) async fn run(
    connection: Connection,
    (driver, instance): (String, String),
    owned_targets: OwnedTargets,
    mut released: Subscriber,
    mut requests: mpsc::UnboundedReceiver<LeaseRequest>,
    events: mpsc::UnboundedSender<LeaseEvent>,
) {
    let names = HashMap::new();
    let mut manager = LeaseManager {
        connection,
        driver,
        instance,
        store: None,
        lease_duration: DEFAULT_LEASE_DURATION,
        names,
        owned_targets,
        events,
    };
    let mut last_tick = tokio::time::Instant::now();
    loop {
        tokio::select! {
            request = requests.recv() => match request {
                Some(request) => {
                    let mut batch = vec![request];
                    while let Ok(request) = requests.try_recv() {
                        batch.push(request);
                    }
                    manager.handle_requests(batch).await;
                }
                None => break,
            },
            Some(message) = released.next() => {
                manager.renew_where(|name, lease| lease.is_none() && *name.as_bytes() == *message.payload).await;
            }
            () = tokio::time::sleep_until(last_tick + manager.tick_interval()) => {
                last_tick = tokio::time::Instant::now();
                let due = manager.lease_duration / 4;
                manager.renew_where(|_, lease| lease.is_none_or(|lease| lease.renewed.elapsed() >= due)).await;
            }
        }
    }
    manager.release_all().await;
}

impl LeaseManager {
    /// Time between two checks for leases that are due for renewal or may be free.
    fn tick_interval(&self) -> Duration {
        if self.store.is_some() { self.lease_duration / 6 } else { BUCKET_RETRY_INTERVAL }
    }

    async fn handle_requests(&mut self, requests: Vec<LeaseRequest>) {
        let mut new = Vec::new();
        for request in requests {
            match request {
                LeaseRequest::Acquire(name) => {
                    self.names.entry(name.clone()).or_insert(None);
                    new.push(name);
                }
                LeaseRequest::Release(name) => {
                    if let Some(Some(lease)) = self.names.remove(&name) {
                        self.owned_targets.revoke(&name);
                        self.release(&name, lease).await;
                    }
                    new.retain(|other| *other != name);
                }
            }
        }
        let new: std::collections::HashSet<String> = new.into_iter().collect();
        self.renew_where(|name, lease| lease.is_none() && new.contains(name)).await;
    }

    /// Renews held leases and tries to acquire missing ones, of the names that `chosen` selects.
    async fn renew_where(&mut self, chosen: impl Fn(&str, Option<&Lease>) -> bool) {
        let store = self.open_bucket().await;
        let mut attempts = Vec::new();
        for (name, lease) in &self.names {
            if chosen(name, lease.as_ref()) {
                let (this, store, name, lease) = (&*self, store.as_ref(), name.clone(), *lease);
                attempts.push(async move {
                    let after = this.renew_lease(store, &name, lease).await;
                    (name, lease, after)
                });
            }
        }
        let tried: Vec<_> = stream::iter(attempts).buffer_unordered(MAX_CONCURRENT_CALLS).collect().await;
        for (name, before, after) in tried {
            let uninterrupted = if let Some(lease) = after {
                self.owned_targets.renew(&name, lease.renewed + self.lease_duration)
            } else {
                self.owned_targets.revoke(&name);
                false
            };
            if before.is_some() && !uninterrupted {
                warn!(%name, "another instance may work on it, leaving it");
                let _ = self.events.send(LeaseEvent::Lost(name.clone()));
            }
            if after.is_some() && !uninterrupted {
                debug!(%name, "working on it from now on");
                let _ = self.events.send(LeaseEvent::Acquired(name.clone()));
            }
            self.names.insert(name, after);
        }
    }

    async fn renew_lease(&self, store: Option<&Store>, name: &str, lease: Option<Lease>) -> Option<Lease> {
        let started = Instant::now();
        // No other instance can hold it before the lease expires, which may happen while no reply comes.
        let unexpired = || lease.filter(|lease| lease.renewed.elapsed() < self.lease_duration);
        let Some(store) = store else { return unexpired() };
        let key = subject::key(&self.driver, name);
        let value = self.instance.clone().into_bytes();
        let renewed = |revision| Some(Lease { revision, renewed: started });
        if let Some(lease) = lease {
            match store.update(&key, value.clone().into(), lease.revision).await {
                Ok(revision) => return renewed(revision),
                Err(error) if error.kind() == UpdateErrorKind::WrongLastRevision => {}
                Err(error) => {
                    warn!(%error, %name, "renewing the ownership");
                    return unexpired();
                }
            }
        }
        match store.create(&key, value.clone().into()).await {
            Ok(revision) => renewed(revision),
            Err(error) if error.kind() == CreateErrorKind::AlreadyExists => {
                let entry = store.entry(&key).await.ok().flatten()?;
                // The key holds our own value: from before a restart, or from a renewal whose reply was lost.
                if entry.operation == Operation::Put && entry.value == value {
                    let revision = store.update(&key, value.into(), entry.revision).await.ok()?;
                    return renewed(revision);
                }
                None
            }
            Err(error) => {
                debug!(%error, %name, "trying to own it");
                unexpired()
            }
        }
    }

    async fn open_bucket(&mut self) -> Option<Store> {
        if self.store.is_none() {
            match self.connection.jetstream.get_key_value(subject::OWNERS).await {
                Ok(store) => {
                    let lease = store.stream.cached_info().config.max_age;
                    self.lease_duration = if lease.is_zero() { DEFAULT_LEASE_DURATION } else { lease };
                    self.store = Some(store);
                }
                Err(error) => debug!(%error, "no bucket of owners"),
            }
        }
        self.store.clone()
    }

    async fn release(&self, name: &str, lease: Lease) {
        let Some(store) = &self.store else { return };
        let key = subject::key(&self.driver, name);
        if let Err(error) = store.delete_expect_revision(&key, Some(lease.revision)).await {
            debug!(%error, %name, "releasing");
            return;
        }
        let published = self
            .connection
            .client
            .publish(Subject::released(&self.driver).to_string(), name.to_owned().into());
        if let Err(error) = published.await {
            debug!(%error, %name, "telling that it is released");
        }
    }

    async fn release_all(&self) {
        let mut releases = Vec::new();
        for (name, lease) in &self.names {
            if let Some(lease) = *lease {
                let this = self;
                releases.push(async move { this.release(name, lease).await });
            }
        }
        stream::iter(releases).buffer_unordered(MAX_CONCURRENT_CALLS).collect::<()>().await;
    }
}
