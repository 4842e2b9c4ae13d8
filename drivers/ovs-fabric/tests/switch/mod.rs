//! The driver on a real Open vSwitch of its own.

mod changes;
mod conformance;
mod frames;
mod rig;
mod tls;
mod transports;
