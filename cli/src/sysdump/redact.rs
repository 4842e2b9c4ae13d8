//! Takes out of objects and texts what is or may be a secret. Pure.
//!
//! The rules are by the name of a field, and by the form of a text. They hold for Kubernetes objects and for messages on
//! NATS, which have the same objects in them.

use std::sync::LazyLock;

use kube::api::DynamicObject;
use regex::Regex;
use serde_json::Value;

/// The text in the place of what was taken out.
pub(crate) const REDACTED: &str = "REDACTED";

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

/// Fields whose texts are secrets, in lower case.
const SECRET_FIELDS: &[&str] = &[
    "password",
    "passwd",
    "passphrase",
    "token",
    "bearertoken",
    "clientsecret",
    "privatekey",
    "apikey",
    "seed",
];

/// Texts that are secrets by their form, with what is kept of them.
static SECRET_TEXTS: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
    let all = [
        // The user part of a URL.
        (r#"([A-Za-z][A-Za-z0-9+.-]*://)[^/\s"'<>@]+@"#, "${1}REDACTED@"),
        (r"(?s)-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----.*?(-----END [A-Z0-9 ]*PRIVATE KEY-----|\z)", REDACTED),
        // The seed of an nkey: S, its kind, base32.
        (r"S[A-Z][A-Z2-7]{54,}", REDACTED),
        // A JSON Web Token, such as that of a service account.
        (r"eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*", REDACTED),
        // A signing key of callbacks (Standard Webhooks).
        (r"whs(ec|k)_[A-Za-z0-9+/=_-]+", REDACTED),
    ];
    compiled(&all)
});

/// Settings of configuration files that are secrets.
static SECRET_SETTINGS: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
    let names = "[Pp]ass(word|wd|phrase)|PASS(WORD|WD|PHRASE)|[Tt]oken|TOKEN|[Ss]ecret|SECRET|[Aa]pi[_-]?[Kk]ey|API_KEY";
    // A reference such as $ROUTE_PASSWORD is no value.
    let setting = format!(r#"((?:{names})["']?[ \t]*[:=][ \t]*["']?)[^\s"'$,;}}]+"#);
    compiled(&[(setting.as_str(), "${1}REDACTED")])
});

/// The expressions, which are constants and tested.
fn compiled<'a>(all: &[(&str, &'a str)]) -> Vec<(Regex, &'a str)> {
    all.iter().filter_map(|(pattern, kept)| Some((Regex::new(pattern).ok()?, *kept))).collect()
}

