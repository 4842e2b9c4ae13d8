//! Messages and their schemas. One binary, to link the dependencies once.

mod compatibility;
mod messages;
mod parts;
