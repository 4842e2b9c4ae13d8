//! What `eno plan`, `status`, `trace` and `blame` show.

pub mod forecast;
pub mod trace;
