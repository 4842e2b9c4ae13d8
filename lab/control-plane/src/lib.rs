//! A Kubernetes control plane with NATS on one machine: etcd, kube-apiserver, kube-controller-manager and
//! nats-server run as child processes, with TLS and RBAC as in a cluster.
//!
//! - [`parts`] finds each program ("part"), or obtains it: a prebuilt download if possible, else a build from pinned
//!   Go modules that this crate embeds.
//! - [`ControlPlane`] runs them in a directory. A restart in the same directory resumes the same cluster. Several
//!   control planes can run in different directories.
//! - [`NodesOptions`] adds nodes that run pods, each with a kubelet, containerd and Open vSwitch in namespaces of its
//!   own ([`node`]). Nodes need root.
//! - [`openstack`] runs Keystone and Neutron, of which the driver `neutron` makes networks.
//! - NATS has the users of `deploy/nats` with their rights ([`AUTHORIZATION`]).
//! - [`Supervisor`] owns the child processes: none of them outlives the process that started it.
//!
//! The crate is for development and tests. Data survives a crash of any process, but not a power failure: etcd runs
//! without fsync for a fast start.

pub mod node;
pub mod openstack;
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
pub use directory::{DirectoryError, write_private};
pub use nats::{AUTHORIZATION, LIMITS, NatsInfo, NatsKey, NatsKeyError, NatsUser, nats_keys};
pub use node::{Node, NodeError, Nodes, NodesOptions};
pub use pki::PkiError;
pub use ports::pick_port;
pub use programs::SERVICE_NETWORK;
pub use supervisor::{Exited, SuperviseError, Supervisor};
