//! Manifest files of users.

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use kube::api::DynamicObject;
use serde::Deserialize;
use serde_json::Value;

use crate::yaml;

/// Reads all objects of the files, in order. `-` is standard input; of a directory, the .yaml, .yml and .json files are
/// read by name.
pub(crate) fn read(paths: &[PathBuf]) -> anyhow::Result<Vec<DynamicObject>> {
    let mut objects = Vec::new();
    for path in paths {
        for (name, text) in texts(path)? {
            parse(&text, &mut objects).with_context(|| name)?;
        }
    }
    Ok(objects)
}

/// Reads all objects of a text, in order.
pub(crate) fn of_text(text: &str) -> anyhow::Result<Vec<DynamicObject>> {
    let mut objects = Vec::new();
    parse(text, &mut objects)?;
    Ok(objects)
}

fn texts(path: &Path) -> anyhow::Result<Vec<(String, String)>> {
    if path == Path::new("-") {
        let text = yaml::read(std::io::stdin()).context("reading standard input")?;
        return Ok(vec![("standard input".into(), text)]);
    }
    let reading = |path: &Path| format!("reading {}", path.display());
    let mut files = Vec::new();
    if path.is_dir() {
        for entry in std::fs::read_dir(path).with_context(|| reading(path))? {
            let file = entry.with_context(|| reading(path))?.path();
            let suffix = file.extension().and_then(|suffix| suffix.to_str()).unwrap_or_default();
            if matches!(suffix, "yaml" | "yml" | "json") {
                files.push(file);
            }
        }
        files.sort();
    } else {
        files.push(path.to_owned());
    }
    let texts = files.into_iter().map(|file| {
        let text = File::open(&file).and_then(yaml::read).with_context(|| reading(&file))?;
        Ok((file.display().to_string(), text))
    });
    texts.collect()
}

fn parse(text: &str, objects: &mut Vec<DynamicObject>) -> anyhow::Result<()> {
    for document in yaml::documents(text)?.into_iter().filter(|document| !document.is_null()) {
        let items = match document.get("items").and_then(Value::as_array) {
            Some(items) if document["kind"].as_str().is_some_and(|kind| kind.ends_with("List")) => {
                items.clone()
            }
            _ => vec![document],
        };
        for item in items {
            let object = DynamicObject::deserialize(item).context("a document is no Kubernetes object")?;
            if object.types.is_none() || object.metadata.name.is_none() {
                bail!("give each object an apiVersion, a kind and a metadata.name: one lacks them");
            }
            objects.push(object);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manifests_are_read_from_documents_and_lists() {
        let mut objects = Vec::new();
        let text = "---\napiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Pod, metadata: {name: a}}\n\
                    ---\n# nothing\n---\napiVersion: v1\nkind: Pod\nmetadata: {name: b}\n";
        parse(text, &mut objects).expect("valid");
        let names: Vec<_> = objects.iter().filter_map(|object| object.metadata.name.as_deref()).collect();
        assert_eq!(names, ["a", "b"]);
        for bad in ["kind: Pod", "apiVersion: v1\nkind: Pod\nmetadata: {}", "a: [", "7"] {
            assert!(parse(bad, &mut Vec::new()).is_err(), "{bad}");
        }
    }
}
