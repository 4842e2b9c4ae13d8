//! Compares values with the bounds of their CustomResourceDefinition, for tests.

use eno_nbi_crds as crds;
use serde_json::{Value, json};

/// The parts of a kind's status that are larger than the API server accepts, each with its size.
pub fn excess(kind: &str, status: &Value) -> Vec<String> {
    let crd = crds::crds().into_iter().find(|crd| crd.spec.names.kind == kind).expect("a kind");
    let crd = serde_json::to_value(crd).expect("a CRD");
    let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"];
    let mut found = Vec::new();
    compare(schema, status, "status", &mut found);
    found
}

fn compare(schema: &Value, value: &Value, path: &str, found: &mut Vec<String>) {
    let (size, bound) = match value {
        Value::Array(items) => (items.len(), "maxItems"),
        Value::Object(fields) => (fields.len(), "maxProperties"),
        Value::String(text) => (text.chars().count(), "maxLength"),
        _ => return,
    };
    if schema[bound].as_u64().is_some_and(|most| (size as u64) > most) {
        found.push(format!("{path}: {size}"));
    }
    match value {
        Value::Array(items) => items.iter().for_each(|item| compare(&schema["items"], item, path, found)),
        Value::Object(fields) => {
            for (name, value) in fields {
                let field = schema.pointer(&format!("/properties/{name}"));
                let schema = field.unwrap_or(&schema["additionalProperties"]);
                compare(schema, value, &format!("{path}.{name}"), found);
            }
        }
        _ => {}
    }
}

#[test]
fn excess_of_lists_maps_and_texts_is_found() {
    let long = "x".repeat(64);
    let fits = json!({ "phase": "ready", "dialect": "x".repeat(63), "capabilities": vec!["c"; 256] });
    assert_eq!(excess("FabricDevice", &fits), Vec::<String>::new());
    let status =
        json!({ "dialect": long, "capabilities": vec!["c"; 257], "portsBefore": [{ "name": long }] });
    assert_eq!(
        excess("FabricDevice", &status),
        ["status.capabilities: 257", "status.dialect: 64", "status.portsBefore.name: 64"]
    );
}
