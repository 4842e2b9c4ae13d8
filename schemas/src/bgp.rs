//! BGP sessions between a VRF of a device and the workers of a cluster (RFC 4271).

use std::net::IpAddr;

use ipnet::IpNet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::Text;

/// The sessions of one object in a VRF. All have the same settings. Each uses the family of its neighbour's address.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BgpGroup {
    /// The object that they are of, as `BGPSessionGroup/<name>`.
    pub owner: String,
    /// The AS of the device as the workers see it. Where the VRF has a BGP instance with another AS, that stays, and this
    /// is the local AS of the neighbours.
    #[serde(rename = "localAS")]
    #[schemars(range(min = 1))]
    pub local_as: u32,
    /// The AS of the workers.
    #[serde(rename = "peerAS")]
    #[schemars(range(min = 1))]
    pub peer_as: u32,
    /// The addresses of the workers, ascending, each once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub neighbours: Vec<IpAddr>,
    /// The networks whose hosts may open a session, ascending, each once. Only drivers that announce `dynamicNeighbours`
    /// get any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<String>")]
    pub dynamic_neighbours: Vec<IpNet>,
    /// Seconds without a message after which a session ends; at least 3 (RFC 4271, section 4.2).
    #[schemars(range(min = 3))]
    pub hold_time: u16,
    /// Seconds between two KEEPALIVE messages.
    #[schemars(range(min = 1))]
    pub keepalive_time: u16,
    /// Ends a session when BFD does not see the worker (RFC 5882); absent: no BFD.
    pub bfd: Option<Bfd>,
    /// Seconds for which routes stay while a worker restarts (RFC 4724); absent: no graceful restart.
    #[schemars(range(min = 1, max = 4095))]
    pub graceful_restart: Option<u16>,
    /// The name of a Secret with the password (RFC 2385), which the driver reads itself; never the password.
    pub password: Option<String>,
    /// A worker that announces more prefixes is disconnected; absent: no maximum.
    #[schemars(range(min = 1))]
    pub maximum_prefixes: Option<u32>,
    /// The prefixes that the device takes from the workers, and all in them; nothing else. Ascending, each once.
    #[schemars(with = "Vec<String>")]
    pub accept: Vec<IpNet>,
    /// The prefixes that the device announces to the workers, as they are; nothing else. Ascending, each once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<String>")]
    pub announce: Vec<IpNet>,
    /// The communities that what the device takes gets, such as `65000:100` (RFC 1997), ascending, each once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub communities: Vec<String>,
}

/// Timers of BFD (RFC 5880, section 4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Bfd {
    /// Milliseconds between two packets that the device can take.
    pub receive_interval: u32,
    /// Milliseconds between two packets that it sends.
    pub transmit_interval: u32,
    /// The session is down after this many packets are missing.
    pub detect_multiplier: u8,
}

/// The state of a session, as the device sees it (RFC 4271, section 8.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum BgpState {
    /// It is not begun.
    Idle,
    /// TCP connects.
    Connect,
    /// The device waits for TCP.
    Active,
    /// An OPEN is sent.
    OpenSent,
    /// An OPEN is received.
    OpenConfirm,
    /// Routes are exchanged.
    Established,
}

/// A session that the device knows.
#[skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BgpSession {
    /// The worker's address.
    pub address: IpAddr,
    /// Its state.
    pub state: BgpState,
    /// Since when it is established, RFC 3339; absent: it is not, or the device does not say.
    pub since: Option<Text>,
    /// The last NOTIFICATION; absent: none, or the device does not say.
    pub last_error: Option<BgpError>,
}

/// A NOTIFICATION (RFC 4271, section 4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BgpError {
    /// The error code.
    pub code: u8,
    /// The subcode.
    pub subcode: u8,
    /// The worker sent it; else the device did.
    pub received: bool,
}
