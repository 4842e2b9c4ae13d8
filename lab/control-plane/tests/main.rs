//! Tests of the control plane, its nodes and OpenStack.
//! All are one binary: linking each test separately would take longer.

mod control_plane;
mod nodes;
mod openstack;
