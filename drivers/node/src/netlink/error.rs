//! What can go wrong, in words that an admin understands.

use std::io;
use std::path::PathBuf;

use nix::errno::Errno;

/// A request that the kernel did not carry out.
#[derive(Debug, thiserror::Error)]
pub enum NetlinkError {
    /// The kernel refused it.
    #[error("can't {operation}: {}{}", errno.desc(), detail.as_deref().map(|text| format!(" ({text})")).unwrap_or_default())]
    Refused {
        /// What was to be done to which object, such as `add address 10.0.0.2/24 to net1`.
        operation: String,
        /// Why.
        errno: Errno,
        /// The kernel's own words (`NLMSGERR_ATTR_MSG`).
        detail: Option<String>,
    },
    /// The socket failed.
    #[error("can't {operation}: {source}")]
    Socket {
        /// What was to be done.
        operation: String,
        /// Why.
        source: io::Error,
    },
    /// An answer that is no rtnetlink.
    #[error("can't {operation}: the kernel's answer is not understood: {message}")]
    Garbled {
        /// What was to be done.
        operation: String,
        /// What is wrong with it.
        message: String,
    },
}

impl NetlinkError {
    /// The kernel's reason.
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Self::Refused { errno, .. } => Some(*errno),
            Self::Socket { source, .. } => source.raw_os_error().map(Errno::from_raw),
            Self::Garbled { .. } => None,
        }
    }

    /// The same request may pass later: something is busy, something is about to go, or (of a namespace that ends)
    /// something has just gone.
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
            None => false,
        }
    }
}

/// A network namespace that can't be entered.
#[derive(Debug, thiserror::Error)]
pub enum NamespaceError {
    /// It can't be opened.
    #[error("can't open the network namespace {}: {source}", path.display())]
    Open {
        /// Where it was looked for.
        path: PathBuf,
        /// Why not; `NotFound` when it has ended.
        source: io::Error,
    },
    /// What is there is something else.
    #[error("{} is not a network namespace", path.display())]
    Foreign {
        /// Where it was looked for.
        path: PathBuf,
    },
    /// What is there is another namespace: the old one has ended and its path was used again.
    #[error("{} is another network namespace than the one that was named", path.display())]
    Replaced {
        /// Where it was looked for.
        path: PathBuf,
    },
    /// The kernel does not let us in.
    #[error("can't enter the network namespace: {}", errno.desc())]
    Enter {
        /// Why.
        errno: Errno,
    },
    /// No thread, or it did not come back.
    #[error("can't work in the network namespace: {message}")]
    Thread {
        /// In words.
        message: String,
    },
}

impl NamespaceError {
    /// Another try may help: all but a missing privilege and what is no namespace.
    pub fn retryable(&self) -> bool {
        match self {
            Self::Open { source, .. } => source.kind() != io::ErrorKind::PermissionDenied,
            Self::Replaced { .. } | Self::Thread { .. } => true,
            Self::Foreign { .. } => false,
            Self::Enter { errno } => !matches!(errno, Errno::EPERM | Errno::EINVAL),
        }
    }
}
