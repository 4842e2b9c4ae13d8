//! A receiver of callbacks, like an NFVO's.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Json, State};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use crate::TIMEOUT;

/// One delivery.
#[derive(Debug, Clone)]
pub struct Callback {
    /// `webhook-id`: a repeated delivery has the same.
    pub id: String,
    /// The number of the transition of the object.
    pub transition: u64,
    /// `Kind [namespace/]name`.
    pub object: String,
    /// The object's phase.
    pub phase: String,
    /// The body of the post.
    pub body: Value,
}

type Seen = Arc<watch::Sender<Vec<Callback>>>;

/// Listens until it is dropped.
pub struct Receiver {
    url: String,
    seen: Seen,
    _server: AbortOnDropHandle<()>,
}

impl Receiver {
    /// Starts listening on the loopback interface.
    pub async fn start() -> Self {
        Self::start_at(Ipv4Addr::LOCALHOST).await
    }

    /// Starts listening at an address of this machine.
    pub async fn start_at(address: Ipv4Addr) -> Self {
        let listener = TcpListener::bind((address, 0)).await.expect("a free port");
        let url = format!("http://{}/callbacks", listener.local_addr().expect("its address"));
        let seen = Seen::new(watch::Sender::new(Vec::new()));
        let router = Router::new().route("/callbacks", post(receive)).with_state(Arc::clone(&seen));
        let server = tokio::spawn(async move {
            // The server ends with the process or its listener; missing callbacks show that.
            let _ = axum::serve(listener, router).await;
        });
        Self { url, seen, _server: AbortOnDropHandle::new(server) }
    }

    /// The value for `CallbackURL`.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The callbacks of one object, `Kind [namespace/]name`, in the order of arrival, without repeats.
    pub fn of(&self, object: &str) -> Vec<Callback> {
        let mut ids = BTreeSet::new();
        let seen = self.seen.borrow();
        let of_it = seen.iter().filter(|callback| callback.object == object);
        of_it.filter(|callback| ids.insert(callback.id.clone())).cloned().collect()
    }

    /// The phases in one object's callbacks, in order, without repeats.
    pub fn phases(&self, object: &str) -> Vec<String> {
        self.of(object).into_iter().map(|callback| callback.phase).collect()
    }

    /// Checks that every callback of these objects came, in order, and returns their number.
    pub fn assert_complete(&self, objects: &[String]) -> usize {
        let of_object = |object: &String| {
            let numbers: Vec<_> = self.of(object).iter().map(|callback| callback.transition).collect();
            let complete: Vec<_> = (1..=numbers.len() as u64).collect();
            assert_eq!(numbers, complete, "the callbacks of {object}: {:?}", self.phases(object));
            numbers.len()
        };
        objects.iter().map(of_object).sum()
    }

    /// Discards the callbacks received so far.
    pub fn forget(&self) {
        self.seen.send_modify(Vec::clear);
    }

    /// Waits until the last callback of each of these objects has this phase.
    pub async fn until(&self, objects: &[String], phase: &str) {
        let mut changes = self.seen.subscribe();
        let last = |seen: &[Callback], object: &str| {
            let last =
                seen.iter().filter(|callback| callback.object == object).max_by_key(|last| last.transition);
            last.map(|callback| callback.phase.clone())
        };
        let all = changes
            .wait_for(|seen| objects.iter().all(|object| last(seen, object).as_deref() == Some(phase)));
        // The sender lives as long as `self`.
        if timeout(TIMEOUT, all).await.is_err() {
            let seen = self.seen.borrow();
            let missing: Vec<_> = objects
                .iter()
                .map(|object| (object, last(&seen, object)))
                .filter(|(_, last)| last.as_deref() != Some(phase))
                .collect();
            panic!("no callback says {phase} of {} objects; their last ones say {missing:?}", missing.len());
        }
    }
}

async fn receive(State(seen): State<Seen>, headers: HeaderMap, Json(body): Json<Value>) -> StatusCode {
    let text = |pointer: &str| body.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    let header =
        |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
    let name = match text("/metadata/namespace") {
        namespace if namespace.is_empty() => text("/metadata/name"),
        namespace => format!("{namespace}/{}", text("/metadata/name")),
    };
    let Ok(transition) = header("eno-transition").parse() else { return StatusCode::BAD_REQUEST };
    let callback = Callback {
        id: header("webhook-id"),
        transition,
        object: format!("{} {name}", text("/kind")),
        phase: text("/status/phase"),
        body: body.clone(),
    };
    seen.send_modify(|seen| seen.push(callback));
    StatusCode::NO_CONTENT
}
