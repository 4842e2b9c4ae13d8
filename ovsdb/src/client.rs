//! A client that connects again, and brings its mirrors and locks along.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBuilder};
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use serde::Deserialize as _;
use serde_json::{Value as Json, json};
use tokio::sync::{Notify, watch};
use tokio_util::task::AbortOnDropHandle;

use crate::connection::{CallError, Connection, OnNotification};
use crate::endpoint::Endpoint;
use crate::error::{ConnectionError, Error};
use crate::lock::{Lock, LockCore, LockState};
use crate::mirror::{Mirror, MirrorCore};
use crate::options::Options;
use crate::outcome::Outcome;
use crate::replica::{Format, MonitorRequest};
use crate::schema::DatabaseSchema;
use crate::transaction::Transaction;
use crate::value::{Malformed, is_id};

/// A client of one server. Clones share the connection, which closes with the last clone, [`Mirror`] and
/// [`Lock`].
///
/// It connects by itself and, after a loss, again: mirrors go on from the last transaction they know, locks are
/// asked for again. Requests that had no reply fail with [`Error::Unknown`] and are not repeated. Any future may
/// be dropped: the connection stays usable, and a transaction that the server has not done yet is cancelled.
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
    link: watch::Sender<Link>,
    wanted: Mutex<Wanted>,
    /// `wanted` has changed.
    wake: Notify,
}

/// What has to be there on each connection.
#[derive(Default)]
struct Wanted {
    next_key: u64,
    mirrors: BTreeMap<u64, Arc<MirrorCore>>,
    locks: BTreeMap<String, Arc<LockCore>>,
}

#[derive(Clone)]
enum Link {
    Down(Option<ConnectionError>),
    Up(Arc<Connection>),
}

impl Client {
    /// Starts to connect, within the present tokio runtime.
    pub fn new(endpoint: Endpoint, options: Options) -> Self {
        let shared = Arc::new(Shared {
            endpoint,
            options,
            link: watch::Sender::new(Link::Down(None)),
            wanted: Mutex::default(),
            wake: Notify::new(),
        });
        let task = tokio::spawn(run(Arc::clone(&shared)));
        Self { inner: Arc::new(Inner { shared, _task: AbortOnDropHandle::new(task) }) }
    }

    /// Where it connects to.
    pub fn endpoint(&self) -> &Endpoint {
        &self.inner.shared.endpoint
    }

    /// Its limits.
    pub fn options(&self) -> &Options {
        &self.inner.shared.options
    }

    /// Is there a connection at present?
    pub fn is_connected(&self) -> bool {
        matches!(*self.inner.shared.link.borrow(), Link::Up(_))
    }

    /// Waits for a connection, as long as a request would.
    pub async fn connected(&self) -> Result<(), ConnectionError> {
        self.connection().await.map(drop)
    }

    /// The names of the databases (`list_dbs`).
    pub async fn list_dbs(&self) -> Result<Vec<String>, Error> {
        let reply = self.call("list_dbs", "list_dbs".into(), json!([])).await?;
        serde_json::from_value(reply.clone()).map_err(|_| malformed("list_dbs", &reply))
    }

    /// What tables and columns a database has (`get_schema`).
    pub async fn get_schema(&self, database: &str) -> Result<DatabaseSchema, Error> {
        let operation = format!("get_schema of {database}");
        let reply = self.call("get_schema", operation.clone(), json!([database])).await?;
        DatabaseSchema::deserialize(&reply).map_err(|_| malformed(&operation, &reply))
    }

    /// Asks for a sign of life (`echo`).
    pub async fn echo(&self) -> Result<(), Error> {
        self.call("echo", "echo".into(), json!([])).await.map(drop)
    }

    /// Does all operations or none (`transact`). When it returns, every [`Mirror`] of this client shows what the
    /// transaction changed.
    pub async fn transact(&self, database: &str, transaction: &Transaction) -> Result<Outcome, Error> {
        self.transact_within(database, transaction, self.options().request_timeout).await
    }

