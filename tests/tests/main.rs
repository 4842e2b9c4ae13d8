//! The whole, in sandboxes.
//! One binary, since each is linked with all that it uses.

mod deploy;
mod e2e;
mod imports;
mod lanes;
mod nats;
mod nodes;
mod security;
