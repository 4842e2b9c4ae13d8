//! Frames through simulated switches, between two hosts: what gets through is what is configured on every hop.

mod bench;
#[path = "../common/mod.rs"]
mod common;
mod end;
mod forwarding;
mod host;
