//! Manifests of the kinds.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Serialize;
use serde_json::{Value, json};

use crate::VERSION;

static API_VERSIONS: LazyLock<BTreeMap<String, String>> = LazyLock::new(|| {
    let specs = crate::crds().into_iter().map(|crd| crd.spec);
    specs.map(|spec| (spec.names.kind, format!("{}/{VERSION}", spec.group))).collect()
});

/// `apiVersion` of a kind.
///
/// # Panics
/// No kind has this name.
pub fn api_version(kind: &str) -> &'static str {
    &API_VERSIONS[kind]
}

/// The manifest of an object. `name` is `<namespace>/<name>` of an object in a namespace.
pub fn manifest(kind: &str, name: &str, spec: impl Serialize) -> Value {
    let metadata = match name.split_once('/') {
        Some((namespace, name)) => json!({ "name": name, "namespace": namespace }),
        None => json!({ "name": name }),
    };
    json!({ "apiVersion": api_version(kind), "kind": kind, "metadata": metadata, "spec": spec })
}
