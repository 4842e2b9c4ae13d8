//! The client against a real ovsdb-server, also one that is cut off, restarted and slow.

mod faults;
mod locks;
mod mirror;
mod proxy;
mod rig;
mod tls;
mod transact;
