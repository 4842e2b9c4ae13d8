//! A full run of the operator with all features, many failures, and canary secrets. It records all requests to the API
//! server and everything that the operator wrote anywhere.

use std::io::Read as _;
use std::path::Path;
use std::sync::{Arc, OnceLock, PoisonError};

use async_nats::ConnectOptions;
use axum::Router;
use axum::http::StatusCode;
use axum::routing::post;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use eno_control_plane::{NatsKey, NatsUser};
use eno_nbi_crds::{
    BGPSessionGroup, ConfigPhase, FORGET_ANNOTATION, FabricDevice, L2BridgeDomain, L2Service,
    L2ServiceAttachment, NodePool, Phase, PodConfig, Route, Subnet, VRFAttachment,
};
use eno_tests::{
    Receiver, System, attachment, connection_point, deployment, object, service, subnet, two_nodes,
    unchecked_namespace, with_own_sandbox,
};
use flate2::read::MultiGzDecoder;
use futures::StreamExt as _;
use kube::api::{Api, DynamicObject, ListParams};
use kube::discovery::{Discovery, Scope, verbs};
use kube::runtime::watcher;
use russh::keys::ssh_key::LineEnding;
use russh::keys::{Algorithm, PrivateKey};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;

use crate::security::canaries::Canary;
use crate::security::service_accounts::BGP_SPEAKER;

/// A text that is no secret and must be in all kinds of sources, as proof that they were read.
pub const MARKER: &str = "mark-that-is-no-secret";

/// A text that the operator wrote, and its source.
pub struct RecordedText {
    pub source: String,
    pub bytes: Vec<u8>,
}

/// Everything recorded in a run.
#[derive(Default)]
pub struct RunRecord {
    pub canaries: Vec<Canary>,
    pub texts: Vec<RecordedText>,
    /// The audit events of all requests to the API server.
    pub requests: Vec<Value>,
}

/// The record; the first call makes the run.
pub fn record() -> &'static RunRecord {
    static RECORD: OnceLock<RunRecord> = OnceLock::new();
    RECORD.get_or_init(|| {
        let canaries = Canaries::new();
        let mut record = None;
        let key = canaries.ssh.public_key().to_openssh().expect("a line");
        let password = canaries.password.clone();
        with_own_sandbox(
            |options| {
                two_nodes(options);
                options.audit = true;
                // The lowest level, for libraries as well.
                options.log = Some("trace".to_owned());
                options.engine_arguments.push("--bridge-domains".into());
                for switch in &mut options.topology.switches {
                    switch.password = Some(password.clone());
                    switch.authorized_keys.push(key.clone());
                }
            },
            async |system| record = Some(run_all_features(system, canaries).await),
        );
        record.expect("a record")
    })
}

struct Canaries {
    /// The switches' password.
    password: String,
    /// A wrong password.
    wrong_password: String,
    /// A valid SSH key.
    ssh: PrivateKey,
    /// An invalid SSH key.
    broken_key: String,
    /// The signing key of callbacks.
    callback: String,
    /// An invalid signing key.
    short_callback: String,
    /// The password of BGP sessions.
    bgp: String,
}

impl Canaries {
    fn new() -> Self {
        Self {
            // The suffix consists of characters that XML, JSON, a shell and a URL would escape.
            password: "CanaryOfTheSwitchesPassword<&>\"'%;$(x)".to_owned(),
            wrong_password: "CanaryOfTheWrongPassword]]>\\".to_owned(),
            ssh: PrivateKey::random(&mut rand::rng(), Algorithm::Ed25519).expect("a key"),
            broken_key: "CanaryOfTheKeyThatIsNone".to_owned(),
            callback: "CanaryOfTheCallbacksSigningKey".to_owned(),
            short_callback: "CanaryThatIsNoSigningKey".to_owned(),
            bgp: "CanaryOfTheBGPPassword".to_owned(),
        }
    }

