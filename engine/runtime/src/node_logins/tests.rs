//! Logins to a nats-server with the shipped configuration, judged by a stub of the API server.

use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::routing::post;
use eno_control_plane::parts::{Part, Parts};
use eno_control_plane::{NatsUser, nats_keys, pick_port};
use eno_sbi::nats::{Connection, NatsArgs, connect};
use futures::future::join_all;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::*;

const TIMEOUT: Duration = Duration::from_mins(1);
const AGENT: &str = "system:serviceaccount:eno-node:eno-agent";

/// A nats-server, killed when it is dropped.
struct Nats {
    port: u16,
    data: TempDir,
    child: Child,
}

impl Nats {
    async fn start() -> Self {
        let data = TempDir::new().unwrap();
        let port = pick_port().unwrap();
        let child = Self::spawn(&data, port).await;
        Self { port, data, child }
    }

    async fn spawn(data: &TempDir, port: u16) -> Child {
        let program = Parts::from_env().unwrap().get(Part::NatsServer).await.unwrap();
        let configuration = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/nats/nats.conf");
        let keys = nats_keys(data.path()).unwrap();
        let child = Command::new(program)
            .arg("--config")
            .arg(configuration)
            .args(["--addr", "127.0.0.1", "--port", &port.to_string(), "--http_port", "-1"])
            .env("STORE_DIR", data.path().join("jetstream"))
            .env("POD_NAME", "eno-nats-0")
            .envs(keys.iter().map(|(key, public)| (key.variable(), public)))
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(data.path().join("log")).unwrap())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let listens = async {
            while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.is_err() {
                tokio::task::yield_now().await;
            }
        };
        let log = || std::fs::read_to_string(data.path().join("log")).unwrap();
        assert!(tokio::time::timeout(TIMEOUT, listens).await.is_ok(), "{}", log());
        child
    }

    async fn restart(&mut self) {
        self.child.kill().await.unwrap();
        self.child = Self::spawn(&self.data, self.port).await;
    }

    async fn connect(&self, user: NatsUser, identity: &str) -> Connection {
        let args = NatsArgs {
            nats_url: format!("nats://127.0.0.1:{}", self.port),
            nats_credentials: Some(self.data.path().join(format!("{}.seed", user.name()))),
            nats_ca: None,
            nats_replicas: 1,
        };
        let stop = CancellationToken::new();
        let connecting = connect(&args, identity, &stop);
        tokio::time::timeout(TIMEOUT, connecting).await.expect("it is let in").unwrap()
    }

    /// A session of a client with this token; `Err`: what the server says.
    async fn log_in(&self, token: &str) -> Result<Session, String> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).await.map_err(|e| e.to_string())?;
        let mut session = Session(BufReader::new(stream));
        let hello = json!({"verbose": false, "pedantic": false, "headers": true, "auth_token": token, "lang": "test"});
        session.send(&format!("CONNECT {hello}\r\n")).await;
        match session.errors().await {
            Ok(errors) if errors.is_empty() => Ok(session),
            Ok(errors) => Err(errors.join(", ")),
            Err(error) => Err(error),
        }
    }
}

/// A connection that speaks the protocol in clear text.
struct Session(BufReader<TcpStream>);

impl Session {
    async fn send(&mut self, text: &str) {
        // A server that refused may have closed the connection.
        let _ = self.0.get_mut().write_all(text.as_bytes()).await;
    }

    /// The errors about earlier requests; `Err`: the server has hung up.
    async fn errors(&mut self) -> Result<Vec<String>, String> {
        self.send("PING\r\n").await;
        let mut errors = Vec::new();
        loop {
            let mut line = String::new();
            let read = tokio::time::timeout(TIMEOUT, self.0.read_line(&mut line)).await;
            if !matches!(read, Ok(Ok(length)) if length > 0) {
                return Err(errors.join(", "));
            }
            match line.trim_end() {
                "PONG" => return Ok(errors),
                error if error.starts_with("-ERR") => errors.push(error.to_owned()),
                _ => {}
            }
        }
    }

    async fn may_publish(&mut self, subject: &str) -> bool {
        self.send(&format!("PUB {subject} 0\r\n\r\n")).await;
        self.errors().await.unwrap().is_empty()
    }

    async fn may_subscribe(&mut self, subject: &str) -> bool {
        self.send(&format!("SUB {subject} 1\r\n")).await;
        let allowed = self.errors().await.unwrap().is_empty();
        self.send("UNSUB 1\r\n").await;
        allowed
    }
}

/// How many reviews are asked for at once.
#[derive(Default)]
struct Load {
    reviews: AtomicUsize,
    most: AtomicUsize,
}

/// An API server that reads a token as `<user> <audience> <node>`.
async fn review(State(load): State<Arc<Load>>, Json(review): Json<Value>) -> Json<Value> {
    let now = load.reviews.fetch_add(1, Ordering::SeqCst) + 1;
    load.most.fetch_max(now, Ordering::SeqCst);
    // So that reviews overlap.
    tokio::time::sleep(Duration::from_millis(5)).await;
    load.reviews.fetch_sub(1, Ordering::SeqCst);
    assert_eq!(review["spec"]["audiences"], json!(["eno-nats"]));
    let token = review["spec"]["token"].as_str().unwrap_or_default();
    let status = match token.split(' ').collect::<Vec<_>>()[..] {
        [user, audience, node] => json!({
            "authenticated": true,
            "audiences": [audience],
            "user": {"username": user, "extra": {"authentication.kubernetes.io/node-name": [node]}},
        }),
        _ => json!({"authenticated": false, "error": "unknown"}),
    };
    Json(
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "metadata": {}, "spec": {}, "status": status}),
    )
}

