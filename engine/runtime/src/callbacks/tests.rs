//! Callbacks from a real outbox to a real HTTP receiver. The API server is a fake with the objects and Secrets that
//! callbacks need.

mod addresses;
mod failures;
mod lanes;
mod signing;

use std::collections::HashMap;
use std::future::ready;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::Instant;

use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, patch, post};
use axum::{Json, Router};
use eno_conformance::NatsServer;
use eno_core::Name;
use eno_sbi::nats::ensure_streams;
use eno_schemas::{DeliveryEnd, LeftOut, Phase, Transition, encode, subject};
use futures::StreamExt as _;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{interval, timeout};

use super::attempt::{DeliveryChange, about, try_once};
use super::schedule::AttemptEnd;
use super::state::EntryWatch;
use super::*;
use crate::status::outbox;

/// A guard that holds the Lease for longer than a test takes.
fn leading() -> LeaseGuard {
    let lease_guard = LeaseGuard::not_held();
    lease_guard.extend((Instant::now() + Duration::from_hours(1)).into());
    lease_guard
}

const TIMEOUT: Duration = Duration::from_secs(30);

/// A message that the receiver accepted.
#[derive(Debug)]
struct Received {
    path: String,
    id: String,
    counter: u64,
    headers: HeaderMap,
    body: Bytes,
}

/// Accepts posts; each path first refuses a configured number of them.
#[derive(Clone)]
struct Receiver {
    refuse: Arc<Mutex<HashMap<String, (u32, StatusCode)>>>,
    got: mpsc::UnboundedSender<Received>,
}

impl Receiver {
    fn new() -> (Self, Router, mpsc::UnboundedReceiver<Received>) {
        let (got, gets) = mpsc::unbounded_channel();
        let receiver = Self { refuse: Arc::default(), got };
        let router =
            Router::new().route("/{path}", post(Self::take).get(Self::endpoint)).with_state(receiver.clone());
        (receiver, router, gets)
    }

    async fn start() -> (Self, SocketAddr, mpsc::UnboundedReceiver<Received>) {
        let (receiver, router, gets) = Self::new();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, router).await });
        (receiver, address, gets)
    }

    fn refuse(&self, path: &str, times: u32, code: StatusCode) {
        self.refuse.lock().unwrap().insert(path.into(), (times, code));
    }

    fn refusal(&self, path: &str) -> Option<StatusCode> {
        let mut refuse = self.refuse.lock().unwrap();
        let (left, code) = refuse.get_mut(path).filter(|(left, _)| *left > 0)?;
        *left -= 1;
        Some(*code)
    }

    #[allow(clippy::unused_async, reason = "axum wants it")]
    async fn take(
        State(receiver): State<Self>,
        Path(path): Path<String>,
        headers: HeaderMap,
        body: Bytes,
    ) -> Response {
        if let Some(code) = receiver.refusal(&path) {
            return (code, [("location", "/elsewhere")]).into_response();
        }
        let header = |name: &str| headers.get(name).unwrap().to_str().unwrap().to_owned();
        assert!(header("webhook-timestamp").parse::<i64>().unwrap() > 1_600_000_000);
        let (id, counter) = (header("webhook-id"), header("eno-transition").parse().unwrap());
        receiver.got.send(Received { path, id, counter, headers, body }).unwrap();
        StatusCode::NO_CONTENT.into_response()
    }

    /// The endpoint test of ETSI; a path `not-…` fails it.
    #[allow(clippy::unused_async, reason = "axum wants it")]
    async fn endpoint(Path(path): Path<String>) -> StatusCode {
        if path.starts_with("not-") { StatusCode::OK } else { StatusCode::NO_CONTENT }
    }
}

/// The state of a fake API server, and the conditions written to it.
#[derive(Clone, Default)]
struct FakeApiServer(Arc<Mutex<ServerState>>);

#[derive(Default)]
struct ServerState {
    /// `data` by `namespace/name`.
    secrets: HashMap<String, Value>,
    reads: u32,
    objects: HashMap<String, Value>,
    conditions: Vec<(String, Value)>,
}

fn missing() -> Response {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": "not found",
        "reason": "NotFound", "code": 404,
    });
    (StatusCode::NOT_FOUND, Json(status)).into_response()
}

impl FakeApiServer {
    fn client(&self) -> kube::Client {
        const OBJECT: &str = "/apis/eno.k8s.io/v1alpha1/l2services/{name}";
        let router = Router::new()
            .route("/api/v1/namespaces/{namespace}/secrets/{name}", get(Self::secret))
            .route(OBJECT, get(Self::object))
            .route(&format!("{OBJECT}/status"), patch(Self::patch))
            .with_state(self.clone());
        kube::Client::new(router, "default")
    }

