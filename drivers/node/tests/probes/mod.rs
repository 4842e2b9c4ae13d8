//! Probes through real switches: agents on nodes with Open vSwitch, and one more in between as their fabric.

mod answers;
mod clusters;
pub mod fixture;
mod kernel;
mod ports;
mod process;
mod visits;
