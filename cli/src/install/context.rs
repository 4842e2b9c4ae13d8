//! What an admin has on disk of a cluster: keys of NATS users and certificate authorities, in
//! `~/.eno/clusters/UID`, where UID is that of the namespace kube-system. Only the owner can read it.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use jiff::Timestamp;

use super::secrets::Files;

/// The seed of the NATS user of people who inspect.
pub const INSPECT_SEED: &str = "inspect.seed";
/// Between the name of a context and the rest of the name of a directory with staged files.
const STAGED: &str = ".new-";
/// The authority of NATS's certificate.
pub const CA: &str = "ca.crt";

/// A file of a context can't be read or written.
#[derive(Debug, thiserror::Error)]
#[error("{operation} {}: {source}", path.display())]
pub struct ContextError {
    operation: &'static str,
    path: PathBuf,
    source: io::Error,
}

/// Where the contexts of an admin are.
#[derive(Clone, Debug)]
pub struct ContextStore {
    root: PathBuf,
}

/// The context of one cluster.
#[derive(Clone, Debug)]
pub struct ClusterContext {
    directory: PathBuf,
}

impl ContextStore {
    /// The store of this user: `$ENO_HOME`, or `~/.eno`. `None`: the user has no home directory.
    pub fn of_user() -> Option<Self> {
        let variable = |name| std::env::var_os(name).filter(|path| !path.is_empty()).map(PathBuf::from);
        variable("ENO_HOME").or_else(|| Some(variable("HOME")?.join(".eno"))).map(Self::at)
    }

    /// A store in a directory.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Whether it has a context of any cluster.
    pub fn has_clusters(&self) -> bool {
        self.root.join("clusters").is_dir()
    }

    /// The context of a cluster, which may not exist yet.
    pub fn cluster(&self, uid: &str) -> ClusterContext {
        // A uid is an opaque text of the API server.
        let name: String = uid.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').collect();
        ClusterContext { directory: self.root.join("clusters").join(name) }
    }
}

impl ClusterContext {
    /// Its directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The path of one of its files, if it exists.
    pub fn file(&self, name: &str) -> Option<PathBuf> {
        Some(self.directory.join(name)).filter(|path| path.is_file())
    }

