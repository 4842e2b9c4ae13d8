//! Builds test executables with cargo.

use std::env;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};
use cargo_metadata::Message;

/// Builds the integration tests of a package if needed, and returns their executable. It builds the whole workspace's
/// tests, so that dependencies have the same features and cached artefacts are reused.
pub fn build(package: &str) -> Result<PathBuf> {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(["test", "--workspace", "--no-run", "--locked", "--message-format=json-render-diagnostics"]);
    // Build scripts that read these variables would take them for a change.
    for (name, _) in env::vars_os() {
        if name
            .to_str()
            .is_some_and(|name| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_"))
        {
            command.env_remove(name);
        }
    }
    let output = command.stderr(Stdio::inherit()).output().with_context(|| format!("{command:?}"))?;
    if !output.status.success() {
        bail!("{command:?}: {}", output.status);
    }
    let of_package = format!("#{package}@");
    for message in Message::parse_stream(output.stdout.as_slice()) {
        if let Message::CompilerArtifact(artifact) = message?
            && artifact.profile.test
            && artifact.package_id.repr.contains(&of_package)
            && artifact.target.is_test()
            && artifact.target.name == "tests"
            && let Some(executable) = artifact.executable
        {
            return Ok(executable.into());
        }
    }
    bail!("{command:?} names no executable")
}
