//! Messages against their schemas.
//! One binary, since each is linked with all that it uses.

mod compatibility;
mod messages;
