//! The resolver on a real containerd, and its socket.
//! One binary, since each is linked with all that it uses.

mod common;
mod containerd;
mod socket;
