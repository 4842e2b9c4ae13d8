//! Sections of files that are written by hand otherwise: lists of kinds and of parts. A section begins with a line
//! ``# Written by `make crds`: NAME`` and ends with a line `# End of NAME`.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use eno_nbi_crds::{Definition, GROUP, kinds};

use crate::{Error, Files, drivers};

const BEGIN: &str = "# Written by `make crds`: ";
const END: &str = "# End of ";
/// The folders that may have sections.
const FOLDERS: [&str; 6] = ["admission", "monitoring", "nats", "policy", "rbac", "rbac-install"];

/// The files with sections, renewed. `written` are those that contain nothing else.
pub fn files(directory: &Path, written: &Files) -> Result<Files, Error> {
    let mut files = Files::new();
    for folder in FOLDERS {
        let folder = directory.join("deploy").join(folder);
        let entries = fs::read_dir(&folder)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(Error::io(&folder))?;
        for entry in entries {
            let path = entry.path();
            let text = fs::read_to_string(&path).map_err(Error::io(&path))?;
            let name = path.strip_prefix(directory).unwrap_or(&path).to_string_lossy().into_owned();
            if text.contains(BEGIN) && !written.contains_key(&name) {
                let renewed = renewed(&text, |section| content(directory, written, section));
                let problem = |problem| Error::Section { file: name.clone(), problem };
                files.insert(name.clone(), renewed.map_err(problem)?);
            }
        }
    }
    Ok(files)
}

/// The text with the content of each section replaced, at the indentation of the section's first line.
fn renewed(text: &str, content: impl Fn(&str) -> Result<String, String>) -> Result<String, String> {
    let mut renewed = String::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let _ = writeln!(renewed, "{line}");
        let Some((indentation, section)) = line.split_once(BEGIN) else { continue };
        for line in content(section)?.lines() {
            let _ = writeln!(renewed, "{}", format!("{indentation}{line}").trim_end());
        }
        let end = format!("{indentation}{END}{section}");
        let last = lines.find(|line| *line == end).ok_or_else(|| format!("no line {end:?}"))?;
        let _ = writeln!(renewed, "{last}");
    }
    Ok(renewed)
}

/// The content of the section of this name.
fn content(directory: &Path, written: &Files, section: &str) -> Result<String, String> {
    let text = |error: Error| error.to_string();
    let kinds = kinds().into_iter();
    let applied = |kind: &Definition| kind.is_applied && kind.crd.spec.group == GROUP;
    let plural = |kind: Definition| kind.crd.spec.names.plural;
    let drivers = drivers::workloads().map_err(text)?.into_iter();
    Ok(match section {
        "kinds" => list(kinds.filter(applied).map(plural)),
        "statuses of kinds" => list(kinds.filter(applied).map(|kind| format!("{}/status", plural(kind)))),
        "kinds with those of the engine" => {
            list(kinds.filter(|kind| kind.crd.spec.group == GROUP).map(plural))
        }
        "kinds of NFVOs" => list(kinds.filter(|kind| kind.is_of_nfvos).map(plural)),
        "cluster roles" => list(roles(directory, written, "ClusterRole")?),
        "roles" => list(roles(directory, written, "Role")?),
        "drivers" => concat(drivers.map(|(driver, _)| {
            format!("or label_replace(vector(0), \"driver\", \"{driver}\", \"\", \"\")\n")
        })),
        "services" => concat(drivers.map(|(_, workload)| service(workload.namespace, workload.name))),
        "keys" => concat(keys().map(variable)),
        "users" => concat(keys().map(|key| format!("${}\n", eno_parts::nats_variable(key)))),
        "permissions" => permissions(),
        other => return Err(format!("no section {other:?} is known")),
    })
}

fn list(items: impl IntoIterator<Item = String>) -> String {
    let items: BTreeSet<_> = items.into_iter().collect();
    concat(items.into_iter().map(|item| format!("- {item}\n")))
}

fn concat(texts: impl Iterator<Item = String>) -> String {
    texts.collect::<Vec<_>>().concat()
}

