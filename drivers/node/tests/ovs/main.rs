//! Open vSwitch: the driver against a real database, and against a real switch with real packets.

mod database;
mod packets;
#[allow(dead_code, reason = "each test target uses some of it")]
mod rig;
