//! The directory of a control plane or of OpenStack. It is exclusive to this program and locked while in use.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

/// The content of a marker file: the version of the layout.
const LAYOUT: &str = "1\n";

/// A directory can't be used.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    /// Another process uses it. A retry helps once that has stopped.
    #[error("{} is in use by another running {kind}: stop that one, or choose another directory", path.display())]
    InUse {
        /// What the directory is for: `control plane` or `OpenStack`.
        kind: &'static str,
        /// The directory.
        path: PathBuf,
    },
    /// It contains foreign files, which remain untouched.
    #[error("{} is not empty and holds no {kind}: choose another directory", path.display())]
    Foreign {
        /// What the directory was to be for.
        kind: &'static str,
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

/// What a directory is for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    ControlPlane,
    OpenStack,
}

impl Kind {
    const fn name(self) -> &'static str {
        match self {
            Self::ControlPlane => "control plane",
            Self::OpenStack => "OpenStack",
        }
    }

    /// The file that marks a directory of this kind.
    const fn marker(self) -> &'static str {
        match self {
            Self::ControlPlane => ".eno-control-plane",
            Self::OpenStack => ".eno-openstack",
        }
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
    pub(crate) fn open(path: &Path, kind: Kind) -> Result<Self, DirectoryError> {
        let path = std::path::absolute(path).map_err(DirectoryError::io("finding", path))?;
        let own = || DirBuilder::new().recursive(true).mode(0o700).create(&path);
        own().map_err(DirectoryError::io("making the directory", &path))?;
        let marker = path.join(kind.marker());
        match fs::read_to_string(&marker) {
            Ok(layout) if layout == LAYOUT => {}
            Ok(_) => return Err(DirectoryError::Layout { path }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let mut entries = fs::read_dir(&path).map_err(DirectoryError::io("reading", &path))?;
                // Another process may be opening the same directory concurrently.
                if entries.any(|entry| {
                    entry.is_ok_and(|entry| entry.file_name() != kind.marker() && entry.file_name() != "lock")
                }) {
                    return Err(DirectoryError::Foreign { kind: kind.name(), path });
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
            Err(TryLockError::WouldBlock) => Err(DirectoryError::InUse { kind: kind.name(), path }),
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
pub fn write_private(path: &Path, text: &str) -> Result<(), DirectoryError> {
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
        let first = Directory::open(&path, Kind::ControlPlane).unwrap();
        assert!(matches!(Directory::open(&path, Kind::ControlPlane), Err(DirectoryError::InUse { .. })));
        drop(first);
        Directory::open(&path, Kind::ControlPlane).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
    }

    #[test]
    fn open_refuses_foreign_directory_and_leaves_it_unchanged() {
        let foreign = tempfile::tempdir().unwrap();
        fs::write(foreign.path().join("thesis.txt"), "").unwrap();
        assert!(matches!(
            Directory::open(foreign.path(), Kind::ControlPlane),
            Err(DirectoryError::Foreign { .. })
        ));
        assert_eq!(fs::read_dir(foreign.path()).unwrap().count(), 1);
    }

    #[test]
    fn open_refuses_directory_of_other_kind() {
        let directory = tempfile::tempdir().unwrap();
        drop(Directory::open(directory.path(), Kind::ControlPlane).unwrap());
        let other = Directory::open(directory.path(), Kind::OpenStack);
        assert!(matches!(other, Err(DirectoryError::Foreign { kind: "OpenStack", .. })));
    }

    #[test]
    fn open_refuses_other_layout_version() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join(Kind::ControlPlane.marker()), "2\n").unwrap();
        assert!(matches!(
            Directory::open(directory.path(), Kind::ControlPlane),
            Err(DirectoryError::Layout { .. })
        ));
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
