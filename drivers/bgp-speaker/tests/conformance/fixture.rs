//! A namespace with one group, which has a peer or not, and a foreign peer.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use eno_conformance::DriverFixture;
use eno_driver_bgp_speaker::SpeakerDriver;
use eno_driver_bgp_speaker::metallb::Kind;
use eno_sbi::{Driver, Identity, Reconciled, Work};
use eno_schemas::{Desired, Item, SpeakerDesired};
use futures::{Stream, StreamExt as _, stream};
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::client::ClientBuilder;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, Client, Config, ResourceExt as _};
use serde_json::{Value, json};
use tokio::sync::{OnceCell, mpsc, oneshot, watch};
use tower::util::MapRequestLayer;

use crate::cluster::{Cluster, TIMEOUT, eventually, sessions};
use crate::conformance::proxy::Proxy;

const NAME: &str = "pool";
const PEER: &str = "eno-10-9-0-254";
const REFUSED: &str = "refused for a test";

/// The configurations of clients of a control plane that all tests of this process share.
struct Shared {
    admin: Config,
    driver: Config,
}

impl Shared {
    /// The control plane runs on a thread of its own, since each test's runtime ends with the test.
    async fn get() -> &'static Self {
        static SHARED: OnceCell<Shared> = OnceCell::const_new();
        SHARED
            .get_or_init(|| async {
                let (ready, is_ready) = oneshot::channel();
                std::thread::spawn(move || {
                    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
                    runtime.block_on(async {
                        let cluster = Cluster::start().await;
                        cluster.install_metallb("int64").await;
                        let (admin, driver) = cluster.configurations().await;
                        let _ = ready.send(Self { admin, driver });
                        std::future::pending::<()>().await;
                    });
                });
                is_ready.await.expect("a control plane")
            })
            .await
    }
}

/// The fixture of the conformance suite.
pub struct SpeakerFixture {
    /// The namespace of this test, in the place of MetalLB's.
    namespace: String,
    admin: Client,
    /// The driver's configuration, which leads through `proxy`.
    driver_config: Config,
    proxy: Proxy,
    /// Count of the driver's write requests.
    writes: Arc<AtomicU64>,
    /// Notified of each change that the driver notifies.
    notified: watch::Sender<()>,
}

fn peer(name: &str) -> DynamicObject {
    let resource = Kind::BgpPeer.resource();
    let object = json!({
        "apiVersion": resource.api_version, "kind": resource.kind, "metadata": { "name": name },
        "spec": { "myASN": 1, "peerASN": 2, "peerAddress": "192.0.2.1" },
    });
    serde_json::from_value(object).expect("an object")
}

impl SpeakerFixture {
    pub async fn new() -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let shared = Shared::get().await;
        let admin = Client::try_from(shared.admin.clone()).expect("the admin's client");
        let mut driver_config = shared.driver.clone();
        let port = driver_config.cluster_url.port_u16().expect("the API server's port");
        let proxy = Proxy::to(([127, 0, 0, 1], port).into()).await;
        driver_config.cluster_url = format!("https://{}", proxy.address).parse().expect("an address");
        let namespace = format!("fixture-{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let object = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } });
        let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(admin.clone());
        let object = serde_json::from_value(object).expect("a namespace");
        namespaces.create(&PostParams::default(), &object).await.expect("it is created");
        let notified = watch::Sender::new(());
        let fixture = Self { namespace, admin, driver_config, proxy, writes: Arc::default(), notified };
        fixture.peers().create(&PostParams::default(), &peer("of-others")).await.expect("a foreign peer");
        fixture
    }

    fn peers(&self) -> Api<DynamicObject> {
        Api::namespaced_with(self.admin.clone(), &self.namespace, &Kind::BgpPeer.resource())
    }

    fn policies(&self, kind: &str) -> Api<DynamicObject> {
        let gvk = GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", kind);
        Api::all_with(self.admin.clone(), &ApiResource::from_gvk(&gvk))
    }

    /// Whether the API server refuses writes, compared to `expected`.
    async fn refuses(&self, expected: bool) -> bool {
        let trial = PostParams { dry_run: true, ..PostParams::default() };
        match self.peers().create(&trial, &peer("trial")).await {
            Ok(_) => !expected,
            Err(error) => {
                assert!(error.to_string().contains(REFUSED), "{error}");
                expected
            }
        }
    }
}

impl DriverFixture for SpeakerFixture {
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
        let driver = SpeakerDriver::new(client, self.namespace.clone());
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
        NAME.to_owned()
    }

    fn desired(&self, items: &BTreeSet<usize>) -> Desired {
        Desired::Speaker(SpeakerDesired {
            name: NAME.to_owned(),
            uid: "group-1".to_owned(),
            sessions: items.contains(&0).then(|| sessions(&["10.9.0.254"])),
        })
    }

    async fn items(&self) -> BTreeSet<usize> {
        self.peers().get_opt(PEER).await.expect("an answer").map(|_| 0).into_iter().collect()
    }

    async fn foreign(&self) -> String {
        let all = self.peers().list(&ListParams::default()).await.expect("a list").items;
        let foreign = all.iter().filter(|peer| peer.name_any() != PEER);
        let shown = foreign.map(|peer| format!("{} {:?}", peer.name_any(), peer.resource_version()));
        shown.collect::<Vec<_>>().join(" ")
    }

    async fn writes(&self) -> u64 {
        self.writes.load(Ordering::Relaxed)
    }

    async fn set_reachable(&self, reachable: bool) {
        self.proxy.set_open(reachable);
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
        let rule = json!({
            "apiGroups": ["metallb.io"], "apiVersions": ["*"], "operations": ["CREATE", "UPDATE"],
            "resources": ["bgppeers"],
        });
        let here = json!({ "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": name } } });
        let object = |kind: &str, spec: Value| -> DynamicObject {
            let object = json!({
                "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": { "name": name },
                "spec": spec,
            });
            serde_json::from_value(object).expect("an object")
        };
        let policy = json!({
            "matchConstraints": { "resourceRules": [rule] },
            "validations": [{ "expression": "false", "message": REFUSED }],
        });
        let binding = json!({ "policyName": name, "validationActions": ["Deny"], "matchResources": here });
        let made = PostParams::default();
        policies.create(&made, &object("ValidatingAdmissionPolicy", policy)).await.expect("a policy");
        bindings
            .create(&made, &object("ValidatingAdmissionPolicyBinding", binding))
            .await
            .expect("a binding");
        eventually("all is refused", || self.refuses(true)).await;
    }

    /// Returns once the driver has notified the change.
    async fn edit(&self, item: usize, present: bool) {
        assert!(item == 0 && !present, "the one item can only be taken away");
        let mut notified = self.notified.subscribe();
        self.peers().delete(PEER, &DeleteParams::default()).await.expect("deleting the peer");
        tokio::time::timeout(TIMEOUT, notified.changed()).await.expect("it is notified").expect("a fixture");
    }

    fn names(&self, _: usize, found: &Item) -> bool {
        *found == Item::TARGET
    }
}

/// The driver, with a copy of what it tells for the fixture.
pub struct RecordingDriver {
    driver: SpeakerDriver,
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
