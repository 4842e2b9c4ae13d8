//! The driver on real Open vSwitches, and its laws on tables in memory.
//! One binary, since each is linked with all that it uses.

mod law;
mod plan;
mod switch;
