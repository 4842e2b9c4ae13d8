//! The southbound interface: the [`Driver`] trait, the [`host`] that runs a driver on NATS, and the
//! [`daemon`] and [`nats`] plumbing that the engine uses too.

mod audits;
mod baseline;
mod certificates;
mod clock_skew;
pub mod daemon;
mod driver;
pub mod host;
mod memory;
pub mod nats;
mod permit;
mod random;
mod retry_after;
mod secret_name;
mod target_ownership;
mod work;

pub use audits::AuditSchedule;
pub use baseline::{Baseline, BaselineGuard};
pub use certificates::{CertificateEnd, Certificates};
pub use clock_skew::{MAX_CLOCK_SKEW, clock_skew};
pub use daemon::{DriverAbout, driver_main};
pub use driver::{Driver, Identity, Reconciled};
pub use eno_program::VERSION;
pub use host::{Ownership, Peers, Visits};
pub use memory::{Memory, Share, TooLarge, json_size};
pub use random::{random, random_up_to};
pub use retry_after::retry_after;
pub use secret_name::is_secret_name;
pub use work::{
    BGP, DYNAMIC_NEIGHBOURS, HOLD, HoldOutcome, Intent, LOOKUPS, LatestCommand, PARTS, Phase, VISITS, VRFS,
    Work,
};
