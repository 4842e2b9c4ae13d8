//! What `deploy/` has to say of each kind.

use std::fs;
use std::path::Path;

use k8s_openapi::api::rbac::v1::ClusterRole;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde::de::DeserializeOwned;
use serde_json::{Value, from_value};

use eno_nbi_crds::finalizer;

use crate::types::applied_kinds;

const READ: &[&str] = &["get", "list", "watch"];
const WRITE: &[&str] = &["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"];

/// The kinds that are not an NFVO's: the infrastructure below networks, and what runs beside them in pods.
const NOT_OF_NFVOS: [&str; 8] = [
    "Bridge",
    "ConnectionPoint",
    "FabricDevice",
    "L2BridgeDomain",
    "NodePool",
    "PhysicalNetwork",
    "PodConfig",
    "PodNetworkConfig",
];

/// The documents of this kind in a file of `deploy/`.
fn documents<T: DeserializeOwned>(file: &str, kind: &str) -> Vec<T> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy").join(file);
    let text = fs::read_to_string(path).expect("a file");
    let all: Vec<Value> = serde_saphyr::from_multiple(&text).expect("YAML");
    all.into_iter().filter(|one| one["kind"] == kind).map(|one| from_value(one).expect("an object")).collect()
}

/// True when a role grants all these verbs.
fn grants(role: &ClusterRole, group: &str, resource: &str, verbs: &[&str]) -> bool {
    let has = |list: &Option<Vec<String>>, item: &str| list.iter().flatten().any(|one| one == item);
    let rules = role.rules.iter().flatten();
    let rules: Vec<_> =
        rules.filter(|rule| has(&rule.api_groups, group) && has(&rule.resources, resource)).collect();
    verbs.iter().all(|verb| rules.iter().any(|rule| rule.verbs.iter().any(|one| one == verb)))
}

/// True when a policy of this name matches the resource; its text contains `word`.
fn is_matched(file: &str, kind: &str, word: &str, crd: &CustomResourceDefinition) -> bool {
    documents::<Value>(file, kind).into_iter().any(|policy| {
        let rules = policy["spec"]["matchConstraints"]["resourceRules"].as_array().into_iter().flatten();
        let has =
            |list: &Value, item: &str| list.as_array().is_some_and(|all| all.iter().any(|one| one == item));
        let mut rules = rules.filter(|rule| {
            has(&rule["apiGroups"], &crd.spec.group) && has(&rule["resources"], &crd.spec.names.plural)
        });
        rules.next().is_some() && policy.to_string().contains(word)
    })
}

#[test]
fn roles_and_policies_know_every_kind() {
    let roles: Vec<ClusterRole> =
        ["rbac/engine.yaml", "rbac/users.yaml", "rbac/pods.yaml", "rbac-install/installer.yaml"]
            .into_iter()
            .flat_map(|file| documents(file, "ClusterRole"))
            .collect();
    let named = |name: &str| {
        let mut all = roles.iter().filter(|role| role.metadata.name.as_deref() == Some(name));
        all.next().unwrap_or_else(|| panic!("no ClusterRole {name}"))
    };
    let mut missing = Vec::new();
    for crd in applied_kinds() {
        let (group, plural, kind) = (&crd.spec.group, &crd.spec.names.plural, &crd.spec.names.kind);
        let status = format!("{plural}/status");
        let nfvo: &[&str] = if NOT_OF_NFVOS.contains(&kind.as_str()) { &[] } else { WRITE };
        for (role, resource, verbs) in [
            ("eno-engine", plural, &["get", "list", "watch", "patch"][..]),
            ("eno-engine", &status, &["patch"]),
            ("eno-admin", plural, WRITE),
            ("eno-viewer", plural, READ),
            ("eno-nfvo", plural, nfvo),
            ("eno-installer", plural, &["get", "list", "watch", "patch", "delete"]),
        ] {
            if !grants(named(role), group, resource, verbs) {
                missing.push(format!("{role}: {verbs:?} on {resource} of {group}"));
            }
        }
        let is_of_tenants = |role: &ClusterRole| {
            let labels = role.metadata.labels.iter().flatten();
            labels.into_iter().any(|(label, _)| label == "rbac.authorization.k8s.io/aggregate-to-view")
        };
        let mut of_tenants = roles.iter().filter(|role| is_of_tenants(role));
        if crd.spec.scope == "Namespaced" && !of_tenants.any(|role| grants(role, group, plural, READ)) {
            missing.push(format!("a role that the role view includes: {plural} of {group}"));
        }
        if !is_matched("policy/engine.yaml", "ValidatingAdmissionPolicy", "eno-engine-specs", &crd) {
            missing.push(format!("policy eno-engine-specs: {plural} of {group}"));
        }
        let finalizer = finalizer(&crd);
        if !is_matched("admission/finalizer.yaml", "MutatingAdmissionPolicy", &finalizer, &crd) {
            missing.push(format!("admission/finalizer.yaml: {finalizer} on {plural} of {group}"));
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}
