//! Probes through real switches: agents on nodes with Open vSwitch, and one more in between as their fabric.

mod answers;
mod clusters;
pub mod fixture;
mod isolation;
mod kernel;
mod ports;
mod process;
mod sizes;
mod visits;
