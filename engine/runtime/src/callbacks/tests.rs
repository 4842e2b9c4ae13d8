//! Callbacks from a real outbox to a real receiver.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Mutex;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use eno_sbi::conformance::NatsServer;
use eno_sbi::nats::ensure_streams;
use eno_schemas::{Phase, Transition};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::*;
use crate::outbox;

#[derive(Debug, PartialEq, Eq)]
struct Got {
    path: String,
    id: String,
    counter: u64,
}

/// Takes posts; each path refuses the number of posts that it is told to.
#[derive(Clone)]
struct Receiver {
    refuse: Arc<Mutex<HashMap<String, (u32, StatusCode)>>>,
    got: mpsc::UnboundedSender<Got>,
}

impl Receiver {
    async fn start() -> (Self, SocketAddr, mpsc::UnboundedReceiver<Got>) {
        let (got, gets) = mpsc::unbounded_channel();
        let receiver = Self { refuse: Arc::default(), got };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().route("/{path}", post(Self::take)).with_state(receiver.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        (receiver, address, gets)
    }

    fn refuse(&self, path: &str, times: u32, code: StatusCode) {
        self.refuse.lock().unwrap().insert(path.into(), (times, code));
    }

    #[allow(clippy::unused_async, reason = "axum wants it")]
    async fn take(
        State(receiver): State<Self>,
        Path(path): Path<String>,
        headers: HeaderMap,
        axum::Json(body): axum::Json<Value>,
    ) -> StatusCode {
        if let Some((left, code)) = receiver.refuse.lock().unwrap().get_mut(&path)
            && *left > 0
        {
            *left -= 1;
            return *code;
        }
        let header = |name: &str| headers.get(name).unwrap().to_str().unwrap().to_owned();
        assert_eq!(header("content-type"), "application/json");
        assert!(header("webhook-timestamp").parse::<i64>().unwrap() > 1_600_000_000);
        assert_eq!(body["kind"], "L2Service");
        let counter = header("eno-transition").parse().unwrap();
        assert_eq!(body["status"]["transitions"], counter);
        receiver.got.send(Got { path, id: header("webhook-id"), counter }).unwrap();
        StatusCode::NO_CONTENT
    }
}

struct Bench {
    connection: Connection,
    address: SocketAddr,
    last: HashMap<String, u64>,
    _server: NatsServer,
}

impl Bench {
    async fn new(address: SocketAddr) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let server = NatsServer::start().await;
        let connection = server.connect("eno-engine").await;
        ensure_streams(&connection.jetstream, 1).await.unwrap();
        Self { connection, address, last: HashMap::new(), _server: server }
    }

    /// An object makes a transition; its CallbackURL is its name as path.
    async fn transition(&mut self, name: &str, counter: u64, url: Option<&str>) {
        let url = url.map_or_else(|| format!("http://{}/{name}", self.address), ToOwned::to_owned);
        let spec = if url.is_empty() { json!({}) } else { json!({ "CallbackURL": url }) };
        let transition = Transition {
            id: format!("{name}-{counter}"),
            uid: name.into(),
            counter,
            kind: "L2Service".into(),
            namespace: None,
            name: name.into(),
            previous: None,
            phase: Phase::Ready,
            at: "2026-01-02T03:04:05.000Z".into(),
            object: json!({ "kind": "L2Service", "spec": spec, "status": { "transitions": counter } }),
        };
        let last = self.last.entry(name.into()).or_default();
        *last = outbox::publish(&self.connection.jetstream, &transition, *last).await.unwrap();
    }

    fn deliverer(&self) -> (CancellationToken, JoinHandle<()>) {
        let stop = CancellationToken::new();
        let connection = self.connection.clone();
        (
            stop.clone(),
            tokio::spawn(async move {
                let (_alive, lost) = watch::channel(0);
                run(connection, Arc::default(), lost, stop).await;
            }),
        )
    }

