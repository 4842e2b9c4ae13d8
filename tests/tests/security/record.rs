//! A life of the whole operator in which everything happens that it can do, and much goes wrong, with secrets that
//! can't be mistaken: what it asked of the API server, and all that it said anywhere.

use std::path::Path;
use std::sync::{Arc, OnceLock, PoisonError};

use async_nats::ConnectOptions;
use axum::Router;
use axum::http::StatusCode;
use axum::routing::post;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use eno_control_plane::NatsUser;
use eno_nbi_crds::{
    ConfigPhase, FORGET_ANNOTATION, FabricDevice, L2BridgeDomain, L2Service, L2ServiceAttachment, NodePool,
    Phase, PodConfig, Route, Subnet,
};
use eno_tests::{Receiver, System, Wanted, deployment, own, two_nodes};
use futures::StreamExt as _;
use kube::api::{Api, DynamicObject, ListParams};
use kube::discovery::{Discovery, Scope, verbs};
use kube::runtime::watcher;
use russh::keys::ssh_key::LineEnding;
use russh::keys::{Algorithm, PrivateKey};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;

use crate::security::canary::Canary;

/// A word that is no secret and that has to be found in all places: they were looked through.
pub const MARK: &str = "mark-that-is-no-secret";

/// What was said somewhere.
pub struct Text {
    pub place: String,
    pub bytes: Vec<u8>,
}

/// All of it.
#[derive(Default)]
pub struct Record {
    pub canaries: Vec<Canary>,
    pub texts: Vec<Text>,
    /// The requests to the API server, as its audit has them.
    pub requests: Vec<Value>,
}

/// The record, made once.
pub fn record() -> &'static Record {
    static RECORD: OnceLock<Record> = OnceLock::new();
    RECORD.get_or_init(|| {
        let canaries = Canaries::new();
        let mut record = None;
        let key = canaries.ssh.public_key().to_openssh().expect("a line");
        let password = canaries.password.clone();
        own(
            |options| {
                two_nodes(options);
                options.audit = true;
                // All that is ever logged, by the libraries as well.
                options.log = Some("trace".to_owned());
                options.engine_arguments.push("--bridge-domains".into());
                for switch in &mut options.topology.switches {
                    switch.password = Some(password.clone());
                    switch.authorized_keys.push(key.clone());
                }
            },
            async |system| record = Some(live(system, canaries).await),
        );
        record.expect("a record")
    })
}

struct Canaries {
    password: String,
    wrong_password: String,
    ssh: PrivateKey,
    broken_key: String,
    callback: String,
    short_callback: String,
}

impl Canaries {
    fn new() -> Self {
        Self {
            // With what XML, JSON, a shell and a URL would have to escape behind it.
            password: "CanaryOfTheSwitchesPassword<&>\"'%;$(x)".to_owned(),
            wrong_password: "CanaryOfTheWrongPassword]]>\\".to_owned(),
            ssh: PrivateKey::random(&mut rand::rng(), Algorithm::Ed25519).expect("a key"),
            broken_key: "CanaryOfTheKeyThatIsNone".to_owned(),
            callback: "CanaryOfTheCallbacksSigningKey".to_owned(),
            short_callback: "CanaryThatIsNoSigningKey".to_owned(),
        }
    }

    /// What is searched for: of the passwords the part that every encoding leaves alone.
    fn all(&self, system: &System) -> Vec<Canary> {
        let pem = self.ssh.to_openssh(LineEnding::LF).expect("PEM");
        let seed = self.ssh.key_data().ed25519().expect("the kind that was made").private.to_bytes();
        let mut all = vec![
            Canary::new("the switches' password", "CanaryOfTheSwitchesPassword"),
            Canary::new("the wrong password", "CanaryOfTheWrongPassword"),
            Canary::new("the SSH key", seed),
            Canary::new("the SSH key that is none", self.broken_key.as_bytes()),
            Canary::new("the callbacks' key", self.callback.as_bytes()),
            Canary::new("the callbacks' key that is none", self.short_callback.as_bytes()),
        ];
        // The first line is the same for all keys.
        let lines = pem.lines().filter(|line| !line.starts_with("-----")).skip(2);
        all.extend(
            lines.filter(|line| line.len() >= 40).map(|line| Canary::new("a line of the SSH key", line)),
        );
        for user in NatsUser::ALL {
            let path = system.sandbox.control_plane().nats().seed_of(user);
            let seed = std::fs::read_to_string(path).expect("a seed");
            all.push(Canary::new(&format!("the nkey of {}", user.name()), seed.trim()));
        }
        all
    }
}

