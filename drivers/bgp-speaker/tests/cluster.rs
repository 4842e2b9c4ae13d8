//! A control plane with the driver's role and policy, and helpers for its objects and the driver.

use std::path::Path;
use std::pin::Pin;
use std::time::Duration;

use eno_control_plane::parts::Parts;
use eno_control_plane::{ControlPlane, ControlPlaneOptions};
use eno_driver_bgp_speaker::SpeakerDriver;
use eno_driver_bgp_speaker::metallb::Kind;
use eno_sbi::{Driver, Reconciled, Work};
use eno_schemas::{Bfd, Command, Desired, Failure, Outcome, Speaker, SpeakerDesired, SpeakerSessions};
use futures::{Stream, StreamExt as _};
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::{ApiResource, DynamicObject, TypeMeta};
use kube::{Api, Client, Config};
use serde_json::{Value, json};

/// Time limit of any wait.
pub const TIMEOUT: Duration = Duration::from_secs(30);
/// The user that the driver's role is bound to.
const DRIVER: &str = "system:serviceaccount:eno-system:eno-driver-bgp-speaker";
/// The namespace of MetalLB.
pub const NAMESPACE: &str = "metallb-system";

pub struct Cluster {
    control_plane: ControlPlane,
    pub admin: Client,
    _dir: tempfile::TempDir,
}

/// The driver's stream of groups that changed.
pub struct Changes(Pin<Box<dyn Stream<Item = String> + Send>>);

impl Cluster {
    /// Without the definitions of MetalLB. The groups that own objects do not exist, so the garbage collector is disabled.
    pub async fn start() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let parts = Parts::from_env().expect("the parts of a control plane");
        let mut options = ControlPlaneOptions::new(dir.path(), parts);
        options.disabled_controllers.push("garbage-collector-controller".to_owned());
        let control_plane = ControlPlane::start(options).await.expect("a control plane");
        let admin = control_plane.client().await.expect("the admin's client");
        let cluster = Self { control_plane, admin, _dir: dir };
        for file in ["namespace.yaml", "rbac/driver-bgp-speaker.yaml", "policy/driver-bgp-speaker.yaml"] {
            cluster.install(&Path::new("../../deploy").join(file)).await;
        }
        let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE } });
        cluster.apply(&namespace).await;
        cluster
    }

    pub async fn stop(self) {
        self.control_plane.stop().await;
    }

    /// Applies the definitions of MetalLB; `format`: that of AS numbers.
    pub async fn install_metallb(&self, format: &str) {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/metallb/crds.yaml");
        let text = std::fs::read_to_string(path).expect("the definitions");
        for document in text.split("\n---\n").filter(|document| !document.trim().is_empty()) {
            let document = document.replace("format: int64", &format!("format: {format}"));
            let definition: Value = serde_saphyr::from_str(&document).expect("a definition");
            self.apply(&definition).await;
        }
        for resource in Kind::ALL.map(Kind::resource) {
            let api: Api<DynamicObject> = Api::all_with(self.admin.clone(), &resource);
            let (api, one) = (&api, &ListParams::default().limit(1));
            eventually(&resource.plural, || async move { api.list_metadata(one).await.is_ok() }).await;
        }
    }

    async fn install(&self, file: &Path) {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
        let text =
            std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        for document in text.split("\n---\n") {
            self.apply(&serde_saphyr::from_str(document).expect("an object")).await;
        }
    }

    /// Applies an object as the administrator.
    pub async fn apply(&self, object: &Value) {
        let object: DynamicObject = serde_json::from_value(object.clone()).expect("an object");
        let types: &TypeMeta = object.types.as_ref().expect("kind and apiVersion");
        let gvk = types.try_into().expect("group, version and kind");
        let (resource, _) = kube::discovery::oneshot::pinned_kind(&self.admin, &gvk).await.expect("its kind");
        let api: Api<DynamicObject> = match &object.metadata.namespace {
            Some(namespace) => Api::namespaced_with(self.admin.clone(), namespace, &resource),
            None => Api::all_with(self.admin.clone(), &resource),
        };
        let name = object.metadata.name.clone().expect("a name");
        let parameters = PatchParams::apply("by-hand").force();
        api.patch(&name, &parameters, &Patch::Apply(&object)).await.expect("applying it");
    }

    /// The objects of a kind in the namespace of MetalLB, as the administrator sees them.
    pub fn objects(&self, kind: Kind) -> Api<DynamicObject> {
        self.of(&kind.resource())
    }

    pub fn of(&self, resource: &ApiResource) -> Api<DynamicObject> {
        Api::namespaced_with(self.admin.clone(), NAMESPACE, resource)
    }

    /// The names of the objects of a kind.
    pub async fn names(&self, kind: Kind) -> Vec<String> {
        let all = self.objects(kind).list(&ListParams::default()).await.expect("a list");
        all.items.into_iter().filter_map(|object| object.metadata.name).collect()
    }

    /// Creates an object that is none of ours.
    pub async fn create_foreign(&self, kind: Kind, name: &str, spec: Value) {
        let resource = kind.resource();
        let object = json!({
            "apiVersion": resource.api_version, "kind": resource.kind, "metadata": { "name": name }, "spec": spec,
        });
        let object = serde_json::from_value(object).expect("an object");
        self.objects(kind).create(&PostParams::default(), &object).await.expect("it is created");
    }

    /// The configurations of clients of the administrator and of the driver.
    pub async fn configurations(&self) -> (Config, Config) {
        let driver = self.control_plane.kubeconfig_for(DRIVER, None).expect("the driver's kubeconfig");
        (configuration(self.control_plane.kubeconfig()).await, configuration(&driver).await)
    }

    /// A client with the driver's rights only.
    pub async fn driver_client(&self) -> Client {
        self.control_plane.client_for(DRIVER, None).await.expect("the driver's client")
    }

    /// The driver with its own rights only, and its stream of changed groups.
    pub async fn driver(&self) -> (SpeakerDriver, Changes) {
        let driver = SpeakerDriver::new(self.driver_client().await, NAMESPACE.to_owned());
        let changes = Changes(Box::pin(driver.changed()));
        (driver, changes)
    }
}

