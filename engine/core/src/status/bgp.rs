//! The nodes and sessions in the status of a BGPSessionGroup.

use std::net::IpAddr;

use eno_schemas::{BgpState, Text};
use ipnet::IpNet;

use crate::Name;

/// The addresses that a node has for its sessions. They are written before the node gets them, and stay until it has reported
/// that it does not have them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Worker {
    /// The node.
    pub node: Name,
    /// With the prefix lengths of their networks.
    pub addresses: Vec<IpNet>,
}

/// The sessions in a status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sessions {
    /// At most [`Self::MAX_LISTED`]. Those that are not established come first.
    pub listed: Vec<Session>,
    /// How many there are to be.
    pub all: usize,
    /// How many are established.
    pub established: usize,
}

impl Sessions {
    /// Maximum length of [`Self::listed`].
    pub const MAX_LISTED: usize = 256;
}

/// A session of a node with a device.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Session {
    /// It is established.
    pub is_established: bool,
    /// The node.
    pub node: Name,
    /// The FabricDevice.
    pub device: Name,
    /// The device's address.
    pub address: IpAddr,
    /// As the device sees it; `None`: it does not know the session.
    pub state: Option<BgpState>,
    /// Since when it is established, RFC 3339.
    pub since: Option<Text>,
    /// Why it ended, or does not begin.
    pub last_error: Option<String>,
}
