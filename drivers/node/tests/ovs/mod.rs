//! Open vSwitch: the driver against a real database, and against a real switch with real packets.

mod database;
pub mod fixture;
mod packets;
