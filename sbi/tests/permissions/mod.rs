//! NATS permissions, tested with a real nats-server and the shipped configuration of `deploy/nats`.

mod bypass;
mod matrix;
