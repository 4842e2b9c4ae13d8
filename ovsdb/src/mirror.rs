//! Mirrors: copies of tables that follow the server, and that can be waited on.

use std::sync::Arc;

use serde::Deserialize as _;
use serde_json::{Value as Json, json};
use tokio::sync::{oneshot, watch};
use uuid::Uuid;

use crate::client::Client;
use crate::connection::{Connection, Reply};
use crate::error::{ConnectionError, Error};
use crate::outcome::{Cause, Refusal};
use crate::replica::{Format, Limits, MonitorRequest, Replica};
use crate::schema::DatabaseSchema;
use crate::value::{Malformed, Value};

/// Whether a mirror's [`Replica`] matches the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MirrorState {
    /// The first copy has not arrived; the replica is empty.
    Waiting,
    /// It matches.
    Current,
    /// The connection was lost; the replica is the last known state.
    Stale(ConnectionError),
    /// The connection was ended, since the server sent more than is read or kept; the replica is empty. It is requested
    /// again on the next connection.
    TooLarge(ConnectionError),
    /// The server has no such database, table or column. It is requested again on the next connection.
    Refused(Refusal),
}

/// A copy of selected tables, columns and rows that follows every change, across reconnects. Dropping it ends
/// the monitor.
///
/// Changes that arrive faster than they are read are merged: a mirror shows states, and never lags behind.
#[derive(Debug)]
pub struct Mirror {
    client: Client,
    core: Arc<MirrorCore>,
}

impl Mirror {
    pub(crate) fn new(client: Client, core: Arc<MirrorCore>) -> Self {
        Self { client, core }
    }

    /// Whether the replica matches the server.
    pub fn state(&self) -> MirrorState {
        self.core.copy.borrow().state.clone()
    }

    /// Reads the replica. Updates wait meanwhile, so the closure should be short.
    pub fn read<T>(&self, read: impl FnOnce(&Replica) -> T) -> T {
        read(&self.core.copy.borrow().replica)
    }

    /// Waits for the first copy, or after a lost connection for a current one, up to
    /// [`Options::connection_wait`](crate::Options::connection_wait).
    pub async fn current(&self) -> Result<(), Error> {
        let not_sent = |cause| Error::NotSent { operation: self.core.operation(), cause };
        self.client.connected().await.map_err(not_sent)?;
        let limit = self.client.options().request_timeout;
        let Ok(result) = tokio::time::timeout(limit, self.wait_for(|_| Some(()))).await else {
            return Err(match self.client.connection_error() {
                Some(cause) => not_sent(cause),
                None => Error::TimedOut {
                    operation: self.core.operation(),
                    endpoint: self.client.endpoint().to_string(),
                    limit,
                },
            });
        };
        result
    }

    /// Waits until the replica is current and `find` returns `Some`, without a limit and across reconnects.
    /// `find` is called once per change. Fails when the server refuses the monitor.
    ///
    /// There is no polling, and a state that lasts between two calls of `find` is not missed.
    pub async fn wait_for<T>(&self, mut find: impl FnMut(&Replica) -> Option<T>) -> Result<T, Error> {
        let mut changes = self.core.copy.subscribe();
        loop {
            {
                let copy = changes.borrow_and_update();
                match &copy.state {
                    MirrorState::Current => {
                        if let Some(found) = find(&copy.replica) {
                            return Ok(found);
                        }
                    }
                    MirrorState::Refused(refusal) => {
                        let operation = self.core.operation();
                        return Err(Error::Refused { operation, refusal: refusal.clone() });
                    }
                    MirrorState::TooLarge(cause) => {
                        return Err(Error::NotSent {
                            operation: self.core.operation(),
                            cause: cause.clone(),
                        });
                    }
                    MirrorState::Waiting | MirrorState::Stale(_) => {}
                }
            }
            if changes.changed().await.is_err() {
                return Err(Error::NotSent {
                    operation: self.core.operation(),
                    cause: ConnectionError::Closed { endpoint: self.client.endpoint().to_string() },
                });
            }
        }
    }

