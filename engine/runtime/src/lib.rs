//! The engine's runtime. It watches the API server and NATS, feeds the pure core and carries out its effects. All IO
//! of the engine is here, all decisions are in `eno-core`.
//!
//! One task owns the core (`leader`). Watches and reports of drivers reach it by one mailbox; [`watch::ingest`] converts
//! objects into values. The schedule of the core decides when commands are published. The writer writes each object in
//! order: outbox, status, finalizer. Callbacks are posted from the outbox.

mod api;
mod args;
pub mod callbacks;
mod commands;
mod inspect;
mod leader;
mod metrics;
mod node_logins;
mod nodes;
mod run;
mod status;
mod watch;

pub use api::{finalizer, resource};
pub use args::EngineArgs;
pub use callbacks::CallbackArgs;
pub use inspect::{MessageChange, follow, follow_messages, forecast, observation, stored_messages, trace};
pub use leader::lease;
pub use nodes::node_labels::unmark_nodes;
pub use run::run;
