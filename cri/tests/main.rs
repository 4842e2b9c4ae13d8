//! The resolver with a real containerd, and its socket. One binary, to link the dependencies once.

mod common;
mod containerd;
mod socket;
