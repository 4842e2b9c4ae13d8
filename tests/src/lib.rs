//! The harness of the end-to-end tests: a whole sandbox, its API, its switches and a receiver of callbacks.
//!
//! Nothing here sleeps: every function waits for a condition on a watch or a long poll, with a timeout. Its failure
//! names the last state. Failures panic, since only tests call them.

pub mod browser;
mod callbacks;
pub mod fault_injection;
mod helm;
mod manifests;
mod networks;
mod nodes;
mod objects;
mod openstack;
mod ovs;
mod poll;
mod program;
mod speaker;
mod switches;
mod system;

pub use callbacks::{Callback, Receiver};
pub use helm::Helm;
pub use manifests::{access, attachment, connection_point, object, service, subnet, unchecked_namespace};
pub use networks::Networks;
pub use nodes::{daemon_set, deployment, nodes, two_nodes};
pub use objects::ExpectedStatus;
pub use openstack::{PHYSICAL_NETWORK, Placed};
pub use ovs::OpenVswitch;
pub use poll::{poll, poll_within, until};
pub use speaker::Speaker;
pub use switches::{Ports, between_leaves};
pub use system::{
    System, TIMEOUT, with_exclusive_nodes, with_exclusive_openstack, with_exclusive_sandbox,
    with_new_sandbox, with_own_sandbox, with_shared_nodes, with_shared_openstack, with_shared_sandbox,
};

/// The prefix of the VLAN names of the sandbox's engine.
pub const VLAN_PREFIX: &str = "eno-sandbox-";
