//! What the API server accepts and refuses. One binary, to link the dependencies once.

mod apiserver;
mod types;
