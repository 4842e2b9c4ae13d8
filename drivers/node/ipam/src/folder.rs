//! A folder that is open. Its files are reached through it, never through links.

use std::fs::{DirBuilder, File};
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, Mode, OFlags, mkdirat, openat, renameat, statat, unlinkat};
use rustix::io::Errno;

use crate::Error;

/// The name of a file before it has its content. No file of another name begins with a dot.
const NEW: &str = ".new";

/// More files than a node has pods.
const MAX_FILES: usize = 65_536;

/// Whether a file has to outlast a loss of power.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Durable {
    Yes,
    No,
}

pub struct Folder {
    file: File,
    path: PathBuf,
}

impl Folder {
    /// The folder at a path, which is made if it is missing.
    pub fn root(path: &Path) -> Result<Self, Error> {
        let failed = |operation, source| Error::Io { operation, path: path.to_owned(), source };
        DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(|error| failed("make", error))?;
        let file = File::open(path).map_err(|error| failed("open", error))?;
        Ok(Self { file, path: path.to_owned() })
    }

    /// A folder in it, which is made if it is missing.
    pub fn folder(&self, name: &str) -> Result<Self, Error> {
        match mkdirat(&self.file, name, Mode::RWXU) {
            Ok(()) => self.sync()?,
            Err(Errno::EXIST) => {}
            Err(error) => return Err(self.failed("make", name, error)),
        }
        let file = self.open(name, OFlags::RDONLY | OFlags::DIRECTORY)?;
        Ok(Self { file, path: self.path.join(name) })
    }

    pub fn open(&self, name: &str, flags: OFlags) -> Result<File, Error> {
        self.try_open(name, flags).map_err(|error| self.failed("open", name, error))
    }

    fn try_open(&self, name: &str, flags: OFlags) -> Result<File, Errno> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let fd: OwnedFd = openat(&self.file, name, flags, Mode::RUSR | Mode::WUSR)?;
        Ok(fd.into())
    }

    /// True when the file has this name here.
    pub fn has(&self, name: &str, file: &File) -> Result<bool, Error> {
        let failed = |error| self.failed("look at", name, error);
        let open = rustix::fs::fstat(file).map_err(failed)?;
        match statat(&self.file, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(named) => Ok((named.st_dev, named.st_ino) == (open.st_dev, open.st_ino)),
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(failed(error)),
        }
    }

    /// The names of its files, ascending.
    pub fn names(&self) -> Result<Vec<String>, Error> {
        let failed = |error| self.failed("list", "", error);
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.file).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let Ok(name) = entry.file_name().to_str() else { continue };
            if name.starts_with('.') {
                continue;
            }
            if names.len() == MAX_FILES {
                return Err(self.unlike(".", format!("has more than {MAX_FILES} files")));
            }
            names.push(name.to_owned());
        }
        names.sort_unstable();
        Ok(names)
    }

    /// The content of a file; `None`: it is missing.
    pub fn read(&self, name: &str, limit: usize) -> Result<Option<Vec<u8>>, Error> {
        let file = match self.try_open(name, OFlags::RDONLY) {
            Ok(file) => file,
            Err(Errno::NOENT) => return Ok(None),
            Err(error) => return Err(self.failed("open", name, error)),
        };
        let failed = |source| Error::Io { operation: "read", path: self.path.join(name), source };
        if !file.metadata().map_err(failed)?.is_file() {
            return Err(self.unlike(name, "is no file".to_owned()));
        }
        let mut content = Vec::new();
        file.take(limit as u64 + 1).read_to_end(&mut content).map_err(failed)?;
        if content.len() > limit {
            return Err(self.unlike(name, format!("has more than {limit} bytes")));
        }
        Ok(Some(content))
    }

    /// Gives a file its content, at once and as a whole.
    pub fn write(&self, name: &str, content: &[u8], durable: Durable) -> Result<(), Error> {
        self.unlink(NEW)?;
        let mut file = self.open(NEW, OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL)?;
        let written = file.write_all(content).and_then(|()| match durable {
            Durable::Yes => file.sync_all(),
            Durable::No => Ok(()),
        });
        written.map_err(|source| Error::Io { operation: "write", path: self.path.join(name), source })?;
        renameat(&self.file, NEW, &self.file, name).map_err(|error| self.failed("rename", name, error))?;
        match durable {
            Durable::Yes => self.sync(),
            Durable::No => Ok(()),
        }
    }

    /// Removes a file; false: it was missing.
    pub fn remove(&self, name: &str) -> Result<bool, Error> {
        let was_there = self.unlink(name)?;
        if was_there {
            self.sync()?;
        }
        Ok(was_there)
    }

    /// Removes what a process left that was killed as it wrote.
    pub fn clear(&self) -> Result<(), Error> {
        self.unlink(NEW).map(|_| ())
    }

    /// Removes a folder in it, if it is empty.
    pub fn remove_folder(&self, name: &str) -> Result<(), Error> {
        match unlinkat(&self.file, name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT | Errno::NOTEMPTY | Errno::EXIST) => Ok(()),
            Err(error) => Err(self.failed("remove", name, error)),
        }
    }

    fn unlink(&self, name: &str) -> Result<bool, Error> {
        match unlinkat(&self.file, name, AtFlags::empty()) {
            Ok(()) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(self.failed("remove", name, error)),
        }
    }

    fn sync(&self) -> Result<(), Error> {
        self.file.sync_all().map_err(|source| Error::Io {
            operation: "sync",
            path: self.path.clone(),
            source,
        })
    }

    fn failed(&self, operation: &'static str, name: &str, error: Errno) -> Error {
        Error::Io { operation, path: self.path.join(name), source: io::Error::from(error) }
    }

    /// An error about the content of a file.
    pub fn unlike(&self, name: &str, reason: String) -> Error {
        Error::Content { path: self.path.join(name), reason }
    }
}

/// True for the error of a file or folder that is missing.
pub fn is_missing(error: &Error) -> bool {
    matches!(error, Error::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
}
