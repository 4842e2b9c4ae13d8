//! The pure core. It turns Kubernetes objects into the desired state of every target, and reports of targets into the
//! phase of every object. It knows no clock, no network and no randomness; what it needs of them comes in with its
//! events.

mod changes;
pub mod compat;
mod condition;
mod engine;
mod event;
mod fabric;
mod hosts;
mod ids;
mod key;
mod nad;
mod node;
mod podnet;
mod pods;
mod selector;
mod shape;
pub mod spec;
mod status;
mod subnets;
mod topology;

pub use condition::{Condition, ConditionReason, ConditionState, ConditionType};
pub use engine::{Engine, TransactionGroup};
pub use event::{Config, Effect, Event, Object, STALLED_AFTER};
pub use key::{Key, Kind, Name, Target};
pub use pods::{LinkEntry, Pod, PodEntry, PodInterface, PodView};
pub use selector::{Labels, Operator, Requirement, Selector};
pub use status::{LastTransaction, PortMemory, Status};
