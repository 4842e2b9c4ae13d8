//! Test executables, built by cargo.

use std::env;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};
use cargo_metadata::Message;

/// Builds the integration tests of a package, where they aren't built yet; their executable. Everything is built along with it, as the tests of the
/// whole workspace do: dependencies then have the features, and thus are the artefacts, that are there already.
pub fn build(package: &str) -> Result<PathBuf> {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(["test", "--workspace", "--no-run", "--locked", "--message-format=json-render-diagnostics"]);
    // What cargo tells this test of its own package would be taken for a change by build scripts that look at it.
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
