//! A control plane with the CRDs, requests to its API server, and an engine.

use std::fmt::Debug;
use std::path::Path;
use std::time::Duration;

use eno_control_plane::parts::Parts;
use eno_control_plane::{ControlPlane, ControlPlaneOptions};
use eno_engine::EngineArgs;
use eno_nbi_crds::crds;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams,
};
use kube::runtime::wait::{Condition, await_condition, conditions};
use kube::{Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

pub const TIMEOUT: Duration = Duration::from_mins(1);

/// Starts a control plane in a directory, and installs the CRDs.
pub async fn start_cluster(dir: &Path) -> (ControlPlane, Client) {
    let options = ControlPlaneOptions::new(dir, Parts::from_env().unwrap());
    let cluster = ControlPlane::start(options).await.unwrap();
    let client = cluster.client().await.unwrap();
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    for crd in crds() {
        api.create(&PostParams::default(), &crd).await.unwrap();
        until(&api, &crd.name_any(), conditions::is_crd_established()).await;
    }
    (cluster, client)
}

/// Waits until an object meets the condition.
pub async fn until<K>(api: &Api<K>, name: &str, condition: impl Condition<K>) -> Option<K>
where
    K: Clone + Debug + Send + DeserializeOwned + Resource + 'static,
{
    match timeout(TIMEOUT, await_condition(api.clone(), name, condition)).await {
        Ok(found) => found.unwrap(),
        Err(elapsed) => panic!("{name} never gets there ({elapsed}): {:?}", api.get_opt(name).await),
    }
}

/// Deletes an object, and waits until it is gone.
pub async fn delete<K>(api: &Api<K>, name: &str)
where
    K: Clone + Debug + Send + DeserializeOwned + Resource + 'static,
{
    let uid = api.get(name).await.unwrap().uid().unwrap();
    api.delete(name, &DeleteParams::default().grace_period(0)).await.unwrap();
    until(api, name, conditions::is_deleted(&uid)).await;
}

/// Applies an object by server-side apply, as users do.
pub async fn apply(client: &Client, object: Value) {
    let object: DynamicObject = serde_json::from_value(object).unwrap();
    let types = object.types.clone().unwrap();
    let (group, version) = types.api_version.split_once('/').unwrap_or(("", &types.api_version));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &types.kind));
    let api: Api<DynamicObject> = match object.namespace() {
        Some(namespace) => Api::namespaced_with(client.clone(), &namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    api.patch(&object.name_any(), &PatchParams::apply("kubectl"), &Patch::Apply(&object)).await.unwrap();
}

/// Applies all documents of a file in `deploy/`.
pub async fn apply_file(client: &Client, file: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(file);
    for document in std::fs::read_to_string(file).unwrap().split("\n---\n") {
        apply(client, serde_saphyr::from_str(document).unwrap()).await;
    }
}

pub async fn create_namespace(client: &Client, name: &str) {
    let namespace = serde_json::from_value(json!({ "metadata": { "name": name } })).unwrap();
    Api::<Namespace>::all(client.clone()).create(&PostParams::default(), &namespace).await.unwrap();
}

/// A running engine.
pub struct Engine {
    stop: CancellationToken,
    task: JoinHandle<anyhow::Result<()>>,
}

impl Engine {
    pub fn start(args: EngineArgs) -> Self {
        let stop = CancellationToken::new();
        Self { task: tokio::spawn(eno_engine::run(args, stop.clone())), stop }
    }

    /// Stops it, and waits until it has ended.
    pub async fn end(self) {
        self.stop.cancel();
        timeout(TIMEOUT, self.task).await.expect("the engine ends").unwrap().unwrap();
    }
}