fn secret(namespace: &str, name: &str, data: &Value) -> String {
    json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name, "namespace": namespace }, "stringData": data,
    })
    .to_string()
}

/// All that is said on NATS while it lives.
struct Tap {
    said: Arc<std::sync::Mutex<Vec<u8>>>,
    _task: AbortOnDropHandle<()>,
}

impl Tap {
    async fn start(system: &System) -> Self {
        let nats = system.sandbox.control_plane().nats();
        let seed = std::fs::read_to_string(nats.seed_of(NatsUser::Admin)).expect("the seed of the admin");
        let client =
            ConnectOptions::with_nkey(seed.trim().to_owned()).connect(&nats.url).await.expect("NATS");
        let mut messages = client.subscribe(">").await.expect("everything");
        client.flush().await.expect("NATS");
        let said = Arc::new(std::sync::Mutex::new(Vec::new()));
        let sink = Arc::clone(&said);
        let task = tokio::spawn(async move {
            while let Some(message) = messages.next().await {
                let mut said = sink.lock().unwrap_or_else(PoisonError::into_inner);
                said.extend_from_slice(message.subject.as_bytes());
                said.extend_from_slice(format!(" {:?} ", message.headers).as_bytes());
                said.extend_from_slice(&message.payload);
                said.push(b'\n');
            }
            drop(client);
        });
        Self { said, _task: AbortOnDropHandle::new(task) }
    }
}

/// An endpoint that takes nothing, and says so at length.
async fn grumbler() -> (String, AbortOnDropHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a loopback port");
    let url = format!("http://{}/{MARK}", listener.local_addr().expect("its address"));
    let answer = |headers: axum::http::HeaderMap, body: String| async move {
        (StatusCode::INTERNAL_SERVER_ERROR, format!("{headers:?} {body}"))
    };
    let router = Router::new().route(&format!("/{MARK}"), post(answer));
    let server = tokio::spawn(async move {
        let _ = axum::serve(listener, router).await;
    });
    (url, AbortOnDropHandle::new(server))
}

const NAMESPACE: &str = "record";

fn network(callback: &str, grumbler: &str) -> String {
    let signed = format!("CallbackURL: '{callback}', CallbackSecret: {{Name: eno-callback}}");
    format!(
        "
apiVersion: eno.k8s.io/v1alpha1
kind: NodePool
metadata: {{name: record}}
spec: {{NodeSelector: {{matchLabels: {{eno.k8s.io/pool: workers}}}}, {signed}}}
---
apiVersion: eno.k8s.io/v1alpha1
kind: PhysicalNetwork
metadata: {{name: record}}
spec: {{Description: {MARK}, SegmentationIDs: ['1-4094']}}
---
apiVersion: eno.k8s.io/v1alpha1
kind: Route
metadata: {{name: record}}
spec: {{Prefix: 192.0.2.0, Mask: 24, NextHop: 10.90.0.1}}
---
apiVersion: eno.k8s.io/v1alpha1
kind: Subnet
metadata: {{name: record}}
spec: {{Type: v4, Ipam: whereabouts, Address: 10.90.0.0, Mask: 24, Routes: [record], HotPlugPool: [{{Start: 10.90.0.10, End: 10.90.0.19}}]}}
---
apiVersion: eno.k8s.io/v1alpha1
kind: ConnectionPoint
metadata: {{name: record}}
spec: {{NodePool: record, Interfaces: [eth1], SupportedCnis: [{{Name: ovs, SupportedInterfaceTypes: [kernel], Opts: '{{\"BridgeName\": \"br-rec\"}}'}}]}}
---
apiVersion: eno.k8s.io/v1alpha1
kind: L2Service
metadata: {{name: record}}
spec: {{SegmentationID: 500, Subnets: [record], {signed}}}
---
apiVersion: eno.k8s.io/v1alpha1
kind: L2Service
metadata: {{name: record-refused}}
spec: {{SegmentationID: 666, CallbackURL: '{grumbler}', CallbackSecret: {{Name: eno-callback}}}}
---
apiVersion: eno.k8s.io/v1alpha1
kind: L2ServiceAttachment
metadata: {{name: record, namespace: {NAMESPACE}}}
spec: {{ConnectionPoint: record, L2Services: [record], VlanType: access, {signed}}}
---
apiVersion: eno.k8s.io/v1alpha1
kind: L2ServiceAttachment
metadata: {{name: unsigned, namespace: {NAMESPACE}}}
spec: {{ConnectionPoint: record, L2Services: [record], VlanType: access, CallbackURL: '{callback}', CallbackSecret: {{Name: bad}}}}
---
apiVersion: eno.k8s.io/v1alpha1
kind: L2ServiceAttachment
metadata: {{name: refused, namespace: {NAMESPACE}}}
spec: {{ConnectionPoint: record, L2Services: [record-refused], VlanType: access, CallbackURL: '{grumbler}'}}
"
    )
}

