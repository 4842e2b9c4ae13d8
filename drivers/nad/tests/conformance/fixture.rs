//! A namespace with one target, which exists or not, and a foreign NAD.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use eno_conformance::DriverFixture;
use eno_control_plane::parts::Parts;
use eno_control_plane::{ControlPlane, ControlPlaneOptions};
use eno_driver_nad::{NadDriver, WatchState};
use eno_sbi::{Driver, Identity, Reconciled, Work};
use eno_schemas::{Cni, Desired, Item, NadDesired, NadOwner, NadVlans, VlanAttachment, VlanId};
use futures::{Stream, StreamExt, stream};
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::client::ClientBuilder;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::{DynamicObject, GroupVersionKind};
use kube::{Api, Client, Config, ResourceExt};
use serde_json::json;
use tokio::sync::{OnceCell, mpsc, oneshot, watch};
use tower::util::MapRequestLayer;

use crate::common::{self, DRIVER, NAD_CRD, TIMEOUT, eventually, foreign_nad};
use crate::conformance::proxy::Proxy;

const NAME: &str = "net";
const FOREIGN: &str = "of-others";
const REFUSED: &str = "refused for a test";

/// The kubeconfigs of a control plane that all tests of this process share.
struct Shared {
    admin: PathBuf,
    driver: PathBuf,
}

impl Shared {
    /// The control plane runs on a thread of its own, since each test's runtime ends with the test. It ends
    /// with the process. The garbage collector is disabled, since the owners of NADs do not exist as objects.
    async fn get() -> &'static Self {
        static SHARED: OnceCell<Shared> = OnceCell::const_new();
        SHARED
            .get_or_init(|| async {
                let (ready, is_ready) = oneshot::channel();
                std::thread::spawn(move || {
                    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
                    runtime.block_on(async {
                        let (control_plane, shared) = Self::start().await;
                        let _ = ready.send(shared);
                        let exited = control_plane.exited().await;
                        panic!("{exited}");
                    });
                });
                is_ready.await.expect("a control plane")
            })
            .await
    }

    async fn start() -> (ControlPlane, Self) {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("nad-conformance");
        if dir.exists() {
            std::fs::remove_dir_all(&dir).expect("removing what an earlier run left");
        }
        let mut options =
            ControlPlaneOptions::new(dir, Parts::from_env().expect("the parts of a control plane"));
        options.disabled_controllers.push("garbage-collector-controller".into());
        let control_plane = ControlPlane::start(options).await.expect("a control plane");
        let admin = control_plane.client().await.expect("the admin's client");
        common::install_basics(&admin).await;
        common::install(&admin, NAD_CRD).await;
        let driver = control_plane.kubeconfig_for(DRIVER, None).expect("the driver's kubeconfig");
        let shared = Self { admin: control_plane.kubeconfig().to_owned(), driver };
        (control_plane, shared)
    }
}

async fn config(kubeconfig: &Path) -> Config {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).expect("a kubeconfig");
    Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.expect("a configuration")
}

/// The fixture of the conformance suite.
pub struct NadFixture {
    /// The namespace of this test.
    namespace: String,
    /// A client with all permissions.
    admin: Client,
    /// The driver's configuration, which leads through `proxy`.
    driver_config: Config,
    /// The proxy to the API server.
    proxy: Proxy,
    /// Count of the driver's write requests.
    writes: Arc<AtomicU64>,
    /// Notified of each change that the driver reports.
    notified: watch::Sender<()>,
    /// The watch of the newest driver.
    watch: Mutex<Option<watch::Receiver<WatchState>>>,
}

impl NadFixture {
    pub async fn new() -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let shared = Shared::get().await;
        let admin = Client::try_from(config(&shared.admin).await).expect("the admin's client");
        let mut driver_config = config(&shared.driver).await;
        let port = driver_config.cluster_url.port_u16().expect("the API server's port");
        let proxy = Proxy::to(([127, 0, 0, 1], port).into()).await;
        driver_config.cluster_url = format!("https://{}", proxy.address).parse().expect("an address");
        let namespace = format!("fixture-{}", COUNT.fetch_add(1, Ordering::Relaxed));
        common::namespace(&admin, &namespace).await;
        let foreign = foreign_nad(FOREIGN, &json!({}), &json!({ "config": "{}" }));
        common::nads(&admin, &namespace).create(&common::by_hand(), &foreign).await.expect("a foreign NAD");
        Self {
            namespace,
            admin,
            driver_config,
            proxy,
            writes: Arc::default(),
            notified: watch::Sender::new(()),
            watch: Mutex::new(None),
        }
    }

    fn nads(&self) -> Api<DynamicObject> {
        common::nads(&self.admin, &self.namespace)
    }

    fn policies(&self, kind: &str) -> Api<DynamicObject> {
        let gvk = GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", kind);
        Api::all_with(self.admin.clone(), &kube::core::ApiResource::from_gvk(&gvk))
    }

    /// Whether the API server refuses writes, compared to `expected`.
    async fn refuses(&self, expected: bool) -> bool {
        let trial = PostParams { dry_run: true, ..common::by_hand() };
        match self.nads().create(&trial, &foreign_nad("trial", &json!({}), &json!({}))).await {
            Ok(_) => !expected,
            Err(error) => {
                assert!(error.to_string().contains(REFUSED), "{error}");
                expected
            }
        }
    }
}

impl DriverFixture for NadFixture {
    type Driver = RecordingDriver;