impl Changes {
    /// Waits until this group is notified.
    pub async fn of(&mut self, group: &str) {
        let notified = async { while self.0.next().await.expect("the stream goes on") != group {} };
        tokio::time::timeout(TIMEOUT, notified)
            .await
            .unwrap_or_else(|_| panic!("no change of {group} was notified"));
    }
}

async fn configuration(kubeconfig: &Path) -> Config {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).expect("a kubeconfig");
    Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.expect("a configuration")
}

/// Polls until a condition holds.
pub async fn eventually<F: Future<Output = bool>>(what: &str, mut holds: impl FnMut() -> F) {
    let wait = async {
        let mut tick = tokio::time::interval(Duration::from_millis(20));
        while !holds().await {
            tick.tick().await;
        }
    };
    tokio::time::timeout(TIMEOUT, wait).await.unwrap_or_else(|_| panic!("not in time: {what}"));
}

/// Sessions with these gateways.
pub fn sessions(gateways: &[&str]) -> SpeakerSessions {
    let peer = |gateway: &&str| {
        (format!("eno-{}", gateway.replace(['.', ':'], "-")), gateway.parse().expect("an address"))
    };
    SpeakerSessions {
        speaker: Speaker::MetalLB,
        hostnames: ["node1", "node2"].map(String::from).into(),
        local_as: 4_200_000_000,
        peer_as: 65000,
        peers: gateways.iter().map(peer).collect(),
        hold_time: 90,
        keepalive_time: 30,
        bfd: Some(Bfd { receive_interval: 300, transmit_interval: 400, detect_multiplier: 3 }),
        graceful_restart: false,
        password: None,
    }
}

pub async fn reconcile(driver: &SpeakerDriver, name: &str, sessions: Option<SpeakerSessions>) -> Reconciled {
    let desired =
        Desired::Speaker(SpeakerDesired { name: name.to_owned(), uid: format!("uid-of-{name}"), sessions });
    driver.reconcile(Work::alone(Command::new("bgp-speaker", name, (1, 1), desired))).await
}

/// The failure of a failed reconcile.
#[track_caller]
pub fn failure(reconciled: Reconciled) -> Failure {
    match reconciled.outcome {
        Outcome::Failed(failure) => failure,
        other => panic!("not a failure: {other:?}; {:?}", reconciled.rejected),
    }
}

/// The reason of a rejection.
#[track_caller]
pub fn rejection(reconciled: &Reconciled) -> String {
    let [rejection] = reconciled.rejected.as_slice() else { panic!("{reconciled:?}") };
    rejection.reason.to_string()
}
