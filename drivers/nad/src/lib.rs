//! The southbound driver `nad`: it realises one NetworkAttachmentDefinition per target `<namespace>/<name>`.
//!
//! [`codec`], [`object`] and [`plan`] are pure: an attachment as CNI configuration, objects as seen and as wanted,
//! and what to do about the difference. [`NadDriver`] does it: one watch over all NetworkAttachmentDefinitions says
//! what is there, so that making one costs a single write and keeping one costs none.

pub mod codec;
mod failure;
mod mirror;
pub mod object;
pub mod plan;
mod session;

pub use mirror::Watch;
pub use session::{FIELD_MANAGER, NadDriver};
