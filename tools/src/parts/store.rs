//! Looks a part up, in order: `KUBEBUILDER_ASSETS`, `PATH`, the cache; else gets it into the cache.

use std::ffi::OsStr;
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{env, fs, io};

use super::version::Version;
use super::{Event, Installed, Part, Progress, StderrProgress, build, prebuilt};

/// How long an installed program may take to say its version.
const VERSION_TIMEOUT: Duration = Duration::from_secs(10);

/// A part can't be had.
#[derive(Debug, thiserror::Error)]
pub enum PartsError {
    /// Not one of [`Part::ALL`].
    #[error("there is no part {name:?}: there are {}", Part::ALL.map(Part::program).join(", "))]
    Unknown {
        /// As it was given.
        name: String,
    },
    /// Neither `ENO_CACHE`, `XDG_CACHE_HOME` nor `HOME` is set.
    #[error("no directory to keep parts in: set ENO_CACHE (or XDG_CACHE_HOME, or HOME)")]
    NoCache,
    /// The cache can't be used. Retrying helps once its cause is gone.
    #[error("{operation} {}: {source}", path.display())]
    Cache {
        /// What failed.
        operation: &'static str,
        /// On what.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Nothing to build with.
    #[error(
        "{part} {version} is not installed and must be built, which needs Go: install Go {go} or newer \
         (https://go.dev/doc/install), or set KUBEBUILDER_ASSETS to a directory that holds {part}"
    )]
    NoGo {
        /// What was to be built.
        part: Part,
        /// The pinned version.
        version: &'static str,
        /// The oldest Go that can build it, or fetch one that can.
        go: &'static str,
    },
    /// The build failed: most often no network. Retrying goes on where it stopped.
    #[error("building {part} {version} failed ({status}):\n{output}")]
    Build {
        /// What was built.
        part: Part,
        /// The pinned version.
        version: &'static str,
        /// How `go build` ended.
        status: String,
        /// Its last lines.
        output: String,
    },
}

/// Where parts are found and kept.
#[derive(Clone)]
pub struct Parts {
    /// Directories to look in before the cache, best first.
    installed: Vec<PathBuf>,
    cache: PathBuf,
    prebuilt: bool,
    progress: Arc<dyn Progress>,
}

impl std::fmt::Debug for Parts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Parts")
            .field("cache", &self.cache)
            .field("prebuilt", &self.prebuilt)
            .finish_non_exhaustive()
    }
}

impl Parts {
    /// As the environment says: `KUBEBUILDER_ASSETS` and `PATH` are looked through; the cache is `ENO_CACHE`,
    /// else `eno` in `XDG_CACHE_HOME`, else `~/.cache/eno`; `ENO_PREBUILT=off` never asks for a prebuilt part.
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

    /// With one directory for everything, and nothing looked up elsewhere.
    pub fn new(cache: impl Into<PathBuf>) -> Self {
        Self {
            installed: Vec::new(),
            cache: cache.into(),
            prebuilt: false,
            progress: Arc::new(StderrProgress::default()),
        }
    }

    /// Tells someone else than standard error what goes on.
    #[must_use]
    pub fn with_progress(mut self, progress: Arc<dyn Progress>) -> Self {
        self.progress = progress;
        self
    }

    /// The path of a part, which is got when it isn't there: the first time that can take minutes. Processes
    /// that ask at the same time wait for each other and build once.
    pub async fn get(&self, part: Part) -> Result<PathBuf, PartsError> {
        let recipe = part.recipe();
        let mut passed_over = Vec::new();
        if let Some(installed) = &recipe.installed {
            for candidate in self.installed.iter().map(|directory| directory.join(recipe.program)) {
                if !is_program(&candidate) {
                    continue;
                }
                match installed.refusal(&candidate).await {
                    None => return Ok(candidate),
                    Some(why) => passed_over.push(why),
                }
            }
        }
        let directory = self.cache.join(recipe.module.directory_name());
        let path = directory.join(recipe.program);
        if is_program(&path) {
            return Ok(path);
        }
        for why in &passed_over {
            self.progress.report(Event::PassedOver { part, why });
        }
        fs::create_dir_all(&directory).map_err(cache_error("making the directory", &directory))?;
        let _lock = self.lock(part, directory.join("lock")).await?;
        if is_program(&path) {
            return Ok(path);
        }
        let started = Instant::now();
        // Renamed when it is whole, so that nobody ever runs half a program.
        let whole = tempfile_beside(&path);
        let had = self.prebuilt && self.download(part, &recipe, &whole).await;
        if !had {
            build::build(part, &recipe, &directory.join("src"), &whole, self.progress.as_ref()).await?;
        }
        fs::rename(&whole, &path).map_err(cache_error("moving into place", &path))?;
        self.progress.report(Event::Done { part, took: started.elapsed() });
        Ok(path)
    }