    #[allow(clippy::unused_async, reason = "axum wants it")]
    async fn secret(
        State(cluster): State<Self>,
        Path((namespace, name)): Path<(String, String)>,
    ) -> Response {
        let mut state = cluster.0.lock().unwrap();
        state.reads += 1;
        let Some(data) = state.secrets.get(&format!("{namespace}/{name}")) else { return missing() };
        Json(json!({ "metadata": { "name": name, "namespace": namespace }, "data": data })).into_response()
    }

    #[allow(clippy::unused_async, reason = "axum wants it")]
    async fn object(State(cluster): State<Self>, Path(name): Path<String>) -> Response {
        match cluster.0.lock().unwrap().objects.get(&name) {
            Some(object) => Json(object).into_response(),
            None => missing(),
        }
    }

    #[allow(clippy::unused_async, reason = "axum wants it")]
    async fn patch(State(cluster): State<Self>, Path(name): Path<String>, body: Bytes) -> Response {
        let mut state = cluster.0.lock().unwrap();
        if !state.objects.contains_key(&name) {
            return missing();
        }
        let body: Value = serde_json::from_slice(&body).unwrap();
        state.conditions.push((name, body["status"]["conditions"][0].clone()));
        Json(body).into_response()
    }

    /// Creates or replaces an object with this spec.
    fn put(&self, name: &str, spec: &Value) {
        let object = json!({
            "apiVersion": "eno.k8s.io/v1alpha1", "kind": "L2Service",
            "metadata": { "name": name, "uid": name }, "spec": spec, "status": { "transitions": 1 },
        });
        self.0.lock().unwrap().objects.insert(name.into(), object);
    }

    /// Waits until an object has this condition.
    async fn wait_for_condition(&self, name: &str, status: &str, reason: &str) -> Value {
        let last_condition = || {
            let state = self.0.lock().unwrap();
            let last = state.conditions.iter().rfind(|(object, _)| object == name);
            let fits = |condition: &&(String, Value)| {
                (condition.1["status"].as_str(), condition.1["reason"].as_str())
                    == (Some(status), Some(reason))
            };
            last.filter(fits).map(|(_, condition)| condition.clone())
        };
        let mut poll = interval(Duration::from_millis(20));
        let polling = async {
            loop {
                if let Some(last_condition) = last_condition() {
                    return last_condition;
                }
                poll.tick().await;
            }
        };
        let found = timeout(TIMEOUT, polling).await;
        found.unwrap_or_else(|_| panic!("{name}: {:?}", self.0.lock().unwrap().conditions))
    }
}

/// Allows callbacks to this machine.
fn local() -> CallbackArgs {
    CallbackArgs { callback_allow: vec!["127.0.0.0/8".parse().unwrap()], ..CallbackArgs::default() }
}

struct Bench {
    connection: Connection,
    address: SocketAddr,
    cluster: FakeApiServer,
    last: HashMap<String, u64>,
    server: NatsServer,
}

