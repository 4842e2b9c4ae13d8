//! Logins to a nats-server with the shipped configuration, judged by a stub of the API server.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::routing::post;
use eno_conformance::{NatsServer, Wire};
use eno_control_plane::NatsUser;
use futures::future::join_all;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::*;

const TIMEOUT: Duration = Duration::from_mins(1);
const AGENT: &str = "system:serviceaccount:eno-node:eno-agent";

async fn log_in(nats: &NatsServer, token: &str) -> Result<Wire, String> {
    Wire::log_in(nats, |_| json!({"auth_token": token})).await
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
    async fn start(nats: &NatsServer) -> Self {
        let load = Arc::new(Load::default());
        let router = axum::Router::new()
            .route("/apis/authentication.k8s.io/v1/tokenreviews", post(review))
            .with_state(load.clone());
        let client = Client::new(router, "default");
        let connection = nats.connect_as(NatsUser::ENGINE, "eno-engine").await;
        let metrics = Arc::new(Metrics::default());
        let keys = nats.seeds().to_owned();
        let answering = run(connection.clone(), client, keys, metrics.clone(), CancellationToken::new());
        let task = AbortOnDropHandle::new(tokio::spawn(answering));
        Self { load, metrics, _task: task }
    }
}

/// Logs in, again while nobody answers: the engine subscribes in the background.
async fn enter(nats: &NatsServer, token: &str) -> Wire {
    let entering = async {
        loop {
            if let Ok(session) = log_in(nats, token).await {
                return session;
            }
        }
    };
    tokio::time::timeout(TIMEOUT, entering).await.expect("it gets in")
}

#[tokio::test(flavor = "multi_thread")]
async fn agent_has_the_rights_of_its_node_alone() {
    let nats = NatsServer::with_users().await;
    let _engine = Engine::start(&nats).await;
    let mut session = enter(&nats, &token("a.1")).await;
    let of = |node: &str| {
        [
            format!("eno.v1.result.node.{node}"),
            format!("eno.v1.history.node.{node}"),
            format!("$KV.ENO_DRIVERS.node.{node}"),
            format!("$KV.ENO_OWNERS.node.{node}"),
            format!("eno.v1.visit.c.{node}"),
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
    for subject in [
        "_INBOX_eno-driver-node.a=2E1.>",
        "eno.v1.forget.node",
        "eno.v1.preview.node.a=2E1",
        "eno.v1.visit.a=2E1.*",
    ] {
        assert!(session.may_subscribe(subject).await, "{subject}");
    }
    for subject in [
        "_INBOX_eno-driver-node.b.>",
        "_INBOX_eno-driver-node.>",
        "eno.v1.preview.node.b",
        "eno.v1.visit.b.*",
        "eno.v1.visit.*.a=2E1",
        "eno.v1.command.node.a=2E1",
        "$SYS.REQ.USER.AUTH",
        ">",
    ] {
        assert!(!session.may_subscribe(subject).await, "{subject}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn other_tokens_are_refused_and_nkeys_need_no_engine() {
    let nats = NatsServer::with_users().await;
    // No engine has answered yet.
    for user in NatsUser::all() {
        nats.connect_as(user, "eno-test").await;
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
        let refused = log_in(&nats, &token).await.err().unwrap_or_else(|| panic!("{token} is accepted"));
        assert!(refused.contains("Authorization Violation"), "{token}: {refused}");
    }
    assert_eq!(engine.metrics.node_logins("refused"), 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn connected_agent_needs_no_engine() {
    let nats = NatsServer::with_users().await;
    let engine = Engine::start(&nats).await;
    let mut session = enter(&nats, &token("a")).await;
    drop(engine);
    assert!(session.may_publish("eno.v1.result.node.a").await);
    assert!(log_in(&nats, &token("a")).await.is_err());
    assert!(session.may_publish("eno.v1.result.node.a").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn thousand_agents_log_in_after_a_restart_of_nats() {
    let mut nats = NatsServer::with_users().await;
    let engine = Engine::start(&nats).await;
    enter(&nats, &token("first")).await;
    nats.restart().await;
    let tokens: Vec<_> = (0..1000).map(|number| token(&format!("node{number}"))).collect();
    let sessions = join_all(tokens.iter().map(|token| enter(&nats, token))).await;
    assert_eq!(sessions.len(), 1000);
    let most = engine.load.most.load(Ordering::SeqCst);
    assert!((2..=CONCURRENCY).contains(&most), "{most} reviews at once");
}
