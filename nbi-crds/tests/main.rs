//! What the API server takes and refuses, and whether what is committed is fresh.
//! One binary, since each is linked with all that it uses.

mod apiserver;
mod stale;
mod types;
