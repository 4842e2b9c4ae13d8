//! What `deploy/` has to grant and match for each kind.

use std::collections::BTreeSet;
use std::fs;

use eno_nbi_crds::{finalizer, kinds};
use serde_json::Value;

/// The files with roles and policies.
const FILES: &str =
    "rbac/engine rbac/users rbac/pods rbac-install/installer policy/engine admission/finalizer";

fn texts(list: &Value) -> impl Iterator<Item = &str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str)
}

/// What roles grant and policies match: `NAME VERB GROUP/RESOURCE`. The name of a role that the role view includes is
/// `view`, that of a policy which adds a finalizer is the finalizer.
fn entries() -> BTreeSet<String> {
    let mut entries = BTreeSet::new();
    for file in FILES.split(' ') {
        let path = format!("{}/../{file}.yaml", env!("CARGO_MANIFEST_DIR"));
        let text = fs::read_to_string(path).expect("a file");
        for document in serde_saphyr::from_multiple::<Value>(&text).expect("YAML") {
            let is_viewed =
                document.pointer("/metadata/labels/rbac.authorization.k8s.io~1aggregate-to-view").is_some();
            let mutation = &document["spec"]["mutations"][0]["applyConfiguration"]["expression"];
            let finalizer = mutation.as_str().and_then(|expression| expression.split('"').nth(1));
            let name = finalizer.or(document["metadata"]["name"].as_str()).unwrap_or_default();
            let name = if is_viewed { "view" } else { name };
            let rules = [&document["rules"], &document["spec"]["matchConstraints"]["resourceRules"]];
            for rule in rules.into_iter().filter_map(Value::as_array).flatten() {
                for group in texts(&rule["apiGroups"]) {
                    for resource in texts(&rule["resources"]) {
                        let verbs = texts(&rule["verbs"]).chain(texts(&rule["operations"]));
                        entries.extend(verbs.map(|verb| format!("{name} {verb} {group}/{resource}")));
                    }
                }
            }
        }
    }
    entries
}

#[test]
fn roles_and_policies_know_every_kind() {
    const WRITE: &str = "get list watch create update patch delete deletecollection";
    let entries = entries();
    let mut missing = Vec::new();
    for kind in kinds().into_iter().filter(|kind| kind.is_applied) {
        let (crd, is_of_nfvos) = (kind.crd, kind.is_of_nfvos);
        let (group, plural) = (&crd.spec.group, &crd.spec.names.plural);
        let (resource, status) = (format!("{group}/{plural}"), format!("{group}/{plural}/status"));
        for (name, verbs, resource, is_wanted) in [
            ("eno-engine", "get list watch patch", &resource, true),
            ("eno-engine", "patch", &status, true),
            ("eno-admin", WRITE, &resource, true),
            ("eno-viewer", "get list watch", &resource, true),
            ("eno-nfvo", WRITE, &resource, is_of_nfvos),
            ("view", "get list watch", &resource, crd.spec.scope == "Namespaced"),
            ("eno-installer", "get list watch patch delete", &resource, true),
            ("eno-engine-specs", "UPDATE", &resource, true),
            (&finalizer(&crd), "CREATE", &resource, true),
        ] {
            let wanted =
                verbs.split(' ').filter(|_| is_wanted).map(|verb| format!("{name} {verb} {resource}"));
            missing.extend(wanted.filter(|entry| !entries.contains(entry)));
        }
    }
    assert!(missing.is_empty(), "deploy/ lacks {missing:#?}");
}
