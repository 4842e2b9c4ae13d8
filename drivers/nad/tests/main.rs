//! The driver with a real API server, and its configurations with real plugins. One binary, to link the
//! dependencies once.

mod addresses;
mod api;
mod cnitool;
mod common;
mod conformance;
mod golden;
mod injection;
mod plan;
