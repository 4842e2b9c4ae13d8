//! The `eno` command as a library, for tests and other programs.

pub mod apply;
pub mod bench;
pub mod commands;
pub mod demo;
mod engine_metrics;
pub mod import;
mod inspect;
pub mod manifests;
pub mod programs;
mod receiver;
pub mod sandbox;
pub mod soak;
pub mod switch;
mod usage;
