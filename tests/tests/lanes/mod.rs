//! What `make lanes` runs and `make test` does not: it waits for a takeover, tries many points, or makes much.

mod crash;
mod ha;
mod soak;
