//! The manifests embedded in the program.

use eno_parts::Part;
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

/// The memory limit of the container of the engine's or NATS' workload, in MiB; `None`: the manifests have none.
pub fn memory_limit_mib(part: &Part) -> Result<Option<u64>, ManifestError> {
    let Some(workload) = &part.workload else { return Ok(None) };
    let objects = read(embedded::ENGINE.iter().chain(embedded::NATS))?;
    let found = objects.iter().find(|object| {
        let kind = object.types.as_ref().map(|types| types.kind.as_str());
        kind == Some(workload.kind.as_str()) && object.metadata.name.as_deref() == Some(workload.name)
    });
    let limit = found.and_then(|object| {
        object.data.pointer("/spec/template/spec/containers/0/resources/limits/memory")?.as_str()
    });
    Ok(limit.and_then(|limit| limit.strip_suffix("Mi")?.parse().ok()))
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

/// The example of a gateway for those pods.
pub fn demo_gateway() -> Result<Vec<DynamicObject>, ManifestError> {
    read(embedded::DEMO_GATEWAY)
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
    fn engine_and_nats_have_a_memory_limit() {
        for part in [eno_parts::ENGINE, eno_parts::NATS] {
            let limit = memory_limit_mib(part).expect("valid manifests");
            assert!(limit.is_some_and(|limit| limit >= 64), "{}: {limit:?}", part.name);
        }
        assert_eq!(memory_limit_mib(eno_parts::CRI_RESOLVER).expect("valid manifests"), None);
    }

    #[test]
    fn every_embedded_manifest_has_kind_and_name() {
        let all = [
            crds(),
            namespace(),
            roles(),
            policies(),
            agent(),
            admission(),
            demo(),
            demo_pods(),
            demo_gateway(),
        ];
        for objects in all {
            let objects = objects.expect("valid manifests");
            assert!(!objects.is_empty());
            for object in objects {
                assert!(object.types.is_some() && object.metadata.name.is_some(), "{object:?}");
            }
        }
    }
}
