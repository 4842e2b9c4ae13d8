use proptest::prelude::*;
use serde::Deserialize;

use super::*;

/// Annotations with the verdict of `parsePodNetworkAnnotation` of Multus 4.3.0, in the namespace `ns`.
const TABLE: &str = include_str!("multus.jsonl");

#[derive(Debug, Deserialize)]
struct Row {
    input: String,
    /// The names that Multus takes, with their namespaces; `None`: it refuses the annotation.
    multus: Option<Vec<String>>,
    /// The names that this reader takes, where it takes more.
    ours: Option<Vec<String>>,
    /// This reader can't read it.
    #[serde(default)]
    unclear: bool,
}

fn of(annotations: &[(&str, &str)], labels: &[&str]) -> Uses {
    let annotations = annotations.iter().map(|(key, text)| ((*key).to_owned(), (*text).to_owned())).collect();
    let labels = labels.iter().map(|label| ((*label).to_owned(), String::new())).collect();
    used("ns", Some(&annotations), Some(&labels), "multus")
}

fn names(all: &[&str]) -> Uses {
    let split = |name: &&str| {
        let (namespace, name) = name.split_once('/').unwrap();
        (namespace.into(), name.into())
    };
    let all: BTreeSet<(Name, Name)> =
        all.iter().map(split).filter(|(_, name): &(_, Name)| !name.is_empty()).collect();
    Uses::Named(all.into_iter().collect())
}

#[test]
fn verdicts_are_those_of_multus() {
    for line in TABLE.lines() {
        let row: Row = serde_json::from_str(line).unwrap();
        let found = of(&[(NETWORKS, &row.input)], &[]);
        if row.unclear {
            assert!(matches!(found, Uses::Any(_)), "{line}: {found:?}");
            continue;
        }
        let expected = row.ours.or(row.multus).unwrap_or_default();
        assert_eq!(found, names(&expected.iter().map(String::as_str).collect::<Vec<_>>()), "{line}");
    }
    assert!(TABLE.lines().count() > 100);
}

