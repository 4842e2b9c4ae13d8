//! Open vSwitch: the driver against a real database with a fake switch, and against a real switch with real packets.

mod database;
pub mod fixture;
mod packets;
