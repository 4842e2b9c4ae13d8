//! Tests of the control plane and its nodes.
//! All are one binary: linking each test separately would take longer.

mod control_plane;
mod nodes;