fn token(node: &str) -> String {
    format!("{AGENT} eno-nats {node}")
}

struct Engine {
    load: Arc<Load>,
    metrics: Arc<Metrics>,
    _task: AbortOnDropHandle<()>,
}

impl Engine {
    async fn start(nats: &Nats) -> Self {
        let load = Arc::new(Load::default());
        let router = axum::Router::new()
            .route("/apis/authentication.k8s.io/v1/tokenreviews", post(review))
            .with_state(load.clone());
        let client = Client::new(router, "default");
        let connection = nats.connect(NatsUser::ENGINE, "eno-engine").await;
        let metrics = Arc::new(Metrics::default());
        let keys = nats.data.path().to_owned();
        let answering = run(connection.clone(), client, keys, metrics.clone(), CancellationToken::new());
        let task = AbortOnDropHandle::new(tokio::spawn(answering));
        Self { load, metrics, _task: task }
    }
}

/// Logs in, again while nobody answers: the engine subscribes in the background.
async fn enter(nats: &Nats, token: &str) -> Session {
    let entering = async {
        loop {
            if let Ok(session) = nats.log_in(token).await {
                return session;
            }
        }
    };
    tokio::time::timeout(TIMEOUT, entering).await.expect("it gets in")
}

#[tokio::test(flavor = "multi_thread")]
async fn agent_has_the_rights_of_its_node_alone() {
    let nats = Nats::start().await;
    let _engine = Engine::start(&nats).await;
    let mut session = enter(&nats, &token("a.1")).await;
    let of = |node: &str| {
        [
            format!("eno.v1.result.node.{node}"),
            format!("eno.v1.history.node.{node}"),
            format!("$KV.ENO_DRIVERS.node.{node}"),
            format!("$KV.ENO_OWNERS.node.{node}"),
            format!("$JS.API.CONSUMER.CREATE.ENO_COMMANDS.x.eno.v1.command.node.{node}"),
        ]
    };
    for subject in of("a=2E1") {
        assert!(session.may_publish(&subject).await, "{subject}");
    }
    let others = of("b").into_iter().chain(of("*"));
    let foreign = [
        "eno.v1.command.node.a=2E1",
        "eno.v1.result.netconf.a=2E1",
        "eno.v1.forget.node",
        "eno.v1.callbacks",
        "$JS.API.CONSUMER.CREATE.ENO_COMMANDS.x.eno.v1.command.netconf.a=2E1",
        "$JS.API.STREAM.DELETE.ENO_COMMANDS",
        "$SYS.REQ.USER.AUTH",
    ];
    for subject in others.chain(foreign.map(str::to_owned)) {
        assert!(!session.may_publish(&subject).await, "{subject}");
    }
    for subject in ["_INBOX_eno-driver-node.a=2E1.>", "eno.v1.forget.node", "eno.v1.preview.node.a=2E1"] {
        assert!(session.may_subscribe(subject).await, "{subject}");
    }
    for subject in [
        "_INBOX_eno-driver-node.b.>",
        "_INBOX_eno-driver-node.>",
        "eno.v1.preview.node.b",
        "eno.v1.command.node.a=2E1",
        "$SYS.REQ.USER.AUTH",
        ">",
    ] {
        assert!(!session.may_subscribe(subject).await, "{subject}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn other_tokens_are_refused_and_nkeys_need_no_engine() {
    let nats = Nats::start().await;
    // No engine has answered yet.
    for user in NatsUser::all() {
        nats.connect(user, "eno-test").await;
    }
    let engine = Engine::start(&nats).await;
    enter(&nats, &token("a")).await;
    let tokens = [
        "system:serviceaccount:eno-node:default eno-nats a".to_owned(),
        format!("{AGENT} other a"),
        format!("{AGENT} eno-nats "),
        "unknown".to_owned(),
        String::new(),
    ];
    for token in tokens {
        let refused = nats.log_in(&token).await.err().unwrap_or_else(|| panic!("{token} is accepted"));
        assert!(refused.contains("Authorization Violation"), "{token}: {refused}");
    }
    assert_eq!(engine.metrics.node_logins("refused"), 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn connected_agent_needs_no_engine() {
    let nats = Nats::start().await;
    let engine = Engine::start(&nats).await;
    let mut session = enter(&nats, &token("a")).await;
    drop(engine);
    assert!(session.may_publish("eno.v1.result.node.a").await);
    assert!(nats.log_in(&token("a")).await.is_err());
    assert!(session.may_publish("eno.v1.result.node.a").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn thousand_agents_log_in_after_a_restart_of_nats() {
    let mut nats = Nats::start().await;
    let engine = Engine::start(&nats).await;
    enter(&nats, &token("first")).await;
    nats.restart().await;
    let tokens: Vec<_> = (0..1000).map(|number| token(&format!("node{number}"))).collect();
    let sessions = join_all(tokens.iter().map(|token| enter(&nats, token))).await;
    assert_eq!(sessions.len(), 1000);
    let most = engine.load.most.load(Ordering::SeqCst);
    assert!((2..=CONCURRENCY).contains(&most), "{most} reviews at once");
}
