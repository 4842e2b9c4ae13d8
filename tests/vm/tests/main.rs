//! Tests of other crates on a kernel with all features.

mod vm_lanes;
