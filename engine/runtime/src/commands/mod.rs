//! Commands to drivers and what drivers report, both over NATS.

pub mod drift;
pub mod drivers;
pub mod publish;
pub mod repairs;
pub mod streams;

pub use drivers::NODE_DRIVER;
