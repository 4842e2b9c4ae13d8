//! The driver on a real API server, and its configurations in real plugins.
//! One binary, since each is linked with all that it uses.

mod addresses;
mod api;
mod cnitool;
mod common;
mod conformance;
mod golden;
mod injection;
mod plan;
