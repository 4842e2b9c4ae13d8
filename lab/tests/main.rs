//! The laboratory's commands. One binary, to link the dependencies once.

mod conformance;
mod nodes;
mod reference;