    /// Follows the changes from here on.
    pub fn changes(&self) -> Changes {
        Changes(self.core.copy.subscribe())
    }
}

impl Drop for Mirror {
    fn drop(&mut self) {
        self.client.forget_mirror(self.core.key);
    }
}

/// Notifies changes of a [`Mirror`]: of its replica or its state. It does not keep the mirror alive.
#[derive(Debug)]
pub struct Changes(watch::Receiver<CopyState>);

impl Changes {
    /// Waits for the next change; several may be merged into one. `None` when the mirror was dropped.
    pub async fn next(&mut self) -> Option<()> {
        self.0.changed().await.ok()
    }

    /// Reads the current replica.
    pub fn read<T>(&self, read: impl FnOnce(&Replica) -> T) -> T {
        read(&self.0.borrow().replica)
    }

    /// Whether the replica matches the server.
    pub fn state(&self) -> MirrorState {
        self.0.borrow().state.clone()
    }
}

#[derive(Debug)]
pub(crate) struct MirrorCore {
    pub(crate) key: u64,
    database: String,
    request: MonitorRequest,
    limits: Limits,
    copy: watch::Sender<CopyState>,
}

#[derive(Debug)]
struct CopyState {
    replica: Replica,
    /// Id of the last transaction in the replica, if the server has such ids.
    transaction: Uuid,
    /// The schema with which updates are parsed.
    schema: Option<Arc<DatabaseSchema>>,
    state: MirrorState,
}

/// The methods that start a monitor, newest first.
#[derive(Clone, Copy)]
enum Method {
    CondSince,
    Cond,
    Plain,
}

impl MirrorCore {
    pub(crate) fn new(key: u64, database: String, request: MonitorRequest, limits: Limits) -> Self {
        let copy = CopyState {
            replica: Replica::default(),
            transaction: Uuid::nil(),
            schema: None,
            state: MirrorState::Waiting,
        };
        Self { key, database, request, limits, copy: watch::Sender::new(copy) }
    }

    fn operation(&self) -> String {
        format!("monitor of {}", self.database)
    }

    pub(crate) fn disconnected(&self, error: &ConnectionError) {
        if let ConnectionError::TooLarge { .. } = error {
            self.copy.send_modify(|copy| {
                copy.replica.clear();
                copy.transaction = Uuid::nil();
                copy.state = MirrorState::TooLarge(error.clone());
            });
            return;
        }
        self.copy.send_if_modified(|copy| match copy.state {
            MirrorState::Waiting | MirrorState::TooLarge(_) => false,
            MirrorState::Current | MirrorState::Stale(_) | MirrorState::Refused(_) => {
                let changed = !matches!(copy.state, MirrorState::Stale(_));
                copy.state = MirrorState::Stale(error.clone());
                changed
            }
        });
    }

    fn refused(&self, refusal: Refusal) {
        tracing::warn!(database = self.database, %refusal, "a monitor is refused");
        self.copy.send_modify(|copy| copy.state = MirrorState::Refused(refusal));
    }

    /// Applies an update.
    pub(crate) fn update(
        &self,
        format: Format,
        transaction: Option<&Json>,
        updates: &Json,
    ) -> Result<(), Malformed> {
        let mut result = Ok(());
        self.copy.send_modify(|copy| {
            result = copy.apply(format, transaction, updates, self);
        });
        result
    }

    /// Applies the first copy, or the changes after the last known transaction.
    fn initial(&self, method: Method, reply: &Json, schema: Arc<DatabaseSchema>) -> Result<(), Malformed> {
        let (format, since, updates) = match (method, reply.as_array().map(Vec::as_slice)) {
            (Method::CondSince, Some([found, transaction, updates])) => {
                let found = found.as_bool().ok_or_else(|| Malformed::new(reply))?;
                (Format::Differences, Some((found, transaction)), updates)
            }
            (Method::CondSince, _) => return Err(Malformed::new(reply)),
            (Method::Cond, _) => (Format::Differences, None, reply),
            (Method::Plain, _) => (Format::Whole, None, reply),
        };
        let mut result = Ok(());
        // In one step, so that no reader sees the replica empty.
        self.copy.send_modify(|copy| {
            if since.is_none_or(|(found, _)| !found) {
                copy.replica.clear();
                copy.transaction = Uuid::nil();
            }
            copy.schema = Some(schema);
            result = copy.apply(format, since.map(|(_, transaction)| transaction), updates, self);
            if result.is_ok() {
                copy.state = MirrorState::Current;
            }
        });
        result
    }

