//! Manifests of the kinds.

use kube::Resource;
use serde::Serialize;
use serde_json::{Value, json};

use crate::{Bridge, GROUP, PodConfig, VERSION};

/// `apiVersion` of a kind.
pub fn api_version(kind: &str) -> String {
    let group = match kind {
        "PodConfig" => PodConfig::group(&()),
        "PodNetworkConfig" | "Bridge" => Bridge::group(&()),
        _ => GROUP.into(),
    };
    format!("{group}/{VERSION}")
}

/// The manifest of an object. `name` is `<namespace>/<name>` of an object in a namespace.
pub fn manifest(kind: &str, name: &str, spec: impl Serialize) -> Value {
    let metadata = match name.split_once('/') {
        Some((namespace, name)) => json!({ "name": name, "namespace": namespace }),
        None => json!({ "name": name }),
    };
    json!({ "apiVersion": api_version(kind), "kind": kind, "metadata": metadata, "spec": spec })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn api_version_is_that_of_the_crd() {
        for crd in crate::crds() {
            let version = format!("{}/{}", crd.spec.group, crd.spec.versions[0].name);
            assert_eq!(api_version(&crd.spec.names.kind), version);
        }
    }
}
