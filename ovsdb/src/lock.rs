//! Locks among clients of one server (RFC 7047 sections 4.1.8 to 4.1.10).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value as Json;
use tokio::sync::watch;

use crate::client::Client;
use crate::connection::Reply;
use crate::value::Malformed;

/// Who holds a lock, as far as this client knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockState {
    /// Another client, or there is no connection.
    Waiting,
    /// This client.
    Held,
    /// Another client stole it. It returns when that client releases it.
    Stolen,
}

/// A lock that this client holds or waits for. Dropping it releases the lock.
///
/// The notification of a loss comes after the loss. A transaction that depends on the lock must contain an
/// [`assert`](crate::Operation::Assert).
#[derive(Debug)]
pub struct Lock {
    client: Client,
    core: Arc<LockCore>,
}

impl Lock {
    pub(crate) fn new(client: Client, core: Arc<LockCore>) -> Self {
        Self { client, core }
    }

    /// The lock's name.
    pub fn name(&self) -> &str {
        &self.core.name
    }

    /// Who holds it.
    pub fn state(&self) -> LockState {
        *self.core.state.borrow()
    }

    /// Waits until this client holds it, across reconnects.
    pub async fn held(&self) {
        self.wait_for(|state| state == LockState::Held).await;
    }

    /// Waits until this client does not hold it: it was stolen, or the connection was lost.
    pub async fn lost(&self) -> LockState {
        self.wait_for(|state| state != LockState::Held).await
    }

    async fn wait_for(&self, condition: impl Fn(LockState) -> bool) -> LockState {
        let mut state = self.core.state.subscribe();
        loop {
            let now = *state.borrow_and_update();
            if condition(now) {
                return now;
            }
            // The sender lives as long as `self`.
            if state.changed().await.is_err() {
                return now;
            }
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        self.client.forget_lock(&self.core.name);
    }
}

#[derive(Debug)]
pub(crate) struct LockCore {
    pub(crate) key: u64,
    name: String,
    /// True for the first request; after a steal it is requested with `lock`.
    steal: AtomicBool,
    state: watch::Sender<LockState>,
}

impl LockCore {
    pub(crate) fn new(key: u64, name: String, steal: bool) -> Self {
        Self { key, name, steal: AtomicBool::new(steal), state: watch::Sender::new(LockState::Waiting) }
    }

    /// The method that requests it.
    pub(crate) fn method(&self) -> &'static str {
        if self.steal.swap(false, Ordering::Relaxed) { "steal" } else { "lock" }
    }

    pub(crate) fn set(&self, state: LockState) {
        self.state.send_replace(state);
    }

    /// Handles the reply `{"locked": boolean}`.
    pub(crate) fn answered(&self, reply: Reply) -> Result<(), Malformed> {
        match reply {
            Ok(Ok(result)) => match result.get("locked").and_then(Json::as_bool) {
                Some(true) => self.set(LockState::Held),
                Some(false) => self.set(LockState::Waiting),
                None => return Err(Malformed::new(&result)),
            },
            Ok(Err(refusal)) => tracing::warn!(lock = self.name, %refusal, "a lock is refused"),
            Err(_) => {}
        }
        Ok(())
    }
}
