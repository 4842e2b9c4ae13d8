//! The crates in programs of this workspace, as `cargo metadata` resolves them for a target.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::Context as _;
use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, PackageId};

use super::{Component, licence_texts};

/// The crates that these packages of the workspace are linked with, sorted; without those of the workspace.
pub(super) fn components(
    workspace: &Path,
    target: &str,
    packages: &[&str],
) -> anyhow::Result<Vec<Component>> {
    let metadata = MetadataCommand::new()
        .manifest_path(workspace.join("Cargo.toml"))
        .other_options(["--locked", "--filter-platform", target].map(str::to_owned))
        .exec()
        .with_context(|| format!("cargo metadata of {}", workspace.display()))?;
    let checksums = checksums(workspace)?;
    let linked = linked(&metadata, packages);
    let mut components = Vec::new();
    for package in metadata.packages.iter().filter(|one| one.source.is_some() && linked.contains(&one.id)) {
        let directory = package.manifest_path.parent().unwrap_or(&package.manifest_path);
        let (name, version) = (package.name.to_string(), package.version.to_string());
        components.push(Component {
            purl: format!("pkg:cargo/{name}@{version}"),
            licence: package.license.clone(),
            texts: licence_texts(directory.as_std_path())?,
            sha256: checksums.get(&(name.clone(), version.clone())).cloned(),
            name,
            version,
        });
    }
    components.sort();
    Ok(components)
}

/// The packages that are reached by normal dependencies. Those of procedural macros are among them.
fn linked(metadata: &Metadata, packages: &[&str]) -> BTreeSet<PackageId> {
    let Some(resolve) = &metadata.resolve else { return BTreeSet::new() };
    let nodes: BTreeMap<_, _> = resolve.nodes.iter().map(|node| (&node.id, node)).collect();
    let roots = metadata.workspace_packages().into_iter();
    let mut open: Vec<_> =
        roots.filter(|one| packages.contains(&one.name.as_str())).map(|one| &one.id).collect();
    let mut linked = BTreeSet::new();
    while let Some(id) = open.pop() {
        if !linked.insert(id.clone()) {
            continue;
        }
        let dependencies = nodes.get(id).into_iter().flat_map(|node| &node.deps);
        let is_normal = |kinds: &[cargo_metadata::DepKindInfo]| {
            kinds.iter().any(|kind| kind.kind == DependencyKind::Normal)
        };
        open.extend(dependencies.filter(|one| is_normal(&one.dep_kinds)).map(|one| &one.pkg));
    }
    linked
}

/// The SHA-256 of the crates' archives by name and version, from Cargo.lock.
fn checksums(workspace: &Path) -> anyhow::Result<BTreeMap<(String, String), String>> {
    let path = workspace.join("Cargo.lock");
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    Ok(parse_lock(&text))
}

/// Reads what `cargo` writes: blocks `[[package]]` of lines `key = "value"`.
fn parse_lock(text: &str) -> BTreeMap<(String, String), String> {
    let block = |block: &str| {
        let value = |key: &str| {
            let line = block.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = \""));
            line.map(|line| line.trim_end_matches('"').to_owned())
        };
        Some(((value("name")?, value("version")?), value("checksum")?))
    };
    text.split("[[package]]").filter_map(block).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lock_file_gives_checksums_of_foreign_crates() {
        let text = "version = 4\n\n[[package]]\nname = \"a\"\nversion = \"1.0.0\"\nsource = \"registry\"\n\
                    checksum = \"0f\"\ndependencies = [\n \"b\",\n]\n\n[[package]]\nname = \"own\"\nversion = \"0.1.0\"\n";
        let found = parse_lock(text);
        assert_eq!(found, BTreeMap::from([(("a".to_owned(), "1.0.0".to_owned()), "0f".to_owned())]));
    }
}