/// The names of the roles of this kind, in `rbac/` and `agent/`.
fn roles(directory: &Path, written: &Files, kind: &str) -> Result<Vec<String>, String> {
    let mut names = Vec::new();
    for folder in ["rbac", "agent"] {
        let folder = format!("deploy/{folder}");
        let entries = fs::read_dir(directory.join(&folder)).map_err(|error| format!("{folder}: {error}"))?;
        let names_of_files =
            entries.flatten().map(|entry| format!("{folder}/{}", entry.file_name().to_string_lossy()));
        let files: BTreeSet<_> =
            names_of_files.chain(written.keys().filter(|name| name.starts_with(&folder)).cloned()).collect();
        let is_yaml =
            |name: &&String| Path::new(name).extension().is_some_and(|extension| extension == "yaml");
        for name in files.iter().filter(is_yaml) {
            let text = match written.get(name) {
                Some(text) => text.clone(),
                None => {
                    fs::read_to_string(directory.join(name)).map_err(|error| format!("{name}: {error}"))?
                }
            };
            let objects: Vec<serde_json::Value> =
                serde_saphyr::from_multiple(&text).map_err(|error| format!("{name}: {error}"))?;
            let of_kind = objects.into_iter().filter(|object| object["kind"] == kind);
            names.extend(of_kind.filter_map(|object| Some(object["metadata"]["name"].as_str()?.to_owned())));
        }
    }
    Ok(names)
}

/// The parts that log in to NATS with a key.
fn keys() -> impl Iterator<Item = &'static str> {
    eno_parts::nats_users().map(|part| part.name)
}

fn variable(key: &str) -> String {
    let variable = eno_parts::nats_variable(key);
    format!(
        "- name: {variable}\n  valueFrom:\n    secretKeyRef:\n      name: eno-nats\n      key: {key}.pub\n"
    )
}

/// The addresses of all pods of a driver.
fn service(namespace: &str, name: &str) -> String {
    format!(
        "---
apiVersion: v1
kind: Service
metadata:
  name: {name}
  namespace: {namespace}
  labels:
    app.kubernetes.io/part-of: eno
    app.kubernetes.io/name: {name}
spec:
  clusterIP: None
  publishNotReadyAddresses: true
  selector:
    app.kubernetes.io/name: {name}
  ports:
  - name: http
    port: 8080
    targetPort: http
"
    )
}

/// The NATS users of drivers with a key. Each may publish and subscribe only what has its name.
fn permissions() -> String {
    let drivers =
        eno_parts::nats_users().filter_map(|part| Some((part, part.driver?, part.program.as_ref()?.binary)));
    concat(drivers.map(|(part, driver, program)| {
            let variable = eno_parts::nats_variable(part.name);
            let parts = if part.parts {
                format!(
                    "\n      \"$JS.API.CONSUMER.CREATE.ENO_PARTS.*.eno.v1.part.{driver}.*.*\", \"$JS.FC.ENO_PARTS.>\""
                )
            } else {
                String::new()
            };
            format!(
                r#"# The driver {driver}.
{{
  nkey: ${variable}
  permissions: {{
    publish: [
      "eno.v1.result.{driver}.*", "eno.v1.history.{driver}.*", "eno.v1.answer.{driver}.*.*"
      "$KV.ENO_DRIVERS.{driver}.*", "$KV.ENO_OWNERS.{driver}.*"
      "$JS.API.CONSUMER.CREATE.ENO_COMMANDS.*.eno.v1.command.{driver}.*", "$JS.FC.ENO_COMMANDS.>"{parts}
      "$JS.API.CONSUMER.CREATE.ENO_RESULTS.*.eno.v1.result.{driver}.*", "$JS.FC.ENO_RESULTS.>"
      "$JS.API.CONSUMER.CREATE.KV_ENO_OWNERS.*.$KV.ENO_OWNERS.{driver}.*", "$JS.FC.KV_ENO_OWNERS.>"
    ]
    subscribe: ["_INBOX_{program}.>", "eno.v1.forget.{driver}", "eno.v1.preview.{driver}.*"]
  }}
}}
"#
            )
        }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn section_is_replaced_at_its_indentation() {
        let text = "a:\n  # Written by `make crds`: x\n  - old\n  # End of x\nb: 1\n";
        let renewed = renewed(text, |section| Ok(format!("- {section}\n"))).expect("a section");
        assert_eq!(renewed, "a:\n  # Written by `make crds`: x\n  - x\n  # End of x\nb: 1\n");
    }

    #[test]
    fn section_without_an_end_is_named() {
        let error = renewed("# Written by `make crds`: x\n- a\n", |_| Ok(String::new())).expect_err("no end");
        assert!(error.contains("# End of x"), "{error}");
    }
}
