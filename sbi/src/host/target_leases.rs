//! Leases of targets among the instances of a driver: keys with a time-to-live in the owners bucket, renewed
//! by their holder.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use async_nats::jetstream::context::{PublishError, PublishErrorKind};
use eno_schemas::subject;
use futures::StreamExt;
use futures::stream;
use tokio::sync::mpsc;
use tracing::{debug, warn};

use crate::nats::{Connection, Content, Restarts, Selection, StreamReader, bucket};
use crate::target_ownership::OwnedTargets;

/// Maximum concurrent writes to the bucket.
const MAX_CONCURRENT_WRITES: usize = 32;
/// Keys in the bucket that may wait to be looked at.
const MAX_WAITING_KEYS: usize = 256;

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

/// What the bucket says of a key. A key that was never seen has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    /// This instance: from before a restart, or by a renewal whose answer was lost.
    This { revision: u64 },
    /// Another instance, which said so at this time.
    Other { seen: Instant },
    /// The key was removed, or its time is over.
    Nobody { revision: u64 },
    /// Something that is no name of an instance took the place of the holder's name, at this time.
    Unknown { revision: u64, seen: Instant },
}

/// A change in the bucket.
enum OwnerEvent {
    /// The bucket can be read, and all keys follow.
    Opened,
    /// A key has this owner.
    Changed(String, Owner),
}

/// Who the leases are for.
pub(super) struct Leaser {
    /// The driver's name.
    pub driver: String,
    /// The only target that the driver works on.
    pub target: Option<String>,
    /// This instance's name, which is the value of its keys.
    pub instance: String,
    /// Lifetime of a lease after its renewal, as in the bucket.
    pub lease_duration: Duration,
}

struct LeaseManager {
    /// The connection to NATS.
    connection: Connection,
    leaser: Leaser,
    /// The owners by key, as the bucket tells.
    owners: HashMap<String, Owner>,
    /// The requested names, with their leases where this instance holds them.
    names: HashMap<String, Option<Lease>>,
    /// Tells jobs until when the leases are valid.
    owned_targets: OwnedTargets,
    /// Notifies the host of acquired and lost leases.
    events: mpsc::UnboundedSender<LeaseEvent>,
}

/// Acquires and renews the requested leases until `requests` ends, then releases all.
pub(super) async fn run(
    connection: Connection,
    leaser: Leaser,
    owned_targets: OwnedTargets,
    mut requests: mpsc::UnboundedReceiver<LeaseRequest>,
    events: mpsc::UnboundedSender<LeaseEvent>,
) {
    let (changes_in, mut changes) = mpsc::channel(MAX_WAITING_KEYS);
    let following = follow(connection.clone(), leaser.filter(), leaser.instance.clone(), changes_in);
    let following = tokio_util::task::AbortOnDropHandle::new(tokio::spawn(following));
    let mut manager = LeaseManager {
        connection,
        leaser,
        owners: HashMap::new(),
        names: HashMap::new(),
        owned_targets,
        events,
    };
    let interval = manager.leaser.lease_duration / 6;
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
            Some(change) = changes.recv() => {
                let mut batch = vec![change];
                while let Ok(change) = changes.try_recv() {
                    batch.push(change);
                }
                manager.handle_changes(batch).await;
            }
            () = tokio::time::sleep_until(last_tick + interval) => {
                last_tick = tokio::time::Instant::now();
                let due = manager.leaser.lease_duration / 4;
                manager.renew_where(|_, lease| lease.is_none_or(|lease| lease.renewed.elapsed() >= due)).await;
            }
        }
    }
    drop(following);
    manager.release_all().await;
}

/// Sends the owners of all keys of the driver, and each change.
async fn follow(connection: Connection, filter: String, instance: String, to: mpsc::Sender<OwnerEvent>) {
    let mut restarts = Restarts::new(&connection, None);
    while restarts.follow("reading the owners of targets", read(&connection, &filter, &instance, &to)).await {
    }
}

/// Breaks when nobody receives the changes.
async fn read(
    connection: &Connection,
    filter: &str,
    instance: &str,
    to: &mpsc::Sender<OwnerEvent>,
) -> Result<ControlFlow<()>, async_nats::Error> {
    let stream = subject::bucket_stream(subject::OWNERS);
    let mut owners = StreamReader::open(&connection.jetstream, Selection::last(&stream, filter)).await?;
    let prefix = subject::of_bucket(subject::OWNERS, "");
    let mut change = OwnerEvent::Opened;
    while to.send(change).await.is_ok() {
        let message = owners.next().await?;
        let (revision, seen) = (message.sequence, Instant::now());
        let owner = match message.content {
            Content::Payload(value) if *value == *instance.as_bytes() => Owner::This { revision },
            // An answer of JetStream is a JSON object.
            Content::Payload(value) if value.starts_with(b"{") => Owner::Unknown { revision, seen },
            Content::Payload(_) => Owner::Other { seen },
            Content::Removed => Owner::Nobody { revision },
            Content::Foreign(_) => Owner::Unknown { revision, seen },
        };
        let key = message.subject.strip_prefix(&prefix).unwrap_or_default().to_owned();
        change = OwnerEvent::Changed(key, owner);
    }
    Ok(ControlFlow::Break(()))
}

