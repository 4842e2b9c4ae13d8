//! The definitions of the kinds, Argo CD's health checks and the page with their fields.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use eno_nbi_crds::{crds, kinds};
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::{Error, Files, HEADER, reference, yaml};

/// The directory that contains only files written by this program.
const CRDS: &str = "deploy/crds";
/// The page of the book with the fields of all kinds.
const REFERENCE: &str = "docs/src/reference/fields.md";
const HEALTH: &str = include_str!("../../gitops/health.lua");

/// The files of [`CRDS`] that this program does not write.
pub fn leftovers(directory: &Path, files: &Files) -> Result<Vec<String>, Error> {
    let folder = directory.join(CRDS);
    let present =
        fs::read_dir(&folder).and_then(Iterator::collect::<Result<Vec<_>, _>>).map_err(Error::io(&folder))?;
    let names = present.iter().map(|entry| format!("{CRDS}/{}", entry.file_name().to_string_lossy()));
    Ok(names.filter(|name| !files.contains_key(name)).collect())
}

/// The files that follow from the kinds alone.
pub fn files(directory: &Path) -> Result<Files, Error> {
    let mut files = Files::new();
    let mut kustomization =
        format!("{HEADER}apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources:\n");
    let mut checks = BTreeMap::new();
    for kind in kinds() {
        let spec = &kind.crd.spec;
        if kind.is_applied {
            // A ConfigMap key can't contain a wildcard.
            let check = format!("resource.customizations.health.{}_{}", spec.group, spec.names.kind);
            checks.insert(check, HEALTH.to_owned());
        }
        let name = format!("{}_{}.yaml", spec.group, spec.names.plural);
        kustomization.extend(["- ", &name, "\n"]);
        let text = yaml(&name, &kind.crd)?;
        files.insert(format!("{CRDS}/{name}"), format!("{HEADER}{text}"));
    }
    files.insert(format!("{CRDS}/kustomization.yaml"), kustomization);
    let metadata = ObjectMeta { name: Some("argocd-cm".into()), ..ObjectMeta::default() };
    let config = ConfigMap { metadata, data: Some(checks), ..ConfigMap::default() };
    let name = "deploy/gitops/argocd-cm.yaml".to_owned();
    let text = yaml(&name, &config)?;
    files.insert(name, format!("{HEADER}{text}"));
    let examples = examples(&directory.join("examples"))?;
    let page = reference::page(&crds(), |kind| examples.get(kind).cloned());
    files.insert(REFERENCE.to_owned(), page);
    Ok(files)
}

/// The first manifest of each kind below a folder, in the order of the files' paths.
fn examples(folder: &Path) -> Result<BTreeMap<String, String>, Error> {
    let mut examples = BTreeMap::new();
    let entries =
        fs::read_dir(folder).and_then(Iterator::collect::<Result<Vec<_>, _>>).map_err(Error::io(folder))?;
    for path in entries.into_iter().map(|entry| entry.path()).collect::<BTreeSet<_>>() {
        if path.is_dir() {
            for (kind, manifest) in self::examples(&path)? {
                examples.entry(kind).or_insert(manifest);
            }
        } else if path.extension().is_some_and(|extension| extension == "yaml") {
            let text = fs::read_to_string(&path).map_err(Error::io(&path))?;
            for manifest in text.split("\n---\n") {
                let kind = manifest.lines().find_map(|line| line.strip_prefix("kind: "));
                if let Some(kind) = kind.and_then(|kind| kind.split_whitespace().next()) {
                    examples.entry(kind.to_owned()).or_insert_with(|| manifest.to_owned());
                }
            }
        }
    }
    Ok(examples)
}
