//! The driver with a real Open vSwitch of its own.

mod changes;
mod conformance;
mod fixture;
mod frames;
mod large_answers;
mod tls;
mod transports;
