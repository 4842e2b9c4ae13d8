//! The `eno` command as a library, for tests and for the laboratory.

pub mod apply;
pub mod commands;
pub mod import;
mod inspect;
pub mod programs;
