//! The whole, in sandboxes.
//! One binary, since each is linked with all that it uses.

mod crash;
mod e2e;
mod ha;
mod imports;
mod nats;
mod nodes;
mod security;
mod soak;
