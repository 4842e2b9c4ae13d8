//! Open vSwitch: the driver against a real database, and against a real switch with real packets.

mod database;
mod packets;
pub mod rig;
