//! Tests of other crates, on a kernel that has what the machine's own may lack.

mod lanes;
