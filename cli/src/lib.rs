//! The `eno` command as a library, for tests and for the laboratory.
#![deny(clippy::print_stdout, reason = "`outln!` ends the program when its reader is gone")]

pub mod apply;
pub mod check;
pub mod commands;
mod connectivity;
pub mod import;
mod inspect;
pub mod install;
pub mod programs;
pub mod screen;
mod sysdump;
mod ui;
pub mod yaml;

pub use inspect::forward;

/// Commands that NATS stores.
pub mod messages {
    pub use eno_engine::trace::{Messages, command};
}
