//! A receiver of callbacks, like an NFVO's.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use axum::Router;
use axum::extract::{Json, State};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use serde::Deserialize;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

/// The main fields of a callback.
#[derive(Debug, Clone)]
pub(crate) struct Callback {
    /// Time of arrival.
    pub(crate) at: Instant,
    /// `webhook-id`: a repeated delivery has the same.
    pub(crate) id: String,
    /// `eno-transition`: the number of the transition of the object.
    pub(crate) transition: u64,
    /// `Kind [namespace/]name`.
    pub(crate) object: String,
    /// `metadata.uid` of the object.
    pub(crate) uid: String,
    /// `status.phase` of the object.
    pub(crate) phase: String,
}

#[derive(Deserialize)]
struct Body {
    kind: String,
    metadata: Metadata,
    #[serde(default)]
    status: Status,
}

#[derive(Deserialize)]
struct Metadata {
    name: String,
    namespace: Option<String>,
    #[serde(default)]
    uid: String,
}

#[derive(Default, Deserialize)]
struct Status {
    #[serde(default)]
    phase: String,
}

/// The handling of a post.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    Taken,
    /// The callback is not recorded, and the answer is an error.
    Refused,
    /// The callback is recorded, but the answer is an error.
    TakenAndRefused,
}

/// Decides the answer to a post, from its id and the number of its failures.
pub(crate) type AnswerPolicy = Box<dyn FnMut(&str, u32) -> Answer + Send>;

/// The numbers of posts.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Posts {
    pub(crate) all: u64,
    pub(crate) failed: u64,
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

/// Listens on a loopback port until it is dropped.
pub(crate) struct Receiver {
    url: String,
    shared: Arc<Shared>,
    _server: AbortOnDropHandle<()>,
}

impl Receiver {
    /// Starts a receiver that accepts all callbacks.
    pub(crate) async fn start() -> io::Result<Self> {
        Self::start_with(Box::new(|_, _| Answer::Taken)).await
    }

    pub(crate) async fn start_with(policy: AnswerPolicy) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
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
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// All callbacks received so far.
    pub(crate) fn callbacks(&self) -> Vec<Callback> {
        self.shared.seen.borrow().clone()
    }

    /// Removes and returns the callbacks received since the last call.
    pub(crate) fn take(&self) -> Vec<Callback> {
        let mut taken = Vec::new();
        self.shared.seen.send_modify(|seen| taken = std::mem::take(seen));
        taken
    }

    /// The numbers of posts.
    pub(crate) fn posts(&self) -> Posts {
        self.shared.decider.lock().unwrap_or_else(PoisonError::into_inner).posts
    }

    /// Waits until `enough` accepts the received callbacks.
    pub(crate) async fn until(&self, enough: impl FnMut(&Vec<Callback>) -> bool) {
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
    Json(body): Json<Body>,
) -> StatusCode {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let id = text("webhook-id").to_owned();
    let Ok(transition) = text("eno-transition").parse() else { return StatusCode::BAD_REQUEST };
    let Metadata { name, namespace, uid } = body.metadata;
    let name = namespace.map_or(name.clone(), |namespace| format!("{namespace}/{name}"));
    let object = format!("{} {name}", body.kind);
    let callback = Callback { at: Instant::now(), id, transition, object, uid, phase: body.status.phase };
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
