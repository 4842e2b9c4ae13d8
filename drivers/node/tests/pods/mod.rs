//! Pods in network namespaces of their own, and a host that is one too.

mod common;
mod drift;
mod kinds;
mod lifecycle;
mod mirror;
mod path;
mod refusals;
mod restore;
