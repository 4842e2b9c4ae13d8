//! Looks a part up in `KUBEBUILDER_ASSETS`, `PATH` and the cache, in this order, or obtains it into the cache.

use std::ffi::OsStr;
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{env, fs, io};

use super::version::Version;
use super::{Event, Part, StderrProgress, VersionCheck, build, prebuilt};

/// Timeout for an installed program to print its version.
const VERSION_TIMEOUT: Duration = Duration::from_secs(10);

/// A part can't be obtained.
#[derive(Debug, thiserror::Error)]
pub enum PartsError {
    /// The name is not that of a part ([`Part::ALL`]).
    #[error("there is no part {name:?}: there are {}", Part::ALL.map(Part::program).join(", "))]
    Unknown {
        /// The name.
        name: String,
    },
    /// Neither `ENO_CACHE`, `XDG_CACHE_HOME` nor `HOME` is set.
    #[error("no directory to keep parts in: set ENO_CACHE (or XDG_CACHE_HOME, or HOME)")]
    NoCache,
    /// The cache can't be used. A retry helps once the cause is removed.
    #[error("{operation} {}: {source}", path.display())]
    Cache {
        /// The failed operation.
        operation: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// Go is missing or too old to build the part.
    #[error(
        "{part} {version} is not installed and must be built, which needs Go: install Go {go} or newer \
         (https://go.dev/doc/install), or set KUBEBUILDER_ASSETS to a directory that holds {part}"
    )]
    NoGo {
        /// The part.
        part: Part,
        /// The pinned version.
        version: &'static str,
        /// The oldest usable Go version.
        go: &'static str,
    },
    /// The build failed, mostly for lack of network. A retry resumes the build.
    #[error("building {part} {version} failed ({status}):\n{output}")]
    Build {
        /// The part.
        part: Part,
        /// The pinned version.
        version: &'static str,
        /// The exit status of `go build`.
        status: String,
        /// The last lines of its output.
        output: String,
    },
}

/// Finds parts and caches them.
#[derive(Clone, Debug)]
pub struct Parts {
    /// Directories that are searched before the cache, in this order.
    installed: Vec<PathBuf>,
    cache: PathBuf,
    prebuilt: bool,
    progress: Arc<StderrProgress>,
}

impl Parts {
    /// Configures from the environment. It searches `KUBEBUILDER_ASSETS` and `PATH`. The cache is `ENO_CACHE`, else
    /// `eno`
    /// in `XDG_CACHE_HOME`, else `~/.cache/eno`. `ENO_PREBUILT=off` disables prebuilt parts.
    pub fn from_env() -> Result<Self, PartsError> {
        let directory = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let cache = directory("ENO_CACHE")
            .or_else(|| directory("XDG_CACHE_HOME").map(|home| home.join("eno")))
            .or_else(|| directory("HOME").map(|home| home.join(".cache/eno")))
            .ok_or(PartsError::NoCache)?;
        let mut parts = Self::new(std::path::absolute(&cache).unwrap_or(cache));
        parts.installed.extend(directory("KUBEBUILDER_ASSETS"));
        parts.installed.extend(env::split_paths(&env::var_os("PATH").unwrap_or_default()));
        parts.prebuilt = env::var_os("ENO_PREBUILT").as_deref() != Some(OsStr::new("off"));
        Ok(parts)
    }

    /// The directory that keeps the parts.
    pub(crate) fn cache(&self) -> &Path {
        &self.cache
    }

    /// The directories of installed programs, in the order of search.
    pub(crate) fn installed(&self) -> &[PathBuf] {
        &self.installed
    }

    /// Reports an event.
    pub(crate) fn report(&self, event: Event<'_>) {
        self.progress.report(event);
    }

    /// Uses only this cache directory, without installed and prebuilt parts.
    pub fn new(cache: impl Into<PathBuf>) -> Self {
        Self { installed: Vec::new(), cache: cache.into(), prebuilt: false, progress: Arc::default() }
    }

    /// Returns the path of a part and obtains it if missing, which can take minutes. Concurrent processes wait for each
    /// other and build once.
    pub async fn get(&self, part: Part) -> Result<PathBuf, PartsError> {
        let recipe = part.recipe();
        let mut rejected = Vec::new();
        if let Some(installed) = &recipe.installed {
            for candidate in self.installed.iter().map(|directory| directory.join(recipe.program)) {
                if !is_program(&candidate) {
                    continue;
                }
                match installed.rejection_reason(&candidate).await {
                    None => return Ok(candidate),
                    Some(why) => rejected.push(why),
                }
            }
        }
        let directory = self.cache.join(recipe.module.directory_name());
        let path = directory.join(recipe.program);
        if is_program(&path) {
            return Ok(path);
        }
        for why in &rejected {
            self.progress.report(Event::Rejected { part: part.program(), why });
        }
        fs::create_dir_all(&directory).map_err(cache_error("making the directory", &directory))?;
        let _lock = self.lock(part.program(), directory.join("lock")).await?;
        if is_program(&path) {
            return Ok(path);
        }
        let started = Instant::now();
        // Write to a temporary name and rename, so that no process runs an incomplete program.
        let temporary = temporary_path(&path);
        let downloaded = self.prebuilt && self.download(part, &recipe, &temporary).await;
        if !downloaded {
            build::build(part, &recipe, &directory.join("src"), &temporary, &self.progress).await?;
        }
        fs::rename(&temporary, &path).map_err(cache_error("moving into place", &path))?;
        self.progress.report(Event::Done { part: part.program(), took: started.elapsed() });
        Ok(path)
    }

