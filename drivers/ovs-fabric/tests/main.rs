//! The driver with real Open vSwitches, and properties of its plans. One binary, to link the dependencies
//! once.

mod plan;
mod properties;
mod switch;
