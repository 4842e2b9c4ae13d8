//! A client that reconnects, and restores its mirrors on each connection.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBuilder};
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use serde_json::{Value as Json, json};
use tokio::sync::{Notify, watch};
use tokio_util::task::AbortOnDropHandle;

use crate::connection::{CallError, Connection, OnNotification};
use crate::endpoint::Endpoint;
use crate::error::{ConnectionError, Error};
use crate::mirror::{Mirror, MirrorCore};
use crate::options::Options;
use crate::outcome::Outcome;
use crate::replica::{Format, Limits, MonitorRequest};
use crate::transaction::Transaction;
use crate::value::Malformed;

/// A client of one server. Clones share the connection, which closes with the last clone and
/// [`Mirror`].
///
/// The client connects and reconnects by itself. Mirrors resume from their last transaction.
/// Requests without a reply fail with [`Error::Unknown`] and are not repeated. Any future
/// may be dropped: the connection stays usable, and a transaction that the server has not run yet is
/// cancelled.
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

struct Inner {
    shared: Arc<Shared>,
    _task: AbortOnDropHandle<()>,
}

pub(crate) struct Shared {
    endpoint: Endpoint,
    options: Options,
    link: watch::Sender<LinkState>,
    subscriptions: Mutex<Subscriptions>,
    /// `subscriptions` has changed.
    wake: Notify,
}

/// The mirrors to set up on each connection.
#[derive(Default)]
struct Subscriptions {
    next_key: u64,
    mirrors: BTreeMap<u64, Arc<MirrorCore>>,
}

#[derive(Clone)]
enum LinkState {
    Down(Option<ConnectionError>),
    Up(Arc<Connection>),
}

impl Client {
    /// Starts connecting, within the current tokio runtime.
    pub fn new(endpoint: Endpoint, options: Options) -> Self {
        let shared = Arc::new(Shared {
            endpoint,
            options,
            link: watch::Sender::new(LinkState::Down(None)),
            subscriptions: Mutex::default(),
            wake: Notify::new(),
        });
        let task = tokio::spawn(run(Arc::clone(&shared)));
        Self { inner: Arc::new(Inner { shared, _task: AbortOnDropHandle::new(task) }) }
    }

    /// The server's endpoint.
    pub fn endpoint(&self) -> &Endpoint {
        &self.inner.shared.endpoint
    }

    /// The client's limits.
    pub fn options(&self) -> &Options {
        &self.inner.shared.options
    }

    /// Waits for a connection, up to [`Options::connection_wait`].
    pub async fn connected(&self) -> Result<(), ConnectionError> {
        self.connection().await.map(drop)
    }

    /// Probes the server (`echo`).
    pub async fn echo(&self) -> Result<(), Error> {
        self.call("echo", "echo".into(), json!([])).await.map(drop)
    }

    /// Runs all operations or none (`transact`). When it returns, every [`Mirror`] of this client shows the
    /// transaction's changes.
    pub async fn transact(&self, database: &str, transaction: &Transaction) -> Result<Outcome, Error> {
        self.transact_within(database, transaction, self.options().request_timeout).await
    }

    /// Like [`transact`](Self::transact) with another limit than [`Options::request_timeout`], as a
    /// [`wait`](crate::Operation::Wait) with a longer timeout needs.
    pub async fn transact_within(
        &self,
        database: &str,
        transaction: &Transaction,
        limit: Duration,
    ) -> Result<Outcome, Error> {
        let operation = format!("transact in {database}");
        let wrong = |malformed| Error::Malformed { operation: operation.clone(), malformed };
        // Non-finite numbers have no JSON.
        let params = transaction
            .params(database)
            .map_err(|error| wrong(Malformed::new(&Json::String(error.to_string()))))?;
        let reply = self.call_within("transact", operation.clone(), params, limit).await?;
        match Outcome::parse(transaction, &reply).map_err(wrong)? {
            Ok(outcome) => Ok(outcome),
            Err(failed) => Err(Error::Failed { operation, failed }),
        }
    }

    /// Mirrors the rows that the request selects, from the first connection on. Uses `monitor_cond_since`, or
    /// `monitor_cond` or `monitor` with older servers.
    pub fn mirror(&self, database: impl Into<String>, request: MonitorRequest) -> Mirror {
        let core = {
            let mut subscriptions = self.inner.shared.subscriptions();
            subscriptions.next_key += 1;
            let Options { max_replica: replica, max_replicas: all, .. } = *self.options();
            let limits = Limits { replica, all };
            let core = Arc::new(MirrorCore::new(subscriptions.next_key, database.into(), request, limits));
            subscriptions.mirrors.insert(core.key, Arc::clone(&core));
            core
        };
        self.inner.shared.wake.notify_one();
        Mirror::new(self.clone(), core)
    }

    pub(crate) fn forget_mirror(&self, key: u64) {
        self.inner.shared.subscriptions().mirrors.remove(&key);
        self.inner.shared.wake.notify_one();
    }

    /// The reason that there is no connection; `None`: there is one.
    pub(crate) fn connection_error(&self) -> Option<ConnectionError> {
        match &*self.inner.shared.link.borrow() {
            LinkState::Up(_) => None,
            LinkState::Down(cause) => Some(self.cause(cause.as_ref())),
        }
    }

    fn cause(&self, cause: Option<&ConnectionError>) -> ConnectionError {
        cause.cloned().unwrap_or_else(|| ConnectionError::Connect {
            endpoint: self.endpoint().to_string(),
            reason: "no answer yet".into(),
        })
    }