    /// The texts to search for; of passwords, the part that no encoding changes.
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
            Canary::new("the password of BGP", self.bgp.as_bytes()),
        ];
        // The first line of a key is the same for all keys.
        let lines = pem.lines().filter(|line| !line.starts_with("-----")).skip(2);
        all.extend(
            lines.filter(|line| line.len() >= 40).map(|line| Canary::new("a line of the SSH key", line)),
        );
        for key in NatsKey::all() {
            let path = system.sandbox.control_plane().nats().seeds().join(format!("{}.seed", key.name()));
            let seed = std::fs::read_to_string(path).expect("a seed");
            all.push(Canary::new(&format!("the nkey of {}", key.name()), seed.trim()));
        }
        for node in system.sandbox.nodes() {
            let path = system.sandbox.control_plane().nats().seeds().join(format!("{}.token", node.name));
            let token = std::fs::read_to_string(path).expect("a token");
            // The other parts are no secrets.
            let signature = token.trim().rsplit('.').next().unwrap_or_default().to_owned();
            all.push(Canary::new(&format!("the signature of the token of {}", node.name), signature));
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

/// Records all messages on NATS.
struct NatsTap {
    messages: Arc<std::sync::Mutex<Vec<u8>>>,
    _task: AbortOnDropHandle<()>,
}

impl NatsTap {
    async fn start(system: &System) -> Self {
        let nats = system.sandbox.control_plane().nats();
        let seed = std::fs::read_to_string(nats.seed_of(NatsUser::Admin)).expect("the seed of the admin");
        let client =
            ConnectOptions::with_nkey(seed.trim().to_owned()).connect(&nats.url).await.expect("NATS");
        let mut subscription = client.subscribe(">").await.expect("everything");
        client.flush().await.expect("NATS");
        let messages = Arc::new(std::sync::Mutex::new(Vec::new()));
        let sink = Arc::clone(&messages);
        let task = tokio::spawn(async move {
            while let Some(message) = subscription.next().await {
                let mut messages = sink.lock().unwrap_or_else(PoisonError::into_inner);
                messages.extend_from_slice(message.subject.as_bytes());
                messages.extend_from_slice(format!(" {:?} ", message.headers).as_bytes());
                messages.extend_from_slice(&message.payload);
                messages.push(b'\n');
            }
            drop(client);
        });
        Self { messages, _task: AbortOnDropHandle::new(task) }
    }
}

/// Starts an endpoint that refuses each callback and echoes its headers and body.
async fn failing_endpoint() -> (String, AbortOnDropHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a loopback port");
    let url = format!("http://{}/{MARKER}", listener.local_addr().expect("its address"));
    let answer = |headers: axum::http::HeaderMap, body: String| async move {
        (StatusCode::INTERNAL_SERVER_ERROR, format!("{headers:?} {body}"))
    };
    let router = Router::new().route(&format!("/{MARKER}"), post(answer));
    let server = tokio::spawn(async move {
        let _ = axum::serve(listener, router).await;
    });
    (url, AbortOnDropHandle::new(server))
}

const NAMESPACE: &str = "record";

fn network(callback: &str, failing_endpoint: &str) -> String {
    let signed = format!("CallbackURL: '{callback}', CallbackSecret: {{Name: eno-callback}}");
    let access = |name: &str, service: &str, callback: &str| {
        attachment(NAMESPACE, name, "record", service, &format!("VlanType: access, {callback}"))
    };
    [
        object(
            "NodePool",
            "name: record",
            &format!("NodeSelector: {{matchLabels: {{eno.k8s.io/pool: workers}}}}, {signed}"),
        ),
        object(
            "PhysicalNetwork",
            "name: record",
            &format!("Description: {MARKER}, SegmentationIDs: ['1-4094']"),
        ),
        object("Route", "name: record", "Prefix: 192.0.2.0, Mask: 24, NextHop: 10.90.0.1"),
        subnet(
            "record",
            "10.90.0.0",
            "Routes: [record], HotPlugPool: [{Start: 10.90.0.10, End: 10.90.0.19}]",
        ),
        connection_point("record", "br-rec", "NodePool: record, Interfaces: [eth1]"),
        service("record", 500, &format!("Subnets: [record], {signed}")),
        object("VRF", "name: record", &format!("Devices: [{{Name: gw1}}], {signed}")),
        object(
            "VRFAttachment",
            "name: record",
            &format!(
                "VRF: record, L2Service: record, Interfaces: [{{Device: gw1, Addresses: [10.90.0.1/24]}}], {signed}"
            ),
        ),
        object(
            "BGPSessionGroup",
            "name: record",
            "VRF: record, L2Service: record, ConnectionPoint: record, LocalASN: 64512, PeerASN: 65000, \
             AddressFamilies: [IPv4], AcceptPrefixes: [203.0.113.0/24], AllowPods: true, Speaker: MetalLB, BFD: {}, \
             Password: {DeviceSecretName: bgp, SpeakerSecretName: bgp}",
        ),
        service(
            "record-refused",
            666,
            &format!("CallbackURL: '{failing_endpoint}', CallbackSecret: {{Name: eno-callback}}"),
        ),
        access("record", "record", &signed),
        access("unsigned", "record", &format!("CallbackURL: '{callback}', CallbackSecret: {{Name: bad}}")),
        access("refused", "record-refused", &format!("CallbackURL: '{failing_endpoint}'")),
    ]
    .concat()
}

const PODS: &str = include_str!("manifests/pods.yaml");

async fn run_all_features(system: &System, canaries: Canaries) -> RunRecord {
    let tap = NatsTap::start(system).await;
    let receiver = Receiver::start().await;
    let (failing_endpoint, _failing_server) = failing_endpoint().await;
    let mut record = RunRecord { canaries: canaries.all(system), ..RunRecord::default() };

    system.namespace(NAMESPACE).await;
    system.apply(&unchecked_namespace(NAMESPACE)).await;
    let key = json!({ "key": format!("whsec_{}", STANDARD.encode(&canaries.callback)) });
    for namespace in ["eno-system", NAMESPACE] {
        system.apply(&secret(namespace, "eno-callback", &key)).await;
    }
    system.apply(&secret(NAMESPACE, "bad", &json!({ "key": canaries.short_callback }))).await;
    let of_bgp = json!({
        "apiVersion": "v1", "kind": "Secret", "stringData": { "password": canaries.bgp },
        "metadata": {
            "name": "bgp", "namespace": "eno-devices", "annotations": { "eno.k8s.io/bgp-devices": "gw1" },
        },
    });
    system.apply(&of_bgp.to_string()).await;
    install_metallb(system, &canaries.bgp).await;

    log_in_with_each_secret(system, &canaries).await;
    let vlan = json!({"kind": "reject-edit", "vlan": 666, "message": "VLAN 666 is reserved"});
    for leaf in ["leaf1", "leaf2"] {
        system.fault(leaf, vlan.clone()).await;
    }
    let network = network(receiver.url(), &failing_endpoint);
    system.apply(&network).await;
    system.apply(PODS).await;
    let labels = json!({ "attach.eno.k8s.io/record": "net1", "podNetworkConfig": "record" });
    let cnf = deployment(NAMESPACE, "cnf", 1, &labels);
    system.apply_until_ready::<L2ServiceAttachment>(&cnf, "record/record").await;
    system.becomes::<VRFAttachment>("record", Phase::Ready).await;
    // No speaker runs. The gateway has the session, so its password was written.
    system
        .becomes::<BGPSessionGroup>("record", (Phase::Pending, &["no speaker with peer 10.90.0.1"][..]))
        .await;
    let refused = (Phase::Error, &["VLAN 666"]);
    system.becomes::<L2Service>("record-refused", refused).await;
    let pods = system.running(NAMESPACE, "app=cnf", 1).await;
    let pod = pods.keys().next().expect("a pod");
    system.pod_network(NAMESPACE, pod, |interfaces| interfaces.len() >= 2).await;
    let api: Api<PodConfig> = Api::namespaced(system.sandbox.client(), NAMESPACE);
    system
        .until(api, watcher::Config::default(), "a PodConfig with its sample", |all| {
            let mut status = all.values().filter_map(|config| config.status.as_ref());
            status.any(|status| {
                status.phase == Some(ConfigPhase::Configured) && status.pod_configurations.len() == 2
            })
        })
        .await;
    receiver
        .until(&["L2Service record".to_owned(), "L2ServiceAttachment record/record".to_owned()], "ready")
        .await;
    repeat_errors(system).await;
    create_bridge_domain(system).await;
    record_commands(system, &network, &mut record).await;
    record_dump(system, &mut record).await;
    record_objects_and_metrics(system, "while all was there", &mut record).await;

    // The engine crashes and continues with what is stored.
    system.sandbox.kill_child("engine").await.expect("an engine");
    system.sandbox.start_child("engine").await.expect("an engine");
    system.delete(&cnf).await;
    system.delete(PODS).await;
    system.delete_with_vlans(&network, [500]).await;
    record_objects_and_metrics(system, "when all was gone", &mut record).await;
    let messages = std::mem::take(&mut *tap.messages.lock().unwrap_or_else(PoisonError::into_inner));
    record.texts.push(RecordedText { source: "all messages on NATS".to_owned(), bytes: messages });
    drop(tap);
    record_files(system, &mut record);
    record
}

/// The kinds of MetalLB, and the password of its sessions, which the driver may look for.
async fn install_metallb(system: &System, password: &str) {
    let definitions = Path::new(env!("CARGO_MANIFEST_DIR")).join("metallb/crds.yaml");
    system.apply(&std::fs::read_to_string(definitions).expect("the definitions")).await;
    let rbac = "rbac.authorization.k8s.io";
    let metadata = json!({ "name": "bgp", "namespace": "metallb-system" });
    for object in [
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "metallb-system" } }),
        json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "kubernetes.io/basic-auth",
            "stringData": { "password": password },
        }),
        json!({
            "apiVersion": format!("{rbac}/v1"), "kind": "Role", "metadata": metadata,
            "rules": [{ "apiGroups": [""], "resources": ["secrets"], "resourceNames": ["bgp"], "verbs": ["get"] }],
        }),
        json!({
            "apiVersion": format!("{rbac}/v1"), "kind": "RoleBinding", "metadata": metadata,
            "roleRef": { "apiGroup": rbac, "kind": "Role", "name": "bgp" },
            "subjects": [{ "kind": "ServiceAccount", "name": BGP_SPEAKER.name, "namespace": BGP_SPEAKER.namespace }],
        }),
    ] {
        system.apply(&object.to_string()).await;
    }
}

