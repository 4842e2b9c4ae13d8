//! Templates of objects: an edit of the objects becomes an action of the template language.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use crate::install::render::{
    CONFIG_HASH, Content, EDITS, Edit, Form, NATS, RenderError, SHARED_AGENT_KEY, replace_any_address,
    with_shared_key,
};

/// The templates of the ConfigMaps, whose hashes restart pods.
pub const CONFIGURATION: &str = "configuration";
pub const NATS_CONFIGURATION: &str = "nats-configuration";
/// Stands for an edit in an object, before the number of the edit.
pub const PLACEHOLDER: &str = "ENO-EDIT-";
const HASH_PLACEHOLDER: &str = "ENO-HASH-";
/// Stand before and after what is there while NATS accepts the key that all agents of an earlier version share.
const SHARED_AGENT_KEY_LINES: [&str; 2] = ["ENO-EDIT-IF-SHARED-AGENT-KEY", "ENO-EDIT-END-SHARED-AGENT-KEY"];
/// Helm and Argo CD delete no objects with these annotations.
const KEEP: [(&str, &str); 2] =
    [("helm.sh/resource-policy", "keep"), ("argocd.argoproj.io/sync-options", "Prune=false,Delete=false")];
/// The kinds whose deletion would delete what others made.
const KEPT: [&str; 2] = ["Namespace", "CustomResourceDefinition"];

/// Texts of templates, by name.
#[derive(Default)]
pub struct Templates(BTreeMap<String, String>);

impl Templates {
    /// Adds an object that may differ between one and three NATS servers, or be there for one number only.
    pub fn add_variants(
        &mut self,
        file: &str,
        one: Option<&Value>,
        three: Option<&Value>,
    ) -> Result<(), RenderError> {
        let condition = |count: u8| format!("eq (int .Values.nats.replicas) {count}");
        match (one, three) {
            (Some(one), Some(three)) if one == three => self.add(file, None, one),
            (one, three) => {
                for (object, count) in [(one, 1), (three, 3)] {
                    if let Some(object) = object {
                        self.add(file, Some(&condition(count)), object)?;
                    }
                }
                Ok(())
            }
        }
    }

    /// Adds an object that is there if all these values are true.
    pub fn add_if(&mut self, file: &str, values: &[&str], object: &Value) -> Result<(), RenderError> {
        let values: Vec<_> = values.iter().map(|value| format!(".Values.{value}")).collect();
        let condition = match values.as_slice() {
            [one] => one.clone(),
            several => format!("and {}", several.join(" ")),
        };
        self.add(file, Some(&condition), object)
    }

    /// The names and texts of all templates.
    pub fn into_files(self) -> impl Iterator<Item = (String, String)> {
        self.0.into_iter()
    }

    fn add(&mut self, file: &str, condition: Option<&str>, object: &Value) -> Result<(), RenderError> {
        let template = template(object)?;
        let text = self.0.entry(file.to_owned()).or_default();
        // Writing to a String does not fail.
        let _ = match condition {
            Some(condition) => write!(text, "{{{{- if {condition} }}}}\n---\n{template}{{{{- end }}}}\n"),
            None => write!(text, "---\n{template}"),
        };
        Ok(())
    }
}

fn template(object: &Value) -> Result<String, RenderError> {
    let mut object = object.clone();
    if KEPT.iter().any(|kind| object["kind"] == *kind) {
        for (annotation, value) in KEEP {
            set_annotation(&mut object["metadata"], annotation, value);
        }
    }
    let configuration = match object["kind"].as_str() {
        Some("StatefulSet") => Some(NATS_CONFIGURATION),
        Some("Deployment") => Some(CONFIGURATION),
        _ => None,
    };
    if let Some(configuration) = configuration {
        let hash = format!("{HASH_PLACEHOLDER}{configuration}");
        set_annotation(&mut object["spec"]["template"]["metadata"], CONFIG_HASH, &hash);
    }
    for (number, edit) in EDITS.iter().enumerate() {
        for place in edit.places(&mut object) {
            mark(edit.content, place, &format!("{PLACEHOLDER}{number}"));
        }
    }
    let yaml = serde_saphyr::to_string(&object).map_err(|error| RenderError::Object {
        object: object["kind"].to_string(),
        problem: error.to_string(),
    })?;
    let mut text = String::new();
    for line in yaml.lines() {
        if line.contains(SHARED_AGENT_KEY_LINES[0]) {
            text.push_str("{{- if include \"eno.sharedAgentKey\" $ }}\n");
        } else if line.contains(SHARED_AGENT_KEY_LINES[1]) {
            text.push_str("{{- end }}\n");
        } else if let Some((_, rest)) = line.split_once(PLACEHOLDER) {
            let digits = rest.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
            let edit = digits.parse::<usize>().ok().and_then(|number| EDITS.get(number));
            let edit = edit.ok_or_else(|| RenderError::Object {
                object: object["kind"].to_string(),
                problem: format!("the edit in {line:?} is unknown"),
            })?;
            text.push_str(&action(edit, line));
        } else {
            text.push_str(&plain(line));
            text.push('\n');
        }
    }
    Ok(text)
}

