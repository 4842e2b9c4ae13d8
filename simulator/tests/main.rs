//! Tests of the simulator with independent clients and packets.
//! All are one binary: linking each test separately would take longer.

mod common;
mod dataplane;
mod fabric;
mod ncclient;
mod scale;
