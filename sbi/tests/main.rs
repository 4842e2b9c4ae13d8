//! Tests of the host and the NATS connection with a real nats-server. One binary, to link the dependencies
//! once.

mod host;
mod permissions;
mod tls;
