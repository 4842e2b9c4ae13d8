//! The whole driver: by the suite that every driver must pass, and as a process with the privileges that it gets.

mod conformance;
mod process;

#[allow(dead_code, reason = "each test target uses some of it")]
#[path = "../host/common.rs"]
mod common;