    /// Writes files with mode 0600, each at once or not at all. Other files stay.
    pub fn write(&self, files: &Files) -> Result<(), ContextError> {
        if files.0.is_empty() {
            return Ok(());
        }
        let failed = |operation, path: &Path| {
            let path = path.to_owned();
            move |source| ContextError { operation, path, source }
        };
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.directory)
            .map_err(failed("creating", &self.directory))?;
        for (name, text) in &files.0 {
            let path = self.directory.join(name);
            let new = self.directory.join(format!(".{name}.new"));
            let mut options = fs::OpenOptions::new();
            let mut file = options
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o600)
                .open(&new)
                .map_err(failed("creating", &new))?;
            file.write_all(text.as_bytes())
                .and_then(|()| file.sync_all())
                .map_err(failed("writing", &new))?;
            fs::rename(&new, &path).map_err(failed("writing", &path))?;
        }
        Ok(())
    }

    /// Keeps files beside the context until it is known whether they are for it.
    pub fn stage(&self, files: &Files) -> Result<(), ContextError> {
        let id = format!("{}-{}", std::process::id(), Timestamp::now().as_nanosecond());
        Self { directory: self.staging(&id) }.write(files)
    }

    fn staging(&self, id: &str) -> PathBuf {
        let mut name = self.directory.file_name().unwrap_or_default().to_owned();
        name.push(format!("{STAGED}{id}"));
        self.directory.with_file_name(name)
    }

    /// The directories that [`Self::stage`] made.
    fn stagings(&self) -> Result<Vec<Self>, ContextError> {
        let parent = self.directory.parent().unwrap_or(&self.directory);
        let failed = |source| ContextError { operation: "reading", path: parent.to_owned(), source };
        let entries = match fs::read_dir(parent) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(failed)?,
        };
        let paths: Vec<_> =
            entries.map(|entry| Ok(entry.map_err(failed)?.path())).collect::<Result<_, _>>()?;
        let prefix = self.staging("");
        let is_staged = |path: &PathBuf| path.to_string_lossy().starts_with(&*prefix.to_string_lossy());
        Ok(paths.into_iter().filter(is_staged).map(|directory| Self { directory }).collect())
    }

    /// What was staged, also by tries that did not come to their end.
    pub fn staged(&self) -> Result<Vec<Files>, ContextError> {
        self.stagings()?.iter().map(|staging| Ok(Files(staging.read()?))).collect()
    }

    /// Removes what was staged.
    pub fn remove_staged(&self) -> Result<(), ContextError> {
        self.stagings()?.iter().try_for_each(Self::remove)
    }

    /// Renames a file, which replaces one of the new name.
    pub fn rename(&self, from: &str, to: &str) -> Result<(), ContextError> {
        let path = self.directory.join(to);
        fs::rename(self.directory.join(from), &path).map_err(|source| ContextError {
            operation: "writing",
            path,
            source,
        })
    }

    /// Removes the context, and not what is staged. It is no error if there is none.
    pub fn remove(&self) -> Result<(), ContextError> {
        match fs::remove_dir_all(&self.directory) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                Err(ContextError { operation: "removing", path: self.directory.clone(), source })
            }
            _ => Ok(()),
        }
    }

    /// The texts of its files, by name.
    pub fn read(&self) -> Result<BTreeMap<String, String>, ContextError> {
        let failed = |source| ContextError { operation: "reading", path: self.directory.clone(), source };
        let entries = match fs::read_dir(&self.directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
            entries => entries.map_err(failed)?,
        };
        let mut files = BTreeMap::new();
        for entry in entries {
            let entry = entry.map_err(failed)?;
            if let Ok(name) = entry.file_name().into_string() {
                files.insert(name, fs::read_to_string(entry.path()).map_err(failed)?);
            }
        }
        Ok(files)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn staged_files_are_no_part_of_the_context() {
        let home = tempfile::tempdir().expect("a directory");
        let context = ContextStore::at(home.path()).cluster("5b2e");
        assert_eq!(context.staged().expect("nothing"), Vec::new());
        let files = |text: &str| Files(BTreeMap::from([(INSPECT_SEED.to_owned(), text.to_owned())]));
        context.write(&files("SU1")).expect("written");
        context.stage(&files("SU2")).expect("staged");
        ContextStore::at(home.path()).cluster("5b2").stage(&files("SU3")).expect("staged");
        assert_eq!(context.read().expect("files")[INSPECT_SEED], "SU1");
        assert_eq!(context.staged().expect("files"), [files("SU2")]);
        context.remove_staged().expect("removed");
        assert_eq!(context.staged().expect("nothing"), Vec::new());
        assert_eq!(context.read().expect("files")[INSPECT_SEED], "SU1");
    }

    #[test]
    fn files_are_private_and_removed_together() {
        let home = tempfile::tempdir().expect("a directory");
        let context = ContextStore::at(home.path().join(".eno")).cluster("../5b2e-3c");
        assert!(context.directory().ends_with(".eno/clusters/5b2e-3c"));
        assert_eq!(context.file(INSPECT_SEED), None);
        for text in ["SU1", "SU2"] {
            let files = Files(BTreeMap::from([(INSPECT_SEED.to_owned(), text.to_owned())]));
            context.write(&files).expect("written");
            let path = context.file(INSPECT_SEED).expect("a file");
            assert_eq!(fs::metadata(&path).expect("metadata").permissions().mode() & 0o777, 0o600);
        }
        let mode = fs::metadata(context.directory()).expect("metadata").permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        assert_eq!(context.read().expect("files")[INSPECT_SEED], "SU2");
        context.remove().expect("removed");
        context.remove().expect("nothing to remove");
        assert!(context.read().expect("no files").is_empty());
    }
}
