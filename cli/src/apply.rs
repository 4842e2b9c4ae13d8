//! Server-side apply of any object, many at a time.

use futures::{StreamExt, TryStreamExt, stream};
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams, TypeMeta};
use kube::core::GroupVersionKind;
use kube::{Api, Client};
use serde::Serialize;

/// Maximum concurrent requests; more are no faster on an API server with few cores.
const CONCURRENCY: usize = 16;

/// An object was not applied.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// The object lacks apiVersion, kind or name, or can't be serialised. A retry does not help.
    #[error("an object to be applied lacks its type or name")]
    Unnamed,
    /// The API server refused it or was unreachable; see [`kube::Error`].
    #[error("applying {kind} {name}: {}", reason(cause))]
    Refused {
        /// Its kind.
        kind: String,
        /// Its name, with the namespace if it has one.
        name: String,
        /// Why.
        cause: Box<kube::Error>,
    },
}

/// What went wrong with a request, for people: the API server's own message, or that of the client.
pub fn reason(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if !status.message.is_empty() => status.message.clone(),
        other => other.to_string(),
    }
}

/// Converts a typed object to a dynamic one.
pub fn dynamic<K>(object: &K) -> Result<DynamicObject, ApplyError>
where
    K: Serialize + kube::Resource<DynamicType = ()>,
{
    let value = serde_json::to_value(object).map_err(|_| ApplyError::Unnamed)?;
    let mut object: DynamicObject = serde_json::from_value(value).map_err(|_| ApplyError::Unnamed)?;
    object.types = Some(TypeMeta::resource::<K>());
    Ok(object)
}

/// The resource of NetworkAttachmentDefinitions.
pub fn nad_resource() -> ApiResource {
    let gvk = GroupVersionKind::gvk("k8s.cni.cncf.io", "v1", "NetworkAttachmentDefinition");
    ApiResource::from_gvk_with_plural(&gvk, "network-attachment-definitions")
}

/// The type of an object. The plural is derived from the kind, which is correct for all kinds applied here.
pub fn resource_of(object: &DynamicObject) -> Result<ApiResource, ApplyError> {
    let types = object.types.as_ref().ok_or(ApplyError::Unnamed)?;
    let gvk = GroupVersionKind::try_from(types).map_err(|_| ApplyError::Unnamed)?;
    Ok(ApiResource::from_gvk(&gvk))
}

/// The API of an object's kind, in its namespace if it has one.
pub fn api_of(client: &Client, object: &DynamicObject) -> Result<Api<DynamicObject>, ApplyError> {
    let resource = resource_of(object)?;
    Ok(match &object.metadata.namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    })
}

/// `[namespace/]name` of an object.
pub fn name_of(object: &DynamicObject) -> String {
    let name = object.metadata.name.as_deref().unwrap_or_default();
    match &object.metadata.namespace {
        Some(namespace) => format!("{namespace}/{name}"),
        None => name.to_owned(),
    }
}

/// Applies one object and returns it as stored.
pub async fn apply(
    client: &Client,
    manager: &str,
    object: &DynamicObject,
) -> Result<DynamicObject, ApplyError> {
    let api = api_of(client, object)?;
    let name = object.metadata.name.as_deref().ok_or(ApplyError::Unnamed)?;
    let params = PatchParams::apply(manager).force();
    api.patch(name, &params, &Patch::Apply(object)).await.map_err(|cause| ApplyError::Refused {
        kind: object.types.as_ref().map(|types| types.kind.clone()).unwrap_or_default(),
        name: name_of(object),
        cause: Box::new(cause),
    })
}

/// Applies objects concurrently, and returns the stored objects in the given order.
pub async fn apply_all(
    client: &Client,
    manager: &str,
    objects: &[DynamicObject],
) -> Result<Vec<DynamicObject>, ApplyError> {
    stream::iter(objects)
        .map(|object| apply(client, manager, object))
        .buffered(CONCURRENCY)
        .try_collect()
        .await
}
