//! Frames between two hosts through simulated switches, according to the configuration of every hop.

mod bgp;
mod bgp_dialects;
mod forwarding;
mod gateway;
mod host;
mod openconfig_bgp;
mod teardown;
mod testbed;
mod worker;
