//! Errors of netlink requests and network namespaces, with messages for administrators.

use std::io;
use std::path::PathBuf;

use nix::errno::Errno;

/// Why a netlink request failed.
#[derive(Debug, thiserror::Error)]
pub enum NetlinkError {
    /// The kernel answered with an error.
    #[error("can't {operation}: {}{}", errno.desc(), detail.as_deref().map(|text| format!(" ({text})")).unwrap_or_default())]
    Refused {
        /// The operation and its object, such as `add address 10.0.0.2/24 to net1`.
        operation: String,
        /// The error code.
        errno: Errno,
        /// The kernel's message (`NLMSGERR_ATTR_MSG`).
        detail: Option<String>,
    },
    /// The socket failed.
    #[error("can't {operation}: {source}")]
    Socket {
        /// The operation and its object.
        operation: String,
        /// The I/O error.
        source: io::Error,
    },
    /// The answer is larger than what is read of one pod.
    #[error("can't {operation}: there is more than {} MiB of it", limit >> 20)]
    TooLarge {
        /// The operation and its object.
        operation: String,
        /// The limit in bytes.
        limit: usize,
    },
    /// The answer can't be decoded as rtnetlink.
    #[error("can't {operation}: the kernel's answer is not understood: {message}")]
    Malformed {
        /// The operation and its object.
        operation: String,
        /// The decoder's message.
        message: String,
    },
}

impl NetlinkError {
    /// The error code, where the kernel or the socket gave one.
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Self::Refused { errno, .. } => Some(*errno),
            Self::Socket { source, .. } => source.raw_os_error().map(Errno::from_raw),
            Self::Malformed { .. } | Self::TooLarge { .. } => None,
        }
    }

    /// True when the same request may succeed later: an object is busy, is being deleted, or has just been deleted with
    /// its namespace.
    pub fn retryable(&self) -> bool {
        match self.errno() {
            Some(errno) => matches!(
                errno,
                Errno::EBUSY
                    | Errno::EAGAIN
                    | Errno::EINTR
                    | Errno::ENOBUFS
                    | Errno::ENOMEM
                    | Errno::ENODEV
                    | Errno::ENXIO
                    | Errno::ENOENT
                    | Errno::ESRCH
                    | Errno::EEXIST
                    | Errno::ENETDOWN
                    | Errno::EMFILE
                    | Errno::ENFILE
            ),
            None => matches!(self, Self::TooLarge { .. }),
        }
    }
}

/// Why a network namespace can't be used.
#[derive(Debug, thiserror::Error)]
pub enum NamespaceError {
    /// The file can't be opened.
    #[error("can't open the network namespace {}: {source}", path.display())]
    Open {
        /// The path that was opened.
        path: PathBuf,
        /// The I/O error; `NotFound` when the namespace has ended.
        source: io::Error,
    },
    /// The file is no network namespace.
    #[error("{} is not a network namespace", path.display())]
    Foreign {
        /// The path that was opened.
        path: PathBuf,
    },
    /// The file is another namespace: the expected one has ended and its path was reused.
    #[error("{} is another network namespace than the one that was named", path.display())]
    Replaced {
        /// The path that was opened.
        path: PathBuf,
    },
    /// `setns(2)` failed.
    #[error("can't enter the network namespace: {}", errno.desc())]
    Enter {
        /// The error code.
        errno: Errno,
    },
    /// The worker thread can't be started, or panicked.
    #[error("can't work in the network namespace: {message}")]
    Thread {
        /// The reason.
        message: String,
    },
}

impl NamespaceError {
    /// True when a retry may help: all but a missing privilege and a file that is no namespace.
    pub fn retryable(&self) -> bool {
        match self {
            Self::Open { source, .. } => source.kind() != io::ErrorKind::PermissionDenied,
            Self::Replaced { .. } | Self::Thread { .. } => true,
            Self::Foreign { .. } => false,
            Self::Enter { errno } => !matches!(errno, Errno::EPERM | Errno::EINVAL),
        }
    }
}
