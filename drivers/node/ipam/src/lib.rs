//! The addresses that a node gives to its pods: files that the agent and the CNI plugin `eno-ipam` share.
//!
//! Each Subnet has a folder below the root, with the pool of the node:
//!
//! | file | content |
//! |---|---|
//! | `ranges.json` | what the node may give ([`NodeAddresses`](eno_schemas::NodeAddresses)); the agent writes it |
//! | `leases/<container>.<ifname>` | the address of an interface ([`Lease`]); the plugin writes it |
//! | `waiting/<container>.<ifname>` | an interface that waits for an address ([`Waiting`]); the plugin writes it |
//! | `last` | the address that was given last, so that those just released are given last |
//! | `lock` | who reads or writes has an exclusive flock(2) of it |
//!
//! A file changes by a new one of another name, fsync(2), rename(2) and fsync(2) of its folder. So a process that is
//! killed leaves the old content or the new one. No link below the root is followed: who may only write there reaches
//! no other file through the plugin.

pub mod choice;
mod folder;
pub mod install;
mod lease;
mod pool;

use std::io;
use std::path::PathBuf;

pub use choice::Reason;
pub use lease::{Lease, Netns, Requester, Waiting, is_gone};
pub use pool::{Locked, PoolDir, Root, Taken};

/// Why files of addresses can't be read or written. A retry helps only after what it names is repaired.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A part of a path that comes from outside.
    #[error(
        "{what} {name:?} has to be 1 to 253 of a-z, A-Z, 0-9, '_', '.' and '-', without a dot at the beginning"
    )]
    Name {
        /// What has the name.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// A container whose id has a dot, which separates it from the interface.
    #[error("container ID {0:?} has a dot, which no container runtime of Kubernetes uses")]
    Container(String),
    /// The system refused it.
    #[error("{operation} {}: {source}", path.display())]
    Io {
        /// `open`, `write` and so on.
        operation: &'static str,
        /// Of the file or folder.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A file with another content than ours.
    #[error("{} {reason}; remove it if no pod uses its address", path.display())]
    Content {
        /// Of the file.
        path: PathBuf,
        /// What is wrong with it. Nothing of the content is quoted.
        reason: String,
    },
}
