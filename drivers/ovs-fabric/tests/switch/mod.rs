//! The driver with a real Open vSwitch of its own.

mod changes;
mod conformance;
mod fixture;
mod frames;
mod tls;
mod transports;
