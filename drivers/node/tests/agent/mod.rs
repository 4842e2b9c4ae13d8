//! The whole driver: the conformance suite of all drivers, the program with its restricted capabilities, and the
//! program killed at its changes.

pub mod conformance;
mod killed;
mod ovs_unreachable;
pub mod process;
