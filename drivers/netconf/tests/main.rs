//! Tests of the driver against the simulator, and properties of its dialects on devices in memory. One binary, since
//! each links all that it uses.

mod access;
mod bgp;
mod common;
mod conformance;
mod corpus;
mod dialects;
mod foreign_text;
mod large_answers;
mod lookup;
mod properties;
mod session;
mod transaction;
mod transaction_drift;
mod transaction_faults;
mod transaction_hold;
mod transaction_part;
mod transaction_refused;
mod transaction_seen;
mod vrfs;

mod unresponsive_devices;
