//! The agent on real network namespaces, Open vSwitch and NATS.
//! One binary, since each is linked with all that it uses.

mod agent;
mod host;
mod ovs;
mod pods;
