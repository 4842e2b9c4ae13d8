//! What the engine writes about its objects: outbox, status, finalizers, Kubernetes Events.

pub mod bounds;
pub mod bridge_domains;
pub mod convert;
#[cfg(test)]
pub mod crd_bounds;
pub mod events;
pub mod outbox;
pub mod writer;
