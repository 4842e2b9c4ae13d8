//! The Python packages of OpenStack, and new databases that each start copies.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::str::FromStr;
use std::time::Instant;

use tokio::process::Command;

use super::{ADMIN_PASSWORD, OpenStackError, configuration};
use crate::directory::write_private;
use crate::parts::{Event, Parts, cache_error, digest, is_program};

/// The name in progress reports and in the cache.
const NAME: &str = "openstack";
const REQUIREMENTS: &str = include_str!("../../python/openstack/requirements.txt");
const MAKE_DATABASES: &str = include_str!("../../python/openstack/make_databases.py");
/// The Python of Debian, which alone finds the packages of Debian.
const DEBIAN_PYTHON: &str = "/usr/bin/python3";
/// Prints the versions of Debian's packages; fails if one is missing.
const DEBIAN_VERSIONS: &str =
    "from importlib.metadata import version as v; print(v('neutron'), v('keystone'), v('waitress'))";
/// Succeeds with a Python that can make a virtual environment for the pinned packages.
const USABLE: &str = "import ensurepip, venv, sys; sys.exit(sys.version_info < (3, 11))";
/// Maximum lines of a program's output in an error.
const MAX_OUTPUT_LINES: usize = 30;

/// A release of OpenStack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Release {
    /// The pinned packages of PyPI, which are downloaded once.
    #[default]
    Current,
    /// The installed Debian packages `python3-neutron`, `python3-keystone` and `python3-waitress`.
    Debian,
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Current => "current",
            Self::Debian => "debian",
        })
    }
}

impl FromStr for Release {
    type Err = OpenStackError;

    fn from_str(name: &str) -> Result<Self, OpenStackError> {
        [Self::Current, Self::Debian]
            .into_iter()
            .find(|release| release.to_string() == name)
            .ok_or_else(|| OpenStackError::UnknownRelease { name: name.to_owned() })
    }
}

/// The packages and the new databases of a release, in the cache.
#[derive(Debug, Clone)]
pub struct Packages {
    python: PathBuf,
    /// Directory of the databases and keys, without any object but the administrator's.
    databases: PathBuf,
}

impl Packages {
    /// Finds the packages of a release, or downloads them, which takes a minute. Concurrent processes wait for each
    /// other and download once.
    pub async fn get(parts: &Parts, release: Release) -> Result<Self, OpenStackError> {
        let (version, identity) = match release {
            Release::Current => (pinned_version().to_owned(), REQUIREMENTS.to_owned()),
            Release::Debian => {
                let versions = debian_versions().await?;
                (format!("debian-{}", versions.split(' ').next().unwrap_or_default()), versions)
            }
        };
        let name = format!("{NAME}-{version}-{}", digest([&*identity, std::env::consts::ARCH]));
        let directory = parts.cache().join(name);
        let environment = directory.join("venv");
        let templates = [MAKE_DATABASES, &configuration::template(Path::new(""))];
        let found = Self {
            python: match release {
                Release::Current => environment.join("bin/python"),
                Release::Debian => PathBuf::from(DEBIAN_PYTHON),
            },
            databases: directory.join(format!("databases-{}", digest(templates))),
        };
        if found.is_complete() {
            return Ok(found);
        }
        fs::create_dir_all(&directory).map_err(cache_error("making the directory", &directory))?;
        let _lock = parts.lock(NAME, directory.join("lock")).await?;
        if found.is_complete() {
            return Ok(found);
        }
        let started = Instant::now();
        if !is_program(&found.python) {
            let python = usable_python(parts).await?;
            parts.report(Event::Building { part: NAME, version: &version });
            make_environment(&python, &directory, &environment).await?;
        }
        if !found.databases.is_dir() {
            make_databases(&found.python, &directory, &found.databases).await?;
        }
        parts.report(Event::Done { part: NAME, took: started.elapsed() });
        Ok(found)
    }

    /// Path of a Python interpreter that has the packages.
    pub fn python(&self) -> &Path {
        &self.python
    }

    /// Whether the packages and the databases are there.
    fn is_complete(&self) -> bool {
        // The interpreter of an environment is a link to an installed one.
        is_program(&self.python) && self.databases.is_dir()
    }

    /// Copies the new databases and keys to a directory, unless it exists.
    pub(super) fn copy_databases(&self, to: &Path) -> Result<(), OpenStackError> {
        if to.is_dir() {
            return Ok(());
        }
        let incomplete = to.with_extension("part");
        let failed = cache_error("copying the databases to", to);
        let copy = || {
            remove(&incomplete)?;
            copy_directory(&self.databases, &incomplete)?;
            fs::rename(&incomplete, to)
        };
        Ok(copy().map_err(failed)?)
    }
}

