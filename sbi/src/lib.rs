//! What every southbound driver shares: the [`Driver`] trait, the [`host`] that runs it on NATS, and the plumbing
//! of a [`daemon`] and its way to [`nats`], which the engine uses too.

#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
pub mod daemon;
mod driver;
pub mod host;
pub mod nats;

pub use daemon::{DriverAbout, driver_main};
pub use driver::{Driver, Identity, Reconciled, Work};
pub use host::Ownership;
