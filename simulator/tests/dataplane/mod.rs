//! Frames through simulated switches, between two hosts: what gets through is what is configured on every hop.

mod bench;
mod end;
mod forwarding;
mod host;
