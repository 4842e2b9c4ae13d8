//! The operator's CustomResourceDefinitions, and the images of its parts.

use std::collections::{BTreeMap, BTreeSet};

use eno_parts::{Workload, WorkloadKind};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::Value;

use super::cluster::is_established;
use super::{Check, Fact, Name, Problem, count, listed};

/// The check of the CustomResourceDefinitions: they exist, are established, and have this version's schemas.
///
/// `expected` are those of this program; `found` are those of the cluster.
pub fn judge_definitions(
    expected: &[CustomResourceDefinition],
    found: &Fact<Vec<CustomResourceDefinition>>,
) -> Check {
    let name = Name::Definitions;
    let subject = count(expected.len(), "CustomResourceDefinition");
    let found = match found {
        Ok(found) => found,
        Err(unread) => return Check::unread(name, subject, unread),
    };
    let name_of =
        |definition: &CustomResourceDefinition| definition.metadata.name.clone().unwrap_or_default();
    let by_name: BTreeMap<String, &CustomResourceDefinition> =
        found.iter().map(|definition| (name_of(definition), definition)).collect();
    let (mut missing, mut unestablished, mut other) = (Vec::new(), Vec::new(), Vec::new());
    for wanted in expected {
        let name = name_of(wanted);
        match by_name.get(&name) {
            None => missing.push(name),
            Some(found) if !is_established(found) => unestablished.push(name),
            Some(found) if !has_spec_of(found, wanted) => other.push(name),
            Some(_) => {}
        }
    }
    if !missing.is_empty() {
        let what = format!("missing: {}", listed(missing));
        return Check::failed(name, subject, Problem::new(what, "run eno install"));
    }
    if !unestablished.is_empty() {
        let what = format!("not established: {}", listed(unestablished));
        let remedy = "see the conditions: kubectl describe crd NAME";
        return Check::failed(name, subject, Problem::new(what, remedy));
    }
    if !other.is_empty() {
        let what = format!("of another version than this program: {}", listed(other));
        let remedy = "run eno install to upgrade, or use the eno of the installed version";
        return Check::warning(name, subject, Problem::new(what, remedy));
    }
    Check::ok(name, subject)
}

/// True if the server has everything that this program's definition has. The server adds defaults.
fn has_spec_of(found: &CustomResourceDefinition, wanted: &CustomResourceDefinition) -> bool {
    match (serde_json::to_value(&found.spec), serde_json::to_value(&wanted.spec)) {
        (Ok(found), Ok(wanted)) => contains(&found, &wanted),
        _ => false,
    }
}

/// True if each field of `wanted` is in `found`. The server drops fields with their default, such as a priority of 0.
fn contains(found: &Value, wanted: &Value) -> bool {
    match (found, wanted) {
        (Value::Object(found), Value::Object(wanted)) => wanted.iter().all(|(key, wanted)| {
            found.get(key).map_or_else(|| is_default(wanted), |found| contains(found, wanted))
        }),
        (Value::Array(found), Value::Array(wanted)) => {
            found.len() == wanted.len()
                && found.iter().zip(wanted).all(|(found, wanted)| contains(found, wanted))
        }
        (Value::Number(found), Value::Number(wanted)) => found.as_f64() == wanted.as_f64(),
        _ => found == wanted,
    }
}

fn is_default(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(value) => value.as_f64() == Some(0.0),
        Value::String(value) => value.is_empty(),
        Value::Array(values) => values.is_empty(),
        Value::Object(values) => values.is_empty(),
    }
}

/// The check that all parts run one image. NATS has its own.
pub fn judge_images(workloads: &[(&Workload, Fact<Option<Vec<String>>>)]) -> Check {
    let name = Name::ImageVersions;
    let mut by_image: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (workload, images) in workloads {
        if let (true, Ok(Some(images))) = (workload.kind != WorkloadKind::StatefulSet, images) {
            for image in images {
                by_image.entry(image).or_default().insert(workload.name);
            }
        }
    }
    let subject = listed(by_image.keys());
    match by_image.len() {
        0 => Check::skipped(name, subject, "no part of the operator was found"),
        1 => Check::ok(name, subject),
        _ => {
            let uses = by_image.iter().map(|(image, parts)| format!("{image} ({})", listed(parts)));
            let what = format!("the parts have different images: {}", listed(uses));
            let remedy = "run eno install with the version that all shall have";
            Check::warning(name, subject, Problem::new(what, remedy))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::Unread;
    use super::super::tests::assert_outcome;
    use super::*;

    /// This program's definitions, as an API server has them.
    fn served() -> Vec<CustomResourceDefinition> {
        let served = eno_nbi_crds::crds().into_iter().map(|definition| {
            let mut definition = serde_json::to_value(definition).expect("JSON");
            definition["status"] = json!({
                "conditions": [{"type": "Established", "status": "True"}], "storedVersions": [],
                "acceptedNames": {"kind": "", "plural": ""},
            });
            definition["spec"]["conversion"] = json!({"strategy": "None"});
            serde_json::from_value(definition).expect("a CustomResourceDefinition")
        });
        served.collect()
    }

    #[test]
    fn definitions_must_be_those_of_this_version() {
        let judge = |change: &dyn Fn(&mut Vec<CustomResourceDefinition>)| {
            let mut found = served();
            change(&mut found);
            judge_definitions(&eno_nbi_crds::crds(), &Ok(found))
        };
        assert_outcome(&judge(&|_| ()), "ok");
        let missing = judge(&|all| all.retain(|one| one.spec.names.kind != "Subnet"));
        assert_outcome(&missing, "failed: missing: subnets.eno.k8s.io");
        assert_outcome(&judge(&|all| all[0].status = None), "failed: not established");
        let older = judge(&|all| {
            let version = &mut all[0].spec.versions[0];
            version
                .schema
                .as_mut()
                .and_then(|schema| schema.open_api_v3_schema.as_mut())
                .expect("a schema")
                .required = Some(vec!["other".into()]);
        });
        assert_outcome(&older, "warning: of another version");
        let columns = judge(&|all| all[0].spec.versions[0].additional_printer_columns = None);
        assert_outcome(&columns, "warning: of another version");
    }

    #[test]
    fn parts_with_different_images_are_a_warning() {
        let images = |of_engine: &str, of_nats: &str| {
            let image = |workload: &Workload| match workload.name {
                "eno-engine" => of_engine.to_owned(),
                "eno-nats" => of_nats.to_owned(),
                _ => "eno:v1".to_owned(),
            };
            let all = eno_parts::workloads().map(|workload| (workload, Ok(Some(vec![image(workload)]))));
            judge_images(&all.collect::<Vec<_>>())
        };
        assert_outcome(&images("eno:v1", "nats:2"), "ok");
        assert_outcome(&images("eno:v2", "nats:2"), "warning: eno:v2 (eno-engine)");
        let none = eno_parts::workloads().map(|workload| (workload, Err(Unread::Failed("no answer".into()))));
        assert_outcome(&judge_images(&none.collect::<Vec<_>>()), "skipped: no part");
    }
}
