//! The manifests embedded in the program.

use kube::api::DynamicObject;

mod embedded {
    use super::Text;
    include!(concat!(env!("OUT_DIR"), "/manifests.rs"));
}

/// A manifest file.
struct Text {
    path: &'static str,
    yaml: &'static str,
}

/// An embedded manifest is not YAML of a Kubernetes object, which is a bug of the build.
#[derive(Debug, thiserror::Error)]
#[error("reading the manifest {path}: {source}")]
pub struct ManifestError {
    path: &'static str,
    source: Box<serde_saphyr::Error>,
}

/// The namespace of the agents.
pub const AGENT_NAMESPACE: &str = "eno-node";
/// The namespace of the operator.
pub const NAMESPACE: &str = "eno-system";

/// The namespace of the Secrets with which the netconf driver logs in to switches.
pub const DEVICES_NAMESPACE: &str = "eno-devices";

/// The CustomResourceDefinitions of the operator and of NetworkAttachmentDefinitions.
pub fn crds() -> Result<Vec<DynamicObject>, ManifestError> {
    read(embedded::CRDS.iter().chain(embedded::NAD_CRD))
}

/// The CustomResourceDefinition of NetworkAttachmentDefinitions, which Multus brings.
pub fn nad_crd() -> Result<Vec<DynamicObject>, ManifestError> {
    read(embedded::NAD_CRD)
}

/// The namespaces of the operator and of the switches' logins.
pub fn namespace() -> Result<Vec<DynamicObject>, ManifestError> {
    read(embedded::NAMESPACE)
}

/// Roles and service accounts.
pub fn roles() -> Result<Vec<DynamicObject>, ManifestError> {
    read(embedded::RBAC)
}

/// The admission policies on the use of networks and on the engine's changes of nodes.
pub fn policies() -> Result<Vec<DynamicObject>, ManifestError> {
    read(embedded::POLICY)
}

/// The agent's DaemonSet and its own namespace.
pub fn agent() -> Result<Vec<DynamicObject>, ManifestError> {
    read(embedded::AGENT)
}

/// The admission policy and its binding.
pub fn admission() -> Result<Vec<DynamicObject>, ManifestError> {
    read(embedded::ADMISSION)
}

/// The example that the demo applies.
pub fn demo() -> Result<Vec<DynamicObject>, ManifestError> {
    read(embedded::DEMO)
}

/// The example of pods on real nodes.
pub fn demo_pods() -> Result<Vec<DynamicObject>, ManifestError> {
    read(embedded::DEMO_PODS)
}

fn read<'a>(texts: impl IntoIterator<Item = &'a Text>) -> Result<Vec<DynamicObject>, ManifestError> {
    let mut objects = Vec::new();
    for text in texts {
        let documents: Vec<DynamicObject> = serde_saphyr::from_multiple(text.yaml)
            .map_err(|source| ManifestError { path: text.path, source: Box::new(source) })?;
        objects.extend(documents);
    }
    Ok(objects)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_embedded_manifest_has_kind_and_name() {
        let all = [crds(), namespace(), roles(), policies(), agent(), admission(), demo(), demo_pods()];
        for objects in all {
            let objects = objects.expect("valid manifests");
            assert!(!objects.is_empty());
            for object in objects {
                assert!(object.types.is_some() && object.metadata.name.is_some(), "{object:?}");
            }
        }
    }
}