/// Adds the key that all agents of an earlier version share to the configuration and the variables of NATS, between lines
/// that become a condition.
pub fn mark_shared_agent_key(object: &mut Value) -> Result<(), RenderError> {
    if let Some(text) = object.pointer("/data/authorization.conf").and_then(Value::as_str) {
        let marked = with_shared_key(text, SHARED_AGENT_KEY, SHARED_AGENT_KEY_LINES)
            .map_err(|problem| RenderError::Object { object: format!("ConfigMap {NATS}"), problem })?;
        object["data"]["authorization.conf"] = Value::String(marked);
    }
    let is_nats = object["kind"] == "StatefulSet";
    let variables = object.pointer_mut("/spec/template/spec/containers/0/env").and_then(Value::as_array_mut);
    if let Some(variables) = variables.filter(|_| is_nats) {
        let [before, after] = SHARED_AGENT_KEY_LINES;
        let source = json!({"secretKeyRef": {"name": NATS, "key": "agent.pub"}});
        let variable = json!({"name": SHARED_AGENT_KEY, "valueFrom": source});
        variables.extend([json!(before), variable, json!(after)]);
    }
    Ok(())
}

fn set_annotation(metadata: &mut Value, name: &str, value: &str) {
    if let Some(metadata) = metadata.as_object_mut() {
        let annotations = metadata.entry("annotations").or_insert_with(|| json!({}));
        annotations[name] = Value::String(value.to_owned());
    }
}

/// Writes a placeholder where an edit would write.
fn mark(content: Content, place: &mut Value, placeholder: &str) {
    let text = || Value::String(placeholder.to_owned());
    match (content, place) {
        (Content::Key(key, _), Value::Object(map)) => {
            map.insert(key.to_owned(), text());
        }
        (Content::Entries, Value::Object(map)) => {
            map.insert(placeholder.to_owned(), Value::Object(Map::new()));
        }
        (Content::Variable(name, _) | Content::VariableIf(name, _), Value::Array(list)) => {
            list.retain(|variable| variable["name"] != name);
            list.push(text());
        }
        (Content::Variables, Value::Array(list)) => list.push(text()),
        (Content::NodePeers, Value::Array(peers)) => {
            replace_any_address(peers, std::iter::once(text()));
        }
        _ => {}
    }
}

/// A line without an edit. Braces of other template languages stay as they are.
fn plain(line: &str) -> String {
    match line.split_once(HASH_PLACEHOLDER) {
        Some((before, name)) => format!(
            "{before}{{{{ include (print $.Template.BasePath \"/{name}.yaml\") $ | sha256sum | trunc 16 }}}}"
        ),
        None => line.replace("{{", "{{ \"{{\" }}"),
    }
}

/// The lines of the template that stand for a line with a placeholder.
fn action(edit: &Edit, line: &str) -> String {
    let value = format!(".Values.{}", edit.value);
    let indent = &line[..line.len() - line.trim_start().len()];
    // The first key of an element of a list has a dash before it.
    let before = &line[..line.find(|c: char| c != ' ' && c != '-').unwrap_or_default()];
    let with = || Some(format!("with {value}"));
    let each = || Some(format!("range $name, $value := {value}"));
    let variable = |name: &str, text: &str| format!("{indent}- name: {name}\n{indent}  value: {text}");
    let (opened, lines) = match edit.content {
        Content::Key(key, Form::Text) => (None, format!("{before}{key}: {{{{ {value} | quote }}}}")),
        Content::Key(key, Form::OptionalText) => (with(), format!("{indent}{key}: {{{{ . | quote }}}}")),
        Content::Key(key, Form::Joined) => (with(), format!("{indent}{key}: {{{{ join \",\" . | quote }}}}")),
        Content::Key(key, Form::Flag) => (with(), format!("{indent}{key}: \"true\"")),
        Content::Key(key, Form::Off) => {
            (Some(format!("if not {value}")), format!("{indent}{key}: \"false\""))
        }
        Content::Key(key, Form::Names) => (
            with(),
            format!(
                "{indent}{key}:\n{{{{- range . }}}}\n{indent}- name: {{{{ . | quote }}}}\n{{{{- end }}}}"
            ),
        ),
        Content::Key(key, Form::Verbatim) => (with(), format!("{indent}{key}: {{{{ toJson . }}}}")),
        Content::Variable(name, Form::Text) => (None, variable(name, &format!("{{{{ {value} | quote }}}}"))),
        Content::Variable(name, Form::Joined) => (with(), variable(name, "{{ join \",\" . | quote }}")),
        Content::Variable(name, _) => (with(), variable(name, "{{ . | quote }}")),
        Content::VariableIf(name, text) => (with(), variable(name, &format!("{text:?}"))),
        Content::Variables => (each(), variable("{{ $name }}", "{{ $value | quote }}")),
        Content::Entries => (each(), format!("{indent}{{{{ $name | quote }}}}: {{{{ $value | quote }}}}")),
        Content::NodePeers => (
            Some(format!("range {value} | default (list \"0.0.0.0/0\" \"::/0\")")),
            format!("{indent}- ipBlock:\n{indent}    cidr: {{{{ . | quote }}}}"),
        ),
    };
    match opened {
        Some(opened) => format!("{{{{- {opened} }}}}\n{lines}\n{{{{- end }}}}\n"),
        None => format!("{lines}\n"),
    }
}
