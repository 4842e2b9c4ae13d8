//! What `eno plan`, `status`, `trace`, `blame`, `addresses` and `ui` show.

pub mod follow;
mod follow_messages;
pub mod forecast;
pub mod observation;
pub mod trace;

pub use follow_messages::{MessageChange, follow_messages, stored_messages};
