//! The Helm chart, made of what `eno install` applies. Pure.

mod template;
mod values;

use std::collections::BTreeMap;

use serde_json::Value;

use super::installer::VERSION;
use super::render::{NATS, OPTIONAL, RenderError, SYSTEM, id, operator};
use super::values::Replicas;
use template::Templates;

/// The name of the chart, and of the folder in its archive.
pub const NAME: &str = "eno";

/// What is the same in each chart, by its path.
const FIXED: [(&str, &str); 6] = [
    ("Chart.yaml", include_str!("../../../../deploy/helm/Chart.yaml")),
    ("README.md", include_str!("../../../../deploy/helm/README.md")),
    ("templates/_checks.tpl", include_str!("../../../../deploy/helm/templates/_checks.tpl")),
    ("templates/keys.yaml", include_str!("../../../../deploy/helm/templates/keys.yaml")),
    ("templates/record.yaml", include_str!("../../../../deploy/helm/templates/record.yaml")),
    ("templates/NOTES.txt", include_str!("../../../../deploy/helm/templates/NOTES.txt")),
];

/// The files of the chart, by their paths. Two calls return equal files.
pub fn files() -> Result<BTreeMap<String, String>, RenderError> {
    let mut files: BTreeMap<String, String> =
        FIXED.iter().map(|(path, text)| ((*path).to_owned(), text.replace("VERSION", VERSION))).collect();
    files.insert("values.yaml".to_owned(), values::defaults()?);
    files.insert("values.schema.json".to_owned(), values::schema()?);
    let mut templates = Templates::default();
    let (one, three) = (objects(Replicas::One)?, objects(Replicas::Three)?);
    for id in three.keys().chain(one.keys().filter(|id| !three.contains_key(*id))) {
        templates.add_variants(&file_of(&id[0], &id[2]), one.get(id), three.get(id))?;
    }
    for manifest in OPTIONAL {
        for object in manifest.objects()? {
            templates.add_if(manifest.name, manifest.values, &object)?;
        }
    }
    files.extend(templates.into_files().map(|(name, text)| (format!("templates/{name}.yaml"), text)));
    Ok(files)
}

/// The objects of every installation by kind, namespace and name. Helm makes the namespace of the release itself.
fn objects(replicas: Replicas) -> Result<BTreeMap<[String; 3], Value>, RenderError> {
    let mut objects = operator(replicas)?;
    objects.iter_mut().try_for_each(template::mark_shared_agent_key)?;
    let objects = objects.into_iter().map(|object| (id(&object).map(str::to_owned), object));
    Ok(objects.filter(|([kind, _, name], _)| kind != "Namespace" || name != SYSTEM).collect())
}

/// The name of the template of an object.
fn file_of(kind: &str, name: &str) -> String {
    match kind {
        "Namespace" => "namespaces",
        "CustomResourceDefinition" => "definitions",
        "ServiceAccount" | "ClusterRole" | "ClusterRoleBinding" | "Role" | "RoleBinding" => "access",
        "ConfigMap" if name == NATS => template::NATS_CONFIGURATION,
        "ConfigMap" => template::CONFIGURATION,
        "Service" => "services",
        "StatefulSet" | "Deployment" | "DaemonSet" => name.strip_prefix("eno-").unwrap_or(name),
        _ => "policies",
    }
    .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chart_has_all_edits_and_no_placeholder() {
        let files = files().expect("a chart");
        let all: String = files.values().map(String::as_str).collect();
        for edit in super::super::render::EDITS {
            let value = format!(".Values.{}", edit.value);
            assert!(all.contains(&value), "{value} is in no template");
        }
        assert!(!all.contains(template::PLACEHOLDER), "a placeholder is left");
        assert!(files["Chart.yaml"].contains(&format!("\nversion: {VERSION}\n")));
    }
}