impl Bench {
    async fn new(address: SocketAddr) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let server = NatsServer::start().await;
        let connection = server.connect("eno-engine").await;
        ensure_streams(&connection.jetstream, 1).await.unwrap();
        Self { connection, address, cluster: FakeApiServer::default(), last: HashMap::new(), server }
    }

    /// Publishes a transition of an object; its CallbackURL has its name as path.
    async fn transition(&mut self, name: &str, counter: u64, url: Option<&str>) {
        let url = url.map_or_else(|| self.url(name), ToOwned::to_owned);
        let spec = if url.is_empty() { json!({}) } else { json!({ "CallbackURL": url }) };
        self.transition_of(name, counter, &spec).await;
    }

    /// Publishes a transition of an object with this spec.
    async fn transition_of(&mut self, name: &str, counter: u64, spec: &Value) {
        let transition = transition(name, counter, spec);
        let last = self.last.entry(name.into()).or_default();
        *last = outbox::publish(&self.connection.jetstream, &transition, *last).await.unwrap();
    }

    /// Publishes a transition that takes the place of the object's last one.
    async fn joined_transition(&mut self, name: &str, counter: u64) {
        let mut transition = transition(name, counter, &json!({ "CallbackURL": self.url(name) }));
        transition.left_out = Some(LeftOut { transitions: Some(counter - 1), ..LeftOut::default() });
        let last = self.last.entry(name.into()).or_default();
        let jetstream = &self.connection.jetstream;
        let former = std::mem::replace(last, outbox::publish(jetstream, &transition, *last).await.unwrap());
        outbox::remove(jetstream, former).await.unwrap();
    }

    /// The CallbackURL of an object.
    fn url(&self, name: &str) -> String {
        format!("http://{}/{name}", self.address)
    }

    fn start_delivery(&self) -> RunningDelivery {
        self.start_delivery_with(&local())
    }

    fn start_delivery_with(&self, args: &CallbackArgs) -> RunningDelivery {
        let stop = CancellationToken::new();
        let connection = self.connection.clone();
        let mut poster = Poster::new(args, self.cluster.client(), "eno-system").unwrap();
        poster.notice_delay = 1000;
        let (poster, stopped) = (Arc::new(poster), stop.clone());
        let task = tokio::spawn(async move {
            let (_alive, lost) = watch::channel(0);
            run(connection, poster, Arc::default(), leading(), lost, stopped).await;
        });
        RunningDelivery { stop, task }
    }

    fn context(&self, args: &CallbackArgs) -> DeliveryContext {
        let poster = Arc::new(Poster::new(args, self.cluster.client(), "eno-system").unwrap());
        DeliveryContext {
            connection: self.connection.clone(),
            poster,
            metrics: Arc::default(),
            lease_guard: leading(),
        }
    }

    /// Waits until the stored state matches: the floor, and the number of objects with an entry.
    async fn wait_for_state(&self, what: impl Fn(u64, usize) -> bool) {
        let bucket = self.connection.jetstream.get_key_value(subject::CALLBACKS).await.unwrap();
        let mut changes = bucket.watch_with_history(">").await.unwrap();
        let (mut floor, mut entries) = (0, std::collections::HashSet::new());
        let watching = async {
            while let Some(entry) = changes.next().await {
                let entry = entry.unwrap();
                if entry.key == "floor" {
                    let text = std::str::from_utf8(&entry.value).unwrap();
                    floor = text.split_once(' ').unwrap().1.parse().unwrap();
                } else if !entry.key.starts_with("at.") {
                    continue;
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
        timeout(TIMEOUT, watching).await.expect("it is remembered within 30 s");
    }

    /// Waits until the bucket has no entry.
    async fn wait_until_no_entries(&self) {
        let bucket = self.connection.jetstream.get_key_value(subject::CALLBACKS).await.unwrap();
        let emptied = async {
            let mut poll = interval(Duration::from_millis(20));
            loop {
                poll.tick().await;
                let Ok(keys) = bucket.keys().await else { continue };
                if keys.all(|key| ready(key.is_ok_and(|key| key == "floor"))).await {
                    return;
                }
            }
        };
        timeout(TIMEOUT, emptied).await.expect("it is forgotten within 30 s");
    }

    /// Asserts that tombstones in the bucket have an expiry.
    async fn tombstones_expire(&self) {
        let stream =
            self.connection.jetstream.get_stream(format!("KV_{}", subject::CALLBACKS)).await.unwrap();
        for sequence in 1..=stream.cached_info().state.last_sequence {
            let Ok(message) = stream.get_raw_message(sequence).await else { continue };
            let (operation, ttl) = (message.headers.get("KV-Operation"), message.headers.get("Nats-TTL"));
            assert!(operation.is_none() || ttl.is_some(), "{} is kept for good", message.subject);
        }
    }
}

/// A receiver, its address and what it gets, and a bench that may post there.
async fn start() -> (Receiver, SocketAddr, mpsc::UnboundedReceiver<Received>, Bench) {
    let (receiver, address, gets) = Receiver::start().await;
    (receiver, address, gets, Bench::new(address).await)
}

/// The task that delivers callbacks.
struct RunningDelivery {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl RunningDelivery {
    async fn stop(self) {
        self.stop.cancel();
        self.task.await.unwrap();
    }
}

fn transition(name: &str, counter: u64, spec: &Value) -> Transition {
    Transition {
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
        left_out: None,
    }
}

async fn take(gets: &mut mpsc::UnboundedReceiver<Received>) -> Received {
    timeout(TIMEOUT, gets.recv()).await.expect("a callback within 30 s").unwrap()
}

async fn next(gets: &mut mpsc::UnboundedReceiver<Received>) -> (String, u64) {
    let got = take(gets).await;
    assert_eq!(got.id, format!("{}-{}", got.path, got.counter));
    assert_eq!(got.headers["content-type"], "application/json");
    let body: Value = serde_json::from_slice(&got.body).unwrap();
    assert_eq!(body["kind"], "L2Service");
    assert_eq!(body["status"]["transitions"], got.counter);
    (got.path, got.counter)
}

#[tokio::test(flavor = "multi_thread")]
async fn callbacks_arrive_in_order_despite_failing_endpoints() {
    let (receiver, _, mut gets, mut bench) = start().await;
    receiver.refuse("slow", 2, StatusCode::SERVICE_UNAVAILABLE);
    receiver.refuse("moved", 1, StatusCode::FOUND);
    receiver.refuse("gone", 1, StatusCode::GONE);
    for counter in 1..=3 {
        bench.transition("slow", counter, None).await;
        bench.transition("good", counter, None).await;
    }
    bench.transition("silent", 1, Some("")).await;
    // Port 1 has no listener.
    bench.transition("dead", 1, Some("http://127.0.0.1:1/")).await;
    bench.transition("moved", 1, None).await;
    bench.transition("gone", 1, None).await;
    bench.transition("gone", 2, None).await;
    let delivery = bench.start_delivery();
    let mut all: HashMap<String, Vec<u64>> = HashMap::new();
    for _ in 0..8 {
        let (path, counter) = next(&mut gets).await;
        all.entry(path).or_default().push(counter);
    }
    let expected = [("slow", vec![1, 2, 3]), ("good", vec![1, 2, 3]), ("moved", vec![1]), ("gone", vec![2])];
    assert_eq!(all, expected.map(|(path, counters)| (path.to_owned(), counters)).into());
    // All but the dead one are below the floor.
    bench.wait_for_state(|floor, entries| floor == 11 && entries == 1).await;
    bench.tombstones_expire().await;
    delivery.stop().await;
    let dead = dead_letters(&bench.connection).await.unwrap();
    let [letter] = &dead[..] else { panic!("{dead:?}") };
    assert_eq!((&*letter.transition.id, letter.attempts, &*letter.error), ("gone-1", 1, "answered 410 Gone"));
}

#[tokio::test(flavor = "multi_thread")]
async fn transitions_reusing_lost_outbox_sequences_are_delivered() {
    let (_receiver, _, mut gets, mut bench) = start().await;
    for name in ["before", "after", "more"] {
        bench.transition(name, 1, None).await;
    }
    let outbox = bench.connection.jetstream.get_stream(subject::TRANSITIONS).await.unwrap();
    let created = outbox.cached_info().created.unix_timestamp_nanos();
    let read = outbox.get_raw_message(1).await.unwrap().time.unix_timestamp_nanos();
    let bucket = bench.connection.jetstream.get_key_value(subject::CALLBACKS).await.unwrap();
    // The second message that was read had the time of the first, so it is none of the present ones.
    for (newest, intact) in [(None, 3), (Some((1, read)), 3), (Some((2, read)), 1), (Some((50, read)), 1)] {
        assert_eq!(state::intact_until(&outbox, newest).await.unwrap(), intact, "{newest:?}");
        bucket.put("floor", format!("{created} 50").into()).await.unwrap();
        let mut loaded_newest = newest;
        let (schedule, _) = state::load(&bucket, &outbox, &mut loaded_newest, 0).await.unwrap();
        assert_eq!((schedule.read(), loaded_newest), (intact, newest.filter(|_| intact == 3)));
    }
    let delivery = bench.start_delivery();
    bench.wait_for_state(|floor, _| floor == 3).await;
    bench.transition("last", 1, None).await;
    assert_eq!(next(&mut gets).await, ("last".into(), 1));
    delivery.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn delivery_resumes_after_restart_without_duplicates() {
    let (receiver, _, mut gets, mut bench) = start().await;
    receiver.refuse("a", u32::MAX, StatusCode::INTERNAL_SERVER_ERROR);
    bench.transition("a", 1, None).await;
    bench.transition("b", 1, None).await;
    let delivery = bench.start_delivery();
    assert_eq!(next(&mut gets).await, ("b".into(), 1));
    bench.transition("a", 2, None).await;
    bench.transition("b", 2, None).await;
    assert_eq!(next(&mut gets).await, ("b".into(), 2));
    bench.wait_for_state(|floor, entries| floor == 4 && entries == 1).await;
    delivery.stop().await;
    receiver.refuse("a", 0, StatusCode::OK);
    bench.transition("a", 3, None).await;
    let delivery = bench.start_delivery();
    for counter in 1..=3 {
        assert_eq!(next(&mut gets).await, ("a".into(), counter));
    }
    // Delivered callbacks are not repeated.
    bench.wait_for_state(|floor, entries| floor == 5 && entries == 0).await;
    assert!(gets.try_recv().is_err());
    delivery.stop().await;
}
