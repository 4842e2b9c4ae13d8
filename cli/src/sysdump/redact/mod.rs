//! Takes out of objects and texts what is or may be a secret, and notes what it took out and why. Pure.
//!
//! The rules go by structure: fields of objects, lists of arguments, environments, URLs, headers, and the settings of
//! configuration files. A name decides what is a secret in them. Last come values that look random. The rules hold for
//! Kubernetes objects and for messages on NATS, which have the same objects in them.

mod names;
mod settings;
mod text;

use std::collections::BTreeMap;

use kube::api::DynamicObject;
use serde::Serialize;
use serde_json::Value;

use names::is_secret;

/// The text in the place of what was taken out.
pub(crate) const REDACTED: &str = "REDACTED";
/// The most places of one file that are noted one by one.
const MAX_PLACES: usize = 100;

/// The annotations that are kept, by their prefix. Others may hold anything, such as the last applied manifest.
const ANNOTATIONS: &[&str] = &[
    "eno.k8s.io/",
    "podconfig.opdev.io/",
    "podnetwork.opdev.io/",
    "k8s.v1.cni.cncf.io/",
    "v1.multus-cni.io/",
    "deployment.kubernetes.io/",
    "kubernetes.io/config.",
];
/// Fields of ENO that name a secret by the name of an object, in lower case.
const NAMES_OF_OBJECTS: &[&str] = &["credential", "callbacksecret"];
/// Variables of ENO that name a file.
const NAMES_OF_FILES: &[&str] = &["ENO_NATS_CREDENTIALS"];
/// Flags whose value is `user:password`.
const USER_FLAGS: &[&str] = &["-u", "-U", "--user", "--proxy-user"];

/// Why something was taken out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Why {
    /// The values of a Secret.
    Secret,
    /// The annotations of others.
    Annotation,
    /// A field with the name of a secret.
    Field,
    /// A variable of a program of others, or one with the name of a secret.
    Environment,
    /// An argument of a command.
    Argument,
    /// The path or query of a CallbackURL.
    UrlPath,
    /// User and password of a URL.
    UrlUser,
    /// A header of HTTP.
    Header,
    /// A setting of a configuration file.
    Setting,
    /// A variable or parameter in a text.
    Assignment,
    /// A name and a value in a text.
    Pair,
    /// A key or token, by its form.
    Key,
    /// Data that is no text.
    Binary,
    /// A value that looks random.
    Random,
}

/// Takes out of one file what is or may be a secret.
#[derive(Debug, Default)]
pub(crate) struct Redactor {
    /// The fields that lead to the current value.
    path: Vec<String>,
    /// What was taken out: where, why, and how often.
    found: BTreeMap<(String, Why), u64>,
    /// The last line of a log began a private key.
    in_key: bool,
}

/// Redacts an object as a dump does.
pub(crate) fn object(object: &DynamicObject) -> serde_json::Result<DynamicObject> {
    let mut redacted = serde_json::to_value(object)?;
    Redactor::default().value(&mut redacted);
    serde_json::from_value(redacted)
}

impl Redactor {
    /// What was taken out: the place, the reason, and how often.
    pub(crate) fn into_found(self) -> impl Iterator<Item = (String, Why, u64)> {
        self.found.into_iter().map(|((place, why), count)| (place, why, count))
    }