impl Leaser {
    /// The keys of the driver in the bucket.
    fn filter(&self) -> String {
        subject::of_bucket(
            subject::OWNERS,
            &match &self.target {
                Some(target) => self.key(target),
                None => format!("{}.*", subject::token(&self.driver)),
            },
        )
    }

    fn key(&self, name: &str) -> String {
        subject::key(&self.driver, name)
    }
}

impl LeaseManager {
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

    /// Takes in what the bucket says, and tries to acquire what is free, or was taken from this instance by no other.
    async fn handle_changes(&mut self, changes: Vec<OwnerEvent>) {
        let (mut chosen, mut opened) = (std::collections::HashSet::new(), false);
        for change in changes {
            match change {
                OwnerEvent::Opened => opened = true,
                OwnerEvent::Changed(key, owner) => {
                    if !matches!(owner, Owner::Other { .. }) {
                        chosen.insert(key.clone());
                    }
                    self.owners.insert(key, owner);
                }
            }
        }
        let keys: HashMap<String, String> =
            self.names.keys().map(|name| (name.clone(), self.leaser.key(name))).collect();
        let owners = self.owners.clone();
        self.renew_where(|name, lease| {
            if opened && lease.is_none() {
                return true;
            }
            let Some(key) = keys.get(name).filter(|key| chosen.contains(*key)) else { return false };
            lease.is_none() || matches!(owners.get(key), Some(Owner::Unknown { .. }))
        })
        .await;
    }

    /// Renews held leases and tries to acquire missing ones, of the names that `chosen` selects.
    async fn renew_where(&mut self, chosen: impl Fn(&str, Option<&Lease>) -> bool) {
        let mut attempts = Vec::new();
        for (name, lease) in &self.names {
            if chosen(name, lease.as_ref()) {
                let (this, name, lease) = (&*self, name.clone(), *lease);
                attempts.push(async move {
                    let after = this.renew_lease(&name, lease).await;
                    (name, lease, after)
                });
            }
        }
        let tried: Vec<_> = stream::iter(attempts).buffer_unordered(MAX_CONCURRENT_WRITES).collect().await;
        for (name, before, after) in tried {
            let uninterrupted = if let Some(lease) = after {
                self.owned_targets.renew(&name, lease.renewed + self.leaser.lease_duration)
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

    async fn renew_lease(&self, name: &str, lease: Option<Lease>) -> Option<Lease> {
        let started = Instant::now();
        // No other instance can hold it before the lease expires, which may happen while no reply comes.
        let unexpired = || lease.filter(|lease| lease.renewed.elapsed() < self.leaser.lease_duration);
        let owner = self.owners.get(&self.leaser.key(name));
        let known = match owner {
            Some(Owner::This { revision } | Owner::Nobody { revision }) => Some(*revision),
            // Only its holder may take it back at once. Others wait until its time is over.
            Some(Owner::Unknown { revision, .. }) => unexpired().map(|_| *revision),
            Some(Owner::Other { .. }) | None => None,
        };
        // The bucket does not tell when it forgets a key, or the mark of its removal. Another driver process can make it
        // forget all keys. Who held it by then writes it again.
        let may_be_held = match owner {
            Some(Owner::Other { seen } | Owner::Unknown { seen, .. }) => {
                lease.is_none() && seen.elapsed() < self.leaser.lease_duration
            }
            _ => false,
        };
        // The revision of this instance may be newer than what the bucket has told so far.
        let held = lease.map(|lease| lease.revision);
        let known = known.filter(|known| Some(*known) > held);
        let forgotten = (!may_be_held).then_some(0);
        for after in [held, known, forgotten].into_iter().flatten() {
            match self.put(name, after).await {
                Ok(revision) => return Some(Lease { revision, renewed: started }),
                Err(error) if error.kind() == PublishErrorKind::WrongLastSequence => {}
                Err(error) => {
                    debug!(%error, %name, "writing the ownership");
                    return unexpired();
                }
            }
        }
        None
    }

    async fn put(&self, name: &str, after: u64) -> Result<u64, PublishError> {
        let (key, value) = (self.leaser.key(name), self.leaser.instance.clone());
        bucket::put(&self.connection.jetstream, (subject::OWNERS, &key), value.into(), Some(after)).await
    }

    async fn release(&self, name: &str, lease: Lease) {
        let key = self.leaser.key(name);
        let place = (subject::OWNERS, &*key);
        if let Err(error) = bucket::remove(&self.connection.jetstream, place, Some(lease.revision)).await {
            debug!(%error, %name, "releasing");
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
        stream::iter(releases).buffer_unordered(MAX_CONCURRENT_WRITES).collect::<()>().await;
    }
}
