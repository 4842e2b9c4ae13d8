//! A receiver of callbacks, like an NFVO's.

use std::collections::BTreeMap;
use std::io;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use axum::Router;
use axum::extract::{Json, State};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

/// A callback, and its main fields.
#[derive(Debug, Clone)]
pub struct Callback {
    /// Time of arrival.
    pub at: Instant,
    /// `webhook-id`: a repeated delivery has the same.
    pub id: String,
    /// `eno-transition`: the number of the transition of the object.
    pub transition: u64,
    /// `Kind [namespace/]name`.
    pub object: String,
    /// `metadata.uid` of the object.
    pub uid: String,
    /// `status.phase` of the object.
    pub phase: String,
    /// The body of the post.
    pub body: Value,
}

/// The handling of a post.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// The callback is recorded.
    Taken,
    /// The callback is not recorded, and the answer is an error.
    Refused,
    /// The callback is recorded, but the answer is an error.
    TakenAndRefused,
}

/// Decides the answer to a post, from its id and the number of its failures.
pub type AnswerPolicy = Box<dyn FnMut(&str, u32) -> Answer + Send>;

/// The numbers of posts.
#[derive(Debug, Clone, Copy, Default)]
pub struct Posts {
    /// All posts.
    pub all: u64,
    /// Those with an error as the answer.
    pub failed: u64,
}

struct Shared {
    seen: watch::Sender<Vec<Callback>>,
    decider: Mutex<Decider>,
}

struct Decider {
    policy: AnswerPolicy,
    /// Failures by id, except those answered with success since.
    failures: BTreeMap<String, u32>,
    posts: Posts,
}

/// Listens until it is dropped.
pub struct Receiver {
    url: String,
    shared: Arc<Shared>,
    _server: AbortOnDropHandle<()>,
}

impl Receiver {
    /// Starts a receiver that accepts all callbacks.
    pub async fn start() -> io::Result<Self> {
        Self::start_with(Ipv4Addr::LOCALHOST, Box::new(|_, _| Answer::Taken)).await
    }

    /// Starts a receiver at an address of this machine.
    pub async fn start_with(address: Ipv4Addr, policy: AnswerPolicy) -> io::Result<Self> {
        let listener = TcpListener::bind((address, 0)).await?;
        let url = format!("http://{}/callbacks", listener.local_addr()?);
        let decider = Decider { policy, failures: BTreeMap::new(), posts: Posts::default() };
        let shared = Arc::new(Shared { seen: watch::Sender::new(Vec::new()), decider: Mutex::new(decider) });
        let router = Router::new().route("/callbacks", post(receive)).with_state(Arc::clone(&shared));
        let server = tokio::spawn(async move {
            // The server ends with the process or its listener; missing callbacks show that.
            let _ = axum::serve(listener, router).await;
        });
        Ok(Self { url, shared, _server: AbortOnDropHandle::new(server) })
    }

    /// The value for `CallbackURL`.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Reads the callbacks received so far.
    pub fn read<T>(&self, read: impl FnOnce(&[Callback]) -> T) -> T {
        read(&self.shared.seen.borrow())
    }

    /// Removes and returns the callbacks received since the last call.
    pub fn take(&self) -> Vec<Callback> {
        let mut taken = Vec::new();
        self.shared.seen.send_modify(|seen| taken = std::mem::take(seen));
        taken
    }

    /// The numbers of posts.
    pub fn posts(&self) -> Posts {
        self.shared.decider.lock().unwrap_or_else(PoisonError::into_inner).posts
    }

    /// Waits until `enough` accepts the received callbacks.
    pub async fn until(&self, enough: impl FnMut(&Vec<Callback>) -> bool) {
        // The sender lives as long as `self`.
        let _ = self.shared.seen.subscribe().wait_for(enough).await;
    }
}

impl Decider {
    fn answer(&mut self, id: &str) -> Answer {
        let before = self.failures.get(id).copied().unwrap_or(0);
        let answer = (self.policy)(id, before);
        self.posts.all += 1;
        if answer == Answer::Taken {
            self.failures.remove(id);
        } else {
            self.posts.failed += 1;
            self.failures.insert(id.to_owned(), before + 1);
        }
        answer
    }
}

async fn receive(
    State(shared): State<Arc<Shared>>,
    headers: HeaderMap,
    Json(body): Json<Value>,
) -> StatusCode {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let id = text("webhook-id").to_owned();
    let Ok(transition) = text("eno-transition").parse() else { return StatusCode::BAD_REQUEST };
    let field = |pointer: &str| body.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    let name = match field("/metadata/namespace") {
        namespace if namespace.is_empty() => field("/metadata/name"),
        namespace => format!("{namespace}/{}", field("/metadata/name")),
    };
    let object = format!("{} {name}", field("/kind"));
    let (uid, phase) = (field("/metadata/uid"), field("/status/phase"));
    let callback = Callback { at: Instant::now(), id, transition, object, uid, phase, body };
    // The lock keeps callbacks in the order of the decisions.
    let mut decider = shared.decider.lock().unwrap_or_else(PoisonError::into_inner);
    let answer = decider.answer(&callback.id);
    if answer != Answer::Refused {
        shared.seen.send_modify(|seen| seen.push(callback));
    }
    match answer {
        Answer::Taken => StatusCode::NO_CONTENT,
        Answer::Refused => StatusCode::SERVICE_UNAVAILABLE,
        Answer::TakenAndRefused => StatusCode::INTERNAL_SERVER_ERROR,
    }
}
