//! What the API server accepts and refuses, whether `deploy/` knows every kind, and whether committed files are current. One binary, to link the
//! dependencies once.

mod apiserver;
mod deploy;
mod stale;
mod types;
