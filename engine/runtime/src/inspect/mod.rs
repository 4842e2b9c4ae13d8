//! What `eno plan`, `status`, `trace`, `blame` and `addresses` show.

pub mod follow;
pub mod forecast;
pub mod trace;
