//! The CustomResourceDefinitions of all kinds.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceColumnDefinition, CustomResourceDefinition, JSON, JSONSchemaProps, JSONSchemaPropsOrArray,
    JSONSchemaPropsOrBool,
};
use kube::CustomResourceExt;
use kube::core::object::HasSpec;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::{FINALIZER, GROUP, UNOBSERVED};

/// Fields of [`crate::Status`] that every kind has.
const COMMON_STATUS: [&str; 6] =
    ["phase", "message", "observedGeneration", "conditions", "transitions", "realized"];

/// Fields of [`crate::ConfigStatus`] that mean something else than in the status of other kinds.
const CONFIG_STATUS: [(&str, &str); 4] = [
    ("message", "Why it is in this phase: the pod or node that is not done and what would help."),
    ("transitions", "How many transitions the object has made."),
    ("podConfigurations", "What each pod of a PodConfig has."),
    ("addresses", "The addresses that are the pods' own. Written and read by the engine alone."),
];

/// What the file of a kind says of it, besides its fields.
pub(crate) trait Described: CustomResourceExt + HasSpec {
    /// Whether people apply it. The engine alone writes others, which have no spec.
    const IS_APPLIED: bool = true;
    /// Whether NFVOs write it. Others are the infrastructure below networks, or what running pods have beside them.
    const IS_OF_NFVOS: bool = false;

    /// Its definition, as the API server takes it.
    fn definition() -> CustomResourceDefinition;
}

/// A kind, as tables of kinds need it.
#[derive(Clone, Debug)]
pub struct Definition {
    /// As the API server takes it.
    pub crd: CustomResourceDefinition,
    /// Whether people apply it; otherwise the engine alone writes it.
    pub is_applied: bool,
    /// Whether NFVOs write it.
    pub is_of_nfvos: bool,
    /// Reads a spec as the Rust type has it, and writes it again.
    pub round_trip: fn(Value) -> serde_json::Result<Value>,
}

impl Definition {
    pub(crate) fn of<K: Described<Spec: Serialize + DeserializeOwned>>() -> Self {
        let round_trip = |spec| serde_json::to_value(serde_json::from_value::<K::Spec>(spec)?);
        Self { crd: K::definition(), is_applied: K::IS_APPLIED, is_of_nfvos: K::IS_OF_NFVOS, round_trip }
    }
}

/// The CustomResourceDefinitions of all kinds.
pub fn crds() -> Vec<CustomResourceDefinition> {
    crate::kinds().into_iter().map(|kind| kind.crd).collect()
}

/// The finalizer that keeps an object of a kind until the engine has cleaned it up. Those of kinds for running pods are
/// spelled as their users know them.
pub fn finalizer(crd: &CustomResourceDefinition) -> String {
    if crd.spec.group == GROUP {
        return FINALIZER.to_owned();
    }
    format!("{}.finalizers.opdev.io", crd.spec.names.kind.to_lowercase())
}

/// Adds the common status fields and these extras, and the default status of an unobserved object.
pub(crate) fn with_status<K: CustomResourceExt>(extras: &[&str]) -> CustomResourceDefinition {
    let mut crd = tidied::<K>();
    for columns in columns(&mut crd) {
        columns.insert(0, column("Phase", "string", ".status.phase"));
        let message = CustomResourceColumnDefinition {
            priority: Some(1),
            ..column("Message", "string", ".status.message")
        };
        columns.insert(columns.len() - 1, message);
    }
    for status in statuses(&mut crd) {
        status.default = Some(JSON(json!({ "observedGeneration": UNOBSERVED })));
        if let Some(fields) = &mut status.properties {
            fields
                .retain(|name, _| COMMON_STATUS.contains(&name.as_str()) || extras.contains(&name.as_str()));
        }
    }
    crd
}

/// As [`with_status`], for a kind whose phase is a [`crate::ConfigPhase`].
pub(crate) fn with_config_status<K: CustomResourceExt>(extras: &[&str]) -> CustomResourceDefinition {
    let mut crd = with_status::<K>(extras);
    for fields in statuses(&mut crd).filter_map(|status| status.properties.as_mut()) {
        for (name, description) in CONFIG_STATUS {
            fields.entry(name.into()).and_modify(|field| field.description = Some(description.into()));
        }
    }
    crd
}

/// Without a spec.
pub(crate) fn status_only<K: CustomResourceExt>() -> CustomResourceDefinition {
    let mut crd = tidied::<K>();
    for root in roots(&mut crd) {
        root.properties.iter_mut().for_each(|properties| drop(properties.remove("spec")));
        root.required = None;
    }
    crd
}

/// The definition with what all kinds have.
fn tidied<K: CustomResourceExt>() -> CustomResourceDefinition {
    let mut crd = K::crd();
    crd.spec.names.categories = Some(vec!["eno".into()]);
    crd.metadata.labels = Some([("app.kubernetes.io/part-of".into(), "eno".into())].into());
    if crd.spec.group == GROUP {
        let approval = ("api-approved.kubernetes.io".into(), "unapproved, experimental".into());
        crd.metadata.annotations = Some([approval].into());
    }
    for columns in columns(&mut crd) {
        columns.push(column("Age", "date", ".metadata.creationTimestamp"));
    }
    roots(&mut crd).for_each(tidy);
    if crd.spec.scope == "Namespaced" {
        roots(&mut crd).for_each(describe_secret_of_namespaced_kind);
    }
    crd
}

