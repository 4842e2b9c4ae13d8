//! The pure core. It turns Kubernetes objects into the desired state of every target, and reports of targets into the
//! phase of every object. It knows no clock, no network and no randomness; what it needs of them comes in with its
//! events.

mod engine;
mod event;
mod fabric;
mod key;
mod nad;
mod node;
mod pods;
mod schedule;
mod selector;
pub mod spec;
mod status;
mod store;
mod validate;
mod vlan;
mod work;

pub use engine::Engine;
pub use event::{About, Config, Effect, Event, NoticeKind, Object, STALLED_AFTER};
pub use fabric::placement::{Confirmed, PlacementStatus};
pub use key::{Key, Kind, Name, Target};
pub use nad::templates::Workload;
pub use pods::view::{LinkEntry, Pod, PodEntry, PodInterface, PodView, Uses};
pub use schedule::{
    DEADLINE, DecidedTransaction, Moment, Participant, PendingCommand, Reconciled, Republished,
    StoredCommand, StreamEvent, instance_of,
};
pub use selector::{Labels, Operator, Requirement, Selector};
pub use status::condition::{Condition, ConditionReason, ConditionState, ConditionType};
pub use status::{LastTransaction, PortMemory, Status};
pub use validate::compat;
