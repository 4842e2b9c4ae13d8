//! The base of drivers of fabrics. A driver has what its devices need of their own, and this crate has the rest.
//!
//! | module | what |
//! |---|---|
//! | [`driver`] | the targets and their locks, commands, previews, audits, and what the host hears of changes |
//! | [`convergence`] | what a reconcile remembers: drift, what it changed, and what was verified before |
//! | [`desired`] | the ports and VLANs of a desired state, and the content that two of them share |
//! | [`report`] | rejections, bounded notes, changes, and the observed state |

pub mod convergence;
pub mod desired;
pub mod driver;
pub mod report;

pub use convergence::{Converged, Convergence, Verified};
pub use driver::{Changes, FabricDevices, FabricDriver, Targets, audit_interval};
