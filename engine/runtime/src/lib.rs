//! The engine's runtime: watches the API server and NATS, feeds the pure core, and carries out what it says. All IO of
//! the engine is here, all decisions are in `eno-core`.
//!
//! One task owns the core (`reign`). Watches ([`mod@ingest`] turns their objects into values) and drivers' reports come
//! in by one mailbox; commands go out by the publisher as the gate lets them; what is said of objects goes out by the
//! writer, for each object in order: outbox, status, finalizer. Callbacks are posted from the outbox.

mod api;
mod args;
mod bridge_domains;
pub mod callbacks;
mod cluster_id;
#[cfg(test)]
mod cluster_tests;
mod command_scheduler;
mod drift;
mod drivers;
mod events;
pub mod forecast;
pub mod ingest;
mod leader;
pub mod lease;
mod lease_guard;
mod mailbox;
mod metrics;
mod networks;
mod node_labels;
mod objects;
mod outbox;
mod pod_networks;
mod publish;
mod reconcile_queue;
mod repairs;
mod run;
mod samples;
mod slim_objects;
mod status;
mod stream_reader;
mod streams;
pub mod trace;
mod watch;
mod writer;

pub use args::EngineArgs;
pub use callbacks::CallbackArgs;
pub use run::run;
