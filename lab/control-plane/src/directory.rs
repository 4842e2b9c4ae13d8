//! The directory of a control plane. It is exclusive to this program and locked while in use.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

/// The marker file of a control plane's directory. Its content is the version of the layout.
const MARKER: &str = ".eno-control-plane";
const LAYOUT: &str = "1\n";

/// A directory can't be used.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    /// Another control plane uses it. A retry helps once that has stopped.
    #[error("{} is in use by another running control plane: stop that one, or choose another directory", path.display())]
    InUse {
        /// The directory.
        path: PathBuf,
    },
    /// It contains foreign files, which remain untouched.
    #[error("{} is not empty and not the directory of a control plane: choose another one", path.display())]
    Foreign {
        /// The directory.
        path: PathBuf,
    },
    /// Another version of this program created it.
    #[error("{} was made by another version: choose another directory, or remove it", path.display())]
    Layout {
        /// The directory.
        path: PathBuf,
    },
    /// A file operation failed.
    #[error("{operation} {}: {source}", path.display())]
    Io {
        /// The failed operation.
        operation: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
}

impl DirectoryError {
    pub(crate) fn io(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| Self::Io { operation, path, source }
    }
}

/// A locked directory; dropping this unlocks it.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    _lock: File,
}

impl Directory {
    /// Locks the directory and creates it if absent.
    pub(crate) fn open(path: &Path) -> Result<Self, DirectoryError> {
        let path = std::path::absolute(path).map_err(DirectoryError::io("finding", path))?;
        let own = || DirBuilder::new().recursive(true).mode(0o700).create(&path);
        own().map_err(DirectoryError::io("making the directory", &path))?;
        let marker = path.join(MARKER);
        match fs::read_to_string(&marker) {
            Ok(layout) if layout == LAYOUT => {}
            Ok(_) => return Err(DirectoryError::Layout { path }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let mut entries = fs::read_dir(&path).map_err(DirectoryError::io("reading", &path))?;
                // Another process may be opening the same directory concurrently.
                if entries.any(|entry| {
                    entry.is_ok_and(|entry| entry.file_name() != MARKER && entry.file_name() != "lock")
                }) {
                    return Err(DirectoryError::Foreign { path });
                }
                fs::write(&marker, LAYOUT).map_err(DirectoryError::io("writing", &marker))?;
            }
            Err(error) => return Err(DirectoryError::io("reading", &marker)(error)),
        }
        let lock = path.join("lock");
        let failed = DirectoryError::io("locking", &lock);
        let file = match OpenOptions::new().create(true).truncate(false).write(true).open(&lock) {
            Ok(file) => file,
            Err(error) => return Err(failed(error)),
        };
        match file.try_lock() {
            Ok(()) => Ok(Self { path, _lock: file }),
            Err(TryLockError::WouldBlock) => Err(DirectoryError::InUse { path }),
            Err(TryLockError::Error(error)) => Err(failed(error)),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.path.join(name)
    }

    /// Reads a JSON file; returns `None` if it is absent or invalid.
    pub(crate) fn read_json<T: DeserializeOwned>(&self, name: &str) -> Option<T> {
        serde_json::from_slice(&fs::read(self.join(name)).ok()?).ok()
    }

    pub(crate) fn write_json(
        &self,
        name: impl AsRef<Path>,
        value: &impl Serialize,
    ) -> Result<PathBuf, DirectoryError> {
        let path = self.join(name);
        let text = serde_json::to_string_pretty(value)
            .map_err(|error| DirectoryError::io("writing", &path)(io::Error::other(error)))?;
        write_private(&path, &text)?;
        Ok(path)
    }
}

/// Writes a file atomically; only its owner can read it.
pub(crate) fn write_private(path: &Path, text: &str) -> Result<(), DirectoryError> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let new = path.with_file_name(name);
    let write = || {
        if let Some(parent) = path.parent() {
            DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
        }
        let mut file = OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&new)?;
        file.write_all(text.as_bytes())?;
        fs::rename(&new, path)
    };
    write().map_err(DirectoryError::io("writing", path))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn directory_is_locked_until_dropped() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("a/b");
        let first = Directory::open(&path).unwrap();
        assert!(matches!(Directory::open(&path), Err(DirectoryError::InUse { .. })));
        drop(first);
        Directory::open(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
    }

    #[test]
    fn open_refuses_foreign_directory_and_leaves_it_unchanged() {
        let foreign = tempfile::tempdir().unwrap();
        fs::write(foreign.path().join("thesis.txt"), "").unwrap();
        assert!(matches!(Directory::open(foreign.path()), Err(DirectoryError::Foreign { .. })));
        assert_eq!(fs::read_dir(foreign.path()).unwrap().count(), 1);
    }

    #[test]
    fn open_refuses_other_layout_version() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join(MARKER), "2\n").unwrap();
        assert!(matches!(Directory::open(directory.path()), Err(DirectoryError::Layout { .. })));
    }

    #[test]
    fn write_private_restricts_access_to_owner() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("keys/one");
        write_private(&path, "secret").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_to_string(&path).unwrap(), "secret");
    }
}
