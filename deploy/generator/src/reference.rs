//! The page of the book with the fields of all kinds.

use std::fmt::Write as _;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};

const HEAD: &str = "<!-- Written by `make crds`. Do not edit. -->\n# Fields of each kind\n\
    `kubectl explain KIND.spec` shows the same texts. A field with `*` is required. `[]` is a list, and `{}` is a map \
    with keys of any name.\n";

/// The page. `example` returns a manifest of a kind.
pub fn page(crds: &[CustomResourceDefinition], example: impl Fn(&str) -> Option<String>) -> String {
    let mut page = HEAD.to_owned();
    for crd in crds {
        let kind = &crd.spec.names.kind;
        let version = &crd.spec.versions[0];
        let Some(root) = version.schema.as_ref().and_then(|schema| schema.open_api_v3_schema.as_ref()) else {
            continue;
        };
        let scope = if crd.spec.scope == "Namespaced" { "namespaced" } else { "cluster-scoped" };
        let _ = writeln!(page, "\n## {kind}\n`{}/{}`, {scope}.", crd.spec.group, version.name);
        for part in ["spec", "status"] {
            let Some(schema) = root.properties.as_ref().and_then(|properties| properties.get(part)) else {
                continue;
            };
            let mut rows = Vec::new();
            add_rows(schema, part, &mut rows);
            if part == "spec" {
                let _ = writeln!(page, "{}", one_line(schema.description.as_deref().unwrap_or_default()));
            }
            let _ = writeln!(page, "\n| field | type | default | bounds | meaning |\n|---|---|---|---|---|");
            page.extend(rows);
        }
        if let Some(example) = example(kind) {
            let _ = writeln!(page, "\n```yaml\n{}\n```", example.trim());
        }
    }
    page
}

/// A row for each field below a schema, with the path that leads to it.
fn add_rows(schema: &JSONSchemaProps, path: &str, rows: &mut Vec<String>) {
    for (name, field) in schema.properties.iter().flatten() {
        let is_required = schema.required.iter().flatten().any(|required| required == name);
        let (suffix, inner) = element(field);
        let path = format!("{path}.{name}{suffix}");
        rows.push(format!(
            "| `{path}`{} | {} | {} | {} | {} |\n",
            if is_required { "\\*" } else { "" },
            field.type_.as_deref().unwrap_or("any"),
            field.default.as_ref().map(|default| format!("`{}`", default.0)).unwrap_or_default(),
            cell(&bounds(field, inner)),
            cell(field.description.as_deref().unwrap_or_default()),
        ));
        add_rows(inner, &path, rows);
    }
}

/// The schema of a list's items or a map's values, and its sign in a path; else the schema itself.
fn element(schema: &JSONSchemaProps) -> (&'static str, &JSONSchemaProps) {
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &schema.items {
        return ("[]", items);
    }
    match &schema.additional_properties {
        Some(JSONSchemaPropsOrBool::Schema(values)) => ("{}", values),
        _ => ("", schema),
    }
}

/// What the API server accepts in a field, and for a list or map also in its elements.
fn bounds(field: &JSONSchemaProps, element: &JSONSchemaProps) -> String {
    let mut bounds = own_bounds(field);
    if !std::ptr::eq(field, element) {
        bounds.extend(own_bounds(element).into_iter().map(|bound| format!("each: {bound}")));
    }
    bounds.join("; ")
}

fn own_bounds(schema: &JSONSchemaProps) -> Vec<String> {
    let mut bounds = Vec::new();
    if let Some(values) = &schema.enum_ {
        bounds.push(values.iter().map(|value| format!("`{}`", value.0)).collect::<Vec<_>>().join(", "));
    }
    let sizes = [
        (schema.minimum, schema.maximum, ""),
        (count(schema.min_length), count(schema.max_length), " characters"),
        (count(schema.min_items), count(schema.max_items), " items"),
        (count(schema.min_properties), count(schema.max_properties), " entries"),
    ];
    for (least, most, unit) in sizes {
        bounds.extend(match (least, most) {
            (Some(least), Some(most)) => Some(format!("{least} to {most}{unit}")),
            (Some(least), None) => Some(format!("at least {least}{unit}")),
            (None, Some(most)) => Some(format!("at most {most}{unit}")),
            (None, None) => None,
        });
    }
    bounds.extend(schema.pattern.as_ref().map(|pattern| format!("matches `{pattern}`")));
    let rules = schema.x_kubernetes_validations.iter().flatten();
    bounds.extend(rules.filter_map(|rule| rule.message.clone()));
    bounds
}

#[allow(clippy::cast_precision_loss, reason = "sizes are far below 2^52")]
fn count(size: Option<i64>) -> Option<f64> {
    size.map(|size| size as f64)
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Text in a cell of a table.
fn cell(text: &str) -> String {
    one_line(text).replace('|', "\\|").replace('<', "&lt;")
}
