//! Logins of agents to NATS with tokens of the API server: a node is itself, and nobody else is a node.

use std::collections::BTreeMap;

use async_nats::{Client, ConnectOptions, Event};
use eno_control_plane::NatsUser;
use eno_tests::{System, TIMEOUT, with_shared_sandbox};
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Namespace, Node, ServiceAccount};
use kube::api::PostParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Config, ResourceExt as _};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::timeout;

const AUDIENCE: &str = "eno-nats";
/// The audience of the API server.
const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";
const NODES: [&str; 2] = ["node1", "node2"];

/// Makes the accounts, which may be there.
async fn prepare(system: &System) {
    let manifests = [
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "eno-node"}}),
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "eno-agent", "namespace": "eno-node"}}),
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "other", "namespace": "eno-node"}}),
    ];
    for manifest in manifests {
        system.apply(&manifest.to_string()).await;
    }
    system.all::<Namespace>().get("eno-node").await.expect("a namespace");
}

/// A token of an account for an audience, bound to a node.
async fn token(system: &System, account: &str, audience: &str, node: Option<&str>) -> String {
    let bound_object_ref = match node {
        None => None,
        Some(name) => Some(BoundObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Node".to_owned()),
            name: Some(name.to_owned()),
            uid: system.all::<Node>().get(name).await.expect("a node").uid(),
        }),
    };
    let spec = TokenRequestSpec {
        audiences: Some(vec![audience.to_owned()]),
        bound_object_ref,
        expiration_seconds: None,
    };
    let request = TokenRequest { spec: Some(spec), ..TokenRequest::default() };
    let accounts: Api<ServiceAccount> = Api::namespaced(system.sandbox.client(), "eno-node");
    let answer = accounts.create_token_request(account, &PostParams::default(), &request).await;
    answer.expect("a token").status.and_then(|status| status.token).expect("a token")
}

/// A connection, and the errors that the server sends on it.
struct Agent {
    client: Client,
    errors: mpsc::UnboundedReceiver<String>,
}

impl Agent {
    async fn connect(system: &System, node: &str, token: &str) -> Result<Self, String> {
        let (errors_in, errors) = mpsc::unbounded_channel();
        let options = ConnectOptions::with_token(token.to_owned())
            .custom_inbox_prefix(format!("_INBOX_eno-driver-node.{node}"))
            .event_callback(move |event| {
                if let Event::ServerError(error) = event {
                    // Nobody listens at the end of the test.
                    let _ = errors_in.send(error.to_string());
                }
                std::future::ready(())
            });
        let connected = options.connect(&system.sandbox.control_plane().nats().url).await;
        Ok(Self { client: connected.map_err(|error| format!("{error:?}"))?, errors })
    }

    /// Waits for the server's refusal of what was sent last.
    async fn is_refused(&mut self, subject: &str) {
        self.client.flush().await.expect("NATS");
        let error = timeout(TIMEOUT, self.errors.recv()).await;
        let error = error.unwrap_or_else(|_| panic!("{subject} is not refused")).expect("a connection");
        assert!(error.to_lowercase().contains("permissions violation") && error.contains(subject), "{error}");
    }
}

#[test]
fn node_reads_its_own_commands_and_reports_for_itself_alone() {
    with_shared_sandbox(async |system| {
        prepare(system).await;
        let [one, other] = NODES;
        let own = token(system, "eno-agent", AUDIENCE, Some(one)).await;
        let mut agent = Agent::connect(system, one, &own).await.expect("it is let in");
        let consumer = |node: &str, inbox: &str| {
            let subject = format!("eno.v1.command.node.{node}");
            let config = json!({
                "stream_name": "ENO_COMMANDS",
                "config": {"name": "reads", "filter_subject": subject, "deliver_subject": inbox,
                    "deliver_policy": "last_per_subject", "ack_policy": "none", "inactive_threshold": 1_000_000_000},
            });
            (format!("$JS.API.CONSUMER.CREATE.ENO_COMMANDS.reads.{subject}"), config.to_string())
        };
        let inbox = agent.client.new_inbox();
        let (subject, config) = consumer(one, &inbox);
        let answer = timeout(TIMEOUT, agent.client.request(subject, config.into())).await;
        let answer = answer.expect("an answer").expect("JetStream");
        assert!(!String::from_utf8_lossy(&answer.payload).contains("error"), "{:?}", answer.payload);

        let (subject, config) = consumer(other, &inbox);
        agent.client.publish(subject.clone(), config.into()).await.expect("a connection");
        agent.is_refused(&subject).await;
        let foreign = [
            format!("eno.v1.result.node.{other}"),
            format!("eno.v1.history.node.{other}"),
            format!("$KV.ENO_DRIVERS.node.{other}"),
            format!("$KV.ENO_OWNERS.node.{other}"),
            "eno.v1.forget.node".to_owned(),
        ];
        for subject in foreign {
            agent.client.publish(subject.clone(), "{}".into()).await.expect("a connection");
            agent.is_refused(&subject).await;
        }
        for subject in [format!("_INBOX_eno-driver-node.{other}.>"), format!("eno.v1.preview.node.{other}")] {
            let _subscription = agent.client.subscribe(subject.clone()).await.expect("a connection");
            agent.is_refused(&subject).await;
        }
    });
}

#[test]
fn other_tokens_are_refused_and_agents_tokens_are_for_nats_alone() {
    with_shared_sandbox(async |system| {
        prepare(system).await;
        let [node, _] = NODES;
        let own = token(system, "eno-agent", AUDIENCE, Some(node)).await;
        Agent::connect(system, node, &own).await.expect("it is let in");
        let mut damaged = own.clone();
        damaged.replace_range(own.len() - 9..own.len() - 8, if own.ends_with('A') { "B" } else { "A" });
        let refused = BTreeMap::from([
            ("another audience", token(system, "eno-agent", "other", Some(node)).await),
            ("the API server's audience", token(system, "eno-agent", ISSUER, Some(node)).await),
            ("another account", token(system, "other", AUDIENCE, Some(node)).await),
            ("no node", token(system, "eno-agent", AUDIENCE, None).await),
            ("another signature", damaged),
            ("no token", String::new()),
        ]);
        for (what, token) in refused {
            let error = Agent::connect(system, node, &token).await.err();
            let error = error.unwrap_or_else(|| panic!("{what} is accepted"));
            assert!(error.contains("AuthorizationViolation"), "{what}: {error}");
        }
        // Parts with keys are not asked for tokens.
        system.nats(NatsUser::Inspect).await;

        let path = system.sandbox.control_plane().kubeconfig();
        let kubeconfig = Kubeconfig::read_from(path).expect("a kubeconfig");
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
        let mut config = config.expect("a configuration");
        config.auth_info = kube::config::AuthInfo { token: Some(own.into()), ..Default::default() };
        let client = kube::Client::try_from(config).expect("a client");
        let error = client.apiserver_version().await.expect_err("the API server accepts it");
        assert!(matches!(&error, kube::Error::Api(status) if status.code == 401), "{error}");
    });
}
