//! The kinds on the API server: their resources, and writes of objects.

use std::sync::LazyLock;

use eno_core::{Key, Kind};
use eno_nbi_crds as crds;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{ApiResource, GetParams, Patch, PatchParams, Request, ValidationDirective};
use kube::{Client, Resource};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tracing::debug;

/// The field manager of everything that the engine writes to Kubernetes.
pub const MANAGER: &str = "eno-engine";

static RESOURCES: LazyLock<Vec<ApiResource>> = LazyLock::new(|| Kind::ALL.into_iter().map(make).collect());

fn make(kind: Kind) -> ApiResource {
    match kind {
        Kind::Route => ApiResource::erase::<crds::Route>(&()),
        Kind::Subnet => ApiResource::erase::<crds::Subnet>(&()),
        Kind::NodePool => ApiResource::erase::<crds::NodePool>(&()),
        Kind::PhysicalNetwork => ApiResource::erase::<crds::PhysicalNetwork>(&()),
        Kind::FabricDevice => ApiResource::erase::<crds::FabricDevice>(&()),
        Kind::ConnectionPoint => ApiResource::erase::<crds::ConnectionPoint>(&()),
        Kind::L2Service => ApiResource::erase::<crds::L2Service>(&()),
        Kind::L2BridgeDomain => ApiResource::erase::<crds::L2BridgeDomain>(&()),
        Kind::L2ServiceAttachment => ApiResource::erase::<crds::L2ServiceAttachment>(&()),
        Kind::Bridge => ApiResource::erase::<crds::Bridge>(&()),
        Kind::PodNetworkConfig => ApiResource::erase::<crds::PodNetworkConfig>(&()),
        Kind::PodConfig => ApiResource::erase::<crds::PodConfig>(&()),
    }
}

/// The resource of a kind.
pub fn resource(kind: Kind) -> ApiResource {
    let index = Kind::ALL.iter().position(|one| *one == kind);
    index.and_then(|index| RESOURCES.get(index)).cloned().unwrap_or_else(|| make(kind))
}

/// The kind of this name.
pub fn kind(name: &str) -> Option<Kind> {
    Kind::ALL.into_iter().find(|kind| kind.as_str() == name)
}

/// `apiVersion` of a kind.
pub fn api_version(kind: Kind) -> String {
    resource(kind).api_version
}

/// The operator's finalizer on objects of a kind.
pub fn finalizer(kind: Kind) -> &'static str {
    match kind {
        Kind::PodConfig => crds::PODCONFIG_FINALIZER,
        Kind::PodNetworkConfig => crds::PODNETWORKCONFIG_FINALIZER,
        Kind::Bridge => crds::BRIDGE_FINALIZER,
        _ => crds::FINALIZER,
    }
}

/// The start of a server-side apply body. With the uid, the patch neither creates a deleted object nor changes another
/// one of the same name.
pub fn apply_body(key: &Key, uid: &str) -> Value {
    let mut metadata = json!({ "name": &*key.name, "uid": uid });
    if let (Some(namespace), Some(fields)) = (key.namespace(), metadata.as_object_mut()) {
        fields.insert("namespace".into(), namespace.into());
    }
    json!({ "apiVersion": api_version(key.kind), "kind": key.kind.as_str(), "metadata": metadata })
}

/// The resource version as a number; of two versions, the higher one is later. 0: there is none.
pub fn version(metadata: &ObjectMeta) -> u64 {
    metadata.resource_version.as_deref().and_then(|version| version.parse().ok()).unwrap_or_default()
}

/// The part of a response that is read.
#[derive(Deserialize)]
struct Answer {
    #[serde(default)]
    metadata: ObjectMeta,
}

/// Outcome of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// Written; with the new resource version of the object.
    Done(u64),
    /// The object of this uid is gone: nothing is left to do.
    Gone,
}

/// Why a write did not happen.
#[derive(Debug, thiserror::Error)]
#[error("{operation} {key}: {source}")]
pub struct WriteError {
    /// The operation, as a verb phrase.
    pub operation: &'static str,
    /// The object.
    pub key: Key,
    /// Another try may help.
    pub retryable: bool,
    /// The error of the API server.
    pub source: kube::Error,
}

impl WriteError {
    fn new(operation: &'static str, key: &Key, source: kube::Error) -> Self {
        let retryable = match &source {
            kube::Error::Api(status) => matches!(status.code, 401 | 403 | 409 | 429 | 500..),
            _ => true,
        };
        Self { operation, key: key.clone(), retryable, source }
    }

    /// HTTP status of the response.
    pub fn code(&self) -> Option<u16> {
        match &self.source {
            kube::Error::Api(status) => Some(status.code),
            _ => None,
        }
    }
}

/// Patches an object or, with `subresource`, a part of it.
pub async fn patch<P: Serialize + std::fmt::Debug>(
    client: &Client,
    operation: &'static str,
    key: &Key,
    subresource: Option<&str>,
    patch: &Patch<P>,
) -> Result<Written, WriteError> {
    patch_as(client, MANAGER, operation, key, subresource, patch).await
}

/// The same as another field manager.
pub async fn patch_as<P: Serialize + std::fmt::Debug>(
    client: &Client,
    manager: &'static str,
    operation: &'static str,
    key: &Key,
    subresource: Option<&str>,
    patch: &Patch<P>,
) -> Result<Written, WriteError> {
    let params = PatchParams {
        field_manager: Some(manager.into()),
        force: matches!(patch, Patch::Apply(_)),
        // Validation would cost the API server a second parse, and the types have no unknown fields.
        field_validation: Some(ValidationDirective::Ignore),
        ..PatchParams::default()
    };
    let path = kube::api::DynamicObject::url_path(&resource(key.kind), key.namespace());
    let request = Request::new(path);
    let request = match subresource {
        Some(subresource) => request.patch_subresource(subresource, &key.name, &params, patch),
        None => request.patch(&key.name, &params, patch),
    };
    let request =
        request.map_err(|error| WriteError::new(operation, key, kube::Error::BuildRequest(error)))?;
    match client.request::<Answer>(request).await {
        Ok(answer) => Ok(Written::Done(version(&answer.metadata))),
        Err(kube::Error::Api(status)) if status.code == 404 || is_uid_mismatch(&status) => Ok(Written::Gone),
        Err(error) => Err(WriteError::new(operation, key, error)),
    }
}

/// False when the API server says that the object does not exist. Without an answer it may exist.
pub async fn may_exist(client: &Client, key: &Key) -> bool {
    let path = kube::api::DynamicObject::url_path(&resource(key.kind), key.namespace());
    let Ok(request) = Request::new(path).get(&key.name, &GetParams::default()) else { return false };
    match client.request::<Answer>(request).await {
        Ok(_) => true,
        Err(kube::Error::Api(status)) if status.code == 404 => false,
        Err(error) => {
            debug!(object = %key, %error, "can't tell whether it is there");
            true
        }
    }
}

/// True of the API server's response to a patch whose uid is not the object's, or whose object is gone.
pub fn is_uid_mismatch(status: &kube::core::Status) -> bool {
    status.code == 409
        && (status.message.contains("uid mismatch") || status.message.contains("UID in precondition"))
}
