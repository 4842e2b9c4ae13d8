//! The whole driver: by the suite that every driver must pass, as a process with the privileges that it gets, and
//! killed wherever it changes something.

mod conformance;
mod killed;
mod ovs_unreachable;
mod process;