    /// Waits until what is remembered is as told.
    async fn remembered(&self, what: impl Fn(u64, usize) -> bool) {
        let bucket = self.connection.jetstream.get_key_value(subject::CALLBACKS).await.unwrap();
        let mut changes = bucket.watch_with_history(">").await.unwrap();
        let (mut floor, mut entries) = (0, std::collections::HashSet::new());
        let watching = async {
            while let Some(entry) = changes.next().await {
                let entry = entry.unwrap();
                if entry.key == "floor" {
                    let text = std::str::from_utf8(&entry.value).unwrap();
                    floor = text.split_once(' ').unwrap().1.parse().unwrap();
                } else if entry.operation == async_nats::jetstream::kv::Operation::Put {
                    entries.insert(entry.key);
                } else {
                    entries.remove(&entry.key);
                }
                if what(floor, entries.len()) {
                    return;
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(30), watching).await.expect("it is remembered within 30 s");
    }
}

async fn next(gets: &mut mpsc::UnboundedReceiver<Got>) -> (String, u64) {
    let got = tokio::time::timeout(Duration::from_secs(30), gets.recv()).await;
    let got = got.expect("a callback within 30 s").unwrap();
    assert_eq!(got.id, format!("{}-{}", got.path, got.counter));
    (got.path, got.counter)
}

#[tokio::test(flavor = "multi_thread")]
async fn in_order_and_past_failures() {
    let (receiver, address, mut gets) = Receiver::start().await;
    let mut bench = Bench::new(address).await;
    receiver.refuse("slow", 2, StatusCode::SERVICE_UNAVAILABLE);
    receiver.refuse("moved", 1, StatusCode::FOUND);
    receiver.refuse("gone", 1, StatusCode::GONE);
    for counter in 1..=3 {
        bench.transition("slow", counter, None).await;
        bench.transition("good", counter, None).await;
    }
    bench.transition("silent", 1, Some("")).await;
    // Nobody listens on port 1.
    bench.transition("dead", 1, Some("http://127.0.0.1:1/")).await;
    bench.transition("moved", 1, None).await;
    bench.transition("gone", 1, None).await;
    bench.transition("gone", 2, None).await;
    let (stop, task) = bench.deliverer();
    let mut all: HashMap<String, Vec<u64>> = HashMap::new();
    for _ in 0..8 {
        let (path, counter) = next(&mut gets).await;
        all.entry(path).or_default().push(counter);
    }
    let expected = [("slow", vec![1, 2, 3]), ("good", vec![1, 2, 3]), ("moved", vec![1]), ("gone", vec![2])];
    assert_eq!(all, expected.map(|(path, counters)| (path.to_owned(), counters)).into());
    // All but the dead one is behind the floor.
    bench.remembered(|floor, entries| floor == 11 && entries == 1).await;
    stop.cancel();
    task.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn goes_on_after_a_restart() {
    let (receiver, address, mut gets) = Receiver::start().await;
    let mut bench = Bench::new(address).await;
    receiver.refuse("a", u32::MAX, StatusCode::INTERNAL_SERVER_ERROR);
    bench.transition("a", 1, None).await;
    bench.transition("b", 1, None).await;
    let (stop, task) = bench.deliverer();
    assert_eq!(next(&mut gets).await, ("b".into(), 1));
    bench.transition("a", 2, None).await;
    bench.transition("b", 2, None).await;
    assert_eq!(next(&mut gets).await, ("b".into(), 2));
    bench.remembered(|floor, entries| floor == 4 && entries == 1).await;
    stop.cancel();
    task.await.unwrap();
    receiver.refuse("a", 0, StatusCode::OK);
    bench.transition("a", 3, None).await;
    let (stop, task) = bench.deliverer();
    for counter in 1..=3 {
        assert_eq!(next(&mut gets).await, ("a".into(), counter));
    }
    // What was delivered before is not delivered again.
    bench.remembered(|floor, entries| floor == 5 && entries == 0).await;
    assert!(gets.try_recv().is_err());
    stop.cancel();
    task.await.unwrap();
}
