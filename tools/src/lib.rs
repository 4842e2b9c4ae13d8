//! A whole Kubernetes control plane with NATS on one machine, from real parts: etcd, kube-apiserver,
//! kube-controller-manager and nats-server run as child processes, with TLS and RBAC as in a cluster.
//!
//! - [`parts`] finds each program, or gets it: a prebuilt download where that works, else a build from
//!   pinned Go modules that this crate carries with it.
//! - [`ControlPlane`] runs them in a directory. The same directory is the same cluster again; several
//!   directories run side by side.
//! - With [`NodesOptions`] there are nodes as well, which run pods: a kubelet, containerd and Open vSwitch each, in
//!   namespaces of their own ([`node`]). That needs root.
//! - NATS has the users of `deploy/nats` with their rights ([`AUTHORIZATION`]).
//! - [`Supervisor`] is what holds the children: none of them outlives the process that started it.
//!
//! It is made for development and tests. Data survives a crash of any process, but not a power failure:
//! etcd runs without fsync, which is what makes a start take seconds.

pub mod node;
pub mod parts;

mod control_plane;
mod directory;
mod kubeconfig;
mod nats;
mod pki;
mod ports;
mod programs;
mod spawner;
mod supervisor;

pub use control_plane::{ControlPlane, ControlPlaneError, ControlPlaneOptions};
pub use directory::DirectoryError;
pub use nats::{AUTHORIZATION, NatsInfo, NatsKeyError, NatsUser, nats_keys};
pub use node::{Node, NodeError, Nodes, NodesOptions};
pub use pki::PkiError;
pub use ports::pick_port;
pub use supervisor::{Exited, SuperviseError, Supervisor};
