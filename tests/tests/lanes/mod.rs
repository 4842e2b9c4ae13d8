//! Slow tests, which `make lanes` runs and `make test` skips: takeovers, crash points, large loads, the operator in pods that are
//! moved, and the rendered book.

mod book;
mod crash;
mod ha;
mod in_cluster;
mod soak;
