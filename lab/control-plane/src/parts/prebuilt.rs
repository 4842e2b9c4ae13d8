//! Downloads prebuilt parts with setup-envtest, which verifies the published hashes of the Kubernetes project.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{Part, Recipe, build};

const SETUP_ENVTEST: &str = "sigs.k8s.io/controller-runtime/tools/setup-envtest@v0.25.1";

/// Timeout of the download; short, because a build is the fallback.
const TIMEOUT: Duration = Duration::from_secs(45);

/// Whether setup-envtest provides the part.
pub(super) fn is_available(part: Part) -> bool {
    matches!(part, Part::Etcd | Part::KubeApiserver | Part::Kubectl)
}

/// Downloads the pinned Kubernetes version and returns the path of the part, or an error text.
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
        let stderr = String::from_utf8_lossy(&output.stderr);
        let last = stderr.lines().rev().find(|line| !line.starts_with("exit status")).unwrap_or_default();
        return Err(format!("no prebuilt one: {}", last.trim()));
    }
    Ok(Path::new(String::from_utf8_lossy(&output.stdout).trim()).join(recipe.program))
}
