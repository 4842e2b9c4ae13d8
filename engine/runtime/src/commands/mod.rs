//! Commands to drivers and what drivers report, both over NATS.

pub mod drivers;
pub mod parts;
pub mod publish;
pub mod stored_parts;
pub mod streams;

pub use drivers::NODE_DRIVER;
