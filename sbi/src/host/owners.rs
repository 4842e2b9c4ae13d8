//! Which instance of a driver works on what: keys with a time-to-live, renewed by the one who has them.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use async_nats::Subscriber;
use async_nats::jetstream::kv::{CreateErrorKind, Operation, Store, UpdateErrorKind};
use eno_schemas::subject;
use futures::StreamExt;
use futures::stream;
use tokio::sync::mpsc;
use tracing::{debug, warn};

use crate::nats::Connection;
use crate::target_ownership::OwnedTargets;

/// How many keys are renewed at once.
const AT_ONCE: usize = 32;
/// Where the bucket does not say how long a key lives.
const LEASE: Duration = Duration::from_secs(15);

/// When to look again for a bucket that is not there yet.
const NO_BUCKET: Duration = Duration::from_millis(200);

/// What the host asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ask {
    /// To own this.
    Own(String),
    /// To own it no more.
    Release(String),
}

/// What this instance has or has lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// It is ours until told otherwise.
    Owned(String),
    /// It is ours no more.
    Lost(String),
}

#[derive(Clone, Copy)]
struct Held {
    revision: u64,
    renewed: Instant,
}

struct Owners {
    connection: Connection,
    driver: String,
    instance: String,
    store: Option<Store>,
    lease: Duration,
    names: HashMap<String, Option<Held>>,
    owned_targets: OwnedTargets,
    answers: mpsc::UnboundedSender<Answer>,
}

/// Where instances of a driver tell each other the name of what they work on no more. That only makes it quicker: what
/// is not owned is tried again and again.
pub(super) fn released_subject(driver: &str) -> String {
    format!("eno.v1.released.{}", subject::token(driver))
}

/// Gets and keeps what is asked for until `asks` ends, then releases all. `released`: what comes on
/// [`released_subject`].
pub(super) async fn run(
    connection: Connection,
    (driver, instance): (String, String),
    owned_targets: OwnedTargets,
    mut released: Subscriber,
    mut asks: mpsc::UnboundedReceiver<Ask>,
    answers: mpsc::UnboundedSender<Answer>,
) {
    let names = HashMap::new();
    let mut owners =
        Owners { connection, driver, instance, store: None, lease: LEASE, names, owned_targets, answers };
    let mut looked = tokio::time::Instant::now();
    loop {
        tokio::select! {
            ask = asks.recv() => match ask {
                Some(ask) => {
                    let mut batch = vec![ask];
                    while let Ok(ask) = asks.try_recv() {
                        batch.push(ask);
                    }
                    owners.take(batch).await;
                }
                None => break,
            },
            Some(message) = released.next() => {
                owners.renew(|name, held| held.is_none() && *name.as_bytes() == *message.payload).await;
            }
            () = tokio::time::sleep_until(looked + owners.pause()) => {
                looked = tokio::time::Instant::now();
                let due = owners.lease / 4;
                owners.renew(|_, held| held.is_none_or(|held| held.renewed.elapsed() >= due)).await;
            }
        }
    }
    owners.release_all().await;
}

impl Owners {
    /// How long to wait from one look at what is to be renewed or may be free to the next.
    fn pause(&self) -> Duration {
        if self.store.is_some() { self.lease / 6 } else { NO_BUCKET }
    }

    async fn take(&mut self, asks: Vec<Ask>) {
        let mut new = Vec::new();
        for ask in asks {
            match ask {
                Ask::Own(name) => {
                    self.names.entry(name.clone()).or_insert(None);
                    new.push(name);
                }
                Ask::Release(name) => {
                    if let Some(Some(held)) = self.names.remove(&name) {
                        self.owned_targets.end(&name);
                        self.release(&name, held).await;
                    }
                    new.retain(|other| *other != name);
                }
            }
        }
        let new: std::collections::HashSet<String> = new.into_iter().collect();
        self.renew(|name, held| held.is_none() && new.contains(name)).await;
    }