const PODS: &str = r"
apiVersion: podnetwork.opdev.io/v1alpha1
kind: Bridge
metadata: {name: record, namespace: record}
spec: {name: recbr0, cidr: 192.168.70.0/24}
---
apiVersion: podnetwork.opdev.io/v1alpha1
kind: PodNetworkConfig
metadata: {name: record, namespace: record}
spec:
  Name: record
  additionalNetworks: [{networkName: rec, linkType: veth, master: recbr0, cidr: 192.168.70.0/24}]
---
apiVersion: podconfig.opdev.io/v1alpha1
kind: PodConfig
metadata: {name: record, namespace: record}
spec:
  sampleDeployment: {create: true, name: record-sample}
  networkAttachments: [{name: rc0, linkType: veth, master: recbr1, parent: rc0, cidr: 192.168.71.0/24}]
";

async fn live(system: &System, canaries: Canaries) -> Record {
    let tap = Tap::start(system).await;
    let receiver = Receiver::start().await;
    let (grumbler, _grumbler) = grumbler().await;
    let mut record = Record { canaries: canaries.all(system), ..Record::default() };

    system.namespace(NAMESPACE).await;
    let unchecked = json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": { "name": NAMESPACE, "labels": { "eno.k8s.io/use-check": "off" } },
    });
    system.apply(&unchecked.to_string()).await;
    let key = json!({ "key": format!("whsec_{}", STANDARD.encode(&canaries.callback)) });
    for namespace in ["eno-system", NAMESPACE] {
        system.apply(&secret(namespace, "eno-callback", &key)).await;
    }
    system.apply(&secret(NAMESPACE, "bad", &json!({ "key": canaries.short_callback }))).await;

    logins(system, &canaries).await;
    let vlan = json!({"kind": "reject-edit", "vlan": 666, "message": "VLAN 666 is reserved"});
    for leaf in ["leaf1", "leaf2"] {
        system.fault(leaf, vlan.clone()).await;
    }
    let network = network(receiver.url(), &grumbler);
    system.apply(&network).await;
    system.apply(PODS).await;
    let labels = json!({ "attach.eno.k8s.io/record": "net1", "podNetworkConfig": "record" });
    let cnf = deployment(NAMESPACE, "cnf", 1, &labels);
    system.apply(&cnf).await;
    system.becomes::<L2ServiceAttachment>("record/record", Phase::Ready).await;
    let refused = Wanted { phase: Phase::Error, words: &["VLAN 666"] };
    system.becomes::<L2Service>("record-refused", refused).await;
    let pods = system.running(NAMESPACE, "app=cnf", 1).await;
    let pod = pods.keys().next().expect("a pod");
    system.pod_network(NAMESPACE, pod, |interfaces| interfaces.len() >= 2).await;
    let api: Api<PodConfig> = Api::namespaced(system.sandbox.client(), NAMESPACE);
    system
        .until(api, watcher::Config::default(), "a PodConfig with its sample", |all| {
            let status = all.values().filter_map(|config| config.status.as_ref());
            status.clone().any(|status| {
                status.phase == Some(ConfigPhase::Configured) && status.pod_configurations.len() == 2
            })
        })
        .await;
    receiver
        .until(&["L2Service record".to_owned(), "L2ServiceAttachment record/record".to_owned()], "ready")
        .await;
    again_and_again(system).await;
    by_hand(system).await;
    asked(system, &network, &mut record).await;
    spoken(system, "while all was there", &mut record).await;

    // A part dies in between, and comes back to what it left.
    system.sandbox.kill_child("engine").await.expect("an engine");
    system.sandbox.start_child("engine").await.expect("an engine");
    system.delete(&cnf).await;
    system.delete(PODS).await;
    system.delete(&network).await;
    system.until_without([500]).await;
    spoken(system, "when all was gone", &mut record).await;
    let said = std::mem::take(&mut *tap.said.lock().unwrap_or_else(PoisonError::into_inner));
    record.texts.push(Text { place: "all messages on NATS".to_owned(), bytes: said });
    drop(tap);
    written(system, &mut record);
    record
}

