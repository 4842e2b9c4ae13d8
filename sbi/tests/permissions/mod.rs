//! Who may do what on NATS, tried on a real nats-server with the configuration of `deploy/nats` as it is shipped.

mod beyond;
mod matrix;
mod server;
