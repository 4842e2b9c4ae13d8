//! A copy of tables that is kept up to date and can be waited on.

use std::sync::Arc;

use serde::Deserialize as _;
use serde_json::{Value as Json, json};
use tokio::sync::{oneshot, watch};
use uuid::Uuid;

use crate::client::Client;
use crate::connection::{Connection, Reply};
use crate::error::{ConnectionError, Error};
use crate::outcome::{Cause, Refusal};
use crate::replica::{Format, MonitorRequest, Replica};
use crate::schema::DatabaseSchema;
use crate::value::{Malformed, Value};

/// Is a mirror's [`Replica`] what the server has?
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MirrorState {
    /// The first copy has not come yet; the replica is empty.
    Waiting,
    /// Yes.
    Current,
    /// The connection was lost: it is what the server had then.
    Stale(ConnectionError),
    /// The server has no such database, table or column. It is asked again with the next connection.
    Refused(Refusal),
}

/// A copy of selected tables, columns and rows that follows every change, over reconnections as well. Dropping it
/// ends the monitor.
///
/// Changes that come faster than they are looked at are merged: a mirror shows states, and never lags behind.
#[derive(Debug)]
pub struct Mirror {
    client: Client,
    core: Arc<MirrorCore>,
}

impl Mirror {
    pub(crate) fn new(client: Client, core: Arc<MirrorCore>) -> Self {
        Self { client, core }
    }

    /// Is the replica what the server has?
    pub fn state(&self) -> MirrorState {
        self.core.copy.borrow().state.clone()
    }

    /// Looks at the replica. No change comes in meanwhile, so it should not take long.
    pub fn read<T>(&self, look: impl FnOnce(&Replica) -> T) -> T {
        look(&self.core.copy.borrow().replica)
    }

    /// Waits for the first copy, or for a current one after the connection was lost, as long as a request would.
    pub async fn current(&self) -> Result<(), Error> {
        let not_sent = |cause| Error::NotSent { operation: self.core.operation(), cause };
        self.client.connected().await.map_err(not_sent)?;
        let limit = self.client.options().request_timeout;
        let Ok(result) = tokio::time::timeout(limit, self.wait_for(|_| Some(()))).await else {
            return Err(match self.client.down() {
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

    /// Waits until the replica is current and `find` finds something in it, without a limit and over
    /// reconnections. `find` is called once for each change. Fails when the server refuses the monitor.
    ///
    /// Nothing is polled, and no state between two calls of it that lasts is missed.
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

    /// Tells of changes from here on.
    pub fn changes(&self) -> Changes {
        Changes(self.core.copy.subscribe())
    }
}

impl Drop for Mirror {
    fn drop(&mut self) {
        self.client.forget_mirror(self.core.key);
    }
}

/// Tells that a [`Mirror`] changed: its replica or its state. It doesn't keep the mirror.
#[derive(Debug)]
pub struct Changes(watch::Receiver<Copy>);

impl Changes {
    /// Waits for a change that was not told yet; several may be told as one. `None` when the mirror is gone.
    pub async fn next(&mut self) -> Option<()> {
        self.0.changed().await.ok()
    }

    /// Looks at the replica as it is.
    pub fn read<T>(&self, look: impl FnOnce(&Replica) -> T) -> T {
        look(&self.0.borrow().replica)
    }

    /// Is the replica what the server has?
    pub fn state(&self) -> MirrorState {
        self.0.borrow().state.clone()
    }
}

#[derive(Debug)]
pub(crate) struct MirrorCore {
    pub(crate) key: u64,
    database: String,
    request: MonitorRequest,
    copy: watch::Sender<Copy>,
}

#[derive(Debug)]
struct Copy {
    replica: Replica,
    /// Of the last change in it, if the server counts them.
    transaction: Uuid,
    /// By which updates are read.
    schema: Option<Arc<DatabaseSchema>>,
    state: MirrorState,
}

/// The methods that begin a monitor, newest first.
#[derive(Clone, Copy)]
enum Method {
    CondSince,
    Cond,
    Plain,
}

impl MirrorCore {
    pub(crate) fn new(key: u64, database: String, request: MonitorRequest) -> Self {
        let copy = Copy {
            replica: Replica::default(),
            transaction: Uuid::nil(),
            schema: None,
            state: MirrorState::Waiting,
        };
        Self { key, database, request, copy: watch::Sender::new(copy) }
    }

    fn operation(&self) -> String {
        format!("monitor of {}", self.database)
    }

    pub(crate) fn disconnected(&self, error: &ConnectionError) {
        self.copy.send_if_modified(|copy| match copy.state {
            MirrorState::Waiting => false,
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

    /// Takes in an update.
    pub(crate) fn update(
        &self,
        format: Format,
        transaction: Option<&Json>,
        updates: &Json,
    ) -> Result<(), Malformed> {
        let mut result = Ok(());
        self.copy.send_modify(|copy| {
            result = copy.apply(format, transaction, updates, &self.request);
        });
        result
    }

    /// Takes in the first copy, or what came after the last change that is in it.
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
        // One step, so that nobody sees the replica empty.
        self.copy.send_modify(|copy| {
            if since.is_none_or(|(found, _)| !found) {
                copy.replica.clear();
                copy.transaction = Uuid::nil();
            }
            copy.schema = Some(schema);
            result = copy.apply(format, since.map(|(_, transaction)| transaction), updates, &self.request);
            copy.state = MirrorState::Current;
        });
        result
    }

    /// Begins, or goes on, on a new connection. Failures of the connection are its owner's business.
    pub(crate) async fn begin(self: Arc<Self>, connection: &Connection) {
        let schema = {
            let Some(reply) = ask(connection, "get_schema", json!([self.database]), |_| Ok(())).await else {
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
                // It would give rows that were not asked for.
                Method::Plain if self.request.is_conditional() => break,
                Method::Plain => ("monitor", json!([self.database, self.key, self.request.to_json()])),
            };
            let take = {
                let (core, schema) = (Arc::clone(&self), Arc::clone(&schema));
                move |reply: &Json| core.initial(method, reply, schema)
            };
            match ask(connection, name, params, take).await {
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

impl Copy {
    fn apply(
        &mut self,
        format: Format,
        transaction: Option<&Json>,
        updates: &Json,
        request: &MonitorRequest,
    ) -> Result<(), Malformed> {
        let schema = self.schema.clone().ok_or_else(|| Malformed::new(updates))?;
        let result = self.replica.apply(format, updates, request, &schema);
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
                // What is half taken in can't be gone on from.
                self.transaction = Uuid::nil();
                Err(malformed)
            }
        }
    }
}

/// A request whose result is taken in before the next message is. Nothing when the connection ended.
async fn ask(
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
        // Whoever asked may have gone.
        let _ = sender.send(reply);
        Ok(())
    };
    connection.request(method, params, on_reply).await.ok()?;
    receiver.await.ok()?.ok()
}
