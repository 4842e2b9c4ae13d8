//! The laboratory: everything on one machine, for a demo, for tests and for measurements. No cluster needs it.
#![deny(clippy::print_stdout, reason = "`outln!` ends the program when its reader is gone")]

pub mod bench;
pub mod commands;
pub mod demo;
mod engine_metrics;
pub mod manifests;
pub mod nats;
mod networks;
pub mod receiver;
pub mod sandbox;
pub mod soak;
pub mod switch;
mod usage;
