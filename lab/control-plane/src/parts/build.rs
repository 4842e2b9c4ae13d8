//! Builds a part from its Go module.

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

use super::version::Version;
use super::{Event, Part, PartsError, Recipe, StderrProgress};

/// The oldest Go that downloads the toolchain of a module by itself.
const OLDEST_GO: Version = Version(1, 21, 0);
const OLDEST_GO_NAME: &str = "1.21";
/// Maximum lines of build output in an error.
const MAX_OUTPUT_LINES: usize = 30;

/// Writes the module into `source` and builds it there into the file `to`.
pub(super) async fn build(
    part: Part,
    recipe: &Recipe,
    source: &Path,
    to: &Path,
    progress: &StderrProgress,
) -> Result<(), PartsError> {
    let version = recipe.module.version_of(recipe.package);
    if !is_go_usable().await {
        return Err(PartsError::NoGo { part, version, go: OLDEST_GO_NAME });
    }
    recipe.module.write_to(source).map_err(|error| PartsError::Cache {
        operation: "writing the module",
        path: source.to_owned(),
        source: error,
    })?;
    progress.report(Event::Building { part: part.program(), version });
    let failed = |status: String, output: &VecDeque<String>| PartsError::Build {
        part,
        version,
        status,
        output: output.iter().map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n"),
    };
    let mut lines = VecDeque::with_capacity(MAX_OUTPUT_LINES);
    let status = run(go_build(recipe, source, to), |packages, line| {
        progress.report(Event::Step { part: part.program(), packages, line });
        if lines.len() == MAX_OUTPUT_LINES {
            lines.pop_front();
        }
        lines.push_back(line.to_owned());
    })
    .await
    .map_err(|error| failed(error.to_string(), &VecDeque::new()))?;
    if status.success() { Ok(()) } else { Err(failed(status.to_string(), &lines)) }
}

/// A `go` command that ignores the user's settings, for reproducible results.
pub(super) fn go() -> Command {
    let mut command = Command::new("go");
    command
        .env("CGO_ENABLED", "0")
        .env("GOWORK", "off")
        .env("GOFLAGS", "")
        .stdin(Stdio::null())
        .kill_on_drop(true);
    command
}

fn go_build(recipe: &Recipe, source: &Path, to: &Path) -> Command {
    let mut command = go();
    command
        .current_dir(source)
        .args(["build", "-v", "-mod=readonly", "-trimpath", "-ldflags"])
        .arg(recipe.module.linker_flags())
        .arg("-o")
        .arg(to)
        .arg(recipe.package)
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    command
}

async fn is_go_usable() -> bool {
    match go().arg("version").output().await {
        Ok(output) => {
            // Development versions of Go have no version number: accept them.
            Version::find(&String::from_utf8_lossy(&output.stdout)).is_none_or(|version| version >= OLDEST_GO)
        }
        Err(_) => false,
    }
}

/// Runs a build to its end. Calls `line_seen` for each line with the number of packages so far.
async fn run(
    mut command: Command,
    mut line_seen: impl FnMut(usize, &str),
) -> io::Result<std::process::ExitStatus> {
    let mut child = command.spawn()?;
    if let Some(stderr) = child.stderr.take() {
        let mut lines = BufReader::new(stderr).lines();
        let mut packages = 0;
        while let Some(line) = lines.next_line().await? {
            // `go build -v` writes the import path of each package on a line of its own.
            packages += usize::from(!line.contains(' '));
            line_seen(packages, &line);
        }
    }
    child.wait().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn run_counts_packages_and_returns_exit_status() {
        let mut command = Command::new("sh");
        command
            .args(["-c", "printf 'go: downloading a v1\\nfmt\\nos\\n' >&2; exit 3"])
            .stderr(Stdio::piped());
        let mut seen = Vec::new();
        let status = run(command, |packages, line| seen.push((packages, line.to_owned()))).await.unwrap();
        assert_eq!(status.code(), Some(3));
        assert_eq!(
            seen,
            [(0, "go: downloading a v1".to_owned()), (1, "fmt".to_owned()), (2, "os".to_owned())]
        );
    }
}
