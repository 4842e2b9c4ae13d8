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
mod drift;
mod drivers;
mod events;
pub mod forecast;
mod gate;
pub mod ingest;
mod kept;
mod latest;
pub mod lease;
mod mailbox;
mod marks;
mod metrics;
mod networks;
mod objects;
#[cfg(test)]
mod on_a_cluster;
mod outbox;
mod pod_networks;
mod publish;
mod reign;
mod repairs;
mod run;
mod samples;
mod seen;
mod status;
mod streams;
mod tenure;
pub mod trace;
mod watch;
mod writer;

pub use args::EngineArgs;
pub use callbacks::CallbackArgs;
pub use run::run;