#[test]
fn default_network_without_a_namespace_is_in_that_of_multus() {
    for (text, expected) in [
        ("a", &["multus/a"][..]),
        ("other/a@eth0", &["other/a"]),
        (r#"[{"Name":"a"}]"#, &["multus/a"]),
        (r#"[{"name":"a","namespace":"other"}]"#, &["other/a"]),
        // Multus takes one.
        ("a,b", &[]),
        ("a,a", &[]),
        (r#"[{"name":"a"},{"name":"b"}]"#, &[]),
        ("[]", &[]),
        ("", &[]),
    ] {
        assert_eq!(of(&[(DEFAULT_NETWORK, text)], &[]), names(expected), "{text}");
    }
    assert_eq!(of(&[(DEFAULT_NETWORK, "a"), (NETWORKS, "a")], &[]), names(&["multus/a", "ns/a"]));
}

#[test]
fn attach_labels_name_networks() {
    let labels = ["attach.eno.k8s.io/b", "attach.eno.k8s.io/", "app"];
    assert_eq!(of(&[(NETWORKS, "a")], &labels), names(&["ns/a", "ns/b"]));
    // Multus does not read them.
    assert_eq!(of(&[(NETWORKS, "[{")], &labels), names(&["ns/b"]));
    assert_eq!(used("ns", None, None, "multus"), names(&[]));
}

#[test]
fn pod_with_too_many_networks_uses_any() {
    let list = |count: usize| (0..count).map(|n| format!("n{n}")).collect::<Vec<_>>().join(",");
    assert!(
        matches!(of(&[(NETWORKS, &list(MAX_NETWORKS))], &[]), Uses::Named(all) if all.len() == MAX_NETWORKS)
    );
    let more = of(&[(NETWORKS, &list(MAX_NETWORKS))], &["attach.eno.k8s.io/b"]);
    assert_eq!(more, Uses::Any("it names more than 256 networks".into()));
    // As many as an annotation can hold.
    assert_eq!(of(&[(NETWORKS, &list(46_656))], &[]), more);
    assert_eq!(of(&[(NETWORKS, &format!("{},A", list(46_656)))], &[]), names(&[]), "Multus refuses it");
}

/// A key of an element in a spelling that Go takes for it.
fn key(key: &'static str) -> impl Strategy<Value = String> {
    let letter = |(c, way): (char, u8)| match way {
        0 => c.to_string(),
        1 => c.to_ascii_uppercase().to_string(),
        2 if c == 's' => "ſ".to_owned(),
        _ => format!("\\u{:04x}", u32::from(c)),
    };
    proptest::collection::vec(0u8..4, key.len())
        .prop_map(move |ways| key.chars().zip(ways).map(letter).collect::<String>())
}

/// An element that Multus takes, with its namespace and name.
fn element() -> impl Strategy<Value = (String, (String, String))> {
    let further = prop_oneof![
        Just(String::new()),
        Just(r#","ips":["10.0.0.1/24"]"#.to_owned()),
        Just(r#","MAC":"02:00:00:00:00:01","interface":null"#.to_owned()),
        Just(r#","cni-args":{"Name":"x","a":[{"name":1}]}"#.to_owned()),
        Just(r#","x":{"namespace":[]},"names":7"#.to_owned()),
        "[a-z\u{e9}]{1,4}".prop_map(|key| format!(r#","x-{key}":[null,1e9,"{key}"]"#)),
    ];
    let text = ("[a-z]{1,5}", "[a-z]{0,3}", key("name"), key("namespace"), further, "[ \t\r\n]{0,2}");
    text.prop_map(|(name, namespace, name_key, namespace_key, further, space)| {
        let fields = format!(r#"{space}"{name_key}"{space}:"{name}",{space}"{namespace_key}":"{namespace}""#);
        (format!("{{{fields}{further}}}"), (namespace, name))
    })
}

proptest! {
    /// No text makes the reader panic.
    #[test]
    fn any_text_is_judged(text in r#"[\PC\n]{0,40}|[\[\]{}":,a\\ud8n0e-]{0,60}"#) {
        of(&[(NETWORKS, &text), (DEFAULT_NETWORK, &text)], &[]);
    }

    /// No user is missed: all that Multus takes is seen.
    #[test]
    fn elements_that_multus_takes_are_seen(all in proptest::collection::vec(element(), 0..5)) {
        let text = format!("[{}]", all.iter().map(|(text, _)| text.as_str()).collect::<Vec<_>>().join(","));
        let full = |(_, (namespace, name)): &(String, (String, String))| {
            format!("{}/{name}", if namespace.is_empty() { "ns" } else { namespace })
        };
        let expected: Vec<String> = all.iter().map(full).collect();
        let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
        prop_assert_eq!(of(&[(NETWORKS, &text)], &[]), names(&expected), "{}", text);
    }

    /// The same for the short form.
    #[test]
    fn names_that_multus_takes_are_seen(
        all in proptest::collection::vec(("[a-z0-9]([-a-z0-9]{0,3}[a-z0-9])?", "[a-z]{0,3}", "[a-z0-9]{0,15}", "[ \t]?"), 1..5)
    ) {
        let item = |(name, namespace, interface, space): &(String, String, String, String)| {
            let slash = if namespace.is_empty() { "" } else { "/" };
            let at = if interface.is_empty() { "" } else { "@" };
            format!("{space}{namespace}{space}{slash}{space}{name}{space}{at}{space}{interface}{space}")
        };
        let text = all.iter().map(item).collect::<Vec<_>>().join(",");
        let full = |(name, namespace, ..): &(String, String, String, String)| {
            format!("{}/{name}", if namespace.is_empty() { "ns" } else { namespace })
        };
        let expected: Vec<String> = all.iter().map(full).collect();
        let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
        prop_assert_eq!(of(&[(NETWORKS, &text)], &[]), names(&expected), "{}", text);
    }
}
