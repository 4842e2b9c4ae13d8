//! Configures switches over NETCONF: the VLANs of a command on the ports that it lists, and nothing else.
//!
//! | module | what | IO |
//! |---|---|---|
//! | [`plan`] | what is to change, whose is what | none |
//! | [`dialect`] | how a family of devices writes it | none |
//! | [`text`] | messages, however long | none |
//! | [`hello`] | what a device offers, and how a transaction runs on it | none |
//! | [`transaction`] | lock, edit, commit, read back, hold, confirm; leaving out what is refused | through [`session::Session`] |
//! | [`session`], [`ssh`] | NETCONF over SSH | yes |
//! | [`credentials`] | who we are to a device | yes |
//! | [`driver`] | the devices and their sessions | yes |

pub mod credentials;
pub mod dialect;
pub mod driver;
mod framing;
#[doc(hidden)]
pub mod fuzz;
pub mod hello;
mod notification;
mod operation;
mod pacing;
pub mod plan;
mod reply;
pub mod session;
pub mod ssh;
pub mod text;
pub mod transaction;
mod xml;

pub use reply::{RpcError, RpcErrors};
pub use xml::XmlError;
