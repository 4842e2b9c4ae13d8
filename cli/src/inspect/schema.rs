//! Checks an object against its CRD's schema, for users without the permission to ask the API server: types, bounds,
//! patterns, unknown fields and defaults. The CRDs are the ones embedded in this program. CEL rules, admission policies
//! and quotas are not checked. Pure.

use std::collections::HashMap;

use anyhow::anyhow;
use eno_engine::forecast::Kind;
use eno_nbi_crds::crds;
use jsonschema::Validator;
use kube::api::DynamicObject;
use serde_json::{Map, Value};

/// The schemas of all kinds.
pub(crate) struct Schemas(HashMap<String, (Value, Validator)>);

impl Schemas {
    /// Compiles the schemas of the CRDs.
    pub(crate) fn new() -> anyhow::Result<Self> {
        let mut schemas = HashMap::new();
        for crd in crds() {
            let schema = crd.spec.versions.into_iter().find_map(|version| version.schema?.open_api_v3_schema);
            let mut schema = serde_json::to_value(schema)?;
            // Kubernetes and the engine own the other fields.
            if let Some(Value::Object(fields)) = schema.get_mut("properties") {
                fields.retain(|name, _| name == "spec");
            }
            if let Some(spec) = schema.pointer_mut("/properties/spec") {
                deny_unknown_fields(spec);
            }
            let validator =
                jsonschema::validator_for(&schema).map_err(|error| anyhow!("a schema: {error}"))?;
            schemas.insert(crd.spec.names.kind, (schema, validator));
        }
        Ok(Self(schemas))
    }

    /// The object as it would be stored over `stored_object`; else all errors, each with its field.
    pub(crate) fn check(
        &self,
        kind: Kind,
        object: &DynamicObject,
        stored_object: Option<&DynamicObject>,
    ) -> Result<DynamicObject, String> {
        let Some((schema, validator)) = self.0.get(kind.as_str()) else {
            return Err(format!("{kind} has no schema"));
        };
        let mut spec = object.data.get("spec").cloned().unwrap_or(Value::Null);
        let stored_spec = stored_object.and_then(|stored_object| stored_object.data.get("spec"));
        if let Some(stored_spec) = stored_spec {
            spec = merged(stored_spec.clone(), spec);
        }
        let mut validated = Value::Object(Map::from_iter([("spec".to_owned(), spec)]));
        defaults(schema, &mut validated);
        let errors: Vec<String> = validator
            .iter_errors(&validated)
            .map(|error| format!("{}: {error}", field(&error.instance_path().to_string())))
            .collect();
        if !errors.is_empty() {
            return Err(errors.join("; "));
        }
        let mut stored = stored_object.unwrap_or(object).clone();
        if let Some(generation) =
            stored.metadata.generation.as_mut().filter(|_| stored_spec != Some(&validated["spec"]))
        {
            *generation += 1;
        }
        stored.data["spec"] = validated["spec"].take();
        Ok(stored)
    }
}

/// Makes the schema refuse unknown fields.
fn deny_unknown_fields(schema: &mut Value) {
    let Some(schema) = schema.as_object_mut() else { return };
    let open = schema.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(true));
    if schema.contains_key("properties") && !schema.contains_key("additionalProperties") && !open {
        schema.insert("additionalProperties".into(), false.into());
    }
    let properties = schema.get_mut("properties").and_then(Value::as_object_mut);
    properties.into_iter().flat_map(Map::values_mut).for_each(deny_unknown_fields);
    for part in ["items", "additionalProperties"] {
        schema.get_mut(part).into_iter().for_each(deny_unknown_fields);
    }
}

/// Sets the defaults of absent fields.
fn defaults(schema: &Value, value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
                if let Some(default) = schema.get("default").filter(|_| !fields.contains_key(name)) {
                    fields.insert(name.clone(), default.clone());
                }
                if let Some(value) = fields.get_mut(name) {
                    defaults(schema, value);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| defaults(&schema["items"], item)),
        _ => {}
    }
}

/// Merges the fields of a manifest over the stored ones; lists are replaced.
fn merged(stored_object: Value, manifest: Value) -> Value {
    match (stored_object, manifest) {
        (Value::Object(mut stored_object), Value::Object(manifest)) => {
            for (name, value) in manifest {
                let value = match stored_object.remove(&name) {
                    Some(stored_spec) => merged(stored_spec, value),
                    None => value,
                };
                stored_object.insert(name, value);
            }
            Value::Object(stored_object)
        }
        (_, manifest) => manifest,
    }
}

