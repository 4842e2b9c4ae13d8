//! What a program is made of: the bill of materials and the licences.

use std::collections::BTreeMap;

use serde_json::json;

use super::About;

/// A library in a program.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Component {
    /// Its name: that of the crate, or the path of the Go module.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Its package URL, such as `pkg:cargo/serde@1.0.0`.
    pub purl: String,
    /// Its licence, an SPDX expression, if it names one.
    pub licence: Option<String>,
    /// The texts of its licences and notices.
    pub texts: Vec<String>,
    /// The SHA-256 of its archive in hexadecimal, if it is known.
    pub sha256: Option<String>,
}

/// The bill of materials in CycloneDX 1.6 (JSON). It has no serial number and no time but that of the commit, so that
/// it is the same for the same commit. The crate `serde-cyclonedx` has the types of the whole format, for these fields.
pub fn bill_of_materials(name: &str, about: &About, created: &str, components: &[Component]) -> String {
    let component = |component: &Component| {
        let mut one = json!({
            "type": "library",
            "bom-ref": component.purl,
            "name": component.name,
            "version": component.version,
            "purl": component.purl,
        });
        if let Some(expression) = &component.licence {
            one["licenses"] = json!([{ "expression": expression }]);
        }
        if let Some(sha256) = &component.sha256 {
            one["hashes"] = json!([{ "alg": "SHA-256", "content": sha256 }]);
        }
        one
    };
    let bill = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "timestamp": created,
            "component": {
                "type": "container",
                "bom-ref": name,
                "name": name,
                "version": about.version,
                "properties": [
                    { "name": "commit", "value": about.commit },
                    { "name": "target", "value": about.target },
                ],
            },
        },
        "components": components.iter().map(component).collect::<Vec<_>>(),
    });
    // A value of JSON always has a text.
    serde_json::to_string_pretty(&bill).unwrap_or_default() + "\n"
}

/// The licences of all components. Each text appears once, below the components that have it.
pub fn licences(components: &[Component]) -> String {
    let mut by_text: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let mut text = String::from("The libraries in this image, with their licences.\n\n");
    for component in components {
        let name = format!("{} {}", component.name, component.version);
        let licence = component.licence.as_deref().unwrap_or("see its text below");
        text.extend([&name, ": ", licence, "\n"]);
        for licence in &component.texts {
            by_text.entry(licence).or_default().push(name.clone());
        }
    }
    let mut texts: Vec<_> = by_text.into_iter().collect();
    texts.sort_by(|one, other| one.1.cmp(&other.1).then(one.0.cmp(other.0)));
    for (licence, names) in texts {
        text.extend(["\n", &"-".repeat(80), "\n", &names.join(", "), "\n\n", licence, "\n"]);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn component(name: &str, text: &str) -> Component {
        Component {
            name: name.to_owned(),
            version: "1".to_owned(),
            purl: format!("pkg:cargo/{name}@1"),
            licence: Some("MIT".to_owned()),
            texts: vec![text.to_owned()],
            sha256: None,
        }
    }

    #[test]
    fn licences_contain_each_text_once() {
        let text = licences(&[component("a", "one"), component("b", "two"), component("c", "one")]);
        assert_eq!(text.matches("\none\n").count(), 1, "{text}");
        assert!(text.contains("\na 1, c 1\n\none\n") && text.contains("\nb 1\n\ntwo\n"), "{text}");
        assert!(text.contains("b 1: MIT\n"), "{text}");
    }

    #[test]
    fn bill_of_materials_names_commit_and_components() {
        let about = About {
            version: "0.1.0".to_owned(),
            commit: "abc".to_owned(),
            time: 0,
            target: "x86_64-unknown-linux-musl".to_owned(),
        };
        let text = bill_of_materials("eno", &about, "1970-01-01T00:00:00Z", &[component("a", "one")]);
        let bill: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(bill["metadata"]["component"]["properties"][0]["value"], "abc");
        assert_eq!(bill["components"][0]["purl"], "pkg:cargo/a@1");
    }
}