/// Logs in by a key, and fails to with a wrong password and with a key that is none.
async fn logins(system: &System, canaries: &Canaries) {
    let info = system.sandbox.switch("spine1").expect("the switch").clone();
    let pem = canaries.ssh.to_openssh(LineEnding::LF).expect("PEM");
    let broken = format!(
        "-----BEGIN OPENSSH PRIVATE KEY-----\n{}\n-----END OPENSSH PRIVATE KEY-----\n",
        STANDARD.encode(&canaries.broken_key)
    );
    let user = &info.username;
    let logins = [
        ("by-key", json!({ "username": user, "ssh-privatekey": *pem }), Phase::Ready),
        ("wrong", json!({ "username": user, "password": canaries.wrong_password }), Phase::Error),
        ("broken", json!({ "username": user, "ssh-privatekey": broken }), Phase::Error),
        ("raw", json!({ "username": user, "ssh-privatekey": canaries.broken_key }), Phase::Error),
    ];
    for (name, data, phase) in logins {
        system.apply(&secret("eno-devices", name, &data)).await;
        let device = format!(
            "{{apiVersion: eno.k8s.io/v1alpha1, kind: FabricDevice, metadata: {{name: record-{name}}}, spec: {{Address: \
             '{}', HostKey: '{}', Credentials: {{SecretName: {name}}}}}}}",
            info.netconf, info.host_key
        );
        system.apply(&device).await;
        system.becomes::<FabricDevice>(&format!("record-{name}"), phase).await;
        let forget = json!({"metadata": {"annotations": {(FORGET_ANNOTATION): "true"}}});
        system.patch("FabricDevice", &format!("record-{name}"), forget).await;
        system.delete(&device).await;
    }
}

/// An object errs for one reason after the other: Events are counted up.
async fn again_and_again(system: &System) {
    let service = |subnet: &str| {
        format!(
            "{{apiVersion: eno.k8s.io/v1alpha1, kind: L2Service, metadata: {{name: record-errs}}, spec: {{SegmentationID: \
             501, Subnets: [{subnet}]}}}}"
        )
    };
    for subnet in ["nosuch", "record", "nobody"] {
        system.apply(&service(subnet)).await;
        let phase = if subnet == "record" { Phase::Ready } else { Phase::Error };
        let words: &[&str] = if subnet == "record" { &[] } else { &[subnet] };
        system.becomes::<L2Service>("record-errs", Wanted { phase, words }).await;
    }
    system.delete(&service("nobody")).await;
}