    /// The same with another limit than [`Options::request_timeout`], as a [`wait`](crate::Operation::Wait) with
    /// a longer time-out needs it.
    pub async fn transact_within(
        &self,
        database: &str,
        transaction: &Transaction,
        limit: Duration,
    ) -> Result<Outcome, Error> {
        let operation = format!("transact in {database}");
        let wrong = |malformed| Error::Malformed { operation: operation.clone(), malformed };
        // A number that is no number (NaN) has no JSON.
        let params = transaction
            .params(database)
            .map_err(|error| wrong(Malformed::new(&Json::String(error.to_string()))))?;
        let reply = self.call_within("transact", operation.clone(), params, limit).await?;
        match Outcome::parse(transaction, &reply).map_err(wrong)? {
            Ok(outcome) => Ok(outcome),
            Err(failed) => Err(Error::Failed { operation, failed }),
        }
    }

    /// Keeps a copy of what the request selects, from the first connection on (`monitor_cond_since`, on older
    /// servers `monitor_cond` or `monitor`).
    pub fn mirror(&self, database: impl Into<String>, request: MonitorRequest) -> Mirror {
        let core = {
            let mut wanted = self.inner.shared.wanted();
            wanted.next_key += 1;
            let core = Arc::new(MirrorCore::new(wanted.next_key, database.into(), request));
            wanted.mirrors.insert(core.key, Arc::clone(&core));
            core
        };
        self.inner.shared.wake.notify_one();
        Mirror::new(self.clone(), core)
    }

    /// Asks for a lock: it is held once nobody else holds it (`lock`).
    pub fn lock(&self, name: impl Into<String>) -> Result<Lock, Error> {
        self.take_lock(name.into(), false)
    }

    /// Takes a lock away from who holds it, who is told (`steal`). After a loss of the connection it is waited
    /// for as by [`lock`](Self::lock).
    pub fn steal(&self, name: impl Into<String>) -> Result<Lock, Error> {
        self.take_lock(name.into(), true)
    }

    fn take_lock(&self, name: String, steal: bool) -> Result<Lock, Error> {
        if !is_id(&name) {
            return Err(Error::LockName { name });
        }
        let core = {
            let mut wanted = self.inner.shared.wanted();
            if wanted.locks.contains_key(&name) {
                return Err(Error::LockInUse { name });
            }
            wanted.next_key += 1;
            let core = Arc::new(LockCore::new(wanted.next_key, name.clone(), steal));
            wanted.locks.insert(name, Arc::clone(&core));
            core
        };
        self.inner.shared.wake.notify_one();
        Ok(Lock::new(self.clone(), core))
    }

    pub(crate) fn forget_mirror(&self, key: u64) {
        self.inner.shared.wanted().mirrors.remove(&key);
        self.inner.shared.wake.notify_one();
    }

    pub(crate) fn forget_lock(&self, name: &str) {
        self.inner.shared.wanted().locks.remove(name);
        self.inner.shared.wake.notify_one();
    }