    async fn call(&self, method: &str, operation: String, params: Json) -> Result<Json, Error> {
        self.call_within(method, operation, params, self.options().request_timeout).await
    }

    async fn call_within(
        &self,
        method: &str,
        operation: String,
        params: Json,
        limit: Duration,
    ) -> Result<Json, Error> {
        let connection = match self.connection().await {
            Ok(connection) => connection,
            Err(cause) => return Err(Error::NotSent { operation, cause }),
        };
        match connection.call(method, params, limit).await {
            Ok(Ok(reply)) => Ok(reply),
            Ok(Err(refusal)) => Err(Error::Refused { operation, refusal }),
            Err(CallError::NotSent(cause)) => Err(Error::NotSent { operation, cause }),
            Err(CallError::Unknown(cause)) => Err(Error::Unknown { operation, cause }),
            Err(CallError::TimedOut(limit)) => {
                Err(Error::TimedOut { operation, endpoint: self.endpoint().to_string(), limit })
            }
        }
    }

    /// Waits for the connection.
    async fn connection(&self) -> Result<Arc<Connection>, ConnectionError> {
        let mut link = self.inner.shared.link.subscribe();
        let up = async {
            loop {
                if let LinkState::Up(connection) = &*link.borrow_and_update() {
                    return Some(Arc::clone(connection));
                }
                link.changed().await.ok()?;
            }
        };
        match tokio::time::timeout(self.options().connection_wait, up).await {
            Ok(Some(connection)) => Ok(connection),
            Ok(None) | Err(_) => Err(self.connection_error().unwrap_or_else(|| self.cause(None))),
        }
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("endpoint", self.endpoint()).finish_non_exhaustive()
    }
}

impl Shared {
    fn subscriptions(&self) -> MutexGuard<'_, Subscriptions> {
        self.subscriptions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Handles a notification. Those of dropped mirrors are ignored.
    fn handle_notification(&self, method: &str, params: &[Json]) -> Result<(), Malformed> {
        let mirror = |id: &Json| id.as_u64().and_then(|key| self.subscriptions().mirrors.get(&key).cloned());
        match (method, params) {
            ("update", [id, updates]) => match mirror(id) {
                Some(core) => core.update(Format::Whole, None, updates),
                None => Ok(()),
            },
            ("update2", [id, updates]) => match mirror(id) {
                Some(core) => core.update(Format::Differences, None, updates),
                None => Ok(()),
            },
            ("update3", [id, transaction, updates]) => match mirror(id) {
                Some(core) => core.update(Format::Differences, Some(transaction), updates),
                None => Ok(()),
            },
            ("update" | "update2" | "update3", _) => Err(Malformed::new(&json!(params))),
            _ => Ok(()),
        }
    }
}

/// Connects, serves the connection, and reconnects.
async fn run(shared: Arc<Shared>) {
    let options = &shared.options;
    let backoff = ExponentialBuilder::default()
        .with_min_delay(options.min_backoff)
        .with_max_delay(options.max_backoff)
        .with_jitter()
        .without_max_times();
    let mut pauses = backoff.build();
    loop {
        let notified: OnNotification = {
            // A strong reference would keep the client alive.
            let shared: Weak<Shared> = Arc::downgrade(&shared);
            Box::new(move |method, params| match shared.upgrade() {
                Some(shared) => shared.handle_notification(method, params),
                None => Ok(()),
            })
        };
        let error = match Connection::open(&shared.endpoint, options, notified).await {
            Ok(connection) => {
                tracing::debug!(endpoint = %shared.endpoint, "connected");
                let connection = Arc::new(connection);
                shared.link.send_replace(LinkState::Up(Arc::clone(&connection)));
                let probe = connection.call("echo", json!([]), options.request_timeout);
                let (error, answered) = tokio::join!(serve(&shared, &connection), probe);
                // The backoff is reset only by a server that answered, so that a silent one is not retried
                // without pause.
                if answered.is_ok() {
                    pauses = backoff.build();
                }
                error
            }
            Err(error) => error,
        };
        tracing::debug!(endpoint = %shared.endpoint, %error, "not connected");
        shared.link.send_replace(LinkState::Down(Some(error.clone())));
        shared.subscriptions().mirrors.values().for_each(|core| core.disconnected(&error));
        tokio::time::sleep(pauses.next().unwrap_or(options.max_backoff)).await;
    }
}

/// Sets up mirrors on the connection as they are added and removed, until it ends.
async fn serve(shared: &Shared, connection: &Connection) -> ConnectionError {
    let mut mirrored = BTreeSet::new();
    let mut beginning = FuturesUnordered::new();
    loop {
        let mirrors = shared.subscriptions().mirrors.clone();
        if let Err(error) = end_removed(connection, &mirrors, &mut mirrored).await {
            return error;
        }
        for (key, core) in mirrors {
            if mirrored.insert(key) {
                beginning.push(async move { core.begin(connection).await });
            }
        }
        tokio::select! {
            error = connection.ended() => return error,
            () = shared.wake.notified() => {}
            Some(()) = beginning.next() => {}
        }
    }
}

/// Ends removed mirrors.
async fn end_removed(
    connection: &Connection,
    mirrors: &BTreeMap<u64, Arc<MirrorCore>>,
    mirrored: &mut BTreeSet<u64>,
) -> Result<(), ConnectionError> {
    for key in mirrored.extract_if(.., |key| !mirrors.contains_key(key)) {
        connection.request("monitor_cancel", json!([key]), |_| Ok(())).await?;
    }
    Ok(())
}
