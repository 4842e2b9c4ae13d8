//! The pure core. It turns Kubernetes objects into the desired state of every target, and reports of targets into the
//! phase of every object. It knows no clock, no network and no randomness; what it needs of them comes in with its
//! events.
//!
//! A module depends only on modules before it in this list, which a test reads:
//!
//! 1. `name`, `selector`, `kinds`, `key`, `status`: names, the kinds, and the specs and statuses of objects as values.
//! 2. `event`, `work`: events in, effects out, and what the parts request of each other.
//! 3. `store`: the objects.
//! 4. `vlan`, `fabric`: who holds which VLAN ID, and the switches.
//! 5. `schedule`: the commands of targets.
//! 6. `node`, `pods`, `bgp`, `nad`: the nodes, the running pods, the nodes with BGP sessions, and the content of NADs.
//! 7. `validate`, `evaluate`: whether an object fits all these, and what its status is.
//! 8. `engine`: the loop.
//! 9. `observer`: a core that only answers questions.

mod bgp;
mod engine;
mod evaluate;
mod event;
mod fabric;
mod key;
pub mod kinds;
mod nad;
mod name;
mod node;
mod observer;
mod pods;
mod schedule;
mod selector;
mod status;
mod store;
mod validate;
mod vlan;
mod work;

pub use engine::Engine;
pub use event::{
    About, Attached, Config, Effect, Event, NoticeKind, Object, Pod, STALLED_AFTER, StoredCommand,
    StreamEvent, Uses, VerifyRequest, Workload,
};
pub use key::{Key, Target};
pub use kinds::{Kind, compat};
pub use name::Name;
pub use observer::{Answers, Observed, Observer, Reported};
pub use schedule::{
    DEADLINE, DecidedTransaction, Moment, Participant, PendingCommand, Reconciled, Republished, instance_of,
};
pub use selector::{Labels, Operator, Requirement, Selector};
pub use status::addresses::{FixedAddress, NodeBlocks};
pub use status::bgp::{Session, Sessions, Worker};
pub use status::condition::{Condition, ConditionReason, ConditionState, ConditionType};
pub use status::hop::{Aspect, Hop, HopState, Part, PodId, Tier, Wait};
pub use status::pods::{LinkEntry, PodEntry, PodInterface, PodView};
pub use status::{
    Confirmed, LastTransaction, PlacementStatus, PortMemory, Status, Verification, VerificationResult,
};