    /// Starts or resumes the monitor on a new connection. Errors of the connection are handled by its owner.
    pub(crate) async fn begin(self: Arc<Self>, connection: &Connection) {
        let schema = {
            let Some(reply) = request(connection, "get_schema", json!([self.database]), |_| Ok(())).await
            else {
                return;
            };
            match reply {
                Ok(json) => match DatabaseSchema::deserialize(&json) {
                    Ok(schema) => Arc::new(schema),
                    Err(error) => {
                        let message = format!("its schema can't be read: {error}");
                        return self.refused(Refusal { cause: Cause::NotSupported, message });
                    }
                },
                Err(refusal) => return self.refused(refusal),
            }
        };
        let mut last = None;
        for method in [Method::CondSince, Method::Cond, Method::Plain] {
            let (name, params) = match method {
                Method::CondSince => {
                    let transaction = self.copy.borrow().transaction;
                    let params =
                        json!([self.database, self.key, self.request.to_json(), transaction.to_string()]);
                    ("monitor_cond_since", params)
                }
                Method::Cond => ("monitor_cond", json!([self.database, self.key, self.request.to_json()])),
                // It would return rows that were not selected.
                Method::Plain if self.request.is_conditional() => break,
                Method::Plain => ("monitor", json!([self.database, self.key, self.request.to_json()])),
            };
            let take = {
                let (core, schema) = (Arc::clone(&self), Arc::clone(&schema));
                move |reply: &Json| core.initial(method, reply, schema)
            };
            match request(connection, name, params, take).await {
                None | Some(Ok(_)) => return,
                Some(Err(refusal)) if refusal.cause == Cause::UnknownMethod => last = Some(refusal),
                Some(Err(refusal)) => return self.refused(refusal),
            }
        }
        if let Some(refusal) = last {
            self.refused(refusal);
        }
    }
}

impl CopyState {
    fn apply(
        &mut self,
        format: Format,
        transaction: Option<&Json>,
        updates: &Json,
        core: &MirrorCore,
    ) -> Result<(), Malformed> {
        let schema = self.schema.clone().ok_or_else(|| Malformed::new(updates))?;
        let result = self.replica.apply(format, updates, &core.request, &schema, core.limits);
        let id = transaction
            .map(|id| Value::from_json(&json!(["uuid", id]))?.as_uuid().ok_or_else(|| Malformed::new(id)));
        match (result, id.transpose()) {
            (Ok(()), Ok(id)) => {
                if let Some(id) = id {
                    self.transaction = id;
                }
                Ok(())
            }
            (Err(malformed), _) | (_, Err(malformed)) => {
                // A partially applied update can't be resumed from. The connection ends.
                self.transaction = Uuid::nil();
                self.replica.clear();
                self.state = MirrorState::Waiting;
                Err(malformed)
            }
        }
    }
}

/// A request whose result is applied before the next message is handled. `None` when the connection ended.
async fn request(
    connection: &Connection,
    method: &str,
    params: Json,
    take: impl FnOnce(&Json) -> Result<(), Malformed> + Send + 'static,
) -> Option<Result<Json, Refusal>> {
    let (sender, receiver) = oneshot::channel();
    let on_reply = move |reply: Reply| {
        if let Ok(Ok(result)) = &reply {
            take(result)?;
        }
        // The receiver may have been dropped.
        let _ = sender.send(reply);
        Ok(())
    };
    connection.request(method, params, on_reply).await.ok()?;
    receiver.await.ok()?.ok()
}
