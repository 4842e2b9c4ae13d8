//! Slow tests, which `make lanes` runs and `make test` skips: takeovers, crash points and large loads.

mod crash;
mod ha;
mod soak;
