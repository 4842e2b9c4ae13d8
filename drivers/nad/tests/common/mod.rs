//! Helpers that access a cluster without the driver.

use std::path::Path;
use std::time::Duration;

use eno_driver_nad::object;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, DynamicObject, TypeMeta};
use kube::{Api, Client};
use serde_json::{Value, json};

/// Time limit of any wait.
pub const TIMEOUT: Duration = Duration::from_secs(30);
/// The user that the driver's role is bound to.
pub const DRIVER: &str = "system:serviceaccount:eno-system:eno-driver-nad";
/// Path of the NetworkAttachmentDefinition CRD below `deploy/`.
pub const NAD_CRD: &str = "nad-crd/network-attachment-definitions.yaml";

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

/// Applies the driver's prerequisites without the NetworkAttachmentDefinition CRD.
pub async fn install_basics(admin: &Client) {
    for file in ["namespace.yaml", "rbac/driver-nad.yaml", "crds/eno.k8s.io_l2serviceattachments.yaml"] {
        install(admin, file).await;
    }
}

/// Applies a file of `deploy/`; returns when the API serves it.
pub async fn install(admin: &Client, file: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(file);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    for document in text.split("\n---\n") {
        let object: DynamicObject =
            serde_saphyr::from_str(document).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        apply(admin, &object).await;
    }
}

/// Applies an object; returns when the API serves it, if it is a CustomResourceDefinition.
pub async fn apply(admin: &Client, object: &DynamicObject) {
    let types: &TypeMeta = object.types.as_ref().expect("kind and apiVersion");
    let gvk = types.try_into().expect("group, version and kind");
    let (resource, _) = kube::discovery::oneshot::pinned_kind(admin, &gvk).await.expect("its kind");
    let api: Api<DynamicObject> = match &object.metadata.namespace {
        Some(namespace) => Api::namespaced_with(admin.clone(), namespace, &resource),
        None => Api::all_with(admin.clone(), &resource),
    };
    let name = object.metadata.name.clone().expect("a name");
    api.patch(&name, &PatchParams::apply("test"), &Patch::Apply(object)).await.expect("applying it");
    if types.kind == "CustomResourceDefinition" {
        let text =
            |pointer: &str| object.data.pointer(pointer).and_then(Value::as_str).expect("a CRD").to_owned();
        let (group, version) = (text("/spec/group"), text("/spec/versions/0/name"));
        let served = ApiResource {
            api_version: format!("{group}/{version}"),
            group,
            version,
            kind: text("/spec/names/kind"),
            plural: text("/spec/names/plural"),
        };
        let all: Api<DynamicObject> = Api::all_with(admin.clone(), &served);
        let all = &all;
        let one = ListParams::default().limit(1);
        let one = &one;
        eventually(&name, || async move { all.list_metadata(one).await.is_ok() }).await;
    }
}

/// Creates a namespace.
pub async fn namespace(admin: &Client, name: &str) {
    let namespace: Namespace =
        serde_json::from_value(json!({ "metadata": { "name": name } })).expect("a namespace");
    let namespaces: Api<Namespace> = Api::all(admin.clone());
    namespaces.create(&PostParams::default(), &namespace).await.expect("creating a namespace");
}

/// The NADs of a namespace.
pub fn nads(admin: &Client, namespace: &str) -> Api<DynamicObject> {
    Api::namespaced_with(admin.clone(), namespace, &object::resource())
}

/// A foreign NAD.
pub fn foreign_nad(name: &str, metadata: &Value, spec: &Value) -> DynamicObject {
    let mut object = json!({
        "apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
        "metadata": metadata, "spec": spec,
    });
    object["metadata"]["name"] = json!(name);
    serde_json::from_value(object).expect("an object")
}

/// The post parameters of a user.
pub fn by_hand() -> PostParams {
    PostParams { field_manager: Some("by-hand".into()), ..PostParams::default() }
}
