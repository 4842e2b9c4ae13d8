//! A subscriber of callbacks, as an NFVO would run one.

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

/// One callback, in short.
#[derive(Debug, Clone)]
pub(crate) struct Callback {
    pub(crate) at: Instant,
    /// `webhook-id`: the same again for a repeat.
    pub(crate) id: String,
    /// `eno-transition`: the number of the transition of the object.
    pub(crate) transition: u64,
    /// `Kind [namespace/]name`.
    pub(crate) object: String,
    /// `metadata.uid` of the object.
    pub(crate) uid: String,
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

/// What becomes of a post.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    Taken,
    /// It is not taken, and that is said.
    Refused,
    /// It is taken, and the answer says that it was not.
    TakenAndRefused,
}

/// Decides what becomes of a post, of the id and of how often this one failed before.
pub(crate) type Answers = Box<dyn FnMut(&str, u32) -> Answer + Send>;

/// How many posts there were.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Posts {
    pub(crate) all: u64,
    pub(crate) failed: u64,
}

struct Shared {
    seen: watch::Sender<Vec<Callback>>,
    answers: Mutex<Deciding>,
}

struct Deciding {
    answers: Answers,
    /// By id, how often it failed; those that were answered well are left out.
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
    /// One that takes all.
    pub(crate) async fn start() -> io::Result<Self> {
        Self::start_with(Box::new(|_, _| Answer::Taken)).await
    }

    pub(crate) async fn start_with(answers: Answers) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}/callbacks", listener.local_addr()?);
        let deciding = Deciding { answers, failures: BTreeMap::new(), posts: Posts::default() };
        let shared = Arc::new(Shared { seen: watch::Sender::new(Vec::new()), answers: Mutex::new(deciding) });
        let router = Router::new().route("/callbacks", post(receive)).with_state(Arc::clone(&shared));
        let server = tokio::spawn(async move {
            // It ends with the process, or with the listener, which then shows as missing callbacks.
            let _ = axum::serve(listener, router).await;
        });
        Ok(Self { url, shared, _server: AbortOnDropHandle::new(server) })
    }

    /// What to set as CallbackURL.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// All that came so far.
    pub(crate) fn callbacks(&self) -> Vec<Callback> {
        self.shared.seen.borrow().clone()
    }

    /// All that came since this was last asked.
    pub(crate) fn take(&self) -> Vec<Callback> {
        let mut taken = Vec::new();
        self.shared.seen.send_modify(|seen| taken = std::mem::take(seen));
        taken
    }

    /// How many posts there were.
    pub(crate) fn posts(&self) -> Posts {
        self.shared.answers.lock().unwrap_or_else(PoisonError::into_inner).posts
    }

    /// Waits until the callbacks that came are enough.
    pub(crate) async fn until(&self, enough: impl FnMut(&Vec<Callback>) -> bool) {
        // The sender lives as long as this.
        let _ = self.shared.seen.subscribe().wait_for(enough).await;
    }
}

impl Deciding {
    fn answer(&mut self, id: &str) -> Answer {
        let before = self.failures.get(id).copied().unwrap_or(0);
        let answer = (self.answers)(id, before);
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
    // What is taken is seen in the order in which it was decided.
    let mut deciding = shared.answers.lock().unwrap_or_else(PoisonError::into_inner);
    let answer = deciding.answer(&callback.id);
    if answer != Answer::Refused {
        shared.seen.send_modify(|seen| seen.push(callback));
    }
    match answer {
        Answer::Taken => StatusCode::NO_CONTENT,
        Answer::Refused => StatusCode::SERVICE_UNAVAILABLE,
        Answer::TakenAndRefused => StatusCode::INTERNAL_SERVER_ERROR,
    }
}