/// The key of a namespaced object is in its own namespace, unlike [`crate::Callbacks::secret`] of other kinds.
fn describe_secret_of_namespaced_kind(root: &mut JSONSchemaProps) {
    let spec =
        root.properties.as_mut().and_then(|properties| properties.get_mut("spec")?.properties.as_mut());
    let secret = spec.and_then(|fields| fields.get_mut("CallbackSecret")?.description.as_mut());
    if let Some(description) = secret {
        *description = description.replace("the operator's namespace", "the object's namespace");
    }
}

fn roots(crd: &mut CustomResourceDefinition) -> impl Iterator<Item = &mut JSONSchemaProps> {
    crd.spec.versions.iter_mut().filter_map(|version| version.schema.as_mut()?.open_api_v3_schema.as_mut())
}

fn columns(
    crd: &mut CustomResourceDefinition,
) -> impl Iterator<Item = &mut Vec<CustomResourceColumnDefinition>> {
    crd.spec.versions.iter_mut().map(|version| version.additional_printer_columns.get_or_insert_default())
}

fn column(name: &str, type_: &str, json_path: &str) -> CustomResourceColumnDefinition {
    CustomResourceColumnDefinition {
        name: name.into(),
        type_: type_.into(),
        json_path: json_path.into(),
        ..CustomResourceColumnDefinition::default()
    }
}

fn statuses(crd: &mut CustomResourceDefinition) -> impl Iterator<Item = &mut JSONSchemaProps> {
    roots(crd).filter_map(|root| root.properties.as_mut()?.get_mut("status"))
}

/// Removes schema parts of Rust types that the API server does not support: formats such as `uint16`, and
/// `nullable`, since an absent field is omitted and never null.
fn tidy(schema: &mut JSONSchemaProps) {
    schema.nullable = None;
    if schema.type_.as_deref() == Some("integer") {
        let format = schema.format.as_deref();
        schema.format = Some(if format == Some("int64") { "int64" } else { "int32" }.to_owned());
    }
    schema.properties.iter_mut().flat_map(|fields| fields.values_mut()).for_each(tidy);
    match &mut schema.items {
        Some(JSONSchemaPropsOrArray::Schema(items)) => tidy(items),
        Some(JSONSchemaPropsOrArray::Schemas(items)) => items.iter_mut().for_each(tidy),
        None => {}
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &mut schema.additional_properties {
        tidy(values);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every list, map and text of a status has a bound. `realized` has those of the spec, whose values it holds.
    #[test]
    fn statuses_are_bounded() {
        fn unbounded(schema: &JSONSchemaProps, path: &str, found: &mut Vec<String>) {
            let is_spec = schema.x_kubernetes_preserve_unknown_fields == Some(true);
            let has_bound = match schema.type_.as_deref() {
                Some("array") => schema.max_items.is_some(),
                Some("object") => schema.properties.is_some() || schema.max_properties.is_some() || is_spec,
                Some("string") => {
                    schema.max_length.is_some() || schema.format.is_some() || schema.enum_.is_some()
                }
                _ => true,
            };
            if !has_bound {
                found.push(path.to_owned());
            }
            for (name, field) in schema.properties.iter().flatten() {
                unbounded(field, &format!("{path}.{name}"), found);
            }
            if let Some(JSONSchemaPropsOrArray::Schema(items)) = &schema.items {
                unbounded(items, &format!("{path}[]"), found);
            }
            if let Some(JSONSchemaPropsOrBool::Schema(values)) = &schema.additional_properties {
                unbounded(values, &format!("{path}{{}}"), found);
            }
        }
        let mut found = Vec::new();
        for mut crd in crds() {
            let kind = crd.spec.names.kind.clone();
            let status = statuses(&mut crd).next().expect("a status");
            unbounded(status, &kind, &mut found);
        }
        assert_eq!(found, Vec::<String>::new());
    }

    /// kubectl shows only the first element of a list in a column.
    #[test]
    fn printer_columns_name_existing_fields() {
        for mut crd in crds() {
            let columns = columns(&mut crd).flat_map(std::mem::take);
            let paths: Vec<String> = columns.map(|column| column.json_path).collect();
            assert!(!paths.is_empty(), "{}", crd.spec.names.kind);
            let root = roots(&mut crd).next().expect("a schema").clone();
            for path in paths {
                assert!(!path.contains("[*]"), "{}: {path} shows one element", crd.spec.names.kind);
                let Some((top, field)) = path[1..].split_once('.').filter(|(top, _)| *top != "metadata")
                else {
                    continue;
                };
                let field = field.split(['.', '[']).next().unwrap_or_default();
                let fields = root.properties.as_ref().and_then(|all| all.get(top)?.properties.as_ref());
                assert!(fields.is_some_and(|all| all.contains_key(field)), "{}: {path}", crd.spec.names.kind);
            }
        }
    }
}
