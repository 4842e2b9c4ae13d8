//! The control plane and its nodes.
//! One binary, since each is linked with all that it uses.

mod control_plane;
mod nodes;
