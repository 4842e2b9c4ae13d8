//! What every southbound driver shares: the [`Driver`] trait, the [`host`] that runs it on NATS, and the plumbing
//! of a [`daemon`] and its way to [`nats`], which the engine uses too.

pub mod daemon;
mod driver;
pub mod host;
pub mod nats;
mod place;
mod secret_name;
mod tenure;
mod turns;
mod work;

pub use daemon::{DriverAbout, driver_main};
pub use driver::{Driver, Identity, Reconciled};
pub use host::Ownership;
pub use secret_name::is_secret_name;
pub use turns::Turns;
pub use work::{HOLD, Intent, Newest, Phase, Verdict, Work};