/// The pinned version of Neutron.
fn pinned_version() -> &'static str {
    REQUIREMENTS.lines().find_map(|line| line.strip_prefix("neutron==")).unwrap_or_default()
}

async fn debian_versions() -> Result<String, OpenStackError> {
    let mut command = python(Path::new(DEBIAN_PYTHON));
    command.args(["-c", DEBIAN_VERSIONS]);
    match command.output().await {
        Ok(output) if output.status.success() => {
            Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
        }
        _ => Err(OpenStackError::NoDebianPackages),
    }
}

/// The first installed Python that can make the environment.
async fn usable_python(parts: &Parts) -> Result<PathBuf, OpenStackError> {
    for candidate in parts.installed().iter().map(|directory| directory.join("python3")) {
        if !is_program(&candidate) {
            continue;
        }
        let mut command = python(&candidate);
        command.args(["-c", USABLE]);
        if command.output().await.is_ok_and(|output| output.status.success()) {
            return Ok(candidate);
        }
    }
    Err(OpenStackError::NoPython)
}

/// Makes the virtual environment under a temporary name and renames it, so that no process uses an incomplete one.
async fn make_environment(with: &Path, directory: &Path, to: &Path) -> Result<(), OpenStackError> {
    let incomplete = directory.join(".venv.part");
    remove(&incomplete).map_err(cache_error("removing", &incomplete))?;
    let mut command = python(with);
    command.args(["-m", "venv"]).arg(&incomplete);
    run("making a virtual environment", command).await?;
    let requirements = directory.join("requirements.txt");
    fs::write(&requirements, REQUIREMENTS).map_err(cache_error("writing", &requirements))?;
    let mut command = python(&incomplete.join("bin/python"));
    // The list is complete, so nothing is to be resolved.
    command.args(["-m", "pip", "install", "--no-input", "--no-deps", "--quiet", "--requirement"]);
    command.arg(&requirements);
    run("installing the packages of OpenStack", command).await?;
    // One with a dead link to an interpreter can be there.
    remove(to).map_err(cache_error("removing", to))?;
    Ok(fs::rename(&incomplete, to).map_err(cache_error("moving into place", to))?)
}

async fn make_databases(with: &Path, directory: &Path, to: &Path) -> Result<(), OpenStackError> {
    let workplace = directory.join(".databases.part");
    remove(&workplace).map_err(cache_error("removing", &workplace))?;
    let data = workplace.join(configuration::DATA);
    fs::create_dir_all(&data).map_err(cache_error("making the directory", &data))?;
    configuration::write_template(&workplace)?;
    let program = workplace.join("make_databases.py");
    write_private(&program, MAKE_DATABASES)?;
    let mut command = python(with);
    command.arg(&program).arg(&workplace).arg(ADMIN_PASSWORD);
    run("making the databases of OpenStack", command).await?;
    fs::rename(&data, to).map_err(cache_error("moving into place", to))?;
    Ok(remove(&workplace).map_err(cache_error("removing", &workplace))?)
}

/// A Python command that ignores the user's Python settings.
fn python(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.arg("-I").stdin(Stdio::null()).kill_on_drop(true);
    command
}

/// Runs a command to its end.
async fn run(operation: &'static str, mut command: Command) -> Result<(), OpenStackError> {
    let failed = |status: String, output: &str| {
        let lines: Vec<_> = output.lines().collect();
        let output = lines[lines.len().saturating_sub(MAX_OUTPUT_LINES)..].join("\n");
        OpenStackError::Program { operation, status, output }
    };
    let output = command.output().await.map_err(|error| failed(error.to_string(), ""))?;
    if output.status.success() {
        return Ok(());
    }
    Err(failed(output.status.to_string(), &String::from_utf8_lossy(&output.stderr)))
}

fn remove(directory: &Path) -> std::io::Result<()> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Copies a directory of files and directories with their modes.
fn copy_directory(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::create_dir(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_directory(&entry.path(), &to)?;
        } else {
            fs::copy(entry.path(), to)?;
        }
    }
    fs::set_permissions(to, fs::metadata(from)?.permissions())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_package_is_pinned() {
        assert!(!pinned_version().is_empty());
        let packages = REQUIREMENTS.lines().filter(|line| !line.starts_with('#'));
        for package in packages {
            let (name, version) = package.split_once("==").expect(package);
            let plain = |text: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c));
            assert!(plain(name) && plain(version), "{package}");
        }
    }

    #[test]
    fn release_parses_from_its_name() {
        for release in [Release::Current, Release::Debian] {
            assert_eq!(release.to_string().parse::<Release>().unwrap(), release);
        }
        assert!("zed".parse::<Release>().is_err());
    }
}
