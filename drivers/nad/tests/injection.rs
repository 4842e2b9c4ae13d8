//! Texts of an attachment can't change its CNI configuration's plugin or add keys to it.

use std::collections::BTreeSet;
use std::path::Path;

use eno_driver_nad::codec::render;
use eno_schemas::VlanAttachment;
use proptest::prelude::*;
use serde_json::{Value, json};

const TEXTS: [&str; 8] = [
    "\",\"type\":\"host-device\",\"device\":\"eth0",
    "\"}}",
    "\\\",\\\"x\\\":\\\"",
    "\\u0022,\\u0022x",
    "a\nb\u{0}c\u{1b}",
    "\u{2028}\u{202e}",
    "${x}$(y)`z`",
    "]]></config>",
];

/// The attachments of the golden files.
fn attachments() -> Vec<Value> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let files = std::fs::read_dir(folder).expect("the folder of golden files");
    let read = |path: &Path| std::fs::read_to_string(path).expect("a golden file");
    files
        .map(|entry| serde_json::from_str::<Value>(&read(&entry.expect("an entry").path())).expect("JSON"))
        .map(|golden| golden["attachment"].clone())
        .collect()
}

fn texts(value: &Value, at: &str, found: &mut Vec<String>) {
    match value {
        Value::String(_) => found.push(at.to_owned()),
        Value::Array(all) => {
            all.iter().enumerate().for_each(|(n, one)| texts(one, &format!("{at}/{n}"), found));
        }
        Value::Object(all) => all.iter().for_each(|(key, one)| texts(one, &format!("{at}/{key}"), found)),
        _ => {}
    }
}

/// All keys at any depth.
fn keys(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Array(all) => all.iter().for_each(|one| keys(one, found)),
        Value::Object(all) => all.iter().for_each(|(key, one)| {
            found.insert(key.clone());
            keys(one, found);
        }),
        _ => {}
    }
}

/// The configuration of an attachment; `None`: it is invalid or unsupported.
fn made(attachment: &Value) -> Option<Value> {
    let attachment: VlanAttachment = serde_json::from_value(attachment.clone()).ok()?;
    let rendered = render("net", &attachment).ok()?;
    Some(serde_json::from_str(&rendered.config).expect("a configuration is JSON"))
}

/// Replaces each text of each attachment by `text`; returns the number of rendered ones.
fn with(text: &str) -> usize {
    let mut replaced = 0;
    let mut known = BTreeSet::new();
    attachments().iter().filter_map(made).for_each(|config| keys(&config, &mut known));
    for attachment in attachments() {
        let Some(before) = made(&attachment) else { continue };
        let mut places = Vec::new();
        texts(&attachment, "", &mut places);
        for place in places {
            let mut changed = attachment.clone();
            *changed.pointer_mut(&place).expect("the place of a text") = json!(text);
            if let Some(after) = made(&changed) {
                let mut found = BTreeSet::new();
                keys(&after, &mut found);
                assert!(found.is_subset(&known), "{place}: {text:?}: {after}");
                assert_eq!(after["type"], before["type"], "{place}: {text:?}");
                replaced += 1;
            }
        }
    }
    replaced
}

#[test]
fn special_texts_do_not_escape_json_strings() {
    for text in TEXTS {
        assert!(with(text) > 20, "{text:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_texts_do_not_escape_json_strings(text in r"[\PC\x00-\x1f{}\[\],:\x22\\]{0,20}") {
        with(&text);
    }
}
