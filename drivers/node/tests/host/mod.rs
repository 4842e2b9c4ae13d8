//! Networks of the host, each test in network namespaces of its own.

pub mod common;
mod guards;
mod pod_bridge;
mod sessions;
mod uplinks;
mod watch;
