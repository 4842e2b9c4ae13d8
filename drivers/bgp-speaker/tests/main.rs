//! The driver with a real API server.

mod api;
mod cluster;
mod conformance;
