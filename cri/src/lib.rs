//! Resolves a pod's uid to its network namespace.
//!
//! Access to a container runtime's socket (CRI) equals root on its node, since it can start privileged containers. The
//! agent, which takes remote commands, therefore has no access. Only the small process `eno-cri-resolver` has: it
//! returns the network namespace of a pod over a unix socket. It serves no other request, and returns no namespace for
//! a pod on the host's network.
//!
//! This library is the [`Client`] and the [`protocol`]; with the feature `resolver` (the default) the package also
//! builds the process. Without it there is no dependency on gRPC or clap.
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

/// The resolver's default socket.
pub const DEFAULT_SOCKET: &str = "/run/eno/cri.sock";
