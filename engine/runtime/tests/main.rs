//! The engine on a real API server and a real nats-server.
//!
//! All tests share one binary, to link the dependencies once.

mod absent_kinds;
mod agent;
mod api;
mod cluster;
mod cluster_id;
mod fabric;
mod full_store;
mod gitops;
mod pods;
