//! Crashes and faults at each write of a reference scenario. The final state of each run must equal that of an
//! undisturbed run.
//!
//! The engine reaches the API server and NATS through proxies of the test ([`ApiProxy`], [`NatsProxy`]). They count its
//! writes and inject a fault at the write of a chosen number. Faults of the netconf driver are injected by switches
//! that fall silent.

mod api;
mod final_state;
mod frames;
mod injection;
mod nats;
mod run;
mod scenario;
mod sweep;
mod write_counter;

pub use api::ApiProxy;
pub use injection::{Injection, InjectionSite};
pub use nats::NatsProxy;
pub use run::{Deviation, FaultInjectionTest, Reference};
pub use scenario::{Stage, topology};
pub use sweep::{Extent, Report};
pub use write_counter::{Fault, WriteCounter};