/// An L2BridgeDomain of a user's, beside those that the engine makes.
async fn by_hand(system: &System) {
    let made = system.all::<L2BridgeDomain>();
    system.until(made, watcher::Config::default(), "one that the engine made", |all| !all.is_empty()).await;
    let ours = "{apiVersion: eno.k8s.io/v1alpha1, kind: L2BridgeDomain, metadata: {name: record-by-hand}, spec: {Vlan: 502, \
                ConnectionPoints: []}}";
    system.apply(ours).await;
    system.becomes::<L2BridgeDomain>("record-by-hand", Phase::Ready).await;
    system.delete(ours).await;
    system.becomes::<NodePool>("record", Phase::Ready).await;
    system.becomes::<Route>("record", Phase::Ready).await;
    system.becomes::<Subnet>("record", Phase::Ready).await;
}

/// What the commands print.
async fn asked(system: &System, network: &str, record: &mut Record) {
    let commands: &[&[&str]] = &[
        &["status"],
        &["status", "l2sa/record", "-n", NAMESPACE],
        &["status", "fd/leaf1"],
        &["status", "l2s/record-refused"],
        &["trace", "l2sa/record", "-n", NAMESPACE],
        &["trace", "l2s/record-refused"],
        &["blame", "leaf1"],
        &["blame", "leaf1", "Ethernet1"],
        &["plan", "-f", "-"],
        &["plan", "-f", "-", "-o", "xml"],
        &["plan", "--delete", "-f", "-"],
        &["callbacks", "list"],
        &["callbacks", "test", "l2sa/record", "-n", NAMESPACE],
        &["callbacks", "test", "l2sa/unsigned", "-n", NAMESPACE],
        &["callbacks", "test", "l2s/record-refused"],
        &["callbacks", "retry", "l2s/record-refused"],
    ];
    for command in commands {
        for format in [&[][..], &["-o", "json"]] {
            if !format.is_empty() && command.contains(&"-o") {
                continue;
            }
            let input = if command.contains(&"-") { network } else { "" };
            let output = system.eno(&[*command, format].concat(), input).await;
            let bytes = [output.stdout, output.stderr].concat();
            record.texts.push(Text { place: format!("eno {}", command.join(" ")), bytes });
        }
    }
}

/// All objects of all kinds but Secrets, and all metrics.
async fn spoken(system: &System, when: &str, record: &mut Record) {
    let client = system.sandbox.client();
    let discovery = Discovery::new(client.clone()).run().await.expect("what the API server serves");
    for (resource, capabilities) in
        discovery.groups().flat_map(kube::discovery::ApiGroup::recommended_resources)
    {
        if resource.kind == "Secret" || !capabilities.supports_operation(verbs::LIST) {
            continue;
        }
        assert!(matches!(capabilities.scope, Scope::Cluster | Scope::Namespaced));
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        let all = api.list(&ListParams::default()).await;
        let all = all.unwrap_or_else(|error| panic!("listing {}: {error}", resource.plural));
        let bytes = serde_json::to_vec(&all.items).expect("JSON");
        record.texts.push(Text { place: format!("{} {when}", resource.plural), bytes });
    }
    for process in system.sandbox.info().processes {
        if let Some(url) = process.metrics {
            let text = system.http.get(&url).send().await.expect("metrics").text().await.expect("text");
            record
                .texts
                .push(Text { place: format!("the metrics of {} {when}", process.name), bytes: text.into() });
        }
        // What it was started with, which others of its user can read.
        if let Some(pid) = process.pid {
            for file in ["cmdline", "environ"] {
                let bytes = std::fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
                record.texts.push(Text { place: format!("the {file} of {}", process.name), bytes });
            }
        }
    }
}

/// Logs, what NATS keeps on its disk, and the audit.
fn written(system: &System, record: &mut Record) {
    let dir = system.sandbox.dir();
    files(&dir.join("logs"), &mut record.texts);
    files(&dir.join("nats/jetstream"), &mut record.texts);
    let audit = std::fs::read_to_string(system.sandbox.control_plane().audit_log()).expect("an audit");
    record.requests = audit.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
}

fn files(folder: &Path, texts: &mut Vec<Text>) {
    for entry in
        std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())).flatten()
    {
        let path = entry.path();
        if path.is_dir() {
            files(&path, texts);
        } else if let Ok(bytes) = std::fs::read(&path) {
            texts.push(Text { place: path.display().to_string(), bytes });
        }
    }
}
