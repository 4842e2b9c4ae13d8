//! The whole driver: by the suite that every driver must pass, as a process with the privileges that it gets, and
//! killed wherever it changes something.

mod conformance;
mod killed;
mod process;

#[allow(dead_code, reason = "each test target uses some of it")]
#[path = "../host/common.rs"]
mod common;

#[allow(dead_code, reason = "each test target uses some of it")]
#[path = "../ovs/rig.rs"]
mod rig;
