//! Pods in network namespaces of their own, and a host that is one too.

mod common;
mod kinds;
mod life;
mod limits;
mod mirror;
mod news;
mod path;
mod undone;
