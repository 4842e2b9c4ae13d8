//! The southbound driver `nad`: it realises one NetworkAttachmentDefinition per target `<namespace>/<name>`.
//!
//! [`codec`] (CNI configurations), [`object`] (observed and desired objects) and [`plan`] are pure.
//! [`NadDriver`] carries plans out. One watch over all NetworkAttachmentDefinitions keeps the observed state,
//! so that creating one costs a single write and keeping one costs none.

mod api_error;
mod cache;
pub mod codec;
mod driver;
pub mod object;
pub mod plan;

pub use cache::WatchState;
pub use driver::{FIELD_MANAGER, NadDriver};
