//! The simulator as foreign clients and packets see it.
//! One binary, since each is linked with all that it uses.

mod common;
mod dataplane;
mod fabric;
mod ncclient;
mod scale;
