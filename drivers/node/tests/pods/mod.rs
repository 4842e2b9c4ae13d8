//! Pods and the host in network namespaces of their own.

mod announcements;
mod anti_spoof;
mod attacks;
pub mod common;
mod drift;
mod kinds;
mod lifecycle;
mod mirror;
mod path;
mod refusals;
mod restore;
mod sub_interfaces;
