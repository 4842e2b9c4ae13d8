//! Embeds the manifests of `deploy/` and `examples`, one list per folder. A manifest is added by listing it in the
//! folder's `kustomization.yaml`.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

const FOLDERS: [(&str, &str); 12] = [
    ("NAMESPACE", "deploy/namespace.yaml"),
    ("CRDS", "deploy/crds"),
    ("NAD_CRD", "deploy/nad-crd"),
    ("RBAC", "deploy/rbac"),
    ("POLICY", "deploy/policy"),
    ("AGENT", "deploy/agent"),
    ("ENGINE", "deploy/manager/engine.yaml"),
    ("NATS", "deploy/nats/nats.yaml"),
    ("ADMISSION", "deploy/admission"),
    ("DEMO", "examples/demo"),
    ("DEMO_PODS", "examples/pods"),
    ("DEMO_GATEWAY", "examples/gateway"),
];

fn main() -> io::Result<()> {
    let variable = |name| env::var_os(name).map(PathBuf::from).ok_or_else(|| io::Error::other(name));
    let root = variable("CARGO_MANIFEST_DIR")?.join("..").canonicalize()?;
    let mut code = String::new();
    for (name, path) in FOLDERS {
        let path = root.join(path);
        println!("cargo::rerun-if-changed={}", path.display());
        let _ = writeln!(code, "pub(super) const {name}: &[Text] = &[");
        for file in manifests(&path)? {
            let shown = file.strip_prefix(&root).unwrap_or(&file).display();
            let _ = writeln!(
                code,
                "    Text {{ path: {:?}, yaml: include_str!({:?}) }},",
                shown.to_string(),
                file.display().to_string()
            );
        }
        code.push_str("];\n");
    }
    fs::write(variable("OUT_DIR")?.join("manifests.rs"), code)
}

/// The manifest itself, or the ones that the folder's `kustomization.yaml` lists, in that order.
fn manifests(path: &Path) -> io::Result<Vec<PathBuf>> {
    if path.is_file() {
        return Ok(vec![path.to_owned()]);
    }
    let kustomization = fs::read_to_string(path.join("kustomization.yaml"))?;
    let listed = kustomization.lines().filter_map(|line| line.trim().strip_prefix("- "));
    let manifests = listed.map(|name| path.join(name));
    Ok(manifests.filter(|file| file.extension().is_some_and(|extension| extension == "yaml")).collect())
}
