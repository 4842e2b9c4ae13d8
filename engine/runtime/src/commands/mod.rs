//! Commands to drivers and what drivers report, both over NATS.

pub mod drivers;
pub mod publish;
pub mod streams;

pub use drivers::NODE_DRIVER;
