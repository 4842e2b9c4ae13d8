//! Slow tests, which `make lanes` runs and `make test` skips: takeovers, rotations of keys, crash points, large loads and the rendered book.

mod book;
mod crash;
mod ha;
mod rotation;
mod soak;
