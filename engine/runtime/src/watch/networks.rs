//! Which NetworkAttachmentDefinitions a pod uses. Pure.

use std::collections::{BTreeMap, BTreeSet};

use eno_core::Name;
use eno_nbi_crds::ATTACH_LABEL_PREFIX;
use serde::Deserialize;

/// The annotation of Multus.
const NETWORKS: &str = "k8s.v1.cni.cncf.io/networks";

/// Namespaces and names of the NADs that a pod uses, ascending and without duplicates. They come from the Multus
/// annotation, and from labels `attach.eno.k8s.io/<attachment>` for its own namespace, whatever their value. An
/// unreadable annotation names none: Multus would refuse the pod.
pub fn used(
    namespace: &str,
    annotations: Option<&BTreeMap<String, String>>,
    labels: Option<&BTreeMap<String, String>>,
) -> Vec<(Name, Name)> {
    let mut names = BTreeSet::new();
    if let Some(text) = annotations.and_then(|all| all.get(NETWORKS)) {
        names.extend(annotation(namespace, text));
    }
    for label in labels.into_iter().flat_map(BTreeMap::keys) {
        if let Some(name) = label.strip_prefix(ATTACH_LABEL_PREFIX).filter(|name| !name.is_empty()) {
            names.insert((namespace.into(), name.into()));
        }
    }
    names.into_iter().collect()
}

#[derive(Deserialize)]
struct Element {
    name: String,
    namespace: Option<String>,
}

fn annotation(own: &str, text: &str) -> Vec<(Name, Name)> {
    let text = text.trim();
    if text.starts_with('[') {
        let elements: Vec<Element> = serde_json::from_str(text).unwrap_or_default();
        let named = elements.into_iter().map(|element| {
            let namespace = element.namespace.filter(|namespace| !namespace.is_empty());
            (namespace.as_deref().unwrap_or(own).into(), element.name.as_str().into())
        });
        return named.collect();
    }
    let items = text.split(',').map(str::trim).filter_map(|item| {
        let item = item.split_once('@').map_or(item, |(name, _)| name);
        let (namespace, name) = item.split_once('/').unwrap_or((own, item));
        (!name.is_empty()).then(|| (namespace.into(), name.into()))
    });
    items.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(annotation: &str, labels: &[&str]) -> Vec<String> {
        let annotations = BTreeMap::from([(NETWORKS.to_owned(), annotation.to_owned())]);
        let labels = labels.iter().map(|label| ((*label).to_owned(), String::new())).collect();
        let used = used("ns", Some(&annotations), Some(&labels));
        used.iter().map(|(namespace, name)| format!("{namespace}/{name}")).collect()
    }

    #[test]
    fn annotation_in_short_form_names_networks() {
        assert_eq!(of("a", &[]), ["ns/a"]);
        assert_eq!(of(" b@net1 , ns/a,other/c, ", &[]), ["ns/a", "ns/b", "other/c"]);
        assert_eq!(of("ns/a@eth5,a", &[]), ["ns/a"]);
        assert_eq!(of("", &[]), [""; 0]);
    }

    #[test]
    fn annotation_as_json_list_names_networks() {
        let text = r#"[{"name":"a"},{"name":"b","namespace":"ns","interface":"net1","ips":["10.0.0.1/24"]},
                       {"name":"c","namespace":"other"},{"name":"d","namespace":""}]"#;
        assert_eq!(of(text, &[]), ["ns/a", "ns/b", "ns/d", "other/c"]);
        assert_eq!(of("[{", &[]), [""; 0]);
        assert_eq!(of(r#"[{"no":"name"}]"#, &[]), [""; 0]);
    }

    #[test]
    fn attach_labels_name_networks() {
        assert_eq!(of("a", &["attach.eno.k8s.io/b", "attach.eno.k8s.io/", "app"]), ["ns/a", "ns/b"]);
        assert!(used("ns", None, None).is_empty());
    }
}
