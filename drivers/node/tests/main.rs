//! The agent on real network namespaces, Open vSwitch and NATS.
//! All tests are in one binary, to save linking time.

mod addresses;
mod agent;
mod host;
mod ovs;
mod pods;
mod probes;
