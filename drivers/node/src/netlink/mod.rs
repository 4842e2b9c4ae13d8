//! rtnetlink in one network namespace at a time.
//!
//! The kernel answers a netlink request within the call that sends it, so nothing here is `async`. Work is done on a
//! thread that has entered the namespace ([`Namespace::run`]). A round trip costs some 10 µs there, and several
//! requests go in one system call ([`Netlink::batch`]). Such a thread also sees the namespace's own `/proc/sys/net`.
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

mod attribute_filter;
mod decode;
mod error;
mod ethtool;
mod filter;
mod mirror;
mod namespace;
mod neighbour;
pub(crate) mod nftables;
mod notification;
mod pool;
pub(crate) mod program;
mod request;
mod snapshot;
mod socket;
mod vlan;
mod watch;
mod workers;

pub use error::{NamespaceError, NetlinkError};
pub use ethtool::Ethtool;
pub use filter::{IngressProgram, Instruction, MAX_INSTRUCTIONS};
pub use mirror::{Links, Mirror};
pub use namespace::{Namespace, NamespaceId, run_on_worker};
pub use neighbour::Neighbour;
pub use nftables::{MarkChain, MarkPlace, MarkRule, Nftables, TableChange};
pub use notification::Notifications;
pub use pool::Pool;
pub use request::Request;
pub use snapshot::{Address, Kind, Link, Overlay, Route, Rule, Snapshot, Tunnel};
pub use socket::Netlink;
pub use vlan::{PortVlan, PortsVlans};
pub use watch::{Readiness, Watch};

/// `rtm_protocol`, `FRA_PROTOCOL` and `IFA_PROTO` of the routes, rules and addresses that ENO makes. It marks them as
/// ENO's.
pub const PROTOCOL: u8 = 101;

/// `RTPROT_KERNEL`.
pub const PROTOCOL_KERNEL: u8 = 2;
