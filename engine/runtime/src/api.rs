//! The kinds on the API server: their resources, and writes of objects.

use std::sync::LazyLock;

use eno_core::{Key, Kind};
use eno_nbi_crds as crds;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionNames, CustomResourceDefinitionSpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{ApiResource, GetParams, GroupVersionKind, Patch, PatchParams, Request, ValidationDirective};
use kube::{Client, Resource};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tracing::debug;

/// The field manager of everything that the engine writes to Kubernetes.
pub const MANAGER: &str = "eno-engine";

/// What the CustomResourceDefinition of a kind says.
struct Definition {
    resource: ApiResource,
    names: CustomResourceDefinitionNames,
    is_namespaced: bool,
    finalizer: String,
}

/// The definition of each kind, in the order of [`Kind::ALL`].
static DEFINITIONS: LazyLock<Vec<Definition>> = LazyLock::new(|| {
    let crds = crds::crds();
    let of = |kind: Kind| crds.iter().find(|crd| crd.spec.names.kind == kind.as_str()).cloned();
    Kind::ALL.into_iter().map(|kind| Definition::new(of(kind).unwrap_or_default())).collect()
});

impl Definition {
    fn new(crd: CustomResourceDefinition) -> Self {
        let finalizer = crds::finalizer(&crd);
        let CustomResourceDefinitionSpec { group, names, scope, versions, .. } = crd.spec;
        let version = versions.into_iter().next().unwrap_or_default().name;
        let kind = GroupVersionKind { group, version, kind: names.kind.clone() };
        let resource = ApiResource::from_gvk_with_plural(&kind, &names.plural);
        Self { resource, is_namespaced: scope == "Namespaced", finalizer, names }
    }
}

fn definition(kind: Kind) -> &'static Definition {
    &DEFINITIONS[kind as usize]
}

/// The resource of a kind.
pub fn resource(kind: Kind) -> ApiResource {
    definition(kind).resource.clone()
}

/// True for namespaced kinds.
pub fn is_namespaced(kind: Kind) -> bool {
    definition(kind).is_namespaced
}

/// The kind of this name: singular, plural or short name, in any case, as kubectl takes it.
pub fn kind(text: &str) -> Option<Kind> {
    let text = text.to_ascii_lowercase();
    Kind::ALL.into_iter().find(|kind| {
        let CustomResourceDefinitionNames { plural, short_names, .. } = &definition(*kind).names;
        kind.as_str().to_ascii_lowercase() == text
            || *plural == text
            || short_names.as_ref().is_some_and(|names| names.contains(&text))
    })
}

/// `apiVersion` of a kind.
pub fn api_version(kind: Kind) -> &'static str {
    &definition(kind).resource.api_version
}

/// The operator's finalizer on objects of a kind.
pub fn finalizer(kind: Kind) -> &'static str {
    &definition(kind).finalizer
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

/// Patches an object or, with `subresource`, a part of it, as this field manager.
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The fields that hold the name of an object of another API.
    const OTHERS: [&str; 6] = [
        "CallbackSecret.Name",
        "Credentials.SecretName",
        "Password.DeviceSecretName",
        "Password.SpeakerSecretName",
        "Ports[].Node",
        "sampleDeployment.name",
    ];

    /// The fields below a schema that hold the name of an object.
    fn names(schema: &Value, path: &str, found: &mut BTreeSet<String>) {
        if schema["x-kubernetes-validations"].to_string().contains("the name of an object") {
            found.insert(path.trim_start_matches('.').trim_end_matches("[]").to_owned());
        }
        for (name, field) in schema["properties"].as_object().into_iter().flatten() {
            names(field, &format!("{path}.{name}"), found);
        }
        if let Some(items) = schema.get("items") {
            names(items, &format!("{path}[]"), found);
        }
    }

    #[test]
    fn every_kind_has_its_definition_and_names_its_references() {
        let crds = crds::crds();
        for kind in Kind::ALL {
            let crd = crds.iter().find(|crd| crd.spec.names.kind == kind.as_str());
            let crd = json!(crd.unwrap_or_else(|| panic!("crds() of nbi-crds lacks {kind}")));
            let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
            let mut found = BTreeSet::new();
            names(schema, "", &mut found);
            found.retain(|field| !OTHERS.contains(&field.as_str()));
            let listed = kind.reference_fields().into_iter().map(|(field, _)| field.to_owned());
            assert_eq!(
                listed.collect::<BTreeSet<_>>(),
                found,
                "kinds/ of the core, and the schema of {kind}"
            );
        }
        assert_eq!(kind("L2SA"), Some(Kind::L2ServiceAttachment));
        assert_eq!(finalizer(Kind::PodConfig), "podconfig.finalizers.opdev.io");
    }
}
