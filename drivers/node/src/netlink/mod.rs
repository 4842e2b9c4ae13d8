//! rtnetlink in one network namespace at a time.
//!
//! The kernel answers a netlink request within the call that sends it, so nothing here waits and nothing here is
//! `async`: work is done on a thread that has entered the namespace ([`Namespace::run`]), where a round
//! trip costs some 10 µs and several requests go in one system call ([`Netlink::batch`]). What such a thread reads
//! or writes below `/proc/sys/net` is that namespace's too.
//!
//! ```no_run
//! # use eno_driver_node::netlink::{Namespace, Netlink, Request};
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let namespace = Namespace::open("/run/netns/blue".as_ref())?;
//! let names = namespace
//!     .run(|| -> Result<Vec<String>, eno_driver_node::netlink::NetlinkError> {
//!         let mut netlink = Netlink::open()?;
//!         Ok(netlink.links()?.into_iter().map(|link| link.name).collect())
//!     })
//!     .await??;
//! # Ok(()) }
//! ```

mod decode;
mod error;
mod lean;
mod mirror;
mod namespace;
mod pool;
mod request;
mod snapshot;
mod socket;
mod told;
mod vlan;
mod watch;
mod workers;

pub use error::{NamespaceError, NetlinkError};
pub use mirror::{Links, Mirror};
pub use namespace::{Namespace, NamespaceId, anywhere};
pub use pool::Pool;
pub use request::Request;
pub use snapshot::{Address, Kind, Link, Overlay, Route, Rule, Snapshot, Tunnel};
pub use socket::Netlink;
pub use vlan::{PortVlan, PortsVlans};
pub use watch::Watch;

/// `rtm_protocol`, `FRA_PROTOCOL` and `IFA_PROTO` of what is ours: told from others' by the kernel alone.
pub const PROTOCOL: u8 = 101;
