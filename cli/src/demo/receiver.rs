//! A subscriber of callbacks, as an NFVO would run one.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::extract::{Json, State};
use axum::http::StatusCode;
use axum::routing::post;
use serde::Deserialize;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

/// One callback, in short.
#[derive(Debug, Clone)]
pub(super) struct Callback {
    pub(super) at: Instant,
    pub(super) object: String,
    pub(super) phase: String,
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
}

#[derive(Default, Deserialize)]
struct Status {
    #[serde(default)]
    phase: String,
}

type Seen = Arc<watch::Sender<Vec<Callback>>>;

/// Listens on a loopback port until it is dropped.
pub(super) struct Receiver {
    url: String,
    seen: Seen,
    _server: AbortOnDropHandle<()>,
}

impl Receiver {
    pub(super) async fn start() -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}/callbacks", listener.local_addr()?);
        let seen = Seen::new(watch::Sender::new(Vec::new()));
        let router = Router::new().route("/callbacks", post(receive)).with_state(Arc::clone(&seen));
        let server = tokio::spawn(async move {
            // It ends with the process, or with the listener, which then shows as missing callbacks.
            let _ = axum::serve(listener, router).await;
        });
        Ok(Self { url, seen, _server: AbortOnDropHandle::new(server) })
    }

    /// What to set as CallbackURL.
    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// All that came so far.
    pub(super) fn callbacks(&self) -> Vec<Callback> {
        self.seen.borrow().clone()
    }

    /// Waits until the callbacks that came are enough.
    pub(super) async fn until(&self, enough: impl FnMut(&Vec<Callback>) -> bool) {
        // The sender lives as long as this.
        let _ = self.seen.subscribe().wait_for(enough).await;
    }
}

async fn receive(State(seen): State<Seen>, Json(body): Json<Body>) -> StatusCode {
    let name = body.metadata.name;
    let name = body.metadata.namespace.map_or(name.clone(), |namespace| format!("{namespace}/{name}"));
    let object = format!("{} {name}", body.kind);
    seen.send_modify(|seen| seen.push(Callback { at: Instant::now(), object, phase: body.status.phase }));
    StatusCode::NO_CONTENT
}
