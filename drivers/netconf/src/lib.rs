//! Configures switches over NETCONF: the VLANs of a command on the ports that it lists.
//!
//! | module | what | IO |
//! |---|---|---|
//! | [`plan`] | the changes of a device, and the owner of each VLAN | none |
//! | [`dialect`] | how a family of devices writes VLANs and ports | none |
//! | [`text`] | large messages | none |
//! | [`memory`] | how much of a device is kept | none |
//! | [`hello`] | the capabilities of a device and its transaction profile | none |
//! | [`transaction`] | lock, edit, commit, read back, hold, confirm; excluding refused items | through
//! [`session::Session`] |
//! | [`session`], [`ssh`] | NETCONF over SSH | yes |
//! | [`credentials`] | the logins for devices | yes |
//! | [`driver`] | the devices and their sessions | yes |

pub mod credentials;
pub mod dialect;
pub mod driver;
mod framing;
#[doc(hidden)]
pub mod fuzz;
pub mod hello;
pub mod memory;
mod notification;
mod operation;
mod pacing;
pub mod plan;
mod reply;
pub mod session;
pub mod ssh;
#[cfg(test)]
mod test_states;
pub mod text;
pub mod transaction;
mod xml;

pub use reply::{RpcError, RpcErrors};
pub use xml::XmlError;