    fn item_count(&self) -> usize {
        1
    }

    fn driver(&self) -> RecordingDriver {
        let writes = Arc::clone(&self.writes);
        let count = MapRequestLayer::new(move |request: http::Request<_>| {
            if request.method() != http::Method::GET {
                writes.fetch_add(1, Ordering::Relaxed);
            }
            request
        });
        let client =
            ClientBuilder::try_from(self.driver_config.clone()).expect("a client").with_layer(&count).build();
        let driver = NadDriver::new(client);
        *self.watch.lock().expect("no panic") = Some(driver.watch());
        let (sender, changes) = mpsc::unbounded_channel();
        let mut changed = Box::pin(driver.changed());
        let notified = self.notified.clone();
        tokio::spawn(async move {
            while let Some(target) = changed.next().await {
                notified.send_replace(());
                // The receiver is missing without a host.
                let _ = sender.send(target);
            }
        });
        RecordingDriver { driver, changes: Mutex::new(Some(changes)) }
    }

    fn target(&self) -> String {
        format!("{}/{NAME}", self.namespace)
    }

    fn desired(&self, items: &BTreeSet<usize>) -> Desired {
        let attachment = VlanAttachment {
            cni: Cni::Ovs { bridge: "br-data".into(), socket_file: None, pool: None },
            vlans: NadVlans::Access(VlanId::MAX),
            mtu: None,
            subnets: Vec::new(),
            pool: None,
        };
        Desired::Nad(NadDesired {
            namespace: self.namespace.clone(),
            name: NAME.into(),
            owner: NadOwner { uid: "attachment-1".into() },
            attachment: items.contains(&0).then_some(attachment),
        })
    }

    async fn items(&self) -> BTreeSet<usize> {
        self.nads().get_opt(NAME).await.expect("getting the NAD").map(|_| 0).into_iter().collect()
    }

    async fn foreign(&self) -> String {
        let all = self.nads().list(&ListParams::default()).await.expect("a list").items;
        let foreign = all.iter().filter(|nad| nad.name_any() != NAME);
        foreign
            .map(|nad| (nad.name_any(), nad.resource_version()))
            .map(|all| format!("{all:?}"))
            .collect::<Vec<_>>()
            .join(" ")
    }

    async fn writes(&self) -> u64 {
        self.writes.load(Ordering::Relaxed)
    }

    async fn set_reachable(&self, reachable: bool) {
        self.proxy.set_open(reachable);
        let watch = self.watch.lock().expect("no panic").clone();
        if let (false, Some(mut watch)) = (reachable, watch) {
            let noticed = watch.wait_for(|watch| *watch == WatchState::Broken);
            tokio::time::timeout(TIMEOUT, noticed).await.expect("the watch breaks").expect("a driver");
        }
    }

    async fn set_refused(&self, item: Option<usize>) {
        let name = &self.namespace;
        let (policies, bindings) =
            (self.policies("ValidatingAdmissionPolicy"), self.policies("ValidatingAdmissionPolicyBinding"));
        if item.is_none() {
            bindings.delete(name, &DeleteParams::default()).await.expect("deleting the binding");
            policies.delete(name, &DeleteParams::default()).await.expect("deleting the policy");
            return eventually("nothing is refused", || self.refuses(false)).await;
        }
        let policy = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
            "metadata": { "name": name },
            "spec": {
                "matchConstraints": { "resourceRules": [{
                    "apiGroups": ["k8s.cni.cncf.io"], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"],
                    "resources": ["network-attachment-definitions"],
                }] },
                "validations": [{ "expression": "false", "message": REFUSED }],
            },
        });
        let binding = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": { "name": name },
            "spec": {
                "policyName": name, "validationActions": ["Deny"],
                "matchResources": { "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": name } } },
            },
        });
        for (api, object) in [(policies, policy), (bindings, binding)] {
            let object = serde_json::from_value(object).expect("an object");
            api.create(&PostParams::default(), &object).await.expect("creating a policy");
        }
        eventually("all is refused", || self.refuses(true)).await;
    }

    /// Returns once the driver has notified the change.
    async fn edit(&self, item: usize, present: bool) {
        assert!(item == 0 && !present, "the one item of a NAD can only be taken away");
        let mut notified = self.notified.subscribe();
        self.nads().delete(NAME, &DeleteParams::default()).await.expect("deleting the NAD");
        tokio::time::timeout(TIMEOUT, notified.changed())
            .await
            .expect("the change is notified")
            .expect("a fixture");
    }

    fn names(&self, _: usize, found: &Item) -> bool {
        *found == Item::TARGET
    }
}

/// The driver, with a copy of its change notifications for the fixture.
pub struct RecordingDriver {
    driver: NadDriver,
    changes: Mutex<Option<mpsc::UnboundedReceiver<String>>>,
}

impl Driver for RecordingDriver {
    fn identity(&self) -> Identity {
        self.driver.identity()
    }

    async fn reconcile(&self, work: Work) -> Reconciled {
        self.driver.reconcile(work).await
    }

    fn changed(&self) -> impl Stream<Item = String> + Send + 'static {
        let changes = self.changes.lock().expect("no panic").take();
        stream::unfold(changes, |changes| async move {
            let mut changes = changes?;
            changes.recv().await.map(|target| (target, Some(changes)))
        })
    }

    async fn forget(&self, target: &str) {
        self.driver.forget(target).await;
    }
}
