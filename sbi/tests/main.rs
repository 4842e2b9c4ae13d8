//! The host and the way to NATS on a real nats-server.
//! One binary, since each is linked with all that it uses.

mod host;
mod permissions;
mod tls;
