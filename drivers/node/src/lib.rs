//! The driver of one node: the networks of its host, the interfaces of its running pods, and the addresses of pods that
//! start.

pub mod addresses;
pub mod driver;
pub mod host;
pub mod netlink;
pub mod ovs;
pub mod pods;
pub mod probes;
pub mod switch;
