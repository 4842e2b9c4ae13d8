//! Slow tests, which `make lanes` runs and `make test` skips: takeovers, crash points, large loads, the operator in pods that are
//! moved, a kind and a driver that are added, the rendered book, and the pages of `eno ui`.

mod book;
mod crash;
mod ha;
mod in_cluster;
mod metallb;
mod soak;
mod toy;
mod ui;