/// Redacts a Kubernetes object or a message.
pub(crate) fn value(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            if fields.get("kind").and_then(Value::as_str) == Some("Secret") {
                fields.retain(|name, _| !matches!(name.as_str(), "data" | "stringData"));
            }
            fields.remove("managedFields");
            for (name, field) in fields.iter_mut() {
                redact_field(&name.to_ascii_lowercase(), field);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(self::value),
        Value::String(text) => replace(text, &SECRET_TEXTS),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Redacts an object as [`value`] does.
pub(crate) fn object(object: &DynamicObject) -> serde_json::Result<DynamicObject> {
    let mut redacted = serde_json::to_value(object)?;
    value(&mut redacted);
    serde_json::from_value(redacted)
}

/// Redacts a text of any kind, such as a log.
pub(crate) fn text(text: &str) -> String {
    let mut text = text.to_owned();
    replace(&mut text, &SECRET_TEXTS);
    text
}

/// Redacts the content of a configuration file.
pub(crate) fn settings(text: &str) -> String {
    let mut text = self::text(text);
    replace(&mut text, &SECRET_SETTINGS);
    text
}

fn replace(text: &mut String, rules: &[(Regex, &str)]) {
    for (pattern, kept) in rules {
        if let std::borrow::Cow::Owned(replaced) = pattern.replace_all(text, *kept) {
            *text = replaced;
        }
    }
}

/// Redacts a field by its name in lower case.
fn redact_field(name: &str, field: &mut Value) {
    match (name, field) {
        ("annotations", Value::Object(all)) => {
            all.retain(|name, _| ANNOTATIONS.iter().any(|kept| name.starts_with(kept)));
            all.values_mut().for_each(value);
        }
        ("callbackurl", Value::String(url)) => *url = callback_url(url),
        ("env", Value::Array(variables)) => variables.iter_mut().for_each(variable),
        ("httpheaders", Value::Array(headers)) => {
            headers
                .iter_mut()
                .filter_map(|header| header.get_mut("value"))
                .for_each(|value| *value = REDACTED.into());
        }
        (name, Value::String(text)) if SECRET_FIELDS.contains(&name) => REDACTED.clone_into(text),
        (_, field) => value(field),
    }
}

/// Redacts an environment variable of a container. Those of ENO are settings; a program of others may get a secret so.
fn variable(variable: &mut Value) {
    let is_own = variable["name"].as_str().is_some_and(|name| name.starts_with("ENO_"));
    if let Some(text) = variable.get_mut("value").filter(|_| !is_own) {
        *text = REDACTED.into();
    }
    value(variable);
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

/// Redacts a log line by line: a private key has several lines.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    in_key: bool,
}

impl Lines {
    /// The redacted line; `None`: it is inside a private key.
    pub(crate) fn line(&mut self, line: &str) -> Option<String> {
        let is_key = |edge: &str| line.contains(edge) && line.contains("PRIVATE KEY-----");
        if self.in_key {
            self.in_key = !is_key("-----END ");
            return None;
        }
        self.in_key = is_key("-----BEGIN ") && !is_key("-----END ");
        Some(text(line))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const SEED: &str = "SUAIBDPBAUTWCWBKIO6XHQNINK5FWJW4OHLXC3HQ2KFE4PEJUA44CNHTC4";
    const PEM: &str =
        "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXk\nAAAA\n-----END OPENSSH PRIVATE KEY-----";

    #[test]
    fn expressions_are_valid() {
        assert_eq!((SECRET_TEXTS.len(), SECRET_SETTINGS.len()), (5, 1));
    }

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
                json!({ "password": "x", "Token": "y", "seed": 1 }),
                json!({ "password": "REDACTED", "Token": "REDACTED", "seed": 1 }),
            ),
            (
                json!({ "args": ["--nats-url", "tls://u:p@h"] }),
                json!({ "args": ["--nats-url", "tls://REDACTED@h"] }),
            ),
        ] {
            let mut redacted = given.clone();
            value(&mut redacted);
            assert_eq!(redacted, expected, "{given}");
        }
    }

    #[test]
    fn texts_are_redacted_by_their_form() {
        let seed = format!("seed {SEED}.");
        let key = format!("a {PEM} b");
        let open_key = "a -----BEGIN PRIVATE KEY-----\nMIIE".to_owned();
        for (given, expected) in [
            (seed.as_str(), "seed REDACTED."),
            (key.as_str(), "a REDACTED b"),
            (open_key.as_str(), "a REDACTED"),
            ("Bearer eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJr.c2ln", "Bearer REDACTED"),
            ("whsec_YWJj, whsk_YWJj", "REDACTED, REDACTED"),
            ("to nats://u:p@h:4222 and ftp://x@h", "to nats://REDACTED@h:4222 and ftp://REDACTED@h"),
            ("mail a@b.c, http://h/a@b", "mail a@b.c, http://h/a@b"),
            (
                "Secret eno-devices/leaf1 has no password: add it",
                "Secret eno-devices/leaf1 has no password: add it",
            ),
        ] {
            assert_eq!(text(given), expected);
        }
        for (given, expected) in [
            ("password: hunter2", "password: REDACTED"),
            ("\"token\": \"abc\"", "\"token\": \"REDACTED\""),
            ("ROUTE_PASSWORD=abc def", "ROUTE_PASSWORD=REDACTED def"),
            ("password: $ROUTE_PASSWORD", "password: $ROUTE_PASSWORD"),
            ("nkey: $ENGINE_NKEY", "nkey: $ENGINE_NKEY"),
        ] {
            assert_eq!(settings(given), expected);
        }
    }

    #[test]
    fn keys_in_logs_are_left_out() {
        let mut lines = Lines::default();
        let log = format!("before\n{PEM}\nafter");
        let kept: Vec<String> = log.lines().filter_map(|line| lines.line(line)).collect();
        assert_eq!(kept, ["before", "REDACTED", "after"]);
    }
}
