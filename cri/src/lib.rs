//! From a pod's uid to its network namespace.
//!
//! The socket of a container runtime (CRI) is worth root on its node: who holds it can start a privileged container.
//! So the agent, which takes orders from afar, doesn't hold it. `eno-cri-resolver`, a small process of its own, does,
//! and answers one question over a unix socket: which network namespace does this pod have. It takes no other, and
//! refuses to name the namespace of a pod that uses the node's own network.
//!
//! This library is the [`Client`] and the [`protocol`]; with the feature `resolver` (the default) the package also
//! builds the process. Without it neither gRPC nor a command line comes in.
//!
//! ```no_run
//! # async fn example() -> Result<(), eno_cri::ResolveError> {
//! let client = eno_cri::Client::new(eno_cri::DEFAULT_SOCKET);
//! let pod = client.resolve("0b9a1c3e-5d7f-4a2b-8c6d-1e2f3a4b5c6d", None).await?;
//! println!("{} is namespace {}", pod.path.display(), pod.inode);
//! # Ok(())
//! # }
//! ```

mod client;
pub mod protocol;

pub use client::{Client, ResolveError};
pub use protocol::{Reason, Resolved};

/// Where the resolver listens unless told otherwise.
pub const DEFAULT_SOCKET: &str = "/run/eno/cri.sock";