    /// Downloads a prebuilt part. Returns whether a usable one is now at `to`.
    async fn download(&self, part: Part, recipe: &super::Recipe, to: &Path) -> bool {
        let Some(installed) = recipe.installed.as_ref().filter(|_| prebuilt::is_available(part)) else {
            return false;
        };
        self.progress.report(Event::Downloading { part: part.program() });
        let found = prebuilt::fetch(recipe, &self.cache.join("envtest")).await;
        let refused = match found {
            Ok(path) => match installed.rejection_reason(&path).await {
                None => fs::copy(&path, to).err().map(|error| error.to_string()),
                rejection_reason => rejection_reason,
            },
            Err(error) => Some(error),
        };
        if let Some(why) = &refused {
            self.progress.report(Event::Rejected { part: part.program(), why });
        }
        refused.is_none()
    }

    /// Locks a file of the cache until the result is dropped.
    pub(crate) async fn lock(&self, part: &str, path: PathBuf) -> Result<File, PartsError> {
        let failed = cache_error("locking", &path);
        let file = match File::create(&path) {
            Ok(file) => file,
            Err(error) => return Err(failed(error)),
        };
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::Error(error)) => return Err(failed(error)),
            Err(TryLockError::WouldBlock) => self.progress.report(Event::Waiting { part }),
        }
        tokio::task::spawn_blocking(move || file.lock().map(|()| file))
            .await
            .map_err(io::Error::other)
            .and_then(|locked| locked)
            .map_err(failed)
    }
}

impl VersionCheck {
    /// The reason why an existing program is not usable; `None` if it is.
    async fn rejection_reason(&self, program: &Path) -> Option<String> {
        let output = tokio::process::Command::new(program)
            .args(self.version_arguments)
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output();
        let shown = program.display();
        match tokio::time::timeout(VERSION_TIMEOUT, output).await {
            Err(_) => Some(format!("{shown} doesn't say its version")),
            Ok(Err(error)) => Some(format!("{shown} doesn't run: {error}")),
            Ok(Ok(output)) => match Version::find(&String::from_utf8_lossy(&output.stdout)) {
                Some(version) if self.requirement.allows(version) => None,
                Some(version) => Some(format!("{shown} is {version}, wanted is {}", self.requirement)),
                None => Some(format!("{shown} doesn't say its version")),
            },
        }
    }
}

pub(crate) fn cache_error(
    operation: &'static str,
    path: &Path,
) -> impl FnOnce(io::Error) -> PartsError + use<> {
    let path = path.to_owned();
    move |source| PartsError::Cache { operation, path, source }
}

pub(crate) fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// A hidden temporary name in the same directory. The lock makes it exclusive.
fn temporary_path(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.part"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates a directory with an `etcd` that prints a version. Another process writes it: a file that this process,
    /// or
    /// a child that another test starts, has open for writing can't be executed.
    fn installed(version: &str) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        let write = r#"printf '#!/bin/sh\necho etcd Version: %s\n' "$1" >"$2" && chmod 755 "$2""#;
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", write, "sh", version]).arg(directory.path().join("etcd"));
        assert!(shell.status().unwrap().success());
        directory
    }

    fn parts(installed: &[&tempfile::TempDir], cache: &Path) -> Parts {
        let installed = installed.iter().map(|directory| directory.path().to_owned()).collect();
        Parts { installed, ..Parts::new(cache) }
    }

    #[tokio::test]
    async fn get_returns_first_installed_program_with_accepted_version() {
        let (old, new) = (installed("3.4.23"), installed("3.6.1"));
        let cache = tempfile::tempdir().unwrap();
        let found = parts(&[&old, &new], cache.path()).get(Part::Etcd).await.unwrap();
        assert_eq!(found, new.path().join("etcd"));
    }

    #[tokio::test]
    async fn get_falls_back_to_cache_if_installed_program_is_too_old() {
        let old = installed("3.4.23");
        let cache = tempfile::tempdir().unwrap();
        let kept = cache.path().join(Part::Etcd.recipe().module.directory_name());
        fs::create_dir(&kept).unwrap();
        fs::hard_link(old.path().join("etcd"), kept.join("etcd")).unwrap();
        let found = parts(&[&old], cache.path()).get(Part::Etcd).await.unwrap();
        assert_eq!(found, kept.join("etcd"));
    }

    #[tokio::test]
    async fn error_names_unwritable_cache() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let error = parts(&[], file.path()).get(Part::Etcd).await.unwrap_err();
        assert!(error.to_string().contains(&file.path().display().to_string()), "{error}");
    }
}