    /// Redacts a Kubernetes object or a message.
    pub(crate) fn value(&mut self, value: &mut Value) {
        match value {
            Value::Object(fields) => {
                if fields.get("kind").and_then(Value::as_str) == Some("Secret") {
                    for name in ["data", "stringData"] {
                        if fields.remove(name).is_some() {
                            self.note(Why::Secret);
                        }
                    }
                }
                fields.remove("managedFields");
                for (name, field) in fields.iter_mut() {
                    self.path.push(name.clone());
                    self.field(name, field);
                    self.path.pop();
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.value(item)),
            Value::String(text) => *text = self.text(text),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// Redacts a text of any kind.
    pub(crate) fn text(&mut self, text: &str) -> String {
        text::redact(text, &mut |why| self.note(why))
    }

    /// Redacts the texts of a ConfigMap. Of binary data only the names are kept.
    pub(crate) fn config_map(&mut self, object: &mut DynamicObject) {
        let texts = object.data.get_mut("data").and_then(Value::as_object_mut);
        for (name, text) in texts.into_iter().flatten() {
            self.path = vec!["data".to_owned(), name.clone()];
            if is_secret(name) {
                self.hide(text, Why::Setting);
            } else if let Some(settings) = text.as_str() {
                *text = settings::redact(settings, &mut |why| self.note(why)).into();
            }
        }
        let binary = object.data.get_mut("binaryData").and_then(Value::as_object_mut);
        for (name, data) in binary.into_iter().flatten() {
            self.path = vec!["binaryData".to_owned(), name.clone()];
            self.hide(data, Why::Binary);
        }
        self.path.clear();
    }

    /// Redacts a line of a log; `None`: it is inside a private key.
    pub(crate) fn line(&mut self, line: &str) -> Option<String> {
        let is_key = |edge: &str| line.contains(edge) && line.contains("PRIVATE KEY-----");
        if self.in_key {
            self.in_key = !is_key("-----END ");
            return None;
        }
        self.in_key = is_key("-----BEGIN ") && !is_key("-----END ");
        Some(self.text(line))
    }

    /// Notes that something was taken out of the current place.
    fn note(&mut self, why: Why) {
        let mut place = self.path.join(".");
        let is_full = self.found.len() >= MAX_PLACES;
        if is_full && !self.found.contains_key(&(place.clone(), why)) {
            place = String::from("other places");
        }
        *self.found.entry((place, why)).or_default() += 1;
    }

    fn hide(&mut self, value: &mut Value, why: Why) {
        if value.as_str() != Some(REDACTED) {
            *value = REDACTED.into();
            self.note(why);
        }
    }

    fn field(&mut self, name: &str, field: &mut Value) {
        match (name.to_ascii_lowercase().as_str(), field) {
            ("annotations", Value::Object(all)) => {
                let before = all.len();
                all.retain(|name, _| ANNOTATIONS.iter().any(|kept| name.starts_with(kept)));
                (all.len()..before).for_each(|_| self.note(Why::Annotation));
                all.values_mut().for_each(|value| self.value(value));
            }
            ("callbackurl", Value::String(url)) => {
                let redacted = callback_url(url);
                if redacted != *url {
                    self.note(Why::UrlPath);
                }
                *url = redacted;
            }
            ("env", Value::Array(variables)) => variables.iter_mut().for_each(|one| self.variable(one)),
            ("args" | "command", Value::Array(arguments)) => self.arguments(arguments),
            ("httpheaders", Value::Array(headers)) => {
                for value in headers.iter_mut().filter_map(|header| header.get_mut("value")) {
                    self.hide(value, Why::Header);
                }
            }
            (lower, field) if is_secret(name) && !NAMES_OF_OBJECTS.contains(&lower) => self.secret(field),
            (_, field) => self.value(field),
        }
    }

    /// Redacts the field of a secret. The fields of an object are judged by their own names.
    fn secret(&mut self, field: &mut Value) {
        match field {
            Value::Array(items) => items.iter_mut().for_each(|item| self.secret(item)),
            Value::String(text) if text.is_empty() => {}
            Value::String(_) | Value::Number(_) => self.hide(field, Why::Field),
            Value::Object(_) => self.value(field),
            Value::Null | Value::Bool(_) => {}
        }
    }

    /// Redacts an environment variable of a container. Those of ENO are settings; a program of others may get a secret
    /// so.
    fn variable(&mut self, variable: &mut Value) {
        let name = variable["name"].as_str().unwrap_or_default();
        let is_setting = name.starts_with("ENO_") && (!is_secret(name) || NAMES_OF_FILES.contains(&name));
        if let Some(value) = variable.get_mut("value").filter(|_| !is_setting) {
            self.hide(value, Why::Environment);
        }
        self.value(variable);
    }

    /// Redacts the arguments of a command: `--password=…`, `--token …`, `-u user:…`.
    fn arguments(&mut self, arguments: &mut [Value]) {
        let mut is_value = false;
        for argument in arguments {
            let Some(text) = argument.as_str() else { continue };
            if is_value {
                is_value = false;
                self.hide(argument, Why::Argument);
                continue;
            }
            let (flag, value) =
                text.split_once('=').map_or((text, None), |(flag, value)| (flag, Some(value)));
            let is_flag = flag.starts_with('-') && !flag.contains(char::is_whitespace);
            let of_secret = is_flag && (is_secret(flag) || USER_FLAGS.contains(&flag));
            match value {
                None => is_value = of_secret,
                Some(value) if of_secret && value != REDACTED => {
                    *argument = format!("{flag}={REDACTED}").into();
                    self.note(Why::Argument);
                    continue;
                }
                Some(_) => {}
            }
            self.value(argument);
        }
    }
}

/// The scheme, host and port of a URL. A path or a query may be a token. A text that is no URL stays none, and one with
/// a user part stays one, so that the object is as valid as it was.
fn callback_url(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return REDACTED.to_owned() };
    let end = rest.find(['/', '?', '#', '\\']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let authority = match authority.rsplit_once('@') {
        Some((_, host)) => format!("{REDACTED}@{host}"),
        None => authority.to_owned(),
    };
    let path = if matches!(path, "" | "/") { path.to_owned() } else { format!("/{REDACTED}") };
    format!("{scheme}://{authority}{path}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const PEM: &str =
        "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXk\nAAAA\n-----END OPENSSH PRIVATE KEY-----";

    #[test]
    fn callback_urls_keep_scheme_host_and_port() {
        for (url, expected) in [
            ("https://nfvo.example.com/eno", "https://nfvo.example.com/REDACTED"),
            ("https://nfvo.example.com:8443", "https://nfvo.example.com:8443"),
            ("http://[::1]:80/", "http://[::1]:80/"),
            ("https://host?token=a", "https://host/REDACTED"),
            ("https://host#a", "https://host/REDACTED"),
            ("https://user:password@host/a?b", "https://REDACTED@host/REDACTED"),
            ("https://a@b@host", "https://REDACTED@host"),
            ("hooks.example.com/T0/B0", "REDACTED"),
            ("", "REDACTED"),
        ] {
            assert_eq!(callback_url(url), expected, "{url}");
            assert_eq!(callback_url(&callback_url(url)), expected, "redacted twice: {url}");
        }
    }

    #[test]
    fn fields_are_redacted_by_their_names() {
        for (given, expected) in [
            (json!({ "managedFields": [1], "a": 1 }), json!({ "a": 1 })),
            (
                json!({ "annotations": { "eno.k8s.io/forget": "true", "kubectl.kubernetes.io/last-applied-configuration": "{}",
                    "vault/x": "y" } }),
                json!({ "annotations": { "eno.k8s.io/forget": "true" } }),
            ),
            (
                json!({ "spec": { "CallbackURL": "https://h/t" }, "realized": [{ "callbackURL": "https://h/t" }] }),
                json!({ "spec": { "CallbackURL": "https://h/REDACTED" }, "realized": [{ "callbackURL": "https://h/REDACTED" }] }),
            ),
            (
                json!({ "env": [{ "name": "ENO_NATS_URL", "value": "nats://u:p@h" }, { "name": "A", "value": "b" },
                    { "name": "C", "valueFrom": { "secretKeyRef": { "name": "s", "key": "k" } } }] }),
                json!({ "env": [{ "name": "ENO_NATS_URL", "value": "nats://REDACTED@h" }, { "name": "A", "value": "REDACTED" },
                    { "name": "C", "valueFrom": { "secretKeyRef": { "name": "s", "key": "k" } } }] }),
            ),
            (
                json!({ "httpHeaders": [{ "name": "Authorization", "value": "Basic x" }] }),
                json!({ "httpHeaders": [{ "name": "Authorization", "value": "REDACTED" }] }),
            ),
            (
                json!({ "kind": "Secret", "data": { "a": "b" }, "type": "t" }),
                json!({ "kind": "Secret", "type": "t" }),
            ),
            (
                json!({ "password": "x", "Token": "y", "pass": 1, "psk": "a b", "community": "public", "credentials": "u/p",
                    "tokens": ["a", "b"], "Credentials": { "SecretName": "leaf1" }, "credential": "leaf1",
                    "CallbackSecret": "eno-callback", "automountServiceAccountToken": false }),
                json!({ "password": "REDACTED", "Token": "REDACTED", "pass": "REDACTED", "psk": "REDACTED",
                    "community": "REDACTED", "credentials": "REDACTED", "tokens": ["REDACTED", "REDACTED"],
                    "Credentials": { "SecretName": "leaf1" }, "credential": "leaf1", "CallbackSecret": "eno-callback",
                    "automountServiceAccountToken": false }),
            ),
            (
                json!({ "args": ["--nats-url", "tls://u:p w@h", "--password=a b", "--token", "-x y", "-u", "user:pass",
                    "--port=80", "sh -c 'curl -u u:p h'"] }),
                json!({ "args": ["--nats-url", "tls://REDACTED@h", "--password=REDACTED", "--token", "REDACTED", "-u",
                    "REDACTED", "--port=80", "sh -c 'curl -u u:REDACTED h'"] }),
            ),
            (
                json!({ "env": [{ "name": "ENO_TOKEN", "value": "x" }, { "name": "ENO_NATS_CREDENTIALS", "value": "/a" },
                    { "name": "ENO_LOG", "value": "debug" }] }),
                json!({ "env": [{ "name": "ENO_TOKEN", "value": "REDACTED" }, { "name": "ENO_NATS_CREDENTIALS", "value": "/a" },
                    { "name": "ENO_LOG", "value": "debug" }] }),
            ),
            (
                json!({ "metadata": { "uid": "2f0d3c1e-8a4b-4f6e-9d2a-1b3c5d7e9f01", "resourceVersion": "123456789" },
                    "imageID": "r/eno@sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
                    "vlans": "1-20,30,100-4094" }),
                json!({ "metadata": { "uid": "2f0d3c1e-8a4b-4f6e-9d2a-1b3c5d7e9f01", "resourceVersion": "123456789" },
                    "imageID": "r/eno@sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
                    "vlans": "1-20,30,100-4094" }),
            ),
        ] {
            let mut redacted = given.clone();
            Redactor::default().value(&mut redacted);
            assert_eq!(redacted, expected, "{given}");
            let mut again = Redactor::default();
            again.value(&mut redacted);
            assert_eq!((redacted, again.found.len()), (expected, 0), "redacted twice: {given}");
        }
    }

    #[test]
    fn what_was_taken_out_is_noted_with_place_and_reason() {
        let mut redactor = Redactor::default();
        redactor.value(&mut json!({ "spec": { "containers": [
            { "args": ["--token", "x"], "env": [{ "name": "A", "value": "b" }] },
            { "args": ["--token=x"], "command": ["nats://u:p@h"] },
        ] } }));
        let found: Vec<_> = redactor.into_found().collect();
        let place = |field: &str| format!("spec.containers.{field}");
        let expected = [
            (place("args"), Why::Argument, 2),
            (place("command"), Why::UrlUser, 1),
            (place("env"), Why::Environment, 1),
        ];
        assert_eq!(found, expected);
        let mut redactor = Redactor::default();
        for number in 0..1_000 {
            redactor.value(&mut json!({ format!("f{number}"): { "password": "x" } }));
        }
        let found: Vec<_> = redactor.into_found().collect();
        assert_eq!(
            (found.len(), found.iter().map(|(_, _, count)| count).sum::<u64>()),
            (MAX_PLACES + 1, 1_000)
        );
    }

    #[test]
    fn config_maps_are_redacted_by_their_keys_too() {
        let object = json!({ "metadata": { "name": "c" }, "data": { "admin.password": "x", "a.yaml": "psk: |\n  x\nb: c" },
            "binaryData": { "b": "AA==" } });
        let mut object: DynamicObject = serde_json::from_value(object).expect("an object");
        Redactor::default().config_map(&mut object);
        let data = json!({ "admin.password": "REDACTED", "a.yaml": "psk: REDACTED\nb: c" });
        assert_eq!((&object.data["data"], &object.data["binaryData"]["b"]), (&data, &json!("REDACTED")));
    }

    #[test]
    fn keys_are_redacted_by_their_form() {
        let seed = "seed SUAIBDPBAUTWCWBKIO6XHQNINK5FWJW4OHLXC3HQ2KFE4PEJUA44CNHTC4.";
        let key = format!("a {PEM} b");
        for (given, expected) in [
            (seed, "seed REDACTED."),
            (key.as_str(), "a REDACTED b"),
            ("a -----BEGIN PRIVATE KEY-----\nMIIE", "a REDACTED"),
            ("Bearer eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJr.c2ln", "Bearer REDACTED"),
            ("whsec_YWJj, whsk_YWJj", "REDACTED, REDACTED"),
        ] {
            assert_eq!(Redactor::default().text(given), expected);
        }
    }

    #[test]
    fn keys_in_logs_are_left_out() {
        let mut redactor = Redactor::default();
        let log = format!("before\n{PEM}\nafter");
        let kept: Vec<String> = log.lines().filter_map(|line| redactor.line(line)).collect();
        assert_eq!(kept, ["before", "REDACTED", "after"]);
    }
}
