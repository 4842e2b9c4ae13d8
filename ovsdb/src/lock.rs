//! Locks among clients of one server (RFC 7047 sections 4.1.8 to 4.1.10).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value as Json;
use tokio::sync::watch;

use crate::client::Client;
use crate::connection::Reply;
use crate::value::Malformed;

/// Who has a lock, as far as this client knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockState {
    /// Somebody else, or there is no connection.
    Waiting,
    /// This client.
    Held,
    /// Another client took it away; when that one lets go, it comes back.
    Stolen,
}

/// A lock that this client has or waits for. Dropping it gives it back.
///
/// Between the loss of a lock and the word of it there is a gap: a transaction that depends on the lock says so
/// by an [`assert`](crate::Operation::Assert).
#[derive(Debug)]
pub struct Lock {
    client: Client,
    core: Arc<LockCore>,
}

impl Lock {
    pub(crate) fn new(client: Client, core: Arc<LockCore>) -> Self {
        Self { client, core }
    }

    /// As it was asked for.
    pub fn name(&self) -> &str {
        &self.core.name
    }

    /// Who has it.
    pub fn state(&self) -> LockState {
        *self.core.state.borrow()
    }

    /// Waits until this client holds it, however often the connection is lost meanwhile.
    pub async fn held(&self) {
        self.wait_for(|state| state == LockState::Held).await;
    }

    /// Waits until this client doesn't hold it: it was stolen, or the connection was lost.
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
    /// Stolen once; then waited for as anyone does.
    steal: AtomicBool,
    state: watch::Sender<LockState>,
}

impl LockCore {
    pub(crate) fn new(key: u64, name: String, steal: bool) -> Self {
        Self { key, name, steal: AtomicBool::new(steal), state: watch::Sender::new(LockState::Waiting) }
    }

    /// The method that asks for it.
    pub(crate) fn method(&self) -> &'static str {
        if self.steal.swap(false, Ordering::Relaxed) { "steal" } else { "lock" }
    }

    pub(crate) fn set(&self, state: LockState) {
        self.state.send_replace(state);
    }

    /// Takes in `{"locked": boolean}`.
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
