//! What the API server accepts and refuses, and whether committed files are current. One binary, to link the
//! dependencies once.

mod apiserver;
mod stale;
mod types;
