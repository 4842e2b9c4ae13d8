//! The pure core: from the world as Kubernetes tells it to the desired state of every target, and from what the
//! targets report to the phase of every object. It knows no clock, no network and no randomness; what it needs
//! of them comes in with its events.

pub mod compat;
mod engine;
mod event;
mod fabric;
mod ids;
mod key;
mod nad;
mod selector;
pub mod spec;
mod status;
mod topology;

pub use engine::Engine;
pub use event::{Config, Effect, Event, Object};
pub use key::{Key, Kind, Name, Target};
pub use selector::{Labels, Operator, Requirement, Selector};
pub use status::{Condition, Status};