    /// Renews what is held and tries to get what is not, of those that are `chosen`.
    async fn renew(&mut self, chosen: impl Fn(&str, Option<&Held>) -> bool) {
        let store = self.open().await;
        let mut attempts = Vec::new();
        for (name, held) in &self.names {
            if chosen(name, held.as_ref()) {
                let (this, store, name, held) = (&*self, store.as_ref(), name.clone(), *held);
                attempts.push(async move {
                    let after = this.renew_one(store, &name, held).await;
                    (name, held, after)
                });
            }
        }
        let tried: Vec<_> = stream::iter(attempts).buffer_unordered(AT_ONCE).collect().await;
        for (name, before, after) in tried {
            let unbroken = if let Some(held) = after {
                self.owned_targets.extend(&name, held.renewed + self.lease)
            } else {
                self.owned_targets.end(&name);
                false
            };
            if before.is_some() && !unbroken {
                warn!(%name, "another instance may work on it, leaving it");
                let _ = self.answers.send(Answer::Lost(name.clone()));
            }
            if after.is_some() && !unbroken {
                debug!(%name, "working on it from now on");
                let _ = self.answers.send(Answer::Owned(name.clone()));
            }
            self.names.insert(name, after);
        }
    }

    async fn renew_one(&self, store: Option<&Store>, name: &str, held: Option<Held>) -> Option<Held> {
        let started = Instant::now();
        // Nobody else can have got it before the lease has ended, which it may do while no answer comes.
        let kept = || held.filter(|held| held.renewed.elapsed() < self.lease);
        let Some(store) = store else { return kept() };
        let key = subject::key(&self.driver, name);
        let value = self.instance.clone().into_bytes();
        let now = |revision| Some(Held { revision, renewed: started });
        if let Some(held) = held {
            match store.update(&key, value.clone().into(), held.revision).await {
                Ok(revision) => return now(revision),
                Err(error) if error.kind() == UpdateErrorKind::WrongLastRevision => {}
                Err(error) => {
                    warn!(%error, %name, "renewing the ownership");
                    return kept();
                }
            }
        }
        match store.create(&key, value.clone().into()).await {
            Ok(revision) => now(revision),
            Err(error) if error.kind() == CreateErrorKind::AlreadyExists => {
                let entry = store.entry(&key).await.ok().flatten()?;
                // Ours from before a restart, or renewed without our hearing of it.
                if entry.operation == Operation::Put && entry.value == value {
                    let revision = store.update(&key, value.into(), entry.revision).await.ok()?;
                    return now(revision);
                }
                None
            }
            Err(error) => {
                debug!(%error, %name, "trying to own it");
                kept()
            }
        }
    }

    async fn open(&mut self) -> Option<Store> {
        if self.store.is_none() {
            match self.connection.jetstream.get_key_value(subject::OWNERS).await {
                Ok(store) => {
                    let lease = store.stream.cached_info().config.max_age;
                    self.lease = if lease.is_zero() { LEASE } else { lease };
                    self.store = Some(store);
                }
                Err(error) => debug!(%error, "no bucket of owners"),
            }
        }
        self.store.clone()
    }

    async fn release(&self, name: &str, held: Held) {
        let Some(store) = &self.store else { return };
        let key = subject::key(&self.driver, name);
        if let Err(error) = store.delete_expect_revision(&key, Some(held.revision)).await {
            debug!(%error, %name, "releasing");
            return;
        }
        let told = self.connection.client.publish(released_subject(&self.driver), name.to_owned().into());
        if let Err(error) = told.await {
            debug!(%error, %name, "telling that it is released");
        }
    }

    async fn release_all(&self) {
        let mut releases = Vec::new();
        for (name, held) in &self.names {
            if let Some(held) = *held {
                let this = self;
                releases.push(async move { this.release(name, held).await });
            }
        }
        stream::iter(releases).buffer_unordered(AT_ONCE).collect::<()>().await;
    }
}