    /// Why there is no connection, if there is none.
    pub(crate) fn down(&self) -> Option<ConnectionError> {
        match &*self.inner.shared.link.borrow() {
            Link::Up(_) => None,
            Link::Down(cause) => Some(self.cause(cause.as_ref())),
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

    /// The connection, once it is there.
    async fn connection(&self) -> Result<Arc<Connection>, ConnectionError> {
        let mut link = self.inner.shared.link.subscribe();
        let up = async {
            loop {
                if let Link::Up(connection) = &*link.borrow_and_update() {
                    return Some(Arc::clone(connection));
                }
                link.changed().await.ok()?;
            }
        };
        match tokio::time::timeout(self.options().patience, up).await {
            Ok(Some(connection)) => Ok(connection),
            Ok(None) | Err(_) => Err(self.down().unwrap_or_else(|| self.cause(None))),
        }
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("endpoint", self.endpoint()).finish_non_exhaustive()
    }
}

fn malformed(operation: &str, reply: &Json) -> Error {
    Error::Malformed { operation: operation.into(), malformed: Malformed::new(reply) }
}

impl Shared {
    fn wanted(&self) -> MutexGuard<'_, Wanted> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in what the server says without being asked. What nobody wants any more is ignored.
    fn notified(&self, method: &str, params: &[Json]) -> Result<(), Malformed> {
        let mirror = |id: &Json| id.as_u64().and_then(|key| self.wanted().mirrors.get(&key).cloned());
        let lock = |name: &Json| name.as_str().and_then(|name| self.wanted().locks.get(name).cloned());
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
            ("locked", [name]) => {
                if let Some(core) = lock(name) {
                    core.set(LockState::Held);
                }
                Ok(())
            }
            ("stolen", [name]) => {
                if let Some(core) = lock(name) {
                    core.set(LockState::Stolen);
                }
                Ok(())
            }
            ("update" | "update2" | "update3" | "locked" | "stolen", _) => {
                Err(Malformed::new(&json!(params)))
            }
            _ => Ok(()),
        }
    }
}

/// Connects, serves, and connects again.
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
            // The connection must not keep its owner.
            let shared: Weak<Shared> = Arc::downgrade(&shared);
            Box::new(move |method, params| match shared.upgrade() {
                Some(shared) => shared.notified(method, params),
                None => Ok(()),
            })
        };
        let error = match Connection::open(&shared.endpoint, options, notified).await {
            Ok(connection) => {
                tracing::debug!(endpoint = %shared.endpoint, "connected");
                let connection = Arc::new(connection);
                shared.link.send_replace(Link::Up(Arc::clone(&connection)));
                let probe = connection.call("echo", json!([]), options.request_timeout);
                let (error, answered) = tokio::join!(serve(&shared, &connection), probe);
                // Whoever accepts and says nothing is not asked without pause.
                if answered.is_ok() {
                    pauses = backoff.build();
                }
                error
            }
            Err(error) => error,
        };
        tracing::debug!(endpoint = %shared.endpoint, %error, "not connected");
        shared.link.send_replace(Link::Down(Some(error.clone())));
        {
            let wanted = shared.wanted();
            wanted.mirrors.values().for_each(|core| core.disconnected(&error));
            wanted.locks.values().for_each(|core| core.set(LockState::Waiting));
        }
        tokio::time::sleep(pauses.next().unwrap_or(options.max_backoff)).await;
    }
}

/// Brings mirrors and locks to the connection, as they come and go, until it ends.
async fn serve(shared: &Shared, connection: &Connection) -> ConnectionError {
    let mut mirrored = BTreeSet::new();
    let mut locked = BTreeMap::new();
    let mut beginning = FuturesUnordered::new();
    loop {
        let (mirrors, locks) = {
            let wanted = shared.wanted();
            (wanted.mirrors.clone(), wanted.locks.clone())
        };
        let ended = change(connection, &mirrors, &locks, &mut mirrored, &mut locked).await;
        if let Err(error) = ended {
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

/// Ends the mirrors and locks that are not wanted any more, and asks for the locks that are.
async fn change(
    connection: &Connection,
    mirrors: &BTreeMap<u64, Arc<MirrorCore>>,
    locks: &BTreeMap<String, Arc<LockCore>>,
    mirrored: &mut BTreeSet<u64>,
    locked: &mut BTreeMap<String, u64>,
) -> Result<(), ConnectionError> {
    let ignore = |_| Ok(());
    for key in mirrored.extract_if(.., |key| !mirrors.contains_key(key)) {
        connection.request("monitor_cancel", json!([key]), ignore).await?;
    }
    let unwanted = |name: &String, key: &mut u64| locks.get(name).is_none_or(|core| core.key != *key);
    for (name, _) in locked.extract_if(.., unwanted) {
        connection.request("unlock", json!([name]), ignore).await?;
    }
    for (name, core) in locks {
        if locked.insert(name.clone(), core.key).is_none() {
            let core = Arc::clone(core);
            let method = core.method();
            connection.request(method, json!([name]), move |reply| core.answered(reply)).await?;
        }
    }
    Ok(())
}
