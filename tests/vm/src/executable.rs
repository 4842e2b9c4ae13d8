//! Test executables, built by cargo.

use std::env;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};
use cargo_metadata::Message;

/// A test target of a package.
#[derive(Clone, Copy, Debug)]
pub enum Target {
    /// The tests in the library's own source.
    Lib,
    /// One of `tests`.
    Test(&'static str),
}

/// Builds a test target, where it isn't built yet; its executable.
pub fn build(package: &str, target: Target) -> Result<PathBuf> {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(["test", "--no-run", "--locked", "--message-format=json-render-diagnostics", "-p", package]);
    match target {
        Target::Lib => command.arg("--lib"),
        Target::Test(name) => command.args(["--test", name]),
    };
    let output = command.stderr(Stdio::inherit()).output().with_context(|| format!("{command:?}"))?;
    if !output.status.success() {
        bail!("{command:?}: {}", output.status);
    }
    for message in Message::parse_stream(output.stdout.as_slice()) {
        if let Message::CompilerArtifact(artifact) = message?
            && artifact.profile.test
            && let Some(executable) = artifact.executable
        {
            return Ok(executable.into());
        }
    }
    bail!("{command:?} names no executable")
}
