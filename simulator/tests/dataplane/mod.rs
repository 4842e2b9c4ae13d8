//! Frames between two hosts through simulated switches, according to the configuration of every hop.

mod forwarding;
mod gateway;
mod host;
mod teardown;
mod testbed;
