//! Which NetworkAttachmentDefinitions a pod uses. Pure.

use std::collections::{BTreeMap, BTreeSet};

use eno_core::Name;
use eno_nbi_crds::ATTACH_LABEL_PREFIX;
use serde::Deserialize;

/// The annotation of Multus.
const NETWORKS: &str = "k8s.v1.cni.cncf.io/networks";

/// The names of the NADs of its own namespace that a pod uses, ascending, each once: by the annotation, and by labels
/// `attach.eno.k8s.io/<attachment>`, whatever their value. What can't be read names none:
/// Multus would refuse such a pod.
pub fn used(
    namespace: &str,
    annotations: Option<&BTreeMap<String, String>>,
    labels: Option<&BTreeMap<String, String>>,
) -> Vec<Name> {
    let mut names = BTreeSet::new();
    if let Some(text) = annotations.and_then(|all| all.get(NETWORKS)) {
        names.extend(annotation(namespace, text));
    }
    for label in labels.into_iter().flat_map(BTreeMap::keys) {
        if let Some(name) = label.strip_prefix(ATTACH_LABEL_PREFIX).filter(|name| !name.is_empty()) {
            names.insert(name.to_owned());
        }
    }
    names.into_iter().map(Name::from).collect()
}

#[derive(Deserialize)]
struct Element {
    name: String,
    namespace: Option<String>,
}

fn annotation(own: &str, text: &str) -> Vec<String> {
    let text = text.trim();
    if text.starts_with('[') {
        let elements: Vec<Element> = serde_json::from_str(text).unwrap_or_default();
        return elements
            .into_iter()
            .filter(|element| {
                element.namespace.as_deref().is_none_or(|namespace| namespace.is_empty() || namespace == own)
            })
            .map(|element| element.name)
            .collect();
    }
    text.split(',')
        .map(str::trim)
        .filter_map(|item| {
            let item = item.split_once('@').map_or(item, |(name, _)| name);
            let (namespace, name) = item.split_once('/').unwrap_or((own, item));
            (namespace == own && !name.is_empty()).then(|| name.to_owned())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(annotation: &str, labels: &[&str]) -> Vec<String> {
        let annotations = BTreeMap::from([(NETWORKS.to_owned(), annotation.to_owned())]);
        let labels = labels.iter().map(|label| ((*label).to_owned(), String::new())).collect();
        used("ns", Some(&annotations), Some(&labels)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn short_form() {
        assert_eq!(of("a", &[]), ["a"]);
        assert_eq!(of(" b@net1 , ns/a,other/c, ", &[]), ["a", "b"]);
        assert_eq!(of("ns/a@eth5,a", &[]), ["a"]);
        assert_eq!(of("", &[]), [""; 0]);
    }

    #[test]
    fn json_list() {
        let text = r#"[{"name":"a"},{"name":"b","namespace":"ns","interface":"net1","ips":["10.0.0.1/24"]},
                       {"name":"c","namespace":"other"},{"name":"d","namespace":""}]"#;
        assert_eq!(of(text, &[]), ["a", "b", "d"]);
        assert_eq!(of("[{", &[]), [""; 0]);
        assert_eq!(of(r#"[{"no":"name"}]"#, &[]), [""; 0]);
    }

    #[test]
    fn labels_count_too() {
        assert_eq!(of("a", &["attach.eno.k8s.io/b", "attach.eno.k8s.io/", "app"]), ["a", "b"]);
        assert!(used("ns", None, None).is_empty());
    }
}
