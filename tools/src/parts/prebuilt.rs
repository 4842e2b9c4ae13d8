//! Prebuilt parts, by setup-envtest: it downloads what the Kubernetes project publishes for tests, and
//! checks it against the published hashes.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{Part, Recipe, build};

const SETUP_ENVTEST: &str = "sigs.k8s.io/controller-runtime/tools/setup-envtest@v0.25.1";

/// Short, since a build is the other way: without a network this is all that is lost.
const TIMEOUT: Duration = Duration::from_secs(45);

/// Whether setup-envtest has such a part at all.
pub(super) fn offers(part: Part) -> bool {
    matches!(part, Part::Etcd | Part::KubeApiserver | Part::Kubectl)
}

/// Downloads the pinned Kubernetes version and returns the path of the part in it, or why not, for people.
pub(super) async fn fetch(recipe: &Recipe, directory: &Path) -> Result<PathBuf, String> {
    let version = recipe.module.version_of("k8s.io/kubernetes").trim_start_matches('v');
    let mut command = build::go();
    command.args(["run", SETUP_ENVTEST, "use", version, "--print", "path", "--bin-dir"]).arg(directory);
    let output = match tokio::time::timeout(TIMEOUT, command.output()).await {
        Err(_) => return Err(format!("no prebuilt one within {} s", TIMEOUT.as_secs())),
        Ok(Err(error)) => return Err(format!("no prebuilt one: go: {error}")),
        Ok(Ok(output)) => output,
    };
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let last = said.lines().rev().find(|line| !line.starts_with("exit status")).unwrap_or_default();
        return Err(format!("no prebuilt one: {}", last.trim()));
    }
    Ok(Path::new(String::from_utf8_lossy(&output.stdout).trim()).join(recipe.program))
}
