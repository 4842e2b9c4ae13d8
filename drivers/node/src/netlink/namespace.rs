//! Network namespaces: identified by (device, inode), and entered on threads of their own.

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
use super::workers::{self, Completion};

thread_local! {
    /// True while the thread is in a namespace that it has entered.
    static MOVED: Cell<bool> = const { Cell::new(false) };
}

/// `NSFS_MAGIC` of linux/magic.h.
const NSFS_MAGIC: FsType = FsType(0x6e73_6673);

/// Identifies a network namespace for as long as it exists or is held open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NamespaceId {
    /// `st_dev` of its file.
    pub device: u64,
    /// `st_ino` of its file.
    pub inode: u64,
}

/// A network namespace that is held open. It exists for as long as this value, whatever becomes of the path that it was
/// opened by.
#[derive(Clone, Debug)]
pub struct Namespace {
    file: Arc<File>,
    id: NamespaceId,
}

impl Namespace {
    /// Opens the namespace at `path`. Its id is read from the open file, so that it can't be replaced in between.
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

    /// Opens the namespace at `path`. Fails with [`NamespaceError::Replaced`] if its id is not `id`.
    pub fn open_exactly(path: &Path, id: NamespaceId) -> Result<Self, NamespaceError> {
        let namespace = Self::open(path)?;
        if namespace.id == id {
            Ok(namespace)
        } else {
            Err(NamespaceError::Replaced { path: path.to_owned() })
        }
    }

    /// The namespace of the calling thread.
    pub fn current() -> Result<Self, NamespaceError> {
        Self::open(Path::new("/proc/thread-self/ns/net"))
    }

    /// Makes a new, empty namespace. It ends when nothing holds it open.
    pub fn create() -> Result<Self, NamespaceError> {
        let made = std::thread::spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET).map_err(|errno| NamespaceError::Enter { errno })?;
            Self::current()
        });
        made.join().map_err(|_| NamespaceError::Thread { message: "its thread crashed".to_owned() })?
    }

    /// Its identity.
    pub fn id(&self) -> NamespaceId {
        self.id
    }

    /// The descriptor of the open file, for `IFLA_NET_NS_FD`.
    pub fn fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    /// A path to it below `/proc/self/fd`, valid while this process holds it open.
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.fd()))
    }

    /// Moves the calling thread into the namespace and does not move it back. Only for dedicated threads, such as that
    /// of [`Self::run`].
    pub fn enter(&self) -> Result<(), NamespaceError> {
        MOVED.set(true);
        setns(&*self.file, CloneFlags::CLONE_NEWNET).map_err(|errno| NamespaceError::Enter { errno })
    }

    /// Moves the calling thread back to this namespace, in which it was started. False when that failed.
    pub(super) fn return_home(&self) -> bool {
        if MOVED.get() && self.enter().is_ok() {
            MOVED.set(false);
        }
        !MOVED.get()
    }

    /// Does `work` on a thread inside the namespace. The work runs to its end even if the future is dropped.
    pub async fn run<T, F>(&self, work: F) -> Result<T, NamespaceError>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        let namespace = self.clone();
        run_on_worker(move || {
            let outcome = namespace.enter().map(|()| work());
            // An idle worker must not keep the namespace alive.
            drop(namespace);
            outcome
        })
        .await?
    }
}

/// Does `work` on a worker thread, whose current namespace is arbitrary: `work` has to enter one first. The work runs
/// to its end even if the future is dropped.
pub async fn run_on_worker<T, F>(work: F) -> Result<T, NamespaceError>
where
    T: Send + 'static,
    F: FnOnce() -> T + Send + 'static,
{
    let (done, result) = oneshot::channel();
    let job = move || -> Completion {
        let outcome = work();
        Box::new(move || drop(done.send(outcome)))
    };
    workers::spawn(Box::new(job)).map_err(|error| NamespaceError::Thread { message: error.to_string() })?;
    result.await.map_err(|_| NamespaceError::Thread { message: "its thread crashed".to_owned() })
}
