//! The driver of one node: the networks of its host, and what its running pods are given.

pub mod driver;
pub mod host;
pub mod netlink;
pub mod ovs;
pub mod pods;
pub mod switch;
