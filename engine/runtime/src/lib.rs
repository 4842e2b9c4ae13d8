//! The engine's runtime. It watches the API server and NATS, feeds the pure core and carries out its effects. All IO
//! of the engine is here, all decisions are in `eno-core`.
//!
//! One task owns the core (`leader`). Watches and reports of drivers reach it by one mailbox; [`mod@ingest`] converts
//! objects into values. The command scheduler decides when commands are published. The writer writes each object in
//! order: outbox, status, finalizer. Callbacks are posted from the outbox.

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