    /// Whether a prebuilt one that will do was put in place.
    async fn download(&self, part: Part, recipe: &super::Recipe, to: &Path) -> bool {
        let Some(installed) = recipe.installed.as_ref().filter(|_| prebuilt::offers(part)) else {
            return false;
        };
        self.progress.report(Event::Downloading { part });
        let found = prebuilt::fetch(recipe, &self.cache.join("envtest")).await;
        let refused = match found {
            Ok(path) => match installed.refusal(&path).await {
                None => fs::copy(&path, to).err().map(|error| error.to_string()),
                refusal => refusal,
            },
            Err(error) => Some(error),
        };
        if let Some(why) = &refused {
            self.progress.report(Event::PassedOver { part, why });
        }
        refused.is_none()
    }

    async fn lock(&self, part: Part, path: PathBuf) -> Result<File, PartsError> {
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

impl Installed {
    /// Why a program that is there won't do. `None`: it will.
    async fn refusal(&self, program: &Path) -> Option<String> {
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
                Some(version) if self.wanted.allows(version) => None,
                Some(version) => Some(format!("{shown} is {version}, wanted is {}", self.wanted)),
                None => Some(format!("{shown} doesn't say its version")),
            },
        }
    }
}

fn cache_error(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> PartsError + use<> {
    let path = path.to_owned();
    move |source| PartsError::Cache { operation, path, source }
}

fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// A hidden name in the same directory. The lock keeps it to one process.
fn tempfile_beside(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.part"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parts::Silent;

    /// A directory that holds an `etcd` which says a version. Another process writes it: a file that this one
    /// has open for writing can't be run, and a child that another test starts may hold it open.
    fn installed(version: &str) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        let write = r#"printf '#!/bin/sh\necho etcd Version: %s\n' "$1" >"$2" && chmod 755 "$2""#;
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", write, "sh", version]).arg(directory.path().join("etcd"));
        assert!(shell.status().unwrap().success());
        directory
    }

    fn parts(installed: &[&tempfile::TempDir], cache: &Path) -> Parts {
        let mut parts = Parts::new(cache).with_progress(Arc::new(Silent));
        parts.installed = installed.iter().map(|directory| directory.path().to_owned()).collect();
        parts
    }

    #[tokio::test]
    async fn the_first_installed_one_that_is_new_enough_is_taken() {
        let (old, new) = (installed("3.4.23"), installed("3.6.1"));
        let cache = tempfile::tempdir().unwrap();
        let found = parts(&[&old, &new], cache.path()).get(Part::Etcd).await.unwrap();
        assert_eq!(found, new.path().join("etcd"));
    }

    #[tokio::test]
    async fn the_cache_is_taken_when_the_installed_one_is_too_old() {
        let old = installed("3.4.23");
        let cache = tempfile::tempdir().unwrap();
        let kept = cache.path().join(Part::Etcd.recipe().module.directory_name());
        fs::create_dir(&kept).unwrap();
        fs::hard_link(old.path().join("etcd"), kept.join("etcd")).unwrap();
        let found = parts(&[&old], cache.path()).get(Part::Etcd).await.unwrap();
        assert_eq!(found, kept.join("etcd"));
    }

    #[tokio::test]
    async fn a_cache_that_can_t_be_written_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let error = parts(&[], file.path()).get(Part::Etcd).await.unwrap_err();
        assert!(error.to_string().contains(&file.path().display().to_string()), "{error}");
    }
}
