//! The client with a real ovsdb-server, which is also cut off, restarted and slowed down.

mod faults;
mod fixture;
mod mirror;
mod proxy;
mod tls;
mod transact;
