//! The Go modules in a program, as the program itself names them.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};

use super::{Component, licence_texts};

/// The licence of a program's main module, and the modules that it is linked with.
pub(super) fn components(program: &Path) -> anyhow::Result<(String, Vec<Component>)> {
    let modules = parse(&go(&["version", "-m"], Some(program))?);
    let cache = PathBuf::from(go(&["env", "GOMODCACHE"], None)?.trim());
    let mut licence = String::new();
    let mut components = Vec::new();
    for module in modules {
        let directory = cache.join(format!("{}@{}", escape(&module.path), escape(&module.version)));
        let texts = licence_texts(&directory)?;
        if module.is_main {
            licence = texts.join("\n\n") + "\n";
        }
        components.push(Component {
            purl: format!("pkg:golang/{}@{}", module.path, module.version),
            name: module.path,
            version: module.version,
            licence: None,
            texts,
            sha256: None,
        });
    }
    ensure!(!licence.is_empty(), "{} names no main module with a licence", program.display());
    components.sort();
    Ok((licence, components))
}

fn go(arguments: &[&str], path: Option<&Path>) -> anyhow::Result<String> {
    let mut command = Command::new("go");
    let output = command.args(arguments).args(path).output().context("running go")?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "go {}: {}", arguments.join(" "), error.trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[derive(Debug, PartialEq, Eq)]
struct GoModule {
    path: String,
    version: String,
    /// Whether the program is of this module.
    is_main: bool,
}

/// Parses the output of `go version -m`: lines of `path`, `mod`, `dep` and `=>`, separated by tabs. The program is of
/// the module that its `path` begins with. A module without a version is one of this project.
fn parse(text: &str) -> Vec<GoModule> {
    let fields = |line: &str| line.trim().split('\t').map(str::to_owned).collect::<Vec<_>>();
    let lines: Vec<_> = text.lines().map(fields).collect();
    let program = lines.iter().find(|line| line[0] == "path").and_then(|line| line.get(1).cloned());
    let program = program.unwrap_or_default();
    let module = |line: &Vec<String>| match &line[..] {
        [kind, path, version, ..]
            if ["mod", "dep", "=>"].contains(&kind.as_str()) && version.starts_with('v') =>
        {
            Some(GoModule {
                is_main: program == *path || program.starts_with(&format!("{path}/")),
                path: path.clone(),
                version: version.clone(),
            })
        }
        _ => None,
    };
    lines.iter().filter_map(module).collect()
}

/// Escapes a path as Go's module cache does: a capital letter becomes `!` and the small one.
fn escape(path: &str) -> String {
    let mut escaped = String::new();
    for c in path.chars() {
        if c.is_ascii_uppercase() {
            escaped.push('!');
        }
        escaped.push(c.to_ascii_lowercase());
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_of_program_are_read_from_build_information() {
        let text = "nats-server: go1.26.8\n\tpath\tgithub.com/nats-io/nats-server/v2\n\
                    \tmod\tgithub.com/nats-io/nats-server/v2\tv2.15.2\th1:a=\n\tdep\teno.invalid/tools\t(devel)\t\n\tdep\tgithub.com/A/b\tv1.0.0\th1:b=\n\
                    \tbuild\t-trimpath=true\n";
        let modules = parse(text);
        let is_main: Vec<_> = modules.iter().map(|module| (module.path.as_str(), module.is_main)).collect();
        assert_eq!(is_main, [("github.com/nats-io/nats-server/v2", true), ("github.com/A/b", false)]);
        assert_eq!(escape(&modules[1].path), "github.com/!a/b");
    }
}
