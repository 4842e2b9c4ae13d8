//! The southbound driver `bgp-speaker`: it realises one BGPSessionGroup per target as objects of a BGP speaker in the
//! cluster.
//!
//! [`metallb`] (the objects of MetalLB) and [`plan`] are pure. [`SpeakerDriver`] carries plans out. Watches notify it when
//! somebody changes the objects; it reads them anew each time, since groups are few and change seldom.

mod api_error;
mod driver;
pub mod metallb;
pub mod plan;

pub use driver::{FIELD_MANAGER, SpeakerDriver};
