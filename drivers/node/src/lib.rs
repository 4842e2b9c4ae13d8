//! The driver of one node: the networks of its host, and the interfaces of its running pods.

pub mod driver;
pub mod host;
pub mod netlink;
pub mod ovs;
pub mod pods;
pub mod probes;
pub mod switch;
