//! Crashes and faults at each write of a reference scenario, and the comparison of where it ends with where it ends
//! undisturbed.
//!
//! The engine reaches the API server and NATS through proxies of the rig ([`ApiProxy`], [`NatsProxy`]). They count what
//! it writes and strike at the write of a chosen number. The netconf driver is struck by switches that fall silent.

mod api;
mod blow;
mod counter;
mod ends;
mod frames;
mod nats;
mod points;
mod run;
mod scenario;

pub use api::ApiProxy;
pub use blow::{Blow, Place};
pub use counter::{Counter, Fault};
pub use nats::NatsProxy;
pub use points::{Extent, Report};
pub use run::{Reference, Rig, Wrong};
pub use scenario::{Stage, topology};
