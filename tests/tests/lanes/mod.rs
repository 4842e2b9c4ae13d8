//! Slow tests, which `make lanes` runs and `make test` skips: takeovers, crash points, large loads and the rendered book.

mod book;
mod crash;
mod ha;
mod soak;