/// `/spec/Ports/0/Name` as `spec.Ports[0].Name`.
fn field(path: &str) -> String {
    let parts = path.split('/').filter(|part| !part.is_empty());
    let parts = parts.map(|part| {
        let index = part.bytes().all(|byte| byte.is_ascii_digit());
        if index { format!("[{part}]") } else { format!(".{part}") }
    });
    let field: String = parts.collect();
    if field.is_empty() { "the object".into() } else { field.trim_start_matches('.').to_owned() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(spec: &Value) -> DynamicObject {
        let object = json!({ "metadata": { "name": "a", "generation": 3 }, "spec": spec });
        serde_json::from_value(object).expect("an object")
    }

    fn check(kind: Kind, spec: &Value) -> Result<Value, String> {
        let stored = Schemas::new().expect("schemas").check(kind, &object(spec), None);
        stored.map(|mut stored| stored.data["spec"].take())
    }

    #[test]
    fn valid_object_gets_its_defaults() {
        let spec = json!({ "L2Services": ["a"], "ConnectionPoint": "cp", "VlanType": "access" });
        let stored = check(Kind::L2ServiceAttachment, &spec).expect("valid");
        assert_eq!((&stored["PodInterfaceType"], &stored["VlanType"]), (&json!("kernel"), &json!("access")));
    }

    #[test]
    fn invalid_object_error_names_its_field() {
        let cni = |name: &str| json!({ "SupportedCnis": [{ "Name": name, "SupportedInterfaceTypes": ["kernel"] }] });
        for (kind, spec, expected) in [
            (Kind::L2Service, json!({ "SegmentationID": 5000 }), "spec.SegmentationID: 5000"),
            (Kind::L2Service, json!({ "SegmentationId": 5 }), "SegmentationId"),
            (Kind::L2Service, json!({}), "SegmentationID"),
            (Kind::L2Service, json!({ "SegmentationID": 5, "Subnets": ["a", 7] }), "spec.Subnets[1]: 7"),
            (Kind::ConnectionPoint, cni("calico"), "spec.SupportedCnis[0].Name"),
            (Kind::L2Service, Value::Null, "spec: null"),
        ] {
            let refused = check(kind, &spec).expect_err("wrong");
            assert!(refused.contains(expected), "{refused}");
        }
    }

    #[test]
    fn manifest_is_merged_over_the_stored_object() {
        let schemas = Schemas::new().expect("schemas");
        let stored_object =
            object(&json!({ "SegmentationID": 5, "Subnets": ["a", "b"], "PhysicalNW": ["gw"] }));
        let stored = schemas
            .check(
                Kind::L2Service,
                &object(&json!({ "SegmentationID": 6, "Subnets": ["c"] })),
                Some(&stored_object),
            )
            .expect("valid");
        let expected = json!({ "SegmentationID": 6, "Subnets": ["c"], "PhysicalNW": ["gw"] });
        assert_eq!((&stored.data["spec"], stored.metadata.generation), (&expected, Some(4)));
        let same = schemas.check(Kind::L2Service, &stored_object, Some(&stored_object)).expect("valid");
        assert_eq!(same.metadata.generation, Some(3));
    }

    #[test]
    fn examples_are_valid() {
        let schemas = Schemas::new().expect("schemas");
        let examples = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples");
        let files = [
            "attachments",
            "connection-points",
            "l2-services",
            "node-pool",
            "physical-network",
            "routes",
            "subnets",
        ];
        let mut files: Vec<_> = files.iter().map(|name| examples.join(format!("demo/{name}.yaml"))).collect();
        files.push(examples.join("podconfig/podconfig.yaml"));
        let objects = crate::inspect::manifests::read(&files).expect("manifests");
        let keys = objects.iter().filter_map(|object| Some((eno_engine::forecast::key_of(object)?, object)));
        let mut checked = 0;
        for (key, object) in keys {
            schemas.check(key.kind, object, None).unwrap_or_else(|error| panic!("{key}: {error}"));
            checked += 1;
        }
        assert!(checked > 20, "{checked}");
    }
}