/// Logs in to a switch by a key, and fails to with a wrong password and an invalid key.
async fn log_in_with_each_secret(system: &System, canaries: &Canaries) {
    let info = system.sandbox.switch("spine1").expect("the switch").clone();
    let pem = canaries.ssh.to_openssh(LineEnding::LF).expect("PEM");
    let broken = format!(
        "-----BEGIN OPENSSH PRIVATE KEY-----\n{}\n-----END OPENSSH PRIVATE KEY-----\n",
        STANDARD.encode(&canaries.broken_key)
    );
    let user = &info.username;
    let log_in_with_each_secret = [
        ("by-key", json!({ "username": user, "ssh-privatekey": *pem }), Phase::Ready),
        ("wrong", json!({ "username": user, "password": canaries.wrong_password }), Phase::Error),
        ("broken", json!({ "username": user, "ssh-privatekey": broken }), Phase::Error),
        ("raw", json!({ "username": user, "ssh-privatekey": canaries.broken_key }), Phase::Error),
    ];
    for (name, data, phase) in log_in_with_each_secret {
        system.apply(&secret("eno-devices", name, &data)).await;
        let spec = format!(
            "Address: '{}', HostKey: '{}', Credentials: {{SecretName: {name}}}",
            info.netconf, info.host_key
        );
        let device = object("FabricDevice", &format!("name: record-{name}"), &spec);
        system.apply(&device).await;
        system.becomes::<FabricDevice>(&format!("record-{name}"), phase).await;
        let forget = json!({"metadata": {"annotations": {(FORGET_ANNOTATION): "true"}}});
        system.patch("FabricDevice", &format!("record-{name}"), forget).await;
        system.delete(&device).await;
    }
}

