//! The values of the chart: their defaults and their schema.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::install::Values;
use crate::install::render::RenderError;

fn failed(error: &dyn std::error::Error) -> RenderError {
    RenderError::Object { object: "the values".to_owned(), problem: error.to_string() }
}

fn default_values() -> Result<Value, RenderError> {
    let mut values = serde_json::to_value(Values::default()).map_err(|error| failed(&error))?;
    values["takeOver"] = Value::Bool(false);
    Ok(values)
}

/// The schema of the values. Each key without the default null has to be there, which Helm's defaults ensure.
fn schema_value() -> Result<Value, RenderError> {
    let mut schema = serde_json::to_value(schemars::schema_for!(Values)).map_err(|error| failed(&error))?;
    schema["properties"]["takeOver"] = json!({
        "type": "boolean",
        "description": "Whether the release takes over an installation of eno install, with Helm's --take-ownership.",
    });
    schema["properties"]["global"] =
        json!({"type": "object", "description": "Helm sets it in charts that contain this one."});
    require(&mut schema, &default_values()?);
    Ok(schema)
}

/// The file values.schema.json.
pub fn schema() -> Result<String, RenderError> {
    serde_json::to_string_pretty(&schema_value()?).map_err(|error| failed(&error))
}

fn require(schema: &mut Value, defaults: &Value) {
    let Some(defaults) = defaults.as_object() else { return };
    if schema.get("properties").is_none() {
        return;
    }
    let names = defaults.iter().filter(|(_, value)| !value.is_null()).map(|(name, _)| json!(name));
    schema["required"] = names.collect();
    for (name, value) in defaults {
        require(&mut schema["properties"][name], value);
    }
}

/// The file values.yaml: each key with its description.
pub fn defaults() -> Result<String, RenderError> {
    let mut text = String::new();
    write(&mut text, 0, &default_values()?, &schema_value()?)?;
    Ok(text)
}

fn write(text: &mut String, indent: usize, values: &Value, schema: &Value) -> Result<(), RenderError> {
    for (name, value) in values.as_object().into_iter().flatten() {
        let property = &schema["properties"][name];
        let pad = " ".repeat(indent);
        let description = property["description"].as_str().unwrap_or_default();
        for line in description.lines() {
            // Writing to a String does not fail.
            let _ = writeln!(text, "{pad}# {line}");
        }
        if value.as_object().is_some_and(|entries| !entries.is_empty()) {
            let _ = writeln!(text, "{pad}{name}:");
            write(text, indent + 2, value, property)?;
        } else {
            // JSON is YAML.
            let value = serde_json::to_string(value).map_err(|error| failed(&error))?;
            let _ = writeln!(text, "{pad}{name}: {value}");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assert_no_further_keys(path: &str, schema: &Value) {
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            assert_no_further_keys(&format!("{path}.{name}"), property);
        }
        // Helm itself sets global.
        if schema["type"] == "object" && path != ".global" {
            assert_eq!(schema["additionalProperties"], false, "{path}");
        }
    }

    #[test]
    fn defaults_fit_the_schema_and_no_level_has_further_keys() {
        let schema = schema_value().expect("a schema");
        let defaults: Value = serde_saphyr::from_str(&defaults().expect("values")).expect("YAML");
        assert_eq!(defaults, default_values().expect("values"));
        let validator = jsonschema::validator_for(&schema).expect("a valid schema");
        assert!(validator.is_valid(&defaults));
        assert_no_further_keys("", &schema);
        for (path, value) in [
            ("/images", json!("a")),
            ("/nats/replica", json!(3)),
            ("/nats/replicas", json!(2)),
            ("/nats/storageSize", json!("5 GB")),
            ("/agent/x", json!(1)),
            ("/agent/env", json!({"ENO_NODE": "x"})),
            ("/agent/env", json!({"PATH": "x"})),
            ("/monitoring/labels", json!({"release": 1})),
            ("/clusterID", json!("Site-A")),
            ("/runtimeDirectory", json!("/run/../etc")),
            ("/callbackDeny", json!(["10.0.0.0"])),
            ("/callbackDeny", json!(["999.1.1.1/8"])),
            ("/nodeCIDRs", json!(["10.0.0.0/33"])),
            ("/tolerations", json!([{"key": "infra", "effects": "NoSchedule"}])),
            ("/callbackProxy", json!("http://u:p@proxy:3128")),
            ("/callbackProxy", json!("http://[::1")),
            ("/callbackAllow", json!(["*"])),
            ("/callbackAllow", json!(["a b"])),
            ("/callbackAllow", json!(["10.0.0.0/8,192.168.0.0/16"])),
            ("/log", json!("x==")),
            ("/nodeCIDRs", json!(["10.0.0.1"])),
            ("/agent/reservedNetworks", json!(["10.0.0.0/8,fd00::/8"])),
            ("/agent/returnPathMask", json!("0x4000")),
            ("/image", Value::Null),
        ] {
            let mut values = defaults.clone();
            let (parent, key) = path.rsplit_once('/').expect("a path");
            values.pointer_mut(parent).expect("a parent")[key] = value;
            assert!(!validator.is_valid(&values), "{path} is accepted");
        }
        let mut good = defaults.clone();
        good["agent"]["env"] = json!({"ENO_OVSDB": "tcp:127.0.0.1:6640"});
        good["clusterID"] = json!("lab1");
        good["callbackDeny"] = json!(["10.244.0.0/16", "fd00::/8"]);
        assert!(validator.is_valid(&good));
    }
}
