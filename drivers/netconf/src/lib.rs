//! Configures switches over NETCONF: the VLANs of a command on the ports that it lists.
//!
//! A module depends only on modules before it:
//!
//! 1. `text`, `xml`: large messages, and how they are read.
//! 2. `reply`: the errors in replies.
//! 3. `memory`: how much of a device is kept.
//! 4. `plan`, `stations`, `bgp_sessions`: the changes of a device, and the owner of each VLAN; what it has learnt of
//!    probes; the state of its BGP sessions.
//! 5. `hello`, `operation`, `notification`, `framing`: the messages, and the transaction profile of a device.
//! 6. `dialect`: how a family of devices writes VLANs and ports.
//! 7. `session`, `credentials`, `ssh`: NETCONF over SSH, and the logins for devices (IO).
//! 8. `transaction`: lock, edit, commit, read back, hold, confirm; excluding refused items.
//! 9. `pacing`, `driver`: the devices and their sessions (IO).
//! 10. `fuzz`: entries for fuzzers.
//!
//! A dialect is a file or folder of `dialect` with its unit tests, and a line in [`dialect::DIALECTS`].

pub mod bgp_sessions;
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
pub mod stations;
pub mod text;
pub mod transaction;
mod xml;

pub use reply::{RpcError, RpcErrors};
pub use xml::XmlError;