/// Puts an object in error for several reasons, so that Events are counted up.
async fn repeat_errors(system: &System) {
    let service = |subnet: &str| service("record-errs", 501, &format!("Subnets: [{subnet}]"));
    for subnet in ["nosuch", "record", "nobody"] {
        system.apply(&service(subnet)).await;
        let phase = if subnet == "record" { Phase::Ready } else { Phase::Error };
        let message_parts: &[&str] = if subnet == "record" { &[] } else { &[subnet] };
        system.becomes::<L2Service>("record-errs", (phase, message_parts)).await;
    }
    system.delete(&service("nobody")).await;
}

/// Creates a user's L2BridgeDomain beside those of the engine.
async fn create_bridge_domain(system: &System) {
    let made = system.all::<L2BridgeDomain>();
    system.until(made, watcher::Config::default(), "one that the engine made", |all| !all.is_empty()).await;
    let domain = object("L2BridgeDomain", "name: record-by-hand", "Vlan: 502, ConnectionPoints: []");
    system.apply_until_ready::<L2BridgeDomain>(&domain, "record-by-hand").await;
    system.delete(&domain).await;
    system.becomes::<NodePool>("record", Phase::Ready).await;
    system.becomes::<Route>("record", Phase::Ready).await;
    system.becomes::<Subnet>("record", Phase::Ready).await;
}

