//! The libraries in the pages of `eno ui`, as `make console` lists them.

use std::path::Path;

use anyhow::Context as _;
use serde::Deserialize;

use super::Component;

/// The list, below the workspace.
const LIBRARIES: &str = "console/dist/libraries.json";

#[derive(Deserialize)]
struct Library {
    name: String,
    version: String,
    licence: String,
    text: String,
}

/// The libraries in the pages.
pub(super) fn components(workspace: &Path) -> anyhow::Result<Vec<Component>> {
    let text = std::fs::read_to_string(workspace.join(LIBRARIES))
        .with_context(|| format!("run make console: reading {LIBRARIES}"))?;
    let libraries: Vec<Library> =
        serde_json::from_str(&text).with_context(|| format!("run make console: {LIBRARIES} is not valid"))?;
    let component = |library: Library| Component {
        purl: format!("pkg:npm/{}@{}", library.name.replace('@', "%40"), library.version),
        name: library.name,
        version: library.version,
        licence: Some(library.licence),
        texts: vec![library.text],
        sha256: None,
    };
    Ok(libraries.into_iter().map(component).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_of_the_pages_have_their_licences() {
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a folder");
        let found = components(workspace).expect("the list");
        let preact = found.iter().find(|one| one.name == "preact").expect("preact");
        assert_eq!(preact.licence.as_deref(), Some("MIT"));
        assert!(preact.texts[0].contains("Permission is hereby granted"));
    }
}
