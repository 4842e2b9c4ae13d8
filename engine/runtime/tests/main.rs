//! The engine on a real API server and a real nats-server.
//! One binary, since each is linked with all that it uses.

mod agent;
mod cluster;
mod cluster_id;
mod fabric;
mod gitops;
mod pods;
