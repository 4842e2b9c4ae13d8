//! The harness of the end-to-end tests: a whole sandbox, its API, its switches and a subscriber of callbacks.
//!
//! Nothing here sleeps: everything waits for a condition on a watch or a long poll, with a limit, and says what it
//! saw last when the limit passes. Failures panic, since a test is the only caller.

mod callbacks;
pub mod fault_injection;
mod nodes;
mod objects;
mod ovs;
mod program;
mod switches;
mod system;

pub use callbacks::{Callback, Receiver};
pub use nodes::{deployment, two_nodes};
pub use objects::Wanted;
pub use ovs::OpenVswitch;
pub use switches::Ports;
pub use system::{PATIENCE, System, alone, on_nodes, on_nodes_alone, own, shared};

/// What the sandbox's engine puts in front of the ID in the name of a VLAN.
pub const VLAN_PREFIX: &str = "eno-sandbox-";
