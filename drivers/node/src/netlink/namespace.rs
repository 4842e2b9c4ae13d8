//! Network namespaces: opened, told apart by (device, inode), entered on threads that nothing else runs on.

use std::cell::Cell;
use std::fs::File;
use std::os::fd::{AsRawFd as _, RawFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::statfs::{FsType, fstatfs};
use tokio::sync::oneshot;

use super::NamespaceError;
use super::workers::{self, Tell};

thread_local! {
    /// The thread is in a namespace that it has entered.
    static AWAY: Cell<bool> = const { Cell::new(false) };
}

/// `NSFS_MAGIC` of linux/magic.h.
const NSFS_MAGIC: FsType = FsType(0x6e73_6673);

/// Which namespace it is, for as long as it lives or is held open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NamespaceId {
    /// `st_dev` of its file.
    pub device: u64,
    /// `st_ino` of its file.
    pub inode: u64,
}

/// A network namespace that is held open: it stays that one whatever becomes of the path that it was opened by, and
/// lives for as long as this does.
#[derive(Clone, Debug)]
pub struct Namespace {
    file: Arc<File>,
    id: NamespaceId,
}

impl Namespace {
    /// Opens the namespace at `path`, which is asked who it is only after that.
    pub fn open(path: &Path) -> Result<Self, NamespaceError> {
        let failed = |source| NamespaceError::Open { path: path.to_owned(), source };
        let file = File::open(path).map_err(failed)?;
        let kind = fstatfs(&file).map_err(|errno| failed(errno.into()))?.filesystem_type();
        if kind != NSFS_MAGIC {
            return Err(NamespaceError::Foreign { path: path.to_owned() });
        }
        let found = file.metadata().map_err(failed)?;
        let id = NamespaceId { device: found.dev(), inode: found.ino() };
        Ok(Self { file: Arc::new(file), id })
    }

    /// Opens the namespace at `path` if it is still the one called `id`.
    pub fn open_exactly(path: &Path, id: NamespaceId) -> Result<Self, NamespaceError> {
        let namespace = Self::open(path)?;
        if namespace.id == id {
            Ok(namespace)
        } else {
            Err(NamespaceError::Replaced { path: path.to_owned() })
        }
    }

    /// That of the calling thread.
    pub fn current() -> Result<Self, NamespaceError> {
        Self::open(Path::new("/proc/thread-self/ns/net"))
    }

    /// A new, empty one, which ends with the last that holds it.
    pub fn create() -> Result<Self, NamespaceError> {
        let made = std::thread::spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET).map_err(|errno| NamespaceError::Enter { errno })?;
            Self::current()
        });
        made.join().map_err(|_| NamespaceError::Thread { message: "its thread crashed".to_owned() })?
    }

    /// Which one it is.
    pub fn id(&self) -> NamespaceId {
        self.id
    }

    /// The open file, as `IFLA_NET_NS_FD` takes it.
    pub fn fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    /// A path that leads to it for as long as this process holds it.
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.fd()))
    }

    /// Moves the calling thread there for good: only for threads that nobody else uses, such as that of
    /// [`Self::run`].
    pub fn enter(&self) -> Result<(), NamespaceError> {
        AWAY.set(true);
        setns(&*self.file, CloneFlags::CLONE_NEWNET).map_err(|errno| NamespaceError::Enter { errno })
    }

    /// Moves the calling thread back to this one, in which it was started. False when that failed.
    pub(super) fn go_home(&self) -> bool {
        if AWAY.get() && self.enter().is_ok() {
            AWAY.set(false);
        }
        !AWAY.get()
    }

    /// Does `work` on a thread that is inside it. When the future is dropped the work goes on to its end.
    pub async fn run<T, F>(&self, work: F) -> Result<T, NamespaceError>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        let namespace = self.clone();
        anywhere(move || {
            let outcome = namespace.enter().map(|()| work());
            // Nothing that waits keeps it alive.
            drop(namespace);
            outcome
        })
        .await?
    }
}

/// Does `work` on a thread that may enter namespaces, and has to before it does anything else: it is anywhere at
/// first. When the future is dropped the work goes on to its end.
pub async fn anywhere<T, F>(work: F) -> Result<T, NamespaceError>
where
    T: Send + 'static,
    F: FnOnce() -> T + Send + 'static,
{
    let (done, result) = oneshot::channel();
    let job = move || -> Tell {
        let outcome = work();
        Box::new(move || drop(done.send(outcome)))
    };
    workers::spawn(Box::new(job)).map_err(|error| NamespaceError::Thread { message: error.to_string() })?;
    result.await.map_err(|_| NamespaceError::Thread { message: "its thread crashed".to_owned() })
}