/// Records what the user-facing commands print.
async fn record_commands(system: &System, network: &str, record: &mut RunRecord) {
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
            record.texts.push(RecordedText { source: format!("eno {}", command.join(" ")), bytes });
        }
    }
}

/// Records each file of a dump.
async fn record_dump(system: &System, record: &mut RunRecord) {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("dump.tar.gz");
    let output = system.eno(&["sysdump", "-o", file.to_str().expect("UTF-8")], "").await;
    assert!(output.status.success(), "{output:?}");
    let mut archive = tar::Archive::new(MultiGzDecoder::new(std::fs::File::open(&file).expect("the dump")));
    for entry in archive.entries().expect("an archive") {
        let mut entry = entry.expect("an entry");
        let source = format!("dump/{}", entry.path().expect("a path").display());
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).expect("a file");
        record.texts.push(RecordedText { source, bytes });
    }
}

/// Records all objects except Secrets, all metrics, and the processes' arguments and environments.
async fn record_objects_and_metrics(system: &System, when: &str, record: &mut RunRecord) {
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
        record.texts.push(RecordedText { source: format!("{} {when}", resource.plural), bytes });
    }
    for process in system.sandbox.info().processes {
        if let Some(url) = process.metrics {
            let text = system.http.get(&url).send().await.expect("metrics").text().await.expect("text");
            record.texts.push(RecordedText {
                source: format!("the metrics of {} {when}", process.name),
                bytes: text.into(),
            });
        }
        // Other processes of the same user can read these.
        if let Some(pid) = process.pid {
            for file in ["cmdline", "environ"] {
                let bytes = std::fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
                record.texts.push(RecordedText { source: format!("the {file} of {}", process.name), bytes });
            }
        }
    }
}

/// Records logs, NATS's files, and the audit.
fn record_files(system: &System, record: &mut RunRecord) {
    let dir = system.sandbox.dir();
    read_files(&dir.join("logs"), &mut record.texts);
    read_files(&dir.join("nats/jetstream"), &mut record.texts);
    let audit = std::fs::read_to_string(system.sandbox.control_plane().audit_log()).expect("an audit");
    record.requests = audit.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
}

fn read_files(folder: &Path, texts: &mut Vec<RecordedText>) {
    for entry in
        std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())).flatten()
    {
        let path = entry.path();
        if path.is_dir() {
            read_files(&path, texts);
        } else if let Ok(bytes) = std::fs::read(&path) {
            texts.push(RecordedText { source: path.display().to_string(), bytes });
        }
    }
}
