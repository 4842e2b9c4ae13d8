//! End-to-end tests of the whole operator in sandboxes. They are one binary, since each binary links everything that
//! the tests use.

mod book;
mod console;
mod e2e;
mod imports;
mod install;
mod lanes;
mod nats;
mod nodes;
mod security;
